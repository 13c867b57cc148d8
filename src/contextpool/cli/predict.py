"""`contextpool predict`: the best answers to a question, or to a file of them, on any graph."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from contextpool.cli.inputs import LabelsOption, RunArgument, UnknownOption, load_graph, loaded_names
from contextpool.cli.mine import GraphArgument
from contextpool.cli.output import console, count_bar, note, print_json, table
from contextpool.cli.train import DeviceOption, JsonOption, chosen_device
from contextpool.errors import ConfigError, DataError

if TYPE_CHECKING:
    from contextpool.graph.graph import Graph
    from contextpool.predict import Predictor, Question
    from contextpool.predict.answers import AnyAnswer
    from contextpool.predict.bulk import Bulk

KindOption = Annotated[
    Literal["tsv", "jsonl", "parquet"] | None,
    typer.Option("--format", help="Of the answers; by default that of the questions."),
]


def predict(
    run: RunArgument,
    graph: GraphArgument,
    head: Annotated[str | None, typer.Option("--head", help="Ask (head, relation, ?).")] = None,
    relation: Annotated[str | None, typer.Option("--relation", "-r", help="The relation asked with.")] = None,
    tail: Annotated[
        str | None, typer.Option("--tail", help="Ask (?, relation, tail), or (head, ?, tail).")
    ] = None,
    k: Annotated[int, typer.Option("-k", help="How many answers.")] = 10,
    known: Annotated[
        bool, typer.Option("--known", help="Also answers that the graph already holds, marked.")
    ] = False,
    candidates: Annotated[
        Path | None, typer.Option("--candidates", help="A file of entities, one a line: answer only these.")
    ] = None,
    having: Annotated[
        list[str] | None, typer.Option("--having", help="Only entities that have this relation, or 'r^-1'.")
    ] = None,
    labels: LabelsOption = None,
    on_unknown: UnknownOption = "error",
    questions: Annotated[
        Path | None, typer.Option("--questions", help="A file of questions: .tsv, .jsonl or .parquet.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Ask (head, relation, ?) for every pair that occurs in the graph.")
    ] = False,
    cap: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Edges a walk keeps in each hop, the most relevant first; 0 for all. By default all, "
            "and 10000 on a mapped graph.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="With --questions or --all: the folder of the answers; can be resumed."
        ),
    ] = None,
    kind: KindOption = None,
    batch_size: Annotated[int, typer.Option(help="Questions that are scored together.")] = 64,
    shard_size: Annotated[int, typer.Option(help="Questions a file of answers.")] = 1000,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the answers of another call.")
    ] = False,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Rank every entity of a graph as the answer to (head, relation, ?) or (?, relation, tail), or every relation.

    With --questions a whole file is answered, with --all every (head, relation) of the graph; an interrupted call
    goes on where it stopped.
    """
    from contextpool.experiment import load
    from contextpool.predict.answers import Selection
    from contextpool.predict.bulk import Bulk, BulkSettings
    from contextpool.predict.files import kind_of

    question = _question(head, relation, tail, questions, everything)
    selection = Selection.of(k, known, _listed(candidates), having)
    predictor = load(run, device=chosen_device(device))
    loaded, names = load_graph(graph, part="inference"), loaded_names(labels)
    most = _cap(cap, loaded)
    settings = BulkSettings(
        kind or (kind_of(questions) if questions else "jsonl"), on_unknown, batch_size, shard_size, most
    )
    _tell_left_out(predictor, loaded, on_unknown)
    if question is not None:
        asking = predictor.asking(loaded, names, on_unknown=on_unknown, cap=most)
        _print_answers(question, next(asking.stream([question], selection)), as_json)
        return
    bulk = Bulk(predictor, loaded, selection, settings, names)
    if output is None:
        _print_stream(bulk, questions)
    else:
        _write_shards(bulk, questions, output, overwrite, as_json)


def _cap(cap: int | None, graph: Graph) -> int | None:
    """What was asked for, and on a mapped graph something in any case."""
    from contextpool.graph.mapped import MappedGraph
    from contextpool.predict.frontier import DEFAULT_CAP

    if cap is None:
        return DEFAULT_CAP if isinstance(graph, MappedGraph) else None
    return cap or None


def _question(
    head: str | None, relation: str | None, tail: str | None, questions: Path | None, everything: bool = False
) -> Question | None:
    """What the options ask; None for a file of questions, and for all."""
    from contextpool.predict import Question

    if questions is not None and everything:
        raise ConfigError(
            "--questions is a file of questions, and --all asks the graph's own; give one of them."
        )
    if questions is None and not everything:
        return Question(head, relation, tail)
    if (head, relation, tail) != (None, None, None):
        given = "--all asks every pair" if everything else "--questions is a file of questions"
        raise ConfigError(f"{given}; leave out --head, --relation and --tail.")
    return None


def _listed(path: Path | None) -> list[str] | None:
    """The lines of a file of labels."""
    from contextpool.triples.files import numbered_lines

    if path is None:
        return None
    lines = [text for _, text in numbered_lines(path) if text]
    if not lines:
        raise DataError(f"{path}: the file names no candidates. Expected one entity a line.")
    return lines


def _tell_left_out(predictor: Predictor, graph: Graph, on_unknown: Literal["error", "skip"]) -> None:
    _, left_out = predictor.prepared(graph, on_unknown=on_unknown)
    if left_out:
        note(
            f"left out {left_out:,} of {graph.num_triples:,} facts: their relations are unknown to the model"
        )


def _print_answers(question: Question, answers: list[AnyAnswer], as_json: bool) -> None:
    if as_json:
        print_json([answer.to_dict() for answer in answers])
        return
    named = any(answer.name for answer in answers)
    columns = ("", "answer", *(["name"] if named else []), "score", "probability", "")
    rows = [_row(number, answer, named) for number, answer in enumerate(answers, start=1)]
    console().print(table(str(question), columns, rows, numbers_from=3 if named else 2))


def _row(number: int, answer: AnyAnswer, named: bool) -> list[Any]:
    chance = "-" if answer.probability is None else f"{answer.probability:.1%}"
    name = [answer.name or ""] if named else []
    return [number, answer.label, *name, f"{answer.score:.3f}", chance, "known" if answer.known else ""]


def _print_stream(bulk: Bulk, questions: Path | None) -> None:
    """Answers on standard output as they come."""
    from contextpool.predict.files import encoded

    if bulk.settings.kind == "parquet":
        raise ConfigError("Parquet goes into files: name a folder with --output, or choose another --format.")
    for answered in bulk.stream(questions):
        sys.stdout.write(encoded([answered], bulk.settings.kind).decode("utf-8"))


def _write_shards(bulk: Bulk, questions: Path | None, output: Path, overwrite: bool, as_json: bool) -> None:
    with count_bar("answering") as update:
        outcome = bulk.write(questions, output, overwrite=overwrite, progress=update)
    counts = {
        "questions": outcome.questions,
        "answered_now": outcome.answered_now,
        "refused": outcome.refused,
        "files": [str(path) for path in outcome.shards],
    }
    if as_json:
        print_json(counts)
    else:
        refused = f", {outcome.refused:,} with unknown names" if outcome.refused else ""
        before = outcome.questions - outcome.answered_now
        again = f", {before:,} of them earlier" if before else ""
        note(
            f"answered {outcome.questions:,} questions{again}{refused}: {len(outcome.shards)} files in {output}"
        )
