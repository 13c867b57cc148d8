"""Many rules as arrays: what AnyBURL learns, stores and applies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from contextpool.errors import DataError, shortened
from contextpool.graph.relations import RelationVocabulary, inverse
from contextpool.models.rules import MAX_LENGTH, Rule, parse_rule

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

NONE = -1
RELATION, CONSTANT, END, BODY = 0, 1, 2, 3
"""Columns of a row; the body takes the rest of it, filled up with NONE."""


@dataclass(frozen=True, eq=False)
class RuleSet:
    """K rules with what they predicted and how much of it was true on the training graph."""

    rows: Int32s
    """[K, 3 + L] directed relation of the head, constant that it predicts, constant that the body ends in, body."""
    predicted: Int64s  # [K]
    support: Int64s  # [K]
    constants: tuple[str, ...] = ()
    """Labels of the constants that rows number."""

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
        return RuleSet(self.rows[keep], self.predicted[keep], self.support[keep], self.constants)

    def sorted(self, pessimism: float) -> RuleSet:
        """By confidence, the highest first, then by length, relation, constants and body; constants by label."""
        tidy = self._with_sorted_constants()
        columns: list[Any] = [tidy.rows[:, place] for place in reversed(range(tidy.rows.shape[1]))]
        return tidy.select(np.lexsort([*columns, tidy.length, -tidy.confidence(pessimism)]))

    def _with_sorted_constants(self) -> RuleSet:
        """Only the constants that occur, in the order of their labels."""
        used = np.unique(self.rows[:, CONSTANT : END + 1])
        used = used[used != NONE]
        kept = sorted(used.tolist(), key=self.constants.__getitem__)
        number = np.full(len(self.constants) + 1, NONE, dtype=np.int32)  # the last one is that of NONE
        number[kept] = np.arange(len(kept))
        rows = self.rows.copy()
        rows[:, CONSTANT : END + 1] = number[rows[:, CONSTANT : END + 1]]
        return RuleSet(rows, self.predicted, self.support, tuple(self.constants[place] for place in kept))

    # as rules and as text

    def rule(self, number: int, pessimism: float = 0.0) -> Rule:
        relation, constant, end, *body = self.rows[number].tolist()
        predicted, support = int(self.predicted[number]), int(self.support[number])
        return Rule(
            relation,
            tuple(step for step in body if step != NONE),
            float(support / max(predicted + pessimism, 1e-9)),
            None if constant == NONE else self.constants[constant],
            None if end == NONE else self.constants[end],
            predicted,
            support,
        )

    def lines(self, relations: RelationVocabulary) -> Iterator[str]:
        """One rule a line: predicted, support, their ratio, the rule; separated by tabs."""
        for number in range(len(self)):
            rule = self.rule(number)
            yield f"{rule.predicted}\t{rule.support}\t{rule.confidence!r}\t{rule.text(relations)}"

    @classmethod
    def of_rules(cls, rules: Sequence[Rule]) -> RuleSet:
        """A set of these rules, each of which needs its counts."""
        found = {label for rule in rules for label in (rule.constant, rule.end) if label is not None}
        constants = tuple(sorted(found))
        number = {label: place for place, label in enumerate(constants)} | {None: NONE}
        longest = max((len(rule.body) for rule in rules), default=0)
        rows = np.full((len(rules), BODY + longest), NONE, dtype=np.int32)
        for row, rule in zip(rows, rules, strict=True):
            row[:BODY] = rule.relation, number[rule.constant], number[rule.end]
            row[BODY : BODY + len(rule.body)] = rule.body
        counts = np.array([(rule.predicted or 0, rule.support or 0) for rule in rules], dtype=np.int64)
        predicted, support = counts.reshape(-1, 2).T
        return cls(rows, np.ascontiguousarray(predicted), np.ascontiguousarray(support), constants)

    @classmethod
    def from_lines(cls, lines: Iterable[str], relations: RelationVocabulary) -> RuleSet:
        """What `lines` wrote, or AnyBURL; an empty line is none, a wrong one is refused by its number."""
        rules = [
            _read_line(line, relations, f"rules:{number}")
            for number, line in enumerate(lines, start=1)
            if line.strip()
        ]
        return cls.of_rules([_forward(rule, relations.num_relations) for rule in rules])

    # as tensors

    def to_tensors(self) -> dict[str, Tensor]:
        labels = "\n".join(self.constants).encode("utf-8")
        return {
            "rows": torch.from_numpy(self.rows.copy()),
            "predicted": torch.from_numpy(self.predicted.copy()),
            "support": torch.from_numpy(self.support.copy()),
            "constants": torch.frombuffer(bytearray(labels), dtype=torch.uint8)
            if labels
            else torch.zeros(0, dtype=torch.uint8),
        }

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor], num_relations: int) -> RuleSet:
        """Checked: compiled code does not look where it reads."""
        arrays = {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}
        labels = arrays["constants"].tobytes().decode("utf-8", "replace")
        constants = tuple(labels.split("\n")) if labels else ()
        found = cls(arrays["rows"], arrays["predicted"], arrays["support"], constants)
        found._check(num_relations)
        return found

    def _check(self, num_relations: int) -> None:
        rows, count = self.rows, len(self.rows)
        fits = rows.ndim == 2 and BODY <= rows.shape[1] <= BODY + MAX_LENGTH and rows.dtype == np.int32
        fits = fits and self.predicted.shape == self.support.shape == (count,)
        fits = fits and self.predicted.dtype == self.support.dtype == np.int64
        if fits and count:
            heads, ends, body = rows[:, RELATION], rows[:, CONSTANT : END + 1], rows[:, BODY:]
            filled = body != NONE
            fits = (
                heads.min() >= 0
                and max(heads.max(), body.max(initial=NONE)) < 2 * num_relations
                and min(ends.min(), body.min(initial=NONE)) >= NONE
                and ends.max() < len(self.constants)
                and not (filled[:, 1:] & ~filled[:, :-1]).any()
                and not ((ends[:, 0] == NONE) & ~filled.any(axis=1)).any()
            )
        if not fits:
            raise DataError(
                f"the stored rules do not fit {num_relations:,} relations and {len(self.constants):,} constants; "
                "the file is damaged, or another model's. Train again."
            )


def _read_line(line: str, relations: RelationVocabulary, where: str) -> Rule:
    columns = line.rstrip("\n").split("\t", 3)
    if len(columns) != 4 or not (columns[0].isdecimal() and columns[1].isdecimal()):
        raise DataError(
            f"{where}: {shortened(line)} is no rule; a line is predicted, support, confidence and rule, with tabs."
        )
    predicted, support = int(columns[0]), int(columns[1])
    if support > predicted:
        raise DataError(f"{where}: {support:,} of {predicted:,} predictions cannot be true.")
    confidence = support / max(predicted, 1)
    return parse_rule(
        columns[3], relations, confidence=confidence, predicted=predicted, support=support, where=where
    )


def _forward(rule: Rule, num_relations: int) -> Rule:
    """A cyclic rule is kept in the direction of its relation; the other follows from it."""
    if rule.constant is not None or rule.relation < num_relations:
        return rule
    turned = tuple(inverse(step, num_relations) for step in reversed(rule.body))
    head = inverse(rule.relation, num_relations)
    return Rule(head, turned, rule.confidence, predicted=rule.predicted, support=rule.support)
