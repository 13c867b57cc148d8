"""What several commands take: a graph by file or dataset name, a run, names, thresholds, set sizes."""

from __future__ import annotations

import functools
import inspect
import re
import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperCommand, TyperGroup

from contextpool.cli.output import note
from contextpool.errors import ConfigError, DataError, shortened

if TYPE_CHECKING:
    from contextpool.context.families import ContextFamilies
    from contextpool.context.neighbors import ContextNeighbors
    from contextpool.graph.graph import Graph
    from contextpool.predict import Names, Predictor

GraphArgument = Annotated[
    str,
    typer.Argument(
        help="A graph (a file, or a query such as sqlite:FILE?query=SELECT h, r, t ...) or a dataset.",
        metavar="GRAPH",
    ),
]
RunOption = Annotated[
    Path | None,
    typer.Option(
        "--run",
        help="A run folder, or hf://USER/NAME; without it, the model that comes with contextpool.",
        show_default=False,
    ),
]
LabelsOption = Annotated[
    Path | None, typer.Option("--labels", help="Names of entities and relations: a file of id TAB name.")
]
UnknownOption = Annotated[
    Literal["error", "skip"],
    typer.Option("--on-unknown", help="Facts of relations the model does not know: refuse, or leave out."),
]


ColumnsOption = Annotated[
    str | None,
    typer.Option(
        "--columns",
        help="Which columns of the file are head, relation and tail: three names, or 0,2,1.",
        show_default=False,
    ),
]
BadRowsOption = Annotated[
    bool,
    typer.Option(
        "--skip-bad-rows", help="Leave out rows of the file that cannot be read; write them to a file."
    ),
]


def reads_graph(verb: Callable[..., None], argument: str = "graph") -> Callable[..., None]:
    """The verb with `--columns` and `--skip-bad-rows`, which become part of the address of its graph."""

    @functools.wraps(verb)
    def reading(*, columns: str | None, skip_bad_rows: bool, **others: Any) -> None:
        options = {"columns": columns, "bad_rows": "skip" if skip_bad_rows else None}
        given = {key: value for key, value in options.items() if value is not None}
        if given and others[argument] is not None:
            found = others[argument]
            one_or_more = [
                _told_how(str(text), given) for text in ([found] if isinstance(found, str) else found)
            ]
            others[argument] = one_or_more[0] if isinstance(found, str) else one_or_more
        verb(**others)

    own = inspect.signature(verb, eval_str=True)
    kinds = {"columns": (ColumnsOption, None), "skip_bad_rows": (BadRowsOption, False)}
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default)
        for name, (kind, default) in kinds.items()
    ]
    parameters = [*own.parameters.values(), *added]
    reading.__dict__["__signature__"] = own.replace(parameters=parameters)
    reading.__annotations__ = {one.name: one.annotation for one in parameters}
    return reading


def _told_how(text: str, options: dict[str, str]) -> str:
    """The address of a graph, or NAME=ADDRESS, with options that were given beside it."""
    from contextpool.triples.sources.address import address_text, find_address

    name, sign, rest = text.partition("=")
    address, start = find_address(text), ""
    if address is None and sign:
        address, start = find_address(rest), f"{name}="
    if address is None:
        shown = {"columns": "--columns", "bad_rows": "--skip-bad-rows"}[next(iter(options))]
        raise ConfigError(f"{text}: {shown} is for one file of a graph, and this is none.")
    return start + address_text(address.with_options(options))


class GraphFirst(TyperCommand):
    """A verb whose argument is a graph. Who names a run there, as was the way before, is told what to type."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuses a run in the graph's place before anything else is looked at."""
        runs, graphs, _ = _sorted_out(self, args)
        if runs or (len(graphs) > 1 and not _takes_several(self)):
            raise ConfigError(_typed_now(ctx.info_name or self.name or "", self, args))
        return super().parse_args(ctx, args)


def typed_before(ctx: Any, command: Any) -> ConfigError:
    """The error of the verb that `command` took the place of: what to type now, with the arguments given."""
    renamed = ["--every-pair" if word == "--all" else word for word in ctx.args]
    return ConfigError(_typed_now(str(command.name), command, renamed, old=ctx.info_name))


