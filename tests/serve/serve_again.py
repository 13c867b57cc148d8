"""Serves, is stopped, serves again: `serve_again.py RUN ROUNDS`. Loads once, so that many stops take little time."""

from __future__ import annotations

import sys
from pathlib import Path

from contextpool.cli.serve import graph_sources
from contextpool.serve import ModelSource, ServeSettings
from contextpool.serve.registry import Registry
from contextpool.serve.server import serve


def main() -> None:
    registry = Registry([ModelSource("demo", Path(sys.argv[1]))], graph_sources(["world"], []))
    for _ in range(int(sys.argv[2])):
        serve(registry, ServeSettings(port=0), lambda address: print(f"serves at {address}", flush=True))


if __name__ == "__main__":
    main()
