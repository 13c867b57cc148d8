"""`python -m lab run|tune|report`, from the root of a checkout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from contextpool.cli.output import console, note, print_error, print_json, table
from contextpool.cli.train import DeviceOption, JsonOption, chosen_device, parse_assignment
from lab.bars import TrainingBars

if TYPE_CHECKING:
    from lab.recipes import Cell
    from lab.results import Results
    from lab.run import Comparison, Grid, Summary, Watcher
    from lab.space import Space
    from lab.tune import Watcher as SearchWatcher

app = typer.Typer(
    name="lab",
    help="The experiments behind docs/lab: trainings, searches, and the pages made from them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

ResultsOption = Annotated[Path, typer.Option("--results", help="The file that lines are appended to.")]


@app.command("run")
def run(
    dataset: Annotated[
        list[str] | None,
        typer.Option(
            "--dataset", "-d", help="A dataset, a pattern, or inductive, transductive, all. Repeatable."
        ),
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option("--model", "-m", help="nbfnet, redgnn+cp, ... Repeatable.")
    ] = None,
    context: Annotated[
        list[str] | None,
        typer.Option(
            "--context", "-c", help="plain, cp or another variant, for models named without. Repeatable."
        ),
    ] = None,
    recipe: Annotated[
        list[str] | None,
        typer.Option("--recipe", help="shipped, published, or a recipe (.toml). Repeatable."),
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="How many seeds: 0, 1, 2, ...")] = None,
    seed: Annotated[list[int] | None, typer.Option("--seed", help="This seed. Repeatable.")] = None,
    assign: Annotated[
        list[str] | None, typer.Option("--set", help="A setting for all, as key=value: train.epochs=5.")
    ] = None,
    label: Annotated[str | None, typer.Option(help="Name of the recipes in the results.")] = None,
    only: Annotated[
        str | None,
        typer.Option(
            help="Do one line again and print it beside the old: its number, FILE:NUMBER, or "
            "'dataset model recipe seed'."
        ),
    ] = None,
    trials: Annotated[
        Path | None,
        typer.Option(help="Train a list of trials that `lab tune --ask` wrote; needs no Optuna."),
    ] = None,
    results: ResultsOption = Path("results/bench.jsonl"),
    runs: Annotated[
        Path | None,
        typer.Option(help="Keep run folders here; a training that was cut off goes on from its checkpoint."),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Trainings side by side.")] = 1,
    time_limit: Annotated[
        float | None, typer.Option(min=0, help="Seconds after which no training is begun any more.")
    ] = None,
    device: DeviceOption = "auto",
    commit: Annotated[str | None, typer.Option(help="Of the code, where git cannot tell.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would be trained.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Train what has no line in the results file yet; each finished training is one line."""
    chosen = chosen_device(device)
    if only is not None:
        _again(only, results, chosen, commit, as_json)
        return
    if trials is not None:
        from lab.jobs import read_lines
        from lab.tune import run_trials

        made = run_trials(read_lines(trials), results, device=chosen, jobs=jobs, note=note)
        note(f"{results}: {len(made)} trials trained; `lab tune --tell {results}` takes them.")
        return
    cells = _grid(dataset, model, context, recipe, seeds, seed, assign, label).cells()
    if dry_run:
        _list(cells, results, as_json)
        return
    from lab.run import run_grid

    with TrainingBars(str(results), len(cells)) as bars:
        summary = run_grid(
            cells,
            results,
            device=chosen,
            jobs=jobs,
            time_limit=time_limit,
            runs=None if runs is None else str(runs),
            commit=commit,
            watcher=_watcher(bars),
        )
    _tell(summary, results, as_json)


