"""`python -m lab run|tune|report`, from the root of a checkout."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from contextpool.cli.output import console, note, print_error, print_json, table
from contextpool.cli.train import DeviceOption, JsonOption, chosen_device, parse_assignment
from lab.bars import TrainingBars

if TYPE_CHECKING:
    from lab import run as run_module
    from lab import search
    from lab.cells import Cell
    from lab.grid import Grid
    from lab.results import Results
    from lab.run import Comparison, Summary
    from lab.search import Progress
    from lab.space import Space
    from lab.trial import Task

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
    grid: Annotated[
        Path | None, typer.Option("--grid", help="A grid file (.toml); flags override it.")
    ] = None,
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
    seeds: Annotated[int | None, typer.Option(help="How many seeds: 0, 1, 2, ...")] = None,
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
    cells = _grid(grid, dataset, model, context, recipe, seeds, seed, assign, label).cells()
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
    grid: Path | None,
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
    from lab.grid import Grid, read_grid, seeds_of

    values: dict[str, Any] = {} if grid is None else read_grid(grid)
    lists = {"datasets": dataset, "models": model, "contexts": context, "recipes": recipe}
    values |= {key: tuple(given) for key, given in lists.items() if given}
    if seed and seeds is not None:
        raise ConfigError("--seed names seeds and --seeds counts them from 0; give one of the two.")
    if seed or seeds is not None:
        values["seeds"] = seeds_of(seed or seeds, "--seeds")
    if assign:
        values["changes"] = {**values.get("changes", {}), **dict(parse_assignment(text) for text in assign)}
    if label is not None:
        values["label"] = label
    if not values.get("datasets"):
        raise ConfigError("there is nothing to train: name a dataset with --dataset, or a grid with --grid.")
    return Grid(**values)


def _list(cells: list[Cell], results: Path, as_json: bool) -> None:
    from lab.line import key_and_line
    from lab.lines import read_lines

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


def _watcher(bars: TrainingBars) -> run_module.Watcher:
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
    from contextpool.cli.train import training_bar
    from lab.cells import Key
    from lab.lines import read_lines
    from lab.run import Watcher, find_line, run_again

    old, path = find_line(what, results)
    where = f"{path}: {Key.of(old)}"
    with training_bar() as progress:
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
    from lab.models_table import models_page
    from lab.report import report_text
    from lab.tuning_table import tuning_page

    pages = {docs / "lab" / "results.md": report_text(found)}
    if (results / "trials").is_dir():
        pages[docs / "lab" / "tuning.md"] = tuning_page(results / "trials")
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
        str | None, typer.Option(help="What to vary: a shipped space by name, or a file (.toml).")
    ] = None,
    select: Annotated[
        Literal["validation", "pseudo-inductive"],
        typer.Option(help="On the training graph's selection queries, or on a disjoint half of that graph."),
    ] = "validation",
    sampler: Annotated[
        Literal["random", "grid", "optuna"],
        typer.Option(help="By chance, every combination of a space of choices, or Optuna's TPE."),
    ] = "random",
    trials: Annotated[int, typer.Option(min=1, help="Recipes to draw; a grid goes through all.")] = 20,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Of the last rung; by default the recipe's.")
    ] = None,
    rungs: Annotated[int, typer.Option(min=1, help="Steps of successive halving; 1 for none.")] = 3,
    factor: Annotated[int, typer.Option(min=2, help="One in so many trials goes on to the next rung.")] = 3,
    finalists: Annotated[int, typer.Option(min=1, help="Best trials to train again with other seeds.")] = 1,
    seeds: Annotated[int, typer.Option(min=1, help="Trainings of each finalist in all.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="Of draws, trainings and halves.")] = 0,
    assign: Annotated[
        list[str] | None, typer.Option("--set", help="A setting that is not searched, as key=value.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help="The file of trials; by default below results/trials/.")
    ] = None,
    write_recipe: Annotated[Path | None, typer.Option(help="Write the winning recipe here.")] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Trainings side by side.")] = 1,
    time_limit: Annotated[
        float | None, typer.Option(min=0, help="Seconds after which no training is begun any more.")
    ] = None,
    finish: Annotated[
        bool, typer.Option("--finish", help="No new trial: take the best of what there is.")
    ] = False,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Search for a recipe; selects on the training side alone and opens no inference query."""
    from lab import search
    from lab.cells import find_recipe, trials_name
    from lab.defaults import recipe_of
    from lab.models import shipped_variants
    from lab.space import space_named

    base = recipe_of(find_recipe(dataset, model, recipe, shipped_variants()).values)
    changes = dict(parse_assignment(text) for text in assign or [])
    searched = space_named(space or model)
    _refuse_searched(changes, searched, space or model)
    config = search.SearchConfig(
        base.with_values({"dataset": dataset, **changes}),
        model,
        searched,
        select,
        sampler,
        seed,
        trials,
        epochs,
        rungs,
        factor,
        finalists,
        seeds,
    )
    name = trials_name(dataset, model)
    path = file or Path("results/trials") / f"{name}.{select}.{sampler}.{seed}.jsonl"
    with TrainingBars(str(path)) as bars:
        progress = search.tune(
            config,
            path,
            device=chosen_device(device),
            jobs=jobs,
            time_limit=time_limit,
            finish=finish,
            watcher=_search_watcher(bars, config.num_trials),
        )
    _write(progress, write_recipe)
    _tell_search(progress, path, write_recipe, as_json)


