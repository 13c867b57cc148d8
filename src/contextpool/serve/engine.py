"""One model on one graph: names to ids, batches of questions with different options, explanations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from contextpool.explain import Explanation, explain_answer
from contextpool.graph.graph import Graph
from contextpool.predict import Answer, Names, Predictor, Question, RelationAnswer
from contextpool.predict.answers import Selection, UnknownRelations
from contextpool.predict.asking import EntityQuery, resolve
from contextpool.predict.names import NO_NAMES, Problem, Resolver
from contextpool.predict.ranking import best_answers, candidate_mask, known_answers
from contextpool.predict.relations import relation_answers
from contextpool.serve.completion import Completions


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A predictor under its name."""

    name: str
    predictor: Predictor
    loaded_at: float
    """Seconds since 1970."""

    @property
    def fingerprint(self) -> str:
        """Short, but no two models that anybody compares share it."""
        return self.predictor.fingerprint[:16]


@dataclass(frozen=True, eq=False)
class LoadedGraph:
    """A graph under its name, as it was read."""

    name: str
    graph: Graph
    names: Names | None
    completions: Completions
    """Of its entities."""


@dataclass(frozen=True)
class EntityQuestion:
    """A question for entities, by id, with its options."""

    query: EntityQuery
    selection: Selection


class Engine:
    """A model made ready for a graph; never changes, so a request that holds one is answered by it alone."""

    def __init__(
        self, model: LoadedModel, graph: LoadedGraph, on_unknown: UnknownRelations = "error"
    ) -> None:
        self.model, self.graph, self.names = model, graph, graph.names or NO_NAMES
        self.predictor = model.predictor
        self.prepared, self.left_out = self.predictor.prepared(graph.graph, on_unknown=on_unknown)
        self.builder = self.predictor.builder(self.prepared)
        self.scorer = self.predictor.scorer(self.prepared)

    # names

    def resolver(self) -> Resolver:
        return self.predictor.resolver(self.prepared, self.names)

    def resolve(self, question: Question, resolver: Resolver, where: str = "") -> tuple[int, int, int]:
        """(head, relation, tail) by id; -1 for what is asked, or is left as a problem with the resolver."""
        return resolve(resolver, question, where)

    def entity_query(self, ids: tuple[int, int, int]) -> EntityQuery:
        """A question for a head is one for a tail by the inverse relation."""
        head, relation, tail = ids
        return (head, relation) if tail < 0 else (tail, self.predictor.relations.inverse(relation))

    def known_texts(self, problem: Problem) -> list[str]:
        """What could have been meant: labels, and names of labels."""
        labels = self.prepared.entities if problem.kind == "entity" else self.predictor.relations.directed
        names = [self.names.name(label) for label in labels] if self.names.of_id else []
        return list(dict.fromkeys([*labels, *(name for name in names if name is not None)]))

    # answers

    def answer(self, questions: Sequence[EntityQuestion]) -> list[list[Answer] | Exception]:
        """The answers to each; options that leave no candidate are that question's error and nobody else's."""
        masks = [self._mask(question.selection) for question in questions]
        usable = [place for place, mask in enumerate(masks) if not isinstance(mask, Exception)]
        results: list[list[Answer] | Exception] = [
            mask if isinstance(mask, Exception) else [] for mask in masks
        ]
        if usable:
            for place, answers in self._scored(questions, masks, usable):
                results[place] = answers
        return results

    def _mask(self, selection: Selection) -> Tensor | Exception | None:
        if selection.candidates is None and not selection.having:
            return None
        try:
            return candidate_mask(self.prepared, selection, self.resolver())
        except Exception as error:  # told to whoever asked
            return error

    def _scored(
        self,
        questions: Sequence[EntityQuestion],
        masks: Sequence[Tensor | Exception | None],
        usable: Sequence[int],
    ) -> list[tuple[int, list[Answer]]]:
        """One pass of the model for all; one ranking for those with the same options."""
        queries = [questions[place].query for place in usable]
        entity, relation = torch.tensor(queries, device=self.prepared.device).unbind(1)
        scores, known = self.scorer(entity, relation), known_answers(self.prepared, entity, relation)
        groups: dict[Selection, list[int]] = {}
        for row, place in enumerate(usable):
            groups.setdefault(questions[place].selection, []).append(row)
        found = []
        for selection, rows in groups.items():
            mask = masks[usable[rows[0]]]
            assert not isinstance(mask, Exception)
            answers = best_answers(
                self.prepared,
                scores[rows],
                known[rows],
                mask,
                selection,
                self.predictor.calibration,
                self.names,
            )
            found += [(usable[row], one) for row, one in zip(rows, answers, strict=True)]
        return found

    def relations_between(self, head: int, tail: int, selection: Selection) -> list[RelationAnswer]:
        """The best relations of (head, ?, tail)."""
        return relation_answers(
            self.scorer,
            self.prepared,
            head,
            tail,
            selection.k,
            selection.known,
            self.predictor.calibration,
            self.names,
            batch_size=64,
        )

    def explain(self, ids: tuple[int, int, int], asked: Literal["tail", "head"], paths: int) -> Explanation:
        return explain_answer(
            self.predictor.model,
            self.builder,
            *ids,
            asked=asked,
            calibration=self.predictor.calibration,
            most_paths=paths,
            shown=self.names.shown if self.names.of_id else None,
        )

    def warm_up(self) -> None:
        """Answer one question, so that the first request finds everything counted and compiled."""
        if self.prepared.num_edges:
            query = (int(self.prepared.edge_head[0]), int(self.prepared.edge_relation[0]))
            self.answer([EntityQuestion(query, Selection(k=1))])
