"""`contextpool train` and `contextpool resume`."""

from __future__ import annotations

import time
import tomllib
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from contextpool.cli.launch import NprocOption, launched, stopped_in_order
from contextpool.cli.output import console, note, print_json, table

if TYPE_CHECKING:
    from contextpool.predict import Predictor
    from contextpool.recipe import Recipe
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
        from contextpool.errors import ConfigError

        parsed: list[str] = []
        for argument in args:
            if argument.startswith("--context="):
                parsed += ["--context", f"--preset={argument.removeprefix('--context=')}"]
            elif parsed and parsed[-1] == "--context" and argument in PRESETS:
                parsed.append(f"--preset={argument}")
            else:
                parsed.append(argument)
        try:
            return super().parse_args(ctx, list(parsed))
        except Exception as error:
            after = [next_one for one, next_one in pairwise(parsed) if one == "--context"]
            if "unexpected extra argument" not in str(error) or not after or after[0].startswith("-"):
                raise
            raise ConfigError(
                f"--context is {after[0]!r}; it stands alone or before one of {', '.join(PRESETS)}."
            ) from None


def train(
    what: Annotated[
        str,
        typer.Argument(
            help="A recipe (.toml), a dataset name or folder, or one graph to split: a file, a query.",
            metavar="RECIPE|DATASET",
        ),
    ],
    model: Annotated[
        str | None, typer.Option(help="nbfnet, redgnn, walk, anyburl, ...; see docs/models.md.")
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="What training starts from: scratch, a run, or anygraph-1, the model in the package. By default "
            "whichever of scratch and anygraph-1 validates better on trial, on a graph of your own.",
            show_default=False,
        ),
    ] = None,
    context: Annotated[
        bool | None,
        typer.Option(
            "--context/--plain",
            help="With context, as by default (`--context paper`: in the paper's form), or without.",
        ),
    ] = None,
    preset: Annotated[str | None, typer.Option("--preset", hidden=True)] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            help="Train as much as fits into so many minutes: from reading the graph to the last step, at the pace of "
            "a few steps timed beforehand. It takes longer where the machine gets busier.",
            show_default=False,
        ),
    ] = None,
    fast: Annotated[bool, typer.Option("--fast", help="A smaller model, fewer epochs.")] = False,
    best: Annotated[bool, typer.Option("--best", help="A wider model, more epochs.")] = False,
    split: Annotated[
        Literal["facts", "entities"] | None,
        typer.Option(
            help="What of one graph is held out: facts, as by default, or half of its entities.",
            show_default=False,
        ),
    ] = None,
    refit: Annotated[
        bool | None,
        typer.Option(
            "--refit/--no-refit",
            help="Once evaluated, fit the model on all facts of one graph, as by default, or not.",
            show_default=False,
        ),
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="At the most.", show_default=False)] = None,
    lr: Annotated[float | None, typer.Option("--lr", help="Learning rate.", show_default=False)] = None,
    batch_size: Annotated[int | None, typer.Option(help="Queries a step.", show_default=False)] = None,
    assign: Annotated[
        list[str] | None, typer.Option("--set", help="Any other setting, as key=value: model.dim=64.")
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
    """Train a model, select it on validation queries, evaluate it once, fit it on all facts, and leave a run folder."""
    from contextpool.errors import ConfigError
    from contextpool.experiment import run_recipe
    from contextpool.processes import joined
    from contextpool.train.progress import shown_progress

    began, section = time.perf_counter(), _section(fast, best)
    _check_budget(minutes, epochs)
    own = {"train.epochs": epochs, "train.lr": lr, "train.batch_size": batch_size, "train.refit": refit}
    values = {key: value for key, value in own.items() if value is not None}
    values |= dict(parse_assignment(text) for text in assign or [])
    recipe = _recipe(what, model, preset or context, values, section, start)
    chosen = chosen_device(device)
    if recipe.mixture is not None and minutes is not None:
        raise ConfigError(
            "--minutes is for a dataset; a mixture of graphs has a number of steps (--set mixture.steps=2000), and can "
            "be cut off at any of them and resumed."
        )
    recipe = _as_asked(recipe, split, refit)
    usual = model is None and start is None and section is None and context is None and not preset
    otherwise = _as_asked(_otherwise(what, values), split, refit) if usual and _is_own(what, values) else None
    folder = output or _default_folder(recipe, seed, what)
    if launched(nproc, chosen):
        return
    with joined(chosen) as (processes, own_device), stopped_in_order(folder, processes.is_first):
        data = processes.agreed(lambda: _split_source(recipe.dataset, told=processes.is_first))
        if processes.is_first:
            _tell_start(recipe)
        with shown_progress() if processes.is_first else nullcontext() as progress:
            predictor = run_recipe(
                recipe,
                data,
                seed=seed,
                output=folder,
                device=own_device,
                minutes=minutes,
                began=began,
                evaluated=True,
                overwrite=overwrite,
                otherwise=otherwise,
                progress=progress,
                tell=note if processes.is_first else _silent,
                track=track,
            )
        if recipe.mixture is None:
            report_run(predictor, data or recipe.dataset, folder, as_json)
        elif processes.is_first:
            report_pretraining(folder, as_json)


def _silent(_: str) -> None:
    """Of several processes the first tells."""


def _section(fast: bool, best: bool) -> str | None:
    from contextpool.errors import ConfigError

    if fast and best:
        raise ConfigError("--fast and --best cannot both be wanted. Give one of them, or neither.")
    return "fast" if fast else "best" if best else None


def _check_budget(minutes: float | None, epochs: int | None) -> None:
    from contextpool.errors import ConfigError

    if minutes is not None and epochs is not None:
        raise ConfigError("--minutes chooses the epochs; give --minutes or --epochs.")
    if minutes is not None and not minutes > 0:
        raise ConfigError(f"--minutes is {minutes:g}; it has to be positive.")


def _as_asked(recipe: Recipe, split: str | None, refit: bool | None) -> Recipe:
    """One graph is split as asked, and fitted on as a whole in the end unless that is not wanted."""
    from contextpool.errors import ConfigError
    from contextpool.triples.catalog import is_named
    from contextpool.triples.sources.address import find_address, with_options

    one_graph = not is_named(recipe.dataset) and find_address(recipe.dataset) is not None
    if not one_graph and (split or refit):
        raise ConfigError(
            f"--{'split' if split else 'refit'} is for one graph, and {recipe.dataset} comes in parts. Leave it out."
        )
    if split:
        recipe = replace(recipe, dataset=with_options(recipe.dataset, {"split": split}))
    whole = one_graph if refit is None else refit
    return replace(recipe, train=replace(recipe.train, refit=whole))


def resume(
    run: Annotated[Path, typer.Argument(help="The run folder.", metavar="RUN")],
    dataset: Annotated[
        str | None,
        typer.Argument(
            help="What it was begun on, where that is no name of the catalog: the dataset, or the recipe of graphs.",
            metavar="[DATASET|RECIPE]",
            show_default=False,
        ),
    ] = None,
    device: DeviceOption = "auto",
    nproc: NprocOption = None,
    track: TrackOption = None,
    as_json: JsonOption = False,
) -> None:
    """Go on with a run that was cut off, to the same result; with another number of processes, if you like."""
    from contextpool import experiment
    from contextpool.pretraining import Mixture
    from contextpool.processes import joined
    from contextpool.train.progress import shown_progress
    from contextpool.train.run_folder import RunFolder

    chosen = chosen_device(device)
    if launched(nproc, chosen):
        return
    with joined(chosen) as (processes, own_device), stopped_in_order(run, processes.is_first):
        with shown_progress() if processes.is_first else nullcontext() as progress:
            config = processes.from_first(lambda: RunFolder.open(run).config)
            data = processes.agreed(lambda: experiment.data_of(config, run, dataset))
            predictor = experiment.resume(run, data, device=own_device, progress=progress, track=track)
        if not isinstance(data, Mixture):
            report_run(predictor, data, run, as_json)
        elif processes.is_first:
            report_pretraining(run, as_json)


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


def _recipe(
    what: str,
    model: str | None,
    context: bool | str | None,
    values: dict[str, Any],
    section: str | None = None,
    start: str | None = None,
) -> Recipe:
    from contextpool.pretraining import recipe_of_start, started_recipe
    from contextpool.recipe import SCRATCH, read_recipe

    given = None if start in (None, SCRATCH) else start
    if what.endswith(".toml"):
        recipe = read_recipe(what)
        if model is not None and model != recipe.model:
            recipe = replace(recipe, model=model, settings={})
    else:
        model = model or ("nbfnet" if given is None else recipe_of_start(given).model)
        recipe, context = _default_recipe(what, model, context, section)
    if start == SCRATCH:
        recipe = replace(recipe, start=None)
    elif given or recipe.start:
        kept = isinstance(context, str) or context is False
        recipe = started_recipe(recipe, given or str(recipe.start), keep_context=kept)
    if isinstance(context, str) or (context is not None and context != (recipe.context is not None)):
        values = {"context": context, **values}
    return recipe.with_values(values)


def _default_recipe(
    what: str, model: str, context: bool | str | None, section: str | None
) -> tuple[Recipe, bool | str]:
    """What the package ships for the dataset, or for any graph; with context, unless the model takes none."""
    from contextpool.errors import ConfigError
    from contextpool.models.registry import model_class
    from contextpool.recipe import Recipe, shipped_recipe
    from contextpool.triples.sources.address import find_address

    chosen = model_class(model).takes_context if context is None else context
    recipe = None
    if section is None and not find_address(what):
        recipe = shipped_recipe(what, model, chosen is True)
    recipe = recipe or shipped_recipe(what, model, chosen is True, section or "own")
    if recipe is None and section is not None:
        raise ConfigError(
            f"--{section} is for nbfnet; of {model} there is one recipe. Leave it out, or use --set."
        )
    return recipe or Recipe(what, model), chosen


def _is_own(what: str, values: Mapping[str, Any]) -> bool:
    """Whether it is nobody's benchmark, and no recipe or setting asks for a certain model."""
    from contextpool.triples.catalog import is_named

    return (
        not what.endswith(".toml") and not is_named(what) and all(key.startswith("train.") for key in values)
    )


def _otherwise(what: str, values: Mapping[str, Any]) -> Recipe:
    """What is trained where the model in the package is the better start."""
    from contextpool.interop.hub import SHIPPED
    from contextpool.pretraining import started_recipe
    from contextpool.recipe import shipped_recipe

    recipe = shipped_recipe(what, "anygraph", True, "own")
    assert recipe is not None, "it is in the package"
    return started_recipe(recipe, SHIPPED).with_values(values)


def _tell_start(recipe: Recipe) -> None:
    """What training starts from, and whether that knows the family of a benchmark already."""
    from contextpool.pretraining import seen_by_start

    if recipe.start is None:
        return
    note(f"starts from {recipe.start}, whose own weights are kept where no epoch validates better")
    if seen := seen_by_start(recipe.start, recipe.dataset):
        note(
            f"{recipe.start} was trained on graphs of this family ({', '.join(seen)}): figures on it are not those of "
            "a model that has never seen it. Use --from scratch for those."
        )


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


def _default_folder(recipe: Recipe, seed: int, what: str = "mixture") -> Path:
    kind = f"{recipe.model.replace(':', '.')}{'+cp' if recipe.context else ''}"
    name = _folder_name(recipe.dataset) if recipe.mixture is None else Path(what).stem
    return Path("runs") / name / f"{kind}-seed{seed}"


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


def report_run(predictor: Predictor, dataset: Dataset | str, folder: Path, as_json: bool) -> None:
    """Print what the selected model was evaluated to, beside the reference scorers; the first process prints."""
    from contextpool.evaluate.references import better_untrained, evaluation_figures
    from contextpool.experiment import compare_with_references
    from contextpool.processes import current

    figures = predictor.evaluation
    if figures is None:  # a run that was begun from Python, without
        figures = evaluation_figures(compare_with_references(predictor, dataset))
    if not current().is_first:
        return
    name = dataset if isinstance(dataset, str) else dataset.name
    if as_json:
        print_json(
            {"run": str(folder), "dataset": name, **figures}
            | {"fitted_on_all": predictor.fitted_on is not None, "remark": better_untrained(figures)}
        )
    else:
        print_figures(figures, f"{name}, P1")
    if predictor.fitted_on is not None:
        note("then fitted on all facts; the figures are those from before (--no-refit leaves that out)")
    elif not isinstance(dataset, str) and dataset.whole is not None:
        note("not fitted on what was held out (--refit)")
    note(f"wrote {folder}")


def report_pretraining(folder: Path, as_json: bool) -> None:
    """Print what a pre-training came to: there is nothing to evaluate it on but other graphs."""
    from contextpool.train.run_folder import RunFolder

    metrics = RunFolder.open(folder).read_json("metrics.json")
    told = {key: metrics[key] for key in ("steps", "loss", "seconds", "graphs")}
    note(f"wrote {folder}")
    if as_json:
        print_json({"run": str(folder), **told})
        return
    columns = ("graph", "facts", "relations", "% of steps", "queries a step")
    rows = [
        (
            graph["name"],
            f"{graph['facts']:,}",
            f"{graph['relations']:,}",
            f"{100 * graph['share_of_steps']:.1f}",
            f"{graph['queries_a_step']:,}",
        )
        for graph in told["graphs"]
    ]
    title = f"{told['steps']:,} steps in {told['seconds']:,.0f} s, loss {told['loss']:.3f}"
    console().print(table(title, columns, rows))


def print_figures(figures: Mapping[str, Mapping[str, Any]], title: str, packaged: bool = False) -> None:
    """One row a scorer, realistic ties beside optimistic and pessimistic ones; then what beats the model untrained."""
    from contextpool.evaluate.references import better_untrained, untrained

    rows = [
        (
            name,
            f"{found['mrr']:.3f}",
            "{:.3f}-{:.3f}".format(*found["intervals"]["mrr"]),
            f"{found['hits@1']:.3f}",
            f"{found['hits@3']:.3f}",
            f"{found['hits@10']:.3f}",
            f"{found['hits@10_50']:.3f}",
            f"{found['mr']:.1f}",
            f"{found['ties']['optimistic']['mrr']:.3f}/{found['ties']['pessimistic']['mrr']:.3f}",
        )
        for name, found in {"model": figures["model"], **untrained(figures)}.items()
    ]
    columns = ("scorer", "MRR", "95 %", "Hits@1", "Hits@3", "Hits@10", "Hits@10/50", "MR", "MRR opt./pess.")
    console().print(table(f"{title}, {figures['model']['num_queries']:,} queries", columns, rows))
    if remark := better_untrained(figures, packaged):
        console().print(remark)
