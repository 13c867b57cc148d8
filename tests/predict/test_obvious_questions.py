"""Thirty questions that anybody would ask of `world` first, to the model that comes with contextpool."""

from __future__ import annotations

import pytest

import contextpool as cp
from contextpool.predict import Answer, Answers

Asked = tuple[str, str]
HAS_ONE: dict[Asked, str] = {
    ("France", "currency"): "Euro",
    ("Austria", "currency"): "Euro",
    ("Spain", "currency"): "Euro",
    ("Germany", "capital"): "Berlin",
    ("Poland", "capital"): "Warsaw",
    ("Belarus", "capital"): "Minsk",
    ("Japan", "capital"): "Tokyo",
    ("Greece", "capital"): "Athens",
    ("Paris", "located_in"): "France",
    ("Rome", "located_in"): "Italy",
    ("Italy", "subregion"): "Southern Europe",
}
"""What the graph holds, and there is no other."""
HAS_NONE: list[Asked] = [
    ("Minsk", "capital"), ("Rome", "capital"), ("Euro", "capital"), ("Minsk", "currency"), ("French", "currency"),
    ("Belarus", "located_in"), ("Paris", "borders"), ("Paris", "subregion"), ("Berlin", "official_language"),
]  # fmt: skip
"""Nothing of this kind has such a thing."""
LACKS: dict[Asked, str] = {
    ("Afghanistan", "capital"): "Kabul",
    ("Belarus", "currency"): "Belarusian Ruble",
    ("China", "currency"): "Chinese Yuan",
    ("Armenia", "official_language"): "Armenian",
    ("Bahrain", "subregion"): "Western Asia",
    ("Antwerp", "located_in"): "Belgium",
    ("Baku", "located_in"): "Azerbaijan",
    ("Ashgabat", "pays_in"): "Turkmenistani Manat",
    ("Brussels", "pays_in"): "Euro",
    ("Bangkok", "speaks"): "Thai",
}
"""What is true and held out of the graph."""


@pytest.fixture(scope="module")
def found() -> dict[Asked, Answers[Answer]]:
    questions = [*HAS_ONE, *HAS_NONE, *LACKS]
    assert len(questions) == 30
    return dict(zip(questions, cp.load().predict_batch("world", questions, k=5), strict=True))


@pytest.mark.parametrize("asked", HAS_ONE)
def test_what_the_graph_holds_is_told_and_nothing_else_is_bet_on(found, asked: Asked) -> None:
    answers = found[asked]
    assert answers.known.first == (HAS_ONE[asked],)
    assert answers.best is None
    first, second = answers.lines()
    assert first == f"already in the graph: {HAS_ONE[asked]}"
    assert second.startswith("none that I would bet on: the best, ")
    assert all(answer.probability is not None and answer.probability < 0.05 for answer in answers)


@pytest.mark.parametrize("asked", HAS_NONE)
def test_what_makes_no_sense_gets_no_answer(found, asked: Asked) -> None:
    answers = found[asked]
    assert (answers.known.count, answers.best) == (0, None)
    assert all(answer.probability is not None and answer.probability < 0.05 for answer in answers)


def test_what_is_missing_is_found(found) -> None:
    """All but one: which one may change with the weights."""
    right = [found[asked].best is not None and found[asked].best.entity == LACKS[asked] for asked in LACKS]
    assert sum(right) >= len(LACKS) - 1, dict(zip(LACKS, right, strict=True))


def test_shares_are_of_all_candidates_and_never_more_than_one(found) -> None:
    for answers in found.values():
        assert sum(answer.share or 0 for answer in answers) <= 1 + 1e-9
        assert [answer.share for answer in answers] == sorted((one.share for one in answers), reverse=True)
    everything = cp.load().predict("world", head="France", relation="currency", k=1000)
    assert sum(answer.share or 0 for answer in everything) == pytest.approx(1)
