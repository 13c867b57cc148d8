"""Rules as text: what a rule model learned, for people to read.

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

from contextpool.graph.relations import RelationVocabulary

ARROW = "<="
INNER_VARIABLES = "ABCDEFGHIJKLMNOPQRSTUVW"
MAX_LENGTH = 8
"""Atoms that a body may have."""

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
