"""The page of results: a function of the lines and of `published.json`, the same bytes for the same lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lab.breakdown import (
    context_bases,
    cost_table,
    gain_table,
    other_table,
    parts_table,
    search_table,
    threshold_table,
    unequal_budgets,
)
from lab.comparisons import (
    METRICS,
    SCOPES,
    TESTS,
    Pair,
    comparison_table,
    comparisons,
    corrected,
    hurt_list,
    seeds_table,
)
from lab.plots import PLOTS
from lab.recipes import CONTEXT, RELEVANCE_CONTROL, joined_name
from lab.results import ENOUGH_SEEDS, SETTINGS, Results, benchmark_datasets, published
from lab.tables import (
    ABLATION_ON,
    TITLES,
    ablation_table,
    absent_rows,
    beyond_table,
    beyond_wins,
    cells,
    choices_table,
    paper_table,
    protocols_table,
    wins_text,
)

NOTHING = "*Missing: no such lines yet.*"


def report_text(results: Results) -> str:
    """The page, as Markdown."""
    parts = (
        *_opening(results),
        *_paper_tables(results),
        *_beyond(results),
        *_protocols(results),
        *_ablation(results),
        *_tests(results),
        *_where(results),
        *_cost(results),
        *_closing(results),
    )
    return "\n\n".join(parts) + "\n"


def _opening(results: Results) -> Iterator[str]:
    yield "# Results"
    yield "<!-- Made by `python -m lab report` from results/*.jsonl; `--check` compares. Do not edit. -->"
    lines = [line for line in results.lines if line["dataset"] in benchmark_datasets()]
    datasets = {line["dataset"] for line in lines}
    yield (
        f"{len(lines):,} trainings on {len(datasets)} of 24 settings. P1, filtered, all entities ranked, "
        "realistic ties; mean ± standard deviation over seeds. A recipe is chosen in each setting by the highest "
        "mean validation MRR, by code, never by what it is evaluated on; of recipes with "
        f"{ENOUGH_SEEDS} seeds or more where there are any. † and a number: fewer than {ENOUGH_SEEDS} seeds, and "
        "how many. How to make every line again: [bench](bench.md)."
    )
    if lines:
        dates = sorted(str(line.get("date", "")) for line in lines)
        devices = ", ".join(sorted({str(line.get("device")) for line in lines}))
        yield f"Measured {dates[0][:10]} to {dates[-1][:10]} on {devices}."
    yield from results.notes
    yield wins_text(results)
    yield _image("wins")


def _image(name: str) -> str:
    return f"![{PLOTS[name]}](../images/{name}.svg)"


def _paper_tables(results: Results) -> Iterator[str]:
    for setting in reversed(SETTINGS):
        about = published()["tables"][setting]
        yield f"## The paper's {about['name']}: {setting}"
        yield f"Published figures: {about['source']}. Bold: above the best figure of any system in the paper."
        for metric in METRICS:
            yield f"### {TITLES[metric]}"
            yield paper_table(results, setting, metric)
        absent = absent_rows(results, setting)
        if absent:
            yield f"Not run here: {', '.join(absent)}."
        yield "### What validation chose"
        yield choices_table(results, setting)


def _beyond(results: Results) -> Iterator[str]:
    yield "## Beyond the paper: inductive MRR"
    sources = published()["references"]
    yield "\n".join(f"- {entry['name']}: {entry['source']}" for entry in sources.values())
    yield beyond_table(results)
    yield "\n".join(
        f"- above {name}: **{won} of 12** ({measured} measured)"
        for name, (won, measured) in beyond_wins(results).items()
    )


def _protocols(results: Results) -> Iterator[str]:
    yield "## Other protocols and ties"
    yield (
        "The same recipes. P2: the inference graph's test alone (transductive: the same as P1); of 50: against 50 "
        "sampled negatives, the exact expectation; NBFNet-PyG's own figures are P2, pessimistic."
    )
    yield protocols_table(results) or NOTHING


def _ablation(results: Results) -> Iterator[str]:
    about = published()["ablation"]
    yield f"## The paper's {about['name']}: Algorithm 1 against Algorithm 3"
    yield (
        f"Published figures: {about['source']}. Ours are hard pooling alone (variants `+alg3` and `+alg1`); time is "
        f"that of training with selection. {ABLATION_ON[-1]} is where the paper could not go."
    )
    yield ablation_table(results)


def _tests(results: Results) -> Iterator[str]:
    yield "## What context adds"
    yield (
        "Ours minus theirs, seeds averaged first, a setting is one difference. Two-sided p-values: Student's t, "
        "Wilcoxon's signed ranks, and t with settings clustered by family (FB, NELL, WN; three clusters, so "
        "strict). Holm: corrected over all rows of the table. `+cp` is context as the chosen recipe uses it, "
        "`+gate`, `+arrive` and `+mass` (of a random walk) one part of it alone, `+bare` the same recipe without "
        "context, `+wide` that with three streams of the full graph, `+shuffled-relevance` with the relevance of other "
        "relations, `+walk` the paper's hard pooling alone, `+streams` both; `+dup`, `+random`, `+shuffled` and "
        "`+complement` are controls of the pooled streams with the same parameters: `+cp` with two more streams of "
        "something else, so `+cp` against them tells what more streams are worth. †: some figure has fewer than "
        f"{ENOUGH_SEEDS} seeds."
    )
    any_table = False
    for scope in reversed(SCOPES):
        for metric in METRICS:
            found = comparison_table(results, scope, metric)
            if found is not None:
                any_table = True
                yield f"### {'All settings' if scope == 'both' else scope.capitalize()}, {TITLES[metric]}"
                yield found
    if not any_table:
        yield NOTHING
        return
    for base in context_bases(results):
        parts = parts_table(results, base)
        if parts is not None:
            yield f"### One part of context at a time, {base}, MRR"
            yield parts
        for suffix in ("", RELEVANCE_CONTROL):
            pair = Pair(joined_name(base, CONTEXT), joined_name(base, suffix))
            apart = seeds_table(results, pair, "mrr")
            if apart is not None:
                yield f"### {pair.name}, MRR, by seeds"
                yield apart
    hurt = hurt_list(results)
    yield "### Where context hurts"
    yield "\n".join(hurt) if hurt else "Nowhere among the settings that were run both ways."
    yield _image("gain")


def _where(results: Results) -> Iterator[str]:
    yield "## Where it helps"
    found = False
    for slices, title in (
        ("by_distance", "distance of the answer"),
        ("by_support", "support of the relation"),
    ):
        for scope in SETTINGS:
            table = gain_table(results, scope, slices)
            if table is not None:
                found = True
                yield f"### By {title}, {scope}"
                yield table
    if not found:
        yield NOTHING
    else:
        yield _image("distance")
    for scope in SETTINGS:
        table = gain_table(results, scope, "by_support", RELEVANCE_CONTROL)
        if table is not None:
            yield f"### By support of the relation, {scope}: its own relevance against that of other relations"
            yield table
    yield "### Threshold sensitivity"
    yield threshold_table(results) or NOTHING


def _cost(results: Results) -> Iterator[str]:
    yield "## Search and cost"
    yield "Medians over the trainings above."
    yield cost_table(results) or NOTHING
    spent = search_table(results.searches)
    if spent is not None:
        yield (
            "Searches on the training side alone, from the folder's `trials` ([what came of them](recipes.md)); the "
            "splits of a family share what was found:"
        )
        yield spent
    unequal = unequal_budgets(results)
    if unequal:
        yield "Not the same budget with and without context:"
        yield "\n".join(unequal)


def _closing(results: Results) -> Iterator[str]:
    other = other_table(results)
    if other is not None:
        yield "## Other datasets"
        yield other
    if results.remarks:
        yield "## Notes"
        yield results.remarks


def report_figures(results: Results) -> dict[str, Any]:
    """The page's main figures, as JSON holds them."""
    all_cells = cells(results)
    return {
        "lines": len(results.lines),
        "cells": len(all_cells),
        "won": sum(cell.is_won for cell in all_cells),
        "won_with_enough_seeds": sum(cell.is_safe for cell in all_cells),
        "missing": sum(cell.ours is None for cell in all_cells),
        "beyond": {name: {"above": won, "measured": n} for name, (won, n) in beyond_wins(results).items()},
        "tests": [
            {
                "ours": one.pair.ours,
                "theirs": one.pair.theirs,
                "scope": scope,
                "metric": metric,
                "settings": len(one.ours),
                "difference": one.mean,
                "p": {test: one.p(test) for test in TESTS},
                "holm": {test: corrected(compared, test).get(one.pair.name) for test in TESTS},
            }
            for scope in SCOPES
            for metric in METRICS
            for compared in [comparisons(results, scope, metric)]
            for one in compared
        ],
    }
