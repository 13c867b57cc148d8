"""E1 and C7: ranks against plain Python; a score that is not finite never becomes a rank."""

from __future__ import annotations

import itertools
import math
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from contextpool.errors import DataError, NonFiniteError
from contextpool.evaluate.ranks import Ranks, rank_answers

NOTHING = torch.empty(0, dtype=torch.int64)


def ranks_by_hand(scores: list[float], answer: int, known: set[int]) -> tuple[float, float, float, int]:
    """Optimistic, realistic, pessimistic rank and the number compared, by looking at one entity at a time."""
    others = [score for entity, score in enumerate(scores) if entity != answer and entity not in known]
    optimistic = 1 + sum(score > scores[answer] for score in others)
    pessimistic = 1 + sum(score >= scores[answer] for score in others)
    return optimistic, (optimistic + pessimistic) / 2, pessimistic, len(others) + 1


def rank(scores: list[list[float]], answer: list[int], known: list[tuple[int, int]] = ()) -> Ranks:  # type: ignore[assignment]
    pairs = torch.tensor(known, dtype=torch.int64).reshape(-1, 2)
    return rank_answers(torch.tensor(scores), torch.tensor(answer), pairs[:, 0], pairs[:, 1])


@given(st.integers(0, 10**9))
def test_ranks_are_those_of_plain_python(seed):
    rng = random.Random(seed)
    rows, entities = rng.randint(1, 6), rng.randint(1, 12)
    levels = rng.choice([1, 2, 4, 1000])
    scores = [[rng.randrange(levels) / 4 for _ in range(entities)] for _ in range(rows)]
    answer = [rng.randrange(entities) for _ in range(rows)]
    known = [(rng.randrange(rows), rng.randrange(entities)) for _ in range(rng.randint(0, 30))]
    ranks = rank(scores, answer, known)
    for row in range(rows):
        excluded = {entity for other, entity in known if other == row}
        found = (ranks.optimistic[row], ranks.realistic[row], ranks.pessimistic[row], ranks.candidates[row])
        assert tuple(map(float, found)) == ranks_by_hand(scores[row], answer[row], excluded)


def test_a_lone_best_answer_ranks_1_raw_or_filtered():
    scores = [[0.1, 0.9, 0.3]]
    for known in ([], [(0, 1)], [(0, 1), (0, 2)], [(0, 0), (0, 1), (0, 2)]):
        ranks = rank(scores, [1], known)
        assert ranks.optimistic.item() == ranks.realistic.item() == ranks.pessimistic.item() == 1


def test_known_answers_of_the_same_query_never_push_the_answer_down():
    scores = [[5.0, 4.0, 3.0, 2.0, 2.0]]
    assert rank(scores, [3]).realistic.item() == 4.5
    assert rank(scores, [3], [(0, 0), (0, 1)]).realistic.item() == 2.5
    assert rank(scores, [3], [(0, 0), (0, 1), (0, 4)]).realistic.item() == 2


def test_known_answers_of_another_row_change_nothing():
    assert rank([[3.0, 2.0], [3.0, 2.0]], [1, 1], [(1, 0)]).realistic.tolist() == [2, 1]


def test_ranks_are_float64_and_exact_beyond_float32():
    ranks = rank([[0.0] * 7], [3])
    assert ranks.optimistic.dtype == ranks.realistic.dtype == ranks.pessimistic.dtype == torch.float64
    many = rank_answers(torch.zeros(1, 2**24 + 4), torch.tensor([0]), NOTHING, NOTHING)
    assert many.pessimistic.item() == 2**24 + 4
    assert many.realistic.item() == (2**24 + 5) / 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_float_type_is_ranked_as_it_is(dtype):
    scores = torch.tensor([[1.0, 2.0, 2.0, 0.5]], dtype=dtype)
    assert rank_answers(scores, torch.tensor([1]), NOTHING, NOTHING).realistic.item() == 1.5


PLACES = {
    "the answer": (1, 2),
    "another candidate": (1, 4),
    "the first entity": (1, 0),
    "the last entity": (1, 7),
    "the whole row": (1, slice(None)),
    "everything": (slice(None), slice(None)),
}
NON_FINITE = [math.nan, math.inf, -math.inf]


