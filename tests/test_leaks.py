"""A query never sees its own answer (E4): one test for every way in which a hidden edge could still be seen.

The oracle is the graph that never held the edge, numbered alike, with its statistics counted anew: whatever
reaches a model for a query with its edge hidden has to be what that smaller graph gives.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import contextpool as cp
from contextpool.context.config import ContextConfig, ViewConfig
from contextpool.context.counts import Statistics
from contextpool.context.neighbors import SelfPolicy, mine_context
from contextpool.errors import ConfigError
from contextpool.graph.graph import Graph
from contextpool.graph.relations import RelationVocabulary
from contextpool.models.base import LinkPredictor
from contextpool.pool.batch import BatchBuilder, QueryBatch
from contextpool.pool.expand import expand
from contextpool.pool.hide import HiddenEdges
from contextpool.pool.propagation import build_propagation
from contextpool.train.config import TrainConfig
from contextpool.train.course import EveryQuery
from contextpool.train.loop import Trainer
from contextpool.train.queries import TrainingQueries
from contextpool.triples.catalog import load_dataset
from learning_worlds import (
    CONTEXTS,
    SMALL,
    VIEWS,
    ask,
    family_dataset,
    new_model,
    random_graph,
    without_fact,
)
from learning_worlds import one_thread as one_thread
from support import SOAK, amount, benchmark_folder, context_with

CASES = amount(8, 200)
LAYERS = 2
TRAINED = ("nbfnet", "redgnn")
FAMILIES = tuple(
    ViewConfig(0.3, 0.3, algorithm=algorithm, sizes=(1, 2))
    for algorithm in ("families-precision", "families-recall")
)
CLOSE_TO_RATIOS = tuple(ViewConfig(*both) for both in ((0.49, 0.0), (0.0, 0.49), (0.32, 0.0), (0.3, 0.3)))
"""Thresholds just below a half and a third, which are frequent in small graphs: one fact decides often."""


def graphs(first: int = 0) -> list[Graph]:
    return [random_graph(seed) for seed in range(first, first + CASES)]


def queries(graph: Graph) -> tuple[Tensor, Tensor, Tensor]:
    """Every edge, in both directions, as a query: heads, relations, and the edge that is the query."""
    return graph.edge_head.long(), graph.edge_relation.long(), torch.arange(graph.num_edges)


def honest_builder(graph: Graph, edge: int, context: ContextConfig | None) -> BatchBuilder:
    """Over the graph that never held the edge, with its own statistics."""
    smaller = without_fact(graph, edge)
    statistics = None if context is None else Statistics.of(smaller)
    return BatchBuilder(smaller, LAYERS, context, statistics)


def worst_difference(model: LinkPredictor, graph: Graph, context: ContextConfig | None) -> float:
    """Over all edges of a graph: how far hiding an edge is from its never having been there."""
    head, relation, edge = queries(graph)
    hiding = ask(model, BatchBuilder(graph, LAYERS, context), head, relation, edge)
    honest = [
        ask(model, honest_builder(graph, number, context), head[number, None], relation[number, None])[0]
        for number in edge.tolist()
    ]
    return float((hiding - torch.stack(honest)).abs().max())


def assert_no_leak(name: str, context: ContextConfig | None) -> None:
    for number, graph in enumerate(graphs()):
        model = new_model(name, graph, context, seed=number)
        difference = worst_difference(model, graph, context)
        assert difference <= 1e-5, (difference, list(graph.triples))


def dishonest_difference(context: ContextConfig | None, *, hide: bool) -> float:
    """The same comparison where the edge, or what it adds to the counts, is left in plain sight."""
    worst = 0.0
    for number, graph in enumerate(graphs()):
        model = new_model("nbfnet", graph, context, seed=number)
        head, relation, edge = queries(graph)
        removed = HiddenEdges.one_per_query(graph, edge) if hide else None
        with torch.no_grad():
            seen = model(BatchBuilder(graph, LAYERS, context).build(head, relation, removed=removed))
        for place in edge.tolist():
            asked = head[place, None], relation[place, None]
            honest = ask(model, honest_builder(graph, place, context), *asked)
            worst = max(worst, float((seen[place] - honest[0]).abs().max()))
    return worst


# the edge itself


@pytest.mark.parametrize("name", [*TRAINED, "walk"])
def test_scores_of_the_plain_model(name: str) -> None:
    assert_no_leak(name, None)


def test_the_frontier_reaches_what_the_smaller_graph_reaches() -> None:
    for graph in graphs(100):
        head, relation, edge = queries(graph)
        walk = BatchBuilder(graph, LAYERS).build(head, relation, edge).propagation
        for number in edge.tolist():
            one = slice(number, number + 1)
            honest = honest_builder(graph, number, None).build(head[one], relation[one]).propagation
            nodes = walk.node_entity[walk.node_query == number]
            assert nodes.tolist() == honest.node_entity.tolist()


def test_degrees_count_no_hidden_edge() -> None:
    """What PNA scales by and means divide by: messages that arrive at each node."""
    for graph in graphs(200):
        head, relation, edge = queries(graph)
        walk = BatchBuilder(graph, LAYERS).build(head, relation, edge).propagation
        for number in edge.tolist():
            one = slice(number, number + 1)
            honest = honest_builder(graph, number, None).build(head[one], relation[one]).propagation
            for hop, own in zip(walk.hops, honest.hops, strict=True):
                mine = hop.node_query == number
                assert hop.walked.row_start.diff()[mine].tolist() == own.walked.row_start.diff().tolist()


# pooling


@pytest.mark.parametrize("views", [VIEWS, FAMILIES], ids=["neighbors", "families"])
def test_the_pooled_mask_is_that_of_the_smaller_graph(views: tuple[ViewConfig, ...]) -> None:
    """Pooling after hiding, with one and the same context for both: the mask's pattern names no tail."""
    context = context_with(views=views, hops=2, self_policy="keep")
    for number, graph in enumerate(graphs(400)):
        statistics = Statistics.of(random_graph_like(graph, number))
        head, relation, edge = queries(graph)
        removed = HiddenEdges.one_per_query(graph, edge)
        batch = BatchBuilder(graph, LAYERS, context, statistics).build(head, relation, removed=removed)
        for place in edge.tolist():
            one = slice(place, place + 1)
            honest = BatchBuilder(without_fact(graph, place), LAYERS, context, statistics)
            assert_same_bits(batch, place, honest.build(head[one], relation[one]))


