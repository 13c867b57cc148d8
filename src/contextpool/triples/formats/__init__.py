"""Dataset folders: which layout one has is found by looking into it, never by its name."""

from __future__ import annotations

from pathlib import Path

from contextpool.errors import ConfigError, DataError
from contextpool.triples.dataset import Dataset
from contextpool.triples.formats.flat import FLAT
from contextpool.triples.formats.folder import Folder, listing, named_folder
from contextpool.triples.formats.grail import GRAIL
from contextpool.triples.formats.ilpc import ILPC
from contextpool.triples.formats.layout import Layout
from contextpool.triples.formats.openke import OPENKE
from contextpool.triples.formats.parts import OnUnknown
from contextpool.triples.formats.publish import published_folder
from contextpool.triples.formats.redgnn import REDGNN

__all__ = ["LAYOUTS", "Layout", "OnUnknown", "detect_layout", "load_folder", "write_dataset"]

LAYOUTS = {layout.name: layout for layout in (OPENKE, ILPC, REDGNN, GRAIL, FLAT)}
"""By name, the more special ones first: the first that matches a folder is its layout."""


def detect_layout(path: str | Path) -> str:
    """The name of the layout of a folder: 'openke', 'ilpc', 'redgnn', 'grail' or 'flat'."""
    folder = _folder(path)
    found = [layout.name for layout in LAYOUTS.values() if layout.matches(folder)]
    if not found:
        layouts = "; ".join(f"{layout.name}: {layout.holds}" for layout in LAYOUTS.values())
        raise DataError(
            f"{folder.path}: no known layout (found: {listing(folder.path)}). The layouts are {layouts}. "
            "Each file may be .txt or .tsv, plain, .gz or .zst."
        )
    if found[0] == "openke" and len(found) > 1:
        raise DataError(
            f"{folder.path}: train2id.txt and train.txt are both there, so that the layout can be openke or "
            f"{found[1]}. Load it with layout='openke' or layout='{found[1]}', or remove one of them."
        )
    return found[0]


def load_folder(
    path: str | Path,
    name: str | None = None,
    *,
    on_unknown: OnUnknown = "error",
    layout: str | None = None,
) -> Dataset:
    """Read a dataset folder, in whichever layout it is; `layout` overrides what looking finds.

    `name` is the folder's own by default. A relation that occurs outside of training only is an error that
    names its file and line, or, with on_unknown="skip", its triples are left out (`Dataset.skipped`).
    """
    if on_unknown not in ("error", "skip"):
        raise ConfigError(f"on_unknown is {on_unknown!r}; it is 'error' or 'skip'.")
    chosen = _layout(detect_layout(path) if layout is None else layout)
    return chosen.load(_folder(path), name, on_unknown)


def write_dataset(
    dataset: Dataset, folder: str | Path, layout: str = "grail", *, overwrite: bool = False
) -> None:
    """Write a dataset so that `load_folder(folder)` gives it back; the folder appears whole or not at all.

    Every file is written, whatever `with_queries` chose to train on. A GraIL pair is written as the two
    folders `folder/<name>` and `folder/<name>_ind`.
    """
    chosen = _layout(layout)
    why_not = chosen.cannot_hold(dataset)
    if why_not:
        able = ", ".join(other.name for other in LAYOUTS.values() if other.cannot_hold(dataset) is None)
        raise DataError(
            f"{dataset.name} cannot be written in the layout {layout!r}: {why_not}. "
            f"Layouts that can hold it: {able}."
        )
    with published_folder(named_folder(folder), overwrite=overwrite) as fresh:
        chosen.write(dataset, fresh)


def _layout(name: str) -> Layout:
    if name not in LAYOUTS:
        raise ConfigError(f"layout is {name!r}; it is one of {', '.join(LAYOUTS)}.")
    return LAYOUTS[name]


def _folder(path: str | Path) -> Folder:
    path = named_folder(path)
    if path.is_file():
        raise DataError(
            f"{path}: this is one file, not a dataset folder. Read it as a graph with "
            "contextpool.read_graph, or make a dataset of it with `contextpool data split`."
        )
    if not path.is_dir():
        raise DataError(f"{path}: there is no such folder.")
    return Folder.at(path)
