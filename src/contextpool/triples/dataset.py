"""Dataset: what is trained on, selected on and evaluated on; transductive and inductive alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from contextpool.errors import ConfigError, DataError
from contextpool.triples.filters import KnownAnswers
from contextpool.triples.labels import Vocabulary
from contextpool.triples.store import Triples, distinct_rows

if TYPE_CHECKING:
    from contextpool.triples.audit_report import AuditReport

Protocol = Literal["P1", "P2"]
QueryChoice = Literal["all", "train", "valid"]


@dataclass(frozen=True, eq=False)
class Dataset:
    """One benchmark setting. The training side and the inference side each have one entity vocabulary.

    Inductive: messages over train.txt; training queries = train.txt (each hidden from itself) + valid.txt;
    selection on the training graph's test.txt; evaluation on the inference graph's own valid + test (P1) or
    test alone (P2). Transductive: messages over facts + train; training queries the same (each hidden);
    selection on valid.txt, never trained on; evaluation on test.txt over the same graph, so that both sides
    have the same vocabularies. The relations are always those of the training graph and its queries.

    `from_one_graph` and `from_two_graphs` make one from parts that were numbered apart.
    """

    name: str
    inductive: bool
    training_graph: Triples
    training_queries: Triples
    validation_queries: Triples
    inference_graph: Triples
    inference_valid: Triples | None
    """The inference graph's own valid.txt; None where the setting is transductive."""
    inference_test: Triples
    facts: Triples | None = None
    """Transductive with facts.txt: the part of the training graph that queries="train" walks on."""
    train: Triples | None = None
    """Transductive with facts.txt: train.txt, the other part, which queries="train" asks."""
    training_valid: Triples | None = None
    """Inductive: valid.txt of the training side. Trained on, never part of the graph."""
    queries: QueryChoice = "all"
    """Which training queries these are: see `with_queries`."""
    skipped: int = 0
    """Triples left out because of on_unknown="skip"."""
    kept_share: float = 1.0
    """Where one graph was split in two: the share of its triples that one of the halves holds."""

    def __post_init__(self) -> None:
        for side in (self._training_side, self._inference_side):
            for part in side:
                if part.entities is not side[0].entities or part.relations is not side[0].relations:
                    raise DataError(f"{self.name}: the parts of one side have to share their vocabularies.")

    @classmethod
    def from_one_graph(
        cls,
        name: str,
        *,
        train: Triples,
        valid: Triples,
        test: Triples,
        facts: Triples | None = None,
        skipped: int = 0,
    ) -> Dataset:
        """Transductive. Entities of valid and test need no edge in the training graph; relations do."""
        learned = [train] if facts is None else [facts, train]
        parts = _numbered_alike([*learned, valid, test], _used_relations(learned), name)
        *graph_parts, valid, test = parts
        graph = joined(graph_parts)
        return cls(
            name,
            inductive=False,
            training_graph=graph,
            training_queries=graph,
            validation_queries=valid,
            inference_graph=graph,
            inference_valid=None,
            inference_test=test,
            facts=None if facts is None else graph_parts[0],
            train=None if facts is None else graph_parts[1],
            skipped=skipped,
        )

    @classmethod
    def from_two_graphs(
        cls,
        name: str,
        *,
        train: Triples,
        validation: Triples,
        inference_graph: Triples,
        inference_valid: Triples,
        inference_test: Triples,
        training_valid: Triples | None = None,
        skipped: int = 0,
        kept_share: float = 1.0,
    ) -> Dataset:
        """Inductive. `training_valid`: training queries beside those that the training graph asks itself."""
        learned = [train] if training_valid is None else [train, training_valid]
        relations = _used_relations(learned)
        *queries, validation = _numbered_alike([*learned, validation], relations, name)
        inference = _numbered_alike([inference_graph, inference_valid, inference_test], relations, name)
        return cls(
            name,
            inductive=True,
            training_graph=queries[0],
            training_queries=joined(queries),
            validation_queries=validation,
            inference_graph=inference[0],
            inference_valid=inference[1],
            inference_test=inference[2],
            training_valid=None if training_valid is None else queries[1],
            skipped=skipped,
            kept_share=kept_share,
        )

    @property
    def _training_side(self) -> tuple[Triples, ...]:
        optional = (self.facts, self.train, self.training_valid)
        parts = (self.training_graph, self.training_queries, self.validation_queries, *optional)
        return tuple(part for part in parts if part is not None)

    @property
    def _inference_side(self) -> tuple[Triples, ...]:
        parts = (self.inference_graph, self.inference_valid, self.inference_test)
        return tuple(part for part in parts if part is not None)

    @property
    def relations(self) -> Vocabulary:
        """Those of the training graph and queries: what a model can have learned."""
        return self.training_graph.relations

    @property
    def training_entities(self) -> Vocabulary:
        return self.training_graph.entities

    @property
    def inference_entities(self) -> Vocabulary:
        """The candidates of the evaluation; the training entities themselves where it is transductive."""
        return self.inference_graph.entities

    @property
    def validation_graph(self) -> Triples:
        """What selection walks on: train.txt, or facts + train, whatever `with_queries` chose."""
        return self.training_graph if self.inductive else self.inference_graph

    def evaluation_queries(self, protocol: Protocol = "P1") -> Triples:
        """P1: the inference graph's valid + test; P2: its test alone. The same where it is transductive."""
        if protocol not in ("P1", "P2"):
            raise ConfigError(f"protocol is {protocol!r}; it is 'P1' or 'P2'.")
        if protocol == "P2" or self.inference_valid is None:
            return self.inference_test
        return joined([self.inference_valid, self.inference_test])

    def with_queries(self, queries: QueryChoice) -> Dataset:
        """The same setting, trained another way.

        "all" (default): every training edge, hidden from itself, and the training side's valid.txt where it
        is inductive. "valid": as published for inductive settings, valid.txt alone over train.txt.
        "train": as published for transductive ones, train.txt over facts.txt alone.
        """
        if queries == "all":
            return self._asking_everything()
        if queries == "valid":
            return self._asking_valid()
        if queries == "train":
            return self._asking_train()
        raise ConfigError(f"queries is {queries!r}; it is 'all', 'train' or 'valid'.")

    def _asking_everything(self) -> Dataset:
        if self.facts is not None and self.train is not None:
            graph = joined([self.facts, self.train])
            return replace(self, training_graph=graph, training_queries=graph, queries="all")
        beside = [] if self.training_valid is None else [self.training_valid]
        return replace(self, training_queries=joined([self.training_graph, *beside]), queries="all")

    def _asking_valid(self) -> Dataset:
        if self.training_valid is None:
            why = (
                "has no valid.txt beside its training graph"
                if self.inductive
                else "is transductive: valid.txt selects there and is never trained on"
            )
            raise ConfigError(f"queries='valid': {self.name} {why}. Use queries='all'.")
        return replace(self, training_queries=self.training_valid, queries="valid")

    def _asking_train(self) -> Dataset:
        if self.facts is None or self.train is None:
            why = "is inductive" if self.inductive else "has no facts.txt"
            raise ConfigError(
                f"queries='train': {self.name} {why}, and the setting needs facts.txt to walk on while "
                "train.txt asks. Use queries='all'."
            )
        return replace(self, training_graph=self.facts, training_queries=self.train, queries="train")

    def without_facts(self) -> Dataset:
        """facts.txt and train.txt as one training graph, as layouts without facts.txt have it."""
        return replace(self._asking_everything(), facts=None, train=None)

    @cached_property
    def training_filter(self) -> KnownAnswers:
        """Answers that training triples give: the mask of the loss. Reads no held-out query."""
        return KnownAnswers.of(self.training_graph, self.training_queries)

    @cached_property
    def validation_filter(self) -> KnownAnswers:
        """Every answer of the training side; no test query, because selection reads none."""
        return KnownAnswers.of(*self._training_side)

    @cached_property
    def evaluation_filter(self) -> KnownAnswers:
        """Every answer of the inference graph, its valid and test; where transductive, of all files."""
        if self.inductive:
            return KnownAnswers.of(*self._inference_side)
        return KnownAnswers.of(*self._training_side, *self._inference_side)

    def summary(self) -> dict[str, Any]:
        """Counts, as JSON can hold them; None where the setting has no such part."""
        training = ("training_graph", "training_queries", "validation_queries", "facts", "training_valid")
        inference = ("inference_graph", "inference_valid", "inference_test")
        return {
            "name": self.name,
            "inductive": self.inductive,
            "queries": self.queries,
            "relations": len(self.relations),
            "training_entities": len(self.training_entities),
            "inference_entities": len(self.inference_entities),
            "triples": {part: _count(getattr(self, part)) for part in (*training, *inference)},
            "skipped": self.skipped,
            "kept_share": self.kept_share,
        }

    def audit(self) -> AuditReport:
        """What a careful reviewer would ask: overlap, leakage, duplicates, twin relations, reach."""
        from contextpool.triples.audit import audit_dataset

        return audit_dataset(self)