def random_graph_like(graph: Graph, seed: int) -> Graph:
    """Another graph over the same relations: somewhere to count statistics that neither of two graphs made."""
    other = random_graph(seed + 10_000, most_relations=1)
    facts = [
        (head, graph.relations[place % graph.num_relations], tail)
        for place, (head, _, tail) in enumerate(other.triples)
    ]
    return Graph.from_triples(facts).with_relations(graph.relation_vocabulary)


def assert_same_bits(batch: QueryBatch, query: int, honest: QueryBatch) -> None:
    walk, own = batch.propagation, honest.propagation
    mine = walk.node_query[walk.edge_target] == query
    assert torch.equal(walk.edge_relation[mine], own.edge_relation)
    assert torch.equal(walk.edge_views[mine], own.edge_views)


@pytest.mark.parametrize("self_policy", ["exclude", "keep"])
def test_thresholds_are_decided_without_the_fact(self_policy: SelfPolicy) -> None:
    """What the hidden fact adds to the counts decides nothing: the context is mined as if it had never been."""
    context = context_with(views=CLOSE_TO_RATIOS, hops=3, self_policy=self_policy)
    for graph in [*graphs(500), *graphs(700), *(with_many_relations(graph) for graph in graphs(600)[::4])]:
        head, relation, edge = queries(graph)
        batch = BatchBuilder(graph, LAYERS, context).build(head, relation, edge)
        for place in edge.tolist():
            asked = head[place, None], relation[place, None]
            assert_same_bits(batch, place, pooled_on(without_fact(graph, place), *asked, context))


def pooled_on(graph: Graph, head: Tensor, relation: Tensor, context: ContextConfig) -> QueryBatch:
    """Mined and walked on the graph itself, by the functions that anybody may call."""
    hops = []
    for view in context.views:
        mined = mine_context(graph, view.min_precision, view.min_recall, self=context.self_policy)
        hops.append(expand(graph, mined, head, relation, context.hops).hops)
    return QueryBatch(build_propagation(graph, head, relation, LAYERS, views=hops))


def with_many_relations(graph: Graph) -> Graph:
    """The same graph where relations take three words of 64 bits."""
    more = (*graph.relations, *(f"a{number:02}" for number in range(70)))
    return graph.with_relations(RelationVocabulary(tuple(sorted(more))))


@pytest.mark.parametrize("name", TRAINED)
def test_scores_with_views(name: str) -> None:
    assert_no_leak(name, context_with(views=VIEWS, hops=2))


@pytest.mark.parametrize("view", FAMILIES, ids=lambda view: view.algorithm)
def test_families_are_not_trained_where_a_query_is_a_fact(view: ViewConfig, tmp_path: Path) -> None:
    """A fact would count in the families that it is answered with."""
    context = context_with(views=(VIEWS[0], view), hops=2)
    for inductive in (False, True):
        with pytest.raises(ConfigError, match=r"Algorithm 1.*training queries are facts.*neighbors"):
            cp.train(family_dataset(inductive), "redgnn", context, output=tmp_path / "run")
        assert not (tmp_path / "run").exists()


