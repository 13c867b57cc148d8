"""Losses against what one computes by hand; known answers compete in none of them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from contextpool.graph.graph import Graph
from contextpool.train.loss import (
    MASKED,
    TEMPERATURE,
    sample_candidates,
    sampled_loss,
    softmax_loss,
    without_known,
)
from contextpool.train.queries import TrainingQueries
from contextpool.triples.filters import KnownAnswers
from learning_worlds import one_thread as one_thread
from learning_worlds import random_graph
from support import amount

CASES = amount(40, 1_000)


def queries_over(graph: Graph) -> TrainingQueries:
    triples = graph.as_triples()
    return TrainingQueries.of(triples, graph, KnownAnswers.of(triples))


def random_scores(queries: TrainingQueries, graph: Graph, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 3 * torch.randn(len(queries), graph.num_entities, generator=generator, dtype=torch.float64)


def competitors(graph: Graph, queries: TrainingQueries) -> list[list[int]]:
    """For each query the entities that are no known answer to it."""
    known: dict[tuple[int, int], set[int]] = {}
    asked = list(zip(queries.head.tolist(), queries.relation.tolist(), queries.answer.tolist(), strict=True))
    for head, relation, answer in asked:
        known.setdefault((head, relation), set()).add(answer)
    return [
        [entity for entity in range(graph.num_entities) if entity not in known[head, relation]]
        for head, relation, _ in asked
    ]


# softmax


def test_softmax_equals_a_computation_by_hand() -> None:
    for seed in range(CASES):
        graph = random_graph(seed)
        queries = queries_over(graph)
        scores = random_scores(queries, graph, seed)
        each = []
        for row, (answer, others) in enumerate(
            zip(queries.answer.tolist(), competitors(graph, queries), strict=True)
        ):
            values = scores[row].tolist()
            total = math.fsum(math.exp(values[entity]) for entity in [answer, *others])
            each.append(math.log(total) - values[answer])
        assert float(softmax_loss(scores, queries)) == pytest.approx(math.fsum(each) / len(each))


def test_masking_takes_out_other_known_answers_and_never_the_answer() -> None:
    for seed in range(CASES):
        graph = random_graph(seed)
        queries = queries_over(graph)
        scores = random_scores(queries, graph, seed)
        masked = without_known(scores, queries)
        for row, (answer, others) in enumerate(
            zip(queries.answer.tolist(), competitors(graph, queries), strict=True)
        ):
            stay = [answer, *others]
            assert torch.equal(masked[row, stay], scores[row, stay])
            gone = sorted(set(range(graph.num_entities)) - set(stay))
            assert masked[row, gone].tolist() == [MASKED] * len(gone)
        assert not (scores == MASKED).any()  # the scores themselves are left alone


def test_known_answers_get_no_gradient() -> None:
    """a points to b and to c: each is the answer of one query and left out of the other."""
    graph = Graph.from_triples([("a", "r", "b"), ("a", "r", "c"), ("d", "s", "a")])
    queries = queries_over(graph).batch(torch.tensor([0, 1]))
    assert queries.answer.tolist() == [1, 2]
    scores = torch.zeros(2, 4, requires_grad=True)
    softmax_loss(scores, queries).backward()
    assert scores.grad is not None
    third = 1 / 3
    expected = [[third, third - 1, 0, third], [third, 0, third - 1, third]]
    assert (2 * scores.grad).flatten().tolist() == pytest.approx([value for row in expected for value in row])


def test_without_the_mask_every_other_entity_competes() -> None:
    graph = random_graph(4)
    queries = queries_over(graph)
    scores = random_scores(queries, graph, 4)
    rows = zip(scores.tolist(), queries.answer.tolist(), strict=True)
    each = [math.log(math.fsum(map(math.exp, values))) - values[answer] for values, answer in rows]
    found = float(softmax_loss(scores, queries, mask_known=False))
    assert found == pytest.approx(math.fsum(each) / len(each))


def test_softmax_of_the_same_queries_twice_is_the_same() -> None:
    graph = random_graph(7)
    queries = queries_over(graph)
    scores = random_scores(queries, graph, 7)
    rows = torch.arange(len(queries)).repeat(3)
    once, thrice = softmax_loss(scores, queries), softmax_loss(scores[rows], queries.batch(rows))
    torch.testing.assert_close(once, thrice)


# self-adversarial binary cross entropy


def bce(scores: Tensor, queries: TrainingQueries, seed: int = 0, negatives: int = 8) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    sampled = sample_candidates(queries, scores.size(1), negatives=negatives, generator=generator)
    return sampled_loss(scores.gather(1, sampled.candidates), sampled)


def test_bce_equals_a_computation_by_hand() -> None:
    """One candidate besides the answer, so that what is drawn is known: all weights fall on it."""
    graph = Graph.from_triples([("a", "r", "b")])
    queries = queries_over(graph).batch(torch.tensor([0]))
    scores = torch.tensor([[0.3, 1.2]], dtype=torch.float64)
    expected = (math.log(1 + math.exp(-1.2)) + math.log(1 + math.exp(0.3))) / 2
    assert float(bce(scores, queries)) == pytest.approx(expected)


def test_harder_negatives_weigh_more_by_the_temperature(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph.from_triples([("a", "r", "b"), ("c", "s", "d")])
    queries = queries_over(graph).batch(torch.tensor([0]))
    scores = torch.tensor([[-1.0, 0.0, 0.5, 2.0]], dtype=torch.float64)
    monkeypatch.setattr(torch, "multinomial", lambda *_, **__: torch.tensor([[0, 2, 2, 3]]))
    values = [-1.0, 0.5, 0.5, 2.0]
    weights = [math.exp(value / TEMPERATURE) for value in values]
    hard = math.fsum(
        weight * math.log(1 + math.exp(value)) for weight, value in zip(weights, values, strict=True)
    )
    expected = (math.log(2) + hard / math.fsum(weights)) / 2
    assert float(bce(scores, queries, negatives=4)) == pytest.approx(expected)


def drawn_entities(graph: Graph, queries: TrainingQueries, seed: int, negatives: int) -> list[set[int]]:
    """Which entities pull a query's loss upwards: those that were drawn."""
    scores = torch.zeros(len(queries), graph.num_entities, dtype=torch.float64, requires_grad=True)
    bce(scores, queries, seed, negatives).backward()
    assert scores.grad is not None
    answered = scores.grad.scatter(1, queries.answer[:, None], 0.0)
    return [set(torch.nonzero(row).squeeze(1).tolist()) for row in answered]


