"""The pages of results: functions of the lines and of `published.json`, the same bytes for the same lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lab.breakdown import context_bases, gain_table, parts_table
from lab.comparisons import (
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
from lab.results import ENOUGH_SEEDS, METRICS, SETTINGS, Results, benchmark_datasets, published
from lab.tables import (
    ABLATION_ON,
    ablation_table,
    beyond_table,
    beyond_wins,
    cells,
    known_table,
    paper_table,
    protocols_table,
    wins_text,
)

NOTHING = "*Missing: no such lines yet.*"
MADE = "<!-- Made by `python -m lab report` from results/*.jsonl; `--check` compares. Do not edit. -->"


def results_page(results: Results) -> str:
    """The paper's tables with ours beside."""
    return _page("# Results", _opening(results), _paper_tables(results), _beyond(results), _ablation(results))


def context_page(results: Results) -> str:
    """What context adds, tested; where it helps and where it hurts; and a person's notes."""
    return _page("# What context adds", _tests(results), _where(results), _notes(results))


def protocols_page(results: Results) -> str:
    """The same recipes under other protocols: for readers who come from other systems."""
    return _page("# Other protocols and ties", _protocols(results))


def _page(title: str, *parts: Iterator[str]) -> str:
    return "\n\n".join([title, MADE, *(text for part in parts for text in part)]) + "\n"


def _opening(results: Results) -> Iterator[str]:
    lines = [line for line in results.lines if line["dataset"] in benchmark_datasets()]
    datasets = {line["dataset"] for line in lines}
    yield (
        f"{len(lines):,} trainings on {len(datasets)} of 24 settings. P1, filtered, all entities ranked, "
        "realistic ties; mean ± standard deviation over seeds. A recipe is chosen in each setting by the highest "
        "mean validation MRR, by code, never by what it is evaluated on; of recipes with "
        f"{ENOUGH_SEEDS} seeds or more where there are any. † and a number: fewer than {ENOUGH_SEEDS} seeds, and "
        "how many. How to make every line again: [bench](bench.md). Beside this page: "
        "[what context adds](context-results.md), [other protocols and ties](protocols.md), "
        "[what each change did](tuning.md), [the baselines](models.md)."
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
        yield (
            f"Published figures: {about['source']}; *best* is of all nine systems there. Bold: above the best figure "
            "of any system in the paper."
        )
        for metric in METRICS:
            yield paper_table(results, setting, metric)


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
    yield (
        "The recipes of [the results](results.md). P2: the inference graph's test alone (transductive: the same as "
        "P1); of 50: against 50 sampled negatives, the exact expectation; NBFNet-PyG's own figures are P2, pessimistic."
    )
    yield protocols_table(results) or NOTHING
    yield "## Beside everything known"
    yield (
        f"Inductive MRR, P2, pessimistic ties. The first row is {published()['known']['source']}. The model for any "
        "graph ([anygraph](anygraph.md)) never saw the family that it is asked about; fine-tuned, it saw the training "
        "side of the split as well. Bold: above the first row."
    )
    yield known_table(results)


def _ablation(results: Results) -> Iterator[str]:
    about = published()["ablation"]
    yield f"## The paper's {about['name']}: Algorithm 1 against Algorithm 3"
    yield (
        f"Published figures: {about['source']}. Ours are hard pooling alone (variants `+alg3` and `+alg1`); time is "
        f"that of training with selection. {ABLATION_ON[-1]} is where the paper could not go."
    )
    yield ablation_table(results)


def _tests(results: Results) -> Iterator[str]:
    yield (
        "MRR over all settings: ours minus theirs, seeds averaged first, a setting is one difference. Two-sided "
        "p-values: Student's t, Wilcoxon's signed ranks, and t with settings clustered by family (FB, NELL, WN; three "
        "clusters, so strict); in brackets corrected by Holm over all rows. `+cp` is context as the chosen recipe uses "
        "it, `+gate`, `+arrive` and `+mass` (of a random walk) one part of it alone, `+bare` the same recipe without "
        "context, `+wide` that with three streams of the full graph, `+shuffled-relevance` with the relevance of other "
        "relations, `+walk` the paper's hard pooling alone, `+streams` both; `+dup`, `+random`, `+shuffled` and "
        "`+complement` are controls of the pooled streams with the same parameters: `+cp` with two more streams of "
        f"something else. †: some figure has fewer than {ENOUGH_SEEDS} seeds. Hits@1, and each setting alone: "
        "`python -m lab report --json`."
    )
    found = comparison_table(results)
    yield found or NOTHING
    if found is None:
        return
    for base in context_bases(results):
        parts = parts_table(results, base)
        if parts is not None:
            yield f"## One part of context at a time, {base}, MRR"
            yield parts
        pair = Pair(joined_name(base, CONTEXT), joined_name(base, RELEVANCE_CONTROL))
        apart = seeds_table(results, pair, "mrr")
        if apart is not None:
            yield f"## {pair.name}, MRR, by seeds"
            yield apart
    hurt = hurt_list(results)
    yield "## Where it hurts"
    yield "\n".join(hurt) if hurt else "Nowhere among the settings that were run both ways."
    yield _image("gain")


def _where(results: Results) -> Iterator[str]:
    yield "## Where it helps"
    yield "Gain in MRR over the settings where both were run, every answer alike; in brackets how many answers."
    tables = [gain_table(results, slices) for slices in ("by_distance", "by_support")]
    if not any(tables):
        yield NOTHING
        return
    yield from (table for table in tables if table is not None)
    yield _image("distance")


def _notes(results: Results) -> Iterator[str]:
    if results.remarks:
        yield "## Notes"
        yield results.remarks


def report_figures(results: Results) -> dict[str, Any]:
    """The main figures, as JSON holds them."""
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
