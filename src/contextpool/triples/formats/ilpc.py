"""ilpc: a training graph, and an inference graph with queries of its own, in one folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from contextpool.errors import DataError
from contextpool.triples.dataset import Dataset
from contextpool.triples.files import write_triples
from contextpool.triples.formats.folder import Folder
from contextpool.triples.formats.layout import Layout, only_inductive
from contextpool.triples.formats.parts import Admission, OnUnknown, Part, known_relations, read_part
from contextpool.triples.split import hold_out
from contextpool.triples.store import Triples

SELECTION_SHARE = 0.1
"""Of train.txt, held out to select on where the folder has no test.txt."""
_SELECTION_SEED = 0
_WHY = "An ILPC folder holds train.txt, inference.txt, inference_validation.txt and inference_test.txt."


def _load(folder: Folder, name: str | None, on_unknown: OnUnknown) -> Dataset:
    """ILPC has no queries to select on but the inference graph's, and selection reads none of those.

    So a tenth of train.txt is held out for it: always the same tenth, taken out of the training graph and
    the training queries alike, and such that no entity or relation is lost with it. Where the folder holds
    test.txt, that selects, and nothing is taken out; valid.txt beside it holds further training queries:
    the roles that the same names have in a GraIL training folder.
    """
    train = read_part(folder.need("train", _WHY))
    further, selecting = _optional(folder, "valid"), _optional(folder, "test")
    if further and not selecting:
        raise DataError(
            f"{further.path}: there is no test.txt beside it, so that its role is unclear. In an ILPC folder "
            "test.txt holds queries to select on, and valid.txt further training queries; rename it."
        )
    admission = Admission(known_relations(*filter(None, (train, further))), on_unknown)
    graph, selection = (
        (train.triples, admission.admit(selecting)) if selecting else _selection_held_out(train)
    )
    inference = [admission.admit(read_part(path)) for path in _inference_files(folder)]
    return Dataset.from_two_graphs(
        name or folder.path.name,
        train=graph,
        training_valid=further.triples if further else None,
        validation=selection,
        inference_graph=inference[0],
        inference_valid=inference[1],
        inference_test=inference[2],
        skipped=admission.skipped,
    )


def _optional(folder: Folder, stem: str) -> Part | None:
    path = folder.get(stem)
    return None if path is None else read_part(path)


def _inference_files(folder: Folder) -> tuple[Path, Path, Path]:
    if folder.has("inference", "inference_graph"):
        raise DataError(
            f"{folder.path}: inference.txt and inference_graph.txt are both there, and only one can be the "
            "inference graph. Remove the other."
        )
    graph = folder.get("inference_graph") or folder.need("inference", _WHY)
    return graph, folder.need("inference_validation", _WHY), folder.need("inference_test", _WHY)


def _selection_held_out(train: Part) -> tuple[Triples, Triples]:
    """The training graph without, and the queries with, the tenth that is held out."""
    wanted = max(1, round(SELECTION_SHARE * len(train.triples)))
    held = hold_out(train.triples, wanted, np.random.default_rng(_SELECTION_SEED))
    if not held.any():
        raise DataError(
            f"{train.path}: none of its {len(train.triples):,} triples can be held out to select on, because "
            "each is the only one of an entity or a relation. Put queries to select on into test.txt."
        )
    return train.triples.select(~held), train.triples.select(held)


def _write(dataset: Dataset, folder: Path) -> None:
    """With test.txt, and valid.txt where it has a use, so that reading gives the same dataset back."""
    write_triples(folder / "train.txt", dataset.training_graph)
    if dataset.training_valid is not None:
        write_triples(folder / "valid.txt", dataset.training_valid)
    write_triples(folder / "test.txt", dataset.validation_queries)
    write_triples(folder / "inference.txt", dataset.inference_graph)
    write_triples(folder / "inference_validation.txt", dataset.inference_valid or [])
    write_triples(folder / "inference_test.txt", dataset.inference_test)


ILPC = Layout(
    name="ilpc",
    holds="train.txt inference.txt (or inference_graph.txt) inference_validation.txt inference_test.txt",
    matches=lambda folder: folder.has("inference") or folder.has("inference_graph"),
    load=_load,
    cannot_hold=only_inductive,
    write=_write,
)
