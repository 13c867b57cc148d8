"""`contextpool doctor`: what is installed, what is found, whether it works."""

from __future__ import annotations

import platform
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

import typer

from contextpool.cli.output import console, print_json, table

CORE = ("torch", "numpy", "scipy", "numba", "safetensors", "typer", "rich", "pyarrow", "platformdirs")
EXTRAS = {"plot": "matplotlib"}


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False) -> None:
    """Check the installation: versions, devices, data folders, and a small exact computation."""
    checks = {"embedded graph": _check_world, "mining": _check_mining, "pooling": _check_pooling}
    results = [{"check": name, "result": _outcome(check)} for name, check in checks.items()]
    report: dict[str, Any] = {"versions": _versions(), "devices": _devices(), "data": _data()}
    if as_json:
        print_json({**report, "checks": results})
    else:
        for section, values in report.items():
            rows = [
                (key, ", ".join(value) if isinstance(value, list) else value) for key, value in values.items()
            ]
            console().print(table(section, ("what", "value"), rows, numbers_from=2))
        shown = [(check["check"], check["result"]) for check in results]
        console().print(table("checks", ("check", "result"), shown, numbers_from=2))
    if any(check["result"] != "ok" for check in results):
        raise typer.Exit(1)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _versions() -> dict[str, str]:
    from contextpool import __version__

    versions = {"contextpool": __version__, "python": platform.python_version()}
    versions |= {package: _version(package) for package in CORE}
    return versions | {f"{package} [{extra}]": _version(package) for extra, package in EXTRAS.items()}


def _devices() -> dict[str, Any]:
    import numba
    import torch

    gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return {
        "machine": f"{platform.system()} {platform.machine()}",
        "torch threads": torch.get_num_threads(),
        "numba threads": numba.get_num_threads(),
        "gpus": gpus or "none",
    }


def _data() -> dict[str, Any]:
    from contextpool.triples import catalog

    found = [entry.name for entry in catalog.entries() if catalog.locate(entry) is not None]
    return {
        "searched": [str(folder) for folder in catalog.data_folders()],
        "cache": str(catalog.cache_folder()),
        "found": f"{len(found)} of {len(catalog.entries())} datasets",
    }


def _outcome(check: Callable[[], None]) -> str:
    try:
        check()
    except Exception as error:  # whatever breaks is what the doctor is asked to find
        return f"{type(error).__name__}: {error}"
    return "ok"


def _check_world() -> None:
    from contextpool.triples.catalog import load_dataset

    load_dataset("world")


def _small_context() -> Any:
    from contextpool.context.neighbors import mine_context
    from contextpool.graph.graph import Graph

    graph = Graph.from_triples([("a", "q", "b"), ("a", "n", "c"), ("d", "n", "c")])
    return graph, mine_context(graph)


def _check_mining() -> None:
    _, context = _small_context()
    if (context.precision("q", "n"), context.recall("q", "n")) != (0.5, 1.0):
        raise ArithmeticError("precision or recall of a three-line graph is wrong")


def _check_pooling() -> None:
    from contextpool.pool.pooled import pool

    graph, context = _small_context()
    if pool(graph, context, head="a", relation="q", hops=1).hops != [{("a", "n", "c")}]:
        raise ArithmeticError("the pooled graph of a three-line graph is wrong")
