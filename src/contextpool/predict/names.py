"""Names for labels (a file of `id TAB name`), and the resolver that turns texts into ids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from contextpool.errors import (
    DataError,
    TripleFileError,
    UnknownNameError,
    WrongNamesError,
    shortened,
    unknown_name_message,
)
from contextpool.graph.relations import RelationVocabulary
from contextpool.predict.answers import Question, Selection
from contextpool.triples.files import numbered_lines
from contextpool.triples.labels import INVERSE_SUFFIX, Vocabulary, label_problem

MOST_SUGGESTIONS = 10
"""Names beyond this many get no suggestions: looking for them takes time, and nobody reads so far."""


@dataclass(frozen=True, eq=False)
class Names:
    """Names for ids, of entities and of relations alike. An id has one name; a name may belong to several ids."""

    of_id: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def ids_of(self) -> dict[str, tuple[str, ...]]:
        """Maps each name to the sorted ids that have it."""
        found: dict[str, list[str]] = {}
        for label, name in sorted(self.of_id.items()):
            found.setdefault(name, []).append(label)
        return {name: tuple(labels) for name, labels in found.items()}

    def name(self, label: str) -> str | None:
        """The name of an id, None where it has none; `r^-1` is named after `r`."""
        if label.endswith(INVERSE_SUFFIX):
            forward = self.of_id.get(label.removesuffix(INVERSE_SUFFIX))
            return None if forward is None else forward + INVERSE_SUFFIX
        return self.of_id.get(label)

    def shown(self, label: str) -> str:
        """The name, or the id itself where it has none."""
        return self.name(label) or label

    def __repr__(self) -> str:
        return f"Names({len(self.of_id):,} names)"


NO_NAMES = Names()


def read_names(path: str | Path) -> Names:
    """Read a file of `id TAB name` lines; an id with two names is an error with its line."""
    path = Path(path)
    names: dict[str, str] = {}
    for number, text in numbered_lines(path):
        columns = text.split("\t")
        if len(columns) != 2:
            raise TripleFileError(
                path, number, f"{len(columns)} columns instead of 2. Each line holds id TAB name."
            )
        label, name = columns
        for what, value in (("id", label), ("name", name)):
            problem = label_problem(value)
            if problem:
                raise TripleFileError(path, number, f"the {what} {shortened(value)} {problem}.")
        if names.setdefault(label, name) != name:
            other = shortened(names[label])
            raise TripleFileError(
                path,
                number,
                f"{shortened(label)} is named {shortened(name)} here and {other} above. Keep one.",
            )
    if not names:
        raise DataError(f"{path}: the file holds no names. Expected lines of id TAB name.")
    return Names(names)


@dataclass(frozen=True)
class Problem:
    """A text that is no usable name."""

    kind: str
    text: str
    where: str
    ids: tuple[str, ...] = ()
    """The labels that the text may mean; empty where it is unknown."""


class Resolver:
    """Turns texts into ids, remembers what it could not resolve, and tells all of it at once."""

    def __init__(self, entities: Vocabulary, relations: RelationVocabulary, names: Names = NO_NAMES) -> None:
        self.entities, self.relations, self.names = entities, relations, names
        self.problems: list[Problem] = []

    def entity(self, text: str, where: str = "") -> int:
        """The id of an entity by label or name; -1 for what is remembered as a problem."""
        found = self._labels(text, self.entities.index)
        return self.entities.index[found[0]] if self._is_one(found, "entity", text, where) else -1

    def relation(self, text: str, where: str = "") -> int:
        """The id in [0, 2R) of `r` or `r^-1`, by label or name; -1 for what is remembered as a problem."""
        bare = text.removesuffix(INVERSE_SUFFIX)
        suffix = text[len(bare) :]
        meant = [label + suffix for label in self._labels(bare, self.relations.index)]
        found = [label for label in meant if label in self.relations.index]
        return self.relations.index[found[0]] if self._is_one(found, "relation", text, where) else -1

    def question(self, question: Question, where: str = "") -> tuple[int, int, int]:
        """(head, relation, tail); -1 also for what is asked."""
        head, relation, tail = question.head, question.relation, question.tail
        return (
            -1 if head is None else self.entity(head, where),
            -1 if relation is None else self.relation(relation, where),
            -1 if tail is None else self.entity(tail, where),
        )

    def selection(self, selection: Selection) -> tuple[tuple[int, ...] | None, tuple[int, ...]]:
        """Candidates, None for all, and the relations that they have to have."""
        listed = selection.candidates
        candidates = None if listed is None else tuple(self.entity(text, "candidates") for text in listed)
        return candidates, tuple(self.relation(text, "having") for text in selection.having)

    def _labels(self, text: str, known: Mapping[str, int]) -> list[str]:
        """Every known label that the text may mean: itself, and the ids that it names."""
        named = [label for label in self.names.ids_of.get(text, ()) if label in known]
        return sorted({*named, text}) if text in known else named

    def _is_one(self, found: list[str], kind: str, text: str, where: str) -> bool:
        if len(found) != 1:
            self.problems.append(Problem(kind, text, where, tuple(found)))
        return len(found) == 1

    def check(self, hint: str = "") -> None:
        """Raise for everything that could not be resolved so far; `hint` says what else can be done."""
        problems = list(dict.fromkeys(self.problems))
        if not problems:
            return
        told = [
            (one.kind, one.text, self.message(one, number < MOST_SUGGESTIONS))
            for number, one in enumerate(problems)
        ]
        if len(problems) == 1 and not problems[0].ids and not problems[0].where:
            one = problems[0]
            raise UnknownNameError(one.kind, one.text, self.known(one.kind), self.other_kind(one))
        raise WrongNamesError(told, hint)

    def message(self, problem: Problem, suggest: bool = True) -> str:
        """The problem in one line, with its place and a suggestion."""
        start = f"{problem.where}: " if problem.where else ""
        if problem.ids:
            ids = ", ".join(shortened(label) for label in problem.ids)
            return f"{start}{problem.kind} {shortened(problem.text)} may mean {ids}. Use the id."
        if not suggest:
            return f"{start}{problem.kind} {shortened(problem.text)} is unknown."
        return start + unknown_name_message(
            problem.kind, problem.text, self.known(problem.kind), self.other_kind(problem)
        )

    def other_kind(self, problem: Problem) -> str:
        """A hint where the text is a name of the other kind."""
        if problem.kind == "entity":
            bare = problem.text.removesuffix(INVERSE_SUFFIX)
            return "It is a relation." if self._labels(bare, self.relations.index) else ""
        return "It is an entity." if self._labels(problem.text, self.entities.index) else ""

    def known(self, kind: str) -> list[str]:
        """All known labels of a kind, and their names."""
        labels = self.entities.labels if kind == "entity" else self.relations.directed
        names = (self.names.name(label) for label in labels) if self.names.of_id else ()
        return list(dict.fromkeys([*labels, *(name for name in names if name is not None)]))
