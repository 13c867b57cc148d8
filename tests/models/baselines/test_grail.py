"""GraIL: subgraphs and labels are those of the definition, and only the candidates asked for are scored."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch

import contextpool as cp
from contextpool import experiment
from contextpool.errors import ConfigError
from contextpool.graph.graph import Graph
from contextpool.models.baselines import grail
from contextpool.models.baselines.grail import (
    EnclosingSubgraphs,
    GraIL,
    GraILConfig,
    empty_subgraphs,
    enclosing_subgraphs,
    nodes_of,
)
from contextpool.pool.batch import BatchBuilder, QueryBatch
from contextpool.pool.propagation import Propagation
from learning_worlds import (
    ask,
    every_query,
    family_dataset,
    graph_over,
    new_model,
    random_graph,
    without_fact,
)
from learning_worlds import one_thread as one_thread
from models.baselines.literal import Edges, edges_of
from support import amount

CASES = amount(25, 500)

Labels = dict[int, tuple[int, int]]


def literal_distances(edges: Edges, start: int, removed: int) -> dict[int, int]:
    """Hops from the start to everything that is reached without the removed entity."""
    distance, newest = {start: 0}, {start}
    while newest:
        step = 1 + max(distance.values())
        newest = {t for h, _, t in edges if h in newest and t != removed and t not in distance}
        distance |= dict.fromkeys(newest, step)
    return distance


def literal_subgraph(edges: Edges, head: int, candidate: int, hops: int) -> tuple[Labels, Counter[Any]]:
    """Labels of the nodes, and the edges between them."""
    to_head = literal_distances(edges, head, candidate)
    to_candidate = literal_distances(edges, candidate, head)
    labels = {
        node: (to_head[node], to_candidate[node])
        for node in to_head.keys() & to_candidate.keys()
        if max(to_head[node], to_candidate[node]) <= hops
    }
    labels |= {head: (0, 1), candidate: (1, 0)}
    inside = Counter((h, r, t) for h, r, t in edges if h in labels and t in labels and h != t)
    return labels, inside


def batch_subgraph(
    subgraphs: EnclosingSubgraphs, walk: Propagation, pair: int
) -> tuple[Labels, Counter[Any]]:
    entity = walk.node_entity[subgraphs.node].tolist()
    mine = (subgraphs.pair == pair).tolist()
    labels = {
        entity[place]: tuple(label) for place, label in enumerate(subgraphs.label.tolist()) if mine[place]
    }
    hop = subgraphs.hop
    columns = (hop.edge_source, hop.edge_relation, hop.edge_target)
    edges = Counter(
        (entity[source], relation, entity[target])
        for source, relation, target in zip(*(column.tolist() for column in columns), strict=True)
        if mine[source] or mine[target]
    )
    return labels, edges


def candidates_of(walk: Propagation) -> torch.Tensor:
    return torch.arange(walk.num_queries, len(walk.node_query))


def whole_batch(graph: Graph, hops: int) -> QueryBatch:
    return BatchBuilder(graph, 2 * hops).build(*every_query(graph))


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_subgraphs_and_labels_are_those_of_the_definition(hops: int) -> None:
    for seed in range(CASES):
        graph = random_graph(seed, most_entities=12, most=18)
        walk = (
            BatchBuilder(graph, 2 * hops)
            .build(torch.arange(graph.num_entities), torch.zeros(graph.num_entities))
            .propagation
        )
        candidate = candidates_of(walk)
        subgraphs = enclosing_subgraphs(walk, candidate, hops, graph.num_relations)
        edges = edges_of(graph)
        for pair, node in enumerate(candidate.tolist()):
            head, entity = int(walk.query_head[walk.node_query[node]]), int(walk.node_entity[node])
            assert batch_subgraph(subgraphs, walk, pair) == literal_subgraph(edges, head, entity, hops)
            assert walk.node_entity[subgraphs.node[subgraphs.head[pair]]] == head
            assert walk.node_entity[subgraphs.node[subgraphs.candidate[pair]]] == entity


def test_what_was_not_reached_has_an_empty_subgraph_by_the_definition_too() -> None:
    for seed in range(CASES):
        graph = random_graph(seed, most_entities=12, most=12)
        walk = (
            BatchBuilder(graph, 2)
            .build(torch.arange(graph.num_entities), torch.zeros(graph.num_entities))
            .propagation
        )
        reached = set(zip(walk.node_query.tolist(), walk.node_entity.tolist(), strict=True))
        for head in range(graph.num_entities):
            for entity in range(graph.num_entities):
                if (head, entity) not in reached:
                    labels, edges = literal_subgraph(edges_of(graph), head, entity, 1)
                    assert (labels, edges) == ({head: (0, 1), entity: (1, 0)}, Counter())


def test_a_label_goes_round_the_other_end() -> None:
    """c is two hops from a through the candidate b, and three round it: a - b - c, a - d - e - c."""
    facts = [("a", "r", "b"), ("b", "r", "c"), ("a", "r", "d"), ("d", "r", "e"), ("e", "r", "c")]
    graph = Graph.from_triples(facts)
    walk = BatchBuilder(graph, 6).build(torch.tensor([0]), torch.tensor([0])).propagation
    node = nodes_of(walk, torch.tensor([[1]]))[0]
    labels, _ = batch_subgraph(enclosing_subgraphs(walk, node, 3, 1), walk, 0)
    assert labels == {0: (0, 1), 1: (1, 0), 2: (3, 1), 3: (1, 3), 4: (2, 2)}


def test_a_hidden_fact_is_in_no_subgraph() -> None:
    graph = random_graph(3, most_entities=5, most=14)
    edge = torch.arange(graph.num_edges)
    walk = BatchBuilder(graph, 4).build(graph.edge_head, graph.edge_relation, edge).propagation
    candidate = candidates_of(walk)
    subgraphs = enclosing_subgraphs(walk, candidate, 2, graph.num_relations)
    for pair, node in enumerate(candidate.tolist()):
        query = int(walk.node_query[node])
        rest = edges_of(without_fact(graph, query))
        expected = literal_subgraph(rest, int(walk.query_head[query]), int(walk.node_entity[node]), 2)
        assert batch_subgraph(subgraphs, walk, pair) == expected


@pytest.mark.parametrize("hops", [1, 2])
def test_scores_of_some_candidates_are_those_of_all(hops: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(5):
        graph = random_graph(seed)
        model, batch = new_model("grail", graph, seed=seed, hops=hops), whole_batch(graph, hops)
        everything = torch.arange(graph.num_entities).repeat(len(batch.query_relation), 1)
        with torch.no_grad():
            scores = model(batch)
            torch.testing.assert_close(model.scores_of(batch, everything), scores)
            twice = torch.tensor([[2, 0, 2]]).expand(len(scores), -1)
            torch.testing.assert_close(model.scores_of(batch, twice), scores[:, [2, 0, 2]])
            monkeypatch.setattr(grail, "EDGES_AT_ONCE", {"cpu": 1})
            torch.testing.assert_close(model(batch), scores)
            monkeypatch.undo()


def test_only_the_candidates_asked_for_cost_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph.from_triples([(f"e{number}", "r", f"e{number + 1}") for number in range(9)])
    model, asked = new_model("grail", graph, hops=2), []
    batch = BatchBuilder(graph, 4).build(torch.tensor([4]), torch.tensor([0]))
    whole = grail.enclosing_subgraphs

    def counted(walk: Propagation, candidate: torch.Tensor, *rest: int) -> EnclosingSubgraphs:
        asked.append(len(candidate))
        return whole(walk, candidate, *rest)

    monkeypatch.setattr(grail, "enclosing_subgraphs", counted)
    model.scores_of(batch, torch.tensor([[5, 9, 4, 5]]))  # 9 is out of reach, 4 the head, 5 asked for twice
    assert asked == [1]


def test_far_candidates_and_the_head_have_the_score_of_an_empty_subgraph() -> None:
    graph = Graph.from_triples([(f"e{number}", "r", f"e{number + 1}") for number in range(9)])
    model = new_model("grail", graph, hops=2)
    scores = ask(model, BatchBuilder(graph, 4), torch.tensor([0]), torch.tensor([0]))[0].tolist()
    assert len({scores[0], *scores[5:]}) == 1
    assert len(set(scores[:5])) == 5


def test_a_score_is_that_of_the_equations() -> None:
    """One pair without kernels, chunks or tables: a - b - c with a shortcut, asked for c."""
    graph = graph_over([("a", "r", "b"), ("b", "s", "c"), ("a", "s", "c")], ["a", "b", "c"], ["r", "s"])
    model = new_model("grail", graph, hops=1)
    assert isinstance(model, GraIL)
    labels, edges = literal_subgraph(edges_of(graph), 0, 2, 1)
    state = {node: torch.eye(2)[list(label)].flatten() for node, label in labels.items()}
    query, vector, read = 1, model.attention_relation.weight, []
    for layer in model.layers:
        size = len(state[0])
        matrix = torch.einsum("rb,obi->roi", layer.mixture, layer.basis.weight.unflatten(1, (-1, size)))
        received = {node: layer.stay(value) for node, value in state.items()}
        for source, relation, target in edges.elements():
            inner = layer.from_source(state[source]) + layer.from_target(state[target])
            inner = inner + layer.from_relation(vector[relation]) + layer.from_query(vector[query])
            attention = torch.sigmoid(layer.attention(torch.relu(inner)))
            received[target] = received[target] + attention * (matrix[relation] @ state[source])
        state = {node: torch.relu(value) for node, value in received.items()}
        read += [torch.stack(list(state.values())).mean(dim=0), state[0], state[2]]
    expected = model.score(torch.cat([*read, model.query.weight[query]]))
    scores = ask(model, BatchBuilder(graph, 2), torch.tensor([0]), torch.tensor([query]))
    torch.testing.assert_close(scores[0, 2], expected[0].detach())


def test_the_empty_subgraph_has_two_nodes_a_query() -> None:
    graph = random_graph(1)
    walk = whole_batch(graph, 1).propagation
    empty = empty_subgraphs(walk)
    assert empty.hop.num_edges == 0
    assert empty.num_nodes.tolist() == [2] * walk.num_queries
    assert empty.label[empty.head].tolist() == [[0, 1]] * walk.num_queries
    assert empty.label[empty.candidate].tolist() == [[1, 0]] * walk.num_queries


def test_training_with_negatives_never_scores_all_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    """And learns: a ranking by a family's shape is better than by chance."""
    in_training = []
    whole = GraIL.forward

    def watched(self: GraIL, batch: QueryBatch) -> torch.Tensor:
        in_training.append(self.training)
        return whole(self, batch)

    monkeypatch.setattr(GraIL, "forward", watched)
    data = family_dataset(inductive=True)
    settings = {"dim": 8, "layers": 2, "hops": 1, "attention_dim": 4, "edge_dropout": 0.0}
    train = {"epochs": 6, "batch_size": 32, "loss": "bce", "negatives": 8, "lr": 0.02, "warmup_steps": 0}
    trained = cp.train(data, "grail", settings=settings, train=train, seed=1)
    assert in_training
    assert not any(in_training)
    untrained = cp.train(data, "grail", settings=settings, train={**train, "epochs": 1, "lr": 1e-9}, seed=1)
    better, worse = (experiment.evaluate(one, data).mrr for one in (trained, untrained))
    assert better > worse + 0.1


def test_an_explanation_can_differentiate_by_edges() -> None:
    graph = Graph.from_triples([("a", "r", "b"), ("b", "s", "c"), ("a", "s", "c")])
    model = new_model("grail", graph, hops=1)
    batch = BatchBuilder(graph, 2).build(torch.tensor([0]), torch.tensor([1]))
    plain = model(batch)
    scale = torch.ones(len(batch.propagation.edge_source), requires_grad=True)
    scaled = model(replace(batch, propagation=replace(batch.propagation, edge_scale=scale)))
    torch.testing.assert_close(scaled, plain)
    scaled[0, 2].backward()
    assert scale.grad is not None
    assert scale.grad.abs().sum() > 0


def test_settings_that_make_no_sense_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"model\.hops is 0"):
        GraILConfig(hops=0)
    with pytest.raises(ConfigError, match=r"model\.edge_dropout is 1"):
        GraILConfig(edge_dropout=1.0)
