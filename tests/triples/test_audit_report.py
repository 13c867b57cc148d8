from __future__ import annotations

import builtins
import gzip
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from audit_worlds import CLEAN, TRAIN, finding, inductive
from contextpool.errors import ConfigError, DataError, MissingExtraError
from contextpool.triples.audit import audit_dataset, audit_folder_duplicates, audit_triples, count_raw_lines
from contextpool.triples.reader import read_triples
from contextpool.triples.store import Triples


def test_an_empty_graph_and_no_queries_are_counted_not_crashed_on(tmp_path: Path) -> None:
    empty = Triples.from_labels([])
    assert audit_triples(empty, "empty").graphs[0].triples == 0
    report = audit_dataset(
        inductive(training_valid=[], validation=[], inference_graph=[], inference_valid=[], inference_test=[])
    )
    assert finding(report, "reach").severity == "warning"
    assert json.loads(json.dumps(report.to_dict())) == report.to_dict()
    assert report.to_text()


def test_json_round_trip_and_stable_keys() -> None:
    content = audit_dataset(inductive()).to_dict()
    assert json.loads(json.dumps(content, allow_nan=False)) == content
    assert list(content) == [
        "schema",
        "setting",
        "worst",
        "name",
        "inductive",
        "graphs",
        "held_out",
        "overlap",
        "raw_files",
        "skipped",
        "kept_share",
        "findings",
    ]
    assert content["held_out"][-1]["within"][0] == 0


def test_text_holds_the_counts_worst_first() -> None:
    report = audit_dataset(inductive(inference_test=[("p", "likes", "q"), ("p", "likes", "t")]))
    text = report.to_text()
    lines = text.splitlines()
    assert lines[0] == "Audit of 'toy' (inductive): worst finding warning"
    assert lines[2].startswith("warning")
    assert "1 of 3 (33.3%)" in text
    assert any(line.split() == ["triples", "4", "4"] for line in lines)
    assert any(line.split()[:5] == ["in", "the", "graph", "(leaked)", "0"] for line in lines)
    header = next(line for line in lines if line.lstrip().startswith("training valid"))
    row = next(line for line in lines if line.startswith("looked at for reach"))
    assert len(header) == len(row)  # right-aligned under its column


def test_sections_are_rectangular_tables_of_text() -> None:
    for section in audit_dataset(inductive()).sections:
        assert section.rows
        for row in section.rows:
            assert len(row) == len(section.columns)
            assert all(isinstance(cell, str) for cell in row)


def test_hostile_labels_stay_on_their_line() -> None:
    label = "x\x1b[31m\u2028" + "long" * 50
    report = audit_triples(Triples.from_labels([("a", label, "b")]), "name\nwith a line end")
    assert "\x1b" not in report.to_text()
    assert "\u2028" not in report.to_text()
    assert "name\\nwith" in report.to_text()


def test_the_order_of_the_input_leaves_no_trace() -> None:
    turned = {part: triples[::-1] for part, triples in CLEAN.items()}
    assert audit_dataset(inductive(**turned)).to_dict() == audit_dataset(inductive()).to_dict()


# -- raw files


def test_raw_lines_are_counted_before_they_collapse(tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    path.write_bytes(b"a\tr\tb\na\tr\tb\r\nb\tr\tc")
    assert count_raw_lines(path) == 3
    assert len(read_triples(path)) == 2
    (file,) = audit_folder_duplicates(tmp_path)
    assert (file.triples, file.duplicates, file.repeated_elsewhere) == (3, 1, 0)


def test_triples_of_two_files_and_compressed_ones(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("a\tr\tb\nb\tr\tc\n")
    with gzip.open(tmp_path / "valid.tsv.gz", "wb") as stream:
        stream.write(b"b\tr\tc\nc\tr\td\n")
    train, valid = audit_folder_duplicates(tmp_path)
    assert (train.repeated_elsewhere, valid.repeated_elsewhere) == (1, 1)
    assert count_raw_lines(tmp_path / "valid.tsv.gz") == 2


def test_id_files_are_read_and_other_files_passed_over(tmp_path: Path) -> None:
    (tmp_path / "train2id.txt").write_text("3\n0 1 0\n0 1 0\n1 2 0\n")
    (tmp_path / "entity2id.txt").write_text("2\na\t0\nb\t1\n")
    (tmp_path / "README.txt").write_text("three words here\n\nand more words than that\n")
    (file,) = audit_folder_duplicates(tmp_path)
    assert (Path(file.path).name, file.triples, file.duplicates) == ("train2id.txt", 3, 1)


def test_duplicate_lines_become_findings(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("a\tr\tb\na\tr\tb\n")
    (tmp_path / "test.txt").write_text("a\tr\tb\n")
    report = audit_dataset(inductive(), [tmp_path])
    assert "1 of 3 lines" in finding(report, "duplicate_lines").reading
    assert finding(report, "duplicate_lines").severity == "note"
    assert finding(report, "lines_in_two_files").severity == "warning"
    assert "files" in [section.key for section in report.sections]


def test_missing_folder_and_damaged_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such folder"):
        audit_folder_duplicates(tmp_path / "nowhere")
    (tmp_path / "train.txt.gz").write_bytes(gzip.compress(b"a\tr\tb\n" * 1_000)[:-20])
    with pytest.raises(DataError, match="cannot be read to its end"):
        count_raw_lines(tmp_path / "train.txt.gz")


# -- plot


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_plot_is_written(tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"audit{suffix}"
    audit_dataset(inductive()).save_plot(path)
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG" if suffix == ".png" else b"<?xml")
    assert len(content) > 20_000
    audit_dataset(inductive()).save_plot(path)
    assert path.read_bytes() == content


def test_plot_of_any_name_and_of_nothing(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for number, name in enumerate(["$x_", "图", "long " * 60, "_hidden"]):
        audit_triples(Triples.from_labels(TRAIN), name).save_plot(tmp_path / f"{number}.png")
    audit_triples(Triples.from_labels([]), "empty").save_plot(tmp_path / "empty.svg")
    assert len(list(tmp_path.iterdir())) == 5


def test_plot_shows_both_graphs_and_every_panel() -> None:
    figure_module = pytest.importorskip("matplotlib.figure")
    from contextpool.triples.audit.plot import _draw

    figure = figure_module.Figure()
    _draw(figure, audit_dataset(inductive()))
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "Degree",
        "Relation frequency",
        "Relation sets",
        "Reach",
    ]
    degrees = figure.axes[0]
    assert (degrees.get_xscale(), degrees.get_yscale()) == ("log", "log")
    np.testing.assert_allclose(degrees.lines[0].get_ydata(), [1, 3 / 5])  # all have degree 1, three of five 2
    assert len(figure.axes[3].patches) == 14  # six hops and "any", of two parts


def test_plot_refuses_another_suffix_and_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = audit_dataset(inductive())
    with pytest.raises(ConfigError, match=r"\.png or \.svg"):
        report.save_plot(tmp_path / "audit.pdf")
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", import_without_matplotlib)
    with pytest.raises(MissingExtraError, match=r"contextpool\[plot\]"):
        report.save_plot(tmp_path / "audit.png")


_import = builtins.__import__


def import_without_matplotlib(name: str, *rest: Any) -> Any:
    if name.split(".")[0] == "matplotlib":
        raise ModuleNotFoundError(f"No module named {name!r}")
    return _import(name, *rest)
