"""`contextpool predict`: the best answers to a question on any graph."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from contextpool.cli.mine import GraphArgument
from contextpool.cli.output import console, print_json, table
from contextpool.cli.train import DeviceOption, JsonOption, chosen_device


def predict(
    run: Annotated[Path, typer.Argument(help="The run folder.", metavar="RUN")],
    graph: GraphArgument,
    head: Annotated[str, typer.Option("--head", help="The entity that the question is about.")],
    relation: Annotated[
        str, typer.Option("--relation", "-r", help="The relation asked for; 'r^-1' for heads.")
    ],
    k: Annotated[int, typer.Option("-k", help="How many answers.", min=1)] = 10,
    known: Annotated[
        bool, typer.Option("--known", help="Also answers that the graph already holds.")
    ] = False,
    skip_unknown: Annotated[
        bool, typer.Option("--skip-unknown", help="Leave out facts of unknown relations.")
    ] = False,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Rank every entity of a graph as the answer to (head, relation, ?)."""
    from contextpool.cli.inputs import load_graph
    from contextpool.experiment import load

    predictor = load(run, device=chosen_device(device))
    answers = predictor.predict(
        load_graph(graph), head, relation, k, known=known, on_unknown="skip" if skip_unknown else "error"
    )
    if as_json:
        print_json([asdict(answer) for answer in answers])
        return
    rows = [
        (
            number,
            answer.entity,
            f"{answer.score:.3f}",
            _chance(answer.probability),
            "known" if answer.known else "",
        )
        for number, answer in enumerate(answers, start=1)
    ]
    result = table(
        f"({head}, {relation}, ?)", ("", "answer", "score", "probability", ""), rows, numbers_from=2
    )
    console().print(result)


def _chance(probability: float | None) -> str:
    return "-" if probability is None else f"{probability:.1%}"
