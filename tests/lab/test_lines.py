"""A file of lines survives a kill at any byte, is written by one process, and damage in its middle is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpool.errors import CheckpointWriteError, DataError
from lab.jobs import LineFile, read_lines

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
LINES = st.lists(st.dictionaries(st.text(), VALUES, max_size=4), max_size=4)


def slowly_whole(data: bytes) -> list[dict[str, Any]]:
    """The twin: every part between newlines that is an object; only the last may be something else."""
    whole = []
    for text in data.split(b"\n"):
        try:
            value = json.loads(text)
        except ValueError:
            continue
        if isinstance(value, dict):
            whole.append(value)
    return whole


@given(lines=LINES, cut=st.integers(0, 400), again=st.dictionaries(st.text(), VALUES, max_size=2))
def test_a_file_cut_at_any_byte_keeps_its_whole_lines_and_goes_on(
    lines: list[dict[str, Any]], cut: int, again: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("lines") / "a.jsonl"
    with LineFile(path) as file:
        for line in lines:
            file.append(line)
    data = path.read_bytes()[:cut]
    path.write_bytes(data)
    kept = slowly_whole(data)
    assert read_lines(path) == kept == lines[: len(kept)]
    with LineFile(path) as file:
        assert file.lines == kept
        half = data[data.rfind(b"\n") + 1 :]
        assert (file.repaired is not None) == (bool(half) and slowly_whole(half) == [])
        file.append(again)
        assert file.lines == [*kept, again]
    assert read_lines(path) == [*kept, again]
    assert path.read_bytes().count(b"\n") == len(kept) + 1


def test_the_repair_says_what_it_did(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 1}\n{"a": ')
    with LineFile(path) as file:
        assert file.repaired == f"{path}: the last line was half-written; cut off its 6 bytes."
    assert path.read_bytes() == b'{"a": 1}\n'


def test_a_last_line_of_garbage_is_cut_off_too(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 1}\n\0\0\0\0\n')
    with LineFile(path) as file:
        assert file.lines == [{"a": 1}]
        assert file.repaired is not None


@pytest.mark.parametrize("damage", [b"nonsense", b'{"a": ', b"[1]"])
def test_damage_before_the_last_line_is_an_error_by_its_line(damage: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 1}\n' + damage + b'\n{"a": 2}\n')
    before = path.read_bytes()
    for read in (read_lines, LineFile):
        with pytest.raises(DataError, match=r"a\.jsonl:2: the line is not a JSON object"):
            read(path)
    assert path.read_bytes() == before


def test_two_writers_are_one_too_many(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.jsonl"
    with LineFile(path), pytest.raises(CheckpointWriteError, match="another process"):
        LineFile(path)
    with LineFile(path):
        pass


def test_a_figure_that_is_not_finite_is_refused_and_leaves_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with LineFile(path) as file:
        with pytest.raises(DataError, match="not finite"):
            file.append({"mrr": float("nan")})
        assert file.lines == []
    assert path.read_bytes() == b""


def test_a_file_that_is_not_there_has_no_lines(tmp_path: Path) -> None:
    assert read_lines(tmp_path / "none.jsonl") == []


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointWriteError, match="cannot be written"):
        LineFile(tmp_path / "file" / "a.jsonl")
