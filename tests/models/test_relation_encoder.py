"""Relation vectors that borrow: against plain loops over mined context, without effect at first, without the fact."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from contextpool.context.config import ContextConfig
from contextpool.context.counts import Statistics
from contextpool.context.neighbors import ContextNeighbors
from contextpool.errors import ConfigError
from contextpool.graph.graph import Graph
from contextpool.graph.relations import inverse_label
from contextpool.models.nbfnet import NBFNetConfig
from contextpool.models.redgnn import REDGNNConfig
from contextpool.models.registry import model_class
from contextpool.models.relation_encoder import RelationEncoder
from contextpool.pool.batch import BatchBuilder
from learning_worlds import SMALL, ask, every_query, new_model, random_graph, scatter_weights, without_fact
from learning_worlds import one_thread as one_thread
from support import amount

CASES = amount(6, 200)
TRAINED = pytest.mark.parametrize("name", ["nbfnet", "redgnn"])
LAYERS = pytest.mark.parametrize("layers", [1, 2])


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


def new_encoder(num_relations: int, layers: int, seed: int) -> RelationEncoder:
    torch.manual_seed(seed)
    encoder = RelationEncoder(num_relations, 3, layers)
    scatter_weights(encoder)
    return encoder


@LAYERS
def test_vectors_are_those_of_plain_loops(layers: int) -> None:
    for seed in range(CASES):
        graph = random_graph(seed)
        encoder = new_encoder(graph.num_relations, layers, seed)
        builder = BatchBuilder(graph, 1, ContextConfig(views=()), relation_graph=True)
        head, relation = every_query(graph)
        with torch.no_grad():
            found = encoder(builder.build(head, relation))
            torch.testing.assert_close(found, literal(encoder, graph), atol=1e-5, rtol=1e-4)


@LAYERS
def test_every_query_has_vectors_without_its_own_fact(layers: int) -> None:
    changed = 0
    for seed in range(CASES):
        graph = random_graph(seed)
        encoder = new_encoder(graph.num_relations, layers, seed)
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


@TRAINED
def test_it_starts_without_effect(name: str) -> None:
    kind = model_class(name)
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


@pytest.mark.parametrize(
    ("name", "settings"), [("nbfnet", {}), ("nbfnet", {"dependent": False}), ("redgnn", {})]
)
def test_relation_weights_and_query_vectors_take_part(name: str, settings: dict[str, Any]) -> None:
    """What is borrowed reaches the scores in both ways, and so does its gradient."""
    graph = random_graph(5, most_entities=12, most=60)
    wanted = {"relation_encoder": True, "relation_layers": 2, "dim": 8, **settings}
    model = new_model(name, graph, None, 0, **wanted)
    builder = BatchBuilder(graph, 2, relation_graph=True)
    head, relation, edge = graph.edge_head.long(), graph.edge_relation.long(), torch.arange(graph.num_edges)
    model(builder.build(head, relation, edge)).square().sum().backward()
    for key, weight in model.named_parameters():
        if "encoder." in key or "enrich." in key:
            assert weight.grad is not None, key
            assert weight.grad.abs().sum() > 0, key


@TRAINED
def test_queries_that_hide_nothing_score_as_those_asked_without_an_edge(name: str) -> None:
    graph = random_graph(6)
    model = new_model(name, graph, None, 1, relation_encoder=True)
    builder = BatchBuilder(graph, 2, relation_graph=True)
    head, relation = every_query(graph)
    nothing = ask(model, builder, head, relation, torch.full_like(head, -1))
    torch.testing.assert_close(nothing, ask(model, builder, head, relation), atol=1e-5, rtol=1e-5)


def test_what_is_missing_or_wrong_is_said_by_name() -> None:
    graph = random_graph(1)
    model = new_model("nbfnet", graph, None, 0, relation_encoder=True)
    assert model.reads_relations
    assert not new_model("nbfnet", graph).reads_relations
    with pytest.raises(AssertionError, match="needs batches with the relation graph"):
        ask(model, BatchBuilder(graph, 2), *every_query(graph))
    for kind in (NBFNetConfig, REDGNNConfig):
        with pytest.raises(ConfigError, match=r"model\.relation_layers is 3"):
            kind(relation_layers=3)
