"""Pictures: whole files, the same bytes again, nothing of a label read as markup."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from contextpool.errors import ConfigError, MissingExtraError
from contextpool.explain import Explanation
from contextpool.explain.evidence import CandidateRelevance, ContextRelation, DroppedRelation, Rival
from contextpool.explain.evidence import Path as Walked
from contextpool.explain.picture import layout

SAMPLE = Explanation(
    "Ann", "lives in $x^", "Rome", "tail", 2.5, 0.75, 1, 40, False, "gradient",
    (
        Walked((("Ann", "married to", "Bob"), ("Bob", "lives in $x^", "Rome")), 0.8, 1.0, 0.4),
        Walked(
            (("Ann", "child of^-1", "Cid"), ("Cid", "married to", "Bob"), ("Bob", "born in", "Rome")), 0.2, 0.5, 0.1
        ),
    ),
    0.5,
    (ContextRelation("married to", 0.9, 0.5, 1),),
    (DroppedRelation("born in", 3, 2),),
    True,
    CandidateRelevance(0.9, "born in^-1"),
    Rival("Oslo", 1.0, 0.2, 1.5, (("married to", "lives in $x^"),), ()),
    {"Ann": "安 $\\frac{1}{2}$ <b>&"},
)  # fmt: skip


@pytest.fixture(autouse=True)
def _needs_matplotlib() -> None:
    pytest.importorskip("matplotlib", reason="the plot extra is not installed")


@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".SVG", b"<?xml")])
def test_pictures_are_written_whole_and_the_same_again(tmp_path: Path, suffix: str, start: bytes) -> None:
    for name in ("one", "two"):
        SAMPLE.save(tmp_path / f"{name}{suffix}")
    content = (tmp_path / f"one{suffix}").read_bytes()
    assert content.startswith(start)
    assert len(content) > 5_000
    assert (tmp_path / f"two{suffix}").read_bytes() == content
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"one{suffix}", f"two{suffix}"]


def test_a_figure_shows_every_entity_and_relation_of_the_paths() -> None:
    figure = SAMPLE.figure()
    shown = " ".join(text.get_text() for axes in figure.axes for text in axes.texts)
    for words in (
        "Bob",
        "Cid",
        "Rome",
        "married to →",
        "← child of",
        "Oslo",
        "precision 0.90",
        "born in (3 of 5 facts)",
    ):
        assert words in shown
    assert "probability 75%" in figure.axes[0].get_title(loc="left")


def test_entities_stand_in_columns_by_their_steps() -> None:
    places = layout([["a", "b", "z"], ["a", "c", "b", "z"], ["a", "d", "z"]])
    assert places["a"][0] == 0
    assert {places[entity][0] for entity in "bcd"} == {1}
    assert places["z"][0] == 2
    assert len(set(places.values())) == len(places)
    assert layout([]) == {}


def test_an_explanation_without_paths_can_be_drawn(tmp_path: Path) -> None:
    from dataclasses import replace

    replace(SAMPLE, paths=(), rival=None, context=(), dropped=(), probability=None).save(tmp_path / "x.svg")
    assert (tmp_path / "x.svg").stat().st_size > 1_000


def test_what_cannot_be_written_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        SAMPLE.save(tmp_path / "file" / "x.svg")


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"contextpool\[plot\]"):
        SAMPLE.save(tmp_path / "x.svg")
