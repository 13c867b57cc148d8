"""A server that writes down every file it opens, folder it lists and process it starts, once SIGUSR1 says so.

audited.py LOG RUN
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from contextpool.cli.serve import graph_sources
from contextpool.serve import ModelSource, ServeSettings
from contextpool.serve.registry import Registry
from contextpool.serve.server import serve

WATCHED = ("open", "os.listdir", "os.scandir", "os.link", "os.symlink", "os.remove", "os.rename", "os.mkdir",
           "subprocess.Popen", "os.system", "os.exec", "shutil", "glob", "ctypes.dlopen", "socket.connect")  # fmt: skip


def main() -> None:
    log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    armed = False

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if armed and event.startswith(WATCHED):
            os.write(log, f"{event}\t{arguments[0] if arguments else ''}\n".encode(errors="replace"))

    def arm(*_: Any) -> None:
        nonlocal armed
        armed = True
        os.write(log, b"armed\n")

    sys.addaudithook(hook)
    signal.signal(signal.SIGUSR1, arm)
    registry = Registry([ModelSource("demo", Path(sys.argv[2]))], graph_sources(["world"], []))
    settings = ServeSettings(port=0, token="a-token-that-is-long-enough")
    serve(registry, settings, lambda address: print(f"serves at {address}", flush=True))


if __name__ == "__main__":
    main()
