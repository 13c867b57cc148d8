"""Walks by Algorithm 1 that never knew a fact: against Algorithms 1 and 2 in plain sets, on any device."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch

from context.literal import Labels, cnf_generate, cnf_train, neighbors_of
from contextpool.context.families import Measure, mine_families
from contextpool.graph.graph import Graph
from contextpool.pool._backend import Backend
from contextpool.pool.answers import BatchAnswers
from contextpool.pool.batch import BatchBuilder, ContextConfig, ViewConfig
from contextpool.pool.edge_set import PooledBatch
from contextpool.pool.expand import expand
from contextpool.pool.families_left_out import family_answers_left_out
from contextpool.pool.hidden import HiddenEdges
from learning_worlds import one_thread as one_thread
from learning_worlds import random_graph, without_fact
from pool.literal import Triple, literal_pool
from support import amount

CASES = amount(60, 2_000)
HOPS = 3
SETTINGS: tuple[tuple[Measure, float], ...] = (("precision", 0.3), ("recall", 0.3), ("precision", 0.49))


class Batch:
    """Queries over a graph: most are edges that mining has to forget; these are hidden, or others, or both."""

    def __init__(self, seed: int) -> None:
        rng, self.graph = random.Random(seed), random_graph(seed)
        edges = rng.choices(range(self.graph.num_edges), k=10)
        self.left_out = torch.tensor([edge if rng.random() < 0.8 else -1 for edge in edges])
        self.head, self.relation = self.graph.edge_head[edges].long(), self.graph.edge_relation[edges].long()
        for query in torch.nonzero(self.left_out < 0).squeeze(1).tolist():
            self.head[query] = rng.randrange(self.graph.num_entities)
            self.relation[query] = rng.randrange(2 * self.graph.num_relations)
        others = [rng.choices(range(self.graph.num_edges), k=rng.choice([0, 0, 1, 4])) for _ in edges]
        self.hide = [
            {*more, int(own)} - {-1} if rng.random() < 0.9 else {*more}
            for more, own in zip(others, self.left_out, strict=True)
        ]

    def hidden(self, graph: Graph) -> HiddenEdges:
        triples = [[self.graph.edge_label(edge) for edge in edges] for edges in self.hide]
        return HiddenEdges.from_triples(graph, triples)

    def pooled(
        self, measure: Measure, threshold: float, backend: Backend, device: str = "cpu"
    ) -> PooledBatch:
        graph = self.graph.to(device)
        hidden, families = self.hidden(graph), mine_families(graph, measure, threshold, (1, 2, 3))
        asked = self.head.to(device), self.relation.to(device)
        answers = family_answers_left_out(graph, families, *asked, hidden, self.left_out.to(device))
        return expand(graph, families, *asked, HOPS, hidden, answers=answers, backend=backend)

    def expected(self, query: int, measure: Measure, threshold: float) -> list[set[Triple]]:
        left_out = int(self.left_out[query])
        mined_on = self.graph if left_out < 0 else without_fact(self.graph, left_out)
        cnf = cnf_train(neighbors_of(mined_on), measure, threshold, (1, 2, 3))
        head, relation = int(self.head[query]), int(self.relation[query])
        return literal_pool(
            self.graph.triples,
            select_from(cnf),
            self.graph.entities[head],
            self.graph.relation_vocabulary.directed[relation],
            HOPS,
            [self.graph.edge_label(edge) for edge in self.hide[query]],
        )


def select_from(cnf: dict[str, set[Labels]]) -> Callable[[Labels, str], set[str]]:
    return lambda relations, query: set(cnf_generate(cnf[query], relations))


def hops_of(pooled: PooledBatch, graph: Graph, query: int) -> list[set[Triple]]:
    return [set(graph.edge_labels(hop.edge[hop.edge_query == query])) for hop in pooled.hops]


@pytest.mark.parametrize("backend", ["cpu", "torch"])
@pytest.mark.parametrize(("measure", "threshold"), SETTINGS)
def test_every_walk_is_that_of_the_pseudo_code(measure: Measure, threshold: float, backend: Backend) -> None:
    """Whatever is hidden from the walk beside the fact that mining has to forget, or instead of it."""
    for seed in range(CASES):
        batch = Batch(seed)
        pooled = batch.pooled(measure, threshold, backend)
        for query in range(len(batch.head)):
            assert hops_of(pooled, batch.graph, query) == batch.expected(query, measure, threshold), (
                seed,
                query,
            )


def test_nothing_left_out_and_nothing_hidden_has_no_exceptions() -> None:
    for seed in range(CASES):
        graph = random_graph(seed)
        families, nothing = mine_families(graph), torch.full((graph.num_edges,), -1)
        asked = graph.edge_head.long(), graph.edge_relation.long()
        answers = family_answers_left_out(
            graph, families, *asked, HiddenEdges.none(graph, graph.num_edges), nothing
        )
        assert len(answers.changed_pair) == 0
        for hop, own in zip(
            expand(graph, families, *asked, 2, answers=answers).hops,
            expand(graph, families, *asked, 2).hops,
            strict=True,
        ):
            assert torch.equal(hop.edge, own.edge)


def test_a_graph_without_facts_has_nothing_to_leave_out() -> None:
    graph = without_fact(Graph.from_triples([("a", "r", "b")]), 0)
    context = ContextConfig(views=(ViewConfig(algorithm="families-precision"),), hops=2)
    batch = BatchBuilder(graph, 1, context).build(torch.tensor([0]), torch.tensor([0]), torch.tensor([-1]))
    assert len(batch.propagation.edge_id) == 0


def test_only_leave_one_out_forgets_the_fact(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def spy(*arguments: object) -> BatchAnswers:
        calls.append(1)
        return family_answers_left_out(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("contextpool.pool.batch.family_answers_left_out", spy)
    graph = random_graph(3)
    asked = graph.edge_head.long(), graph.edge_relation.long(), torch.arange(graph.num_edges)
    views = (ViewConfig(algorithm="families-recall"),)
    for leave_one_out in (False, True):
        BatchBuilder(graph, 1, ContextConfig(views=views, leave_one_out=leave_one_out)).build(*asked)
        assert len(calls) == leave_one_out


@pytest.mark.gpu
@pytest.mark.parametrize(("measure", "threshold"), SETTINGS)
def test_cuda_equals_the_cpu(measure: Measure, threshold: float) -> None:
    for seed in range(CASES):
        here, there = (Batch(seed).pooled(measure, threshold, "auto", device) for device in ("cpu", "cuda"))
        for hop, other in zip(here.hops, there.hops, strict=True):
            assert other.edge.is_cuda
            assert torch.equal(hop.edge_query, other.edge_query.cpu())
            assert torch.equal(hop.edge, other.edge.cpu())
