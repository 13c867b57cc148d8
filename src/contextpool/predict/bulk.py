"""A file of questions answered into a folder of shards; a kill at any moment costs at most one shard.

    OUTPUT/part-00000.jsonl, part-00001.jsonl, ...    `shard_size` questions each, in the order of the file
    OUTPUT/_manifest.json                             what was asked of what, and the sha256 of every finished shard

Shards and manifest are replaced whole, a shard before the manifest that names it. Questions are batched from
the start of their shard, so whoever finishes the work, and after however many kills, writes the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from contextpool.errors import ConfigError, DataError, shortened
from contextpool.graph.graph import Graph
from contextpool.graph.mapped import MappedGraph
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
from contextpool.predict.names import Names
from contextpool.predict.predictor import Predictor
from contextpool.train.files import durable_file, reason

MOST_PROBLEMS = 1000
"""Unknown names reported together; a file with more of them belongs to another graph."""
EVERY_PAIR = "every observed (head, relation)"
"""Stands for a file that asks (head, relation, ?) for every head and relation with an answer in the graph."""
Progress = Callable[[int, int], None]
"""Called with (questions answered, questions in all)."""
Source = str | Path | None
"""A file of questions, or None for `EVERY_PAIR`."""
MANIFEST = "_manifest.json"
"""Readers of folders (Arrow, Spark, DuckDB) pass over names that start with an underscore."""
FORMAT = "contextpool answers 1"


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
            raise ConfigError(f"format is {self.kind!r}; it is one of {', '.join(KINDS)}.")
        for key in ("batch_size", "shard_size"):
            if getattr(self, key) < 1:
                raise ConfigError(f"{key} is {getattr(self, key)}; it has to be at least 1.")

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
        graph: Graph,
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

    def stream(self, questions: Source) -> Iterator[Answered]:
        """Every question of a file with its answers, as they come. Unknown names are told before the first."""
        self.checked(questions)
        numbered = enumerate((question for _, question in self._read(questions)), start=1)
        while chunk := list(islice(numbered, self.settings.shard_size)):
            yield from self._answered(chunk)

    def write(
        self,
        questions: Source,
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

    def _read(self, questions: Source) -> Iterator[Placed]:
        return self._every_pair() if questions is None else read_questions(questions)

    def _every_pair(self) -> Iterator[Placed]:
        """In the order of their labels; facts of relations that the model does not know ask nothing."""
        graph = self.asking.graph
        known = [label in self.predictor.relations.index for label in graph.relations]
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
            answers: list[AnyAnswer] = next(found) if errors[number] is None else []
            yield Answered(number, question, answers, errors[number])

    def _problem(self, question: Question) -> str | None:
        """Why a question cannot be answered; None where it can."""
        resolver = self.asking.resolver()
        resolver.question(question)
        return " ".join(resolver.message(problem) for problem in resolver.problems) or None

    def _identity(self, questions: Source, total: int) -> dict[str, Any]:
        """What the answers depend on; a folder of answers belongs to one of these."""
        names = sorted(self.asking.names.of_id.items())
        return {
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


class Manifest:
    """The manifest of an output folder. A shard is finished once the manifest names it and its bytes are as named."""

    def __init__(self, folder: Path, identity: dict[str, Any], content: Mapping[str, Any] | None) -> None:
        self.folder, self.identity = folder, identity
        self.conditions: list[dict[str, Any]] = list(content["conditions"]) if content else []
        if _conditions() not in self.conditions:
            self.conditions.append(_conditions())
        kept = content["shards"] if content else {}
        self.shards: dict[str, str] = {
            name: digest for name, digest in kept.items() if self._is_intact(name, digest)
        }

    @classmethod
    def opened(cls, folder: Path, identity: dict[str, Any], overwrite: bool) -> Manifest:
        """Open the manifest of a new or empty folder, or of one that was begun with the same identity."""
        if not folder.exists():
            return cls(folder, identity, None)
        path = folder / MANIFEST
        content = _read_manifest(path) if path.is_file() else None
        if content is None:
            _refuse_foreign(folder)
        elif content["identity"] != identity:
            if not overwrite:
                raise ConfigError(_what_differs(folder, content["identity"], identity))
            _remove(folder, content)
            content = None
        return cls(folder, identity, content)

    @property
    def paths(self) -> tuple[Path, ...]:
        return tuple(self.folder / name for name in sorted(self.shards))

    def has(self, number: int) -> bool:
        return _name(number, self.identity["settings"]["kind"]) in self.shards

    def add(self, number: int, content: bytes, kind: FileKind) -> None:
        """Write a shard, then the manifest that names it."""
        name = _name(number, kind)
        with durable_file(self.folder / name) as stream:
            stream.write(content)
        self.shards[name] = hashlib.sha256(content).hexdigest()
        self._write(complete=False)

    def finish(self) -> None:
        self._write(complete=True)

    def _write(self, complete: bool) -> None:
        content = {
            "format": FORMAT,
            "identity": self.identity,
            "conditions": self.conditions,
            "complete": complete,
            "shards": dict(sorted(self.shards.items())),
        }
        with durable_file(self.folder / MANIFEST) as stream:
            stream.write((json.dumps(content, indent=2) + "\n").encode("utf-8"))

    def _is_intact(self, name: str, digest: str) -> bool:
        path = self.folder / name
        return path.is_file() and file_digest(path) == digest


def _name(number: int, kind: FileKind) -> str:
    return f"part-{number:05}.{kind}"


def _conditions() -> dict[str, Any]:
    """Library version and threads, which may change the last bits of a score."""
    return {"torch": torch.__version__, "threads": torch.get_num_threads()}


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
        whole = content["format"] == FORMAT and {"identity", "conditions", "shards"} <= set(content)
        plain = all("/" not in name and name.startswith("part-") for name in content["shards"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        whole = plain = False
    if not (whole and plain):
        raise DataError(f"{path}: this is no manifest of answers, or it is damaged. Choose another folder.")
    return content  # type: ignore[no-any-return]


def _refuse_foreign(folder: Path) -> None:
    if not folder.is_dir():
        raise ConfigError(f"output {folder} is a file; answers go into a folder. Choose another name.")
    own = ("part-", ".part-", f".{MANIFEST}")  # of a call that was killed before its first manifest
    try:
        foreign = sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith(own))
    except OSError as error:
        raise ConfigError(
            f"output {folder} cannot be read ({reason(error)}). Choose another folder."
        ) from error
    if foreign:
        raise ConfigError(
            f"output {folder} holds other files, such as {shortened(foreign[0])}. Choose an empty or a new folder."
        )


def _what_differs(folder: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    keys = [key for key in new if old.get(key) != new[key]]
    return (
        f"output {folder} holds answers of another call: {', '.join(keys)} differ. "
        "Choose another folder, or replace them (overwrite)."
    )


def _remove(folder: Path, content: Mapping[str, Any]) -> None:
    """The manifest first: without it the shards are nobody's."""
    for name in (MANIFEST, *content["shards"]):
        (folder / name).unlink(missing_ok=True)
