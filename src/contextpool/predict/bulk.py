"""A file of questions answered into a folder of shards; a kill at any moment costs at most one shard.

    OUTPUT/part-00000.jsonl, part-00001.jsonl, ...    `shard_size` questions each, in the order of the file
    OUTPUT/_manifest.json                             what was asked of what, and the sha256 of every finished shard

Shards and manifest are replaced whole, a shard before the manifest that names it. Questions are batched from
the start of their shard, so whoever finishes the work, and after however many kills, writes the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from contextpool.errors import ConfigError, DataError
from contextpool.graph.graph import Graph
from contextpool.graph.mapped import MappedGraph
from contextpool.graph.relations import RelationVocabulary
from contextpool.predict.answers import AnyAnswer, Question, Selection, UnknownRelations
from contextpool.predict.asking import resolve
from contextpool.predict.frontier import observed_pairs
from contextpool.predict.manifest import Manifest
from contextpool.predict.names import NO_NAMES, Names
from contextpool.predict.predictor import Predictor
from contextpool.predict.questions import KINDS, FileKind, Placed, file_digest, kind_of, read_questions
from contextpool.predict.results import COLUMNS, Answered, encoded

MOST_PROBLEMS = 1000
"""Unknown names are told at once, up to here; a file with more is another graph's."""
Progress = Callable[[int, int], None]
"""Called with (questions answered, questions in all)."""


@dataclass(frozen=True)
class ObservedPairs:
    """In the place of a file: (head, relation, ?) for every head and relation that have an answer in the graph."""

    relations: RelationVocabulary
    """The model's; facts of others ask nothing."""
    name: str = "every observed (head, relation)"

    def read(self, graph: Graph) -> Iterator[Placed]:
        """In the order of their labels, each with where it stands."""
        known = [label in self.relations.index for label in graph.relations]
        for entity, relation in observed_pairs(graph):
            if known[relation]:
                label = graph.entities[entity]
                yield f"entity {label!r}", Question(label, graph.relations[relation], None)


Asked = str | Path | ObservedPairs