def _typed_now(verb: str, command: Any, args: Sequence[str], old: str | None = None) -> str:
    runs, graphs, options = _sorted_out(command, args)
    if old is None and not runs and len(graphs) > 1 and _is_graph(graphs[0]):
        return _question_typed(verb, command, graphs, options)
    if not runs and len(graphs) > 1 and not _takes_several(command):
        runs, graphs = graphs[:1], graphs[1:]
    runs = [word for run in runs for word in ("--run", run)]
    graph = graphs or ([] if verb == "evaluate" else ["GRAPH"])
    now = shlex.join(["contextpool", verb, *graph, *runs, *options])
    gone = f"`{old}` is now `{verb}`, and the" if old else "the"
    return f"{gone} graph comes first; a run is named with --run. Type: {now}"


def _question_typed(verb: str, command: Any, words: Sequence[str], options: Sequence[str]) -> str:
    """For who types a question without its options."""
    names = [
        one
        for one in ("--head", "--relation", "--tail")
        if any(one in known.opts for known in command.params)
    ]
    told = [part for pair in zip(names, words[1:], strict=False) for part in pair]
    left = words[1 + len(names) :]
    now = shlex.join(["contextpool", verb, words[0], *told, *options])
    if left or not names:
        return f"{verb} takes one graph, and {words[1]!r} is one word more than that. See contextpool {verb} --help"
    return f"after the graph come options. Type: {now}"


def _is_graph(text: str) -> bool:
    from contextpool.triples.catalog import is_named
    from contextpool.triples.sources.address import find_address, is_folder

    address = find_address(text)
    return (address is not None and address.is_there) or is_folder(text) or is_named(text)


class VerbFirst(TyperGroup):
    """The command line; who names the graph before the verb is told what to type."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As it is, but for the two in the wrong order."""
        if len(args) > 1 and args[0] not in self.commands and args[1] in self.commands:
            now = shlex.join(["contextpool", args[1], args[0], *args[2:]])
            raise ConfigError(f"the verb comes first. Type: {now}")
        return super().resolve_command(ctx, args)


