"""The training side of a dataset, read without opening a file that holds inference queries or inference facts.

A search has no use for them, so what it never opened cannot have helped it. The usual loader reads a folder of links
to the training files, in which the other files are stood in for by training files; those parts are then emptied.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Literal

import numpy as np

from contextpool.errors import ChecksumError, ConfigError, DataError
from contextpool.triples import catalog
from contextpool.triples.dataset import Dataset, joined
from contextpool.triples.filters import KnownAnswers
from contextpool.triples.formats import detect_layout, load_folder
from contextpool.triples.formats.layouts import pair_at
from contextpool.triples.formats.parts import Folder, named_folder
from contextpool.triples.split import split_triples
from contextpool.triples.store import Triples

Selection = Literal["validation", "pseudo-inductive"]
"""On the training graph's own queries, or on a half of it that shares no entity with the half trained on."""

_WHY = "A search needs the training files and the queries to select on."
_READ = {
    "flat": ("train", "valid"),
    "redgnn": ("facts", "train", "valid"),
    "grail": ("train", "valid", "test"),
    "openke": ("entity2id", "relation2id", "train2id", "valid2id"),
    "ilpc": ("train",),
}
"""Files of each layout that a search reads; a GraIL pair's are in its first folder, where test.txt selects."""
_READ_IF_THERE = {"ilpc": ("valid", "test"), "redgnn": ("entities", "relations")}
_STAND_INS = {
    "flat": {"test": "valid"},
    "redgnn": {"test": "valid"},
    "openke": {"test2id": "valid2id"},
    "ilpc": {"inference": "train", "inference_validation": "train", "inference_test": "train"},
    "grail": {},
}
"""File that is not read -> the training file in its place."""


@lru_cache(maxsize=32)
def selection_dataset(name_or_folder: str, select: Selection = "validation", seed: int = 0) -> Dataset:
    """What a search trains and selects on; read once a process. `seed` divides the graph where it is halved."""
    if select == "validation":
        return training_side(name_or_folder)
    if select == "pseudo-inductive":
        return halved(training_side(name_or_folder), seed)
    raise ConfigError(f"select is {select!r}; it is 'validation' or 'pseudo-inductive'.")


def training_side(name_or_folder: str) -> Dataset:
    """The dataset with its inference side empty; where it is transductive, with no test query."""
    folder, name = _located(name_or_folder)
    layout = detect_layout(folder)
    with tempfile.TemporaryDirectory(prefix="contextpool-") as shadow:
        place = _shadow(folder, layout, Path(shadow))
        dataset = load_folder(place, name=name or _own_name(folder, layout), layout=layout)
    return _emptied(dataset)


def _located(name_or_folder: str) -> tuple[Path, str | None]:
    """The folder, and the catalog's name for it; a named dataset's training files are compared with their checksums."""
    path = Path(name_or_folder).expanduser()
    known = {entry.name for entry in catalog.entries()}
    if name_or_folder not in known and path.exists():
        return named_folder(path), None
    entry = catalog.find(name_or_folder)
    if entry.embedded:
        located = catalog.locate(entry)
        assert located is not None  # it is part of the package
        return located, entry.name
    return _verified(entry), entry.name


def _verified(entry: catalog.CatalogEntry) -> Path:
    wanted = [file for file in entry.files if _is_read(entry, file.path)]
    for root in catalog.data_folders():
        if all((root / file.path).is_file() for file in wanted):
            problems = [problem for file in wanted if (problem := catalog.file_problem(root, file))]
            if problems:
                raise ChecksumError(f"dataset {entry.name!r}: {'; '.join(problems)}. Fetch it again.")
            return root / entry.name
    raise DataError(
        f"dataset {entry.name!r}: its training files are not on this machine. Get them with "
        f"`contextpool data fetch {entry.name}`, or set CONTEXTPOOL_DATA to a folder that holds {entry.name}."
    )


def _is_read(entry: catalog.CatalogEntry, path: str) -> bool:
    folder, _, file = path.rpartition("/")
    stem = file.removesuffix(".txt")
    if entry.inductive:
        return folder == entry.name
    return stem not in ("test", "test2id")


