"""The shuffled control of gate and arrive: every neighbor has the relevance of another one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from contextpool.context.counts import CountsOf, Statistics
from contextpool.context.relevance import shuffled_neighbors
from contextpool.errors import ConfigError
from contextpool.pool.batch import BatchBuilder
from kernels.triton_here import needs_triton
from learning_worlds import one_thread as one_thread
from learning_worlds import random_graph
from support import context_with


@pytest.mark.parametrize("backend", ["general", pytest.param("triton", marks=needs_triton)])
def test_shuffled_relevance_is_that_of_another_neighbor(backend: Any) -> None:
    """For gate, and for arrive as the best over what a candidate is left with, one edge after the other hidden."""
    graph = random_graph(4)
    head, relation, edge = graph.edge_head.long(), graph.edge_relation.long(), torch.arange(graph.num_edges)
    context = context_with(views=(), gate=True, arrive=True)
    real = BatchBuilder(graph, 1, context, backend=backend).build(head, relation, edge)
    control = replace(context, relevance_control="shuffled", control_seed=3)
    found = BatchBuilder(graph, 1, control, backend=backend).build(head, relation, edge)
    other = shuffled_neighbors(graph.relation_vocabulary.num_directed, 3).tolist()
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


def test_it_is_a_permutation_that_depends_on_the_seed_alone() -> None:
    for size in (2, 6, 12, 100):
        other = shuffled_neighbors(size, 3)
        assert sorted(other.tolist()) == list(range(size))
        assert all(place != taken for place, taken in enumerate(other.tolist()))
        assert (other == shuffled_neighbors(size, 3)).all()
    assert (other != shuffled_neighbors(100, 4)).any()
    assert shuffled_neighbors(12, 0).tolist() == [11, 4, 3, 8, 2, 10, 5, 6, 7, 1, 0, 9]


def test_an_unknown_control_of_relevance_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"relevance_control is 'noise'; it is one of none, shuffled"):
        context_with(relevance_control="noise")  # type: ignore[arg-type]
