"""`contextpool data`: look at datasets, check them, convert them, get them, make them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contextpool.cli.inputs import whole_graph
from contextpool.cli.output import console, count_bar, note, print_json, progress_bar, table

if TYPE_CHECKING:
    from contextpool.triples.catalog import CatalogEntry
    from contextpool.triples.fetch import Progress

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

    rows = [_listing(entry) for entry in catalog.entries()]
    if as_json:
        print_json(rows)
        return
    shown = [
        (
            row["name"],
            "inductive" if row["inductive"] else "transductive",
            _figure(row["triples"]),
            row["found"] or "-",
        )
        for row in rows
    ]
    out = table("datasets", ("name", "setting", "training triples", "found in"), shown, numbers_from=2)
    out.columns[3].justify = "left"
    console().print(out)
    if any(row["found"] is None for row in rows):
        console().print("Get what is missing with: contextpool data fetch NAME")


def _listing(entry: CatalogEntry) -> dict[str, Any]:
    from contextpool.triples import catalog

    located = catalog.locate(entry)
    return {
        "name": entry.name,
        "inductive": entry.inductive,
        "triples": (entry.training.facts + entry.training.train) if entry.training else None,
        "found": "embedded" if entry.embedded else str(located) if located else None,
        "origin": entry.origin,
    }


def _figure(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


@app.command("info")
def show_dataset(
    dataset: DatasetArgument, skip_unknown: SkipOption = False, as_json: JsonOption = False
) -> None:
    """What a dataset holds, and which part plays which role."""
    from contextpool.triples.catalog import load_dataset

    summary = load_dataset(dataset, on_unknown="skip" if skip_unknown else "error", tell=note).summary()
    if as_json:
        print_json(summary)
        return
    rows = [(key.replace("_", " "), _cell(value)) for key, value in _flattened(summary)]
    console().print(table(str(summary["name"]), ("what", "how many"), rows))


def _flattened(summary: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in summary.items():
        if isinstance(value, dict):
            yield from _flattened(value, f"{prefix}{key}: ")
        elif key != "name":
            yield f"{prefix}{key}", value


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else "-" if value is None else str(value)


@app.command("audit")
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
    from contextpool.triples.catalog import load_dataset
    from contextpool.triples.reader import read_triples

    address = whole_graph(source)
    if address is not None:
        report = audit_triples(read_triples(address, tell=note), address.path.name or address.kind)
    else:
        dataset = load_dataset(source, on_unknown="skip" if skip_unknown else "error", tell=note)
        report = audit_dataset(dataset, folders=_folders_of(source))
    if as_json:
        print_json(report.to_dict())
    else:
        print(report.to_text(), end="")


def _folders_of(source: str) -> list[Path]:
    """The folders whose files the audit reads line by line: a GraIL pair has two."""
    from contextpool.triples import catalog
    from contextpool.triples.sources.address import find_address

    known = {entry.name: entry for entry in catalog.entries()}
    if source not in known and find_address(source) is not None:
        return []
    folder = catalog.locate(known[source]) if source in known else Path(source)
    if folder is None:
        return []
    twins = (
        folder,
        folder.with_name(f"{folder.name}_ind"),
        folder.with_name(folder.name.removesuffix("_ind")),
    )
    return [twin for twin in dict.fromkeys(twins) if twin.is_dir()]


@app.command("convert")
def convert(
    source: Annotated[
        str, typer.Argument(help="One graph (a file, a query), a dataset name or folder.", metavar="SOURCE")
    ],
    target: Annotated[
        Path, typer.Argument(help="A triple file (.tsv, .tsv.gz, .tsv.zst) or a folder.", metavar="TARGET")
    ],
    layout: Annotated[
        str, typer.Option(help="For a dataset: grail, flat, redgnn, openke or ilpc.")
    ] = "grail",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing target.")] = False,
    skip_unknown: SkipOption = False,
) -> None:
    """Rewrite a graph as a triple file (compression by suffix), or a dataset in another layout."""
    from contextpool.errors import DataError
    from contextpool.triples.catalog import load_dataset
    from contextpool.triples.files import write_triples
    from contextpool.triples.formats import write_dataset
    from contextpool.triples.reader import read_triples

    address = whole_graph(source)
    if address is not None:
        if target.exists() and not overwrite:
            raise DataError(f"{target}: exists already. Name another target, or replace it with --overwrite.")
        note(f"wrote {write_triples(target, read_triples(address, tell=note)):,} triples to {target}")
        return
    dataset = load_dataset(source, on_unknown="skip" if skip_unknown else "error", tell=note)
    write_dataset(dataset, target, layout=layout, overwrite=overwrite)
    note(f"wrote {dataset.name} to {target} ({layout})")


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
        with _fetch_progress(entry.name) as progress:
            located = fetch(entry, folder=folder, offline=offline, mirror=mirror, progress=progress)
        note(f"{entry.name}: {located}")


@contextmanager
def _fetch_progress(name: str) -> Iterator[Progress]:
    """A bar that follows the file being fetched."""
    with progress_bar() as bar:
        task = bar.add_task(name, total=None)

        def update(done: int, total: int | None, file: str) -> None:
            bar.update(task, completed=done, total=total, description=file)

        yield update


@app.command("map")
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
    """Make a graph that stays in its files: any size, opened at once; `predict` takes the folder as its graph."""
    from contextpool.cli.mine_engines import parse_bytes
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
    note(
        f"wrote {target}: {len(dataset.training_graph):,} training facts, {len(dataset.inference_test):,} test facts"
    )
