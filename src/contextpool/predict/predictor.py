"""Predictor: a trained model with its context and calibration; labels in and out, on any graph."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Literal, cast

import torch
from torch import Tensor

from contextpool.context.statistics import Statistics
from contextpool.errors import ConfigError, WrongNamesError, unknown_name_message
from contextpool.evaluate.calibration import Calibration
from contextpool.evaluate.queries import Scorer
from contextpool.graph.graph import Graph
from contextpool.graph.mapped import MappedGraph
from contextpool.graph.relations import RelationVocabulary
from contextpool.models.base import LinkPredictor
from contextpool.pool.batch import BatchBuilder, ContextConfig
from contextpool.predict._newest import Newest
from contextpool.predict.answers import (
    Answer,
    AnyAnswer,
    Question,
    RelationAnswer,
    Selection,
    UnknownRelations,
)
from contextpool.predict.asking import Asking, resolve
from contextpool.predict.frontier import Frontier
from contextpool.predict.names import NO_NAMES, Names, Resolver
from contextpool.predict.ranking import candidate_mask
from contextpool.triples.labels import Vocabulary

if TYPE_CHECKING:
    from contextpool.explain import Explanation

REMEMBERED_GRAPHS = 4
"""What was counted about a graph is kept for the newest few; a graph takes memory as long as it is among them."""


class Predictor:
    """Answers questions on graphs it has never seen. Safe to read from several threads."""

    def __init__(
        self,
        model: LinkPredictor,
        relations: RelationVocabulary,
        context: ContextConfig | None,
        statistics: Statistics | None,
        calibration: Calibration | None = None,
        *,
        use_statistics: Literal["sum", "train"] = "sum",
        device: torch.device | str = "cpu",
    ) -> None:
        if use_statistics not in ("sum", "train"):
            raise ConfigError(f"statistics is {use_statistics!r}; it is 'sum' or 'train'.")
        self.model = model.to(device).eval()
        self.relations, self.context, self.statistics = relations, context, statistics
        self.calibration, self.use_statistics = calibration, use_statistics
        self.device = torch.device(device)
        self._prepared: Newest[tuple[Graph, int]] = Newest(REMEMBERED_GRAPHS)
        self._builders: Newest[BatchBuilder] = Newest(REMEMBERED_GRAPHS)
        self._frontiers: Newest[Frontier] = Newest(REMEMBERED_GRAPHS)

    # a graph, made ready

    def prepared(self, graph: Graph, *, on_unknown: UnknownRelations = "error") -> tuple[Graph, int]:
        """The graph numbered by the model's relations, and how many facts of unknown relations were left out."""
        if on_unknown not in ("error", "skip"):
            raise ConfigError(f"on_unknown is {on_unknown!r}; it is 'error' or 'skip'.")
        return self._prepared.get((graph, on_unknown), lambda: self._prepare(graph, on_unknown))

    def _prepare(self, graph: Graph, on_unknown: UnknownRelations) -> tuple[Graph, int]:
        unknown = [label for label in graph.relations if label not in self.relations.index]
        left_out = 0
        if unknown and on_unknown == "error":
            raise self._unknown_relations(unknown)
        if isinstance(graph, MappedGraph):
            return graph, sum(graph.triples_of_relation[label] for label in unknown)
        if unknown:
            smaller = graph.without_relations(unknown)
            left_out = graph.num_triples - smaller.num_triples
            known = [label for label in graph.relations if label in self.relations.index]
            graph = _keeping(smaller, known)
        if graph.relation_vocabulary != self.relations:
            graph = graph.with_relations(self.relations)
        return graph.to(self.device), left_out

    def _unknown_relations(self, labels: list[str]) -> WrongNamesError:
        told = [
            ("relation", label, unknown_name_message("relation", label, self.relations.forward))
            for label in labels[:10]
        ]
        told += [("relation", label, "") for label in labels[10:]]
        hint = (
            "The graph uses them and the model was not trained on them: rename them, or leave their facts out"
        )
        return WrongNamesError(told, f"{hint} (on_unknown='skip', --on-unknown skip).")

    def builder(self, graph: Graph) -> BatchBuilder:
        """What makes batches over a prepared graph; built once a graph."""
        return self._builders.get(
            graph, lambda: self.model.builder(graph, self.context, self.statistics_for(graph))
        )

    def frontier(self, graph: Graph, cap: int | None) -> Frontier:
        """What answers over a prepared graph by walks with a cap on the edges of a hop; made once a graph."""
        return self._frontiers.get((graph, cap), lambda: Frontier(self, graph, cap))

    def statistics_for(self, graph: Graph) -> Statistics | None:
        """What to pool with on a prepared graph; None for a model that reads none."""
        if self.statistics is None:
            return None
        return self.statistics + Statistics.of(graph) if self.use_statistics == "sum" else self.statistics

    def scorer(self, graph: Graph) -> Scorer:
        """(heads [B], relations [B]) -> scores [B, N] over a prepared graph."""
        builder = self.builder(graph)

        def score(query_head: Tensor, query_relation: Tensor) -> Tensor:
            with torch.no_grad():
                return self.model(builder.build(query_head, query_relation))  # type: ignore[no-any-return]

        return score

    @cached_property
    def fingerprint(self) -> str:
        """sha256 over everything that answers depend on: weights, relations, context, counts, calibration."""
        digest = hashlib.sha256()
        plain = {
            "model": [type(self.model).__name__, asdict(self.model.settings)],
            "relations": self.relations.forward,
            "context": None if self.context is None else asdict(self.context),
            "calibration": None if self.calibration is None else self.calibration.to_dict(),
            "statistics": self.use_statistics,
        }
        digest.update(json.dumps(plain, sort_keys=True).encode())
        tensors = dict(self.model.state_dict())
        if self.statistics is not None:
            tensors |= self.statistics.to_tensors()[0]
        for name, tensor in sorted(tensors.items()):
            digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    # one question

    def predict(
        self,
        graph: Graph,
        head: str,
        relation: str,
        k: int = 10,
        *,
        known: bool = False,
        candidates: Iterable[str] | None = None,
        having: str | Iterable[str] | None = None,
        names: Names | None = None,
        on_unknown: UnknownRelations = "error",
        cap: int | None = None,
    ) -> list[Answer]:
        """The k best answers to (head, relation, ?); `r^-1` asks for heads. Known ones only with `known`.

        Answers are taken from `candidates`, and from entities that have all relations of `having`, where
        given. With `names`, every label may be given by its name too. With `cap`, a walk keeps so many edges a hop,
        the most relevant first, and answers are what it reaches: for graphs on which a whole walk is too much.
        """
        selection = Selection.of(k, known, candidates, having)
        asked = [Question(head, relation, None)]
        found = next(self.stream(graph, asked, selection, names=names, on_unknown=on_unknown, cap=cap))
        return cast("list[Answer]", found)

    def predict_heads(
        self,
        graph: Graph,
        relation: str,
        tail: str,
        k: int = 10,
        *,
        known: bool = False,
        candidates: Iterable[str] | None = None,
        having: str | Iterable[str] | None = None,
        names: Names | None = None,
        on_unknown: UnknownRelations = "error",
        cap: int | None = None,
    ) -> list[Answer]:
        """The k best heads of (?, relation, tail); otherwise as `predict`."""
        selection = Selection.of(k, known, candidates, having)
        asked = [Question(None, relation, tail)]
        found = next(self.stream(graph, asked, selection, names=names, on_unknown=on_unknown, cap=cap))
        return cast("list[Answer]", found)

    def predict_relations(
        self,
        graph: Graph,
        head: str,
        tail: str,
        k: int = 10,
        *,
        known: bool = False,
        names: Names | None = None,
        on_unknown: UnknownRelations = "error",
        batch_size: int = 64,
    ) -> list[RelationAnswer]:
        """The k best relations of (head, ?, tail); see `relations.relation_answers` for what their score is."""
        selection = Selection.of(k, known, None, None)
        asked = [Question(head, None, tail)]
        found = next(
            self.stream(graph, asked, selection, names=names, on_unknown=on_unknown, batch_size=batch_size)
        )
        return cast("list[RelationAnswer]", found)

    def explain(
        self,
        graph: Graph,
        head: str,
        relation: str,
        tail: str,
        *,
        asked: Literal["tail", "head"] = "tail",
        paths: int = 5,
        names: Names | None = None,
        on_unknown: UnknownRelations = "error",
    ) -> Explanation:
        """Why `tail` answers (head, relation, ?), or with asked="head" why `head` answers (?, relation, tail)."""
        from contextpool.explain import explain_answer

        prepared, _ = self.prepared(graph, on_unknown=on_unknown)
        resolver = self.resolver(prepared, names)
        query = resolver.entity(head), resolver.relation(relation), resolver.entity(tail)
        resolver.check()
        shown = None if names is None else names.shown
        return explain_answer(
            self.model,
            self.builder(prepared),
            *query,
            asked=asked,
            calibration=self.calibration,
            most_paths=paths,
            shown=shown,
        )

    # many questions

    def predict_batch(
        self,
        graph: Graph,
        queries: Sequence[tuple[str, str] | Question],
        k: int = 10,
        *,
        known: bool = False,
        candidates: Iterable[str] | None = None,
        having: str | Iterable[str] | None = None,
        names: Names | None = None,
        batch_size: int = 64,
        on_unknown: UnknownRelations = "error",
        cap: int | None = None,
    ) -> list[list[Answer]]:
        """The answers to many questions over one graph: (head, relation) pairs, or `Question`s of any kind.

        Nothing is answered unless every name is known; whatever is not is told at once. The answers to a
        question that asks for a relation are `RelationAnswer`s.
        """
        questions = [query if isinstance(query, Question) else Question(*query, None) for query in queries]
        self.check_questions(graph, questions, names, on_unknown)
        selection = Selection.of(k, known, candidates, having)
        found = self.stream(
            graph, questions, selection, names=names, on_unknown=on_unknown, batch_size=batch_size, cap=cap
        )
        return cast("list[list[Answer]]", list(found))

    def stream(
        self,
        graph: Graph,
        questions: Iterable[Question],
        selection: Selection,
        *,
        names: Names | None = None,
        batch_size: int = 64,
        on_unknown: UnknownRelations = "error",
        cap: int | None = None,
    ) -> Iterator[list[AnyAnswer]]:
        """The answers to each question as they come, `batch_size` at a time; holds no more than that.

        With `cap`, and on a mapped graph, each question is walked by itself.
        """
        if batch_size < 1:
            raise ConfigError(f"batch_size is {batch_size}; it has to be at least 1.")
        prepared, _ = self.prepared(graph, on_unknown=on_unknown)
        if cap is not None or isinstance(prepared, MappedGraph):
            yield from self._walked(self.frontier(prepared, cap), questions, selection, names or NO_NAMES)
            return
        allowed = candidate_mask(prepared, selection, self.resolver(prepared, names))
        asking = Asking(self, prepared, selection, allowed, names or NO_NAMES, batch_size)
        left = iter(questions)
        while chunk := list(islice(left, batch_size)):
            yield from asking.answer(chunk)

    def _walked(
        self, frontier: Frontier, questions: Iterable[Question], selection: Selection, names: Names
    ) -> Iterator[list[AnyAnswer]]:
        """One question after the other, each over its own neighborhood."""
        for question in questions:
            resolver = self.resolver(frontier.graph, names)
            head, relation, tail = resolve(resolver, question)
            resolver.check()
            if relation < 0:
                raise ConfigError(
                    f"question {question} asks for a relation, which compares walks from both ends; with a cap, or on "
                    "a mapped graph, ask for a head or a tail."
                )
            query = (head, relation) if tail < 0 else (tail, self.relations.inverse(relation))
            yield list(frontier.answers(*query, selection, names, resolver))

    def check_questions(
        self, graph: Graph, questions: Iterable[Question], names: Names | None, on_unknown: UnknownRelations
    ) -> None:
        """Raise one error that names everything unknown in the questions; score nothing."""
        prepared, _ = self.prepared(graph, on_unknown=on_unknown)
        resolver = self.resolver(prepared, names)
        for number, question in enumerate(questions, start=1):
            resolve(resolver, question, f"question {number}")
        resolver.check()

    def resolver(self, prepared: Graph, names: Names | None) -> Resolver:
        """What turns labels and names into ids of a prepared graph."""
        return Resolver(prepared.entity_vocabulary, self.relations, names or NO_NAMES)


def _keeping(graph: Graph, relations: list[str]) -> Graph:
    return Graph.from_triples(
        graph.as_triples().with_vocabularies(
            graph.entity_vocabulary, Vocabulary(tuple(relations), "relation")
        )
    )