def joined(parts: Sequence[Triples]) -> Triples:
    """All facts of parts that share their vocabularies, which stay the same objects."""
    first = parts[0]
    if len(parts) == 1:
        return first
    return Triples(
        first.entities, first.relations, distinct_rows(np.concatenate([part.ids for part in parts]))
    )


def used_only(triples: Triples) -> Triples:
    """The same facts over vocabularies that hold nothing else."""
    entities = _used(triples.entities, triples.ids[:, [0, 2]])
    relations = _used(triples.relations, triples.ids[:, 1])
    return triples.with_vocabularies(entities, relations)


def _used(vocabulary: Vocabulary, ids: np.ndarray[Any, np.dtype[np.int32]]) -> Vocabulary:
    labels = vocabulary.labels
    return Vocabulary(tuple(labels[position] for position in np.unique(ids).tolist()), vocabulary.kind)


def _used_relations(learned: Sequence[Triples]) -> Vocabulary:
    used = [_used(part.relations, part.ids[:, 1]).labels for part in learned]
    return Vocabulary.of((label for labels in used for label in labels), "relation")


def _numbered_alike(parts: Sequence[Triples], relations: Vocabulary, name: str) -> list[Triples]:
    """The parts of one side over the union of their entities and the given relations."""
    entities = Vocabulary.of(label for part in parts for label in part.entities.labels)
    _refuse_unknown_relations(parts, relations, name)
    return [part.with_vocabularies(entities, relations) for part in parts]


def _refuse_unknown_relations(parts: Sequence[Triples], relations: Vocabulary, name: str) -> None:
    known = set(relations.labels)
    unknown = sorted({label for part in parts for label in _used_relations([part]).labels} - known)
    if unknown:
        raise DataError(
            f"{name}: relation {unknown[0]!r} does not occur in training ({len(unknown):,} such in all). "
            "Relations of every other part have to be a subset of the training relations."
        )


def _count(part: Triples | None) -> int | None:
    return None if part is None else len(part)
