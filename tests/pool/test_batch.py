"""From queries to what a model reads: the right walks, bits and relevance for every query of a batch."""

from __future__ import annotations

from dataclasses import asdict

import pytest
import torch

from contextpool.context.config import ViewConfig
from contextpool.context.counts import Statistics
from contextpool.context.families import mine_families
from contextpool.context.neighbors import mine_context
from contextpool.errors import ConfigError
from contextpool.graph.graph import Graph
from contextpool.pool.batch import BatchBuilder, QueryBatch
from contextpool.pool.expand import expand
from contextpool.pool.hide import HiddenEdges
from contextpool.pool.propagation import Propagation, build_propagation
from contextpool.recipe import context_from
from learning_worlds import CONTEXTS, every_query, random_graph
from learning_worlds import one_thread as one_thread
from support import amount, context_with, relation_sets_of

CASES = amount(25, 500)
TENSORS = ("node_query", "node_entity", "edge_source", "edge_target", "edge_relation", "edge_id")


def assert_same_walk(one: Propagation, other: Propagation) -> None:
    assert one.layer_sizes == other.layer_sizes
    for name in TENSORS:
        assert torch.equal(getattr(one, name), getattr(other, name)), name
    assert torch.equal(one.edge_views, other.edge_views)


def edge_queries(graph: Graph) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Every edge as a query that must not see itself: heads, relations, hidden edges."""
    return graph.edge_head.long(), graph.edge_relation.long(), torch.arange(graph.num_edges)


def test_without_context_there_is_the_walk_and_nothing_else() -> None:
    for seed in range(CASES):
        graph = random_graph(seed)
        head, relation, edge = edge_queries(graph)
        batch = BatchBuilder(graph, 2).build(head, relation, edge)
        hidden = HiddenEdges.one_per_query(graph, edge)
        assert_same_walk(batch.propagation, build_propagation(graph, head, relation, 2, hidden))
        assert batch.neighbor_relevance is None
        assert batch.candidate_relevance is None
        assert torch.equal(batch.query_relation, relation)


def test_each_view_is_walked_with_its_own_thresholds() -> None:
    bits_set = 0
    for seed in range(CASES):
        graph = random_graph(seed)
        context = context_with(
            views=(ViewConfig(0.4, 0.1), ViewConfig(0.0, 0.3), ViewConfig(0.2, algorithm="families-precision")),
            hops=2, self_policy="keep",
        )  # fmt: skip
        selectors = [
            mine_context(graph, 0.4, 0.1, self="keep"),
            mine_context(graph, 0.0, 0.3, self="keep"),
            mine_families(graph, measure="precision", threshold=0.2),
        ]
        head, relation = every_query(graph)
        views = [expand(graph, selector, head, relation, 2).hops for selector in selectors]
        expected = build_propagation(graph, head, relation, 3, views=views)
        batch = BatchBuilder(graph, 3, context).build(head, relation)
        assert_same_walk(batch.propagation, expected)
        bits_set += int((expected.edge_views > 0).sum())
    assert bits_set > CASES


def test_families_by_recall_take_the_recall_threshold() -> None:
    for seed in range(CASES // 2):
        graph = random_graph(seed)
        view = ViewConfig(min_precision=0.9, min_recall=0.2, algorithm="families-recall", sizes=(1, 2))
        builder = BatchBuilder(graph, 2, context_with(views=(view,)))
        expected = mine_families(graph, measure="recall", threshold=0.2, sizes=(1, 2))
        for relation in graph.relation_vocabulary.directed:
            assert set(builder.selectors[0][relation]) == set(expected[relation])  # type: ignore[index]


def literal_candidates(graph: Graph, relation: str) -> list[float]:
    """For every entity the best precision[inverse(relation), y] over the relations y that it has."""
    has = relation_sets_of(list(graph.triples))
    back = relation.removesuffix("^-1") if relation.endswith("^-1") else f"{relation}^-1"
    context = mine_context(graph)
    return [
        max((context.precision(back, label) for label in has.get(entity, ())), default=0.0)
        for entity in graph.entities
    ]


def test_relevance_is_precision_recall_and_the_best_of_a_candidate() -> None:
    for seed in range(CASES):
        graph = random_graph(seed)
        context = mine_context(graph)
        directed = graph.relation_vocabulary.directed
        relation = torch.arange(len(directed))
        builder = BatchBuilder(graph, 1, context_with(views=(), gate=True, arrive=True))
        batch = builder.build(torch.zeros_like(relation), relation)
        assert batch.neighbor_relevance is not None
        assert batch.candidate_relevance is not None
        for asked, label in enumerate(directed):
            expected = [[context.precision(label, y), context.recall(label, y)] for y in directed]
            torch.testing.assert_close(batch.neighbor_relevance[asked], torch.tensor(expected))
            candidates = torch.tensor(literal_candidates(graph, label))
            torch.testing.assert_close(batch.candidate_relevance[asked], candidates)


def test_a_candidate_that_has_the_answer_side_of_the_relation_is_fully_relevant() -> None:
    graph = Graph.from_triples([("a", "r", "b"), ("c", "r", "b"), ("c", "s", "d")])
    builder = BatchBuilder(graph, 1, context_with(views=(), arrive=True))
    head, r = torch.tensor([0]), torch.tensor([graph.relation_id("r")])
    relevance = builder.build(head, r).candidate_relevance
    assert relevance is not None
    assert relevance[0].tolist() == [0, 1, 0, 0]
    hiding = builder.build(head, r, torch.tensor([graph.edge_id("a", "r", "b")])).candidate_relevance
    assert hiding is not None
    assert hiding[0].tolist() == [0, 1, 0, 0]  # c still points to b
    alone = torch.tensor([graph.edge_id("c", "s", "d")])
    lost = builder.build(graph.edge_head[alone], graph.edge_relation[alone], alone).candidate_relevance
    assert lost is not None
    assert lost[0].tolist() == [0, 0, 0, 0]  # nobody else has s^-1, so nothing is relevant to it


@pytest.mark.parametrize("name", sorted(set(CONTEXTS) - {"plain"}))
def test_a_batch_is_its_queries_side_by_side(name: str) -> None:
    for seed in range(CASES // 5):
        graph = random_graph(seed)
        builder = BatchBuilder(graph, 2, CONTEXTS[name])
        head, relation, edge = edge_queries(graph)
        together = builder.build(head, relation, edge)
        for query in range(len(edge)):
            one = slice(query, query + 1)
            assert_same_query(together, query, builder.build(head[one], relation[one], edge[one]))


def assert_same_query(together: QueryBatch, query: int, alone: QueryBatch) -> None:
    for table in ("neighbor_relevance", "candidate_relevance"):
        of_all, of_one = getattr(together, table), getattr(alone, table)
        assert (of_all is None) == (of_one is None)
        assert of_all is None or torch.equal(of_all[query], of_one[0])
    walk, own = together.propagation, alone.propagation
    mine = walk.node_query[walk.edge_target] == query
    assert torch.equal(walk.node_entity[walk.node_query == query], own.node_entity)
    for name in ("edge_relation", "edge_id"):
        assert torch.equal(getattr(walk, name)[mine], getattr(own, name))
    assert torch.equal(walk.edge_views[mine], own.edge_views)


def test_hiding_minus_one_hides_nothing() -> None:
    graph = random_graph(5)
    builder = BatchBuilder(graph, 2, CONTEXTS["all"])
    head, relation = every_query(graph)
    nothing = builder.build(head, relation, torch.full_like(head, -1))
    unsaid = builder.build(head, relation)
    assert_same_walk(nothing.propagation, unsaid.propagation)
    for table in ("neighbor_relevance", "candidate_relevance"):
        assert torch.equal(getattr(nothing, table), getattr(unsaid, table))


def test_removed_edges_are_hidden_from_walks_and_stay_in_the_counts() -> None:
    graph = Graph.from_triples([("a", "r", "b"), ("a", "s", "b"), ("b", "s", "c")])
    config = context_with(views=(), gate=True, arrive=True)
    edge = torch.tensor([graph.edge_id("a", "r", "b")])
    head, relation = graph.edge_head[edge], graph.edge_relation[edge]
    builder = BatchBuilder(graph, 2, config)
    removed = HiddenEdges.one_per_query(graph, edge)
    hiding, seeing = builder.build(head, relation, removed=removed), builder.build(head, relation)
    assert torch.equal(hiding.neighbor_relevance, seeing.neighbor_relevance)  # type: ignore[arg-type]
    assert torch.equal(hiding.candidate_relevance, seeing.candidate_relevance)  # type: ignore[arg-type]
    assert int(edge) in seeing.propagation.edge_id.tolist()
    assert int(edge) not in hiding.propagation.edge_id.tolist()
    corrected = builder.build(head, relation, edge)
    assert not torch.equal(corrected.candidate_relevance, seeing.candidate_relevance)  # type: ignore[arg-type]


def test_given_statistics_take_the_place_of_the_graphs_own() -> None:
    graph = Graph.from_triples([("a", "r", "b"), ("a", "s", "c"), ("d", "s", "c")])
    other = Graph.from_triples([("a", "r", "b"), ("a", "s", "c")])
    head, relation = torch.tensor([0]), torch.tensor([0])
    config = context_with(views=(ViewConfig(0.6),), gate=True)
    own, borrowed = BatchBuilder(graph, 1, config), BatchBuilder(graph, 1, config, Statistics.of(other))
    precision = [
        builder.build(head, relation).neighbor_relevance[0, 1, 0]  # type: ignore[index]
        for builder in (own, borrowed)
    ]
    assert precision == [0.5, 1.0]
    assert not own.build(head, relation).propagation.hop(1).edge_views.any()
    assert borrowed.build(head, relation).propagation.hop(1).edge_views.any()


def test_settings_out_of_range_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"context\.views\.algorithm is 'magic'"):
        ViewConfig(algorithm="magic")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"context\.hops is 0"):
        context_with(hops=0)
    graph = random_graph(0)
    with pytest.raises(ConfigError, match=r"min_precision is 1\.5"):
        BatchBuilder(graph, 1, context_with(views=(ViewConfig(1.5),)))
    with pytest.raises(ConfigError, match="self is 'maybe'"):
        BatchBuilder(graph, 1, context_with(self_policy="maybe"))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", sorted(set(CONTEXTS) - {"plain"}))
def test_a_context_config_comes_back_from_its_dictionary(name: str) -> None:
    config = CONTEXTS[name]
    assert config is not None
    assert context_from(asdict(config)) == config
