"""`contextpool bench run` and `contextpool bench report`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contextpool.cli.bars import TrainingBars
from contextpool.cli.output import console, note, print_error, print_json, table
from contextpool.cli.train import DeviceOption, JsonOption, chosen_device, parse_assignment

if TYPE_CHECKING:
    from contextpool.bench.cells import Cell
    from contextpool.bench.grid import Grid
    from contextpool.bench.run import Comparison, Summary, Watcher

app = typer.Typer(
    help="Train a grid of settings and models, and make the page of results.",
    no_args_is_help=True,
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
        typer.Option("--recipe", help="shipped, a recipe (.toml) or a folder of recipes. Repeatable."),
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
    from contextpool.bench.run import run_grid

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
    from contextpool.bench.grid import Grid, read_grid, seeds_of
    from contextpool.errors import ConfigError

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
    from contextpool.bench.line import key_and_line
    from contextpool.jobs.lines import read_lines

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
    from contextpool.bench.run import Watcher

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
    from contextpool.bench.cells import Key
    from contextpool.bench.run import Watcher, find_line, run_again
    from contextpool.cli.train import training_bar
    from contextpool.jobs.lines import read_lines

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
    results: Annotated[
        Path, typer.Option("--results", help="A folder of results (*.jsonl), or one file.")
    ] = Path("results"),
    output: Annotated[Path, typer.Option("--output", "-o", help="The page to write.")] = Path(
        "docs/results.md"
    ),
    plots: Annotated[bool, typer.Option("--plots/--no-plots", help="Pictures beside the page.")] = True,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; fail where the page is not what the lines say.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """The page of results, from the lines alone: the paper's tables with ours beside every figure."""
    from contextpool.bench.report import report_text
    from contextpool.bench.results import read_results
    from contextpool.errors import DataError
    from contextpool.triples.reader import atomic_file

    found = read_results(results)
    if not found.lines:
        raise DataError(f"{results}: there is no line of results. Make some with `contextpool bench run`.")
    for message in found.notes:
        note(message)
    text = report_text(found)
    if check:
        _check(text, output)
        return
    with atomic_file(output) as stream:
        stream.write(text.encode("utf-8"))
    written = [str(output), *(_plots(found, output.parent / "images") if plots else [])]
    if as_json:
        from contextpool.bench.report import report_figures

        print_json({"written": written, **report_figures(found)})
    else:
        note(f"wrote {', '.join(written)} from {len(found.lines):,} lines")


def _check(text: str, output: Path) -> None:
    there = output.read_text("utf-8") if output.is_file() else ""
    if there != text:
        print_error(
            f"{output}: the page is not what the results say. Make it again with `contextpool bench report`."
        )
        raise typer.Exit(1)
    note(f"{output} is what the results say")


def _plots(found: Any, folder: Path) -> list[str]:
    from contextpool.errors import MissingExtraError

    try:
        from contextpool.bench.plots import write_plots

        return [str(path) for path in write_plots(found, folder)]
    except MissingExtraError as missing:
        note(f"{missing} The page is complete but for its pictures.")
        return []
