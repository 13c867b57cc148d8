"""`contextpool check`: how plausible given facts are, or which facts of a graph the rest of it supports least."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

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
from contextpool.cli.output import console, count_bar, note, print_json, say, table
from contextpool.cli.train import DeviceOption, JsonOption
from contextpool.errors import ConfigError

if TYPE_CHECKING:
    from contextpool.predict.check import Verdict, Verdicts
    from contextpool.triples.store import Triple

SHOWN = 20
"""Facts of the graph that are shown unless --top says otherwise."""
KINDS = (".tsv", ".csv", ".parquet", ".jsonl", ".json")


def check(
    graph: GraphArgument,
    file: Annotated[
        str | None,
        typer.Argument(
            help="Facts to check: a file, as a graph is read. Without: the graph's own.", metavar="[FILE]"
        ),
    ] = None,
    run: RunOption = None,
    head: Annotated[str | None, typer.Option("--head", help="The head of one fact to check.")] = None,
    relation: Annotated[str | None, typer.Option("--relation", "-r", help="Its relation.")] = None,
    tail: Annotated[str | None, typer.Option("--tail", help="Its tail.")] = None,
    top: Annotated[
        int | None,
        typer.Option(
            min=1,
            help=f"Only the least plausible so many; of the graph's own facts {SHOWN} unless -o is given.",
        ),
    ] = None,
    evidence: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="How many of the least plausible get evidence, for and against. Default: those shown, "
            "at most 100.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write the table there: .tsv, .csv, .parquet, .jsonl or .json."),
    ] = None,
    labels: LabelsOption = None,
    on_unknown: UnknownOption = "error",
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """How plausible facts are: a probability, ranks, the evidence, and what speaks against them.

    Without FILE, --head, --relation and --tail the facts of the graph itself, each hidden from itself, those first that
    the rest of the graph supports least: errors in one's own data.
    """
    claims = _claims(file, head, relation, tail)
    if output is not None and output.suffix.lower() not in KINDS:
        raise ConfigError(
            f"--output {output}: a table is written as {', '.join(KINDS)}, by the end of its name."
        )
    predictor = chosen_model(run, device)
    loaded, names = load_graph(graph, part="inference"), loaded_names(labels)
    shown = top if top is not None else (SHOWN if claims is None and output is None else None)
    with count_bar("checking") as update:
        found = predictor.check(
            loaded,
            claims,
            top=shown,
            evidence=min(100, shown or 100) if evidence is None else evidence,
            names=names,
            on_unknown=on_unknown,
            progress=lambda stage, done, total: update(done, total, stage),
        )
    _tell(found, claims is None)
    if output is not None:
        _write(found, output)
        note(f"wrote {len(found):,} rows to {output}")
    if as_json:
        print_json(
            {
                "checked": found.checked,
                "fitted_on": found.fitted_on,
                "claims": [one.to_dict() for one in found],
            }
        )
    elif output is None:
        _print(found, names.shown if names is not None else str)


def _claims(
    file: str | None, head: str | None, relation: str | None, tail: str | None
) -> Iterable[Triple] | None:
    given = [
        name
        for name, value in (("--head", head), ("--relation", relation), ("--tail", tail))
        if value is not None
    ]
    if given and file is not None:
        raise ConfigError(f"FILE holds the facts to check; leave out {' and '.join(given)}.")
    if head is not None and relation is not None and tail is not None:
        return [(head, relation, tail)]
    if given:
        raise ConfigError(f"one fact takes --head, --relation and --tail; given: {', '.join(given)}.")
    return None if file is None else _read(file)


def _read(file: str) -> Iterator[Triple]:
    """In the order of the file, each as often as it stands there."""
    from contextpool.triples.reader import batches

    for batch in batches(file, tell=note):
        columns = [column.cast("string").to_pylist() for column in batch.columns]
        yield from zip(*columns, strict=True)


def _tell(found: Verdicts, own: bool) -> None:
    what = "facts of the graph, each hidden from itself" if own else "facts" if found.checked > 1 else "fact"
    rests = f"{found.fitted_on:,} facts of this graph" if found.fitted_on else "no facts of this graph"
    against = "against the same with one end swapped; probabilities rest on"
    note(f"checked {found.checked:,} {what} {against} {rests}")


def _print(found: Verdicts, named: Callable[[str], str]) -> None:
    from contextpool.predict.answers import percent
    from contextpool.predict.check import probability_in_words

    rows = [
        (
            number,
            named(one.head),
            named(one.relation),
            named(one.tail),
            percent(one.probability),
            _rank(one.tail_rank),
            _rank(one.head_rank),
        )
        for number, one in enumerate(found, start=1)
    ]
    columns = ("", "head", "relation", "tail", "probability", "tail rank", "head rank")
    console().print(table("", columns, rows, numbers_from=4))
    say(probability_in_words())
    for number, one in enumerate(found, start=1):
        for line in _lines(one):
            say(f"{number:>3}  {line}")


def _lines(one: Verdict) -> Iterator[str]:
    if one.error is not None:
        yield one.error
    if one.evidence is not None:
        yield f"for: {one.evidence}"
    for told in one.against:
        yield f"against: {told}"


def _rank(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def _write(found: Verdicts, path: Path) -> None:
    """The whole table, or nothing."""
    from contextpool.predict.check import rows_of
    from contextpool.train.files import durable_file

    kind = path.suffix.lower()
    with durable_file(path) as stream:
        if kind == ".parquet":
            _write_parquet(list(rows_of(found)), stream)
        elif kind in (".jsonl", ".json"):
            stream.writelines(_json(found, kind == ".jsonl"))
        else:
            stream.writelines(_text(rows_of(found), kind == ".csv"))


def _json(found: Verdicts, lines: bool) -> Iterator[bytes]:
    if not lines:
        yield (json.dumps([one.to_dict() for one in found], ensure_ascii=False, indent=1) + "\n").encode()
        return
    for one in found:
        yield (json.dumps(one.to_dict(), ensure_ascii=False) + "\n").encode()


def _text(rows: Iterator[dict[str, Any]], commas: bool) -> Iterator[bytes]:
    """CSV with quotes where they are needed; TSV without, since no label holds a tab or a line end."""
    from contextpool.predict.check import COLUMNS

    yield ((",") if commas else "\t").join(COLUMNS).encode() + b"\n"
    for row in rows:
        cells = ["" if row[column] is None else str(row[column]) for column in COLUMNS]
        if not commas:
            yield "\t".join(cells).encode() + b"\n"
            continue
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow(cells)
        yield line.getvalue().encode()


def _write_parquet(rows: list[dict[str, Any]], stream: IO[bytes]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from contextpool.predict.check import COLUMNS

    kinds = [pa.string()] * 3 + [pa.float64()] * 3 + [pa.bool_()] + [pa.string()] * 3
    schema = pa.schema(list(zip(COLUMNS, kinds, strict=True)))
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), stream, compression="zstd")
