from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from audit_worlds import CLEAN, finding, inductive
from contextpool.errors import DataError
from contextpool.triples.audit import audit_dataset, audit_folder_duplicates, audit_triples
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
    assert any(line.split() == ["in", "graph", "0", "0", "0", "1", "1"] for line in lines)
    header = next(line for line in lines if line.lstrip().startswith("training valid"))
    row = next(line for line in lines if line.startswith("without edge"))
    assert len(header) == len(row)  # right-aligned under its column


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
    assert len(read_triples(path)) == 2
    (file,) = audit_folder_duplicates(tmp_path)
    assert (file.triples, file.duplicates, file.repeated_elsewhere) == (3, 1, 0)


def test_triples_of_two_files_and_compressed_ones(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("a\tr\tb\nb\tr\tc\n")
    with gzip.open(tmp_path / "valid.tsv.gz", "wb") as stream:
        stream.write(b"b\tr\tc\nc\tr\td\n")
    train, valid = audit_folder_duplicates(tmp_path)
    assert (train.repeated_elsewhere, valid.repeated_elsewhere) == (1, 1)
    assert (train.triples, valid.triples) == (2, 2)


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
    assert report.to_dict()["raw_files"]


def test_missing_folder_and_damaged_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such folder"):
        audit_folder_duplicates(tmp_path / "nowhere")
    (tmp_path / "train.txt.gz").write_bytes(gzip.compress(b"a\tr\tb\n" * 1_000)[:-20])
    with pytest.raises(DataError, match="cannot be read to its end"):
        audit_folder_duplicates(tmp_path)
