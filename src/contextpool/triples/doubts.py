"""Data that can be read, but is probably not what it seems: a header as a fact, swapped columns, names twice.

Each doubt says where, what, and what to type if it is right. None is told of a benchmark graph that is as it should
be: each asks for evidence that such graphs do not give. Nor is one told of what was asked for: `header=no`, `columns=`
and `merge=no` silence them.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from contextpool.errors import shortened
from contextpool.triples.sources.address import RDF_KINDS
from contextpool.triples.sources.columns import customary_columns
from contextpool.triples.sources.reading import Reading

_ENOUGH_FACTS = 20
"""Below that a column with few values, or a name that occurs once, says nothing."""
_SEVERAL = 3
"""How many times as many values the column of relations has to have as the one that may be meant."""
_ROWS_A_VALUE = 20
"""Relations repeat: a column with more than one value in so many rows is not one of them."""


_WHITE = [sign for sign in map(chr, range(0x3001)) if sign.isspace() and sign not in " \n"]
"""White space but for the space itself."""
_TWINS_SHARE = 5
"""Where more than one entity in so many has a twin in another case, case is meant."""
_COLUMN_NAMES = (
    {"head", "subject", "source", "from", "src", "start", "origin", "entity", "node", "item", "id", "name", "who"},
    {"relation", "relationship", "rel", "predicate", "pred", "property", "prop", "attribute", "attr",
     "kind", "type", "label", "edge", "link", "how", "verb", "key", "field"},
    {"tail", "object", "target", "to", "dst", "dest", "destination", "end", "value", "val", "whom", "what"},
)  # fmt: skip
"""What columns of heads, of relations and of tails are often called, beside what `customary_columns` knows."""


@dataclass(frozen=True)
class Rows:
    """What was read, in the order of the source."""

    reading: Reading
    ids: npt.NDArray[np.int32]
    """[rows, 3] head, relation, tail."""
    entities: Sequence[str]
    relations: Sequence[str]


def doubts(rows: Rows) -> list[str]:
    """What to tell about the data, a line each. O(rows + labels)."""
    of_columns = (_header(rows), _swapped(rows)) if len(rows.ids) else ()
    return [line for line in (*of_columns, *_same_names(rows)) if line]


def _header(rows: Rows) -> str | None:
    """A first line of names that was taken for a fact: customary names, or three that occur there alone."""
    reading = rows.reading
    if reading.header is not False or "header" in reading.address.options:
        return None
    names = _first(rows)
    if not customary_columns(names) and not (_occurs_alone(rows) and _differs(rows)):
        return None
    listed = ", ".join(map(shortened, names))
    return (
        f"{reading.place_of(0)}: {listed} look like the names of the columns, and are read as a fact. If they are "
        f"names, {reading.instead(header='yes')}"
    )


def _occurs_alone(rows: Rows) -> bool:
    """Whether no label of the first row, none with a digit, is in another row, of which there has to be one."""
    if len(rows.ids) == 1 or any(any(map(str.isdigit, name)) for name in _first(rows)):
        return False
    head, relation, tail = rows.ids[0].tolist()
    ends = rows.ids[:, [0, 2]]
    return bool((ends == head).sum() == (ends == tail).sum() == (rows.ids[:, 1] == relation).sum() == 1)


def _differs(rows: Rows) -> bool:
    """Whether a first row that occurs alone is no fact like the others.

    Two of its labels are what columns are often called; or every other relation occurs again and again; or, where
    facts are too few to tell by that, some other relation does, and only the first row has entities in small letters.
    """
    if sum(_column_name(name) in usual for name, usual in zip(_first(rows), _COLUMN_NAMES, strict=True)) > 1:
        return True
    others = np.unique(rows.ids[1:, 1], return_counts=True)[1]
    if len(rows.ids) >= _ENOUGH_FACTS:
        return bool(others.min() > 1)
    ends = set(rows.ids[1:, [0, 2]].ravel().tolist())
    small = [name[0].islower() for name in _first(rows)]
    return bool(others.max() > 1) and all(small) and not any(rows.entities[end][0].islower() for end in ends)


def _column_name(label: str) -> str:
    """Without what tells which form of a thing is in the column: `source_id`, `target_label`."""
    return re.sub("_(id|name|label|iri|uri)$", "", label.strip().casefold())


def _first(rows: Rows) -> tuple[str, str, str]:
    head, relation, tail = rows.ids[0].tolist()
    return rows.entities[head], rows.relations[relation], rows.entities[tail]


def _swapped(rows: Rows) -> str | None:
    """An end with few different values, where the column of relations has many: relations are what repeats."""
    values = [np.flatnonzero(np.bincount(rows.ids[:, column])) for column in range(3)]
    few = 0 if len(values[0]) < len(values[2]) else 2
    reading = rows.reading
    if reading.columns is None or "columns" in reading.address.options:  # what was asked for is meant
        return None
    if len(rows.ids) < _ENOUGH_FACTS or not _looks_swapped(rows, values, few):
        return None
    order = (1, 0, 2) if few == 0 else (0, 2, 1)
    columns = [reading.columns[position] for position in order]
    asked = tuple(columns) if reading.address.kind == "object" else ",".join(map(str, columns))
    middle, end = (shortened(_first(rows)[column]) for column in (1, few))
    return (
        f"{reading.place_of(0)}: is {middle} a relation? That column has {len(values[1]):,} different values, the one "
        f"of {'heads' if few == 0 else 'tails'} {len(values[few]):,}, such as {end}. If those are the relations, "
        f"{reading.instead(columns=asked)}"
    )


def _looks_swapped(rows: Rows, values: Sequence[npt.NDArray[np.intp]], few: int) -> bool:
    """Values in the place of relations that are entities elsewhere, or that hardly ever repeat."""
    middle, ends = len(values[1]), len(values[few])
    other = {rows.entities[number] for number in values[2 - few].tolist()}
    shared = len(np.intersect1d(values[0], values[2], assume_unique=True))
    as_entities = sum(label in other for label in rows.relations)
    if shared or ends >= middle:
        return False
    return 2 * as_entities >= middle or (
        _SEVERAL * ends <= middle and _ROWS_A_VALUE * middle >= len(rows.ids)
    )


@dataclass(frozen=True)
class _Alike:
    """Labels of entities, or of relations, that differ by spaces or case only; groups of their numbers."""

    kind: str
    labels: Sequence[str]
    places: tuple[int, ...]
    """Where they stand in a row."""
    by_spaces: list[list[int]]
    by_case: list[list[int]]
    """Those that even spaces would leave."""


def _same_names(rows: Rows) -> list[str]:
    """Entities, and relations, whose names differ by spaces or case only; in RDF they are no names, but identifiers."""
    if rows.reading.address.kind in RDF_KINDS or rows.reading.merge == "no":
        return []
    kinds = _alike("entities", rows.entities, (0, 2)), _alike("relations", rows.relations, (1,))
    merge = "case" if any(found.by_case for found in kinds) else "spaces"  # case makes spaces even, too
    return [_told(rows, found, merge) for found in kinds if found.by_spaces or found.by_case]


def _alike(kind: str, labels: Sequence[str], places: tuple[int, ...]) -> _Alike:
    text = "\n".join(labels)
    by_spaces = _groups(labels, _spaced) if _has_odd_spaces(text) else []
    groups = _groups(labels, _named) if _has_twins(text) else []
    even = (sorted({_spaced(labels[number]): number for number in group[::-1]}.values()) for group in groups)
    by_case = [group for group in even if len(group) > 1]
    meant = kind == "entities" and _TWINS_SHARE * len(by_case) > len(labels)
    return _Alike(kind, labels, places, by_spaces, [] if meant else by_case)


def _told(rows: Rows, found: _Alike, merge: str) -> str:
    """The first of the names that are alike, at the line where the second of its spellings comes first."""
    several = [groups for groups in (found.by_spaces, found.by_case) if groups]
    row = int((rows.ids[:, found.places] == _first_pair(several[0])[1]).any(axis=1).argmax())
    differing = "; ".join(_differing(found, groups) for groups in several)
    return f"{rows.reading.place_of(row)}: {differing}. If they are one, {rows.reading.instead(merge=merge)}"


def _first_pair(groups: Sequence[Sequence[int]]) -> Sequence[int]:
    return min(groups, key=lambda numbers: numbers[1])[:2]


def _differing(found: _Alike, groups: Sequence[Sequence[int]]) -> str:
    one, other = (found.labels[number] for number in _first_pair(groups))
    by = "case" if one.casefold() == other.casefold() else "spaces and case"
    by = "spaces" if _spaced(one) == _spaced(other) else by
    more = f" ({len(groups):,} such pairs)" if len(groups) > 1 else ""
    return f"{shortened(one)} and {shortened(other)} differ by {by} only, and are two {found.kind}{more}"


def _groups(labels: Sequence[str], fold: Callable[[str], str]) -> list[list[int]]:
    """The numbers of labels that are one when folded, for those that are several."""
    groups: dict[str, list[int]] = defaultdict(list)
    for number, label in enumerate(labels):
        groups[fold(label)].append(number)
    return [numbers for numbers in groups.values() if len(numbers) > 1]


def _has_odd_spaces(text: str) -> bool:
    """Whether a line may be another one when `_spaced`; a few looks at all of them instead of one at each."""
    return any(odd in f"\n{text}\n" for odd in ("  ", "\n ", " \n", *_WHITE))


def _has_twins(text: str) -> bool:
    """Whether two lines may be one when `_named`."""
    folded = text.casefold().split("\n")
    return len(set(folded)) < len(folded) or _has_odd_spaces(text)


def _spaced(label: str) -> str:
    """One space for any run of white space, none at the ends; the label itself where nothing else is in it."""
    return " ".join(label.split()) or label


def _folded(label: str) -> str:
    return _spaced(label).casefold()


def _named(label: str) -> str:
    """Folded, unless case is likely to be meant: in letters, initials and addresses."""
    return _folded(label) if len(_spaced(label)) > 3 and "://" not in label else label


def merge_names(rows: Rows) -> Rows:
    """With `merge=spaces` white space made even; with `merge=case` also the most frequent spelling of each name."""
    if rows.reading.merge in (None, "no"):
        return rows
    fold = _folded if rows.reading.merge == "case" else _spaced
    ids = rows.ids.copy()
    entities, ids[:, [0, 2]] = _merged(rows.entities, rows.ids[:, [0, 2]], fold)
    relations, ids[:, 1] = _merged(rows.relations, rows.ids[:, 1], fold)
    return Rows(rows.reading, ids, entities, relations)


def _merged(labels: Sequence[str], ids: Any, fold: Callable[[str], str]) -> tuple[list[str], Any]:
    """The labels that stay, and the ids as numbers of those."""
    occurrences = np.bincount(ids.ravel(), minlength=len(labels)).tolist()
    spellings: dict[str, Counter[str]] = defaultdict(Counter)
    for label, count in zip(labels, occurrences, strict=True):
        spellings[fold(label)][_spaced(label)] += count
    number = {key: position for position, key in enumerate(spellings)}
    best = [min(found, key=lambda name: (-found[name], name)) for found in spellings.values()]
    moved = np.array([number[fold(label)] for label in labels], dtype=np.int32)
    return best, moved[ids]
