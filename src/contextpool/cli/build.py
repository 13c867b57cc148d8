"""`contextpool data build`: datasets made from what a machine already has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contextpool.cli.output import note, print_json

if TYPE_CHECKING:
    from contextpool.triples.debian.build import Built

app = typer.Typer(
    help="Make a dataset from what a machine already has.", no_args_is_help=True, rich_markup_mode=None
)


@app.callback()
def build() -> None:
    """Make a dataset from what a machine already has."""


@app.command("debian")
def build_debian(
    target: Annotated[Path, typer.Argument(help="The folder to write.", metavar="TARGET")] = Path("debian"),
    packages: Annotated[
        list[Path] | None,
        typer.Option(help="A Packages file (.gz, .xz, .lz4, .zst too), may be repeated; else apt's lists."),
    ] = None,
    unseen: Annotated[
        Path | None, typer.Option(help="Another release's Packages file: its new packages are asked about.")
    ] = None,
    hold_out: Annotated[
        str, typer.Option(help="Without --unseen: first letters of the names' sha256, a sixteenth each.")
    ] = "0",
    section: Annotated[
        list[str] | None, typer.Option(help="Only packages of this section; may be repeated.")
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option(help="Leave this relation out; may be repeated.")
    ] = None,
    valid: Annotated[float, typer.Option(help="Share of the facts held out as valid, on each side.")] = 0.1,
    test: Annotated[float, typer.Option(help="Share of the facts held out as test, on each side.")] = 0.1,
    seed: Annotated[int, typer.Option(help="Another seed holds out other facts.")] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing target.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Debian's package index as a graph: train on its packages, ask about packages it has never seen."""
    from contextpool.triples.debian.build import apt_lists, build_dataset, read_index
    from contextpool.triples.formats import write_dataset

    gone = without or []
    built = build_dataset(
        read_index(packages or apt_lists()).without(gone),
        None if unseen is None else read_index([unseen]).without(gone),
        hold_out=hold_out,
        sections=section or (),
        valid=valid,
        test=test,
        seed=seed,
        name=target.name,
    )
    write_dataset(built.dataset, target, layout="grail", overwrite=overwrite)
    if as_json:
        print_json({"folder": str(target), **counts(built)})
    else:
        _tell(built, target)


def counts(built: Built) -> dict[str, Any]:
    """What the dataset holds, as JSON can hold it."""
    return {
        "seen_packages": built.seen,
        "unseen_packages": built.unseen,
        "facts": built.facts,
        "dropped": built.dropped,
        "skipped": built.skipped,
        **built.dataset.summary(),
    }


def _tell(built: Built, target: Path) -> None:
    data = built.dataset
    note(f"{built.facts:,} facts, {len(data.relations)} relations")
    note(
        f"training: {built.seen:,} packages, {len(data.training_queries):,} facts to learn from, "
        f"{len(data.validation_queries):,} to select on"
    )
    asked = len(data.evaluation_queries("P1"))
    note(
        f"unseen: {built.unseen:,} packages, {len(data.inference_graph):,} facts given, {asked:,} asked about"
    )
    if built.dropped:
        note(f"left out {built.dropped:,} facts of training that name an unseen package")
    if built.skipped:
        note(f"left out {built.skipped:,} facts about unseen packages: training lacks their relations")
    note(f"wrote {target}; train on it with: contextpool train {target} --context")
