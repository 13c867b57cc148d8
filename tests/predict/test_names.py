"""Names in, ids out: both are accepted, what may mean two things is refused, and everything wrong is told at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpool.errors import DataError, InputError, UnknownNameError, WrongNamesError
from contextpool.graph.relations import RelationVocabulary
from contextpool.predict import Names, read_names
from contextpool.predict.names import Resolver
from contextpool.triples.labels import Vocabulary

NAMES = Names({"Q1": "Paris", "Q2": "Paris", "Q3": "Rome", "P1": "capital of", "Q9": "elsewhere"})
ENTITIES = Vocabulary.of(["Q1", "Q2", "Q3", "Oslo"])
RELATIONS = RelationVocabulary(("P1", "P2"))


def resolver(names: Names = NAMES) -> Resolver:
    return Resolver(ENTITIES, RELATIONS, names)


def test_ids_and_names_are_both_accepted() -> None:
    found = resolver()
    assert [ENTITIES.labels[found.entity(text)] for text in ("Q3", "Rome", "Oslo")] == ["Q3", "Q3", "Oslo"]
    texts = ("P1", "capital of", "P1^-1", "capital of^-1", "P2")
    assert [RELATIONS.directed[found.relation(text)] for text in texts] == [
        "P1",
        "P1",
        "P1^-1",
        "P1^-1",
        "P2",
    ]
    found.check()


def test_a_name_of_several_ids_is_refused_with_the_ids() -> None:
    found = resolver()
    assert found.entity("Paris") == -1
    with pytest.raises(
        WrongNamesError, match=r"entity 'Paris' may mean 'Q1', 'Q2'\. Use the id\.|'Q1', 'Q2'"
    ):
        found.check()


def test_an_id_that_is_also_the_name_of_another_is_refused() -> None:
    found = resolver(Names({"Q3": "Oslo"}))
    found.entity("Oslo")
    with pytest.raises(InputError, match="may mean 'Oslo', 'Q3'"):
        found.check()


def test_a_name_of_what_the_graph_does_not_hold_is_unknown() -> None:
    found = resolver()
    found.entity("elsewhere")
    with pytest.raises(UnknownNameError, match="entity 'elsewhere' is unknown"):
        found.check()


def test_everything_wrong_is_told_at_once_with_suggestions_by_name() -> None:
    found = resolver()
    found.entity("Rom")
    found.relation("capital off", "line 3")
    found.entity("Paris")
    with pytest.raises(WrongNamesError) as caught:
        found.check()
    message = str(caught.value)
    assert message.startswith("3 names cannot be used: ")
    for words in (
        "'Rom' is unknown",
        "closest 'Rome'",
        "line 3: relation 'capital off'",
        "'capital of'",
        "'Q1', 'Q2'",
    ):
        assert words in message
    assert "\n" not in message
    assert caught.value.names == [("entity", "Rom"), ("relation", "capital off"), ("entity", "Paris")]


def test_a_hundred_wrong_names_make_a_short_message_that_counts_them() -> None:
    found = resolver()
    for number in range(100):
        found.entity(f"nobody {number}")
        found.entity(f"nobody {number}")  # told once
    with pytest.raises(WrongNamesError, match=r"^100 names .* and 90 more\.$") as caught:
        found.check()
    assert len(str(caught.value)) < 1500


@pytest.mark.parametrize("text", ["", "^-1", "P1^-1^-1", "x" * 10**6, "\x1b[31m", "p\tq"])
def test_odd_texts_are_unknown_names_not_accidents(text: str) -> None:
    found = resolver()
    assert found.relation(text) == -1
    assert found.entity(text) == -1
    with pytest.raises(WrongNamesError) as caught:
        found.check()
    assert len(str(caught.value)) < 800
    assert str(caught.value).isprintable()


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.sampled_from(["x", "y", "a", "b"])),
    st.sampled_from("abcdxyz"),
)
def test_resolving_is_what_a_search_by_hand_finds(names: dict[str, str], text: str) -> None:
    entities = Vocabulary.of("abcd")
    found = Resolver(entities, RELATIONS, Names(names)).entity(text)
    meant = {label for label in entities.labels if text in (label, names.get(label))}
    assert found == (entities.index[min(meant)] if len(meant) == 1 else -1)


def test_a_label_without_a_name_is_shown_as_itself() -> None:
    assert [NAMES.shown(label) for label in ("Q3", "Oslo", "P1", "P1^-1", "P2^-1")] == [
        "Rome", "Oslo", "capital of", "capital of^-1", "P2^-1",
    ]  # fmt: skip


def test_names_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "names.tsv"
    path.write_text("Q1\tParis\r\nQ2\tÇa va?\nQ1\tParis\n", "utf-8")
    assert read_names(path).of_id == {"Q1": "Paris", "Q2": "Ça va?"}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"Q1\tParis\nQ2\n", "names.tsv:2: 1 columns instead of 2"),
        (b"Q1\tParis\tFrance\n", "names.tsv:1: 3 columns"),
        (b"Q1\tParis\nQ1\tLyon\n", "names.tsv:2: 'Q1' is named 'Lyon' here and 'Paris' above"),
        (b"Q1\t\n", "names.tsv:1: the name '' is empty"),
        (b"\xff\tx\n", "names.tsv:1: byte 1 .* not UTF-8"),
        (b"", "holds no names"),
    ],
)
def test_a_file_that_is_no_list_of_names_is_refused_with_its_line(
    tmp_path: Path, content: bytes, words: str
) -> None:
    path = tmp_path / "names.tsv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=words):
        read_names(path)
    with pytest.raises(DataError, match="no such file"):
        read_names(tmp_path / "nowhere.tsv")
