"""A file of questions answered into a folder of shards, `shard_size` questions each, in the order of the file.

Questions are batched from the start of their shard, so that the same bytes are written whoever works (`shards`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from contextpool.errors import ConfigError, DataError, setting
from contextpool.graph.graph import Graph
from contextpool.predict.answers import AnyAnswer, Question, Selection, UnknownRelations
from contextpool.predict.files import (
    COLUMNS,
    KINDS,
    Answered,
    FileKind,
    Placed,
    encoded,
    file_digest,
    kind_of,
    read_questions,
)
from contextpool.predict.inputs import GraphLike, graph_digest
from contextpool.predict.names import Names
from contextpool.predict.predictor import Predictor
from contextpool.predict.shards import Manifest
from contextpool.predict.workers import Done, Piece, Workers

MOST_PROBLEMS = 1000
"""Unknown names reported together; a file with more of them belongs to another graph."""
EVERY_PAIR = "every observed (head, relation)"
"""Stands for a file that asks (head, relation, ?) for every head and relation with an answer in the graph."""
Progress = Callable[[int, int], None]
"""Called with (questions answered, questions in all)."""
Source = str | Path | None
"""A file of questions, or None for `EVERY_PAIR`."""


@dataclass(frozen=True)
class BulkSettings:
    """How a file is answered; everything here changes the bytes that come out."""

    kind: FileKind = "jsonl"
    """The file format of the shards."""
    on_unknown: UnknownRelations = "error"
    """"skip": facts of unknown relations are left out, and a question with an unknown name gets its error as row."""
    batch_size: int = 64
    shard_size: int = 1000
    cap: int | None = None
    """Edges that a walk keeps in each hop; None for all."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigError(f"{setting('format')} is {self.kind!r}; it is one of {', '.join(KINDS)}.")
        for key in ("batch_size", "shard_size"):
            if getattr(self, key) < 1:
                raise ConfigError(f"{setting(key)} is {getattr(self, key)}; it has to be at least 1.")

    def to_dict(self) -> dict[str, Any]:
        """The settings as a manifest stores them; `cap` is left out where it is None, as older manifests lack it."""
        return {key: value for key, value in asdict(self).items() if (key, value) != ("cap", None)}


@dataclass(frozen=True)
class BulkOutcome:
    """Counts and files of one call."""

    questions: int
    answered_now: int
    """The others were answered by an earlier call."""
    refused: int
    """Questions with an unknown name, whose row says so."""
    shards: tuple[Path, ...]


