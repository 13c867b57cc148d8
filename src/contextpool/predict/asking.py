"""One way to ask, for Python, files and HTTP: names become ids, ids become scores, scores become ranked answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from torch import Tensor

from contextpool.context.more import MoreAnswers
from contextpool.errors import ConfigError, DataError, NonFiniteError, setting
from contextpool.evaluate.calibration import Calibration, shares
from contextpool.evaluate.ranks import Scorer
from contextpool.explain import Explanation, explain_answer
from contextpool.graph.graph import Graph
from contextpool.graph.relations import inverse
from contextpool.pool.batch import BatchBuilder
from contextpool.predict.answers import (
    MOST_KNOWN,
    Answer,
    Answers,
    AnyAnswer,
    Known,
    Question,
    RelationAnswer,
    Selection,
)
from contextpool.predict.names import NO_NAMES, Names, Resolver

if TYPE_CHECKING:
    from contextpool.predict.frontier import Frontier
    from contextpool.predict.predictor import Predictor

Ids = tuple[int, int, int]
"""(head, relation in [0, 2R), tail) of a question; -1 for what is asked, and for a name that cannot be resolved."""


@dataclass(frozen=True, eq=False)
class Choice:
    """A selection whose names are resolved."""

    selection: Selection
    candidates: tuple[int, ...] | None
    """Entities that may be answers; None for all."""
    having: tuple[int, ...]
    """Relations that an answer has to have."""
    allowed: Tensor | None
    """[N] bool: both of them on the whole graph; None for all, and for a capped walk, which decides where it ends."""


class Scored(NamedTuple):
    """B queries with the scores of their n candidates."""

    graph: Graph
    """Whose n entities the candidates are."""
    scores: Tensor  # [B, n]
    known: Tensor  # [B, n] bool: what the graph holds already as answers
    more: Tensor  # [B] float64 the chance that there is an answer which the graph lacks


class Asking:
    """A model on a prepared graph, and what people call its entities. Threads may share one."""

    def __init__(
        self,
        predictor: Predictor,
        graph: Graph,
        names: Names = NO_NAMES,
        frontier: Frontier | None = None,
        batch_size: int = 64,
    ) -> None:
        """With a frontier, each question is walked by itself and its candidates are what the walk reaches."""
        if batch_size < 1:
            raise ConfigError(f"{setting('batch_size')} is {batch_size}; it has to be at least 1.")
        self.predictor, self.graph, self.names = predictor, graph, names
        self.frontier, self.batch_size = frontier, batch_size

    @cached_property
    def builder(self) -> BatchBuilder:
        """What makes batches over the whole graph; kept as long as this is."""
        if self.frontier is not None:
            raise ConfigError(
                "this looks at the whole graph, and questions on it are walked with a cap: leave out "
                f"{setting('cap')}, and give a file of the graph, or of a part of it, instead of a mapped one."
            )
        return self.predictor.builder(self.graph)

    @cached_property
    def scorer(self) -> Scorer:
        """(heads [B], relations [B]) -> scores [B, N]."""
        return self.predictor.scorer(self.graph)

    @property
    def calibration(self) -> Calibration | None:
        """What makes probabilities of scores on this graph."""
        cap = None if self.frontier is None else self.frontier.cap
        return self.predictor.calibration_for(self.graph, cap=cap)

    # resolve

    def resolver(self) -> Resolver:
        """What turns labels and names into ids."""
        return Resolver(self.graph.entity_vocabulary, self.predictor.relations_for(self.graph), self.names)

    def resolve(self, questions: Iterable[Question], where: str = "") -> list[Ids]:
        """The ids of all questions, or one error that names everything unknown; `where` is such as "question"."""
        resolver = self.resolver()
        ids = [
            resolver.question(question, f"{where} {number}" if where else "")
            for number, question in enumerate(questions, start=1)
        ]
        resolver.check()
        return ids

    def choose(self, selection: Selection) -> Choice:
        """The selection by id; one that leaves no candidate is an error."""
        resolver = self.resolver()
        candidates, having = resolver.selection(selection)
        resolver.check()
        if candidates is not None and not candidates:
            raise DataError("candidates: the list is empty, so nothing can be answered. Name some entities.")
        allowed = None if self.frontier is not None else candidate_mask(self.graph, candidates, having)
        if allowed is not None and not bool(allowed.any()):
            raise DataError(
                f"having {', '.join(map(repr, selection.having))}: no candidate is left. "
                "Ask for other relations, or 'r^-1' for those that r points to."
            )
        return Choice(selection, candidates, having, allowed)

    # score and rank

    def stream(self, questions: Iterable[Question], selection: Selection) -> Iterator[Answers[AnyAnswer]]:
        """The answers to each question as they come; holds no more than `batch_size` of them."""
        choice, left = self.choose(selection), iter(questions)
        while chunk := list(islice(left, self.batch_size)):
            yield from self.answer([(ids, choice) for ids in self.resolve(chunk)])

    def answer(self, asked: Sequence[tuple[Ids, Choice]]) -> list[Answers[AnyAnswer]]:
        """The answers to each, in order; questions for entities are scored together."""
        queries = [(self._query(ids), choice) for ids, choice in asked if ids[1] >= 0]
        found = iter(self._walked(queries) if self.frontier is not None else self._together(queries))
        return [
            self._answers(ids, *(next(found) if ids[1] >= 0 else (self._relations(ids, choice), None)))
            for ids, choice in asked
        ]

    def _answers(self, ids: Ids, found: Iterable[AnyAnswer], considered: int | None) -> Answers[AnyAnswer]:
        """With what the graph already holds: entities by the question's row, relations between the two."""
        head, relation, tail = ids
        entities, directed = self.graph.entities, self.predictor.relations_for(self.graph).directed
        question = Question(
            None if head < 0 else entities[head],
            None if relation < 0 else directed[relation],
            None if tail < 0 else entities[tail],
        )
        calibration = self.calibration
        rests_on = None if calibration is None else calibration.facts
        if relation >= 0:
            places = self._held(*self._query(ids))
            first = tuple(entities[int(place)] for place in places[:MOST_KNOWN])
            of = None if considered is None else (considered, self.graph.num_entities)
            return Answers(found, question, Known(len(places), first), self.names.shown, rests_on, of)
        between = self.graph.edge_relation[self._row(head)][self.graph.edge_tail[self._row(head)] == tail]
        kinds = sorted(
            self.graph.relations[one] for one in between.tolist() if one < self.graph.num_relations
        )
        known = Known(len(kinds), tuple(kinds[:MOST_KNOWN]))
        return Answers(found, question, known, self.names.shown, rests_on)

    def _row(self, entity: int) -> slice:
        return slice(int(self.graph.row_start[entity]), int(self.graph.row_start[entity + 1]))

    def _held(self, entity: int, relation: int) -> Tensor:
        """The ids of what the graph holds as answers; the relation by the model's number."""
        if self.frontier is not None:
            return self.frontier.held(entity, relation)
        row = self._row(entity)
        return self.graph.edge_tail[row][self.graph.edge_relation[row] == relation]

    def _query(self, ids: Ids) -> tuple[int, int]:
        """(entity, directed relation): (h, r, ?) as it is, (?, r, t) as (t, r^-1, ?)."""
        head, relation, tail = ids
        return (
            (head, relation)
            if tail < 0
            else (tail, self.predictor.relations_for(self.graph).inverse(relation))
        )

    def _together(self, queries: Sequence[tuple[tuple[int, int], Choice]]) -> list[tuple[list[Answer], int]]:
        """One pass of the model for all, and one ranking for those with the same choice; with how many were ranked."""
        if not queries:
            return []
        entity, relation = torch.tensor([query for query, _ in queries], device=self.graph.device).unbind(1)
        scores = self.scorer(entity, relation)
        known, more = known_answers(self.graph, entity, relation), self.more(queries)
        rows_of: dict[Choice, list[int]] = {}
        for row, (_, choice) in enumerate(queries):
            rows_of.setdefault(choice, []).append(row)
        found: dict[int, list[Answer]] = {}
        for choice, rows in rows_of.items():
            ranked = self._ranked(
                Scored(self.graph, scores[rows], known[rows], more[rows]), choice.selection, choice.allowed
            )
            found |= dict(zip(rows, ranked, strict=True))
        return [(found[row], self.graph.num_entities) for row in range(len(queries))]

    def more(self, queries: Sequence[tuple[tuple[int, int], Choice]]) -> Tensor:
        """[B] float64 the chance that (entity, relation, ?) has an answer which the graph lacks."""
        counted = self.predictor.more_answers(self.graph)
        return torch.tensor(
            [counted.chance(*query) for query, _ in queries], dtype=torch.float64, device=self.graph.device
        )

    def _walked(
        self, queries: Sequence[tuple[tuple[int, int], Choice]]
    ) -> Iterator[tuple[list[Answer], int]]:
        """One after the other, each over its own neighborhood; with how many entities that has."""
        assert self.frontier is not None
        for (entity, relation), choice in queries:
            scored, allowed = self.frontier.scored(entity, relation, choice)
            yield self._ranked(scored, choice.selection, allowed)[0], scored.graph.num_entities

    def _ranked(self, scored: Scored, selection: Selection, allowed: Tensor | None) -> list[list[Answer]]:
        return best_answers(scored, allowed, selection, self.calibration, self.names)

    def _relations(self, ids: Ids, choice: Choice) -> list[RelationAnswer]:
        """The k best forward relations from head to tail.

        The score of r is log P(tail | head, r) + log P(head | r, tail), each a softmax over all new answers at
        the temperature of the calibration: scores of different questions have no common scale, shares have.
        One that fits from a single end is no good answer, so both count. Under equal priors their product,
        divided by its sum over r, is the chance of r given that some new relation holds. 2R questions.
        """
        (head, _, tail), graph = ids, self.graph
        if self.frontier is not None:
            question = Question(graph.entities[head], None, graph.entities[tail])
            raise ConfigError(
                f"question {question} asks for a relation, which compares walks from both ends; with a cap, or on "
                "a mapped graph, ask for a head or a tail."
            )
        calibration, counted = self.calibration, self.predictor.more_answers(graph)
        relation = torch.arange(graph.num_relations, device=graph.device)
        forward = self._log_share(head, relation, tail)  # [R]
        score = forward + self._log_share(tail, inverse(relation, graph.num_relations), head)
        known = known_answers(graph, torch.full_like(relation, head), relation)[:, tail]
        new = score.masked_fill(known, -torch.inf)
        share = torch.softmax(new, dim=0)
        chance = None
        if calibration is not None:
            more = torch.tensor([counted.chance(head, one) for one in range(graph.num_relations)])
            chance = (calibration.of_share(forward.exp()).cpu() * more).masked_fill(known.cpu(), 1.0)
        return [
            RelationAnswer(
                label := graph.relations[place],
                float(score[place]),
                None if chance is None else float(chance[place]),
                bool(known[place]),
                self.names.name(label),
                None if known[place] else float(share[place]),
            )
            for place in best_places(score if choice.selection.known else new, choice.selection.k)
        ]

    def _log_share(self, entity: int, relation: Tensor, answer: int) -> Tensor:
        """[R] float64 log of the answer's share among the new answers, and itself, of (entity, relation [R], ?)."""
        calibration = self.calibration
        temperature = 1.0 if calibration is None else calibration.temperature
        parts = []
        for asked in relation.split(self.batch_size):
            entities = torch.full_like(asked, entity)
            scores = self.scorer(entities, asked)
            refuse_non_finite(scores)
            others = known_answers(self.graph, entities, asked)
            others[:, answer] = False
            share = torch.log_softmax(scores.double().masked_fill(others, -torch.inf) / temperature, dim=1)
            parts.append(share[:, answer])
        return torch.cat(parts)

    def explain(self, ids: Ids, asked: Literal["tail", "head"] = "tail", paths: int = 5) -> Explanation:
        """Why the tail, or the head, of a fact answers the question with it left open."""
        model, shown = self.predictor.model, self.names.shown
        more: MoreAnswers | float
        if self.frontier is None:
            builder, part, more = self.builder, None, self.predictor.more_answers(self.graph)
        else:
            near, ids, part, more = self.frontier.explained(ids, asked)
            builder = near.builder
        return explain_answer(
            model, builder, *ids,
            asked=asked, calibration=self.calibration, more=more, most_paths=paths, shown=shown, part=part,
        )  # fmt: skip