def _own_name(folder: Path, layout: str) -> str:
    pair = pair_at(Folder.at(folder)) if layout == "grail" else None
    return pair[0].name if pair is not None else named_folder(folder).name


def _shadow(folder: Path, layout: str, shadow: Path) -> Path:
    """Links to the training files below `shadow`, in the layout; returns the folder to load."""
    if layout == "grail":
        pair = pair_at(Folder.at(folder))
        assert pair is not None  # its layout was found to be that
        for name in ("graph", "graph_ind"):
            _link(Folder.at(pair[0]), _READ["grail"], shadow / name)
        return shadow / "graph"
    source = Folder.at(folder)
    target = shadow / "graph"
    optional = tuple(stem for stem in _READ_IF_THERE.get(layout, ()) if source.has(stem))
    stems = _READ[layout] + optional
    home = _home_of_queries(source) if layout == "redgnn" else source
    _link(source, tuple(stem for stem in stems if stem != "valid" or home is source), target)
    if home is not source:
        _link(home, ("valid",), target)
    for missing, present in _STAND_INS[layout].items():
        found = (home if present == "valid" else source).need(present, _WHY)
        _link_one(found, target, missing + "".join(found.suffixes))
    return target


def _home_of_queries(folder: Folder) -> Folder:
    """Where a transductive split has its valid.txt: here, or in `../../grail/<its name>`."""
    if folder.has("valid"):
        return folder
    path = named_folder(folder.path)
    return Folder.at(named_folder(path.parent).parent / "grail" / path.name)


def _link(source: Folder, stems: tuple[str, ...], target: Path) -> None:
    for stem in stems:
        found = source.need(stem, _WHY)
        _link_one(found, target, found.name)


def _link_one(found: Path, target: Path, name: str) -> None:
    target.mkdir(exist_ok=True)
    (target / name).symlink_to(found.absolute())


def _emptied(dataset: Dataset) -> Dataset:
    """Without the stand-ins, so that nobody can mistake them for queries."""
    if not dataset.inductive:
        return replace(dataset, inference_test=_nothing_of(dataset.inference_test))
    graph = _nothing_of(dataset.inference_graph)
    return replace(dataset, inference_graph=graph, inference_valid=graph, inference_test=graph)


def _nothing_of(triples: Triples) -> Triples:
    return triples.select(np.zeros(len(triples), dtype=bool))


def halved(dataset: Dataset, seed: int) -> DisjointSelection:
    """The training facts in two halves without a common entity: one to train on, one to select on."""
    if not dataset.inductive:
        raise ConfigError(
            f"{dataset.name} is transductive: its queries are about entities that training knows, so a half without "
            "them would select for another task. Use select='validation'."
        )
    facts = joined([dataset.training_graph, dataset.training_queries])
    halves = split_triples(facts, inductive=True, seed=seed, name=f"{dataset.name}, halved")
    assert halves.inference_valid is not None  # it is inductive
    return DisjointSelection(
        halves.name,
        inductive=True,
        training_graph=halves.training_graph,
        training_queries=halves.training_queries,
        validation_queries=joined([halves.inference_valid, halves.inference_test]),
        inference_graph=halves.inference_graph,
        inference_valid=halves.inference_valid,
        inference_test=halves.inference_test,
        training_valid=halves.training_valid,
        kept_share=halves.kept_share,
    )


@dataclass(frozen=True, eq=False)
class DisjointSelection(Dataset):
    """A dataset whose selection queries are about its second graph."""

    @property
    def _training_side(self) -> tuple[Triples, ...]:
        parts = (self.training_graph, self.training_queries, self.training_valid)
        return tuple(part for part in parts if part is not None)

    @property
    def _inference_side(self) -> tuple[Triples, ...]:
        return (*super()._inference_side, self.validation_queries)

    @property
    def validation_graph(self) -> Triples:
        """The second graph."""
        return self.inference_graph

    @cached_property
    def validation_filter(self) -> KnownAnswers:
        """Every answer of the second graph."""
        return KnownAnswers.of(*self._inference_side)
