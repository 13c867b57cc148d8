"""Short names of IRIs: never the same for two, by the longest namespace, the given prefix first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpool.errors import ConfigError
from contextpool.triples.sources.rdf import Shortener, checked_prefixes, merged


def test_the_longest_namespace_wins():
    shortener = Shortener({"ex": "http://ex.org/", "deep": "http://ex.org/deep/"})
    assert shortener.short("http://ex.org/a") == "ex:a"
    assert shortener.short("http://ex.org/deep/a") == "deep:a"
    assert shortener.short("http://ex.org/") == "ex:"
    assert shortener.short("http://other.org/a") == "http://other.org/a"


def test_of_two_names_for_a_namespace_the_first_in_order_is_taken():
    assert Shortener({"z": "http://e/", "b": "http://e/"}).short("http://e/x") == "b:x"


def test_an_iri_spelled_like_a_short_name_keeps_the_other_long():
    labels = Shortener({"urn": "http://e/"}).labels(["http://e/x", "urn:x", "http://e/y"])
    assert labels == {"http://e/x": "http://e/x", "urn:x": "urn:x", "http://e/y": "urn:y"}


_PIECES = st.sampled_from(["a", "b", ":", "a:", "b:", "a:b"])
_IRIS = st.lists(_PIECES, min_size=1, max_size=4).map("".join)


@given(st.dictionaries(st.sampled_from(["a", "b", ""]), _IRIS, max_size=3), st.sets(_IRIS, max_size=12))
def test_no_two_iris_share_a_label(prefixes: dict[str, str], iris: set[str]):
    labels = Shortener(prefixes).labels(iris)
    assert set(labels) == iris
    assert len(set(labels.values())) == len(iris)


@given(st.dictionaries(st.sampled_from(["a", "b"]), _IRIS, max_size=2), st.sets(_IRIS, max_size=12))
def test_a_label_can_be_read_back(prefixes: dict[str, str], iris: set[str]):
    for iri, label in Shortener(prefixes).labels(iris).items():
        name, _, rest = label.partition(":")
        assert label == iri or prefixes[name] + rest == iri


def test_given_prefixes_win_over_declared_ones():
    declared = {"ex": "http://declared/", "same": "http://given/", "kept": "http://kept/"}
    assert merged(declared, {"ex": "http://given/"}) == {"ex": "http://given/", "kept": "http://kept/"}


@pytest.mark.parametrize(
    "given", [{"a:b": "http://x/"}, {"a": "x"}, {"_a": "http://x/"}, {1: "http://x/"}, ["a"]]
)
def test_what_is_no_prefix(given: object):
    with pytest.raises(ConfigError, match="prefix"):
        checked_prefixes(given, "x.ttl")
