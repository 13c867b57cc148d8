"""Rules as text: what a rule model learned, to be read by people and read back by the program.

    speaks(X,Y) <= lives_in(X,A), language(A,Y)        a cyclic rule: the body leads from X to Y
    speaks(X,english) <= born_in(X,london)             an acyclic rule that ends in a constant
    speaks(X,english) <= plays_for(X,A)                one that ends anywhere
    speaks(X,english) <=                               one without a body

The notation is AnyBURL's. A single capital letter is a variable, everything else a label. Labels that hold a space, a
quote, a comma or a bracket, and constants that look like a variable, stand in double quotes as JSON writes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from contextpool.errors import DataError, shortened
from contextpool.graph.relations import RelationVocabulary, inverse

ARROW = "<="
INNER_VARIABLES = "ABCDEFGHIJKLMNOPQRSTUVW"
MAX_LENGTH = 8
"""Atoms that a body may have."""

_LABEL = r'"(?:[^"\\]|\\.)*"|[^\s"(),]+'
_ATOM = re.compile(rf"\s*({_LABEL})\(\s*({_LABEL})\s*,\s*({_LABEL})\s*\)\s*")
_VARIABLE = re.compile(r"[A-Z]")
_PLAIN = re.compile(r'[^\s"(),]+')


@dataclass(frozen=True)
class Rule:
    """relation(X,Y) <= body, or relation(X,constant) <= body; relations are directed, in [0, 2R)."""

    relation: int
    body: tuple[int, ...]
    """The relations of a walk that starts at X."""
    confidence: float
    """Between 0 and 1: how far the model trusts it."""
    constant: str | None = None
    """The entity that the rule predicts; None for a cyclic rule, which predicts where the body ends."""
    end: str | None = None
    """Where the body of an acyclic rule has to end; None for anywhere."""
    predicted: int | None = None
    """What the body predicts on the training graph; None for a model that does not count."""
    support: int | None = None
    """How much of that is true there."""

    def text(self, relations: RelationVocabulary) -> str:
        """With labels, the relations in their own direction."""
        inner = list(INNER_VARIABLES[: max(len(self.body) - 1, 0)])
        last = "Y" if self.constant is None else _free_variable(self.body)
        if self.end is not None:
            last = _quoted(self.end, constant=True)
        head_end = "Y" if self.constant is None else _quoted(self.constant, constant=True)
        head = _atom(self.relation, "X", head_end, relations)
        places = ["X", *inner, last]
        atoms = [
            _atom(relation, places[step], places[step + 1], relations)
            for step, relation in enumerate(self.body)
        ]
        return f"{head} {ARROW} {', '.join(atoms)}".rstrip()


def _free_variable(body: Sequence[int]) -> str:
    return INNER_VARIABLES[max(len(body) - 1, 0)]


def _atom(relation: int, source: str, target: str, relations: RelationVocabulary) -> str:
    """`r(source,target)`; walked against its direction the places are swapped."""
    if relation < relations.num_relations:
        return f"{_quoted(relations.forward[relation])}({source},{target})"
    return f"{_quoted(relations.forward[relation - relations.num_relations])}({target},{source})"


def _quoted(label: str, constant: bool = False) -> str:
    plain = _PLAIN.fullmatch(label) and not (constant and _VARIABLE.fullmatch(label))
    return label if plain else json.dumps(label, ensure_ascii=False)


# reading


class _Term(NamedTuple):
    text: str
    is_variable: bool


class _Atom(NamedTuple):
    relation: int
    source: _Term
    target: _Term

    def turned(self, num_relations: int) -> _Atom:
        return _Atom(inverse(self.relation, num_relations), self.target, self.source)


def parse_rule(
    text: str,
    relations: RelationVocabulary,
    *,
    confidence: float = 0.0,
    predicted: int | None = None,
    support: int | None = None,
    where: str = "",
) -> Rule:
    """The rule that `text` writes, atoms of the body in any order. What is no path rule is refused with its place."""
    place = f"{where}: " if where else ""
    head, rest = _read_atom(text, relations, place, text)
    if not rest.startswith(ARROW):
        raise DataError(
            f"{place}{shortened(text)} has no {ARROW!r} after its head. Write head(X,Y) {ARROW} body."
        )
    body = _read_body(rest[len(ARROW) :], relations, place, text)
    start, goal = _ends(head, relations.num_relations, place, text)
    steps, last = _chained(start.source, body, goal, relations.num_relations, place, text)
    counts = {"confidence": confidence, "predicted": predicted, "support": support}
    constant = None if goal.is_variable else goal.text
    end = last.text if constant is not None and steps and not last.is_variable else None
    return Rule(start.relation, steps, constant=constant, end=end, **counts)  # type: ignore[arg-type]


def _read_atom(text: str, relations: RelationVocabulary, place: str, whole: str) -> tuple[_Atom, str]:
    found = _ATOM.match(text)
    if found is None:
        raise DataError(
            f"{place}{shortened(whole)} cannot be read at {shortened(text[:40])}. An atom is relation(X,Y); "
            "a label with a space, a comma, a quote or a bracket stands in double quotes."
        )
    try:
        relation, source, target = (_term(part) for part in found.groups())
    except ValueError as error:
        raise DataError(f"{place}{shortened(whole)}: a quoted label is not JSON ({error}).") from None
    return _Atom(relations.id_of(relation.text), source, target), text[found.end() :]


def _read_body(text: str, relations: RelationVocabulary, place: str, whole: str) -> list[_Atom]:
    atoms: list[_Atom] = []
    text = text.strip()
    while text:
        if atoms and not text.startswith(","):
            raise DataError(f"{place}{shortened(whole)}: atoms of a body are separated by commas.")
        atom, text = _read_atom(text.removeprefix(","), relations, place, whole)
        atoms.append(atom)
    if len(atoms) > MAX_LENGTH:
        raise DataError(
            f"{place}{shortened(whole)}: a body has at most {MAX_LENGTH} atoms, not {len(atoms)}."
        )
    return atoms


def _term(text: str) -> _Term:
    plain = str(json.loads(text)) if text.startswith('"') else text
    return _Term(plain, _VARIABLE.fullmatch(text) is not None)


def _ends(head: _Atom, num_relations: int, place: str, whole: str) -> tuple[_Atom, _Term]:
    """The head as it is walked from its first variable, and where it leads to."""
    if not head.source.is_variable and not head.target.is_variable:
        raise DataError(f"{place}{shortened(whole)}: one place of the head has to be a variable.")
    walked = head if head.source.is_variable else head.turned(num_relations)
    return walked, walked.target


def _chained(
    start: _Term, body: list[_Atom], goal: _Term, num_relations: int, place: str, whole: str
) -> tuple[tuple[int, ...], _Term]:
    """The body as relations of one walk from the start, and the term that it ends in."""
    steps, here, left, visited = [], start, list(body), {start}
    while left:
        fitting = [atom for atom in left if here in (atom.source, atom.target)]
        if not here.is_variable or len(fitting) != 1:
            raise DataError(
                f"{place}{shortened(whole)}: its body is not one walk that starts at {start.text}."
            )
        left.remove(fitting[0])
        walked = fitting[0] if fitting[0].source == here else fitting[0].turned(num_relations)
        steps.append(walked.relation)
        here = walked.target
        if here in visited:
            raise DataError(f"{place}{shortened(whole)}: its body comes to {here.text} twice.")
        visited.add(here)
    if goal.is_variable and here != goal:
        raise DataError(f"{place}{shortened(whole)}: its body does not lead to {goal.text}.")
    return tuple(steps), here
