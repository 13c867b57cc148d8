"""OpenKE folders: head tail relation, counted, in range, or an error with its line."""

from __future__ import annotations

import gzip

import pytest

from contextpool.errors import DataError, TripleFileError
from contextpool.triples.formats import detect_layout, load_folder
from layouts import TEST, TRAIN, VALID, flat, openke, put


def test_openke_lines_are_head_tail_relation(tmp_path):
    dataset = load_folder(openke(tmp_path / "tiny"))
    assert detect_layout(tmp_path / "tiny") == "openke"
    assert set(dataset.training_graph) == set(TRAIN)
    assert set(dataset.validation_queries) == set(VALID)
    assert set(dataset.inference_test) == set(TEST)


def test_openke_reads_carriage_returns_and_a_last_line_without_end(tmp_path):
    folder = openke(tmp_path)
    for path in folder.iterdir():
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n").removesuffix(b"\r\n"))
    assert set(load_folder(folder).training_graph) == set(TRAIN)


@pytest.mark.parametrize(
    ("file", "lines", "where", "why"),
    [
        ("train2id", ["2", "1 0 1", "0 3 0", "3 1 1"], 1, "count is 2, but 3 lines follow"),
        ("train2id", ["4", "1 0 1", "0 3 0", "3 1 1"], 1, "count is 4, but 3 lines follow"),
        ("train2id", ["1 0 1", "0 3 0"], 1, "not a count"),
        ("train2id", ["-1"], 1, "not a count"),
        ("train2id", [], 1, "not a count"),
        ("train2id", ["2", "1 0 1", "1 4 1"], 3, "entity id 4 is out of range: entity2id lists 4"),
        ("train2id", ["1", "1 0 2"], 2, "relation id 2 is out of range: relation2id lists 2"),
        ("train2id", ["1", "1 0"], 2, "not three ids"),
        ("train2id", ["1", "1 0 1 1"], 2, "not three ids"),
        ("train2id", ["1", "1 0 -1"], 2, "not three ids"),
        ("train2id", ["1", "1 0 ١"], 2, "not three ids"),
        ("train2id", ["1", ""], 2, "not three ids"),
        ("train2id", ["1", f"1 0 {'9' * 5000}"], 2, "not three ids"),
        ("entity2id", ["4", "bob\t0", "ann\t1", "cid\t1", "dan\t2"], 4, "id 1 has occurred before"),
        ("entity2id", ["4", "bob\t0", "ann\t1", "cid\t4", "dan\t2"], 4, "id 4 is out of range"),
        ("entity2id", ["4", "bob\t0", "ann\t1", "bob\t3", "dan\t2"], 4, "'bob' has occurred before"),
        ("entity2id", ["1", "bob 0"], 2, "'bob 0' is not label TAB id"),
        ("entity2id", ["1", "\t0"], 2, "is empty"),
        ("entity2id", ["1", "a\tb\t0"], 2, "holds a tab"),
        ("relation2id", ["1", "likes^-1\t0"], 2, "names the inverse"),
    ],
)
def test_openke_errors_carry_file_and_line(tmp_path, file, lines, where, why):
    folder = openke(tmp_path)
    put(folder / f"{file}.txt", lines)
    with pytest.raises(TripleFileError, match=why) as caught:
        load_folder(folder)
    assert caught.value.path.endswith(f"{file}.txt")
    assert caught.value.line == where


def test_openke_bytes_that_are_not_utf8_are_refused(tmp_path):
    folder = openke(tmp_path)
    (folder / "entity2id.txt").write_bytes(b"1\nb\xffb\t0\n")
    with pytest.raises(TripleFileError, match=r"entity2id\.txt:2: byte 2 of the line is not UTF-8 \(0xff\)"):
        load_folder(folder)


def test_openke_damaged_archives_are_refused(tmp_path):
    folder = openke(tmp_path)
    whole = gzip.compress((folder / "train2id.txt").read_bytes())
    (folder / "train2id.txt").unlink()
    (folder / "train2id.txt.gz").write_bytes(whole[:-9])
    with pytest.raises(DataError, match="damaged"):
        load_folder(folder)


def test_openke_empty_parts_are_refused(tmp_path):
    folder = openke(tmp_path)
    put(folder / "test2id.txt", ["0"])
    with pytest.raises(DataError, match=r"test2id\.txt: the file holds no triples"):
        load_folder(folder)


def test_openke_unknown_relations_name_their_line(tmp_path):
    folder = openke(tmp_path)
    put(folder / "train2id.txt", ["2", "1 0 1", "3 1 1"])
    put(folder / "test2id.txt", ["2", "3 2 1", "3 2 0"])
    put(folder / "valid2id.txt", ["1", "1 3 1"])
    with pytest.raises(TripleFileError, match=r"test2id\.txt:3: relation 'likes' does not occur in training"):
        load_folder(folder)


def test_openke_beside_plain_triples_has_to_be_decided(tmp_path):
    flat(openke(tmp_path))
    with pytest.raises(DataError, match="layout can be openke or flat"):
        load_folder(tmp_path)
    assert set(load_folder(tmp_path, layout="openke").training_graph) == set(TRAIN)
