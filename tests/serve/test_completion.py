"""Completion against a plain search through all labels."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from contextpool.graph.graph import Graph
from contextpool.predict import Names
from contextpool.serve.registry import Completions, folded

LABELS = st.lists(st.text("aAbBé -'", min_size=1, max_size=6), min_size=1, max_size=12, unique=True)


def of(labels: list[str], names: dict[str, str] | None = None) -> Completions:
    return Completions(Graph.from_triples([(one, "r", one) for one in labels]), Names(names or {}))


def literal(labels: list[str], prefix: str) -> list[str]:
    """Those that start so, by folded label; then those with a later word that does."""
    wanted = folded(prefix)
    first = sorted((folded(one), one) for one in labels if folded(one).startswith(wanted))
    later = sorted(
        (folded(one)[start:], one)
        for one in labels
        for start in [match.start() for match in re.finditer(r"(?<=\W)\w", folded(one))]
        if folded(one)[start:].startswith(wanted)
    )
    return list(dict.fromkeys([label for _, label in first] + [label for _, label in later]))


@given(LABELS, st.text("abé ", max_size=3), st.integers(1, 15))
def test_it_finds_what_a_search_through_everything_finds(labels: list[str], prefix: str, limit: int) -> None:
    expected = literal(labels, prefix)
    found, more = of(labels).starting_with(prefix, limit)
    assert found == expected[:limit]
    assert more == (len(expected) > limit)


def test_case_and_accents_do_not_matter_and_later_words_count() -> None:
    found, _ = of(["Côte d'Ivoire", "Ivory", "El Salvador", "Salzburg"]).starting_with("cote", 10)
    assert found == ["Côte d'Ivoire"]
    assert of(["El Salvador", "Salzburg"]).starting_with("SAL", 10)[0] == ["Salzburg", "El Salvador"]
    assert of(["Côte d'Ivoire", "Ivory"]).starting_with("ivo", 10)[0] == ["Ivory", "Côte d'Ivoire"]


def test_names_are_found_and_give_ids() -> None:
    found, _ = of(["Q1", "Q2"], {"Q1": "Universe", "Q2": "Earth"}).starting_with("ear", 10)
    assert found == ["Q2"]
    assert of(["Q1"], {"Q1": "Universe"}).starting_with("q", 10)[0] == ["Q1"]


def test_nothing_typed_gives_the_first_labels() -> None:
    assert of(["b", "a", "c"]).starting_with("", 2) == (["a", "b"], True)
