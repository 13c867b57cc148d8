"""`contextpool evaluate`: a model against a dataset's evaluation queries, beside the reference scorers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import typer

from contextpool.cli.inputs import RunOption, stored_dataset
from contextpool.cli.launch import EngineOption, RayAddressOption
from contextpool.cli.output import console, count_bar, note, print_json, table
from contextpool.cli.train import DeviceOption, JsonOption, chosen_device, print_figures
from contextpool.errors import ConfigError


def evaluate(
    dataset: Annotated[
        str | None,
        typer.Argument(
            help="A dataset, or a graph of which some facts are held out; of a run, by default its own.",
            metavar="GRAPH|DATASET",
        ),
    ] = None,
    run: RunOption = None,
    queries: Annotated[
        Path | None,
        typer.Option("--queries", help="Rank these triples over GRAPH, which is read as it stands."),
    ] = None,
    known: Annotated[
        Path | None, typer.Option("--known", help="With --queries: more facts, which are no wrong answers.")
    ] = None,
    protocol: Annotated[
        Literal["P1", "P2"], typer.Option(help="P1: inference valid + test; P2: test alone.")
    ] = "P1",
    per_relation: Annotated[bool, typer.Option("--per-relation", help="One row per relation too.")] = False,
    memory: Annotated[float, typer.Option(help="GB that scores of a batch may take.")] = 1.0,
    device: DeviceOption = "auto",
    processes: Annotated[
        int | None,
        typer.Option(
            "--processes",
            "--nproc",
            min=1,
            help="How many rank at a time, each with one thread; by default one with all.",
            show_default=False,
        ),
    ] = None,
    engine: EngineOption = "processes",
    ray_address: RayAddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Rank the answers to held-out facts among all entities, filtered."""
    from contextpool.evaluate.references import better_untrained, evaluation_figures
    from contextpool.experiment import (
        compare_with_references,
        evaluated_on,
        load,
        split_alike,
        was_fitted_on,
    )
    from contextpool.interop.hub import SHIPPED, is_packaged, local_folder
    from contextpool.predict.workers import Workers
    from contextpool.processes import joined, were_started
    from contextpool.train.run_folder import RunFolder
    from contextpool.triples.catalog import is_named

    run, chosen = None if run is None else local_folder(run), chosen_device(device)
    _check_queries(dataset, queries, known)
    alone = processes is None and engine == "processes" and ray_address is None
    workers = None if alone else Workers(processes, engine, ray_address)
    if workers is not None and were_started():
        raise ConfigError(
            "this is already one of several processes (RANK is set), which share the queries. Leave out --processes "
            "and --engine."
        )
    with joined(chosen) as (joint, own_device):
        predictor = joint.agreed(lambda: load(run, device=own_device))
        config = {} if run is None else RunFolder.open(run).config
        stored, data = predictor.evaluation if protocol == "P1" and queries is None else None, None
        name = dataset or (str(config["recipe"]["dataset"]) if stored else stored_dataset(run))
        if stored is None or dataset is not None or is_named(name):
            data = joint.agreed(
                lambda: (
                    split_alike(config, name, note, predictor.relations is None)
                    if queries is None
                    else evaluated_on(name, queries, known or (), tell=note)
                )
            )
        if data is not None and not (stored and was_fitted_on(predictor, data)):
            stored, bytes_each = None, int(memory * 1e9)
            with count_bar("evaluating") as update:
                reports = compare_with_references(
                    predictor,
                    data,
                    protocol=protocol,
                    memory_bytes=bytes_each,
                    workers=workers,
                    progress=update if joint.is_first else None,
                )
    if not joint.is_first:
        return
    if stored is not None:
        note("these are the figures of its training, on facts that were held out then")
    figures = stored or evaluation_figures(reports)
    if as_json:
        told = {"run": str(run or SHIPPED), "dataset": name, "queries": queries and str(queries)}
        remark = better_untrained(figures, is_packaged(run))
        print_json({**told, "protocol": protocol, **figures, "remark": remark})
        return
    print_figures(figures, f"{name}, {queries or protocol}", is_packaged(run))
    if per_relation:
        _print_per_relation(figures["model"]["per_relation"])


def _check_queries(graph: str | None, queries: Path | None, known: Path | None) -> None:
    if queries is not None and graph is None:
        raise ConfigError(
            f"--queries {queries}: name the graph to ask, too: contextpool evaluate GRAPH --queries ..."
        )
    if queries is None and known is not None:
        raise ConfigError(f"--known {known}: it says what else is true beside --queries, which is missing.")


def _print_per_relation(found: Mapping[str, Mapping[str, float]]) -> None:
    rows = [
        (
            label,
            int(figures["num_queries"]),
            f"{figures['mrr']:.3f}",
            f"{figures['hits@1']:.3f}",
            f"{figures['hits@10']:.3f}",
        )
        for label, figures in found.items()
    ]
    console().print(table("per relation", ("relation", "queries", "MRR", "Hits@1", "Hits@10"), rows))