def _grid(
    dataset: list[str] | None,
    model: list[str] | None,
    context: list[str] | None,
    recipe: list[str] | None,
    seeds: int | None,
    seed: list[int] | None,
    assign: list[str] | None,
    label: str | None,
) -> Grid:
    from contextpool.errors import ConfigError
    from lab.run import Grid

    lists = {"datasets": dataset, "models": model, "contexts": context, "recipes": recipe}
    values: dict[str, Any] = {key: tuple(given) for key, given in lists.items() if given}
    if seed and seeds is not None:
        raise ConfigError("--seed names seeds and --seeds counts them from 0; give one of the two.")
    if seed or seeds is not None:
        values["seeds"] = tuple(seed or range(seeds or 0))
    if assign:
        values["changes"] = dict(parse_assignment(text) for text in assign)
    if label is not None:
        values["label"] = label
    if not values.get("datasets"):
        raise ConfigError("there is nothing to train: name a dataset with --dataset.")
    return Grid(**values)


def _list(cells: list[Cell], results: Path, as_json: bool) -> None:
    from lab.jobs import read_lines
    from lab.measure import key_and_line

    there = key_and_line(read_lines(results))
    if as_json:
        print_json([{**cell.key._asdict(), "done": cell.key in there} for cell in cells])
        return
    rows = [(*cell.key, "done" if cell.key in there else "to do") for cell in cells]
    console().print(table(f"{len(cells):,} trainings", ("dataset", "model", "recipe", "seed", ""), rows))


def _tell(summary: Summary, results: Path, as_json: bool) -> None:
    counts = {
        "results": str(results),
        "done": len(summary.done),
        "skipped": summary.skipped,
        "failed": len(summary.failed),
        "left": summary.left,
    }
    if as_json:
        print_json({**counts, "lines": summary.done, "failures": summary.failed})
    else:
        note(
            f"{results}: {counts['done']} trained, {counts['skipped']} had a line already, "
            f"{counts['failed']} failed, {counts['left']} left for the next time."
        )
    if summary.failed:
        raise typer.Exit(1)


def _watcher(bars: TrainingBars) -> Watcher:
    from lab.run import Watcher

    def begun(cell: Cell) -> None:
        bars.begin(cell.key, f"{cell.key.dataset} {cell.key.model} seed {cell.key.seed}")

    def finished(cell: Cell, line: Any) -> None:
        done = bars.end(cell.key)
        if line is not None:
            valid = "-" if line["valid_mrr"] is None else f"{line['valid_mrr']:.4f}"
            bars.note(
                f"{done}: {cell.key}: MRR {line['mrr']:.4f}, valid {valid}, {line['train_seconds']:.0f} s"
            )

    return Watcher(bars.note, lambda cell, told: bars.update(cell.key, told), begun, finished)


def _again(what: str, results: Path, device: str, commit: str | None, as_json: bool) -> None:
    """One line's training again, beside the line."""
    from contextpool.train.progress import shown_progress
    from lab.jobs import read_lines
    from lab.recipes import Key
    from lab.run import Watcher, find_line, run_again

    old, path = find_line(what, results)
    where = f"{path}: {Key.of(old)}"
    with shown_progress() as progress:
        watcher = Watcher(note=note, progress=lambda cell, told: progress(told))
        compared = run_again(old, read_lines(path), device=device, commit=commit, watcher=watcher)
    if as_json:
        print_json({"line": where, "old": compared.old, "new": compared.new, "spread": compared.spread})
        return
    console().print(table(where, ("", "old", "new", "new - old", "sd over seeds"), _beside(compared)))


def _beside(compared: Comparison) -> list[tuple[str, ...]]:
    old, new = compared.old, compared.new
    rows = [
        (name, f"{old[name]:.4f}", f"{new[name]:.4f}", f"{new[name] - old[name]:+.4f}", _shown(spread))
        for name, spread in compared.spread.items()
        if old[name] is not None and new[name] is not None
    ]
    before, now = old["train_seconds"], new["train_seconds"]
    rows.append(("train_seconds", f"{before:.1f}", f"{now:.1f}", f"{now - before:+.1f}", ""))
    plain = ("epochs", "device", "commit", "date")
    return [*rows, *((key, str(old.get(key)), str(new.get(key)), "", "") for key in plain)]


