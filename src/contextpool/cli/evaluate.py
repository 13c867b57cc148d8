"""`contextpool evaluate`: a run against a dataset's evaluation queries, beside the reference scorers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from contextpool.cli.inputs import RunArgument, stored_dataset
from contextpool.cli.launch import NprocOption, launched
from contextpool.cli.output import console, print_json, table
from contextpool.cli.train import DeviceOption, JsonOption, chosen_device, print_reports


def evaluate(
    run: RunArgument,
    dataset: Annotated[
        str | None, typer.Argument(help="By default the one it was trained on.", metavar="DATASET")
    ] = None,
    protocol: Annotated[
        Literal["P1", "P2"], typer.Option(help="P1: inference valid + test; P2: test alone.")
    ] = "P1",
    per_relation: Annotated[bool, typer.Option("--per-relation", help="One row per relation too.")] = False,
    memory: Annotated[float, typer.Option(help="GB that scores of a batch may take.")] = 1.0,
    device: DeviceOption = "auto",
    nproc: NprocOption = None,
    as_json: JsonOption = False,
) -> None:
    """Rank the answers to a dataset's evaluation queries among all entities, filtered."""
    from contextpool.experiment import compare_with_references, load
    from contextpool.interop.hub import local_folder
    from contextpool.processes import joined

    run = local_folder(run)
    name, chosen = dataset or stored_dataset(run), chosen_device(device)
    if launched(nproc, chosen):
        return
    with joined(chosen) as (processes, own_device):
        predictor = processes.agreed(lambda: load(run, device=own_device))
        reports = compare_with_references(predictor, name, protocol=protocol, memory_bytes=int(memory * 1e9))
    if not processes.is_first:
        return
    if as_json:
        print_json(
            {"run": str(run), "dataset": name, "protocol": protocol}
            | {k: r.to_dict() for k, r in reports.items()}
        )
        return
    print_reports(reports, f"{name}, {protocol}")
    if per_relation:
        _print_per_relation(reports["model"])


def _print_per_relation(report: Any) -> None:
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
