"""`contextpool tune`: search for a recipe on selection queries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from contextpool.cli.bars import TrainingBars
from contextpool.cli.output import console, note, print_json, table
from contextpool.cli.train import DeviceOption, JsonOption, chosen_device, parse_assignment

if TYPE_CHECKING:
    from contextpool.tune.search import Progress, Watcher
    from contextpool.tune.space import Space
    from contextpool.tune.trial import Task


def tune(
    dataset: Annotated[str, typer.Argument(help="A dataset name or folder.", metavar="DATASET")],
    model: Annotated[str, typer.Option("--model", "-m", help="nbfnet, nbfnet+cp, redgnn, redgnn+cp, ...")],
    recipe: Annotated[
        str, typer.Option(help="Where it starts from: shipped, a recipe (.toml) or a folder of recipes.")
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
    from contextpool.bench.cells import find_recipe, recipe_file_name
    from contextpool.bench.models import shipped_variants
    from contextpool.tune import search
    from contextpool.tune.space import space_named

    base = find_recipe(dataset, model, recipe, shipped_variants()).recipe
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
    name = recipe_file_name(dataset.strip("./"), model).removesuffix(".toml")
    path = file or Path("results/trials") / f"{name}.{select}.{sampler}.{seed}.jsonl"
    with TrainingBars(str(path)) as bars:
        progress = search.tune(
            config,
            path,
            device=chosen_device(device),
            jobs=jobs,
            time_limit=time_limit,
            finish=finish,
            watcher=_watcher(bars, config.num_trials),
        )
    _write(progress, write_recipe)
    _tell(progress, path, write_recipe, as_json)


def _refuse_searched(changes: dict[str, Any], space: Space, name: str) -> None:
    from contextpool.errors import ConfigError

    both = [parameter.key for parameter in space.parameters if parameter.key in changes]
    if both:
        raise ConfigError(
            f"--set gives {', '.join(both)}, which the space {name!r} searches, so every trial would replace it. Leave "
            "it out, or give a space without it with --space."
        )


def _write(progress: Progress, target: Path | None) -> None:
    from contextpool.triples.reader import atomic_file

    if progress.winner is not None and target is not None:
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(target) as stream:
            stream.write(progress.winner.text().encode("utf-8"))


def _tell(progress: Progress, path: Path, target: Path | None, as_json: bool) -> None:
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


def _watcher(bars: TrainingBars, trials: int) -> Watcher:
    from contextpool.tune.search import Watcher

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
