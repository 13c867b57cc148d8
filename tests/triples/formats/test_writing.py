"""Datasets written read back the same, and appear whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from contextpool.errors import DataError
from contextpool.triples.formats import detect_layout, load_folder, write_dataset
from contextpool.triples.split import split_triples
from contextpool.triples.store import Triples
from layouts import FACTS, TRAIN, files_below, flat, ilpc, lay, openke, pair, parts_of, put
from support import amount


@pytest.mark.parametrize(
    ("make", "layout"),
    [
        (flat, "flat"),
        (flat, "openke"),
        (openke, "flat"),
        (pair, "grail"),
        (pair, "ilpc"),
        (ilpc, "grail"),
        (ilpc, "ilpc"),
        (lambda folder: lay(flat(folder), facts=FACTS), "redgnn"),
    ],
)
def test_what_is_written_reads_back(tmp_path, make, layout):
    dataset = load_folder(make(tmp_path / "source"))
    write_dataset(dataset, tmp_path / "out", layout)
    again = load_folder(tmp_path / "out")
    assert detect_layout(tmp_path / "out") == layout
    assert parts_of(again) == parts_of(dataset)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "source"]


@settings(max_examples=amount(30, 500), deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["flat", "openke", "grail", "ilpc"]))
@example(
    1993, "grail"
)  # the first region holds just the entities whose triples are all of a relation of their own
@example(479, "ilpc")
def test_random_splits_read_back(tmp_path_factory, seed, layout):
    names = [f"e {seed} {number}\u2028#" for number in range(12)]
    rows = [(names[i], f"r{(i * j + seed) % 3}", names[j]) for i in range(12) for j in range(12) if i != j]
    inductive = layout in ("grail", "ilpc")
    dataset = split_triples(Triples.from_labels(rows), inductive=inductive, seed=seed, name="rnd")
    folder = tmp_path_factory.mktemp("written") / "out"
    write_dataset(dataset, folder, layout)
    again = load_folder(folder)
    assert parts_of(again) == parts_of(dataset)
    assert again.inference_entities.labels == dataset.inference_entities.labels


@pytest.mark.parametrize(
    ("make", "layout", "why"),
    [
        (pair, "flat", "second graph"),
        (pair, "openke", "second graph"),
        (pair, "redgnn", "second graph"),
        (flat, "grail", "one graph"),
        (flat, "ilpc", "one graph"),
        (flat, "redgnn", "not divided into facts and train"),
        (lambda folder: lay(flat(folder), facts=FACTS), "flat", r"without_facts\(\)"),
    ],
)
def test_a_layout_that_cannot_hold_the_dataset_is_refused(tmp_path, make, layout, why):
    dataset = load_folder(make(tmp_path / "source"))
    with pytest.raises(DataError, match=rf"{why}.*Layouts that can hold it: \w+"):
        write_dataset(dataset, tmp_path / "out", layout)
    assert not (tmp_path / "out").exists()


def test_every_file_is_written_whatever_is_trained_on(tmp_path):
    dataset = load_folder(lay(flat(tmp_path / "source"), facts=FACTS))
    for number, variant in enumerate((dataset, dataset.with_queries("train"))):
        write_dataset(variant, tmp_path / str(number), "redgnn")
    assert files_below(tmp_path / "0") == files_below(tmp_path / "1")
    write_dataset(dataset.without_facts(), tmp_path / "joined", "flat")
    assert set(load_folder(tmp_path / "joined").training_graph) == {*FACTS, *TRAIN}


def test_a_pair_is_written_under_the_last_part_of_its_name(tmp_path):
    write_dataset(load_folder(pair(tmp_path), "grail/ti ny"), tmp_path / "out", "grail")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["ti_ny", "ti_ny_ind"]
    assert load_folder(tmp_path / "out").name == "ti_ny"


def test_a_folder_in_use_is_refused_unless_it_may_be_overwritten(tmp_path):
    dataset = load_folder(flat(tmp_path / "source"))
    target = lay(tmp_path / "out", train=FACTS)
    before = files_below(target)
    with pytest.raises(DataError, match=r"holds train\.txt\. Name another one"):
        write_dataset(dataset, target, "flat")
    assert files_below(target) == before
    write_dataset(dataset, target, "openke", overwrite=True)
    assert set(load_folder(target).training_graph) == set(TRAIN)
    assert not (target / "train.txt").exists()


def test_an_empty_folder_may_be_written_to(tmp_path):
    (tmp_path / "out").mkdir()
    write_dataset(load_folder(flat(tmp_path / "source")), tmp_path / "out", "flat")
    assert set(load_folder(tmp_path / "out").training_graph) == set(TRAIN)


def test_only_datasets_are_overwritten(tmp_path):
    target = lay(tmp_path / "out", train=FACTS)
    put(target / "deep" / "thesis.tex", ["years of work"])
    before = files_below(target)
    with pytest.raises(DataError, match=r"deep/thesis\.tex, which is no file of a dataset"):
        write_dataset(load_folder(flat(tmp_path / "source")), target, "flat", overwrite=True)
    assert files_below(target) == before
    with pytest.raises(DataError, match="no folder"):
        write_dataset(load_folder(tmp_path / "source"), target / "train.txt", "flat", overwrite=True)


@pytest.mark.parametrize("overwrite", [False, True])
def test_an_error_leaves_nothing_half_written(tmp_path, monkeypatch, overwrite):
    dataset = load_folder(flat(tmp_path / "source"))
    if overwrite:
        lay(tmp_path / "out", train=FACTS)
    before = files_below(tmp_path)

    def full_disk(path: Path, triples: object) -> int:
        if path.name == "test.txt":
            raise OSError(28, "No space left on device")
        path.write_text("half")
        return 0

    monkeypatch.setattr("contextpool.triples.formats.write.write_triples", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_dataset(dataset, tmp_path / "out", "flat", overwrite=overwrite)
    assert files_below(tmp_path) == before
    assert not list(tmp_path.glob(".*"))


def test_a_failed_exchange_brings_the_old_folder_back(tmp_path, monkeypatch):
    dataset = load_folder(flat(tmp_path / "source"))
    target = lay(tmp_path / "out", train=FACTS)
    rename = Path.rename

    def fails_for_the_new_one(self: Path, to: Path) -> Path:
        if self.name == "new":
            raise OSError("renaming failed")
        return rename(self, to)

    before = files_below(target)
    monkeypatch.setattr(Path, "rename", fails_for_the_new_one)
    with pytest.raises(OSError, match="renaming failed"):
        write_dataset(dataset, target, "flat", overwrite=True)
    assert files_below(target) == before
