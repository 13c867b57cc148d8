"""Batches built by Triton's kernels are those that the general code builds, with every option."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor

from contextpool.context.config import ContextConfig, ViewConfig
from contextpool.context.counts import Statistics
from contextpool.graph.graph import Graph
from contextpool.pool.batch import OF_QUERIES, BatchBuilder, QueryBatch
from contextpool.pool.hide import EdgeDropout
from contextpool.pool.propagation import Propagation
from kernels.poison import no_quiet_memory as no_quiet_memory
from kernels.triton_here import DEVICE, needs_triton
from learning_worlds import graph_over, random_graph
from learning_worlds import one_thread as one_thread
from support import amount, context_with

pytestmark = needs_triton
CASES = amount(2, 60)
NEAR = (ViewConfig(0.49, 0.0), ViewConfig(0.0, 0.32))
"""Thresholds just below frequent ratios: one fact decides often."""


def queries(graph: Graph, seed: int, count: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    """Some edges as queries, each hidden from itself; the first one hides nothing."""
    generator = torch.Generator().manual_seed(seed)
    edge = torch.randperm(graph.num_edges, generator=generator)[:count]
    head, relation = graph.edge_head[edge].long(), graph.edge_relation[edge].long()
    return head, relation, torch.cat([edge[:0].new_tensor([-1]), edge[1:]]) if len(edge) > 1 else edge


def both_ways(
    graph: Graph,
    layers: int,
    context: ContextConfig | None,
    asked: tuple[Tensor, ...],
    *,
    dropout: EdgeDropout | None = None,
    **options: Any,
) -> tuple[QueryBatch, QueryBatch]:
    """The general batch and Triton's."""
    statistics = Statistics.of(graph)
    general = BatchBuilder(graph, layers, context, statistics, backend="general", **options)
    fast = BatchBuilder(graph.to(DEVICE), layers, context, statistics, backend="triton", **options)
    assert fast._device_builder is not None
    moved = (part.to(DEVICE) for part in asked)
    return general.build(*asked, dropout=dropout), fast.build(*moved, dropout=dropout)


def assert_alike(general: QueryBatch, fast: QueryBatch) -> int:
    """Same nodes, walked edges, bits and relevance; how many edges there are."""
    one, other = general.propagation, fast.propagation
    assert one.layer_sizes == other.layer_sizes
    assert other.plan is not None
    assert other.plan.sizes.tolist() == list(other.layer_sizes)
    for name in ("node_query", "node_entity"):
        assert torch.equal(getattr(one, name), getattr(other, name).cpu()), name
    for hop, built in zip(one.hops, other.hops, strict=True):
        for name in ("row_start", "edge_source", "edge_relation", "edge_views"):
            assert torch.equal(getattr(hop.walked, name), getattr(built.walked, name).cpu()), name
    assert_same_edges(one, other.walked)
    for name in (*OF_QUERIES, "relation_precision"):
        mine, built_table = getattr(general, name), getattr(fast, name)
        assert (mine is None) == (built_table is None), name
        if mine is not None:
            torch.testing.assert_close(built_table.cpu(), mine, rtol=1e-6, atol=1e-7, msg=name)
    for name in ("neighbor_relevance", "candidate_relevance", "own_relevance"):
        if getattr(general, name) is not None:  # the same bits, not only close
            assert torch.equal(getattr(general, name), getattr(fast, name).cpu()), name
    return len(one.edge_source)


def assert_same_edges(one: Propagation, other: Propagation) -> None:
    assert other.walked is other
    assert one.layer_edges == other.layer_edges
    for name in ("row_start", "edge_source", "edge_relation", "edge_back", "edge_id", "edge_views"):
        assert torch.equal(getattr(one, name), getattr(other, name).cpu()), name


def test_without_context() -> None:
    edges = 0
    for seed in range(CASES):
        graph = random_graph(seed)
        edges += assert_alike(*both_ways(graph, 1 + seed % 3, None, queries(graph, seed)))
    assert edges > CASES


