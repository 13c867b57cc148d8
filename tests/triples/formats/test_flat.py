"""Flat folders: one graph, three files, and which files are meant."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pytest

from contextpool.errors import DataError
from contextpool.triples.formats import load_folder
from layouts import TEST, TRAIN, VALID, flat


def test_flat_is_transductive(tmp_path):
    dataset = load_folder(flat(tmp_path / "tiny"))
    assert (dataset.name, dataset.inductive, dataset.facts) == ("tiny", False, None)
    assert set(dataset.training_graph) == set(dataset.training_queries) == set(TRAIN)
    assert set(dataset.validation_queries) == set(VALID)
    assert set(dataset.inference_test) == set(TEST)
    assert dataset.inference_graph is dataset.training_graph
    assert dataset.inference_valid is None


@pytest.mark.parametrize("suffix", [".tsv", ".txt.gz", ".tsv.gz", ".txt.zst"])
def test_flat_files_may_be_tsv_and_compressed(tmp_path, suffix):
    folder = flat(tmp_path / "tiny")
    plain = (folder / "train.txt").read_bytes()
    (folder / "train.txt").unlink()
    packed = {".gz": gzip.compress, ".zst": lambda data: pa.compress(data, "zstd", asbytes=True)}
    (folder / f"train{suffix}").write_bytes(packed.get(Path(suffix).suffix, bytes)(plain))
    assert set(load_folder(folder).training_graph) == set(TRAIN)


@pytest.mark.parametrize("stem", ["valid", "test"])
def test_a_missing_file_is_named_with_what_to_do(tmp_path, stem):
    folder = flat(tmp_path)
    (folder / f"{stem}.txt").unlink()
    with pytest.raises(DataError, match=rf"{stem}\.txt is missing \(found: .*train\.txt.*data split"):
        load_folder(folder)


def test_two_files_of_one_stem_are_refused(tmp_path):
    folder = flat(tmp_path)
    (folder / "train.tsv").write_bytes((folder / "train.txt").read_bytes())
    with pytest.raises(DataError, match=r"train\.tsv and train\.txt are both there"):
        load_folder(folder)


def test_the_name_can_be_given_and_the_folder_can_be_here(tmp_path, monkeypatch):
    folder = flat(tmp_path / "tiny")
    assert load_folder(folder, "other").name == "other"
    monkeypatch.chdir(folder)
    assert load_folder(".").name == "tiny"
