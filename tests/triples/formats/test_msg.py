"""A training graph, and msg.txt, the graph that test.txt is asked on; valid.txt belongs to one of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import contextpool as cp
from command_line import run
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


def ingram(folder: Path) -> Path:
    """As InGram has it: valid.txt and test.txt are asked on msg.txt, and half of the relations are new there."""

    def family(tag: str, count: int, mother: str) -> list[str]:
        parts = (
            "{0}eve{1}\tmarried\t{0}adam{1}\n",
            "{0}eve{1}\t{2}\t{0}abel{1}\n",
            "{0}eve{1}\t{2}\t{0}cain{1}\n",
        )
        more = "{0}cain{1}\tsibling\t{0}abel{1}\n", "{0}abel{1}\tsibling\t{0}cain{1}\n"
        return [line.format(tag, number, mother) for number in range(count) for line in (*parts, *more)]

    here, there = family("x", 12, "mother"), family("y", 10, "mutter")
    asked = [there[5 * k + place] for k in range(1, 6) for place in (2, 3)][
        :9
    ]  # a "mutter" and a "sibling" in turn
    folder.mkdir()
    (folder / "train.txt").write_text("".join(here))
    (folder / "msg.txt").write_text("".join(line for line in there if line not in asked))
    (folder / "valid.txt").write_text("".join(asked[:4]))
    (folder / "test.txt").write_text("".join(asked[4:]))
    return folder


def test_valid_of_the_inference_graph_selects_nothing(tmp_path: Path) -> None:
    data = load_folder(ingram(tmp_path / "NL"), on_unknown="keep")
    assert (len(data.inference_valid or ()), len(data.inference_test), data.skipped) == (4, 5, 0)
    assert len(data.validation_queries) == 6  # a tenth of train.txt, which loses them
    assert len(data.training_graph) == 54
    assert data.relations.labels == ("married", "mother", "mutter", "sibling")
    assert data.trained_relations.labels == ("married", "mother", "sibling")
    assert not set(data.training_graph) & set(data.validation_queries)


def test_the_shipped_model_is_asked_and_evaluated_on_relations_that_training_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(ingram(tmp_path / "NL"))
    report = cp.evaluate(cp.load(), folder)
    assert len(report.ranks) == 18
    ran = run(["ask", folder, "--head", "yeve1", "--relation", "mutter", "--json"], capsys, monkeypatch)
    assert ran.code == 0, ran.err
    ran = run(["evaluate", folder, "--json"], capsys, monkeypatch)
    assert json.loads(ran.out)["model"]["mrr"] == pytest.approx(report.mrr), ran.err
    ran = run(["data", "info", folder], capsys, monkeypatch)
    assert (ran.code, "--skip-unknown" in ran.err) == (2, True)
    assert run(["data", "info", folder, "--skip-unknown"], capsys, monkeypatch).code == 0
    with pytest.raises(ContextPoolError, match="mutter"):  # what a model learned to know is another matter
        cp.load_dataset(folder)
