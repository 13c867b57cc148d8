"""One line of text names a source: which kind, where, with which options; everything else is a named error."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextpool.errors import ConfigError, DataError, InputError
from contextpool.triples.reader import read_triples
from contextpool.triples.sources.address import SCHEMES, SUFFIXES, find_address


def test_the_kind_is_told_by_the_suffix_before_compression():
    for suffix, kind in SUFFIXES.items():
        for more in ("", ".gz", ".zst"):
            address = find_address(f"folder/facts{suffix}{more}")
            assert address is not None
            assert (address.kind, address.place) == (kind, f"folder/facts{suffix}{more}")


def test_names_and_folders_are_no_sources(tmp_path: Path):
    (tmp_path / "odd.ttl").mkdir()
    for text in ("world", "grail/fb237_v1", str(tmp_path), str(tmp_path / "odd.ttl"), "C:", "http://x.org/y"):
        assert find_address(text) is None


def test_a_file_of_unknown_suffix_is_read_strictly(tmp_path: Path):
    (tmp_path / "facts").write_bytes(b"a\tr\tb\n")
    assert set(read_triples(tmp_path / "facts")) == {("a", "r", "b")}


def test_the_query_is_everything_that_follows():
    address = find_address(
        "sqlite:a b.db?engine=other&query=SELECT '?' || '&query=' || '%41', r, t FROM x WHERE a=1"
    )
    assert address is not None
    assert address.place == "a b.db"
    assert address.options == {
        "engine": "other",
        "query": "SELECT '?' || '&query=' || '%41', r, t FROM x WHERE a=1",
    }


def test_a_query_may_be_longer_than_a_file_name_can_be():
    address = find_address(f"sqlite:x.db?query=SELECT '{'a' * 5_000}', 'r', 't'")
    assert address is not None
    assert address.kind == "sqlite"


def test_other_values_are_percent_decoded_and_prefixes_add_up():
    address = find_address("x.ttl?graph=http://g/%26%25&prefix=a:http://a/&prefix=b:urn:b:")
    assert address is not None
    assert address.options == {"graph": "http://g/&%", "prefixes": {"a": "http://a/", "b": "urn:b:"}}


def test_a_question_mark_in_a_file_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("what?=.tsv").write_bytes(b"a\tr\tb\n")
    assert set(read_triples("what?=.tsv")) == {("a", "r", "b")}


def test_every_scheme_is_known():
    for scheme, kind in SCHEMES.items():
        address = find_address(f"{scheme}:x?query=q")
        assert address is not None
        assert address.kind == kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [("neo4j://me@host:7687/movies?query=M", "neo4j"), ("postgresql://me@host/shop?query=S", "postgres")],
)
def test_an_url_stays_one(text: str, kind: str):
    address = find_address(text)
    assert address is not None
    assert (address.kind, address.place) == (kind, text.split("?")[0])


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("data/facts.csv.gz?delimiter=;", "facts"),
        ("sqlite:a/b/shop.db?query=q", "shop"),
        ("neo4j://me@host:7687/movies?query=q", "movies"),
        ("duckdb:?query=q", "duckdb"),
    ],
)
def test_a_short_name_for_titles(text: str, name: str):
    address = find_address(text)
    assert address is not None
    assert address.name == name


WRONG = [
    ("facts.csv?delimiter", "is no option; write key=value"),
    ("facts.csv?header=no&header=yes", "header is given twice"),
    ("facts.csv?format=xls", "it is one of arrow, csv"),
    ("facts.csv?colums=a,b,c", "Did you mean columns?"),
    ("facts.tsv?delimiter=;", "'delimiter' is not an option of tsv. It takes columns, header, bad_rows."),
    ("facts.ttl?prefix=ex", "write prefix=NAME:IRI"),
    ("facts.tsv?split=inductive", "the whole graph is read"),
    ("neo4j://me:secret@host?query=q", "NEO4J_PASSWORD"),
    ("postgres:host=h password=secret?query=q", "PGPASSWORD"),
]


@pytest.mark.parametrize(("text", "said"), WRONG)
def test_what_cannot_be_meant_is_refused(text: str, said: str):
    with pytest.raises(ConfigError) as refused:
        read_triples(text)
    assert said in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("suffix", [*SUFFIXES, ".csv.gz"])
def test_a_missing_file_is_told_as_such(suffix: str, tmp_path: Path):
    with pytest.raises(InputError, match="no such file"):
        read_triples(tmp_path / f"nothing{suffix}")


def test_an_option_said_twice(tmp_path: Path):
    with pytest.raises(ConfigError, match="Say it once"):
        read_triples("facts.csv?header=no", header="yes")


def test_what_is_no_source_at_all():
    with pytest.raises(DataError, match=r"builtins.list is no source of triples.*Graph.from_triples"):
        read_triples([("a", "r", "b")])
