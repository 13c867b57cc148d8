"""The page about serving: its options and addresses exist, and so do the tests it names."""

from __future__ import annotations

import re

import pytest

from command_line import run
from conftest import REPOSITORY

pytest.importorskip("fastapi", reason="the serve extra is not installed")

from contextpool.serve import schemas, settings
from contextpool.serve.app import metered, open_to_all, router
from contextpool.serve.problems import CODES

PAGE = (REPOSITORY / "docs" / "serve.md").read_text("utf-8")


def test_options_of_the_page_exist(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = (
        run(["serve", "--help"], capsys, monkeypatch).out + run(["demo", "--help"], capsys, monkeypatch).out
    )
    named = set(re.findall(r"(?<=[ `])--[a-z-]+", re.sub(r"(?m)^curl .*$", "", PAGE)))
    assert {"--run", "--token-file", "--serve"} <= named
    assert {one for one in named if one not in known} == set()


def test_the_table_of_addresses_is_that_of_the_application() -> None:
    rows = re.findall(r"^\| (`(?:GET|POST) /.*?) \|", PAGE, flags=re.MULTILINE)
    told = {(method, path) for row in rows for method, path in re.findall(r"(GET|POST) (/[a-z/]*)", row)}
    routes = [*router.routes, *metered.routes, *open_to_all.routes]
    assert told == {(method, route.path) for route in routes for method in route.methods}  # type: ignore[attr-defined]


def test_parameters_of_the_table_exist() -> None:
    queries = {"predict": schemas.PredictQuery, "explain": schemas.ExplainQuery, "pool": schemas.PoolQuery,
               "entities": schemas.EntitiesQuery}  # fmt: skip
    for path, query in queries.items():
        (asked,) = re.findall(rf"`GET /{path}\?([^`]*)`", PAGE)
        assert set(re.findall(r"(\w+)=", asked)) <= set(query.model_fields)


def test_limits_are_as_told() -> None:
    for number in (
        settings.MOST_QUESTIONS,
        settings.MOST_CANDIDATES,
        settings.MOST_ANSWERS,
        settings.LONGEST_LABEL,
    ):
        assert f"{number:,}" in PAGE
    for status in set(CODES) - {405, 500}:
        assert str(status) in PAGE


def test_tests_that_the_page_names_are_there() -> None:
    named = re.findall(r"`(tests/serve/\w+\.py)`", PAGE)
    assert len(named) > 8
    assert all((REPOSITORY / path).is_file() for path in named)


def test_the_decision_that_the_page_names_is_there() -> None:
    for path in re.findall(r"\((decisions/[^)]+)\)", PAGE):
        assert (REPOSITORY / "docs" / path).is_file()