@pytest.mark.parametrize("self_policy", ["exclude", "keep"])
def test_views_gate_and_arrive(self_policy: Any) -> None:
    bits = 0
    for seed in range(CASES):
        rng = random.Random(seed)
        graph = random_graph(seed)
        context = context_with(
            views=(*NEAR, ViewConfig(rng.choice([0.0, 0.1, 0.3]), 0.1))[: 1 + seed % 3],
            hops=rng.randint(1, 3), self_policy=self_policy, gate=True, arrive=True,
        )  # fmt: skip
        general, fast = both_ways(graph, rng.randint(1, 3), context, queries(graph, seed))
        assert_alike(general, fast)
        bits += int((general.propagation.edge_views > 0).sum())
    assert bits > 0


def test_columns_of_a_table_are_asked_as_they_read() -> None:
    """Questions that lie three apart in memory, as a column of (head, relation, edge) does; predict's lie two apart."""
    context = context_with(views=NEAR, hops=2, gate=True, arrive=True)
    for seed in range(CASES):
        graph = random_graph(seed)
        asked = queries(graph, seed)
        columns = torch.stack(asked, dim=1).to(DEVICE).unbind(1)
        assert not columns[0].is_contiguous() or len(asked[0]) < 2
        fast = BatchBuilder(graph.to(DEVICE), 2, context, Statistics.of(graph), backend="triton")
        general, _ = both_ways(graph, 2, context, asked)
        assert_alike(general, fast.build(*columns))


def test_relations_of_several_words() -> None:
    """More than 64 directed relations, the used ones at the end."""
    for seed in range(CASES):
        small = random_graph(seed)
        relations = [f"a{number:02}" for number in range(40)] + list(small.relations)
        graph = graph_over(list(small.triples), list(small.entities), relations)
        context = context_with(views=NEAR, hops=2, gate=True, arrive=True, arrive_features=True)
        assert_alike(*both_ways(graph, 2, context, queries(graph, seed)))


def test_features_of_candidates() -> None:
    for seed in range(CASES):
        graph = random_graph(seed)
        context = context_with(views=(), arrive=True, arrive_features=True)
        general, fast = both_ways(graph, 1, context, queries(graph, seed))
        assert_alike(general, fast)
        assert fast.candidate_features is not None
        assert (fast.candidate_features >= 0).all()
        assert (fast.candidate_features <= 1).all()


@pytest.mark.parametrize("with_context", [False, True])
def test_dropped_edges(with_context: bool) -> None:
    dropped = 0
    context = context_with(views=NEAR, hops=3, gate=True) if with_context else None
    for seed in range(CASES):
        graph = random_graph(seed, most=40)
        asked = queries(graph, seed)
        general, fast = both_ways(graph, 3, context, asked, dropout=EdgeDropout(0.4, seed + 10**12))
        edges = assert_alike(general, fast)
        everything = BatchBuilder(graph, 3, context, backend="general").build(*asked).propagation
        dropped += len(everything.edge_source) - edges
    assert dropped > 0


def test_the_relation_graph() -> None:
    for context in (None, context_with(views=())):
        graph = random_graph(3)
        general, fast = both_ways(graph, 1, context, queries(graph, 3), relation_graph=True)
        assert general.own_relevance is not None
        assert_alike(general, fast)
        unsaid = BatchBuilder(graph.to(DEVICE), 1, context, backend="triton", relation_graph=True)
        head, relation, _ = queries(graph, 3)
        assert unsaid.build(head, relation).own_relevance is None


def test_a_graph_without_facts() -> None:
    graph = graph_over([("a", "r", "b")], ["a", "b"], ["r"])
    empty = Graph.from_triples(graph.as_triples().select(~torch.ones(1, dtype=torch.bool).numpy()))
    context = context_with(views=NEAR, gate=True, arrive=True, arrive_features=True)
    nothing = torch.tensor([-1])
    asked = (torch.tensor([1]), torch.tensor([0]), nothing)
    assert_alike(*both_ways(empty, 2, context, asked, dropout=EdgeDropout(0.5, 1)))