def _refuse_searched(changes: dict[str, Any], space: Space, name: str) -> None:
    from contextpool.errors import ConfigError

    both = [parameter.key for parameter in space.parameters if parameter.key in changes]
    if both:
        raise ConfigError(
            f"--set gives {', '.join(both)}, which the space {name!r} searches, so every trial would replace it. Leave "
            "it out, or give a space without it with --space."
        )


def _write(progress: Progress, target: Path | None) -> None:
    from contextpool.triples.files import atomic_file

    if progress.winner is not None and target is not None:
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(target) as stream:
            stream.write(progress.winner.text().encode("utf-8"))


def _tell_search(progress: Progress, path: Path, target: Path | None, as_json: bool) -> None:
    winner = progress.winner
    if as_json:
        print_json(
            {
                "file": str(path),
                "trials": progress.trials,
                "trainings": progress.trainings,
                "seconds": progress.seconds,
                "complete": progress.complete,
                "failed": len(progress.failed),
                "best": progress.best,
                "winner": None if winner is None else {"recipe": winner.recipe.to_dict(), **winner.tuning},
                "written": None if winner is None or target is None else str(target),
            }
        )
        return
    note(
        f"{path}: {progress.trials} trials, {progress.trainings} trainings ({len(progress.failed)} failed), "
        f"{progress.seconds:.0f} s."
    )
    if winner is None:
        note(
            "The search is not at its end; run the same command to go on, or --finish to take the best so far."
        )
        return
    best = progress.best or {}
    rows = [(key, value) for key, value in best.get("values", {}).items()]
    title = f"validation MRR {winner.valid_mrr:.4f}, mean over {len(winner.tuning['valid_mrrs'])} seeds"
    if best.get("trial") == winner.tuning["trial"]:
        console().print(table(title, ("setting", "value"), rows))
    if target is None:
        console().print(winner.text(), markup=False)
    else:
        note(f"wrote {target}")


def _search_watcher(bars: TrainingBars, trials: int) -> search.Watcher:
    from lab.search import Watcher

    def key(task: Task) -> tuple[int, int, int]:
        return task.trial, task.rung, task.seed

    def name(task: Task) -> str:
        return f"{task.kind} {task.trial} of {trials}, {task.epochs} epochs, seed {task.seed}"

    def finished(task: Task, line: Any) -> None:
        bars.end(key(task))
        if line["valid_mrr"] is not None:
            bars.note(f"{name(task)}: validation MRR {line['valid_mrr']:.4f}, {line['seconds']:.0f} s")

    return Watcher(
        note=bars.note,
        begun=lambda task: bars.begin(key(task), name(task)),
        progress=lambda task, told: bars.update(key(task), told),
        finished=finished,
    )


if __name__ == "__main__":
    from contextpool.__main__ import run_app

    run_app(app)