def test_a_trainer_refuses_families_where_a_query_is_a_fact() -> None:
    data, context = family_dataset(), context_with(views=FAMILIES, hops=2)
    graph = Graph.from_triples(data.training_graph)
    queries = TrainingQueries.of(data.training_queries, graph, data.training_filter)
    model, builder = new_model("redgnn", graph, context), BatchBuilder(graph, LAYERS, context)
    config = TrainConfig(epochs=1)
    with pytest.raises(ConfigError, match=f"{len(queries)} training queries are facts"):
        Trainer(model, EveryQuery(queries, builder, config), config, lambda _: 0.0)


def test_families_are_trained_where_facts_and_queries_are_apart() -> None:
    """As published for transductive settings: train.txt asks, facts.txt is walked."""
    whole = family_dataset()
    parts = np.arange(len(whole.training_graph)) % 3 == 0
    facts, asked = whole.training_graph.select(~parts), whole.training_graph.select(parts)
    dataset = replace(whole, facts=facts, train=asked)
    options = {"settings": SMALL["redgnn"], "train": {"queries": "train", "epochs": 1}}
    predictor = cp.train(dataset, "redgnn", context_with(views=FAMILIES, hops=2), **options)
    assert 0 <= cp.evaluate(predictor, dataset).mrr <= 1


# relevance


@pytest.mark.parametrize("name", TRAINED)
@pytest.mark.parametrize("way", ["gate", "arrive"])
def test_scores_with_relevance(name: str, way: str) -> None:
    assert_no_leak(name, CONTEXTS[way])


@pytest.mark.parametrize("name", TRAINED)
def test_scores_with_gate_and_arrive_together(name: str) -> None:
    assert_no_leak(name, context_with(views=(), gate=True, arrive=True))


def test_scores_of_the_walk_with_candidate_relevance() -> None:
    assert_no_leak("walk", CONTEXTS["arrive"])


@pytest.mark.parametrize("name", TRAINED)
def test_scores_with_views_gate_and_arrive_together(name: str) -> None:
    assert_no_leak(name, CONTEXTS["all"])


# and the other side: what these tests would show


def test_an_edge_in_plain_sight_would_be_noticed() -> None:
    assert dishonest_difference(None, hide=False) > 1e-2


@pytest.mark.parametrize("way", ["gate", "arrive", "views"])
def test_counts_that_keep_the_hidden_fact_would_be_noticed(way: str) -> None:
    config = CONTEXTS[way]
    assert config is not None
    assert dishonest_difference(config, hide=True) > 1e-2


def test_only_the_query_itself_is_hidden() -> None:
    """Another relation between the same two entities is evidence, and stays."""
    graph = Graph.from_triples([("a", "r", "b"), ("a", "s", "b"), ("b", "r", "a")])
    edge = torch.tensor([graph.edge_id("a", "r", "b")])
    walk = BatchBuilder(graph, 1).build(graph.edge_head[edge], graph.edge_relation[edge], edge).propagation
    assert set(graph.edge_labels(walk.edge_id)) == {("a", "s", "b"), ("a", "r^-1", "b")}


# on the benchmarks

IN_CI = ["grail/fb237_v1", "grail/WN18RR_v1", "grail/nell_v1", "grail_transductive/nell_v1"]
ALL = [
    f"{kind}/{family}_v{version}"
    for kind in ("grail", "grail_transductive")
    for version in range(1, 5)
    for family in ("fb237", "WN18RR", "nell")
] + ["full/WN18RR", "full/NELL-995", "full/FB15K237"]


@pytest.mark.benchmark_data
@pytest.mark.parametrize("name", ALL if SOAK else IN_CI)
def test_no_leak_on_a_benchmark(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTEXTPOOL_DATA", str(benchmark_folder()))
    graph = Graph.from_triples(load_dataset(name).training_graph)
    generator = torch.Generator().manual_seed(1)
    edge = torch.randperm(graph.num_edges, generator=generator)[
        : 3 if name.startswith("full/") else amount(3, 30)
    ]
    head, relation = graph.edge_head[edge].long(), graph.edge_relation[edge].long()
    context = context_with(views=VIEWS, hops=2, gate=True, arrive=True)
    models = [new_model(kind, graph, context) for kind in TRAINED]
    builder = BatchBuilder(graph, LAYERS, context)
    hiding = [ask(model, builder, head, relation, edge) for model in models]
    for row, number in enumerate(edge.tolist()):
        honest = honest_builder(graph, number, context)
        for model, scores in zip(models, hiding, strict=True):
            alone = ask(model, honest, head[row, None], relation[row, None])[0]
            assert float((scores[row] - alone).abs().max()) <= 1e-5 * max(1, float(alone.abs().max()))
