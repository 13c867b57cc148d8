"""Lines read back: grouped, averaged and chosen as a slow twin would, whatever their order."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpool.errors import DataError
from lab.results import Group, choose, read_results, results_of
from lab_small import line

FIGURES = st.floats(0.0, 1.0)
LINES = st.lists(
    st.builds(
        line,
        dataset=st.sampled_from(["grail/fb237_v1", "grail/nell_v1"]),
        model=st.sampled_from(["nbfnet", "nbfnet+cp"]),
        recipe=st.sampled_from(["a#1", "b#2"]),
        seed=st.integers(0, 4),
        mrr=FIGURES,
        valid=FIGURES,
    ),
    max_size=24,
    unique_by=lambda found: (found["dataset"], found["model"], found["recipe"], found["seed"]),
)


def slow_choice(lines: list[dict[str, Any]], dataset: str, model: str) -> tuple[str, float, float] | None:
    """(recipe, mean MRR, deviation or NaN) by the rule, in plain loops."""
    by_recipe: dict[str, list[dict[str, Any]]] = {}
    for found in lines:
        if found["dataset"] == dataset and found["model"] == model:
            by_recipe.setdefault(found["recipe"], []).append(found)
    enough = {recipe: group for recipe, group in by_recipe.items() if len(group) >= 3}
    best = None
    for recipe, group in sorted((enough or by_recipe).items()):
        valid = sum(found["valid_mrr"] for found in sorted(group, key=lambda f: f["seed"])) / len(group)
        if best is None or valid > best[0] + 1e-12:
            values = [found["mrr"] for found in group]
            mean = sum(values) / len(values)
            spread = (
                math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1))
                if len(values) > 1
                else math.nan
            )
            best = (valid, recipe, mean, spread)
    return None if best is None else best[1:]


@given(lines=LINES, order=st.randoms(use_true_random=False))
def test_the_choice_and_its_figures_are_the_slow_ones(
    lines: list[dict[str, Any]], order: random.Random
) -> None:
    shuffled = list(lines)
    order.shuffle(shuffled)
    results = results_of(shuffled)
    assert results.lines == results_of(lines).lines
    for dataset in ("grail/fb237_v1", "grail/nell_v1"):
        for model in ("nbfnet", "nbfnet+cp"):
            expected, found = slow_choice(lines, dataset, model), results.chosen(dataset, model)
            if expected is None:
                assert found is None
                continue
            assert found is not None
            rivals = [group.valid_mrr for group in results.of(dataset, model)]
            if len(rivals) < 2 or abs(rivals[0] - rivals[1]) > 1e-9:  # type: ignore[operator]
                assert found.recipe == expected[0]
                assert found.mean("mrr") == pytest.approx(expected[1])
                deviation = found.deviation("mrr")
                assert (math.nan if deviation is None else deviation) == pytest.approx(
                    expected[2], nan_ok=True, abs=1e-9
                )


def group(model: str = "nbfnet+cp", recipe: str = "a", valid: float | None = 0.5, seeds: int = 3) -> Group:
    return Group("d", model, recipe, tuple(line(seed=seed, valid=valid) for seed in range(seeds)))


def test_enough_seeds_come_before_a_lucky_one() -> None:
    assert choose([group(valid=0.5), group(recipe="lucky", valid=0.9, seeds=1)]) == group(valid=0.5)
    assert choose([group(valid=0.5, seeds=2), group(recipe="b", valid=0.9, seeds=1)]).recipe == "b"  # type: ignore[union-attr]


def test_ties_end_at_the_name() -> None:
    assert choose([group(recipe="b"), group(recipe="a")]) == group(recipe="a")
    assert choose([group("redgnn+cp"), group("nbfnet+cp")]).model == "nbfnet+cp"  # type: ignore[union-attr]


def test_without_a_validation_mrr_nothing_is_compared() -> None:
    untrained = group(valid=None)
    assert choose([untrained]) == untrained
    assert choose([untrained, group(recipe="b", valid=0.1)]) == group(recipe="b", valid=0.1)
    assert choose([untrained, group(recipe="b", valid=None)]) is None
    assert choose([]) is None


def test_a_folder_is_read_without_its_failures_and_the_later_line_counts(tmp_path: Path) -> None:
    old, new = line(mrr=0.1), line(mrr=0.2, date="2026-11-16T00:00:00Z")
    (tmp_path / "b.jsonl").write_text(json.dumps(old) + "\n")
    (tmp_path / "a.jsonl").write_text(json.dumps(new) + "\n" + json.dumps(line(seed=1)) + '\n{"half')
    (tmp_path / "a.failed.jsonl").write_text(json.dumps({"error": "x"}) + "\n")
    (tmp_path / "notes.md").write_text("What was tried.\n")
    found = read_results(tmp_path)
    assert [one["mrr"] for one in found.lines] == [0.2, 0.4]
    assert "1 lines were made again" in found.notes[0]
    assert found.remarks == "What was tried."


def test_a_line_of_something_else_is_refused_by_its_number(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps(line()) + '\n{"dataset": "x"}\n')
    with pytest.raises(DataError, match=r"a\.jsonl:2: the line has no 'setting'"):
        read_results(tmp_path)
    for missing in ("none.jsonl", "no folder"):
        with pytest.raises(DataError, match=f"{missing}: there is no such folder or file of results"):
            read_results(tmp_path / missing)


def test_a_default_that_is_written_out_is_the_same_recipe() -> None:
    def beside(model: dict[str, Any], **context: Any) -> Any:
        settings = {"dataset": "world", "model": {"name": "nbfnet", **model}, "context": context or None}
        return results_of([line(settings=settings)]).groups[0].beside_context

    assert beside({"layers": 6}, gate=True) == beside({})
    assert beside({"layers": 4}) != beside({})
    assert beside({})["train.epochs"] > 0


def test_a_group_has_the_lines_of_some_seeds_or_is_none() -> None:
    (group,) = results_of([line(seed=seed, mrr=0.1 * seed) for seed in range(5)]).groups
    some = group.with_seeds(range(1, 4))
    assert some is not None
    assert some.mean("mrr") == pytest.approx(0.2)
    assert group.with_seeds(range(3, 6)) is None
