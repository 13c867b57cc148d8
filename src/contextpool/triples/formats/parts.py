"""The files of a dataset folder, and what happens to relations in them that training does not have."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from contextpool.errors import DataError, TripleFileError, closest, shortened, spoken
from contextpool.triples.dataset import Dataset, used_only
from contextpool.triples.files import numbered_lines
from contextpool.triples.labels import Vocabulary
from contextpool.triples.reader import read_triples
from contextpool.triples.store import Triples

OnUnknown = Literal["error", "skip", "keep"]
"""Relations that training does not have: refused, left out, or kept for a model that takes any relation."""
_SUFFIXES = tuple(text + compressed for text in (".txt", ".tsv") for compressed in ("", ".gz", ".zst"))


@dataclass(frozen=True)
class Folder:
    """A folder and its text files by stem: `train.txt`, `train.tsv.gz`, ... are all "train"."""

    path: Path
    files: dict[str, list[Path]]

    @classmethod
    def at(cls, path: Path) -> Folder:
        files = defaultdict(list)
        try:
            entries = sorted(path.iterdir())
        except OSError as error:
            raise DataError(f"{path}: the folder cannot be read ({error.strerror or error}).") from error
        for file in entries:
            stem = stem_of(file.name)
            if stem is not None and file.is_file():
                files[stem].append(file)
        return cls(path, dict(files))

    def has(self, *stems: str) -> bool:
        return all(stem in self.files for stem in stems)

    def get(self, stem: str) -> Path | None:
        """The one file of that stem, or None; two of them are an error, because they might differ."""
        found = self.files.get(stem, [])
        if len(found) > 1:
            names = " and ".join(file.name for file in found)
            raise DataError(
                f"{self.path}: {names} are both there, and only one can be meant. Remove the other."
            )
        return found[0] if found else None

    def need(self, stem: str, why: str) -> Path:
        """The one file of that stem; without it, an error that says what is there and `why` it is needed."""
        found = self.get(stem)
        if found is None:
            raise DataError(f"{self.path}: {stem}.txt is missing (found: {listing(self.path)}). {why}")
        return found


def stem_of(name: str) -> str | None:
    """`train` for train.txt, train.tsv, train.txt.gz, ...; None for what is no text file."""
    for suffix in _SUFFIXES:
        if name.endswith(suffix) and name != suffix:
            return name.removesuffix(suffix)
    return None


def listing(path: Path, limit: int = 12) -> str:
    """What a folder holds, as it can stand in a message."""
    names = sorted(entry.name + "/" * entry.is_dir() for entry in path.iterdir())
    shown = ", ".join(names[:limit]) or "nothing"
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit:,} more"


def named_folder(path: str | Path) -> Path:
    """The path, spelled so that it has a name and a parent: `.` and `..` stand for real folders."""
    path = Path(path).expanduser()
    return Path(os.path.normpath(path.absolute())) if path.name in ("", "..") else path


@dataclass(frozen=True)
class Part:
    """The triples of one file, and how to find the line that names a relation."""

    path: Path
    triples: Triples
    first_naming: Callable[[Collection[str]], tuple[int, str]]
    """The number of the first line that names one of these relations, and which."""


def read_part(path: Path, *, allow_empty: bool = False) -> Part:
    """A file of head TAB relation TAB tail."""
    triples = read_triples(path, allow_empty=allow_empty, part=True)

    def first_naming(relations: Collection[str]) -> tuple[int, str]:
        for number, text in numbered_lines(path):
            relation = text.split("\t")[1]
            if relation in relations:
                return number, relation
        raise DataError(f"{path}: the file changed while it was read. Load it again.")

    return Part(path, triples, first_naming)


class Admission:
    """Lets triples of relations that training has through; the others are an error, or left out and counted."""

    def __init__(self, on_unknown: OnUnknown, *trained: Part) -> None:
        labels = (label for part in trained for label in part.triples.relations.labels)
        self.known = Vocabulary.of(labels, "relation")
        self.on_unknown = on_unknown
        self.skipped = 0
        self.more: set[str] = set()
        """Relations that training does not have and that were kept."""

    def admit(self, part: Part) -> Triples:
        labels = part.triples.relations.labels
        is_known = np.array([label in self.known for label in labels], dtype=bool)  # [relations here]
        keep = is_known[part.triples.ids[:, 1]]  # [T]
        if keep.all():
            return part.triples
        if self.on_unknown == "keep":
            self.more.update(label for label, known in zip(labels, is_known, strict=True) if not known)
            return part.triples
        if self.on_unknown == "error":
            raise self._error(part, num_triples=int((~keep).sum()))
        self.skipped += int((~keep).sum())
        if not keep.any():
            raise DataError(
                f"{part.path}: not one of its {len(keep):,} triples has a relation that occurs in training, "
                f"so that {_skipping()} leaves nothing. These files do not belong together."
            )
        return used_only(part.triples.select(keep))

    def _error(self, part: Part, num_triples: int) -> TripleFileError:
        unknown = {label for label in part.triples.relations.labels if label not in self.known}
        line, relation = part.first_naming(unknown)
        near = closest(relation, self.known.labels, limit=1)
        suggestion = f", closest {near[0]!r}" if near else ""
        others = (
            f" {num_triples:,} triples of the file have unknown relations, {len(unknown):,} different ones."
            if num_triples > 1
            else ""
        )
        return TripleFileError(
            part.path,
            line,
            f"relation {shortened(relation)} does not occur in training ({len(self.known):,} known"
            f"{suggestion}).{others} Relations of all other parts have to be a subset of the training "
            f"relations; fix the line, or load with {_skipping()}, or with on_unknown='keep' for a model that takes "
            "any relation.",
        )


def one_graph(
    name: str, on_unknown: OnUnknown, train: Part, valid: Part, test: Part, facts: Part | None = None
) -> Dataset:
    """Transductive, from its parts as they were read."""
    trained = [train] if facts is None else [facts, train]
    admission = Admission(on_unknown, *trained)
    valid_triples, test_triples = admission.admit(valid), admission.admit(test)
    return Dataset.from_one_graph(
        name,
        train=train.triples,
        valid=valid_triples,
        test=test_triples,
        facts=None if facts is None else facts.triples,
        skipped=admission.skipped,
        more_relations=admission.more,
    )


def two_graphs(
    name: str,
    admission: Admission,
    train: Triples,
    training_valid: Triples | None,
    selection: Triples,
    inference: Sequence[Part],
) -> Dataset:
    """Inductive; `inference` is the graph, the valid and the test part of the other side, not yet admitted."""
    graph, valid, test = (admission.admit(part) for part in inference)
    return Dataset.from_two_graphs(
        name,
        train=train,
        training_valid=training_valid,
        validation=selection,
        inference_graph=graph,
        inference_valid=valid,
        inference_test=test,
        skipped=admission.skipped,
        more_relations=admission.more,
    )


def _skipping() -> str:
    return spoken("on_unknown='skip'", "--skip-unknown")
