"""Ranks of answers among all entities, filtered, under three rules for ties; never from a non-finite score."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from contextpool.errors import DataError, NonFiniteError

Describe = Callable[[int, int], str]
"""(row, entity id) -> how an error message names that query and that candidate."""


@dataclass(frozen=True, eq=False)
class Ranks:
    """The rank of each of B answers, 1 being best."""

    optimistic: Tensor
    """[B] float64: candidates with the same score come after the answer."""
    pessimistic: Tensor
    """[B] float64: candidates with the same score come before the answer."""
    candidates: Tensor
    """[B] int64: how many entities were compared, the answer included."""

    @property
    def realistic(self) -> Tensor:
        """[B] float64: ties share their mean rank, which is what a random order among them expects."""
        return (self.optimistic + self.pessimistic) / 2


def rank_answers(
    scores: Tensor,
    answer: Tensor,
    known_row: Tensor,
    known_entity: Tensor,
    *,
    describe: Describe | None = None,
) -> Ranks:
    """Where answer [B] stands in scores [B, N], higher being better.

    Entity `known_entity[k]` is left out of the comparison of row `known_row[k]`, except where it is the
    answer. A NaN or an infinity among what is compared is an error: NaN compares false with everything and
    would rank first; entities that a model does not reach have to tie at a finite score.
    O(B N) time; two [B, N] masks of a byte each and one more at a time beside the scores.
    """
    _check_shapes(scores, answer, known_row, known_entity)
    compared = compared_entities(scores, answer, known_row, known_entity)  # [B, N]
    refuse_non_finite(scores, compared, describe or _by_number)
    own = scores.gather(1, answer[:, None])  # [B, 1]
    better = (scores > own).logical_and_(compared).sum(dim=1)  # [B]
    equal = (scores == own).logical_and_(compared).sum(dim=1)  # [B] the answer itself among them
    return Ranks((better + 1).double(), (better + equal).double(), compared.sum(dim=1))


def compared_entities(scores: Tensor, answer: Tensor, known_row: Tensor, known_entity: Tensor) -> Tensor:
    """[B, N] true for the answer and for every entity that is not a known answer to the same query."""
    compared = torch.ones(scores.shape, dtype=torch.bool, device=scores.device)
    compared[known_row.long(), known_entity.long()] = False
    return compared.scatter_(1, answer[:, None], True)


def refuse_non_finite(scores: Tensor, compared: Tensor, describe: Describe) -> None:
    """Raise for the first score, by row and then by entity, that is compared and is not finite."""
    wrong = scores.isfinite().logical_not_().logical_and_(compared)  # [B, N]
    if not wrong.any():
        return
    row, entity = wrong.nonzero()[0].tolist()
    raise NonFiniteError(
        f"{describe(row, entity)}: the score is {scores[row, entity].item()}, from which no rank follows. "
        "Look for what overflowed or diverged; an entity that is out of reach needs a finite score."
    )


def _by_number(row: int, entity: int) -> str:
    return f"row {row}, entity {entity}"


def _check_shapes(scores: Tensor, answer: Tensor, known_row: Tensor, known_entity: Tensor) -> None:
    if scores.ndim != 2 or not scores.is_floating_point():
        raise DataError(f"scores are {scores.dtype} {list(scores.shape)}; they have to be floats [B, N].")
    if answer.shape != scores.shape[:1] or answer.dtype != torch.int64:
        raise DataError(
            f"the answer is {answer.dtype} {list(answer.shape)} for scores {list(scores.shape)}; "
            "it has to be int64, one for each row."
        )
    if known_row.shape != known_entity.shape or known_row.ndim != 1:
        raise DataError(
            f"known answers have rows {list(known_row.shape)} and entities {list(known_entity.shape)}; "
            "both have to be [K]."
        )
    _check_range("answer", answer, scores.shape[1])
    _check_range("known entity", known_entity, scores.shape[1])
    _check_range("known row", known_row, scores.shape[0])


def _check_range(what: str, ids: Tensor, count: int) -> None:
    """A negative id would count from the end, and one too large stops a CUDA device for good."""
    wrong = (ids < 0) | (ids >= count)
    if wrong.any():
        raise DataError(f"{what} {int(ids[wrong][0])} is out of range: there are {count:,}, numbered from 0.")
