"""What a layout is: how to see it, read it and write it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from contextpool.triples.dataset import Dataset
from contextpool.triples.formats.folder import Folder
from contextpool.triples.formats.parts import OnUnknown


@dataclass(frozen=True)
class Layout:
    """One way of laying a dataset out in files; `formats.LAYOUTS` lists them all."""

    name: str
    holds: str
    """The files that make it, for messages."""
    matches: Callable[[Folder], bool]
    load: Callable[[Folder, str | None, OnUnknown], Dataset]
    """(folder, name or None for the folder's own, on_unknown)"""
    cannot_hold: Callable[[Dataset], str | None]
    """Why a dataset cannot be written this way, or None where it can."""
    write: Callable[[Dataset, Path], None]
    """Into an empty folder."""


def only_transductive(dataset: Dataset) -> str | None:
    """For the layouts that know one graph and no facts.txt."""
    if dataset.inductive:
        return "it has a second graph to evaluate on, and the layout holds one graph"
    if dataset.facts is not None:
        return "it keeps facts.txt and train.txt apart (Dataset.without_facts() joins them)"
    return None


def only_inductive(dataset: Dataset) -> str | None:
    """For the layouts that know a training graph and an inference graph."""
    return None if dataset.inductive else "it has one graph, and the layout holds two without a common entity"