def _shown(spread: float | None) -> str:
    return "-" if spread is None else f"{spread:.4f}"


@app.command("report")
def report(
    results: Annotated[Path, typer.Option("--results", help="A folder of results.")] = Path("results"),
    docs: Annotated[Path, typer.Option("--docs", help="The folder of the pages.")] = Path("docs"),
    plots: Annotated[bool, typer.Option("--plots/--no-plots", help="Pictures, too.")] = True,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; fail where a page is not what the lines say.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """The pages of results, from the lines alone: the paper's tables with ours beside, what each change did, models."""
    from contextpool.errors import DataError
    from contextpool.triples.files import atomic_file
    from lab.results import read_results

    found = read_results(results)
    if not found.lines:
        raise DataError(f"{results}: there is no line of results. Make some with `python -m lab run`.")
    for message in found.notes:
        note(message)
    pages = made_pages(found, results, docs)
    if check:
        _check(pages)
        return
    for path, text in pages.items():
        with atomic_file(path) as stream:
            stream.write(text.encode("utf-8"))
    written = [*map(str, pages), *(_plots(found, docs / "images") if plots else [])]
    if as_json:
        from lab.report import report_figures

        print_json({"written": written, **report_figures(found)})
    else:
        note(f"wrote {', '.join(written)} from {len(found.lines):,} lines")


def made_pages(found: Results, results: Path, docs: Path) -> dict[Path, str]:
    """Every page that is made from lines, with what it has to hold."""
    from lab.pages import models_page, tuning_page
    from lab.report import context_page, protocols_page, results_page

    pages = {
        docs / "lab" / "results.md": results_page(found),
        docs / "lab" / "context-results.md": context_page(found),
        docs / "lab" / "protocols.md": protocols_page(found),
    }
    if (results / "trials").is_dir():
        pages[docs / "lab" / "tuning.md"] = tuning_page(results / "trials", found)
    models = docs / "lab" / "models.md"
    if models.is_file():
        pages[models] = models_page(models.read_text("utf-8"), found)
    return pages


def _check(pages: dict[Path, str]) -> None:
    stale = [
        str(path) for path, text in pages.items() if not path.is_file() or path.read_text("utf-8") != text
    ]
    if stale:
        print_error(
            f"{', '.join(stale)}: not what the results say. Make it again with `python -m lab report`."
        )
        raise typer.Exit(1)
    note(f"{', '.join(map(str, pages))}: what the results say")


def _plots(found: Results, folder: Path) -> list[str]:
    from contextpool.errors import MissingExtraError

    try:
        from lab.plots import write_plots

        return [str(path) for path in write_plots(found, folder)]
    except MissingExtraError as missing:
        note(f"{missing} The pages are complete but for their pictures.")
        return []


@app.command("tune")
def tune(
    dataset: Annotated[str, typer.Argument(help="A dataset name or folder.", metavar="DATASET")],
    model: Annotated[str, typer.Option("--model", "-m", help="nbfnet, nbfnet+cp, redgnn, redgnn+cp, ...")],
    recipe: Annotated[
        str, typer.Option(help="Where it starts from: shipped, published, or a recipe (.toml).")
    ] = "shipped",
    space: Annotated[
        str | None, typer.Option(help="What to vary: one of lab/spaces by name, or a file (.toml).")
    ] = None,
    select: Annotated[
        Literal["validation", "pseudo-inductive"],
        typer.Option(help="On the training graph's selection queries, or on a disjoint half of that graph."),
    ] = "validation",
    sampler: Annotated[
        Literal["tpe", "random", "grid"],
        typer.Option(help="Optuna's TPE, by chance, or every combination of a space of choices."),
    ] = "tpe",
    pruner: Annotated[
        Literal["none", "median", "halving"],
        typer.Option(help="Which trials Optuna ends early; with --jobs 1 alone."),
    ] = "none",
    trials: Annotated[int, typer.Option(min=1, help="Trials in all; a grid goes through all it has.")] = 20,
    epochs: Annotated[int | None, typer.Option(min=1, help="By default the recipe's.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of draws, trainings and halves.")] = 0,
    assign: Annotated[
        list[str] | None, typer.Option("--set", help="A setting that is not searched, as key=value.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help="The file of trials; by default below results/trials/.")
    ] = None,
    ask: Annotated[
        Path | None,
        typer.Option(help="Train nothing: write a list of --trials new trials here, for `lab run --trials`."),
    ] = None,
    tell: Annotated[
        Path | None, typer.Option(help="Train nothing: take what `lab run --trials` wrote here.")
    ] = None,
    write_recipe: Annotated[Path | None, typer.Option(help="Write the best trial's recipe here.")] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Trainings side by side.")] = 1,
    time_limit: Annotated[
        float | None, typer.Option(min=0, help="Seconds after which no training is begun any more.")
    ] = None,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Search for a recipe by Optuna; selects on the training side alone and opens no inference query."""
    from contextpool.triples.files import atomic_file
    from lab.jobs import read_lines
    from lab.recipes import changed, find_recipe, recipe_of, shipped_variants, trials_name
    from lab.space import space_named
    from lab.tune import Search, SearchConfig

    searched = space_named(space or model)
    changes = dict(parse_assignment(text) for text in assign or [])
    _refuse_searched(changes, searched, space or model)
    if epochs is not None:
        changes["train.epochs"] = epochs
    values = find_recipe(dataset, model, recipe, shipped_variants())
    base = recipe_of(changed(values, {"dataset": dataset, **changes}))
    config = SearchConfig(base, model, searched, select, sampler, pruner, seed)
    path = file or Path("results/trials") / f"{trials_name(dataset, model)}.{select}.{sampler}.{seed}.jsonl"
    with TrainingBars(str(path)) as bars, Search(config, path, _search_watcher(bars)) as search:
        if tell is not None:
            search.tell(read_lines(tell))
        elif ask is not None:
            lines = search.listed(trials)
            with atomic_file(ask) as stream:
                stream.write("".join(json.dumps(line) + "\n" for line in lines).encode("utf-8"))
        else:
            search.run(trials, device=chosen_device(device), jobs=jobs, time_limit=time_limit)
        best = search.best
        if best is not None and write_recipe is not None:
            with atomic_file(write_recipe) as stream:
                stream.write(search.recipe_text(best).encode("utf-8"))
    failed = sum(line["error"] is not None for line in search.trials)
    if as_json:
        found = (
            None if best is None else {**search.recipe(best)[1], "recipe": search.recipe(best)[0].to_dict()}
        )
        print_json(
            {"file": str(path), "trials": len(search.trials), "failed": failed, "best": best, "winner": found}
        )
        return
    note(f"{path}: {len(search.trials)} trials ({failed} failed or pruned).")
    if best is not None:
        title = f"trial {best['trial']}: validation MRR {best['valid_mrr']:.4f}"
        console().print(table(title, ("setting", "value"), list(best["values"].items())))


def _refuse_searched(changes: dict[str, Any], space: Space, name: str) -> None:
    from contextpool.errors import ConfigError

    both = [key for key in space if key in changes]
    if both:
        raise ConfigError(
            f"--set gives {', '.join(both)}, which the space {name!r} searches, so every trial would replace it. Leave "
            "it out, or give a space without it with --space."
        )


def _search_watcher(bars: TrainingBars) -> SearchWatcher:
    from lab.tune import Watcher as SearchWatcher

    def finished(line: Any) -> None:
        bars.end(line["trial"])
        if line["valid_mrr"] is not None:
            bars.note(
                f"trial {line['trial']}: validation MRR {line['valid_mrr']:.4f}, {line['seconds']:.0f} s"
            )

    return SearchWatcher(bars.note, lambda trial: bars.begin(trial, f"trial {trial}"), bars.update, finished)


if __name__ == "__main__":
    from contextpool.__main__ import run_app

    run_app(app)
