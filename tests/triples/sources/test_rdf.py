"""RDF: five formats give the same facts; literals, blank nodes and named graphs as chosen."""

from __future__ import annotations

import gzip
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpool.errors import ConfigError, DataError, MissingExtraError, TripleFileError, UnknownNameError
from contextpool.triples.reader import read_triples

oxigraph = pytest.importorskip("pyoxigraph", reason="the rdf extra is not installed")

TURTLE = """
@prefix ex: <http://ex.org/> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
ex:alice ex:knows ex:bob, [ ex:knows ex:carol ] ;
    ex:age 42 ;
    ex:says "a\\tb \\"c\\"", "hallo"@de .
_:someone ex:knows ex:alice .
"""
KNOWN = {
    ("ex:alice", "ex:knows", "ex:bob"),
    ("ex:alice", "ex:knows", "_:g1"),
    ("_:g1", "ex:knows", "ex:carol"),
    ("_:someone", "ex:knows", "ex:alice"),
}
SAID = {
    ("ex:alice", "ex:age", '"42"^^xsd:integer'),
    ("ex:alice", "ex:says", '"a\\tb \\"c\\""'),
    ("ex:alice", "ex:says", '"hallo"@de'),
}
TRIG = """
@prefix ex: <http://ex.org/> .
ex:a ex:r ex:b .
ex:g1 { ex:a ex:r ex:c . }
ex:g2 { ex:a ex:r ex:d . ex:a ex:r ex:b . }
"""


@pytest.fixture
def turtle(tmp_path: Path) -> Path:
    path = tmp_path / "small.ttl"
    path.write_text(TURTLE, "utf-8")
    return path


def test_literals_are_left_out_and_it_is_told(turtle: Path):
    told: list[str] = []
    assert set(read_triples(turtle, tell=told.append)) == KNOWN
    assert told == ["left out 3 facts that have a literal as their object (literals=keep keeps them); 4 stay"]


def test_literals_kept(turtle: Path):
    assert set(read_triples(f"{turtle}?literals=keep")) == KNOWN | SAID


def test_blank_nodes_left_out(turtle: Path):
    assert set(read_triples(turtle, blank="drop")) == {("ex:alice", "ex:knows", "ex:bob")}


def test_two_readings_name_nameless_nodes_alike(turtle: Path):
    assert set(read_triples(turtle)) == set(read_triples(turtle))


def test_a_nameless_node_takes_no_name_of_the_file(tmp_path: Path):
    (tmp_path / "x.ttl").write_text("@prefix : <http://e/> . :a :r [] . _:g1 :r :a .")
    assert set(read_triples(tmp_path / "x.ttl")) == {(":a", ":r", "_:g2"), ("_:g1", ":r", ":a")}


def test_iris_in_full_and_by_given_prefixes(turtle: Path):
    full = set(read_triples(turtle, shorten=False, blank="drop"))
    assert full == {("http://ex.org/alice", "http://ex.org/knows", "http://ex.org/bob")}
    given_prefix = set(read_triples(f"{turtle}?prefix=me:http://ex.org/&blank=drop"))
    assert given_prefix == {("me:alice", "me:knows", "me:bob")}


@pytest.mark.parametrize(
    ("suffix", "form"),
    [
        (".nt", "N_TRIPLES"),
        (".ttl", "TURTLE"),
        (".nq", "N_QUADS"),
        (".trig", "TRIG"),
        (".rdf", "RDF_XML"),
        (".owl", "RDF_XML"),
    ],
)
def test_every_format_gives_the_same_facts(turtle: Path, suffix: str, form: str, tmp_path: Path):
    quads = list(oxigraph.parse(path=str(turtle), format=oxigraph.RdfFormat.TURTLE))
    facts = [oxigraph.Triple(quad.subject, quad.predicate, quad.object) for quad in quads]
    written = oxigraph.serialize(facts, format=getattr(oxigraph.RdfFormat, form))
    (tmp_path / f"again{suffix}").write_bytes(written)
    (tmp_path / f"again{suffix}.gz").write_bytes(gzip.compress(written))
    prefixes = {"ex": "http://ex.org/", "xsd": "http://www.w3.org/2001/XMLSchema#"}
    for name in (f"again{suffix}", f"again{suffix}.gz"):
        read = read_triples(tmp_path / name, literals="keep", prefixes=prefixes)
        assert {fact for fact in read if "_:" not in "".join(fact)} == {KNOWN_NAMED, *SAID}
        assert len(read) == len(KNOWN | SAID)


KNOWN_NAMED = ("ex:alice", "ex:knows", "ex:bob")


