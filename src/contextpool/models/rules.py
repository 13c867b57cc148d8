"""Rules: one of them, many as arrays (what AnyBURL learns, stores and applies), and as text for people to read.

    speaks(X,Y) <= lives_in(X,A), language(A,Y)        the body leads from X to Y

The notation is AnyBURL's. A single capital letter within brackets is a variable. Labels that hold a space, a quote, a
comma or a bracket stand in double quotes as JSON writes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from contextpool.errors import DataError
from contextpool.graph.relations import RelationVocabulary

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

ARROW = "<="
INNER_VARIABLES = "ABCDEFGHIJKLMNOPQRSTUVW"
MAX_LENGTH = 8
"""Atoms that a body may have."""
NONE = -1
RELATION, BODY = 0, 1
"""Columns of a row; the body takes the rest of it, filled up with NONE."""

_PLAIN = re.compile(r'[^\s"(),]+')


@dataclass(frozen=True)
class Rule:
    """relation(X,Y) <= body; relations are directed, in [0, 2R)."""

    relation: int
    body: tuple[int, ...]
    """The relations of a walk from X to Y."""
    confidence: float
    """Between 0 and 1: how far the model trusts it."""
    predicted: int | None = None
    """What the body predicts on the training graph; None for a model that does not count."""
    support: int | None = None
    """How much of that is true there."""

    def text(self, relations: RelationVocabulary) -> str:
        """With labels, the relations in their own direction."""
        head = _atom(self.relation, "X", "Y", relations)
        places = ["X", *INNER_VARIABLES[: len(self.body) - 1], "Y"]
        atoms = [
            _atom(relation, places[step], places[step + 1], relations)
            for step, relation in enumerate(self.body)
        ]
        return f"{head} {ARROW} {', '.join(atoms)}".rstrip()


def _atom(relation: int, source: str, target: str, relations: RelationVocabulary) -> str:
    """`r(source,target)`; walked against its direction the places are swapped."""
    if relation < relations.num_relations:
        return f"{_quoted(relations.forward[relation])}({source},{target})"
    return f"{_quoted(relations.forward[relation - relations.num_relations])}({target},{source})"


def _quoted(label: str) -> str:
    return label if _PLAIN.fullmatch(label) else json.dumps(label, ensure_ascii=False)


@dataclass(frozen=True, eq=False)
class RuleSet:
    """K rules with what they predicted and how much of it was true on the training graph."""

    rows: Int32s  # [K, 1 + L] directed relation of the head, body
    predicted: Int64s  # [K]
    support: Int64s  # [K]

    @classmethod
    def empty(cls, length: int = 0) -> RuleSet:
        nothing = np.zeros(0, dtype=np.int64)
        return cls(np.zeros((0, BODY + length), dtype=np.int32), nothing, nothing)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def length(self) -> Int64s:
        """[K] atoms in each body."""
        lengths: Int64s = (self.rows[:, BODY:] != NONE).sum(axis=1)
        return lengths

    @property
    def longest(self) -> int:
        return int(self.length.max(initial=0))

    def confidence(self, pessimism: float) -> Floats:
        """[K] support / (predicted + pessimism): few predictions are not trusted far."""
        ratio: Floats = self.support / np.maximum(self.predicted + pessimism, 1e-9)
        return ratio

    def select(self, keep: npt.NDArray[np.bool_] | Int64s) -> RuleSet:
        return RuleSet(self.rows[keep], self.predicted[keep], self.support[keep])

    def sorted(self, pessimism: float) -> RuleSet:
        """By confidence, the highest first, then by length, relation and body."""
        columns: list[Any] = [self.rows[:, place] for place in reversed(range(self.rows.shape[1]))]
        return self.select(np.lexsort([*columns, self.length, -self.confidence(pessimism)]))

    # as rules and as text

    def rule(self, number: int, pessimism: float = 0.0) -> Rule:
        relation, *body = self.rows[number].tolist()
        predicted, support = int(self.predicted[number]), int(self.support[number])
        return Rule(
            relation,
            tuple(step for step in body if step != NONE),
            float(support / max(predicted + pessimism, 1e-9)),
            predicted,
            support,
        )

    def lines(self, relations: RelationVocabulary) -> Iterator[str]:
        """One rule a line: predicted, support, their ratio, the rule; separated by tabs."""
        for number in range(len(self)):
            rule = self.rule(number)
            yield f"{rule.predicted}\t{rule.support}\t{rule.confidence!r}\t{rule.text(relations)}"

    # as tensors

    def to_tensors(self) -> dict[str, Tensor]:
        return {
            "rows": torch.from_numpy(self.rows.copy()),
            "predicted": torch.from_numpy(self.predicted.copy()),
            "support": torch.from_numpy(self.support.copy()),
        }

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor], num_relations: int) -> RuleSet:
        """Checked: compiled code does not look where it reads."""
        arrays = {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}
        found = cls(arrays["rows"], arrays["predicted"], arrays["support"])
        found._check(num_relations)
        return found

    def _check(self, num_relations: int) -> None:
        rows, count = self.rows, len(self.rows)
        fits = rows.ndim == 2 and BODY <= rows.shape[1] <= BODY + MAX_LENGTH and rows.dtype == np.int32
        fits = fits and self.predicted.shape == self.support.shape == (count,)
        fits = fits and self.predicted.dtype == self.support.dtype == np.int64
        if fits and count:
            heads, body = rows[:, RELATION], rows[:, BODY:]
            filled = body != NONE
            fits = (
                heads.min() >= 0
                and max(heads.max(), body.max(initial=NONE)) < 2 * num_relations
                and body.min(initial=NONE) >= NONE
                and not (filled[:, 1:] & ~filled[:, :-1]).any()
                and filled.any(axis=1).all()
            )
        if not fits:
            raise DataError(
                f"the stored rules do not fit {num_relations:,} relations; the file is damaged, or another model's. "
                "Train again."
            )
