"""Triples asked in both directions, scored in batches, and the ranks of their answers among all entities.

Ranks are filtered, under three rules for ties, and never follow from a score that is not finite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from contextpool.errors import ConfigError, DataError, NonFiniteError, shortened
from contextpool.graph.relations import DirectedQueries, Integers, RelationVocabulary
from contextpool.triples.filters import KnownAnswers
from contextpool.triples.store import Triples

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


Scorer = Callable[[Tensor, Tensor], Tensor]
"""(query_head [B], query_relation [B] in [0, 2R)), both int64 -> scores [B, N]; higher is better."""
Direction = Literal["tail", "head"]
DIRECTIONS: tuple[Direction, Direction] = ("tail", "head")
Progress = Callable[[int, int], None]
"""Called with (queries done, queries in all) after every batch."""


@dataclass(frozen=True, eq=False)
class ScoredAnswers:
    """A answers beside the scores of all entities for their queries; all tensors on one device."""

    place: Integers
    """[A] row of each in the `DirectedQueries` they came from."""
    query: Integers
    """[A] number of its distinct query."""
    scores: Tensor  # [A, N]
    answer: Tensor  # [A]
    known_row: Tensor  # [K]
    known_entity: Tensor  # [K]


def scored_answers(
    scorer: Scorer,
    asked: DirectedQueries,
    known: KnownAnswers,
    batch_size: int,
    device: torch.device | None,
    turns: Iterable[int] | None = None,
) -> Iterator[ScoredAnswers]:
    """Ask each distinct query once, `batch_size` at a time, and hand its scores to each of its answers.

    At most three [batch_size, N] tensors of scores live at once, however many answers a query has. `turns` are the
    numbers of the batches wanted, None for all: a batch is the same, and so are its scores, whoever asks which.
    """
    if batch_size < 1:
        raise ConfigError(f"batch_size is {batch_size}; it has to be at least 1.")
    first, number = asked.distinct(known.num_relations)
    by_query = np.argsort(number, kind="stable")  # [Q] rows, those of one query side by side
    start = np.searchsorted(number[by_query], np.arange(len(first) + 1))
    for turn in range(-(-len(first) // batch_size)) if turns is None else turns:
        low = turn * batch_size
        high = min(low + batch_size, len(first))
        scores = _scores_of(scorer, asked.select(first[low:high]), known.num_entities, device)
        rows = by_query[start[low] : start[high]]
        for begin in range(0, len(rows), batch_size):
            places = rows[begin : begin + batch_size]
            yield _beside(scores, places, number[places], low, asked, known)


def _scores_of(
    scorer: Scorer, batch: DirectedQueries, num_entities: int, device: torch.device | None
) -> Tensor:
    with torch.no_grad():
        scores = scorer(*(torch.from_numpy(ids).to(device) for ids in (batch.entity, batch.relation)))
    if scores.shape != (len(batch), num_entities):
        raise DataError(
            f"the scorer returned {list(scores.shape)} for {len(batch)} queries over {num_entities:,} entities; "
            f"it has to return [{len(batch)}, {num_entities}]: a score for every entity of the graph."
        )
    return scores.detach()


def _beside(
    scores: Tensor, places: Integers, query: Integers, low: int, asked: DirectedQueries, known: KnownAnswers
) -> ScoredAnswers:
    answers = asked.select(places)
    row = query - low  # [A] of scores
    if not np.array_equal(row, np.arange(len(scores))):
        scores = scores[torch.from_numpy(row).to(scores.device)]
    columns = (answers.answer, *answers.known_answers(known))
    return ScoredAnswers(places, query, scores, *(torch.from_numpy(ids).to(scores.device) for ids in columns))


def describe_query(queries: Triples, asked: DirectedQueries, places: Integers, row: int, entity: int) -> str:
    """How an error names the query at `places[row]` of `asked`, and a candidate."""
    place, names = places[row], queries.entities.labels
    relation = RelationVocabulary.of(queries.relations).directed[asked.relation[place]]
    head = shortened(names[asked.entity[place]])
    return f"query ({head}, {shortened(relation)}, ?), candidate {shortened(names[entity])}"


def check_same_numbers(queries: Triples, known: KnownAnswers) -> None:
    """Queries and known answers have to number the same entities and relations, and there have to be some."""
    ours, theirs = (len(queries.entities), len(queries.relations)), (known.num_entities, known.num_relations)
    if ours != theirs:
        raise DataError(
            f"queries over {ours[0]:,} entities and {ours[1]:,} relations, known answers over {theirs[0]:,} and "
            f"{theirs[1]:,}: number both by the same vocabularies."
        )
    if len(queries) == 0:
        raise DataError("there are no queries to ask; give at least one triple.")


def in_canonical_order(queries: Triples) -> Triples:
    """The same rows sorted by (head, relation, tail), whoever made them; none is dropped."""
    order = np.lexsort((queries.ids[:, 2], queries.ids[:, 1], queries.ids[:, 0]))
    return Triples(queries.entities, queries.relations, queries.ids[order])


def batch_size_for(num_entities: int, memory_bytes: int, bytes_per_entity: float) -> int:
    """The most queries whose scores fit into `memory_bytes`, when each takes `bytes_per_entity` an entity.

    Ranking float32 scores takes 16: three tensors of scores (`scored_answers`) and masks. The scorer's own
    work comes on top.
    """
    if num_entities < 1 or bytes_per_entity <= 0:
        raise ConfigError(
            f"num_entities is {num_entities} and bytes_per_entity {bytes_per_entity}; both have to be positive."
        )
    size = int(memory_bytes // (num_entities * bytes_per_entity))
    if size < 1:
        raise ConfigError(
            f"memory_bytes is {memory_bytes:,}, and one query over {num_entities:,} entities needs "
            f"{num_entities * bytes_per_entity:,.0f}. Allow more memory, or use another device."
        )
    return size
