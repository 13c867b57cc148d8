"""Predictor: a trained model with its context and calibration; labels in and out, on any graph."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import asdict
from functools import cached_property
from threading import Lock
from typing import Generic, Literal, TypeVar, cast

import torch
from torch import Tensor

from contextpool.context.config import ContextConfig
from contextpool.context.counts import Statistics
from contextpool.errors import ConfigError, WrongNamesError, unknown_name_message
from contextpool.evaluate.calibration import Calibration
from contextpool.evaluate.ranks import Scorer
from contextpool.explain import Explanation
from contextpool.graph.graph import Graph
from contextpool.graph.mapped import MappedGraph
from contextpool.graph.relations import RelationVocabulary
from contextpool.models.base import LinkPredictor
from contextpool.pool.batch import BatchBuilder
from contextpool.predict.answers import Answer, Question, RelationAnswer, Selection, UnknownRelations
from contextpool.predict.asking import Asking
from contextpool.predict.frontier import Frontier
from contextpool.predict.names import NO_NAMES, Names
from contextpool.triples.labels import Vocabulary

Made = TypeVar("Made")
REMEMBERED_GRAPHS = 4
"""How many graphs are kept with what was counted about them; the oldest one is dropped first."""


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
        self._prepared: _Newest[tuple[Graph, int]] = _Newest()
        self._builders: _Newest[BatchBuilder] = _Newest()
        self._frontiers: _Newest[Frontier] = _Newest()

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
        """Capped walks over a prepared graph; made once for each graph and cap."""
        return self._frontiers.get((graph, cap), lambda: Frontier(self, graph, cap))

    def statistics_for(self, graph: Graph) -> Statistics | None:
        """The counts to pool with on a prepared graph; None for a model that reads none."""
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

    # questions

    def asking(
        self,
        graph: Graph,
        names: Names | None = None,
        *,
        on_unknown: UnknownRelations = "error",
        cap: int | None = None,
        batch_size: int = 64,
    ) -> Asking:
        """What resolves, scores and ranks questions over a graph: by capped walks with `cap`, and on a mapped graph."""
        prepared, _ = self.prepared(graph, on_unknown=on_unknown)
        walked = cap is not None or isinstance(prepared, MappedGraph)
        frontier = self.frontier(prepared, cap) if walked else None
        return Asking(self, prepared, names or NO_NAMES, frontier, batch_size)

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
        asking = self.asking(graph, names, on_unknown=on_unknown, cap=cap)
        selection = Selection.of(k, known, candidates, having)
        return cast("list[Answer]", next(asking.stream([Question(head, relation, None)], selection)))

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
        asking = self.asking(graph, names, on_unknown=on_unknown, cap=cap)
        selection = Selection.of(k, known, candidates, having)
        return cast("list[Answer]", next(asking.stream([Question(None, relation, tail)], selection)))

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
        """The k best relations of (head, ?, tail); `RelationAnswer` says what their score is."""
        asking = self.asking(graph, names, on_unknown=on_unknown, batch_size=batch_size)
        found = next(asking.stream([Question(head, None, tail)], Selection(k, known)))
        return cast("list[RelationAnswer]", found)

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
        asking = self.asking(graph, names, on_unknown=on_unknown, cap=cap, batch_size=batch_size)
        asking.resolve(questions, "question")
        found = asking.stream(questions, Selection.of(k, known, candidates, having))
        return cast("list[list[Answer]]", list(found))

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
        prepared, _ = self.prepared(graph, on_unknown=on_unknown)
        asking = Asking(self, prepared, names or NO_NAMES)
        resolver = asking.resolver()
        ids = resolver.entity(head), resolver.relation(relation), resolver.entity(tail)
        resolver.check()
        return asking.explain(ids, asked, paths)


def _keeping(graph: Graph, relations: list[str]) -> Graph:
    return Graph.from_triples(
        graph.as_triples().with_vocabularies(
            graph.entity_vocabulary, Vocabulary(tuple(relations), "relation")
        )
    )


class _Place(Generic[Made]):
    """One entry of the cache. Threads that ask for it while it is being made wait for its lock."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.made: list[Made] = []


class _Newest(Generic[Made]):
    """A cache that several threads may read. What failed to be made is tried again by the next who asks."""

    def __init__(self, size: int = REMEMBERED_GRAPHS) -> None:
        self._size, self._lock = size, Lock()
        self._places: OrderedDict[Hashable, _Place[Made]] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """The value for a key, made if it is not there yet."""
        with self._lock:
            place = self._places.pop(key, None) or _Place()
            self._places[key] = place
            while len(self._places) > self._size:
                self._places.popitem(last=False)
        with place.lock:
            if not place.made:
                place.made.append(make())
            return place.made[0]
