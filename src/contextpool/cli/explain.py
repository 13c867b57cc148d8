"""`contextpool explain`: the evidence for one answer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from contextpool.cli.inputs import (
    GraphArgument,
    LabelsOption,
    RunOption,
    UnknownOption,
    chosen_model,
    load_graph,
    loaded_names,
)
from contextpool.cli.output import note, print_data, say
from contextpool.cli.train import DeviceOption, JsonOption


def explain(
    graph: GraphArgument,
    head: Annotated[str, typer.Option("--head", help="The head of the fact.")],
    relation: Annotated[str, typer.Option("--relation", "-r", help="Its relation.")],
    tail: Annotated[str, typer.Option("--tail", help="Its tail.")],
    run: RunOption = None,
    asked: Annotated[
        Literal["tail", "head"], typer.Option(help="Which of the two is the answer to explain.")
    ] = "tail",
    paths: Annotated[int, typer.Option(help="How many paths.")] = 5,
    output: Annotated[
        Path | None, typer.Option("--output", "--plot", "-o", help="Also draw it: a .svg or .png file.")
    ] = None,
    labels: LabelsOption = None,
    on_unknown: UnknownOption = "error",
    cap: Annotated[
        int | None,
        typer.Option(min=0, help="As for ask: edges a walk keeps in each hop.", show_default=False),
    ] = None,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Why an entity answers a question: paths with weights, context, what pooling drops, the closest rival."""
    explanation = chosen_model(run, device).explain(
        load_graph(graph, part="inference"),
        head,
        relation,
        tail,
        asked=asked,
        paths=paths,
        names=loaded_names(labels),
        on_unknown=on_unknown,
        cap=cap,
    )
    if output is not None:
        explanation.save(output)
        note(f"wrote {output}")
    if as_json:
        print_data(explanation.to_json() + "\n", is_json=True)
    else:
        say(explanation.text())
