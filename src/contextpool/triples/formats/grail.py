"""grail: a folder X beside X_ind, each with train, valid and test (Teru et al. 2020)."""

from __future__ import annotations

import re
from pathlib import Path

from contextpool.errors import DataError
from contextpool.triples.dataset import Dataset
from contextpool.triples.files import write_triples
from contextpool.triples.formats.folder import Folder, named_folder
from contextpool.triples.formats.layout import Layout, only_inductive
from contextpool.triples.formats.parts import Admission, OnUnknown, Part, known_relations, read_part

SUFFIX = "_ind"
_WHY = f"A GraIL pair is a folder X and X{SUFFIX} beside it, each with train.txt, valid.txt and test.txt."


def pair_at(folder: Folder) -> tuple[Path, Path] | None:
    """(X, X_ind) where the folder is one of them, or holds exactly one such pair; otherwise None."""
    if not folder.has("train"):
        return _pair_inside(folder.path)
    path = named_folder(folder.path)
    second = path.with_name(path.name + SUFFIX)
    if second.is_dir():
        return path, second
    first = path.with_name(path.name.removesuffix(SUFFIX) or path.name)
    return (first, path) if first != path and first.is_dir() else None


def _pair_inside(parent: Path) -> tuple[Path, Path] | None:
    seconds = [path for path in sorted(parent.glob("*" + SUFFIX)) if path.is_dir()]
    pairs = [
        (path.with_name(path.name.removesuffix(SUFFIX)), path) for path in seconds if path.name != SUFFIX
    ]
    pairs = [(first, second) for first, second in pairs if first.is_dir()]
    if len(pairs) > 1:
        names = ", ".join(first.name for first, _ in pairs[:12])
        raise DataError(f"{parent}: {len(pairs)} GraIL pairs are there ({names}). Name one: {pairs[0][0]}")
    return pairs[0] if pairs else None


def _load(folder: Folder, name: str | None, on_unknown: OnUnknown) -> Dataset:
    """Roles as in `Dataset`: X/valid is trained on beside X/train, X/test selects, X_ind is evaluated on.

    X/valid.txt may be empty: then the training graph asks all training queries itself.
    """
    pair = pair_at(folder)
    if pair is None:
        raise DataError(f"{folder.path}: there is no folder pair. {_WHY}")
    train, valid, test = _three(pair[0], valid_may_be_empty=True)
    inference = _three(pair[1])
    admission = Admission(known_relations(train, valid), on_unknown)
    selection = admission.admit(test)
    graph, inference_valid, inference_test = (admission.admit(part) for part in inference)
    return Dataset.from_two_graphs(
        name or pair[0].name,
        train=train.triples,
        training_valid=valid.triples if len(valid.triples) else None,
        validation=selection,
        inference_graph=graph,
        inference_valid=inference_valid,
        inference_test=inference_test,
        skipped=admission.skipped,
    )


def _three(path: Path, *, valid_may_be_empty: bool = False) -> list[Part]:
    folder = Folder.at(path)
    return [
        read_part(folder.need(stem, _WHY), allow_empty=valid_may_be_empty and stem == "valid")
        for stem in ("train", "valid", "test")
    ]


def _write(dataset: Dataset, folder: Path) -> None:
    """Both folders inside the given one, so that they can appear in one step."""
    first = folder / _file_name(dataset.name)
    second = folder / (first.name + SUFFIX)
    write_triples(first / "train.txt", dataset.training_graph)
    write_triples(first / "valid.txt", dataset.training_valid or [])
    write_triples(first / "test.txt", dataset.validation_queries)
    write_triples(second / "train.txt", dataset.inference_graph)
    write_triples(second / "valid.txt", dataset.inference_valid or [])
    write_triples(second / "test.txt", dataset.inference_test)


def _file_name(name: str) -> str:
    """A dataset's name as a folder can have it: `grail/fb237_v1` becomes `fb237_v1`."""
    return re.sub(r"[^\w.-]+", "_", name.rstrip("/").split("/")[-1]).strip(".") or "graph"


GRAIL = Layout(
    name="grail",
    holds=f"a folder X and X{SUFFIX} beside it, each with train.txt valid.txt test.txt",
    matches=lambda folder: pair_at(folder) is not None,
    load=_load,
    cannot_hold=only_inductive,
    write=_write,
)
