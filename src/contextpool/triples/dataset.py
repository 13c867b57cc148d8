"""Dataset: what is trained on, selected on and evaluated on; transductive and inductive alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from contextpool.errors import ConfigError, DataError
from contextpool.notebook import html_table
from contextpool.triples.filters import KnownAnswers
from contextpool.triples.labels import Vocabulary
from contextpool.triples.store import Triples, distinct_rows, renumbering

if TYPE_CHECKING:
    from contextpool.triples.audit_report import AuditReport

Protocol = Literal["P1", "P2"]
QueryChoice = Literal["all", "train", "valid"]
TRAINING_PARTS = (
    "training_graph",
    "training_queries",
    "validation_queries",
    "facts",
    "train",
    "training_valid",
)
INFERENCE_PARTS = ("inference_graph", "inference_valid", "inference_test")


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """One benchmark setting. The training side and the inference side each have one entity vocabulary.

    Inductive: messages over train.txt; training queries = train.txt (each hidden from itself) + valid.txt;
    selection on the training graph's test.txt; evaluation on the inference graph's own valid + test (P1) or
    test alone (P2). Transductive: messages over facts + train; training queries the same (each hidden);
    selection on valid.txt, never trained on; evaluation on test.txt over the same graph, so that both sides
    have the same vocabularies. The relations are those of the training graph and its queries, unless others were
    kept on purpose (`load_folder(on_unknown="keep")`).

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
    whole: Triples | None = None
    """Where one graph was split: all of its facts."""
    split_seed: int = 0
    """Where one graph was split: by which seed."""

    def __post_init__(self) -> None:
        for side in (self._training_side, self._inference_side):
            for part in side:
                if part.entities is not side[0].entities or part.relations is not side[0].relations:
                    raise DataError(f"{self.name}: the parts of one side have to share their vocabularies.")

    def __repr__(self) -> str:
        kind = "inductive" if self.inductive else "transductive"
        sizes = ", ".join(f"{len(part):,} {name}" for name, part in self._parts())
        return f"<Dataset {self.name}, {kind}: {len(self.relations):,} relations, {sizes}>"

    def _parts(self) -> list[tuple[str, Triples]]:
        """What there is, in the order of its use."""
        return [
            ("facts to learn from", self.training_graph),
            ("training queries", self.training_queries),
            ("validation queries", self.validation_queries),
            ("facts of the inference graph", self.inference_graph),
            ("evaluation queries", self.evaluation_queries()),
        ]

    def _repr_html_(self) -> str:
        rows = [(name, len(part), len(np.unique(part.ids[:, [0, 2]]))) for name, part in self._parts()]
        kind = "inductive: no entity in common" if self.inductive else "transductive: one graph"
        above = f"{self.name} ({kind}), {len(self.relations):,} relations"
        return html_table(("", "triples", "entities"), rows, above=above)

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
        more_relations: Iterable[str] = (),
    ) -> Dataset:
        """Transductive. Entities of valid and test need no edge in the training graph; relations do, or are
        among `more_relations`.
        """
        learned = [train] if facts is None else [facts, train]
        parts = _numbered_alike([*learned, valid, test], _used_relations(learned, more_relations), name)
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
        more_relations: Iterable[str] = (),
    ) -> Dataset:
        """Inductive. `training_valid`: training queries beside those that the training graph asks itself.

        `more_relations`: those that the training side does not have, for a model that takes any relation.
        """
        learned = [train] if training_valid is None else [train, training_valid]
        relations = _used_relations(learned, more_relations)
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

    @classmethod
    def of_queries(
        cls, graph: Triples, queries: Triples, known: Triples, name: str = "the queries"
    ) -> Dataset:
        """To rank the `queries` over one graph, which is read as it stands; answers in `known` are left out, too.

        Candidates are the entities of graph and queries. Those of `known` that are neither do not matter.
        """
        places = (renumbering(queries.entities, graph.entities)[queries.ids[:, [0, 2]]] >= 0).any()
        if len(queries) and not places:
            raise DataError(f"{name}: no entity of them is in the graph. Are they of another graph?")
        entities = Vocabulary.of([*graph.entities.labels, *queries.entities.labels])
        relations = Vocabulary.of([*graph.relations.labels, *queries.relations.labels], "relation")
        graph, queries = (part.with_vocabularies(entities, relations) for part in (graph, queries))
        if held := len(graph) + len(queries) - len(joined([graph, queries])):
            raise DataError(
                f"{name}: {held:,} of {len(queries):,} are facts of the graph, so their answers could be read there. "
                "Take them out of the graph; to score a graph's own facts, each hidden from itself, check it."
            )
        return cls(
            name,
            inductive=False,
            training_graph=graph,
            training_queries=graph,
            validation_queries=known.within(entities, relations),
            inference_graph=graph,
            inference_valid=None,
            inference_test=queries,
        )

    @property
    def _training_side(self) -> tuple[Triples, ...]:
        parts = (getattr(self, name) for name in TRAINING_PARTS)
        return tuple(part for part in parts if part is not None)

    @property
    def _inference_side(self) -> tuple[Triples, ...]:
        parts = (getattr(self, name) for name in INFERENCE_PARTS)
        return tuple(part for part in parts if part is not None)

    @property
    def relations(self) -> Vocabulary:
        """Those of the training graph and queries: what a model can have learned; and others that were kept."""
        return self.training_graph.relations

    @property
    def trained_relations(self) -> Vocabulary:
        """Those that training queries have: `relations`, but for others that were kept."""
        return _used_relations([self._asking_everything().training_queries])

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

    @property
    def split(self) -> dict[str, Any] | None:
        """How one graph was split, as an address says it; None for a dataset that came in parts."""
        if self.whole is None:
            return None
        return {"split": "entities" if self.inductive else "facts", "seed": self.split_seed}

    def with_every_relation(self) -> Dataset:
        """The same parts numbered by all relations of the graph that was split, also by those that training lost."""
        if self.whole is None or self.whole.relations.labels == self.relations.labels:
            return self
        relations = self.whole.relations
        parts = {
            name: part.with_vocabularies(part.entities, relations)
            for name in (*TRAINING_PARTS, *INFERENCE_PARTS)
            if (part := getattr(self, name)) is not None
        }
        return replace(self, **parts)

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
        counted = (name for name in (*TRAINING_PARTS, *INFERENCE_PARTS) if name != "train")
        return {
            "name": self.name,
            "inductive": self.inductive,
            "queries": self.queries,
            "relations": len(self.relations),
            "training_entities": len(self.training_entities),
            "inference_entities": len(self.inference_entities),
            "triples": {part: _count(getattr(self, part)) for part in counted},
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


def _used_relations(learned: Sequence[Triples], more: Iterable[str] = ()) -> Vocabulary:
    used = [_used(part.relations, part.ids[:, 1]).labels for part in learned]
    return Vocabulary.of((label for labels in (*used, more) for label in labels), "relation")


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
