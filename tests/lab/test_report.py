"""The page: the published figures are the paper's, wins are counted, missing is missing, and the bytes are stable."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from lab.breakdown import gain_table, gains, parts_table, unequal_searches
from lab.plots import write_plots
from lab.recipes import RELEVANCE_CONTROL
from lab.report import context_page, protocols_page, report_figures, results_page
from lab.results import (
    METRICS,
    SETTINGS,
    Group,
    SearchCost,
    best_published,
    columns,
    datasets_of,
    figure,
    mean_and_deviation,
    p_value,
    published,
    read_results,
    reference,
    results_of,
    signed,
    systems,
)
from lab.tables import ablation_table, beyond_wins, cells, known_table, paper_table, wins_text
from lab_small import line, lines_of

# what every claim is measured against: the best of any system in the paper, Table 4 included
BEST = {
    ("inductive", "mrr"): ".708 .694 .425 .651 .396 .463 .447 .427 .634 .442 .457 .382",
    ("inductive", "hits@1"): ".660 .637 .365 .606 .332 .368 .358 .330 .520 .330 .350 .278",
    ("transductive", "mrr"): ".594 .612 .573 .593 .513 .508 .478 .456 .524 .516 .468 .484",
    ("transductive", "hits@1"): ".548 .565 .520 .544 .446 .419 .376 .355 .438 .418 .366 .385",
}


@pytest.mark.parametrize(("setting", "metric"), BEST)
def test_the_figures_to_beat_are_the_papers_best(setting: str, metric: str) -> None:
    assert best_published(setting, metric) == [float(text) for text in BEST[setting, metric].split()]


def test_the_published_tables_are_whole() -> None:
    names = [
        "Neural LP",
        "DRUM",
        "CompGCN",
        "AnyBURL",
        "GRAIL",
        "NBFNet",
        "RED-GNN",
        "NBFNet+CP",
        "RED-GNN+CP",
    ]
    for setting in SETTINGS:
        for metric in METRICS:
            table = systems(setting, metric)
            assert list(table) == names
            assert all(len(row) == 12 and all(0 < value < 1 for value in row) for row in table.values())
    assert all(
        len(reference(name)) == 12 and published()["references"][name]["source"]
        for name in published()["references"]
    )


def test_the_bars_beyond_the_paper_are_those_that_were_agreed() -> None:
    both = [
        max(a or 0, b or 0) for a, b in zip(reference("trained"), reference("training_free"), strict=True)
    ]
    bars = ".741 .704 .452 .661 .505 .526 .488 .477 .770 .514 .511 .485"
    assert both == [float(text) for text in bars.split()]
    everything = ".741 .705 .464 .664 .515 .526 .503 .502 .806 .575 .563 .540"
    assert reference("everything") == [float(text) for text in everything.split()]


def above_the_paper(by: float, model: str = "nbfnet+cp", seeds: int = 3, **more: Any) -> list[dict[str, Any]]:
    return [
        {**line(dataset, model, seed, mrr=mrr + by, **more), "hits@1": hits + by}
        for setting in SETTINGS
        for dataset, mrr, hits in zip(
            datasets_of(setting),
            best_published(setting, "mrr"),
            best_published(setting, "hits@1"),
            strict=True,
        )
        for seed in range(seeds)
    ]


def test_wins_are_counted_out_of_48() -> None:
    assert len(cells(results_of([]))) == 48
    won = [sum(cell.is_won for cell in cells(results_of(above_the_paper(by)))) for by in (0.001, 0.0, -0.001)]
    assert won == [48, 0, 0]


def test_a_win_with_few_seeds_is_no_safe_win_and_a_plain_model_wins_nothing() -> None:
    few = cells(results_of(above_the_paper(0.1, seeds=2)))
    assert (sum(cell.is_won for cell in few), sum(cell.is_safe for cell in few)) == (48, 0)
    assert all(cell.ours is None for cell in cells(results_of(above_the_paper(0.1, model="nbfnet"))))
    assert "**0 of 48** cells" in wins_text(results_of(above_the_paper(0.1, model="nbfnet+walk")))


def test_validation_chooses_also_where_it_chooses_wrong() -> None:
    """The recipe that would have won has the lower validation MRR, so the cells are lost, and the page says so."""
    good = above_the_paper(0.05, recipe="good#1", valid=0.4)
    bad = above_the_paper(-0.05, model="redgnn+cp", recipe="bad#2", valid=0.6)
    results = results_of([*good, *bad])
    assert not any(cell.is_won for cell in cells(results))
    text = wins_text(results)
    assert "**0 of 48**" in text
    assert "- inductive fb237_v1, MRR: .346 against .396 (−.050)" in text
    assert text.count("\n- ") == 48


def test_ours_stands_beside_the_published_with_missing_shown_as_missing() -> None:
    results = results_of(
        [line("grail/fb237_v1", "nbfnet+cp", seed, mrr=0.41 + 0.01 * seed) for seed in range(2)]
    )
    rows = dict(row.split(" | ", 1) for row in paper_table(results, "inductive", "mrr").splitlines()[2:])
    ours = [cell.strip(" |") for cell in rows["| **ours: chosen by validation**"].split(" | ")]
    place = columns().index("fb237_v1")
    assert ours[place] == "**.415** ± .007 †2"
    assert set(ours[:place] + ours[place + 1 :]) == {"missing"}
    assert rows["| RED-GNN+CP"].startswith(".708 | .694")


def test_scorers_that_need_no_training_stand_in_the_table_and_raise_the_bar(tmp_path: Path) -> None:
    figures = {"mrr": 0.79, "hits@1": 0.5}
    told = {"graph": "grail/nell_v1", "model": "walk", "clean": True, "P1 realistic": figures}
    (tmp_path / "a.jsonl").write_text(json.dumps(line("grail/nell_v1", "nbfnet+cp", mrr=0.78)) + "\n")
    (tmp_path / "untrained").mkdir()
    (tmp_path / "untrained" / "lines.jsonl").write_text(json.dumps(told) + "\n")
    results = read_results(tmp_path)
    place = columns().index("nell_v1")
    rows = [row.split(" | ") for row in paper_table(results, "inductive", "mrr").splitlines()]
    shown = [row[1 + place] for row in rows if row[0].startswith("| walk")]
    assert shown == [".790"]
    assert not any(row[0].startswith("| personalised PageRank") for row in rows)
    assert beyond_wins(results)["training-free scorer"] == (0, 1)


def test_known_figures_stand_beside_clean_ones_under_the_same_protocol(tmp_path: Path) -> None:
    def asked(seed: int, mrr: float, **more: Any) -> dict[str, Any]:
        about = {"graph": "grail/nell_v2", "model": "no-nell", "seed": seed, "clean": True}
        return {**about, "P2 pessimistic": {"mrr": mrr}, **more}

    lines = [asked(0, 0.6), asked(1, 0.58), asked(0, 0.9, clean=False), asked(0, 0.5, best_epoch=2)]
    (tmp_path / "a.jsonl").write_text(json.dumps(line("grail/nell_v2", "nbfnet+cp")) + "\n")
    (tmp_path / "anygraph").mkdir()
    (tmp_path / "anygraph" / "zeroshot.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    place = columns().index("nell_v2")
    rows = [row.strip("| ").split(" | ") for row in known_table(read_results(tmp_path)).splitlines()[2:]]
    shown = {row[0]: row[1 + place] for row in rows}
    assert shown["best of everything known"] == ".589"
    assert shown["anygraph, zero-shot, its family left out"] == "**.590**"  # the mean of its seeds
    assert shown["anygraph, fine-tuned from that"] == ".500"
    assert shown["walk × relevance, untrained"] == "–"


def test_bars_beyond_the_paper_are_counted_over_what_was_measured() -> None:
    results = results_of(
        [line("grail/nell_v1", "nbfnet+cp", mrr=0.78), line("grail/fb237_v1", "nbfnet+cp", mrr=0.47)]
    )
    assert beyond_wins(results) == {
        "best trained on the split alone": (2, 2),
        "training-free scorer": (1, 2),
        "both of these": (1, 2),
        "best of everything, pre-trained included": (0, 2),
    }


def test_gains_average_seeds_and_add_settings() -> None:
    def sliced(dataset: str, model: str, seed: int, total: float, count: int) -> dict[str, Any]:
        return line(dataset, model, seed, by_distance={"2": {"sum": total, "count": count}}, by_support={})

    results = results_of(
        [
            sliced("grail/fb237_v1", "nbfnet", 0, 2.0, 10),
            sliced("grail/fb237_v1", "nbfnet", 1, 4.0, 10),
            sliced("grail/fb237_v1", "nbfnet+cp", 0, 5.0, 10),
            sliced("grail/nell_v1", "nbfnet", 0, 3.0, 30),
            sliced("grail/nell_v1", "nbfnet+cp", 0, 7.0, 30),
            sliced("grail/nell_v2", "nbfnet+cp", 0, 30.0, 30),  # has no plain twin, so it does not count
            sliced("grail/nell_v2", "nbfnet+shuffled-relevance", 0, 15.0, 30),
        ]
    )
    assert gains(results, "nbfnet", "inductive", "by_distance", RELEVANCE_CONTROL) == [("2", 30, 0.5, 1.0)]
    told = gain_table(results, "by_distance")
    assert told is not None
    assert told.splitlines() == [
        "| hops to the answer | 2 |",
        "| --- | --: |",
        "| nbfnet+cp vs nbfnet, inductive | +.150 (40) |",
        "| nbfnet+cp vs nbfnet+shuffled-relevance, inductive | +.500 (30) |",
    ]
    assert gain_table(results, "by_support") is None
    assert gains(results, "nbfnet", "inductive", "by_distance") == [("2", 40, 6.0 / 40, 12.0 / 40)]
    assert gains(results, "nbfnet", "inductive", "by_support") == []
    assert gains(results, "redgnn", "inductive", "by_distance") == []


def test_searches_of_different_sizes_are_told_by_family() -> None:
    lines = [line(model="nbfnet"), line(model="nbfnet+cp")]
    spent = [
        ("grail/nell_v2", "nbfnet", 10),
        ("grail/nell_v4", "nbfnet", 5),
        ("grail/nell_v2", "nbfnet+cp", 12),
    ]
    equal = [("grail/fb237_v1", "nbfnet", 7), ("grail/fb237_v2", "nbfnet+cp", 7)]
    searches = tuple(SearchCost(*search, 1.0) for search in (*spent, *equal))
    assert unequal_searches(results_of(lines, "", searches)) == [
        "- grail/nell, nbfnet: 15 trainings without context, 12 with it"
    ]


def test_parts_of_context_stand_between_none_and_all() -> None:
    models = {"nbfnet": 0.1, "nbfnet+bare": 0.2, "nbfnet+gate": 0.3, "nbfnet+cp": 0.4}
    lines = [line(model=model, mrr=mrr, seed=seed) for model, mrr in models.items() for seed in range(3)]
    table = parts_table(results_of(lines), "nbfnet")
    assert table is not None
    assert table.splitlines()[0] == "|  | +bare | +mass | +gate | +arrive | +cp |"
    shown = [cell.split(" ")[0] for cell in table.splitlines()[2].strip("| ").split(" | ")]
    assert shown == ["grail/fb237_v1", ".200", "missing", ".300", "missing", ".400"]
    assert parts_table(results_of([one for one in lines if "gate" not in one["model"]]), "nbfnet") is None


def test_times_of_the_ablation_say_epochs_and_device() -> None:
    lines = [
        line("grail/fb237_v1", "redgnn+alg3", seed, epochs=epochs, train_seconds=60.0, device="cpu")
        for seed, epochs in enumerate((5, 7))
    ]
    assert "60 s, 5 to 7 epochs, cpu" in ablation_table(results_of(lines))


@pytest.fixture(scope="module")
def many() -> list[dict[str, Any]]:
    """Both models, with and without context and a control, on all settings."""
    return [
        {**found, "by_distance": {"1": {"sum": found["mrr"], "count": 2}}}
        for setting in SETTINGS
        for model, gain in (
            ("nbfnet", 0.0),
            ("nbfnet+cp", 0.02),
            ("nbfnet+dup", 0.0),
            ("redgnn", 0.0),
            ("redgnn+cp", 0.0),
        )
        for found in lines_of(model, gain, setting=setting)
    ]


def test_the_page_is_the_same_bytes_whatever_the_order_of_lines_and_files(
    many: list[dict[str, Any]], tmp_path: Path
) -> None:
    pages = set()
    for seed in range(3):
        folder = tmp_path / str(seed)
        folder.mkdir()
        shuffled = list(many)
        random.Random(seed).shuffle(shuffled)
        for part in range(seed + 1):
            lines = shuffled[part :: seed + 1]
            (folder / f"{part}.jsonl").write_text("".join(json.dumps(found) + "\n" for found in lines))
        results = read_results(folder)
        pages.add("".join(page(results) for page in (results_page, context_page, protocols_page)))
    assert len(pages) == 1


def test_the_pages_hold_every_part(many: list[dict[str, Any]]) -> None:
    results = results_of(many, "Tried: everything.")
    text, context = results_page(results), context_page(results)
    for heading in (
        "## The paper's Table 1: transductive",
        "## The paper's Table 2: inductive",
        "## Beyond the paper: inductive MRR",
        "## The paper's Table 4: Algorithm 1 against Algorithm 3",
    ):
        assert heading in text
    for heading in ("## Where it hurts", "## Where it helps", "| hops to the answer | 1 |"):
        assert heading in context
    assert context.endswith("## Notes\n\nTried: everything.\n")
    assert "| nbfnet+cp vs nbfnet+dup | 24 |" in context
    assert "nan" not in (text + context).lower()


def test_the_pages_of_nothing_say_that_all_is_missing() -> None:
    text = results_page(results_of([]))
    assert "**0 of 48** cells" in text
    assert "48 of the 48 are missing" in text
    for page in (context_page, protocols_page):
        assert "Missing: no such lines yet" in page(results_of([]))


def test_the_main_figures_as_json(many: list[dict[str, Any]]) -> None:
    found = json.loads(json.dumps(report_figures(results_of(many)), allow_nan=False))
    (test,) = [
        one
        for one in found["tests"]
        if (one["theirs"], one["scope"], one["metric"]) == ("nbfnet+dup", "both", "mrr")
    ]
    assert test["settings"] == 24
    assert test["difference"] == pytest.approx(0.02, abs=0.01)
    assert test["p"]["t"] <= test["holm"]["t"] < 0.001


def test_pictures_are_the_same_bytes_again_and_left_out_where_there_is_nothing(
    many: list[dict[str, Any]], tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    results = results_of(many)
    first, second = write_plots(results, tmp_path / "a"), write_plots(results, tmp_path / "b")
    assert [path.name for path in first] == ["wins.svg", "gain.svg", "distance.svg"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert b"<dc:date>" not in first[0].read_bytes()
    assert [path.name for path in write_plots(results_of([]), tmp_path / "c")] == ["wins.svg"]


def test_how_figures_are_written() -> None:
    assert [figure(value) for value in (0.5124, 1.0, -0.02, None)] == [".512", "1.000", "-.020", "–"]
    assert [signed(value) for value in (0.0124, -0.5)] == ["+.012", "−.500"]
    assert [p_value(value) for value in (0.0004, 0.0004999, 0.031, 1.0, None)] == [
        "< .001",
        "< .001",
        ".031",
        "1.000",
        "–",
    ]
    one = Group("d", "m", "r", (line(),))
    assert mean_and_deviation(one, "mrr", bold=True) == "**.400** †1"
    assert mean_and_deviation(None, "mrr") == "missing"
