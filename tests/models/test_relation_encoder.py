"""Relation vectors that borrow: against plain loops over mined context, without effect at first, without the fact."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from contextpool.context.counts import Statistics
from contextpool.context.neighbors import ContextNeighbors
from contextpool.graph.graph import Graph
from contextpool.graph.relations import inverse_label
from contextpool.models.nbfnet import NBFNet
from contextpool.models.relation_encoder import RelationEncoder
from contextpool.pool.batch import BatchBuilder
from learning_worlds import SMALL, ask, every_query, new_model, random_graph, scatter_weights, without_fact
from learning_worlds import one_thread as one_thread
from support import amount, context_with

CASES = amount(6, 200)


def literal(encoder: RelationEncoder, graph: Graph) -> Tensor:
    """[2R, D] by loops over the relations of a graph, with the context that is mined on it."""
    context = ContextNeighbors(Statistics.of(graph).counts)
    labels = graph.relation_vocabulary.directed
    state = dict(zip(labels, encoder.relation.weight, strict=True))
    for own, others in zip(encoder.own, encoder.others, strict=True):
        following = {}
        for label in labels:
            parts = []
            for measure in (context.precision, context.recall):
                for end in (label, inverse_label(label)):  # where it begins, where it arrives
                    met = {other: measure(end, other) for other in labels if other != end}
                    total = max(sum(met.values()), 1e-6)
                    for far in (lambda other: other, inverse_label):
                        parts.append(sum(weight * state[far(other)] for other, weight in met.items()) / total)
            following[label] = torch.relu(own(state[label]) + others(torch.cat(parts)))
        state = following
    return torch.stack([encoder.last(state[label]) for label in labels])


def new_encoder(num_relations: int, seed: int) -> RelationEncoder:
    torch.manual_seed(seed)
    encoder = RelationEncoder(num_relations, 3)
    scatter_weights(encoder)
    return encoder


def test_vectors_are_those_of_plain_loops() -> None:
    for seed in range(CASES):
        graph = random_graph(seed)
        encoder = new_encoder(graph.num_relations, seed)
        builder = BatchBuilder(graph, 1, context_with(views=()), relation_graph=True)
        head, relation = every_query(graph)
        with torch.no_grad():
            found = encoder(builder.build(head, relation))
            torch.testing.assert_close(found, literal(encoder, graph), atol=1e-5, rtol=1e-4)


def test_every_query_has_vectors_without_its_own_fact() -> None:
    changed = 0
    for seed in range(CASES):
        graph = random_graph(seed)
        encoder = new_encoder(graph.num_relations, seed)
        builder = BatchBuilder(graph, 1, relation_graph=True)
        head, relation = graph.edge_head.long(), graph.edge_relation.long()
        with torch.no_grad():
            found = encoder(builder.build(head, relation, torch.arange(graph.num_edges)))
            seen = encoder(builder.build(head, relation))
            for edge in range(graph.num_edges):
                expected = literal(encoder, without_fact(graph, edge))
                torch.testing.assert_close(found[edge], expected, atol=1e-5, rtol=1e-4)
                changed += int(not torch.allclose(found[edge], seen, atol=1e-3))
    assert changed > CASES


def test_it_starts_without_effect() -> None:
    name, kind = "nbfnet", NBFNet
    for seed in range(3):
        graph = random_graph(seed)
        plain = new_model(name, graph, None, seed)
        config = kind.config_class(**{**SMALL[name], "relation_encoder": True})
        enriched = kind(graph.num_relations, config, None).eval()
        missing, unexpected = enriched.load_state_dict(plain.state_dict(), strict=False)
        assert not unexpected
        assert missing
        assert all("encoder." in key or "enrich." in key for key in missing)
        head, relation = every_query(graph)
        builder = BatchBuilder(graph, 2, relation_graph=True)
        torch.testing.assert_close(
            ask(enriched, builder, head, relation), ask(plain, builder, head, relation), atol=1e-6, rtol=1e-6
        )


def test_relation_weights_and_query_vectors_take_part() -> None:
    """What is borrowed reaches the scores in both ways, and so does its gradient."""
    graph = random_graph(5, most_entities=12, most=60)
    model = new_model("nbfnet", graph, None, 0, relation_encoder=True, dim=8)
    builder = BatchBuilder(graph, 2, relation_graph=True)
    head, relation, edge = graph.edge_head.long(), graph.edge_relation.long(), torch.arange(graph.num_edges)
    model(builder.build(head, relation, edge)).square().sum().backward()
    for key, weight in model.named_parameters():
        if "encoder." in key or "enrich." in key:
            assert weight.grad is not None, key
            assert weight.grad.abs().sum() > 0, key


def test_queries_that_hide_nothing_score_as_those_asked_without_an_edge() -> None:
    graph = random_graph(6)
    model = new_model("nbfnet", graph, None, 1, relation_encoder=True)
    builder = BatchBuilder(graph, 2, relation_graph=True)
    head, relation = every_query(graph)
    nothing = ask(model, builder, head, relation, torch.full_like(head, -1))
    torch.testing.assert_close(nothing, ask(model, builder, head, relation), atol=1e-5, rtol=1e-5)


def test_a_batch_without_the_relation_graph_is_refused() -> None:
    graph = random_graph(1)
    model = new_model("nbfnet", graph, None, 0, relation_encoder=True)
    assert model.reads_relations
    assert not new_model("nbfnet", graph).reads_relations
    with pytest.raises(AssertionError, match="needs batches with the relation graph"):
        ask(model, BatchBuilder(graph, 2), *every_query(graph))
