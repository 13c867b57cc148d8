"""What may be a label, and numbered lists of labels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from contextpool.errors import DataError, UnknownNameError, shortened

INVERSE_SUFFIX = "^-1"
"""Marks a relation walked from tail to head. Ours alone: an input relation that ends in it is refused."""

MAX_LABEL = 1 << 15
"""Bytes of a label in UTF-8."""

ROLES = ("head", "relation", "tail")
_FORBIDDEN = {
    "\t": "a tab, which separates the columns",
    "\n": "a line feed, which separates the triples",
    "\r": "a carriage return, which would be lost on reading",
    "\0": "a NUL character, which many tools cut a label at",
}


def label_problem(label: str) -> str | None:
    """Why `label` cannot be written to a triple file and read back, or None where it can."""
    if not label:
        return "is empty"
    for character, reason in _FORBIDDEN.items():
        if character in label:
            return f"holds {reason}"
    if label.startswith("\ufeff"):
        return "starts with a byte order mark (U+FEFF), which nobody can see"
    try:
        size = len(label.encode("utf-8"))
    except UnicodeEncodeError:
        return "holds half a surrogate pair, which UTF-8 cannot express"
    return f"is {size:,} bytes long; {MAX_LABEL:,} are the most" if size > MAX_LABEL else None


def relation_problem(label: str) -> str | None:
    """As `label_problem`, with what is special to relations."""
    if label.endswith(INVERSE_SUFFIX):
        return f"ends in {INVERSE_SUFFIX!r}, which names the inverse of a relation here"
    return label_problem(label)


def problem_in_role(label: str, role: str) -> str | None:
    """`relation_problem` for a relation, `label_problem` for a head, a tail or another entity."""
    return relation_problem(label) if role == "relation" else label_problem(label)


def check_triple(triple: tuple[str, str, str], where: str) -> None:
    """Refuse a triple of labels that could not be written and read back."""
    for role, label in zip(ROLES, triple, strict=True):
        if not isinstance(label, str):
            raise DataError(f"{where}: {role} {label!r} is a {type(label).__name__}; labels are strings.")
        problem = problem_in_role(label, role)
        if problem:
            raise DataError(f"{where}: {role} {shortened(label)} {problem}. Rename it.")


@dataclass(frozen=True)
class Vocabulary:
    """Distinct labels in sorted order; a label's position is its id, so equal ids mean equal order."""

    labels: tuple[str, ...]
    kind: str = "entity"

    @classmethod
    def of(cls, labels: Iterable[str], kind: str = "entity") -> Vocabulary:
        return cls(tuple(sorted(set(labels))), kind)

    @cached_property
    def index(self) -> dict[str, int]:
        return {label: position for position, label in enumerate(self.labels)}

    def id_of(self, label: str) -> int:
        """The id of a label; an unknown one is an error that names the closest known labels."""
        position = self.index.get(label)
        if position is None:
            raise UnknownNameError(self.kind, label, self.labels)
        return position

    def __len__(self) -> int:
        return len(self.labels)

    def __contains__(self, label: object) -> bool:
        return label in self.index

    def __repr__(self) -> str:
        return f"Vocabulary({len(self):,} {'relations' if self.kind == 'relation' else 'entities'})"