def test_named_graphs(tmp_path: Path):
    path = tmp_path / "graphs.trig"
    path.write_text(TRIG)
    tails = lambda **options: {tail for _, _, tail in read_triples(path, **options)}  # noqa: E731
    assert tails() == {"ex:b", "ex:c", "ex:d"}
    assert tails(graph="default") == {"ex:b"}
    assert tails(graph="http://ex.org/g2") == {"ex:b", "ex:d"}
    with pytest.raises(UnknownNameError, match=r"closest 'http://ex.org/g[12]'.*full IRI"):
        tails(graph="http://ex.org/g3")


BAD = {
    "syntax": ("x.nt", "<http://a> <http://b> .\n", TripleFileError, "x.nt:1: this is not ntriples"),
    "relative": ("x.ttl", "<a> <b> <c> .", TripleFileError, "base=IRI"),
    "statement": (
        "x.ttl",
        "@prefix : <http://e/> . :a :b <<( :a :b :c )>> .",
        DataError,
        "statement about a statement",
    ),
    "only literals": ("x.ttl", "<http://a> <http://b> 1 .", DataError, "literals=keep"),
    "empty": ("x.ttl", "", DataError, "no facts"),
    "not RDF": ("x.rdf", "no xml at all", TripleFileError, "this is not rdfxml"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_taken_is_named(name: str, tmp_path: Path):
    file, text, kind, said = BAD[name]
    (tmp_path / file).write_text(text)
    with pytest.raises(kind) as refused:
        read_triples(tmp_path / file)
    assert said in str(refused.value)
    assert file in str(refused.value)


def test_the_line_of_a_syntax_error(tmp_path: Path):
    (tmp_path / "x.nt").write_text("<http://a> <http://b> <http://c> .\n<http://a> nonsense\n")
    with pytest.raises(TripleFileError) as refused:
        read_triples(tmp_path / "x.nt")
    assert refused.value.line == 2


def test_a_base_makes_relative_iris_whole(tmp_path: Path):
    (tmp_path / "x.ttl").write_text("<a> <b> <c> .")
    assert set(read_triples(tmp_path / "x.ttl", base="http://e/")) == {
        ("http://e/a", "http://e/b", "http://e/c")
    }


def test_a_damaged_file(tmp_path: Path, turtle: Path):
    (tmp_path / "cut.ttl.gz").write_bytes(gzip.compress(turtle.read_bytes())[:-12])
    with pytest.raises(DataError, match=r"cut\.ttl\.gz"):
        read_triples(tmp_path / "cut.ttl.gz")


@pytest.mark.parametrize("options", [{"literals": "some"}, {"blank": "yes"}, {"shorten": "maybe"}])
def test_options_out_of_range(turtle: Path, options: dict[str, str]):
    with pytest.raises(ConfigError, match=next(iter(options))):
        read_triples(turtle, **options)


_NAMES = st.sampled_from(["a", "b", "a/b", "x:y", "#"])
_FACTS = st.lists(st.tuples(_NAMES, _NAMES, _NAMES), min_size=1, max_size=8)


@given(
    _FACTS,
    st.dictionaries(st.sampled_from(["p", "q"]), st.sampled_from(["http://e/", "http://e/a", "http:"])),
)
def test_shortening_loses_no_fact(
    tmp_path_factory: pytest.TempPathFactory, facts: list[tuple[str, ...]], prefixes: dict[str, str]
):
    path = tmp_path_factory.mktemp("nt") / "x.nt"
    path.write_text("".join(" ".join(f"<http://e/{name}>" for name in fact) + " .\n" for fact in facts))
    read = read_triples(path, prefixes=prefixes)
    assert len(read) == len(set(facts))
    assert {tuple(_long(label, prefixes) for label in fact) for fact in read} == {
        tuple(f"http://e/{name}" for name in fact) for fact in facts
    }


def _long(label: str, prefixes: dict[str, str]) -> str:
    name, _, rest = label.partition(":")
    return prefixes[name] + rest if name in prefixes else label


def test_the_extra_is_named_where_it_is_missing(turtle: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "pyoxigraph", None)
    with pytest.raises(MissingExtraError, match=r"contextpool\[rdf\]"):
        read_triples(turtle)


def test_the_brick_schema():
    """Version 0.8 of the package ships Brick 1.4 with 60,604 triples; read without importing the package."""
    found = find_spec("brickschema")
    if found is None or found.origin is None:
        pytest.skip("the package brickschema is not installed")
    file = Path(found.origin).parent / "ontologies" / "1.4" / "Brick.ttl"
    if not file.is_file():
        pytest.skip("this version of brickschema ships no Brick 1.4")
    whole = read_triples(file, literals="keep")
    assert len(whole) == 60_604
    assert len(whole) == len(set(oxigraph.parse(path=str(file))))
    assert "brick:hasTag" in whole.relations
