"""Questions have one open place, selections sensible numbers; both refuse by name."""

from __future__ import annotations

import pytest

from contextpool.errors import ConfigError
from contextpool.predict import Answer, Question, RelationAnswer
from contextpool.predict.answers import MOST_ANSWERS, Selection


def test_a_question_leaves_one_place_open() -> None:
    assert Question("a", "r", None).asked == "tail"
    assert Question(None, "r", "b").asked == "head"
    assert Question("a", None, "b").asked == "relation"
    assert str(Question("a", None, "b")) == "(a, ?, b)"
    assert Question(None, "r", "b").to_dict() == {"head": None, "relation": "r", "tail": "b"}


@pytest.mark.parametrize(
    ("places", "words"),
    [
        ((None, None, None), "gives nothing"),
        (("a", None, None), "gives head"),
        (("a", "r", "b"), "gives head and relation and tail"),
        ((5, "r", None), "head is a value of type int"),
        (("a", ["r"], None), "relation is a value of type list"),
        ((b"a", "r", None), "head is a value of type bytes"),
    ],
)
def test_what_is_no_question_is_refused(places: tuple[object, ...], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Question(*places)  # type: ignore[arg-type]


@pytest.mark.parametrize("k", [0, -1, 10**9, MOST_ANSWERS + 1, True, 2.5, "3", None])
def test_a_number_of_answers_that_makes_no_sense_is_refused(k: object) -> None:
    with pytest.raises(ConfigError, match="k is "):
        Selection.of(k, False, None, None)  # type: ignore[arg-type]


def test_selections_take_one_relation_or_several() -> None:
    assert Selection.of(3, True, ["b", "a"], "r") == Selection(3, True, ("b", "a"), ("r",))
    assert Selection.of(MOST_ANSWERS, False, None, ["r", "s"]).having == ("r", "s")
    with pytest.raises(ConfigError, match="candidates is one string"):
        Selection.of(3, False, "abc", None)


def test_answers_as_json_hold_a_name_only_where_there_is_one() -> None:
    plain = {"entity": "a", "score": 1.5, "probability": None, "share": None, "known": True}
    assert Answer("a", 1.5, None, True).to_dict() == plain
    assert Answer("a", 1.5, None, True, "Anna").to_dict() == {"entity": "a", "name": "Anna", **plain}
    assert RelationAnswer("r", -1.0, 0.5, False).to_dict()["relation"] == "r"
    assert [Answer("a", 1, None, True).label, RelationAnswer("r", 1, None, True).label] == ["a", "r"]
