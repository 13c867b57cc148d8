"""redgnn: one graph whose training triples are divided into facts to walk on and train to ask."""

from __future__ import annotations

from pathlib import Path

from contextpool.errors import DataError, TripleFileError, shortened
from contextpool.triples.dataset import Dataset
from contextpool.triples.files import atomic_file, numbered_lines, write_triples
from contextpool.triples.formats.folder import Folder, listing, named_folder
from contextpool.triples.formats.layout import Layout
from contextpool.triples.formats.parts import Admission, OnUnknown, Part, known_relations, read_part

_WHY = "A RED-GNN folder holds facts.txt, train.txt, valid.txt and test.txt."


def _load(folder: Folder, name: str | None, on_unknown: OnUnknown) -> Dataset:
    """entities.txt and relations.txt, where they are there, have to list everything that the files use."""
    facts, train = (read_part(folder.need(stem, _WHY)) for stem in ("facts", "train"))
    home = _home_of_queries(folder)
    valid, test = (read_part(home.need(stem, _WHY)) for stem in ("valid", "test"))
    _check_lists(folder, [facts, train, valid, test])
    admission = Admission(known_relations(facts, train), on_unknown)
    held_out = [admission.admit(part) for part in (valid, test)]
    return Dataset.from_one_graph(
        name or named_folder(folder.path).name,
        train=train.triples,
        valid=held_out[0],
        test=held_out[1],
        facts=facts.triples,
        skipped=admission.skipped,
    )


def _home_of_queries(folder: Folder) -> Folder:
    """Where valid and test are: here, or in `../../grail/<its name>`, whose train.txt is divided here."""
    if folder.has("valid") or folder.has("test"):
        return folder
    path = named_folder(folder.path)
    other = named_folder(path.parent).parent / "grail" / path.name
    if other.is_dir():
        return Folder.at(other)
    raise DataError(
        f"{folder.path}: valid.txt and test.txt are missing (found: {listing(folder.path)}), and there is no "
        f"folder {other} to take them from. {_WHY}"
    )


def _check_lists(folder: Folder, parts: list[Part]) -> None:
    for stem, kind in (("entities", "entity"), ("relations", "relation")):
        path = folder.get(stem)
        if path is not None:
            listed = _listed(path)
            for part in parts:
                vocabulary = part.triples.entities if kind == "entity" else part.triples.relations
                _check_listed(path, listed, part.path, vocabulary.labels, kind)


def _listed(path: Path) -> set[str]:
    """The labels of a list: one a line, alone or with its id after a tab."""
    listed: set[str] = set()
    for number, text in numbered_lines(path):
        label = text.split("\t")[0]
        if label in listed:
            raise TripleFileError(
                path, number, f"{shortened(label)} is listed twice. Remove one of the lines."
            )
        listed.add(label)
    return listed


def _check_listed(path: Path, listed: set[str], used_in: Path, labels: tuple[str, ...], kind: str) -> None:
    missing = [label for label in labels if label not in listed]
    if missing:
        raise DataError(
            f"{path}: it does not list the {kind} {shortened(missing[0])} of {used_in} ({len(missing):,} "
            "missing). Complete the list, or remove it: it is only used for this check."
        )


def _cannot_hold(dataset: Dataset) -> str | None:
    if dataset.inductive:
        return "it has a second graph to evaluate on, and the layout holds one graph"
    return "its training triples are not divided into facts and train" if dataset.facts is None else None


def _write(dataset: Dataset, folder: Path) -> None:
    write_triples(folder / "facts.txt", dataset.facts or [])
    write_triples(folder / "train.txt", dataset.train or [])
    write_triples(folder / "valid.txt", dataset.validation_queries)
    write_triples(folder / "test.txt", dataset.inference_test)
    _write_list(folder / "entities.txt", dataset.training_entities.labels)
    _write_list(folder / "relations.txt", dataset.relations.labels)


def _write_list(path: Path, labels: tuple[str, ...]) -> None:
    with atomic_file(path) as sink:
        sink.writelines(f"{label}\n".encode() for label in labels)


REDGNN = Layout(
    name="redgnn",
    holds="facts.txt train.txt valid.txt test.txt (the last two perhaps in ../../grail/<same name>)",
    matches=lambda folder: folder.has("facts"),
    load=_load,
    cannot_hold=_cannot_hold,
    write=_write,
)
