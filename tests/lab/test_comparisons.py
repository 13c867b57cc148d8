"""Paired tests from lines: which pairs, over which settings, with which correction; and where context hurts."""

from __future__ import annotations

from typing import Any

import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from lab.comparisons import (
    Compared,
    Pair,
    compare,
    comparison_table,
    comparisons,
    corrected,
    hurt_list,
    like_with_like,
    pairs,
    seeds_table,
)
from lab.results import datasets_of, family_of, results_of
from lab.significance import PairedTest
from lab_small import line, lines_of


def test_families_are_those_of_the_benchmark() -> None:
    assert [
        family_of(name)
        for name in ("grail/fb237_v2", "grail_transductive/nell_v1", "grail/WN18RR_v4", "world")
    ] == [
        "FB",
        "NELL",
        "WN",
        "world",
    ]


def test_context_is_compared_with_none_and_each_control_and_other_variants_with_none() -> None:
    suffixes = ("", "+cp", "+dup", "+walk", "+shuffled", "+wide", "+gate")
    models = (*(f"nbfnet{suffix}" for suffix in suffixes), "redgnn+cp", "redgnn")
    results = results_of([line(model=model) for model in models])
    assert [pair.name for pair in pairs(results)] == [
        "nbfnet+cp vs nbfnet",
        "nbfnet+cp vs nbfnet+wide",
        "nbfnet+cp vs nbfnet+dup",
        "nbfnet+cp vs nbfnet+shuffled",
        "nbfnet+walk vs nbfnet",
        "nbfnet+walk vs nbfnet+wide",
        "redgnn+cp vs redgnn",
    ]


def test_the_t_test_is_scipys_on_means_over_seeds() -> None:
    results = results_of([*lines_of("nbfnet", 0.0), *lines_of("nbfnet+cp", 0.02)])
    compared = compare(results, Pair("nbfnet+cp", "nbfnet"), "inductive", "mrr")
    assert compared is not None
    means = {
        model: [
            sum(one["mrr"] for one in results.lines if (one["dataset"], one["model"]) == (dataset, model)) / 3
            for dataset in sorted(datasets_of("inductive"))
        ]
        for model in ("nbfnet", "nbfnet+cp")
    }
    expected = scipy.stats.ttest_rel(means["nbfnet+cp"], means["nbfnet"])
    assert compared.p("t") == pytest.approx(expected.pvalue)
    assert compared.p("wilcoxon") == pytest.approx(
        scipy.stats.wilcoxon(means["nbfnet+cp"], means["nbfnet"]).pvalue
    )
    assert compared.mean == pytest.approx(sum(means["nbfnet+cp"]) / 12 - sum(means["nbfnet"]) / 12)
    clustered = compared.tests["clustered"]
    assert clustered is not None
    assert clustered.num_clusters == 3


def test_variants_of_an_older_recipe_are_not_compared() -> None:
    """Whatever validation prefers: `+walk` counts with the recipe that `+cp` is chosen with; only context differs."""

    def run(model: str, recipe: str, layers: int, dropout: float, valid: float, **context: Any) -> Any:
        settings = {
            "dataset": "grail/fb237_v1",
            "model": {"name": "nbfnet", "layers": layers},
            "train": {"edge_dropout": dropout},
            "context": context or None,
        }
        return line("grail/fb237_v1", model, recipe=recipe, valid=valid, settings=settings)

    chosen = run("nbfnet+cp", "new", 6, 0.4, 0.5, gate=True)
    older = [run("nbfnet+cp", "old", 4, 0.0, 0.4, gate=True), run("nbfnet+walk", "old", 4, 0.0, 0.9, hops=2)]
    found = like_with_like(results_of([chosen, *older]), "grail/fb237_v1", "nbfnet+walk")
    assert found is None
    newer = run("nbfnet+walk", "new", 6, 0.4, 0.3, hops=2)
    dropped = run("nbfnet+dropped", "new", 6, 0.2, 0.3, gate=True)
    results = results_of([chosen, *older, newer, dropped, run("nbfnet", "other", 3, 0.1, 0.2)])
    for model, recipe in (("+walk", "new"), ("+cp", "new"), ("+dropped", "new"), ("", "other")):
        group = like_with_like(results, "grail/fb237_v1", f"nbfnet{model}")
        assert group is not None
        assert group.recipe == recipe