class Bulk:
    """Answers files of questions with one predictor on one graph."""

    def __init__(
        self,
        predictor: Predictor,
        graph: GraphLike,
        selection: Selection | None = None,
        settings: BulkSettings | None = None,
        names: Names | None = None,
    ) -> None:
        self.predictor = predictor
        self.selection, self.settings = selection or Selection(), settings or BulkSettings()
        self.asking = predictor.asking(
            graph,
            names,
            on_unknown=self.settings.on_unknown,
            cap=self.settings.cap,
            batch_size=self.settings.batch_size,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """What a worker is sent: nothing that was made of the graph."""
        given = self.predictor, self.asking.graph, self.selection, self.settings, self.asking.names
        return type(self), given

    def stream(self, questions: Source) -> Iterator[Answered]:
        """Every question of a file with its answers, as they come. Unknown names are told before the first."""
        self.checked(questions)
        for chunk in self._chunks(questions):
            yield from self._answered(chunk)

    def write(
        self,
        questions: Source,
        output: str | Path,
        *,
        overwrite: bool = False,
        progress: Progress | None = None,
        workers: Workers | None = None,
    ) -> BulkOutcome:
        """Answer into a folder, going on where an earlier call was cut off; by `workers`, or by this process."""
        total, refused = self.checked(questions)
        kind = self.settings.kind
        manifest = Manifest.opened(Path(output), self._identity(questions, total), kind, overwrite)

        def tell(done: int) -> None:
            if progress is not None:
                progress(done, total)

        def here(pieces: Iterable[Piece], count: int) -> Iterator[Done]:
            return ((number, self.work(chunk)) for number, chunk in pieces)

        count = -(-total // self.settings.shard_size)
        with nullcontext(here) if workers is None else workers.at(self) as doing:
            now = manifest.fill(self._chunks(questions), count, doing, tell)
        return BulkOutcome(total, now, refused, manifest.paths)

    def work(self, chunk: list[tuple[int, Question]]) -> bytes:
        """One shard."""
        return encoded(self._answered(chunk), self.settings.kind)

    def _chunks(self, questions: Source) -> Iterator[list[tuple[int, Question]]]:
        numbered = enumerate((question for _, question in self._read(questions)), start=1)
        while chunk := list(islice(numbered, self.settings.shard_size)):
            yield chunk

    def _read(self, questions: Source) -> Iterator[Placed]:
        return self._every_pair() if questions is None else read_questions(questions)

    def _every_pair(self) -> Iterator[Placed]:
        """In the order of their labels; facts of relations that the model does not know ask nothing."""
        graph = self.asking.graph
        known = [label in self.predictor.relations_for(graph).index for label in graph.relations]
        for entity, relation in observed_pairs(graph):
            if known[relation]:
                label = graph.entities[entity]
                yield f"entity {label!r}", Question(label, graph.relations[relation], None)

    def checked(self, questions: Source) -> tuple[int, int]:
        """How many questions a file holds, and how many of them name something unknown; nothing is scored."""
        total = refused = 0
        resolver = self.asking.resolver()
        for where, question in self._read(questions):
            before = len(resolver.problems)
            resolver.question(question, where)
            total, refused = total + 1, refused + (len(resolver.problems) > before)
            if self.settings.on_unknown == "skip":
                resolver.problems.clear()
            elif len(resolver.problems) >= MOST_PROBLEMS:
                resolver.check()
        resolver.check()
        if not total:
            nothing = "the graph holds no facts of relations that the model knows, so nothing is asked."
            raise DataError(nothing if questions is None else f"{questions}: the file holds no questions.")
        return total, refused

    def _answered(self, chunk: list[tuple[int, Question]]) -> Iterator[Answered]:
        errors = {number: self._problem(question) for number, question in chunk}
        usable = (question for number, question in chunk if errors[number] is None)
        found = self.asking.stream(usable, self.selection)
        for number, question in chunk:
            answers: Sequence[AnyAnswer] = next(found) if errors[number] is None else ()
            yield Answered(number, question, answers, errors[number])

    def _problem(self, question: Question) -> str | None:
        """Why a question cannot be answered; None where it can."""
        resolver = self.asking.resolver()
        resolver.question(question)
        return " ".join(resolver.message(problem) for problem in resolver.problems) or None

    def _identity(self, questions: Source, total: int) -> dict[str, Any]:
        """What the answers depend on; a folder of answers belongs to one of these."""
        names = sorted(self.asking.names.of_id.items())
        fitted = self.asking.calibration if self.predictor.relations is None else None
        return {
            **({} if fitted is None else {"calibration": fitted.to_dict()}),
            "model": self.predictor.fingerprint,
            "graph": graph_digest(self.asking.graph),
            "questions": EVERY_PAIR if questions is None else file_digest(questions),
            "count": total,
            "selection": _digest_long(asdict(self.selection)),
            "names": hashlib.sha256(json.dumps(names).encode()).hexdigest() if names else None,
            "settings": self.settings.to_dict(),
            "columns": None if self.settings.kind == "jsonl" else list(COLUMNS),
        }


def answer_file(
    predictor: Predictor,
    graph: GraphLike,
    questions: str | Path,
    output: str | Path,
    k: int = 10,
    *,
    known: bool = False,
    kind: FileKind | None = None,
    names: Names | None = None,
    on_unknown: UnknownRelations = "error",
    overwrite: bool = False,
    progress: Progress | None = None,
) -> BulkOutcome:
    """Answer a file of questions into a folder of shards, of the same kind as the file unless said."""
    settings = BulkSettings(kind or kind_of(Path(questions)), on_unknown)
    bulk = Bulk(predictor, graph, Selection(k, known), settings, names)
    return bulk.write(questions, output, overwrite=overwrite, progress=progress)


def _digest_long(values: dict[str, Any]) -> dict[str, Any]:
    """The selection with its list of candidates replaced by a sha256."""
    listed = values["candidates"]
    if listed is not None:
        values["candidates"] = hashlib.sha256(json.dumps(sorted(listed)).encode()).hexdigest()
    return json.loads(json.dumps(values))  # type: ignore[no-any-return]


def observed_pairs(graph: Graph) -> Iterator[tuple[int, int]]:
    """(entity, relation in [0, R)) of every pair that has an answer in the graph, in their order; a row at a time."""
    starts = graph.row_start.numpy()
    for entity in range(graph.num_entities):
        row = graph.edge_relation[int(starts[entity]) : int(starts[entity + 1])].numpy()
        for relation in np.unique(row[row < graph.num_relations]).tolist():
            yield entity, relation
