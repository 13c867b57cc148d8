"""Control files: continuation lines, comments, compression; a malformed line is named by its number."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpool.errors import DataError, TripleFileError
from debian_example import deb822

read_stanzas = deb822.read_stanzas

TWO = b"""Package: a
Depends: b (>= 1),
 c |
\td
# a comment
Tag: role::program

\t
package:x
 .
Empty:
"""
FIELDS = [
    {"package": "a", "depends": "b (>= 1),\nc |\nd", "tag": "role::program"},
    {"package": "x\n.", "empty": ""},
]


def fields_of(path: Path) -> list[dict[str, str]]:
    return [stanza.fields for stanza in read_stanzas(path)]


def test_fields_continue_and_stanzas_end_at_blank_lines(tmp_path: Path):
    (tmp_path / "Packages").write_bytes(TWO)
    assert fields_of(tmp_path / "Packages") == FIELDS
    first, second = read_stanzas(tmp_path / "Packages")
    assert (first.line, second.line) == (1, 9)
    assert second.lines == {"package": 9, "empty": 11}
    (tmp_path / "Packages").write_bytes(TWO.replace(b"\n", b"\r\n"))
    assert fields_of(tmp_path / "Packages") == FIELDS


def test_every_compression_of_apt(tmp_path: Path):
    (tmp_path / "P.gz").write_bytes(gzip.compress(TWO))
    (tmp_path / "P.xz").write_bytes(lzma.compress(TWO))
    for suffix, name in ((".lz4", "lz4"), (".zst", "zstd")):
        with pa.CompressedOutputStream(str(tmp_path / f"P{suffix}"), name) as sink:
            sink.write(TWO)
    for suffix in (".gz", ".xz", ".lz4", ".zst"):
        assert fields_of(tmp_path / f"P{suffix}") == FIELDS


BAD = {
    "no colon": (b"Package: a\nnonsense\n", 2, "'nonsense' is no field"),
    "continues nothing": (b"Package: a\n\n b\n", 3, "continues no field"),
    "first line indented": (b" b\n", 1, "continues no field"),
    "twice": (b"Package: a\nVersion: 1\npackage: b\n", 3, "there twice"),
    "not UTF-8": (b"Package: a\nMaintainer: \xff\n", 2, "not UTF-8"),
    "a blank in the name": (b"Package: a\nPre Depends: x\n", 2, "is no field"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_malformed_line_is_named(name: str, tmp_path: Path):
    data, line, said = BAD[name]
    (tmp_path / "Packages").write_bytes(data)
    with pytest.raises(TripleFileError) as refused:
        list(read_stanzas(tmp_path / "Packages"))
    assert refused.value.line == line
    assert said in str(refused.value)


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".lz4", ".zst"])
def test_damaged_files_are_refused(tmp_path: Path, suffix: str):
    (tmp_path / f"P{suffix}").write_bytes(b"not compressed at all" * 9)
    with pytest.raises(DataError, match=r"P\."):
        list(read_stanzas(tmp_path / f"P{suffix}"))
    with pytest.raises(DataError, match="no such file"):
        list(read_stanzas(tmp_path / f"nothing{suffix}"))


_NAMES = st.text("abcXYZ-", min_size=1, max_size=6).filter(lambda name: not name.startswith("-"))
_VALUES = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Zs", "Zl", "Zp"]), min_size=1, max_size=8
)
_STANZAS = st.lists(
    st.dictionaries(_NAMES, st.lists(_VALUES, min_size=1, max_size=3), min_size=1, max_size=4).filter(
        lambda fields: len({name.lower() for name in fields}) == len(fields)
    ),
    max_size=4,
)


@given(_STANZAS, st.integers(1, 3))
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, stanzas: list[dict[str, list[str]]], blanks: int
):
    path = tmp_path_factory.mktemp("deb") / "Packages"
    text = ("\n" * blanks).join(
        "".join(f"{name}: " + "\n ".join(lines) + "\n" for name, lines in fields.items())
        for fields in stanzas
    )
    path.write_bytes(text.encode())
    expected = [{name.lower(): "\n".join(lines) for name, lines in fields.items()} for fields in stanzas]
    assert fields_of(path) == expected
