"""What several commands take: a run, a graph by file or dataset name, names, thresholds, set sizes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from contextpool.cli.output import note
from contextpool.errors import ConfigError

if TYPE_CHECKING:
    from contextpool.context.families import ContextFamilies
    from contextpool.context.neighbors import ContextNeighbors
    from contextpool.graph.graph import Graph
    from contextpool.predict import Names
    from contextpool.triples.sources.address import Address

RunArgument = Annotated[Path, typer.Argument(help="The run folder, or hf://USER/NAME.", metavar="RUN")]
LabelsOption = Annotated[
    Path | None, typer.Option("--labels", help="Names of entities and relations: a file of id TAB name.")
]
UnknownOption = Annotated[
    Literal["error", "skip"],
    typer.Option("--on-unknown", help="Facts of relations the model does not know: refuse, or leave out."),
]


def load_graph(source: str, part: Literal["training", "inference"] = "training") -> Graph:
    """A whole graph (a file, a query, a mapped one), or one of the two of a dataset (a name, a folder, an address with
    split=).
    """
    from contextpool.graph.graph import Graph
    from contextpool.graph.mapped import is_mapped, open_graph
    from contextpool.triples.catalog import load_dataset
    from contextpool.triples.reader import read_triples

    address = whole_graph(source)
    if address is not None:
        return Graph.from_triples(read_triples(address, tell=note))
    if is_mapped(source):
        return open_graph(source)
    dataset = load_dataset(source, tell=note)
    note(f"using the {part} graph of {dataset.name}")
    return Graph.from_triples(dataset.training_graph if part == "training" else dataset.inference_graph)


def loaded_names(path: Path | None) -> Names | None:
    from contextpool.predict import read_names

    return None if path is None else read_names(path)


def whole_graph(source: str) -> Address | None:
    """The address of a graph that is not to be split; None for a dataset."""
    from contextpool.triples.catalog import is_named
    from contextpool.triples.sources.address import find_address

    address = None if is_named(source) else find_address(source)
    return None if address is None or address.without_split()[1] else address


def stored_dataset(run: Path) -> str:
    """What a run was trained on, by its own word; a run from elsewhere may not choose a server and get a password."""
    from contextpool.train.run_folder import RunFolder
    from contextpool.triples.sources.address import find_address

    name = str(RunFolder.open(run).config["recipe"]["dataset"])
    address = find_address(name)
    if address is not None and address.kind in ("neo4j", "postgres"):
        raise ConfigError(
            f"{run}: it was trained on {name}, a server, and a run folder is not trusted to choose one. Name the "
            "dataset yourself, after the run."
        )
    return name


def parse_sizes(text: str) -> list[int]:
    """'1-5' or '4,5' or '1-3,6' as a list of sizes."""
    sizes: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if not first.strip().isdigit() or not (last or first).strip().isdigit():
            raise ConfigError(f"--sizes is {text!r}; write sizes like 1-5 or 4,5.")
        sizes.update(range(int(first), int(last or first) + 1))
    return sorted(sizes)


def mined(
    graph: Graph, algorithm: int, min_precision: float, min_recall: float, keep_self: bool, sizes: str
) -> ContextNeighbors | ContextFamilies:
    """Algorithm 3's neighbors, or Algorithm 1's families by the measure whose threshold is set."""
    from contextpool.context.families import mine_families
    from contextpool.context.neighbors import mine_context

    if algorithm == 3:
        return mine_context(graph, min_precision, min_recall, self="keep" if keep_self else "exclude")
    if algorithm != 1:
        raise ConfigError(f"--algorithm is {algorithm}; it is 1 (relation sets) or 3 (single relations).")
    if min_recall > 0:
        return mine_families(graph, measure="recall", threshold=min_recall, sizes=parse_sizes(sizes))
    return mine_families(graph, measure="precision", threshold=min_precision, sizes=parse_sizes(sizes))


def parse_bytes(text: str) -> int:
    """'1GiB', '512 MB', '2g' or plain bytes."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", text.lower())
    if found is None or (found[3] and not found[2]):
        raise ConfigError(f"--memory is {text!r}; write it like 512MiB, 1.5GB or 2g.")
    power = " kmgt".index(found[2] or " ")
    return int(float(found[1]) * (1024 if found[3] else 1000) ** power)
