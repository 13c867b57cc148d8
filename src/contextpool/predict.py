"""Predictor: a trained model with its context and calibration; labels in and out, on any graph."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Generic, Literal, TypeVar

import torch
from torch import Tensor

from contextpool.context.statistics import Statistics
from contextpool.errors import ConfigError, DataError
from contextpool.evaluate.calibration import Calibration
from contextpool.evaluate.queries import Scorer
from contextpool.graph.graph import Graph
from contextpool.graph.relations import RelationVocabulary
from contextpool.models.base import LinkPredictor
from contextpool.pool.batch import BatchBuilder, ContextConfig

UnknownRelations = Literal["error", "skip"]
Made = TypeVar("Made")
REMEMBERED_GRAPHS = 4
"""What was counted about a graph is kept for the newest few; a graph takes memory as long as it is among them."""


@dataclass(frozen=True)
class Answer:
    """One candidate answer to a question."""

    entity: str
    score: float
    probability: float | None
    """Calibrated chance of being true; None where the run has no calibration."""
    known: bool
    """Whether the graph already holds it."""


class Predictor:
    """Answers (head, relation, ?) on graphs it has never seen. Safe to read from several threads."""

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
        self._prepared: _Newest[tuple[Graph, int]] = _Newest(REMEMBERED_GRAPHS)
        self._builders: _Newest[BatchBuilder] = _Newest(REMEMBERED_GRAPHS)

    def prepared(self, graph: Graph, *, on_unknown: UnknownRelations = "error") -> tuple[Graph, int]:
        """The graph numbered by the model's relations, and how many facts of unknown relations were left out."""
        return self._prepared.get((graph, on_unknown), lambda: self._prepare(graph, on_unknown))

    def _prepare(self, graph: Graph, on_unknown: UnknownRelations) -> tuple[Graph, int]:
        unknown = [label for label in graph.relations if label not in self.relations.index]
        left_out = 0
        if unknown and on_unknown == "skip":
            smaller = graph.without_relations(unknown)
            left_out = graph.num_triples - smaller.num_triples
            known = [label for label in graph.relations if label in self.relations.index]
            graph = _keeping(smaller, known)
        if graph.relation_vocabulary != self.relations:
            graph = graph.with_relations(self.relations)
        return graph.to(self.device), left_out

    def builder(self, graph: Graph) -> BatchBuilder:
        """What makes batches over a prepared graph; built once a graph."""
        return self._builders.get(
            graph,
            lambda: BatchBuilder(graph, self.model.num_layers, self.context, self._statistics_for(graph)),
        )

    def _statistics_for(self, graph: Graph) -> Statistics | None:
        if self.context is None or self.statistics is None:
            return None
        return self.statistics + Statistics.of(graph) if self.use_statistics == "sum" else self.statistics

    def scorer(self, graph: Graph) -> Scorer:
        """(heads [B], relations [B]) -> scores [B, N] over a prepared graph."""
        builder = self.builder(graph)

        def score(query_head: Tensor, query_relation: Tensor) -> Tensor:
            with torch.no_grad():
                return self.model(builder.build(query_head, query_relation))  # type: ignore[no-any-return]

        return score

    def predict(
        self,
        graph: Graph,
        head: str,
        relation: str,
        k: int = 10,
        *,
        known: bool = False,
        on_unknown: UnknownRelations = "error",
    ) -> list[Answer]:
        """The k best answers to (head, relation, ?); `r^-1` asks for heads. Known ones only with `known`."""
        return self.predict_batch(graph, [(head, relation)], k, known=known, on_unknown=on_unknown)[0]

    def predict_batch(
        self,
        graph: Graph,
        queries: Sequence[tuple[str, str]],
        k: int = 10,
        *,
        known: bool = False,
        batch_size: int = 64,
        on_unknown: UnknownRelations = "error",
    ) -> list[list[Answer]]:
        """`predict` for many (head, relation) questions over one graph."""
        if k < 1:
            raise ConfigError(f"k is {k}; ask for at least one answer.")
        prepared, _ = self.prepared(graph, on_unknown=on_unknown)
        heads = torch.tensor([prepared.entity_id(head) for head, _ in queries], device=self.device)
        asked = torch.tensor([self.relations.id_of(relation) for _, relation in queries], device=self.device)
        score = self.scorer(prepared)
        answers: list[list[Answer]] = []
        for start in range(0, len(queries), batch_size):
            part = slice(start, start + batch_size)
            scores = score(heads[part], asked[part])
            for row, one, relation_id in zip(scores, heads[part].tolist(), asked[part].tolist(), strict=True):
                answers.append(self._best(prepared, row, one, relation_id, k, known))
        return answers

    def predict_heads(
        self, graph: Graph, relation: str, tail: str, k: int = 10, **options: bool
    ) -> list[Answer]:
        """The k best heads of (?, relation, tail)."""
        from contextpool.graph.relations import inverse_label

        return self.predict(graph, tail, inverse_label(relation), k, **options)  # type: ignore[arg-type]

    def _best(
        self, graph: Graph, scores: Tensor, head: int, relation: int, k: int, known: bool
    ) -> list[Answer]:
        if not torch.isfinite(scores).all():
            raise DataError("the model gave a score that is not finite; train it again, or report this.")
        row = slice(int(graph.row_start[head]), int(graph.row_start[head + 1]))
        facts = graph.edge_tail[row][graph.edge_relation[row] == relation].long()
        is_known = torch.zeros(graph.num_entities, dtype=torch.bool, device=scores.device)
        is_known[facts] = True
        chances = None if self.calibration is None else self.calibration.probability(scores, is_known)
        allowed = scores if known else scores.masked_fill(is_known, -torch.inf)
        order = torch.sort(allowed, descending=True, stable=True).indices[:k]  # ties end at the sorted label
        return [
            Answer(
                graph.entities[entity],
                float(scores[entity]),
                None if chances is None else float(chances[entity]),
                bool(is_known[entity]),
            )
            for entity in order.tolist()
            if known or not bool(is_known[entity])
        ]


class _Newest(Generic[Made]):
    """The newest few of what was made, each made once, whichever thread asks first."""

    def __init__(self, size: int) -> None:
        self._size, self._lock = size, Lock()
        self._made: OrderedDict[Hashable, Made] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], Made]) -> Made:
        with self._lock:
            made = self._made.pop(key) if key in self._made else make()
            self._made[key] = made
            while len(self._made) > self._size:
                self._made.popitem(last=False)
            return made


def _keeping(graph: Graph, relations: list[str]) -> Graph:
    from contextpool.triples.labels import Vocabulary

    return Graph.from_triples(
        graph.as_triples().with_vocabularies(
            graph.entity_vocabulary, Vocabulary(tuple(relations), "relation")
        )
    )