def test_seeds_that_came_later_are_shown_apart() -> None:
    pair = Pair("nbfnet+cp", "nbfnet")
    both = [*lines_of("nbfnet", 0.0, seeds=6, spread=0.0), *lines_of("nbfnet+cp", 0.02, seeds=6, spread=0.0)]
    late = [
        {**one, "mrr": one["mrr"] + 0.01} if one["seed"] > 2 and "+" in one["model"] else one for one in both
    ]
    table = seeds_table(results_of(late), pair, "mrr")
    assert table is not None
    shown = [row.split(" | ")[:3] for row in table.splitlines()[2:]]
    assert shown == [
        ["| 0 to 2", "12", "**+.0200**"],
        ["| 3 to 5", "12", "**+.0300**"],
        ["| all", "12", "**+.0250**"],
    ]
    first = [one for one in late if one["seed"] < 3]
    assert seeds_table(results_of(first), pair, "mrr") is None


def test_only_settings_that_both_were_run_on_count() -> None:
    one_sided = [found for found in lines_of("nbfnet+cp", 0.02) if found["dataset"] != "grail/fb237_v1"]
    results = results_of([*lines_of("nbfnet", 0.0), *one_sided])
    compared = compare(results, Pair("nbfnet+cp", "nbfnet"), "both", "mrr")
    assert compared is not None
    assert len(compared.ours) == 11
    assert "grail/fb237_v1" not in compared.differences
    assert compare(results, Pair("nbfnet+cp", "nbfnet"), "transductive", "mrr") is None


def test_too_few_settings_or_families_have_no_test() -> None:
    results = results_of([line("grail/fb237_v1", "nbfnet"), line("grail/fb237_v1", "nbfnet+cp", mrr=0.5)])
    (compared,) = comparisons(results, "inductive", "mrr")
    assert compared.tests == {"t": None, "wilcoxon": None, "clustered": None}
    assert corrected([compared], "t") == {}
    assert comparison_table(results) is None
    names = ("grail/fb237_v1", "grail/fb237_v2")
    more = [
        line(name, model, mrr=0.4 + 0.1 * (model != "nbfnet"))
        for name in names
        for model in ("nbfnet", "nbfnet+cp")
    ]
    table = comparison_table(results_of(more))
    assert table is not None
    assert "| nbfnet+cp vs nbfnet † | 2 | **+.1000** |" in table
    assert table.endswith("| – (–) |")


def with_p(name: str, p: float) -> Compared:
    test = PairedTest("t", 0.0, p, 12)
    return Compared(Pair(name, "x"), "both", "mrr", {}, {}, {"t": test, "wilcoxon": None, "clustered": None})


@given(values=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8))
def test_holm_over_all_pairs_is_the_slow_one(values: list[float]) -> None:
    """The twin: an adjusted value is the largest, over those not larger than it, of p times how many are left."""
    found = corrected([with_p(f"m{place}", p) for place, p in enumerate(values)], "t")
    for place, p in enumerate(values):
        smaller = [other for other in values if other <= p]
        expected = max(min(1.0, other * sum(one >= other for one in values)) for other in smaller)
        assert found[f"m{place} vs x"] == pytest.approx(expected)


def test_where_context_hurts_is_named_worst_first() -> None:
    plain = [line(dataset, "nbfnet", mrr=0.4) for dataset in datasets_of("inductive")[:3]]
    changes = (0.01, -0.03, -0.01)
    ours = [
        line(found["dataset"], "nbfnet+cp", mrr=0.4 + change)
        for found, change in zip(plain, changes, strict=True)
    ]
    assert hurt_list(results_of([*plain, *ours])) == [
        "- grail/WN18RR_v2, nbfnet+cp vs nbfnet: .370 against .400 (−.030)",
        "- grail/WN18RR_v3, nbfnet+cp vs nbfnet: .390 against .400 (−.010)",
    ]
