"""The command line: one verb a module, heavy imports inside the verbs so that --help stays quick."""

from __future__ import annotations

from typing import Annotated

import typer

from contextpool.cli import (
    ask,
    check,
    complete,
    data,
    demo,
    doctor,
    evaluate,
    explain,
    export,
    mine,
    serve,
    train,
)
from contextpool.cli.inputs import GraphFirst, VerbFirst, reads_graph, typed_before
from contextpool.errors import ConfigError

app = typer.Typer(
    name="contextpool",
    cls=VerbFirst,
    help="Link prediction on knowledge graphs your model has never seen, with the evidence for every answer.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: importing rich would double the time to the first line
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from contextpool import __version__

        typer.echo(f"contextpool {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Options that come before the verb."""


app.command("demo")(demo.demo)
app.add_typer(data.app, name="data")
app.command("mine")(reads_graph(mine.mine))
app.command("pool")(reads_graph(mine.pool))
app.command("train", cls=train.TrainCommand)(reads_graph(train.train, "what"))
app.command("resume")(train.resume)
app.command("ask", cls=GraphFirst)(reads_graph(ask.ask))
app.command("explain", cls=GraphFirst)(reads_graph(explain.explain))
app.command("check", cls=GraphFirst)(reads_graph(check.check))
app.command("complete", cls=GraphFirst)(reads_graph(complete.complete))
app.command("evaluate", cls=GraphFirst)(reads_graph(evaluate.evaluate, "dataset"))
app.command("serve", cls=GraphFirst)(reads_graph(serve.serve))
app.command("export")(export.export)
app.command("doctor")(doctor.doctor)


def _moved() -> None:
    raise ConfigError(
        "`bench` and `tune` are no verbs of contextpool any more. In a checkout of the repository, type `python -m lab "
        "run`, `python -m lab tune` or `python -m lab report`."
    )


def _predict(ctx: typer.Context) -> None:
    group = ctx.parent.command if ctx.parent is not None else None
    raise typed_before(ctx, group.commands["ask"])  # type: ignore[union-attr]


for verb, told in (("bench", _moved), ("tune", _moved), ("predict", _predict)):
    anything = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
    app.command(verb, hidden=True, context_settings=anything)(told)
