"""`contextpool ask`: the best answers to a question, or to a file of them, on any graph."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

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
from contextpool.cli.output import console, count_bar, note, print_data, print_json, say, table
from contextpool.cli.train import DeviceOption, JsonOption
from contextpool.errors import ConfigError

if TYPE_CHECKING:
    from contextpool.explain import Explanation
    from contextpool.predict import Question
    from contextpool.predict.answers import Answers, AnyAnswer
    from contextpool.predict.asking import Asking
    from contextpool.predict.bulk import Bulk

KindOption = Annotated[
    Literal["tsv", "jsonl", "parquet"] | None,
    typer.Option("--format", help="Of the answers; by default that of the questions."),
]


def ask(
    graph: GraphArgument,
    head: Annotated[str | None, typer.Option("--head", help="Ask (head, relation, ?).")] = None,
    relation: Annotated[str | None, typer.Option("--relation", "-r", help="The relation asked with.")] = None,
    tail: Annotated[
        str | None, typer.Option("--tail", help="Ask (?, relation, tail), or (head, ?, tail).")
    ] = None,
    run: RunOption = None,
    k: Annotated[int, typer.Option("-k", help="How many answers.")] = 10,
    min_probability: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="From which on an answer is worth a bet.")
    ] = 0.2,
    show_all: Annotated[
        bool, typer.Option("--all", help="List the best also where none of them is worth a bet.")
    ] = False,
    known: Annotated[
        bool, typer.Option("--known", help="Also answers that the graph already holds, marked.")
    ] = False,
    explained: Annotated[
        bool, typer.Option("--explain", help="Also the evidence for the best answer.")
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
        bool,
        typer.Option("--every-pair", help="Ask (head, relation, ?) for every pair that occurs in the graph."),
    ] = False,
    cap: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Edges a walk keeps in each hop, the most promising first; 0 for all. By default every entity is "
            "ranked, and on a mapped graph those that 10000 edges a hop reach.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="With --questions or --every-pair: the folder of the answers; can be resumed.",
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

    With --questions a whole file is answered, with --every-pair every (head, relation) of the graph; an interrupted
    call goes on where it stopped.
    """
    from contextpool.predict.answers import Selection
    from contextpool.predict.bulk import Bulk, BulkSettings
    from contextpool.predict.files import kind_of

    question = _question(head, relation, tail, questions, everything)
    selection = Selection.of(k, known, listed(candidates), having)
    predictor = chosen_model(run, device)
    loaded, names = load_graph(graph, part="inference"), loaded_names(labels)
    settings = BulkSettings(
        kind or (kind_of(questions) if questions else "jsonl"), on_unknown, batch_size, shard_size, cap
    )
    tell_left_out(predictor, loaded, on_unknown)
    if question is not None:
        asking = predictor.asking(loaded, names, on_unknown=on_unknown, cap=cap)
        answers = next(asking.stream([question], selection))
        why = _evidence(asking, answers) if explained else None
        if as_json:
            told = {} if why is None else {"explanation": why.to_dict()}
            print_json(answers.to_dict() | {"bet": answers.bet(min_probability)} | told)
        else:
            _print_answers(question, answers, min_probability, show_all)
            if why is not None:
                say(f"\n{why.text()}")
        tell_calibration(predictor, loaded, cap)
        return
    bulk = Bulk(predictor, loaded, selection, settings, names)
    if output is None:
        _print_stream(bulk, questions)
    else:
        _write_shards(bulk, questions, output, overwrite, as_json)


def _evidence(asking: Asking, answers: Answers[AnyAnswer]) -> Explanation | None:
    """For the first answer that the graph does not hold; None where there is none."""
    new = next((answer for answer in answers if not answer.known), None)
    if new is None:
        return None
    fact = {**answers.question.to_dict(), answers.question.asked: new.label}
    resolver = asking.resolver()
    ids = resolver.entity(fact["head"]), resolver.relation(fact["relation"]), resolver.entity(fact["tail"])
    return asking.explain(ids, "head" if answers.question.asked == "head" else "tail")


def _question(
    head: str | None, relation: str | None, tail: str | None, questions: Path | None, everything: bool = False
) -> Question | None:
    """What the options ask; None for a file of questions, and for all."""
    from contextpool.predict import Question

    if questions is not None and everything:
        raise ConfigError(
            "--questions is a file of questions, and --every-pair asks the graph's own; give one of them."
        )
    if questions is None and not everything:
        return Question(head, relation, tail)
    if (head, relation, tail) != (None, None, None):
        given = "--every-pair asks them all" if everything else "--questions is a file of questions"
        raise ConfigError(f"{given}; leave out --head, --relation and --tail.")
    return None


def _print_answers(question: Question, answers: Answers[AnyAnswer], least: float, show_all: bool) -> None:
    """What the graph already holds in a line of its own; then answers, or that none is worth a bet."""
    out, lines = console(), answers.lines(least)
    hidden = answers.bet(least) is False and not show_all
    if hidden and len(answers):
        lines[-1] += "; --all lists them"
    out.print(str(question), markup=False, style="bold", soft_wrap=True)
    for line in lines:
        out.print(line, markup=False, soft_wrap=True)
    listed = [answer for answer in answers if answer.known or not hidden]
    if not listed:
        return
    columns = ("", "answer", "name", "probability", "share", "score", "")
    rows = [_row(number, answer) for number, answer in enumerate(listed, start=1)]
    optional = (columns.index("name"), len(columns) - 1)
    kept = [
        place for place in range(len(columns)) if place not in optional or any(row[place] for row in rows)
    ]
    shown = [[row[place] for place in kept] for row in rows]
    numbers_from = kept.index(columns.index("probability"))
    out.print(table("", [columns[place] for place in kept], shown, numbers_from=numbers_from))


def _row(number: int, answer: AnyAnswer) -> list[object]:
    from contextpool.predict.answers import percent

    figures = percent(answer.probability), percent(answer.share), f"{answer.score:.2f}"
    return [number, answer.label, answer.name or "", *figures, "known" if answer.known else ""]


def _print_stream(bulk: Bulk, questions: Path | None) -> None:
    """Answers on standard output as they come."""
    from contextpool.predict.files import encoded

    if bulk.settings.kind == "parquet":
        raise ConfigError("Parquet goes into files: name a folder with --output, or choose another --format.")
    for answered in bulk.stream(questions):
        print_data(
            encoded([answered], bulk.settings.kind).decode("utf-8"), is_json=bulk.settings.kind == "jsonl"
        )


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
