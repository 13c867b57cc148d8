"""`contextpool train` and `contextpool resume`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from contextpool.cli.launch import NprocOption, launched
from contextpool.cli.output import console, note, print_json, table

if TYPE_CHECKING:
    from contextpool.predict import Predictor
    from contextpool.recipe import Recipe
    from contextpool.train.progress import Progress
    from contextpool.triples.dataset import Dataset

DeviceOption = Annotated[str, typer.Option(help="cpu, cuda, or auto for the GPU where there is one.")]
TrackOption = Annotated[
    str | None, typer.Option(help="Send the curves to tensorboard, mlflow or wandb, too.", show_default=False)
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


class TrainCommand(TyperCommand):
    """Takes `--context PRESET` besides `--context`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        from contextpool.context.config import PRESETS

        parsed: list[str] = []
        for argument in args:
            if argument.startswith("--context="):
                parsed += ["--context", f"--preset={argument.removeprefix('--context=')}"]
            elif parsed and parsed[-1] == "--context" and argument in PRESETS:
                parsed.append(f"--preset={argument}")
            else:
                parsed.append(argument)
        return super().parse_args(ctx, parsed)


def train(
    what: Annotated[
        str,
        typer.Argument(
            help="A recipe (.toml), a dataset name or folder, or one graph to split: a file, a query.",
            metavar="RECIPE|DATASET",
        ),
    ],
    model: Annotated[
        str | None, typer.Option(help="nbfnet, redgnn, anyburl, ...; see docs/models.md.")
    ] = None,
    context: Annotated[
        bool | None,
        typer.Option(
            "--context/--plain", help="With context (`--context paper`: in the paper's form), or without."
        ),
    ] = None,
    preset: Annotated[str | None, typer.Option("--preset", hidden=True)] = None,
    assign: Annotated[
        list[str] | None, typer.Option("--set", help="A setting, as key=value: train.lr=0.01.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the weights and of the order of queries.")] = 0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The run folder; by default below runs/.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run that is there.")] = False,
    device: DeviceOption = "auto",
    nproc: NprocOption = None,
    track: TrackOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train a model, select it on validation queries, evaluate it once, and leave a run folder."""
    from contextpool.experiment import run_recipe
    from contextpool.processes import joined

    recipe, chosen = _recipe(what, model, preset or context, assign or []), chosen_device(device)
    folder = output or _default_folder(recipe, seed)
    if launched(nproc, chosen):
        return
    with joined(chosen) as (processes, own_device):
        with training_bar() if processes.is_first else nullcontext() as progress:
            predictor = run_recipe(
                recipe,
                processes.agreed(lambda: _split_source(recipe.dataset, told=processes.is_first)),
                seed=seed,
                output=folder,
                device=own_device,
                overwrite=overwrite,
                progress=progress,
                track=track,
            )
        if processes.is_first:
            note(f"wrote {folder}")
        report_run(predictor, recipe.dataset, folder, as_json)


def resume(
    run: Annotated[Path, typer.Argument(help="The run folder.", metavar="RUN")],
    device: DeviceOption = "auto",
    nproc: NprocOption = None,
    track: TrackOption = None,
    as_json: JsonOption = False,
) -> None:
    """Go on with a run that was cut off, to the same result; with another number of processes, if you like."""
    from contextpool import experiment
    from contextpool.processes import joined
    from contextpool.train.run_folder import RunFolder

    chosen = chosen_device(device)
    if launched(nproc, chosen):
        return
    with joined(chosen) as (processes, own_device):
        with training_bar() if processes.is_first else nullcontext() as progress:
            predictor = experiment.resume(run, device=own_device, progress=progress, track=track)
        dataset = processes.from_first(lambda: str(RunFolder.open(run).config["recipe"]["dataset"]))
        report_run(predictor, dataset, run, as_json)


def chosen_device(name: str) -> str:
    """Auto is the GPU where there is one; an unusable choice is refused."""
    import torch

    from contextpool.errors import ConfigError

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(f"--device is {name!r}, but torch finds no CUDA device here. Use --device cpu.")
    try:
        return str(torch.device(name))
    except RuntimeError:
        raise ConfigError(f"--device is {name!r}; it is auto, cpu or cuda.") from None


def _recipe(what: str, model: str | None, context: bool | str | None, assign: list[str]) -> Recipe:
    from contextpool.recipe import Recipe, read_recipe, shipped_recipe
    from contextpool.triples.sources.address import find_address

    if what.endswith(".toml"):
        recipe = read_recipe(what)
    else:
        shipped = None if find_address(what) else shipped_recipe(what, model or "nbfnet", context is True)
        recipe = shipped or Recipe(what)
    values: dict[str, Any] = {}
    if model is not None and model != recipe.model:
        recipe = Recipe(recipe.dataset, model, {}, recipe.context, recipe.train)
    if isinstance(context, str) or (context is not None and context != (recipe.context is not None)):
        values["context"] = context
    return recipe.with_values(values | dict(parse_assignment(text) for text in assign))


def parse_assignment(text: str) -> tuple[str, Any]:
    """'train.lr=0.01' as a key and a value; the value is read as TOML, or as text where that fails."""
    from contextpool.errors import ConfigError

    key, sign, value = text.partition("=")
    if not sign or not key:
        raise ConfigError(f"--set is {text!r}; write key=value, such as train.lr=0.01.")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value


def _default_folder(recipe: Recipe, seed: int) -> Path:
    kind = f"{recipe.model.replace(':', '.')}{'+cp' if recipe.context else ''}"
    return Path("runs") / _folder_name(recipe.dataset) / f"{kind}-seed{seed}"


def _folder_name(dataset: str) -> str:
    """A dataset's name as a folder; one graph is called after its file or database, not after its query."""
    from contextpool.triples.sources.address import find_address

    address = find_address(dataset)
    return dataset.strip("./").replace("/", "_") if address is None else address.name


def _split_source(dataset: str, *, told: bool) -> Dataset | None:
    """One graph made into a dataset, telling how; None for a dataset that has its parts already."""
    from contextpool.triples.catalog import is_named, load_dataset
    from contextpool.triples.sources.address import find_address

    if is_named(dataset) or find_address(dataset) is None:
        return None
    return load_dataset(dataset, tell=note if told else None)


@contextmanager
def training_bar() -> Iterator[Any]:
    """A bar with epoch, loss, validation MRR and time left; on stderr, and gone when it is done."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[state]}"))
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("preparing", total=None, state="")

        def update(progress: Progress) -> None:
            mrr = "-" if progress.mrr is None else f"{progress.mrr:.3f}"
            left = f"{int(progress.seconds_left) // 60}:{int(progress.seconds_left) % 60:02}"
            bar.update(
                task,
                description=f"epoch {progress.epoch}/{progress.epochs}",
                completed=progress.step,
                total=progress.steps,
                state="  ".join(
                    filter(None, (progress.shown_loss, f"valid MRR {mrr}", f"at most {left} left"))
                ),
            )

        yield update


def report_run(predictor: Predictor, dataset: str, folder: Path, as_json: bool) -> None:
    """Evaluate the selected model once and print it beside the reference scorers; the first process prints."""
    from contextpool.experiment import compare_with_references
    from contextpool.processes import current

    reports = compare_with_references(predictor, dataset)
    if not current().is_first:
        return
    if as_json:
        print_json(
            {"run": str(folder), "dataset": dataset, **{name: r.to_dict() for name, r in reports.items()}}
        )
    else:
        print_reports(reports, f"{dataset}, P1")


def print_reports(reports: dict[str, Any], title: str) -> None:
    """One row a scorer; realistic ties, with what optimistic and pessimistic ones would say."""
    rows = [
        (
            name,
            f"{report.mrr:.3f}",
            f"{report.intervals['mrr'].low:.3f}-{report.intervals['mrr'].high:.3f}",
            f"{report.hits[1]:.3f}",
            f"{report.hits[3]:.3f}",
            f"{report.hits[10]:.3f}",
            f"{report.hits_at_10_of_50:.3f}",
            f"{report.mr:.1f}",
            f"{report.optimistic.mrr:.3f}/{report.pessimistic.mrr:.3f}",
        )
        for name, report in reports.items()
    ]
    columns = ("scorer", "MRR", "95 %", "Hits@1", "Hits@3", "Hits@10", "Hits@10/50", "MR", "MRR opt./pess.")
    console().print(table(f"{title}, {next(iter(reports.values())).num_queries:,} queries", columns, rows))
