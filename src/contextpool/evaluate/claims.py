"""How plausible a claim (head, relation, tail) is, from where its tail and its head stand among all entities.

A claim is asked both ways, hidden from itself (`own_facts`). What is read of each way: how far the answer is ahead of
its best rival, its share, its place, and two numbers that need no model: how far ahead it is by walk mass times
relevance, and its relevance. The better and the worse of both ways make ten numbers, and a logistic regression a
probability of them. It is fitted on the graph at hand: facts of the graph against the same facts with one end swapped
for an entity that stands at that end of another fact of the relation. So the probability is that of a claim which is
as likely to be one as the other before anyone looks. Graphs with few facts stay near `START`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from contextpool.context.config import ContextConfig
from contextpool.errors import DataError
from contextpool.evaluate.own_facts import Rows, ScoredFacts, scored_facts
from contextpool.evaluate.ranks import ScoredAnswers, compared_entities, rank_answers
from contextpool.graph.graph import Graph
from contextpool.models.base import LinkPredictor
from contextpool.pool.batch import BatchBuilder
from contextpool.triples.filters import KnownAnswers

Floats = npt.NDArray[np.float64]
READ = ("margin", "share", "place", "walk", "relevance")
"""What is read of a direction."""
CENTRE = np.array([-2.5, -5.0, -2.8, -3.0, 1.0, -4.9, -7.5, -4.9, -7.3, 0.7])
SCALE = np.array([3.6, 3.1, 2.3, 4.4, 0.4, 3.4, 3.0, 2.3, 5.9, 0.4])
"""Mean and spread of the features, about."""
FURTHEST = 3.0
"""Spreads from the mean: what lies further off is read as if it lay there."""
START = np.array([0.73, 0.0, 0.0, 0.14, 0.0, 0.4, 0.15, 0.0, 0.01, 0.0, 0.0])
"""Where each fit starts, and what it stays near: a fit on four graphs, with no weight below 0 and none for relevance
(docs/lab/check.md).
"""
PULL, PULL_OF_FEW = 3.0, 300.0
"""How strongly a fit is pulled to where it starts; the second is divided by the number of facts."""
MOST_STEPS, LONGEST_STEP = 100, 2.0
"""Of Newton's method: a step moves no weight further."""
DRAWS = 30
"""Entities that are tried in the place of an end before a fact is passed over."""
LEAST = 1e-6
LOOKS = ContextConfig(views=(), gate=False, arrive=True, arrive_features=False, arrive_walk=True)
"""What a batch has to hold for the two numbers that need no model."""


@dataclass(frozen=True, eq=False)
class Standing:
    """Where n claims stand, asked for their tails (row 0) and for their heads (row 1)."""

    read: Floats
    """[2, n, 5] see `READ`."""
    rank: Floats
    """[2, n] filtered, ties share their mean rank."""
    candidates: npt.NDArray[np.int64]
    """[2, n] entities compared."""
    rival: npt.NDArray[np.int64]
    """[2, n] the best other candidate, -1 where there is none."""

    @property
    def features(self) -> Floats:
        """[n, 10] the better, then the worse of both ways; a low place is the better one."""
        signed = self.read * np.where(np.array(READ) == "place", -1.0, 1.0)
        features: Floats = np.concatenate([signed.max(axis=0), signed.min(axis=0)], axis=1)
        return features