def _sorted_out(command: Any, args: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
    """(runs, other arguments, options with their values) of a call, as the options of `command` have it.

    What the server took before is understood: --graph, beside which an argument was a run, and --model.
    """
    valued = {
        name for one in command.params for name in (*one.opts, *one.secondary_opts) if not _is_flag(one)
    }
    runs: list[str] = []
    graphs: list[str] = []
    options: list[str] = []
    before: dict[str, list[str]] = {"--graph": [], "--model": []}
    left = list(args)
    while left:
        word = left.pop(0)
        name, sign, value = word.partition("=")
        name = {"-g": "--graph", "-m": "--model"}.get(name, name)
        if name in before and name not in valued:
            before[name].append(value if sign else left.pop(0) if left else "")
        elif word.startswith("-") and word != "-":
            options.append(word)
            if word in valued and left:
                options.append(left.pop(0))
        else:
            (runs if _is_run(word) else graphs).append(word)
    if before["--graph"]:
        runs, graphs = runs + graphs, before["--graph"]
    return runs + before["--model"], graphs, options


def _is_flag(parameter: Any) -> bool:
    return bool(getattr(parameter, "is_flag", False))


def _takes_several(command: Any) -> bool:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    return len(arguments) > 1 or any(one.nargs == -1 for one in arguments)


def _is_run(text: str) -> bool:
    with suppress(OSError, ValueError):  # a query may be longer than any path
        return text.startswith("hf:/") or (Path(text) / "config.json").is_file()
    return False


def load_graph(source: str, part: Literal["training", "inference"] = "training") -> Graph:
    """A whole graph (a file, a query, a mapped one), or one of the two of a dataset (a name, a folder, an address with
    split=).
    """
    from contextpool.predict.inputs import as_graph

    return as_graph(source, part=part, tell=note)


def chosen_model(run: Path | None, device: str) -> Predictor:
    """The run that was named, or the model that comes with contextpool."""
    from contextpool.cli.train import chosen_device
    from contextpool.experiment import load

    return load(run, device=chosen_device(device))


def tell_calibration(predictor: Predictor, graph: Graph, cap: int | None = None) -> None:
    """How many facts of the graph probabilities rest on, where the run has no calibration; or why there are none."""
    if predictor.relations is not None and predictor.calibration is None:
        note("no probabilities: the run has no calibration, which is fitted on 50 held-out questions or more")
    calibration = None if predictor.relations is not None else predictor.calibration_for(graph, cap=cap)
    if calibration is not None and calibration.facts is not None:
        from contextpool.predict.fitted import FEWEST_FACTS

        told = f"{calibration.facts:,} facts of this graph, each hidden from itself"
        if not calibration.facts:
            told = "no facts of this graph, which is too small"
            if graph.num_triples >= FEWEST_FACTS:
                told = (
                    "no facts of this graph, which is too large to ask some before a first answer: "
                    "Predictor.calibrate(graph) asks some once, and every later answer rests on them"
                )
        note(f"probabilities rest on {told}")


def listed(path: Path | None) -> list[str] | None:
    """The lines of a file of labels."""
    from contextpool.triples.files import numbered_lines

    if path is None:
        return None
    lines = [text for _, text in numbered_lines(path) if text]
    if not lines:
        raise DataError(f"{path}: the file names nothing. Expected one entity a line.")
    return lines


def tell_left_out(predictor: Predictor, graph: Graph, on_unknown: Literal["error", "skip"]) -> None:
    _, left_out = predictor.prepared(graph, on_unknown=on_unknown)
    if left_out:
        note(
            f"left out {left_out:,} of {graph.num_triples:,} facts: their relations are unknown to the model"
        )


def loaded_names(path: Path | None) -> Names | None:
    from contextpool.predict import read_names

    return None if path is None else read_names(path)


def stored_dataset(run: Path | None) -> str:
    """What a run was trained on, where it is a name of the catalog; nothing else that a run names is opened."""
    from contextpool.train.run_folder import RunFolder
    from contextpool.triples.catalog import is_named

    if run is None:
        raise ConfigError("nothing to evaluate on: name a graph or a dataset, or a run with --run.")
    name = str(RunFolder.open(run).config["recipe"]["dataset"])
    if not is_named(name):
        raise ConfigError(
            f"{run} was trained on {shortened(name, 200)}, which is no name of the catalog, and a run folder is not "
            f"trusted to say what is opened. Give the dataset: contextpool evaluate DATASET --run {run}"
        )
    return name


def parse_sizes(text: str) -> list[int]:
    """'1-5' or '4,5' or '1-3,6' as a list of sizes."""
    sizes: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if not first.strip().isdigit() or not (last or first).strip().isdigit():
            raise ConfigError(f"--sizes is {text!r}; write sizes like 1-5 or 4,5.")
        sizes.update(range(int(first), int(last or first) + 1))
    return sorted(sizes)


def mined(
    graph: Graph, algorithm: int, min_precision: float, min_recall: float, keep_self: bool, sizes: str
) -> ContextNeighbors | ContextFamilies:
    """Algorithm 3's neighbors, or Algorithm 1's families by the measure whose threshold is set."""
    from contextpool.context.families import mine_families
    from contextpool.context.neighbors import mine_context

    if algorithm == 3:
        return mine_context(graph, min_precision, min_recall, self="keep" if keep_self else "exclude")
    if algorithm != 1:
        raise ConfigError(f"--algorithm is {algorithm}; it is 1 (relation sets) or 3 (single relations).")
    if min_recall > 0:
        return mine_families(graph, measure="recall", threshold=min_recall, sizes=parse_sizes(sizes))
    return mine_families(graph, measure="precision", threshold=min_precision, sizes=parse_sizes(sizes))


def parse_bytes(text: str) -> int:
    """'1GiB', '512 MB', '2g' or plain bytes."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", text.lower())
    if found is None or (found[3] and not found[2]):
        raise ConfigError(f"--memory is {text!r}; write it like 512MiB, 1.5GB or 2g.")
    power = " kmgt".index(found[2] or " ")
    return int(float(found[1]) * (1024 if found[3] else 1000) ** power)
