"""`contextpool serve`: answers over HTTP, and a page to look at them."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from contextpool.cli.inputs import UnknownOption, load_graph, loaded_names
from contextpool.cli.output import note
from contextpool.cli.train import DeviceOption, chosen_device
from contextpool.errors import ConfigError, DataError, MissingExtraError, UnknownNameError

if TYPE_CHECKING:
    from contextpool.serve import GraphSource, ModelSource, ServeSettings

TOKEN_VARIABLE = "CONTEXTPOOL_TOKEN"


def serve(
    graph: Annotated[
        list[str],
        typer.Argument(help="Graphs: each a file or a dataset's name, or NAME=either.", metavar="GRAPH..."),
    ],
    run: Annotated[
        list[str] | None,
        typer.Option(
            "--run",
            help="A run folder, or hf://USER/NAME, or NAME=either; may be repeated. Without it, the model that "
            "comes with contextpool.",
            show_default=False,
        ),
    ] = None,
    labels: Annotated[
        list[str] | None,
        typer.Option(
            "--labels", help="Names (id TAB name) for the first graph, or GRAPH=FILE; may be repeated."
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Where to listen; other machines need a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes a free one.")] = 8000,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    token: Annotated[
        str | None,
        typer.Option(
            help=f"What requests have to carry; better in {TOKEN_VARIABLE} or a file.", show_default=False
        ),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", help="A file that holds the token.", show_default=False)
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", help="A name under which it may be asked; may be repeated."),
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Questions that are scored together.")] = 64,
    queue_size: Annotated[int, typer.Option(help="Questions that may wait.")] = 1024,
    deadline: Annotated[float, typer.Option(help="Seconds until a request is given up.")] = 10.0,
    max_body: Annotated[int, typer.Option(help="Bytes of a request.")] = 2**20,
    max_upload: Annotated[
        int, typer.Option(help="Bytes of a file that is dropped onto the page; 0 takes none.")
    ] = 8 * 2**20,
    receive_seconds: Annotated[float, typer.Option(help="For a whole request to arrive.")] = 5.0,
    max_connections: Annotated[
        int, typer.Option(help="Beyond it, the longest silent one makes room.")
    ] = 4096,
    drain_seconds: Annotated[float, typer.Option(help="After SIGTERM, for requests on their way.")] = 0.5,
    on_unknown: UnknownOption = "error",
    access_log: Annotated[bool, typer.Option("--access-log", help="A line for every request.")] = False,
    device: DeviceOption = "auto",
) -> None:
    """Answer questions over HTTP, with a page at / that shows the evidence. Stops on Ctrl-C or SIGTERM.

    SIGHUP loads models and graphs again, as POST /admin/reload does; answers go on meanwhile.
    """
    need_extra()
    from contextpool.serve import ServeSettings

    settings = ServeSettings(
        host=host,
        port=port,
        token=found_token(token, token_file),
        allow_hosts=tuple(allow_host or ()),
        batch_size=batch_size,
        queue_size=queue_size,
        deadline=deadline,
        max_body=max_body,
        max_upload=max_upload,
        receive_seconds=receive_seconds,
        max_connections=max_connections,
        drain_seconds=drain_seconds,
        access_log=access_log,
    )
    run_server(
        model_sources(run or [], chosen_device(device)),
        graph_sources(graph, labels or []),
        settings,
        on_unknown,
        open_page,
    )


def run_server(
    models: Sequence[ModelSource],
    graphs: Sequence[GraphSource],
    settings: ServeSettings,
    on_unknown: Literal["error", "skip"] = "error",
    open_page: bool = False,
) -> None:
    """Load, say where, and serve until told to stop."""
    need_extra()
    from contextpool.serve.registry import Registry
    from contextpool.serve.server import serve as serve_forever

    registry = Registry(models, graphs, on_unknown)
    for line in registry.remarks():
        note(line)

    def on_start(address: str) -> None:
        print(f"contextpool serves at {address}/", flush=True)
        if open_page:
            _open(f"{address}/")
        else:
            note("open it in a browser (--open does), stop it with Ctrl-C; --port takes another port")

    serve_forever(registry, settings, on_start)


def _open(address: str) -> None:
    """Beside the server, which a browser in a terminal would hold up."""
    import webbrowser

    def show() -> None:
        with suppress(Exception):  # no browser here: the address is told anyway
            webbrowser.open(address)

    threading.Thread(target=show, name="browser", daemon=True).start()


def need_extra() -> None:
    """Refuse by the name of the extra where its packages are missing."""
    from importlib.util import find_spec

    for package in ("fastapi", "uvicorn", "prometheus_client"):
        if find_spec(package) is None:
            raise MissingExtraError(package, "serve", "serving")


def found_token(given: str | None, file: Path | None) -> str | None:
    """From the option, the file or the environment; two of them that differ are refused."""
    found = {
        "--token": given,
        "--token-file": _read_token(file),
        TOKEN_VARIABLE: os.environ.get(TOKEN_VARIABLE),
    }
    named = {where: token for where, token in found.items() if token}
    if len(set(named.values())) > 1:
        raise ConfigError(f"{' and '.join(named)} name different tokens; give one.")
    return next(iter(named.values()), None)


def _read_token(file: Path | None) -> str | None:
    if file is None:
        return None
    try:
        token = file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file}: the token cannot be read ({error}).") from None
    if not token:
        raise DataError(f"{file}: the file is empty; it has to hold the token.")
    return token


def model_sources(runs: Sequence[str], device: str) -> list[ModelSource]:
    """Runs by name, or named after their folders; without any, the model that comes with contextpool."""
    from contextpool.interop.hub import SHIPPED
    from contextpool.serve import ModelSource

    return [ModelSource(name, path, device) for name, path in map(_named_run, runs)] or [
        ModelSource(SHIPPED, None, device)
    ]


def _named_run(text: str) -> tuple[str, Path]:
    """(name, folder or address) of NAME=RUN or RUN."""
    name, sign, place = text.partition("=")
    if sign and not Path(text).exists():
        return name, Path(place)
    return Path(text).absolute().name or "model", Path(text)


def graph_sources(given: Sequence[str], labels: Sequence[str]) -> list[GraphSource]:
    """Graphs by name, or named after their files and datasets, each with its file of names."""
    from contextpool.serve import GraphSource

    places = dict(_named_graph(text) for text in given)
    if len(places) < len(given):
        raise ConfigError("two of the graphs have the same name; name them apart: NAME=FILE.")
    files = dict(_named_labels(text, places) for text in labels)
    for name in files:
        if name not in places:
            raise UnknownNameError("graph", name, places, "--labels GRAPH=FILE names a graph that is served.")
    return [
        GraphSource(
            name, partial(load_graph, place, "inference"), partial(loaded_names, files.get(name)), place
        )
        for name, place in places.items()
    ]


def _named_graph(text: str) -> tuple[str, str]:
    """(name, source or dataset); a file is named after itself, a query after its database."""
    from contextpool.triples.sources.address import find_address, is_folder

    address = find_address(text)
    if address is not None and address.is_there:
        return address.name, text
    name, sign, place = text.partition("=")
    return (name, place) if sign and not is_folder(text) else (text, text)


def _named_labels(text: str, graphs: dict[str, str]) -> tuple[str, Path]:
    name, sign, place = text.partition("=")
    return (name, Path(place)) if sign and not Path(text).exists() else (next(iter(graphs)), Path(text))
