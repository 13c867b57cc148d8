"""One file of a dataset, and what happens to relations in it that training does not have."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from contextpool.errors import DataError, TripleFileError, closest, shortened
from contextpool.triples.dataset import used_only
from contextpool.triples.files import numbered_lines
from contextpool.triples.labels import Vocabulary
from contextpool.triples.reader import read_triples
from contextpool.triples.store import Triples

OnUnknown = Literal["error", "skip"]


@dataclass(frozen=True)
class Part:
    """The triples of one file, and how to find the line that names a relation."""

    path: Path
    triples: Triples
    first_naming: Callable[[Collection[str]], tuple[int, str]]
    """The number of the first line that names one of these relations, and which."""


def read_part(path: Path, *, allow_empty: bool = False) -> Part:
    """A file of head TAB relation TAB tail."""
    triples = read_triples(path, allow_empty=allow_empty)

    def first_naming(relations: Collection[str]) -> tuple[int, str]:
        for number, text in numbered_lines(path):
            relation = text.split("\t")[1]
            if relation in relations:
                return number, relation
        raise DataError(f"{path}: the file changed while it was read. Load it again.")

    return Part(path, triples, first_naming)


class Admission:
    """Lets triples of known relations through; the others are an error, or left out and counted."""

    def __init__(self, known: Vocabulary, on_unknown: OnUnknown) -> None:
        self.known = known
        self.on_unknown = on_unknown
        self.skipped = 0

    def admit(self, part: Part) -> Triples:
        labels = part.triples.relations.labels
        is_known = np.array([label in self.known for label in labels], dtype=bool)  # [relations here]
        keep = is_known[part.triples.ids[:, 1]]  # [T]
        if keep.all():
            return part.triples
        if self.on_unknown == "error":
            raise self._error(part, num_triples=int((~keep).sum()))
        self.skipped += int((~keep).sum())
        if not keep.any():
            raise DataError(
                f"{part.path}: not one of its {len(keep):,} triples has a relation that occurs in training, "
                "so that on_unknown='skip' leaves nothing. These files do not belong together."
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
            "relations; fix the line, or load with on_unknown='skip'.",
        )


def known_relations(*parts: Part) -> Vocabulary:
    """The relations of the parts that are trained on."""
    return Vocabulary.of((label for part in parts for label in part.triples.relations.labels), "relation")
