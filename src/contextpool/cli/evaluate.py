"""`contextpool evaluate`: a run against a dataset's evaluation queries, beside the reference scorers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from contextpool.cli.output import console, print_json, table
from contextpool.cli.train import DeviceOption, JsonOption, chosen_device, print_reports


def evaluate(
    run: Annotated[Path, typer.Argument(help="The run folder.", metavar="RUN")],
    dataset: Annotated[
        str | None, typer.Argument(help="By default the one it was trained on.", metavar="DATASET")
    ] = None,
    protocol: Annotated[
        Literal["P1", "P2"], typer.Option(help="P1: inference valid + test; P2: test alone.")
    ] = "P1",
    per_relation: Annotated[bool, typer.Option("--per-relation", help="One row per relation too.")] = False,
    memory: Annotated[float, typer.Option(help="GB that scores of a batch may take.")] = 1.0,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Rank the answers to a dataset's evaluation queries among all entities, filtered."""
    from contextpool.experiment import compare_with_references, load
    from contextpool.train.run_folder import RunFolder

    name = dataset or RunFolder.open(run).config["recipe"]["dataset"]
    predictor = load(run, device=chosen_device(device))
    reports = compare_with_references(predictor, name, protocol=protocol, memory_bytes=int(memory * 1e9))
    if as_json:
        print_json(
            {"run": str(run), "dataset": name, "protocol": protocol}
            | {k: r.to_dict() for k, r in reports.items()}
        )
        return
    print_reports(reports, f"{name}, {protocol}")
    if per_relation:
        report = reports["model"]
        rows = [
            (
                label,
                metrics.num_queries,
                f"{metrics.mrr:.3f}",
                f"{metrics.hits[1]:.3f}",
                f"{metrics.hits[10]:.3f}",
            )
            for label, metrics in report.per_relation.items()
        ]
        console().print(table("per relation", ("relation", "queries", "MRR", "Hits@1", "Hits@10"), rows))