def test_known_answers_are_never_drawn_and_all_others_are() -> None:
    for seed in range(CASES):
        graph = random_graph(seed)
        queries = queries_over(graph)
        found = drawn_entities(graph, queries, seed, negatives=600)
        assert found == [set(others) for others in competitors(graph, queries)]


def test_a_query_that_everything_answers_has_no_negatives() -> None:
    graph = Graph.from_triples([("a", "r", "a"), ("a", "r", "b")])
    queries = queries_over(graph).batch(torch.tensor([0, 1]))
    scores = torch.tensor([[0.5, 3.0], [0.5, 3.0]], dtype=torch.float64, requires_grad=True)
    loss = bce(scores, queries)
    loss.backward()
    assert scores.grad is not None
    assert (scores.grad[0, 1], scores.grad[1, 0]) == (0, 0)
    expected = (math.log(1 + math.exp(-0.5)) + math.log(1 + math.exp(-3.0))) / 2 / 2
    assert float(loss.detach()) == pytest.approx(expected)


def test_the_scale_of_bce_does_not_grow_with_the_batch() -> None:
    """A mean over queries of one number each: B times the same query is once the query, gradient included."""
    graph = Graph.from_triples([("a", "r", "b")])
    one = queries_over(graph).batch(torch.tensor([0]))
    scores = torch.tensor([[0.3, 1.2]], dtype=torch.float64, requires_grad=True)
    expected = bce(scores, one)
    expected.backward()
    assert scores.grad is not None
    for size in (2, 16, 100):
        many = torch.tensor([[0.3, 1.2]] * size, dtype=torch.float64, requires_grad=True)
        loss = bce(many, one.batch(torch.zeros(size, dtype=torch.int64)))
        assert loss.shape == ()
        torch.testing.assert_close(loss, expected)
        loss.backward()
        assert many.grad is not None
        torch.testing.assert_close(many.grad.sum(dim=0), scores.grad[0])


class LargestResult(TorchDispatchMode):
    """Watches how many numbers the largest tensor has that any operation gives."""

    size = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            self.size = max(self.size, result.numel())
        return result


def test_nothing_of_a_batch_by_a_batch_is_formed() -> None:
    """[B] + [B, 1] would be [B, B]: B times the work and, summed, B times the loss."""
    graph = Graph.from_triples([("a", "r", "b")])
    queries = queries_over(graph).batch(torch.zeros(50, dtype=torch.int64))
    with LargestResult() as watched:
        bce(torch.zeros(50, 2), queries, negatives=4)
    assert 0 < watched.size <= 50 * (1 + 4)


def test_draws_come_from_the_generator_alone() -> None:
    graph = random_graph(9, most_entities=30, most=40)
    queries = queries_over(graph)
    scores = random_scores(queries, graph, 1)
    state = torch.get_rng_state()
    first = bce(scores, queries, seed=1)
    torch.manual_seed(123)
    assert torch.equal(bce(scores, queries, seed=1), first)
    assert not torch.equal(bce(scores, queries, seed=2), first)
    torch.set_rng_state(state)
    bce(scores, queries, seed=1)
    assert torch.equal(torch.get_rng_state(), state)


def test_no_gradient_flows_through_the_adversarial_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph.from_triples([("a", "r", "b"), ("c", "s", "d")])
    queries = queries_over(graph).batch(torch.tensor([0]))
    monkeypatch.setattr(torch, "multinomial", lambda *_, **__: torch.tensor([[2, 3]]))
    scores = torch.tensor([[0.0, 0.0, 1.0, -1.0]], dtype=torch.float64, requires_grad=True)
    bce(scores, queries, negatives=2).backward()
    assert scores.grad is not None
    share = 1 / (1 + math.exp(-2.0 / TEMPERATURE))  # of the harder one
    expected = [share / (1 + math.exp(-1.0)) / 2, (1 - share) / (1 + math.exp(1.0)) / 2]
    assert scores.grad[0, 2:].tolist() == pytest.approx(expected)


def test_a_score_that_is_not_a_number_is_drawn_like_any_other() -> None:
    """Not skipped: a loss that is not finite is what stops a run."""
    graph = Graph.from_triples([("a", "r", "b"), ("c", "s", "d")])
    queries = queries_over(graph).batch(torch.tensor([0]))
    for wrong in (math.nan, math.inf):
        for entity in range(4):
            scores = torch.zeros(1, 4)
            scores[0, entity] = wrong
            losses = (softmax_loss(scores, queries), bce(scores, queries, negatives=64))
            is_answer = wrong == math.inf and entity == 1
            assert [bool(loss.isfinite()) for loss in losses] == [False, is_answer]
