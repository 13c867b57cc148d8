"""`contextpool data`: look at datasets, check them, convert them, get them, make them."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from contextpool.cli.inputs import parse_bytes, reads_graph
from contextpool.cli.output import console, count_bar, note, print_json, progress_bar, say, table
from contextpool.errors import ConfigError, DataError

if TYPE_CHECKING:
    from contextpool.triples.dataset import Dataset
    from contextpool.triples.fetch import Progress
    from contextpool.triples.sources.address import Address
    from contextpool.triples.store import Triples

app = typer.Typer(
    help="Look at datasets, check them, convert them, get them, make them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
DatasetArgument = Annotated[
    str, typer.Argument(help="A dataset name, or a folder in a known layout.", metavar="DATASET")
]
SkipOption = Annotated[
    bool, typer.Option("--skip-unknown", help="Leave out facts with unknown relations, and count them.")
]


@app.command("ls")
def list_datasets(as_json: JsonOption = False) -> None:
    """All named datasets, and where they are found."""
    from contextpool.triples import catalog

    rows: list[dict[str, Any]] = []
    for entry in catalog.entries():
        located = catalog.locate(entry)
        rows.append(
            {
                "name": entry.name,
                "inductive": entry.inductive,
                "triples": entry.training.facts + entry.training.train if entry.training else None,
                "found": "embedded" if entry.embedded else str(located) if located else None,
                "origin": entry.origin,
            }
        )
    if as_json:
        print_json(rows)
        return
    shown = [
        (
            row["name"],
            "inductive" if row["inductive"] else "transductive",
            _cell(row["triples"]),
            _cell(row["found"]),
        )
        for row in rows
    ]
    columns = ("name", "setting", "training triples", "found in")
    console().print(table("datasets", columns, shown, numbers_from=2, words=(3,)))
    if any(row["found"] is None for row in rows):
        console().print("Get what is missing with: contextpool data fetch NAME")


@app.command("info")
@partial(reads_graph, argument="dataset")
def show_dataset(
    dataset: DatasetArgument, skip_unknown: SkipOption = False, as_json: JsonOption = False
) -> None:
    """What a dataset holds, and which part plays which role; or how large one graph is."""
    from contextpool.triples.catalog import whole_graph

    address = whole_graph(dataset)
    summary = _loaded(dataset, skip_unknown).summary() if address is None else _graph_summary(address)
    if as_json:
        print_json(summary)
        return
    parts = {f"triples: {key}": value for key, value in summary["triples"].items()}
    figures = {key: value for key, value in (summary | parts).items() if key not in ("name", "triples")}
    rows = [(key.replace("_", " "), _cell(value)) for key, value in figures.items()]
    console().print(table(str(summary["name"]), ("what", "how many"), rows))


def _graph_summary(address: Address) -> dict[str, Any]:
    from contextpool.triples.reader import read_triples

    facts = read_triples(address, tell=note)
    counts = {"entities": len(facts.entities), "relations": len(facts.relations), "facts": len(facts)}
    return {"name": address.path.name or address.kind, **counts, "triples": {}}


def _loaded(dataset: str, skip_unknown: bool) -> Dataset:
    from contextpool.triples.catalog import load_dataset

    return load_dataset(dataset, on_unknown="skip" if skip_unknown else "error", tell=note)


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else "-" if value is None else str(value)


@app.command("audit")
@partial(reads_graph, argument="source")
def audit(
    source: Annotated[
        str,
        typer.Argument(
            help="A dataset name, a dataset folder, or one graph: a file, a query.", metavar="SOURCE"
        ),
    ],
    skip_unknown: SkipOption = False,
    as_json: JsonOption = False,
) -> None:
    """What a careful reviewer would ask: overlap, leakage, duplicates, twin relations, reach."""
    from contextpool.triples.audit import audit_dataset, audit_triples
    from contextpool.triples.catalog import whole_graph
    from contextpool.triples.reader import read_triples

    address = whole_graph(source)
    if address is not None:
        report = audit_triples(read_triples(address, tell=note), address.path.name or address.kind)
    else:
        report = audit_dataset(_loaded(source, skip_unknown), folders=_folders_of(source))
    if as_json:
        print_json(report.to_dict())
    else:
        say(report.to_text(), end="")


def _folders_of(source: str) -> list[Path]:
    """The folders whose files the audit reads line by line: a GraIL pair has two."""
    from contextpool.triples import catalog
    from contextpool.triples.sources.address import find_address

    named = catalog.is_named(source)
    if not named and find_address(source) is not None:
        return []
    folder = catalog.locate(catalog.find(source)) if named else Path(source)
    if folder is None:
        return []
    names = (folder.name, f"{folder.name}_ind", folder.name.removesuffix("_ind"))
    return [twin for name in dict.fromkeys(names) if (twin := folder.with_name(name)).is_dir()]


@app.command("convert")
@partial(reads_graph, argument="source")
def convert(
    source: Annotated[
        str, typer.Argument(help="One graph (a file, a query), a dataset name or folder.", metavar="SOURCE")
    ],
    target: Annotated[
        Path,
        typer.Argument(
            help="Of one graph a triple file (.tsv, .tsv.gz, .tsv.zst), of a dataset a folder.",
            metavar="TARGET",
        ),
    ],
    layout: Annotated[
        str, typer.Option(help="For a dataset: grail, flat, redgnn, openke or ilpc.")
    ] = "grail",
    part: Annotated[
        Literal["training", "inference"] | None,
        typer.Option(help="Of a dataset: this graph alone, as a triple file."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing target.")] = False,
    skip_unknown: SkipOption = False,
) -> None:
    """Rewrite a graph as a triple file (compression by suffix), or a dataset in another layout."""
    from contextpool.triples.catalog import whole_graph
    from contextpool.triples.formats import write_dataset
    from contextpool.triples.reader import read_triples
    from contextpool.triples.sources.address import file_kind

    address = whole_graph(source)
    if address is not None:
        if part is not None:
            raise ConfigError(f"--part is for a dataset, and {address.text} is one graph. Leave it out.")
        _write_file(target, lambda: read_triples(address, tell=note), overwrite)
    elif part is not None:
        _write_file(target, lambda: getattr(_loaded(source, skip_unknown), f"{part}_graph"), overwrite)
    elif file_kind(str(target)) is not None and not target.is_dir():
        raise _folder_or_part(source, target)
    else:
        dataset = _loaded(source, skip_unknown)
        write_dataset(dataset, target, layout=layout, overwrite=overwrite)
        note(f"wrote {dataset.name} to {target} ({layout})")


def _write_file(target: Path, triples: Callable[[], Triples], overwrite: bool) -> None:
    from contextpool.triples.files import write_triples
    from contextpool.triples.sources.address import file_kind

    if file_kind(str(target)) not in (None, "tsv"):
        raise ConfigError(
            f"{target}: what is written is head TAB relation TAB tail. Let the name of the file end in .tsv, .tsv.gz "
            "or .tsv.zst."
        )
    if target.exists() and not overwrite:
        raise DataError(f"{target}: exists already. Name another target, or replace it with --overwrite.")
    note(f"wrote {write_triples(target, triples()):,} triples to {target}")


def _folder_or_part(source: str, target: Path) -> ConfigError:
    """What to type where a dataset should become a file."""
    words = ["contextpool", "data", "convert", source]
    folder = target.with_name(target.name.partition(".")[0] or source)
    return ConfigError(
        f"{target}: a dataset is written as a folder, and this is the name of a file. For a folder, type "
        f"`{shlex.join([*words, str(folder)])}`; for one of its graphs as a file, "
        f"`{shlex.join([*words, str(target), '--part', 'inference'])}` (or training)."
    )


@app.command("fetch")
def fetch_datasets(
    names: Annotated[
        list[str], typer.Argument(help="Dataset names; 'all' for every one.", metavar="NAME...")
    ],
    folder: Annotated[Path | None, typer.Option(help="Where to put them; by default the cache.")] = None,
    mirror: Annotated[str | None, typer.Option(help="Base address that replaces the published ones.")] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Ask nothing of the network.")] = False,
) -> None:
    """Download datasets: resumable, checked by sha256, nothing half-written under its own name."""
    from contextpool.triples import catalog
    from contextpool.triples.fetch import fetch

    wanted = catalog.entries() if names == ["all"] else [catalog.find(name) for name in names]
    for entry in wanted:
        with progress_bar() as bar:
            progress = _follow(bar, bar.add_task(entry.name, total=None))
            located = fetch(entry, folder=folder, offline=offline, mirror=mirror, progress=progress)
        note(f"{entry.name}: {located}")


def _follow(bar: Any, task: Any) -> Progress:
    """Let a bar show the file being fetched."""
    return lambda done, size, file: bar.update(task, completed=done, total=size, description=file)


@app.command("map")
@partial(reads_graph, argument="sources")
def map_triples(
    sources: Annotated[
        list[Path], typer.Argument(help="Triple files: .tsv, .csv, .parquet or .npy.", metavar="FILE...")
    ],
    target: Annotated[Path, typer.Option("--output", "-o", help="The folder to write.")],
    memory: Annotated[str, typer.Option(help="About what sorting may take: 512MiB, 2GB.")] = "1GiB",
    temp: Annotated[Path | None, typer.Option(help="Where to put what is spilled.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a mapped graph.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Make a graph that stays in its files: any size, opened at once; `ask` and the others take the folder for it."""
    from contextpool.context.map_graph import map_graph

    with count_bar("mapping") as update:
        graph = map_graph(
            sources, target, memory=parse_bytes(memory), temp=temp, overwrite=overwrite, progress=update
        )
    figures = {"entities": graph.num_entities, "relations": graph.num_relations, "triples": graph.num_triples}
    if as_json:
        print_json({"graph": str(target), **figures, "rows_read": graph.description["rows_read"]})
    else:
        note(f"wrote {target}: {', '.join(f'{count:,} {name}' for name, count in figures.items())}")


@app.command("split")
@reads_graph
def split_graph(
    graph: Annotated[str, typer.Argument(help="A graph: a file, or a query to a database.", metavar="GRAPH")],
    target: Annotated[Path, typer.Argument(help="The folder to write.", metavar="TARGET")],
    transductive: Annotated[
        bool, typer.Option("--transductive", help="Hold out facts, not entities.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Another seed gives another split.")] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing target.")] = False,
) -> None:
    """Make a dataset from one graph: two halves that share no entity, or held-out facts of one graph."""
    from contextpool.triples.formats import write_dataset
    from contextpool.triples.reader import read_triples
    from contextpool.triples.split import split_triples

    dataset = split_triples(read_triples(graph, tell=note), inductive=not transductive, seed=seed)
    write_dataset(dataset, target, layout="flat" if transductive else "grail", overwrite=overwrite)
    training, test = len(dataset.training_graph), len(dataset.inference_test)
    note(f"wrote {target}: {training:,} training facts, {test:,} test facts")
