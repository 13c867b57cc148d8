"""Batches of controls: streams that look like context's and mean nothing, or the opposite; none of them leaks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from contextpool.context.controls import Draw, random_mask, shuffled_mask, shuffled_neighbors
from contextpool.context.leave_one_out import CountsOf
from contextpool.context.neighbors import mine_context
from contextpool.context.selection import MaskSelector
from contextpool.context.statistics import Statistics
from contextpool.errors import ConfigError
from contextpool.graph.graph import Graph
from contextpool.pool.batch import BatchBuilder, ContextConfig, QueryBatch, ViewConfig
from contextpool.pool.expand import expand
from contextpool.pool.hidden import HiddenEdges
from contextpool.pool.propagation import build_propagation
from kernels.triton_here import needs_triton
from learning_worlds import every_query, random_graph, without_fact
from learning_worlds import one_thread as one_thread
from support import amount

CASES = amount(12, 300)
VIEWS = (ViewConfig(0.49, 0.0), ViewConfig(0.0, 0.32))
FAMILIES = (ViewConfig(0.3, 0.3, algorithm="families-precision", sizes=(1, 2)),)
POLICIES = pytest.mark.parametrize("policy", ["exclude", "keep"])
BY_ALGORITHM = pytest.mark.parametrize("views", [VIEWS, FAMILIES], ids=["neighbors", "families"])


def queries(graph: Graph) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return graph.edge_head.long(), graph.edge_relation.long(), torch.arange(graph.num_edges)


def same_bits(one: QueryBatch, other: QueryBatch) -> None:
    for a, b in zip(one.propagation.layer_views, other.propagation.layer_views, strict=True):
        assert torch.equal(a, b)


def walked_by_masks(graph: Graph, masks: list[np.ndarray], hops: int, layered: bool = False) -> QueryBatch:
    """Every edge as a query, pooled by plain masks."""
    head, relation, edge = queries(graph)
    hidden = HiddenEdges.one_per_query(graph, edge)
    views = [
        expand(graph, MaskSelector(graph.relation_vocabulary, mask), head, relation, hops, hidden).hops
        for mask in masks
    ]
    return QueryBatch(build_propagation(graph, head, relation, 2, hidden, views, layered))


@BY_ALGORITHM
def test_a_duplicate_sees_in_every_view_what_the_full_stream_sees(views: tuple[ViewConfig, ...]) -> None:
    for seed in range(CASES):
        graph = random_graph(seed)
        context = ContextConfig(views=views, hops=1, control="duplicate", layered=seed % 2 == 0)
        batch = BatchBuilder(graph, 3, context).build(*queries(graph))
        for hop in (hop.walked for hop in batch.propagation.hops):
            for view in range(len(views)):
                assert hop.in_view(view).all()


@POLICIES
@pytest.mark.parametrize("control", ["random", "shuffled"])
@pytest.mark.parametrize("layered", [False, True])
def test_random_and_shuffled_views_are_walked_by_their_masks(
    policy: Any, control: Any, layered: bool
) -> None:
    """One mask for all queries; with the edge of each hidden from its walk."""
    for seed in range(CASES):
        graph = random_graph(seed)
        context = ContextConfig(
            views=VIEWS, hops=2, self_policy=policy, control=control, control_seed=seed, layered=layered
        )
        make = random_mask if control == "random" else shuffled_mask
        masks = []
        for number, view in enumerate(VIEWS):
            mined = mine_context(graph, view.min_precision, view.min_recall, self=policy)
            draw = Draw.of(len(mined.mask), seed, number)
            masks.append(make(mined.mask, mined.counts.support > 0, draw))
        batch = BatchBuilder(graph, 2, context).build(*queries(graph))
        same_bits(batch, walked_by_masks(graph, masks, 2, layered))


@POLICIES
def test_the_complement_is_what_the_context_without_the_fact_leaves_out(policy: Any) -> None:
    """Mined anew on the graph that never held the fact, and flipped: the complement follows leave-one-out."""
    context = ContextConfig(views=VIEWS, hops=2, self_policy=policy, control="complement")
    for seed in range(CASES):
        graph = random_graph(seed)
        head, relation, edge = queries(graph)
        walk = BatchBuilder(graph, 2, context).build(head, relation, edge).propagation
        for number in edge.tolist():
            smaller, one = without_fact(graph, number), slice(number, number + 1)
            views = []
            for view in VIEWS:
                mask = mine_context(smaller, view.min_precision, view.min_recall, self=policy).mask
                flipped = np.where(np.eye(len(mask), dtype=bool), mask, ~mask)
                selector = MaskSelector(graph.relation_vocabulary, flipped)
                views.append(expand(smaller, selector, head[one], relation[one], 2).hops)
            honest = build_propagation(smaller, head[one], relation[one], 2, views=views)
            mine = walk.node_query[walk.edge_target] == number
            for bits, expected in zip(walk.layer_views, honest.layer_views, strict=True):
                assert torch.equal(bits[mine], expected)


def test_the_first_hop_of_a_complement_of_algorithm_1_is_the_rest_of_the_heads_edges() -> None:
    shared = 0
    for seed in range(CASES):
        graph = random_graph(seed)
        head, relation, edge = queries(graph)
        context = ContextConfig(views=FAMILIES, hops=1)
        real, other = (
            BatchBuilder(graph, 1, given).build(head, relation, edge).propagation
            for given in (context, replace(context, control="complement"))
        )
        asked = real.query_relation[real.node_query[real.edge_target]]
        itself = real.edge_relation.long() == asked
        kept, left = real.layer_views[0] != 0, other.layer_views[0] != 0
        walked = real.edge_source < real.layer_sizes[0]
        assert torch.equal(kept[walked & ~itself], ~left[walked & ~itself])
        assert torch.equal(kept[walked & itself], left[walked & itself])
        shared += int(kept.sum())
    assert shared > 0


@BY_ALGORITHM
@pytest.mark.parametrize("control", ["duplicate", "random", "shuffled", "complement"])
def test_with_fixed_statistics_hiding_an_edge_is_its_never_having_been_there(
    views: tuple[ViewConfig, ...], control: Any
) -> None:
    """The pattern of a control's bits names no tail either."""
    context = ContextConfig(views=views, hops=2, control=control, leave_one_out=False)
    for seed in range(CASES // 2):
        graph = random_graph(seed)
        statistics = Statistics.of(graph)
        head, relation, edge = queries(graph)
        walk = BatchBuilder(graph, 2, context, statistics).build(head, relation, edge).propagation
        for number in edge.tolist():
            one = slice(number, number + 1)
            builder = BatchBuilder(without_fact(graph, number), 2, context, statistics)
            honest = builder.build(head[one], relation[one]).propagation
            mine = walk.node_query[walk.edge_target] == number
            assert torch.equal(walk.edge_relation[mine], honest.edge_relation)
            for bits, expected in zip(walk.layer_views, honest.layer_views, strict=True):
                assert torch.equal(bits[mine], expected)


def test_gate_and_arrive_stay_as_they_are() -> None:
    graph = random_graph(4)
    head, relation = every_query(graph)
    context = ContextConfig(views=VIEWS, gate=True, arrive=True)
    real = BatchBuilder(graph, 1, context).build(head, relation)
    for control in ("duplicate", "random", "shuffled", "complement"):
        other = BatchBuilder(graph, 1, replace(context, control=control)).build(head, relation)  # type: ignore[arg-type]
        for name in ("neighbor_relevance", "candidate_relevance"):
            assert torch.equal(getattr(real, name), getattr(other, name))


@pytest.mark.parametrize("backend", ["torch", pytest.param("triton", marks=needs_triton)])
def test_shuffled_relevance_is_that_of_another_neighbor(backend: Any) -> None:
    """For gate, and for arrive as the best over what a candidate is left with, one edge after the other hidden."""
    graph = random_graph(4)
    head, relation, edge = queries(graph)
    context = ContextConfig(views=(), gate=True, arrive=True)
    real = BatchBuilder(graph, 1, context, backend=backend).build(head, relation, edge)
    control = replace(context, relevance_control="shuffled", control_seed=3)
    found = BatchBuilder(graph, 1, control, backend=backend).build(head, relation, edge)
    other = shuffled_neighbors(graph.relation_vocabulary.num_directed, 3).tolist()
    assert sorted(other) == list(range(len(other)))
    assert all(place != taken for place, taken in enumerate(other))
    assert torch.equal(found.neighbor_relevance, real.neighbor_relevance[:, other])  # type: ignore[index]
    for query in range(graph.num_edges):
        lost = {int(edge[query]), int(graph.edge_inverse[edge[query]])}
        left = [number for number in range(graph.num_edges) if number not in lost]
        counts = CountsOf(graph, Statistics.of(graph).counts).for_queries(relation[[query]], edge[[query]])
        relevance = counts.precision(1)[0].float()
        best = [0.0] * graph.num_entities
        for number in left:
            entity, neighbor = int(graph.edge_head[number]), int(graph.edge_relation[number])
            best[entity] = max(best[entity], float(relevance[other[neighbor]]))
        assert found.candidate_relevance[query].tolist() == pytest.approx(best, abs=1e-6)  # type: ignore[index]


def test_an_unknown_control_of_relevance_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"relevance_control is 'noise'; it is one of none, shuffled"):
        ContextConfig(relevance_control="noise")  # type: ignore[arg-type]


def test_an_unknown_control_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"context\.control is 'noise'; it is one of none, duplicate"):
        ContextConfig(control="noise")  # type: ignore[arg-type]