@dataclass(frozen=True)
class BulkSettings:
    """How a file is answered; everything here changes the bytes that come out."""

    kind: FileKind = "jsonl"
    """Of the shards."""
    on_unknown: UnknownRelations = "error"
    """"skip": facts of unknown relations are left out, and a question with an unknown name gets its error as row."""
    batch_size: int = 64
    shard_size: int = 1000
    cap: int | None = None
    """Edges that a walk keeps in each hop; None for all."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigError(f"format is {self.kind!r}; it is one of {', '.join(KINDS)}.")
        for key in ("batch_size", "shard_size"):
            if getattr(self, key) < 1:
                raise ConfigError(f"{key} is {getattr(self, key)}; it has to be at least 1.")

    def to_dict(self) -> dict[str, Any]:
        """As a manifest holds them; without a cap where there is none, as before there were any."""
        return {key: value for key, value in asdict(self).items() if (key, value) != ("cap", None)}


@dataclass(frozen=True)
class BulkOutcome:
    """What a call did."""

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
        graph: Graph,
        selection: Selection | None = None,
        settings: BulkSettings | None = None,
        names: Names | None = None,
    ) -> None:
        self.predictor, self.graph, self.names = predictor, graph, names
        self.selection, self.settings = selection or Selection(), settings or BulkSettings()
        self.prepared, self.left_out = predictor.prepared(graph, on_unknown=self.settings.on_unknown)

    def stream(self, questions: Asked) -> Iterator[Answered]:
        """Every question of a file with its answers, as they come. Unknown names are told before the first."""
        self.checked(questions)
        numbered = enumerate((question for _, question in self._read(questions)), start=1)
        while chunk := list(islice(numbered, self.settings.shard_size)):
            yield from self._answered(chunk)

    def write(
        self,
        questions: Asked,
        output: str | Path,
        *,
        overwrite: bool = False,
        progress: Progress | None = None,
    ) -> BulkOutcome:
        """Answer into a folder, going on where an earlier call was cut off."""
        total, refused = self.checked(questions)
        manifest = Manifest.opened(Path(output), self._identity(questions, total), overwrite)
        numbered = enumerate((question for _, question in self._read(questions)), start=1)
        done = now = 0
        for number in range(-(-total // self.settings.shard_size)):
            chunk = list(islice(numbered, self.settings.shard_size))
            if not manifest.has(number):
                manifest.add(number, encoded(self._answered(chunk), self.settings.kind), self.settings.kind)
                now += len(chunk)
            done += len(chunk)
            if progress is not None:
                progress(done, total)
        manifest.finish()
        return BulkOutcome(total, now, refused, manifest.paths)

    def _read(self, questions: Asked) -> Iterator[Placed]:
        return (
            read_questions(questions) if isinstance(questions, (str, Path)) else questions.read(self.prepared)
        )

    def checked(self, questions: Asked) -> tuple[int, int]:
        """How many questions a file holds, and how many of them name something unknown; nothing is scored."""
        if isinstance(questions, ObservedPairs):
            return self._counted(questions), 0
        total = refused = 0
        resolver = self.predictor.resolver(self.prepared, self.names)
        for where, question in read_questions(questions):
            before = len(resolver.problems)
            resolve(resolver, question, where)
            total, refused = total + 1, refused + (len(resolver.problems) > before)
            if self.settings.on_unknown == "skip":
                resolver.problems.clear()
            elif len(resolver.problems) >= MOST_PROBLEMS:
                resolver.check()
        resolver.check()
        if not total:
            raise DataError(f"{questions}: the file holds no questions.")
        return total, refused

    def _counted(self, questions: ObservedPairs) -> int:
        total = sum(1 for _ in questions.read(self.prepared))
        if not total:
            raise DataError(
                "the graph holds no facts of relations that the model knows, so nothing is asked."
            )
        return total

    def _answered(self, chunk: list[tuple[int, Question]]) -> Iterator[Answered]:
        errors = {number: self._problem(question) for number, question in chunk}
        usable = (question for number, question in chunk if errors[number] is None)
        found = self.predictor.stream(
            self.graph,
            usable,
            self.selection,
            names=self.names,
            batch_size=self.settings.batch_size,
            on_unknown=self.settings.on_unknown,
            cap=self.settings.cap,
        )
        for number, question in chunk:
            answers: list[AnyAnswer] = next(found) if errors[number] is None else []
            yield Answered(number, question, answers, errors[number])

    def _problem(self, question: Question) -> str | None:
        """Why a question cannot be answered; None where it can."""
        resolver = self.predictor.resolver(self.prepared, self.names)
        resolve(resolver, question)
        return " ".join(resolver.message(problem) for problem in resolver.problems) or None

    def _identity(self, questions: Asked, total: int) -> dict[str, Any]:
        """What the answers depend on; a folder of answers belongs to one of these."""
        names = sorted((self.names or NO_NAMES).of_id.items())
        return {
            "model": self.predictor.fingerprint,
            "graph": graph_digest(self.prepared),
            "questions": file_digest(questions) if isinstance(questions, (str, Path)) else questions.name,
            "count": total,
            "selection": _digest_long(asdict(self.selection)),
            "names": hashlib.sha256(json.dumps(names).encode()).hexdigest() if names else None,
            "settings": self.settings.to_dict(),
            "columns": None if self.settings.kind == "jsonl" else list(COLUMNS),
        }


def answer_file(
    predictor: Predictor,
    graph: Graph,
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


def graph_digest(graph: Graph) -> str:
    """sha256 over a graph's labels and facts; a mapped one has it written down."""
    if isinstance(graph, MappedGraph):
        return graph.digest
    digest = hashlib.sha256(json.dumps([graph.entities, graph.relations]).encode())
    digest.update(graph.as_triples().ids.tobytes())
    return digest.hexdigest()


def _digest_long(values: dict[str, Any]) -> dict[str, Any]:
    """With a long list of candidates replaced by its sha256."""
    listed = values["candidates"]
    if listed is not None:
        values["candidates"] = hashlib.sha256(json.dumps(sorted(listed)).encode()).hexdigest()
    return json.loads(json.dumps(values))  # type: ignore[no-any-return]
