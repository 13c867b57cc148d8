"""From questions to ids, and from a batch of them to answers over one graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from contextpool.graph.graph import Graph
from contextpool.predict.answers import Answer, AnyAnswer, Question, RelationAnswer, Selection
from contextpool.predict.names import Names, Resolver
from contextpool.predict.ranking import best_answers, known_answers
from contextpool.predict.relations import relation_answers

if TYPE_CHECKING:
    from contextpool.predict.predictor import Predictor

EntityQuery = tuple[int, int]
"""(entity, directed relation) by id: (h, r, ?) as it is, (?, r, t) as (t, r^-1, ?)."""


def resolve(resolver: Resolver, question: Question, where: str = "") -> tuple[int, int, int]:
    """(head, relation, tail) by id, -1 for what is asked or cannot be resolved."""
    head = -1 if question.head is None else resolver.entity(question.head, where)
    relation = -1 if question.relation is None else resolver.relation(question.relation, where)
    tail = -1 if question.tail is None else resolver.entity(question.tail, where)
    return head, relation, tail


class Asking:
    """Answers batches of questions over one prepared graph."""

    def __init__(
        self,
        predictor: Predictor,
        graph: Graph,
        selection: Selection,
        allowed: Tensor | None,
        names: Names,
        batch_size: int,
    ) -> None:
        self.graph, self.selection, self.allowed = graph, selection, allowed
        self.names, self.batch_size = names, batch_size
        self.relations, self.calibration = predictor.relations, predictor.calibration
        self.scorer = predictor.scorer(graph)
        self.new_resolver = lambda: predictor.resolver(graph, names)

    def answer(self, questions: Sequence[Question]) -> Iterator[list[AnyAnswer]]:
        """In the order of the questions; those about entities are scored together."""
        resolver = self.new_resolver()
        ids = [resolve(resolver, question) for question in questions]
        resolver.check()
        of_entities = iter(self._entity_answers([self._query(*one) for one in ids if one[1] >= 0]))
        for head, relation, tail in ids:
            found: Sequence[AnyAnswer] = (
                next(of_entities) if relation >= 0 else self._relation_answers(head, tail)
            )
            yield list(found)

    def _query(self, head: int, relation: int, tail: int) -> EntityQuery:
        return (head, relation) if tail < 0 else (tail, self.relations.inverse(relation))

    def _entity_answers(self, queries: list[EntityQuery]) -> list[list[Answer]]:
        if not queries:
            return []
        entity, relation = torch.tensor(queries, device=self.graph.device).unbind(1)
        scores = self.scorer(entity, relation)
        known = known_answers(self.graph, entity, relation)
        return best_answers(
            self.graph, scores, known, self.allowed, self.selection, self.calibration, self.names
        )

    def _relation_answers(self, head: int, tail: int) -> list[RelationAnswer]:
        return relation_answers(
            self.scorer,
            self.graph,
            head,
            tail,
            self.selection.k,
            self.selection.known,
            self.calibration,
            self.names,
            self.batch_size,
        )
