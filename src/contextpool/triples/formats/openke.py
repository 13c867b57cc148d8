"""openke: one graph in numbers, with two lists that name them; lines are head, TAIL, relation."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from itertools import chain
from pathlib import Path

import numpy as np

from contextpool.errors import DataError, TripleFileError, shortened
from contextpool.triples.dataset import Dataset, used_only
from contextpool.triples.files import numbered_lines, write_lines
from contextpool.triples.formats.parts import Folder, OnUnknown, Part, one_graph
from contextpool.triples.labels import problem_in_role
from contextpool.triples.store import Ids, Triples

_WHY = "An OpenKE folder holds train2id.txt, valid2id.txt, test2id.txt, entity2id.txt and relation2id.txt."
_COUNT = re.compile(r"[0-9]{1,18}")
_NUMBERS = re.compile(r"([0-9]{1,18})[ \t]+([0-9]{1,18})[ \t]+([0-9]{1,18})[ \t]*")


def load_openke(folder: Folder, name: str | None, on_unknown: OnUnknown) -> Dataset:
    """An entity that entity2id lists but no triple names is not part of the graph, and not of the dataset."""
    entities = _read_list(folder.need("entity2id", _WHY), "entity")
    relations = _read_list(folder.need("relation2id", _WHY), "relation")
    train, valid, test = (
        _read_part(folder.need(f"{stem}2id", _WHY), entities, relations)
        for stem in ("train", "valid", "test")
    )
    return one_graph(name or folder.path.name, on_unknown, train, valid, test)


def write_openke(dataset: Dataset, folder: Path) -> None:
    """Into an empty folder."""
    lists = {"entity": dataset.training_entities.labels, "relation": dataset.relations.labels}
    for stem, labels in lists.items():
        lines = (f"{label}\t{number}" for number, label in enumerate(labels))
        write_lines(folder / f"{stem}2id.txt", chain([str(len(labels))], lines))
    parts = {
        "train": dataset.training_graph,
        "valid": dataset.validation_queries,
        "test": dataset.inference_test,
    }
    for stem, triples in parts.items():
        lines = (f"{head} {tail} {relation}" for head, relation, tail in triples.ids.tolist())
        write_lines(folder / f"{stem}2id.txt", chain([str(len(triples))], lines))


def _counted_lines(path: Path) -> Iterator[tuple[int, str]]:
    """(line number, text) of the lines after the first, which has to say how many there are."""
    lines = numbered_lines(path)
    _, first = next(lines, (1, ""))
    if not _COUNT.fullmatch(first.strip(" \t")):
        what = f"{shortened(first)} is not a count. The first line says how many lines follow."
        raise TripleFileError(path, 1, what)
    number = 1
    for number, text in lines:
        yield number, text
    if number - 1 != int(first):
        raise TripleFileError(
            path,
            1,
            f"the count is {int(first):,}, but {number - 1:,} lines follow. Lines are missing or added.",
        )


def _read_list(path: Path, kind: str) -> list[str]:
    """The labels of `label TAB id` lines by id. The ids are 0, 1, ... but the lines may be in any order."""
    label_of: dict[int, str] = {}
    lines: list[tuple[int, int]] = []
    for number, text in _counted_lines(path):
        label, tab, id_text = text.rpartition("\t")
        problem = problem_in_role(label, kind) if tab and _COUNT.fullmatch(id_text) else "is not label TAB id"
        if problem:
            raise TripleFileError(path, number, f"the {kind} {shortened(label or text)} {problem}.")
        if int(id_text) in label_of:
            raise TripleFileError(
                path, number, f"the id {id_text} has occurred before. Ids have to be unique."
            )
        label_of[int(id_text)] = label
        lines.append((number, int(id_text)))
    _check_list(path, label_of, lines)
    return [label_of[position] for position in range(len(label_of))]


def _check_list(path: Path, label_of: dict[int, str], lines: list[tuple[int, int]]) -> None:
    """Ids below their number, labels unique."""
    seen: set[str] = set()
    for number, position in lines:
        if position >= len(lines):
            what = f"the id {position} is out of range: {len(lines):,} lines have the ids from 0 on."
            raise TripleFileError(path, number, what)
        if label_of[position] in seen:
            what = f"{shortened(label_of[position])} has occurred before. Labels have to be unique."
            raise TripleFileError(path, number, what)
        seen.add(label_of[position])


def _read_part(path: Path, entities: list[str], relations: list[str]) -> Part:
    ids = _read_ids(path, len(entities), len(relations))  # [T, 3] head, relation, tail, as numbered here
    if len(ids) == 0:
        raise DataError(f"{path}: the file holds no triples.")

    def first_naming(wanted: Collection[str]) -> tuple[int, str]:
        for row, relation in enumerate(ids[:, 1].tolist()):
            if relations[relation] in wanted:
                return row + 2, relations[relation]  # after the count, which is line 1
        raise AssertionError("asked for a relation that no line names")

    return Part(path, used_only(Triples.from_numbers(ids, entities, relations)), first_naming)


def _read_ids(path: Path, num_entities: int, num_relations: int) -> Ids:
    rows: list[tuple[int, int, int]] = []
    for number, text in _counted_lines(path):
        match = _NUMBERS.fullmatch(text)
        if match is None:
            what = (
                f"{shortened(text)} is not three ids. Each line holds head, tail and relation, in this order."
            )
            raise TripleFileError(path, number, what)
        head, tail, relation = int(match[1]), int(match[2]), int(match[3])
        if max(head, tail) >= num_entities or relation >= num_relations:
            raise TripleFileError(
                path, number, _out_of_range(head, tail, relation, num_entities, num_relations)
            )
        rows.append((head, relation, tail))
    return np.array(rows, dtype=np.int32).reshape(-1, 3)


def _out_of_range(head: int, tail: int, relation: int, num_entities: int, num_relations: int) -> str:
    what = (
        f"entity id {max(head, tail)} is out of range: entity2id lists {num_entities:,}"
        if max(head, tail) >= num_entities
        else f"relation id {relation} is out of range: relation2id lists {num_relations:,}"
    )
    return f"{what}, numbered from 0. A line holds head, tail and relation, in this order."