@pytest.mark.parametrize(("value", "place"), list(itertools.product(NON_FINITE, PLACES)))
def test_a_non_finite_score_is_an_error_and_never_a_rank(value, place):
    scores = torch.arange(24.0).reshape(3, 8)
    scores[PLACES[place]] = value
    first_row = 0 if place == "everything" else 1
    with pytest.raises(NonFiniteError, match=rf"row {first_row}, entity \d: the score is {value}"):
        rank_answers(scores, torch.tensor([2, 2, 2]), torch.tensor([1]), torch.tensor([2]))


def test_a_half_precision_overflow_is_an_error():
    scores = torch.tensor([[1.0, 300.0, 2.0]], dtype=torch.float16) ** 2  # 90,000 is too much for it
    with pytest.raises(NonFiniteError, match="row 0, entity 1"):
        rank_answers(scores, torch.tensor([0]), NOTHING, NOTHING)


def test_a_row_of_zero_by_zero_is_an_error():
    scores = torch.zeros(2, 3) / torch.tensor([[1.0], [0.0]])
    with pytest.raises(NonFiniteError, match="row 1, entity 0: the score is nan"):
        rank_answers(scores, torch.tensor([0, 0]), NOTHING, NOTHING)


def test_what_is_filtered_is_not_compared_whatever_its_score():
    nan, inf = math.nan, math.inf
    assert rank([[nan, 2.0, inf, 1.0, -inf]], [3], [(0, 0), (0, 2), (0, 4)]).realistic.item() == 2


def test_the_error_uses_the_callers_names():
    with pytest.raises(NonFiniteError, match=r"^alice/1: the score is nan"):
        rank_answers(
            torch.tensor([[0.0, math.nan]]),
            torch.tensor([0]),
            NOTHING,
            NOTHING,
            describe=lambda row, entity: f"{['alice'][row]}/{entity}",
        )


@pytest.mark.parametrize(
    ("scores", "answer", "known", "what"),
    [
        (torch.zeros(3), [0], [], "floats"),
        (torch.zeros(1, 3, dtype=torch.int64), [0], [], "floats"),
        (torch.zeros(2, 3), [0], [], "one for each row"),
        (torch.zeros(1, 3), [3], [], "answer 3 is out of range"),
        (torch.zeros(1, 3), [-1], [], "answer -1 is out of range"),
        (torch.zeros(1, 3), [0], [(0, -1)], "known entity -1 is out of range"),
        (torch.zeros(1, 3), [0], [(1, 0)], "known row 1 is out of range"),
    ],
)
def test_wrong_shapes_and_ids_are_refused(scores, answer, known, what):
    pairs = torch.tensor(known, dtype=torch.int64).reshape(-1, 2)
    with pytest.raises(DataError, match=what):
        rank_answers(scores, torch.tensor(answer), pairs[:, 0], pairs[:, 1])


def test_rows_and_entities_of_known_answers_have_to_pair_up():
    with pytest.raises(DataError, match=r"both have to be \[K\]"):
        rank_answers(torch.zeros(1, 3), torch.tensor([0]), torch.tensor([0, 0]), torch.tensor([1]))


@pytest.mark.gpu
def test_cuda_ranks_are_those_of_the_cpu():
    rng = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 50, (64, 3000), generator=rng).float()
    answer = torch.randint(0, 3000, (64,), generator=rng)
    known = torch.randint(0, 64, (500,), generator=rng), torch.randint(0, 3000, (500,), generator=rng)
    here = rank_answers(scores, answer, *known)
    there = rank_answers(scores.cuda(), answer.cuda(), known[0].cuda(), known[1].cuda())
    for name in ("optimistic", "realistic", "pessimistic", "candidates"):
        assert getattr(there, name).is_cuda
        assert torch.equal(getattr(there, name).cpu(), getattr(here, name))
    scores[5, 7] = math.nan
    with pytest.raises(NonFiniteError, match="row 5, entity 7"):
        rank_answers(scores.cuda(), answer.cuda(), known[0].cuda(), known[1].cuda())
