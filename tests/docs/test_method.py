"""docs/method.md: its pictures and numbers are what the script makes of `world`, and its story is true."""

from __future__ import annotations

import importlib
import re
from types import ModuleType
from xml.etree import ElementTree

import pytest

from conftest import REPOSITORY

PAGE = REPOSITORY / "docs" / "method.md"


@pytest.fixture
def pictures(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(REPOSITORY / "scripts"))
    return importlib.import_module("method_pictures")


@pytest.fixture
def story(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(REPOSITORY / "scripts"))
    return importlib.import_module("method_story")


def test_pictures_and_tables_are_up_to_date(pictures: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert pictures.main(["--check"]) == 0, capsys.readouterr().out + "run scripts/method_pictures.py"


def test_a_changed_number_is_seen(pictures: ModuleType, story: ModuleType) -> None:
    page = PAGE.read_text("utf-8").replace("| 0.877 |", "| 0.878 |")
    table = pictures.relevance_table(story.Story(), story.RELATION)
    assert pictures.between_marks(page, "relevance", table) == PAGE.read_text("utf-8") != page
    with pytest.raises(ValueError, match="have to be there once"):
        pictures.between_marks("# no marks", "relevance", table)


def test_every_picture_is_shown_and_well_formed(pictures: ModuleType) -> None:
    shown = re.findall(r"\]\(images/method-(\w+)\.svg\)", PAGE.read_text("utf-8"))
    assert sorted(shown) == sorted(pictures.PICTURES)
    for name in shown:
        ElementTree.parse(REPOSITORY / "docs" / "images" / f"method-{name}.svg")


def test_the_words_between_the_pictures_are_true(story: ModuleType) -> None:
    told = story.Story()
    page = PAGE.read_text("utf-8")
    assert [len(told.within(hops)) for hops in (1, 2, 3)] == [9, 68, 223]
    assert "two hops make 68 edges here and three make 223" in page
    arrived = {(tail, relation) for _, relation, tail in told.pooled().hops[0]}
    turning = {(entity, f"{relation}^-1".replace("^-1^-1", "")) for entity, relation in arrived}
    assert set(told.dropped(2)) <= turning  # all that is dropped would turn round
    assert told.dropped(2)["Northern Europe", "subregion^-1"] == 12
    languages = {tail for *_, tail in told.within(2) if told.candidate_relevance(tail)[0] > 0}
    assert languages == {"Icelandic", "Faroese"}
    assert "speaks" not in {row.relation for row in told.neighbors(story.RELATION)}
    assert "speaks" in {row.relation for row in told.neighbors("located_in")}