def known_answers(graph: Graph, entity: Tensor, relation: Tensor) -> Tensor:
    """[B, N] bool: what the graph holds already as answers to (entity [B], relation [B] in [0, 2R))."""
    known = torch.zeros(len(entity), graph.num_entities, dtype=torch.bool, device=graph.device)
    for row, (one, asked) in enumerate(zip(entity.tolist(), relation.tolist(), strict=True)):
        edges = slice(int(graph.row_start[one]), int(graph.row_start[one + 1]))
        known[row, graph.edge_tail[edges][graph.edge_relation[edges] == asked].long()] = True
    return known


def candidate_mask(graph: Graph, candidates: Sequence[int] | None, having: Iterable[int]) -> Tensor | None:
    """[N] bool: those of the candidates that have all the relations; None where neither restricts anything."""
    chosen = [] if candidates is None else [torch.tensor(candidates, device=graph.device)]
    chosen += [graph.edge_head[graph.edge_relation == relation].long() for relation in having]
    masks = [torch.zeros(graph.num_entities, dtype=torch.bool, device=graph.device) for _ in chosen]
    for mask, ids in zip(masks, chosen, strict=True):
        mask[ids] = True
    return torch.stack(masks).all(dim=0) if masks else None


def refuse_non_finite(scores: Tensor) -> None:
    """Nothing is answered from a score that is not a number."""
    if not bool(torch.isfinite(scores).all()):
        raise NonFiniteError("the model gave a score that is not finite; train it again, or report this.")


