"""`contextpool complete`: all links that a graph seems to lack."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contextpool.cli.inputs import (
    GraphArgument,
    LabelsOption,
    RunOption,
    UnknownOption,
    chosen_model,
    listed,
    load_graph,
    loaded_names,
    tell_calibration,
    tell_left_out,
)
from contextpool.cli.launch import EngineOption, ProcessesOption, RayAddressOption
from contextpool.cli.output import console, count_bar, note, print_json, table
from contextpool.cli.train import DeviceOption, JsonOption

if TYPE_CHECKING:
    from contextpool.predict.links import Links


def complete(
    graph: GraphArgument,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="The file of the links: .parquet, .csv, .tsv or .nt (N-Triples)."
        ),
    ],
    run: RunOption = None,
    min_probability: Annotated[
        float | None,
        typer.Option(
            help="Leave out links that are less likely; 0.5 unless --top is given.", show_default=False
        ),
    ] = None,
    top: Annotated[
        int | None, typer.Option(help="Only so many links, the likeliest of all first.", show_default=False)
    ] = None,
    paths: Annotated[
        bool, typer.Option("--paths", help="With the best path of every link; takes much longer.")
    ] = False,
    relation: Annotated[
        list[str] | None,
        typer.Option("--relation", "-r", help="Only this relation; 'r^-1' asks for heads. May be repeated."),
    ] = None,
    entities: Annotated[
        Path | None, typer.Option("--entities", help="A file of entities, one a line: ask about these only.")
    ] = None,
    max_questions: Annotated[
        int | None,
        typer.Option(help="Ask no more than so many questions, the likeliest.", show_default=False),
    ] = None,
    k: Annotated[int, typer.Option("-k", help="The most links of one question.")] = 10,
    labels: LabelsOption = None,
    on_unknown: UnknownOption = "error",
    cap: Annotated[
        int | None,
        typer.Option(min=0, help="As for ask: edges a walk keeps in each hop.", show_default=False),
    ] = None,
    processes: ProcessesOption = None,
    engine: EngineOption = "processes",
    ray_address: RayAddressOption = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace links that are there, and parts of another call.")
    ] = False,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Find the links that a graph seems to lack: likely questions are asked, and likely answers kept.

    Which questions (head, relation, ?) are asked is counted beforehand: those that probably have an answer which the
    graph lacks. A call that was cut off goes on where it stopped when it is given again.
    """
    from contextpool.predict.workers import Workers

    workers = Workers(processes, engine, ray_address)
    predictor = chosen_model(run, device)
    loaded, names = load_graph(graph, part="inference"), loaded_names(labels)
    tell_left_out(predictor, loaded, on_unknown)
    watch = _Watch()
    with count_bar("answering") as update:
        links = predictor.complete(
            loaded,
            output,
            min_probability=min_probability,
            top=top,
            paths=paths,
            relations=relation,
            entities=listed(entities),
            max_questions=max_questions,
            k=k,
            names=names,
            on_unknown=on_unknown,
            cap=cap,
            workers=workers,
            overwrite=overwrite,
            progress=lambda stage, done, total: update(watch.saw(stage, done, total), total, stage),
        )
    tell_calibration(predictor, loaded, cap)
    _report(links, watch, as_json)


class _Watch:
    """Tells when a stage begins, and keeps when that was, with how much of it done, and when it was last heard of."""

    def __init__(self) -> None:
        self.stages: dict[str, tuple[float, int, float, int]] = {}

    def saw(self, stage: str, done: int, total: int) -> int:
        now = time.monotonic()
        if stage not in self.stages:
            note(f"{stage}: {total:,} {'questions' if stage == 'answering' else 'links'}")
        began, before, _, _ = self.stages.get(stage, (now, done, now, done))
        self.stages[stage] = began, before, now, done
        return done

    def rate(self, stage: str) -> float | None:
        """Things a second since the first that was heard of; None where there was one report or none."""
        began, before, now, done = self.stages.get(stage, (0.0, 0, 0.0, 0))
        return (done - before) / (now - began) if now > began and done > before else None


def _report(links: Links, watch: _Watch, as_json: bool) -> None:
    rates = {
        "questions_per_second": watch.rate("answering"),
        "paths_per_second": watch.rate("finding paths"),
    }
    if as_json:
        print_json(
            {
                "questions": links.questions,
                "asked_now": links.asked_now,
                "links": links.found,
                "output": str(links.output),
                **rates,
            }
        )
        return
    rows = _rows(links)
    because = ["because"] if any(row[2] for row in rows) else []
    title = f"{links.found:,} links" + (f", the likeliest {len(rows)}" if len(rows) < links.found else "")
    shown = [row if because else row[:2] for row in rows]
    console().print(table(title, ("link", "probability", *because), shown, words=[2]))
    before = links.questions - links.asked_now
    again = f", {before:,} of them earlier" if before else ""
    told = [f"{rate:,.1f} {what.split('_')[0]} a second" for what, rate in rates.items() if rate is not None]
    note(
        f"asked {links.questions:,} questions{again}{''.join(f'; {one}' for one in told)}: {links.found:,} links in "
        f"{links.output}"
    )


def _rows(links: Links) -> list[list[Any]]:
    """The likeliest links as they are printed, by name where they have one."""
    rows = []
    for row in links.best:
        head, relation, tail = (
            row.get(f"{place}_name") or row[place] for place in ("head", "relation", "tail")
        )
        rows.append([f"{head}  {relation}  {tail}", f"{row['probability']:.1%}", row.get("path") or ""])
    return rows