def standing_of(
    model: LinkPredictor,
    builder: BatchBuilder,
    claims: Rows,
    batch_size: int,
    instead_of: Rows | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Standing:
    """Where claims [n, 3] stand on the builder's graph; `instead_of` as `scored_facts` has it. 160 bytes a claim."""
    count = len(claims)
    read, rank = np.zeros((2, count, len(READ))), np.zeros((2, count))
    candidates, rival = np.zeros((2, count), dtype=np.int64), np.zeros((2, count), dtype=np.int64)
    known = KnownAnswers.of(builder.graph.as_triples())
    looks = BatchBuilder(builder.graph, 1, LOOKS, builder.statistics)
    for scored in scored_facts(model, builder, claims, known, batch_size, instead_of):
        answers = scored.answers
        way, rows = int(answers.place[0] >= count), answers.query
        compared = compared_entities(answers.scores, answers.answer, answers.known_row, answers.known_entity)
        ranks = rank_answers(answers.scores, answers.answer, answers.known_row, answers.known_entity)
        rank[way, rows], candidates[way, rows] = ranks.realistic.cpu(), ranks.candidates.cpu()
        read[way, rows], rival[way, rows] = _read(answers, compared, ranks.realistic, _walked(scored, looks))
        if progress is not None:
            progress(int(rows[-1]) + way, count)
    return Standing(read, rank, candidates, rival)


def _walked(scored: ScoredFacts, looks: BatchBuilder) -> tuple[Tensor, Tensor]:
    """[B, N] walk mass and relevance of all candidates, made where the model does not read them."""
    batch = scored.batch
    if batch.candidate_mass is None or batch.candidate_relevance is None:
        batch = looks.build(batch.propagation.query_head, batch.query_relation, scored.hidden)
    assert batch.candidate_mass is not None
    assert batch.candidate_relevance is not None
    return batch.candidate_mass.double(), batch.candidate_relevance.double()


def _read(
    answers: ScoredAnswers, compared: Tensor, rank: Tensor, walked: tuple[Tensor, Tensor]
) -> tuple[Any, Any]:
    """[B, 5] what is read of one direction, and the best rival [B]."""
    scores = answers.scores.double().masked_fill(~compared, -torch.inf)
    mass, relevance = walked
    by_walk = torch.log((mass + LEAST) * relevance + LEAST**2).masked_fill(~compared, -torch.inf)
    own = answers.answer[:, None]
    margin, rival = _ahead(scores, own)
    columns = [
        margin,
        (scores.gather(1, own)[:, 0] - scores.logsumexp(dim=1)),
        rank.log(),
        _ahead(by_walk, own)[0],
        relevance.gather(1, own)[:, 0],
    ]
    return torch.stack(columns, dim=1).cpu().numpy(), rival.cpu().numpy()


def _ahead(values: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """[B] how far `own` [B, 1] is ahead of the best other one, and which that is; 0 and -1 where there is none."""
    best, place = values.scatter(1, own, -torch.inf).max(dim=1)
    alone = best == -torch.inf
    return torch.where(alone, 0.0, values.gather(1, own)[:, 0] - best), torch.where(alone, -1, place)


@dataclass(frozen=True)
class Plausibility:
    """A logistic regression over `Standing.features`, and how many facts it was fitted on."""

    weights: tuple[float, ...]
    """One a feature, and the constant last."""
    facts: int = 0

    def __post_init__(self) -> None:
        if len(self.weights) != len(START) or not np.isfinite(self.weights).all():
            raise DataError(f"plausibility: it has {len(START)} finite weights.")

    def probability(self, features: Floats) -> Floats:
        """[n] of claims with features [n, 10], in (0, 1)."""
        return _logistic(_scaled(features) @ np.array(self.weights))

    def to_dict(self) -> dict[str, Any]:
        return {"weights": list(self.weights), "facts": self.facts}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Plausibility:
        """What `to_dict` gave; anything else is refused by name."""
        try:
            return cls(tuple(float(number) for number in stored["weights"]), int(stored["facts"]))
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"plausibility: {error}; it holds weights and a number of facts.") from error


def fit_plausibility(
    model: LinkPredictor,
    builder: BatchBuilder,
    facts: Rows,
    batch_size: int,
    own: Floats | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Plausibility:
    """Fit on facts [n, 3] of the builder's graph, each hidden from itself, and on the same with one end swapped.

    `own` [n, 10] are the features of the facts, where they are known already.
    """
    place, swapped = swapped_ends(builder.graph, facts, np.random.default_rng(seed))
    if not len(place):
        return Plausibility(tuple(START.tolist()))
    kept, done_before = facts[place], 0 if own is not None else len(place)
    if own is None:
        first = None if progress is None else lambda done, _: progress(done, 2 * len(place))
        features = standing_of(model, builder, kept, batch_size, progress=first).features
    else:
        features = own[place]
    second = (
        None if progress is None else lambda done, _: progress(done_before + done, done_before + len(place))
    )
    other = standing_of(model, builder, swapped, batch_size, instead_of=kept, progress=second)
    return fit_weights(features, other.features)


def fit_weights(facts: Floats, swapped: Floats) -> Plausibility:
    """The weights that tell facts [n, 10] from swapped ones [n, 10], pulled to `START`; by Newton's method."""
    features = _scaled(np.concatenate([facts, swapped]))  # [2n, 11]
    is_fact = np.append(np.ones(len(facts)), np.zeros(len(swapped)))
    strength = PULL + PULL_OF_FEW / max(1, len(facts))
    pull = np.append(np.full(len(START) - 1, strength), 1e-3)  # the constant is all but free
    weights, before = START.copy(), np.inf
    for _ in range(MOST_STEPS):
        logit = features @ weights
        loss = float(
            (np.logaddexp(0, logit) - is_fact * logit).sum() + (pull * (weights - START) ** 2).sum() / 2
        )
        if before - loss < 1e-9 * (1 + abs(loss)):
            break
        before, chance = loss, _logistic(logit)
        slope = features.T @ (chance - is_fact) + pull * (weights - START)
        bend = (features * (chance * (1 - chance))[:, None]).T @ features + np.diag(pull)
        step = np.linalg.solve(bend, slope)
        weights = weights - step * min(1.0, LONGEST_STEP / np.abs(step).max(initial=1e-12))
    return Plausibility(tuple(weights.tolist()), len(facts))


def _logistic(logit: Floats) -> Floats:
    chance: Floats = 1 / (1 + np.exp(-np.clip(logit, -500, 500)))
    return chance


def _scaled(features: Floats) -> Floats:
    """[n, 11] with a column of ones for the constant."""
    scaled = np.clip((features - CENTRE) / SCALE, -FURTHEST, FURTHEST)
    return np.append(scaled, np.ones((len(features), 1)), axis=1)


def swapped_ends(
    graph: Graph, facts: Rows, generator: np.random.Generator, share_of_tails: float = 0.5
) -> tuple[npt.NDArray[np.int64], Rows]:
    """Facts [n, 3] with one end swapped for one that the relation has there elsewhere: which [m], and as what [m, 3].

    Drawn as often as entities stand there. What is a fact of the graph, or a loop, is drawn again; a fact for which
    nothing else is found, such as one whose relation has a single tail, is left out.
    """
    ids = graph.as_triples().ids
    by_relation = np.argsort(ids[:, 1], kind="stable")
    start = np.searchsorted(ids[by_relation, 1], np.arange(graph.num_relations + 1))
    place: list[int] = []
    found: list[tuple[int, int, int]] = []
    for number, (head, relation, tail) in enumerate(facts.tolist()):
        is_tail = generator.random() < share_of_tails
        low, high = start[relation], start[relation + 1]
        drawn = ids[by_relation[generator.integers(low, high, DRAWS)], 2 if is_tail else 0].tolist()
        for entity in drawn:
            claim = (head, relation, entity) if is_tail else (entity, relation, tail)
            if claim[0] != claim[2] and graph.find_edge(*claim) is None:
                place.append(number)
                found.append(claim)
                break
    return np.array(place, dtype=np.int64), np.array(found, dtype=np.int64).reshape(-1, 3)