def best_places(values: Tensor, k: int) -> list[int]:
    """The places of the k largest values [N] above -inf, best first; ties end at the smaller place.

    Places are ids, which follow sorted labels. O(N) but for the last sort, of about k values.
    """
    size = min(k, len(values))
    lowest = values.topk(size).values[-1] if size else values.new_tensor(torch.inf)
    place = torch.nonzero((values >= lowest) & (values > -torch.inf)).squeeze(1)
    order = torch.sort(values[place], descending=True, stable=True).indices[:k]
    chosen: list[int] = place[order].tolist()
    return chosen


def best_answers(
    scored: Scored,
    allowed: Tensor | None,
    selection: Selection,
    calibration: Calibration | None,
    names: Names = NO_NAMES,
) -> list[list[Answer]]:
    """The answers of each row of scores [B, n], best first; allowed [n] restricts them.

    A share is that among all entities the graph does not already know as answers, whichever are allowed: showing
    fewer candidates makes none of them truer. A probability is what such a share came to in the facts that the
    calibration was fitted on, each of which was an answer, times the chance that there is one more answer.
    """
    graph, scores, known, more = scored
    refuse_non_finite(scores)
    share = shares(scores, known, 1.0 if calibration is None else calibration.temperature)
    chances = None
    if calibration is not None:
        chances = (calibration.of_share(share) * more[:, None]).masked_fill(known, 1.0)
    closed = torch.zeros_like(known) if selection.known else known
    if allowed is not None:
        closed = closed | ~allowed
    found = []
    for row, values in enumerate(scores.masked_fill(closed, -torch.inf)):
        places = best_places(values, selection.k)
        score, is_known = scores[row, places].tolist(), known[row, places].tolist()
        chance = [None] * len(places) if chances is None else chances[row, places].tolist()
        part = [
            None if marked else float(share[row, place])
            for place, marked in zip(places, is_known, strict=True)
        ]
        labels = [graph.entities[place] for place in places]
        columns = zip(labels, score, chance, is_known, map(names.name, labels), part, strict=True)
        found.append([Answer(*values) for values in columns])
    return found
