"""`contextpool export`: a run as others can take it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from contextpool.cli.output import note, print_json
from contextpool.cli.train import DeviceOption, JsonOption, chosen_device


def export(
    run: Annotated[Path, typer.Argument(help="The run folder, or hf://USER/NAME.", metavar="RUN")],
    output: Annotated[Path, typer.Argument(help="The folder to write.", metavar="DIR")],
    license: Annotated[
        str, typer.Option("--license", help="Of the weights: mit, apache-2.0, cc-by-4.0, other, ...")
    ] = "unknown",
    evaluated: Annotated[
        bool,
        typer.Option("--evaluate/--no-evaluate", help="Put metrics on the run's dataset into the card."),
    ] = True,
    dataset: Annotated[
        str | None,
        typer.Option("--dataset", help="What it was trained on, where that is no name of the catalog."),
    ] = None,
    protocol: Annotated[
        Literal["P1", "P2"], typer.Option(help="P1: inference valid + test; P2: test alone.")
    ] = "P1",
    hub: Annotated[
        str | None,
        typer.Option(
            "--hub",
            help="USER/NAME on the Hugging Face Hub: the folder as its repository.",
            show_default=False,
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier export.")] = False,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Model card, weights, counts and checksums in one folder that cp.load opens and huggingface_hub uploads."""
    from contextpool.interop.export import export as export_run

    written = export_run(
        run,
        output,
        license=license,
        evaluated=evaluated,
        dataset=dataset,
        protocol=protocol,
        device=chosen_device(device),
        overwrite=overwrite,
        hub=hub,
    )
    files = sorted(entry.name for entry in written.iterdir())
    if as_json:
        print_json({"folder": str(written), "files": files})
    else:
        note(f"wrote {written}: {', '.join(files)}")
        if hub is not None:
            note(f"upload it with: hf upload {hub} {written}   then anybody: cp.load('hf://{hub}')")
