"""From scores to probabilities, fitted on selection queries.

1. A temperature: candidates' scores / T through a softmax, T minimising the answers' negative log-likelihood.
2. An isotonic curve from that softmax to how often such a candidate was the answer, among the best ten
   candidates of every query (pool adjacent violators, Ayer et al. 1955).

Known answers are no candidates, neither here nor when a prediction is made: the probability is that of a new
answer being the one asked for. The order of the candidates of a query is never turned round.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from contextpool.errors import DataError
from contextpool.evaluate.ranks import (
    DirectedQueries,
    ScoredAnswers,
    Scorer,
    check_same_numbers,
    compared_entities,
    describe_query,
    in_canonical_order,
    refuse_non_finite,
    scored_answers,
)
from contextpool.triples.filters import KnownAnswers
from contextpool.triples.store import Triples

Floats = npt.NDArray[np.float64]
Block = tuple[float, float, float]
"""Sum of x, sum of y, number of points."""


def isotonic_blocks(x: Floats, y: Floats, fewest: int = 1) -> tuple[Floats, Floats, Floats]:
    """Least squares of y [P] by a non-decreasing function of x [P]: mean x, mean y, size of each block.

    Pool adjacent violators over the distinct x; then blocks of fewer than `fewest` points join a neighbour.
    O(P log P).
    """
    values, member = np.unique(x, return_inverse=True)
    weight = np.bincount(member).astype(np.float64)
    pooled: list[Block] = []
    for block in zip(values * weight, np.bincount(member, y), weight, strict=True):
        pooled.append(block)
        while len(pooled) > 1 and _mean(pooled[-2]) >= _mean(pooled[-1]):
            pooled[-2:] = [_merged(*pooled[-2:])]
    sum_x, sum_y, size = np.array(_large_enough(pooled, fewest)).T
    return sum_x / size, sum_y / size, size


def _large_enough(blocks: list[Block], fewest: int) -> list[Block]:
    """Neighbours joined from the left until each has enough; means stay in order. A short rest joins the last."""
    kept: list[Block] = []
    for block in blocks:
        if kept and kept[-1][2] < fewest:
            kept[-1] = _merged(kept[-1], block)
        else:
            kept.append(block)
    if len(kept) > 1 and kept[-1][2] < fewest:
        kept[-2:] = [_merged(*kept[-2:])]
    return kept


def _mean(block: Block) -> float:
    return block[1] / block[2]


def _merged(one: Block, other: Block) -> Block:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def expected_calibration_error(probability: Floats, hit: Floats, bins: int = 15) -> float:
    """Mean distance between claimed and observed over equal bins of [0, 1], weighted by their points."""
    place = np.minimum((probability * bins).astype(np.int64), bins - 1)
    gap = np.bincount(place, probability, bins) - np.bincount(place, hit, bins)  # [bins]
    return float(np.abs(gap).sum() / len(probability))


FEWEST_QUERIES = 50
FEWEST_IN_BLOCK = 50
PRIOR_POINTS = 20
CURVE_FACTS, TEMPERATURE_FACTS, PULLED_POINTS = 400, 100, 300
"""Of a fit that is pulled to the softmax: facts that a curve takes, facts by which half of the temperature is believed,
points that each block of the curve counts more (docs/lab/check.md).
"""


@dataclass(frozen=True)
class Calibration:
    """A temperature and a non-decreasing curve: linear between its knots, flat after the last."""

    temperature: float
    knots: tuple[float, ...]
    """Softmax probabilities, ascending, the first 0."""
    values: tuple[float, ...]
    """Probability of being true at each knot."""
    facts: int | None = None
    """How many facts it was fitted on; None where nobody wrote it down."""

    def __post_init__(self) -> None:
        knots, values = np.array(self.knots), np.array(self.values)
        if not (0 < self.temperature < np.inf):
            raise DataError(f"calibration: the temperature is {self.temperature}; it has to be positive.")
        if not (
            len(knots) == len(values) > 0 and (np.diff(knots) > 0).all() and (np.diff(values) >= 0).all()
        ):
            raise DataError("calibration: knots have to ascend, with one value each that never falls.")
        if not all(0 <= number <= 1 for number in (*self.knots, *self.values)):
            raise DataError("calibration: knots and values are probabilities; all have to lie in [0, 1].")

    def probability(self, scores: Tensor, known: Tensor | None = None) -> Tensor:
        """[..., N] scores of all entities -> [..., N] float64 probability of each being true.

        `known` [..., N] bool: answers that the graph already holds; they take no part and get 1.
        """
        is_known = torch.zeros_like(scores, dtype=torch.bool) if known is None else known
        rows = (-1, scores.shape[-1])
        refuse_non_finite(
            scores.reshape(rows), ~is_known.reshape(rows), lambda row, entity: f"row {row}, entity {entity}"
        )
        return self.of_share(shares(scores, is_known, self.temperature)).masked_fill(is_known, 1.0)

    def of_share(self, share: Tensor) -> Tensor:
        """[...] float64 probability of being true, by the share among all candidates."""
        return self._curve(share)

    def _curve(self, share: Tensor) -> Tensor:
        values = np.interp(share.cpu().numpy(), self.knots, self.values)
        return torch.from_numpy(np.asarray(values)).to(share.device)

    def __repr__(self) -> str:
        rests = "" if self.facts is None else f", {self.facts:,} facts"
        return f"Calibration(temperature {self.temperature:.4g}, {len(self.knots):,} knots{rests})"

    def to_dict(self) -> dict[str, Any]:
        curve = {"temperature": self.temperature, "knots": list(self.knots), "values": list(self.values)}
        return curve if self.facts is None else {**curve, "facts": self.facts}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Calibration:
        """What `to_dict` gave; anything else is refused by name."""
        keys = sorted(stored) if isinstance(stored, Mapping) else []
        if [key for key in keys if key != "facts"] != ["knots", "temperature", "values"]:
            raise DataError(f"calibration: keys are {keys}, not temperature, knots and values.")
        try:
            knots, values = (tuple(float(number) for number in stored[key]) for key in ("knots", "values"))
            temperature = float(stored["temperature"])
            facts = None if stored.get("facts") is None else int(stored["facts"])
        except (TypeError, ValueError, OverflowError) as error:
            raise DataError(f"calibration: {error}; it holds numbers only.") from error
        return cls(temperature, knots, values, facts)


@dataclass(frozen=True)
class CalibrationFit:
    """A calibration and how good it is, or the reason why there is none."""

    calibration: Calibration | None
    reason: str
    """Why there is none; empty where there is one."""
    num_queries: int
    """Different ones, of those asked."""
    error_before: float | None = None
    """Expected calibration error of the plain softmax of the scores."""
    error_after: float | None = None
    """The same after calibration, measured on queries that the curve was not fitted on (two folds)."""

    def to_dict(self) -> dict[str, Any]:
        stored = None if self.calibration is None else self.calibration.to_dict()
        return {**asdict(self), "calibration": stored}


def fit_calibration(
    scorer: Scorer,
    queries: Triples,
    known: KnownAnswers,
    *,
    batch_size: int = 64,
    device: torch.device | str | None = None,
    seed: int = 0,
    top: int = 10,
    most_queries: int = 4000,
    memory_bytes: int = 2**26,
) -> CalibrationFit:
    """Fit on triples that were not trained on, asked in both directions; at most `most_queries`.

    `seed` draws them. The temperature is fitted on as many as fit into `memory_bytes` (at least one batch),
    the curve on all. One pass over the scorer.
    """
    check_same_numbers(queries, known)
    asked = DirectedQueries.of(in_canonical_order(queries))
    drawn = np.random.default_rng(seed).permutation(len(asked))[:most_queries]
    asked, facts = asked.select(drawn), len(np.unique(drawn % len(queries)))
    count = len(asked.distinct(known.num_relations)[0])
    if count < FEWEST_QUERIES:
        return CalibrationFit(None, f"{count} different queries; {FEWEST_QUERIES} are needed", count)
    where = torch.device(device) if device else None
    scored = scored_answers(scorer, asked, known, batch_size, where)
    return fit_on_answers(scored, queries, asked, count, facts, top=top, memory_bytes=memory_bytes)


def fit_on_answers(
    scored: Iterator[ScoredAnswers],
    queries: Triples,
    asked: DirectedQueries,
    count: int,
    facts: int,
    *,
    top: int = 10,
    memory_bytes: int = 2**26,
    pulled: bool = False,
) -> CalibrationFit:
    """Fit on scores as they come, of `count` different queries that are `facts` facts, asked one or both ways.

    `queries` and what was `asked` of them name a query in errors. `pulled`: to the softmax as it is, for a model whose
    softmax was honest on other graphs; then few facts give a temperature alone.
    """
    chunks = map(partial(_masked, queries, asked), scored)
    sample = list(_within(chunks, memory_bytes))
    temperature = fit_temperature(sample)
    if temperature is None:
        return CalibrationFit(None, "every candidate has the same score", count)
    if pulled:
        temperature = temperature ** (facts / (facts + TEMPERATURE_FACTS))
    points = [_points(chunk, temperature, top) for chunk in itertools.chain(sample, chunks)]
    if pulled and facts < CURVE_FACTS:
        return CalibrationFit(Calibration(temperature, (0.0, 1.0), (0.0, 1.0), facts), "", count)
    fit = _fit(temperature, Points.joined(points), count, PULLED_POINTS if pulled else PRIOR_POINTS)
    assert fit.calibration is not None
    return replace(fit, calibration=replace(fit.calibration, facts=facts))


@dataclass(frozen=True, eq=False)
class MaskedScores:
    """Scores of candidates, -inf elsewhere."""

    scores: Tensor  # [A, N]
    answer: Tensor  # [A]
    query: npt.NDArray[np.int64]  # [A] number of the distinct query


def _masked(queries: Triples, asked: DirectedQueries, chunk: ScoredAnswers) -> MaskedScores:
    candidate = compared_entities(chunk.scores, chunk.answer, chunk.known_row, chunk.known_entity)
    refuse_non_finite(chunk.scores, candidate, partial(describe_query, queries, asked, chunk.place))
    return MaskedScores(chunk.scores.masked_fill(~candidate, -torch.inf), chunk.answer, chunk.query)


def _within(chunks: Iterator[MaskedScores], memory_bytes: int) -> Iterator[MaskedScores]:
    """Chunks until they fill the memory; takes no more from `chunks` than it gives."""
    held = 0
    while held < memory_bytes and (chunk := next(chunks, None)) is not None:
        held += chunk.scores.nbytes
        yield chunk


def fit_temperature(sample: list[MaskedScores]) -> float | None:
    """The T that minimises the answers' negative log-likelihood; None where all candidates score the same.

    In 1 / T the loss is convex (a log-sum-exp less a line), so a bounded search finds its minimum. The bounds
    are 0.01 and 10,000 over the typical distance between the best candidate and the mean one.
    """
    spread = np.concatenate([_spread(chunk) for chunk in sample])
    if not (spread > 0).any():
        return None
    typical = float(np.median(spread[spread > 0]))
    bounds = (np.log(1e-2 / typical), np.log(1e4 / typical))
    log_slope = minimum(lambda slope: sum(_loss(chunk, float(np.exp(slope))) for chunk in sample), *bounds)
    return float(np.exp(-log_slope))


def minimum(loss: Callable[[float], float], low: float, high: float, tolerance: float = 1e-3) -> float:
    """Where a function with one valley is lowest, by golden sections; scipy.optimize would take 0.2 s to import."""
    ratio = (5**0.5 - 1) / 2
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = loss(left), loss(right)
    while high - low > tolerance:
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = loss(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = loss(right)
    return (low + high) / 2


def _spread(chunk: MaskedScores) -> Floats:
    """[A] best score less the mean one, over the candidates."""
    candidate = chunk.scores.isfinite()
    total = chunk.scores.double().masked_fill(~candidate, 0).sum(dim=1)
    spread: Floats = (chunk.scores.amax(dim=1).double() - total / candidate.sum(dim=1)).cpu().numpy()
    return spread


def _loss(chunk: MaskedScores, slope: float) -> float:
    logits = chunk.scores.double() * slope
    own = logits.gather(1, chunk.answer[:, None]).squeeze(1)
    return float((logits.logsumexp(dim=1) - own).sum())


def shares(scores: Tensor, known: Tensor, temperature: float = 1.0) -> Tensor:
    """[..., N] float64 of each candidate among all that are not known [..., N]; those have 0."""
    return _softmax(scores.masked_fill(known, -torch.inf), temperature)


def _softmax(scores: Tensor, temperature: float) -> Tensor:
    """[..., N] float64; a row without any candidate is not a number, and nobody looks at it."""
    return torch.softmax(scores.double() / temperature, dim=-1)


@dataclass(frozen=True, eq=False)
class Points:
    """The best candidates of every query: P of them in all."""

    plain: Floats
    """[P] softmax of the scores as they are."""
    share: Floats
    """[P] softmax at the temperature."""
    hit: Floats
    """[P] 1 for the answer; a fraction where it ties with candidates that did not all fit."""
    fold: npt.NDArray[np.int64]
    """[P] 0 or 1, the same for all of a query."""

    @classmethod
    def joined(cls, parts: list[Points]) -> Points:
        names = ("plain", "share", "hit", "fold")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def select(self, rows: npt.NDArray[np.bool_]) -> Points:
        return Points(self.plain[rows], self.share[rows], self.hit[rows], self.fold[rows])


def _points(chunk: MaskedScores, temperature: float, top: int) -> Points:
    """The best `top` candidates of each row; those that tie for the last places share them evenly.

    So it does not matter which of them a sort puts first, as long as their hits are shared too.
    """
    size = min(top, chunk.scores.shape[1])
    best, entity = chunk.scores.topk(size, dim=1)  # [A, k]
    last = best[:, -1:]  # [A, 1]
    own = chunk.scores.gather(1, chunk.answer[:, None])  # [A, 1]
    shared = (own == last).double() / (chunk.scores == last).sum(dim=1, keepdim=True)
    hit = torch.where(best == last, shared, (entity == chunk.answer[:, None]).double())
    columns = (
        _softmax(chunk.scores, 1.0).gather(1, entity),
        _softmax(chunk.scores, temperature).gather(1, entity),
    )
    fold = torch.from_numpy(chunk.query % 2)[:, None].expand(-1, size)
    there = best.isfinite().cpu()
    plain, share, hits, folds = (column.cpu()[there].numpy() for column in (*columns, hit, fold))
    return Points(plain, share, hits, folds)


def masked_points(
    scorer: Scorer,
    queries: Triples,
    asked: DirectedQueries,
    known: KnownAnswers,
    temperature: float,
    top: int,
    batch_size: int,
    device: torch.device | str | None,
) -> Iterator[Points]:
    """The best `top` candidates of every query at a temperature, a batch at a time."""
    where = torch.device(device) if device else None
    scored = scored_answers(scorer, asked, known, batch_size, where)
    for chunk in map(partial(_masked, queries, asked), scored):
        yield _points(chunk, temperature, top)


def _fit(temperature: float, points: Points, num_queries: int, prior: int) -> CalibrationFit:
    calibration = _fit_curve(temperature, points, prior)
    before = expected_calibration_error(points.plain, points.hit)
    held_out, hits = [], []
    for fold in (0, 1):
        curve = _fit_curve(temperature, points.select(points.fold != fold), prior)
        held = points.select(points.fold == fold)
        held_out.append(np.interp(held.share, curve.knots, curve.values))
        hits.append(held.hit)
    after = expected_calibration_error(np.concatenate(held_out), np.concatenate(hits))
    return CalibrationFit(calibration, "", num_queries, before, after)


def _fit_curve(temperature: float, points: Points, prior: int = PRIOR_POINTS) -> Calibration:
    """The isotonic curve, started at (0, 0) so that what is far behind gets nothing.

    Each block counts as if `prior` points more had come out as the softmax says: few points move the curve
    little, above all at its end, where isotonic fits are too sure. Nor does the end claim certainty because
    all of n cases were hits: it stays at (n + 1) / (n + 2).
    """
    centre, height, weight = isotonic_blocks(points.share, points.hit, FEWEST_IN_BLOCK)
    height = (height * weight + centre * prior) / (weight + prior)
    height = np.minimum(height, (weight[-1] + 1) / (weight[-1] + 2))
    knots = np.maximum.accumulate(np.append(0.0, centre))  # in order but for the last bit of a mean
    values = np.maximum.accumulate(np.append(0.0, np.where(centre > 0, height, 0.0)))
    last = np.append(np.diff(knots) > 0, True)  # of equal knots
    return Calibration(temperature, tuple(knots[last].tolist()), tuple(values[last].tolist()))
