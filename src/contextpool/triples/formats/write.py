"""Datasets written in a layout, such that `load_folder` gives them back; a folder appears whole or not at all."""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from contextpool.errors import DataError
from contextpool.triples.dataset import Dataset
from contextpool.triples.files import write_lines, write_triples
from contextpool.triples.formats.layouts import INFERENCE_SUFFIX, LAYOUTS, check_layout
from contextpool.triples.formats.openke import write_openke
from contextpool.triples.formats.parts import listing, named_folder, stem_of

_ONE_GRAPH = ("train", "valid", "test", "facts", "entities", "relations")
_TWO_GRAPHS = ("inference", "inference_graph", "inference_validation", "inference_test")
_NUMBERED = ("train2id", "valid2id", "test2id", "entity2id", "relation2id")
_STEMS = frozenset((*_ONE_GRAPH, *_TWO_GRAPHS, *_NUMBERED))


def write_dataset(
    dataset: Dataset, folder: str | Path, layout: str = "grail", *, overwrite: bool = False
) -> None:
    """Write a dataset so that `load_folder(folder)` gives it back; the folder appears whole or not at all.

    Every file is written, whatever `with_queries` chose to train on. A GraIL pair is written as the two
    folders `folder/<name>` and `folder/<name>_ind`.
    """
    why_not = _cannot_hold(check_layout(layout), dataset)
    if why_not:
        able = ", ".join(other for other in LAYOUTS if _cannot_hold(other, dataset) is None)
        raise DataError(
            f"{dataset.name} cannot be written in the layout {layout!r}: {why_not}. "
            f"Layouts that can hold it: {able}."
        )
    with _published_folder(named_folder(folder), overwrite=overwrite) as fresh:
        if layout == "openke":
            write_openke(dataset, fresh)
        elif layout == "redgnn":
            _write_redgnn(dataset, fresh)
        elif dataset.inductive:
            (_write_grail if layout == "grail" else _write_ilpc)(dataset, fresh)
        else:
            _write_flat(dataset, fresh)


def _cannot_hold(layout: str, dataset: Dataset) -> str | None:
    """Why a dataset cannot be written this way, or None where it can."""
    if layout == "msg":
        return "the layout is read, not written"
    if layout in ("grail", "ilpc"):
        return (
            None
            if dataset.inductive
            else "it has one graph, and the layout holds two without a common entity"
        )
    if dataset.inductive:
        return "it has a second graph to evaluate on, and the layout holds one graph"
    if layout == "redgnn":
        return "its training triples are not divided into facts and train" if dataset.facts is None else None
    if dataset.facts is not None:
        return "it keeps facts.txt and train.txt apart (Dataset.without_facts() joins them)"
    return None


def _write_flat(dataset: Dataset, folder: Path) -> None:
    write_triples(folder / "train.txt", dataset.training_graph)
    write_triples(folder / "valid.txt", dataset.validation_queries)
    write_triples(folder / "test.txt", dataset.inference_test)


def _write_redgnn(dataset: Dataset, folder: Path) -> None:
    write_triples(folder / "facts.txt", dataset.facts or [])
    write_triples(folder / "train.txt", dataset.train or [])
    write_triples(folder / "valid.txt", dataset.validation_queries)
    write_triples(folder / "test.txt", dataset.inference_test)
    write_lines(folder / "entities.txt", dataset.training_entities.labels)
    write_lines(folder / "relations.txt", dataset.relations.labels)


def _write_grail(dataset: Dataset, folder: Path) -> None:
    """Both folders inside the given one, so that they can appear in one step: `grail/fb237_v1` as `fb237_v1`."""
    name = re.sub(r"[^\w.-]+", "_", dataset.name.rstrip("/").split("/")[-1]).strip(".") or "graph"
    home, away = folder / name, folder / (name + INFERENCE_SUFFIX)
    write_triples(home / "train.txt", dataset.training_graph)
    write_triples(home / "valid.txt", dataset.training_valid or [])
    write_triples(home / "test.txt", dataset.validation_queries)
    write_triples(away / "train.txt", dataset.inference_graph)
    write_triples(away / "valid.txt", dataset.inference_valid or [])
    write_triples(away / "test.txt", dataset.inference_test)


def _write_ilpc(dataset: Dataset, folder: Path) -> None:
    """With test.txt, and valid.txt where it has a use, so that reading gives the same dataset back."""
    write_triples(folder / "train.txt", dataset.training_graph)
    if dataset.training_valid is not None:
        write_triples(folder / "valid.txt", dataset.training_valid)
    write_triples(folder / "test.txt", dataset.validation_queries)
    write_triples(folder / "inference.txt", dataset.inference_graph)
    write_triples(folder / "inference_validation.txt", dataset.inference_valid or [])
    write_triples(folder / "inference_test.txt", dataset.inference_test)


@contextlib.contextmanager
def _published_folder(target: Path, *, overwrite: bool) -> Iterator[Path]:
    """An empty folder to write into, which takes the target's name once everything is in it.

    On an error nothing stays behind, and what the target held is as it was. Only a dataset is ever replaced:
    a folder with anything else in it is refused even with `overwrite`.
    """
    _check_target(target, overwrite)
    target.parent.mkdir(parents=True, exist_ok=True)
    workshop = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part"))
    try:
        fresh = workshop / "new"
        fresh.mkdir()
        yield fresh
        _exchange(fresh, target, workshop / "old")
    finally:
        shutil.rmtree(workshop, ignore_errors=True)


def _exchange(fresh: Path, target: Path, old: Path) -> None:
    """Two renames; where the second fails, the first is taken back."""
    if not target.exists():
        fresh.rename(target)
        return
    target.rename(old)
    try:
        fresh.rename(target)
    except BaseException:
        old.rename(target)
        raise


def _check_target(target: Path, overwrite: bool) -> None:
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise DataError(f"{target}: there is something that is no folder. Name another place to write to.")
    if not target.exists() or not any(target.iterdir()):
        return
    if not overwrite:
        raise DataError(
            f"{target}: the folder is there and holds {listing(target, limit=4)}. Name another one, or allow "
            "it to be overwritten."
        )
    for path in sorted(target.rglob("*")):
        if not path.is_dir() and stem_of(path.name) not in _STEMS:
            raise DataError(
                f"{target}: the folder holds {path.relative_to(target)}, which is no file of a dataset, so it "
                "is not overwritten. Move that away, or name another folder."
            )
