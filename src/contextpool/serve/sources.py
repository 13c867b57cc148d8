"""Where models and graphs come from, so that they can be loaded again; nothing a request says gets here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from contextpool.errors import ConfigError, shortened
from contextpool.experiment import load
from contextpool.graph.graph import Graph
from contextpool.interop.hub import local_folder
from contextpool.predict import Names, Predictor

LONGEST_NAME = 100


def check_name(name: str, kind: str) -> None:
    """A name has to fit into an address and a line of metrics."""
    if not name or len(name) > LONGEST_NAME or not name.isprintable():
        raise ConfigError(
            f"{kind} name {shortened(name)}: take 1 to {LONGEST_NAME} printable characters (NAME=...)."
        )


@dataclass(frozen=True)
class ModelSource:
    """A run folder, or the address of one, under a name."""

    name: str
    path: Path
    device: str = "cpu"

    def __post_init__(self) -> None:
        check_name(self.name, "model")

    def load(self) -> Predictor:
        """What the folder holds now. A link is followed once, so that one that changes meanwhile does no harm."""
        return load(local_folder(self.path).resolve(), device=self.device)


@dataclass(frozen=True)
class GraphSource:
    """A graph under a name; `read` gives its facts, `read_names` what people call its entities."""

    name: str
    read: Callable[[], Graph]
    read_names: Callable[[], Names | None] = lambda: None

    def __post_init__(self) -> None:
        check_name(self.name, "graph")
