"""Loads in a process of its own what a server is about to load again: what ends that process ends no answers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Literal

from contextpool.errors import DataError

COMMAND = (sys.executable, "-m", "contextpool.serve.rehearsal")


def rehearse(kind: Literal["model", "graph"], place: str) -> None:
    """An error where loading it ends a process. Whatever else is wrong with it, the loading itself tells."""
    with subprocess.Popen(
        [*COMMAND, kind, place], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as child:
        status = child.wait()
    if status < 0:
        raise DataError(
            f"{place}: loading it ended the process that tried it first ({signal.strsignal(-status)}). It is damaged, "
            "or there is not enough memory for it. Put a whole one in its place and load it again."
        )


def main() -> None:
    """Load what the arguments name, and end."""
    from contextpool.experiment import load
    from contextpool.predict.inputs import as_graph

    kind, place = sys.argv[1:]
    threading.Thread(target=_end_with_the_server, daemon=True).start()
    with suppress(Exception):
        if kind == "model":
            load(place)
        else:
            as_graph(place, part="inference")
    os._exit(0)


def _end_with_the_server() -> None:
    """The other end of standard input is the server's, and is closed when it is gone."""
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    main()
