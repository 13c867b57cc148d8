"""What a training over a mixture of graphs asks: shares as stated, work as stated, the same for the same seed."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from contextpool.context.counts import Statistics
from contextpool.errors import ConfigError
from contextpool.graph.graph import Graph
from contextpool.pool.batch import BatchBuilder
from contextpool.train.config import MixedGraph, MixtureConfig, TrainConfig
from contextpool.train.course import LEAST_QUERIES, MixedGraphs, TrainingGraph, queries_a_step
from contextpool.train.queries import TrainingQueries
from contextpool.triples.filters import KnownAnswers

NAMES = ("small", "middle", "large")
SIZES = (4, 16, 64)
"""Facts of each graph."""


def circle(size: int) -> TrainingGraph:
    """e0 -> e1 -> ... -> e0: every walk of L hops takes the same number of edges."""
    facts = [(f"e{number:03}", "next", f"e{(number + 1) % size:03}") for number in range(size)]
    graph = Graph.from_triples(facts)
    triples = graph.as_triples()
    queries = TrainingQueries.of(triples, graph, KnownAnswers.of(triples))
    return TrainingGraph.of(queries, BatchBuilder(graph, 2, None, Statistics.of(graph), relation_graph=True))


def mixture_of(shares: tuple[float, ...] = (1.0, 1.0, 1.0), **values: object) -> MixtureConfig:
    graphs = tuple(MixedGraph(name, share) for name, share in zip(NAMES, shares, strict=True))
    return MixtureConfig(graphs, **{"steps": 30, "work": 0, **values})  # type: ignore[arg-type]


def course_of(
    mixture: MixtureConfig, *, shares: tuple[float, ...] = (1.0, 1.0, 1.0), checkpoint_steps: int = 10
) -> MixedGraphs:
    config = TrainConfig(batch_size=3, checkpoint_steps=checkpoint_steps)
    return MixedGraphs([circle(size) for size in SIZES], shares, mixture, config)


@pytest.mark.parametrize(
    ("power", "shares", "expected"),
    [
        (0.5, (1, 1, 1), (2, 4, 8)),
        (1.0, (1, 1, 1), (4, 16, 64)),
        (0.0, (1, 1, 1), (1, 1, 1)),
        (0.5, (4, 1, 0.5), (8, 4, 4)),
    ],
)
def test_graphs_are_drawn_as_often_as_stated(
    power: float, shares: tuple[float, ...], expected: tuple[float, ...]
) -> None:
    course = course_of(mixture_of(shares, power=power, steps=3000), shares=shares)
    stated = [weight / sum(expected) for weight in expected]
    assert course.probability.tolist() == pytest.approx(stated)
    drawn = Counter(
        lesson.graph for epoch in range(course.epochs) for lesson in course.lessons(epoch, seed=0)
    )
    assert [drawn[number] / 3000 for number in range(3)] == pytest.approx(stated, abs=0.03)


def drawn_by(course: MixedGraphs, seed: int) -> list[tuple[int, list[int], float, int]]:
    lessons = [lesson for epoch in range(course.epochs) for lesson in course.lessons(epoch, seed)]
    return [(one.graph, one.rows.tolist(), one.edge_dropout, one.seed) for one in lessons]


def test_the_same_seed_draws_the_same_whatever_the_checkpoints() -> None:
    mixture = mixture_of()
    first = drawn_by(course_of(mixture), 0)
    assert len(first) == 30
    assert drawn_by(course_of(mixture), 0) == first
    assert drawn_by(course_of(mixture, checkpoint_steps=7), 0) == first
    assert drawn_by(course_of(mixture), 1) != first
    assert len({seed for *_, seed in first}) == 30


def test_edge_dropout_lies_in_its_range_and_rows_in_their_graph() -> None:
    course = course_of(mixture_of(edge_dropout=(0.2, 0.4), steps=200))
    lessons = drawn_by(course, 0)
    shares = [share for _, _, share, _ in lessons]
    assert 0.2 <= min(shares) < 0.22
    assert 0.38 < max(shares) < 0.4
    for graph, rows, _, _ in lessons:
        assert len(rows) == 3
        assert all(0 <= row < 2 * SIZES[graph] for row in rows)


def test_the_last_epoch_has_what_is_left() -> None:
    course = course_of(mixture_of(steps=25))
    assert [course.steps_of(epoch) for epoch in range(course.epochs)] == [10, 10, 5]
    assert [len(course.lessons(epoch, 0)) for epoch in range(course.epochs)] == [10, 10, 5]


def test_a_step_walks_the_work_that_is_stated() -> None:
    """On a circle a query walks 2 hops one way and back; its own edge is hidden, so one side is one hop shorter."""
    graph = circle(64)
    asked = graph.queries.batch(torch.arange(16))
    hops = graph.builder.build(asked.head, asked.relation, asked.hidden_edge).propagation.hops
    each = sum(len(hop.edge_relation) for hop in hops) / 16 + (2 * 1) ** 2 / 2
    assert queries_a_step(graph, round(20 * each), 64) == 20
    assert queries_a_step(graph, round(1000 * each), 64) == 64  # no more than a batch has
    assert queries_a_step(graph, 1, 64) == LEAST_QUERIES
    assert queries_a_step(graph, 0, 64) == 64


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"graphs": ()}, "mixture.graphs is empty"),
        ({"graphs": (MixedGraph("a"), MixedGraph("a"))}, "'a' twice"),
        ({"steps": 0}, "mixture.steps is 0"),
        ({"work": -1}, "mixture.work is -1"),
        ({"power": float("nan")}, "mixture.power is nan"),
        ({"edge_dropout": (0.5, 0.2)}, "mixture.edge_dropout"),
        ({"edge_dropout": (0.0, 1.0)}, "mixture.edge_dropout"),
        ({"without": ("b*",)}, "mixture.without is 'b\\*'"),
        ({"without": ("a",)}, "leaves no graph"),
    ],
)
def test_a_mixture_that_cannot_be_is_refused(values: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        MixtureConfig(**{"graphs": (MixedGraph("a"),), **values})  # type: ignore[arg-type]


def test_graphs_are_left_out_by_pattern() -> None:
    names = ("grail/nell_v1", "grail/nell_v2", "pool/codex-s")
    mixture = MixtureConfig(tuple(map(MixedGraph, names)), without=("grail/nell_*",))
    assert [graph.name for graph in mixture.used] == ["pool/codex-s"]
