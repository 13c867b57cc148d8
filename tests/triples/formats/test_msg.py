"""A training graph with valid.txt to select on, and msg.txt, the graph that test.txt is asked on."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextpool.errors import ContextPoolError
from contextpool.triples.formats.layouts import detect_layout, load_folder
from contextpool.triples.formats.write import write_dataset

FILES = {
    "train": "a\tr\tb\nb\ts\tc\n",
    "valid": "a\ts\tc\n",
    "msg": "x\tr\ty\ny\ts\tz\ny\tnew\tz\n",
    "test": "x\ts\tz\nx\tnew\tz\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tax").mkdir()
    for stem, text in FILES.items():
        (tmp_path / "tax" / f"{stem}.txt").write_text(text)
    return tmp_path / "tax"


def test_roles_of_the_files(folder: Path) -> None:
    assert detect_layout(folder) == "msg"
    data = load_folder(folder, on_unknown="skip")
    assert data.inductive
    assert list(data.training_graph) == list(data.training_queries) == [("a", "r", "b"), ("b", "s", "c")]
    assert list(data.validation_queries) == [("a", "s", "c")]
    assert list(data.inference_graph) == [("x", "r", "y"), ("y", "s", "z")]
    assert list(data.evaluation_queries("P1")) == [("x", "s", "z")]
    assert data.skipped == 2


def test_relations_that_training_lacks_are_an_error_unless_skipped(folder: Path) -> None:
    with pytest.raises(ContextPoolError, match="new"):
        load_folder(folder)


def test_it_is_read_and_not_written(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ContextPoolError, match="is read, not written"):
        write_dataset(load_folder(folder, on_unknown="skip"), tmp_path / "out", "msg")


def test_without_unknown_relations_it_comes_back_as_ilpc(folder: Path, tmp_path: Path) -> None:
    data = load_folder(folder, on_unknown="skip")
    write_dataset(data, tmp_path / "out", "ilpc")
    back = load_folder(tmp_path / "out")
    assert list(back.inference_graph) == list(data.inference_graph)
    assert list(back.evaluation_queries("P1")) == list(data.evaluation_queries("P1"))
    assert list(back.validation_queries) == list(data.validation_queries)
