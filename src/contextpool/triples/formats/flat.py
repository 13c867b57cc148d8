"""flat: train, valid and test of one graph."""

from __future__ import annotations

from pathlib import Path

from contextpool.triples.dataset import Dataset
from contextpool.triples.files import write_triples
from contextpool.triples.formats.folder import Folder
from contextpool.triples.formats.layout import Layout, only_transductive
from contextpool.triples.formats.parts import Admission, OnUnknown, known_relations, read_part

_WHY = (
    "A flat folder holds train.txt, valid.txt and test.txt; `contextpool data split` makes them from one "
    "file of triples."
)


def _load(folder: Folder, name: str | None, on_unknown: OnUnknown) -> Dataset:
    train, valid, test = (read_part(folder.need(stem, _WHY)) for stem in ("train", "valid", "test"))
    admission = Admission(known_relations(train), on_unknown)
    held_out = [admission.admit(part) for part in (valid, test)]
    return Dataset.from_one_graph(
        name or folder.path.name,
        train=train.triples,
        valid=held_out[0],
        test=held_out[1],
        skipped=admission.skipped,
    )


def _write(dataset: Dataset, folder: Path) -> None:
    write_triples(folder / "train.txt", dataset.training_graph)
    write_triples(folder / "valid.txt", dataset.validation_queries)
    write_triples(folder / "test.txt", dataset.inference_test)


FLAT = Layout(
    name="flat",
    holds="train.txt valid.txt test.txt",
    matches=lambda folder: folder.has("train"),
    load=_load,
    cannot_hold=only_transductive,
    write=_write,
)
