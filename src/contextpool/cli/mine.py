"""`contextpool mine`: which relations are logically relevant to which."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from contextpool.cli.inputs import load_graph, mined
from contextpool.cli.mine_engines import MiningOptions, engine_counts
from contextpool.cli.output import console, print_json, table
from contextpool.errors import ConfigError

if TYPE_CHECKING:
    from contextpool.context.families import ContextFamilies
    from contextpool.context.neighbors import ContextNeighbors

GraphArgument = Annotated[
    str,
    typer.Argument(
        help="A graph (a file, or a query such as sqlite:FILE?query=SELECT h, r, t ...) or a dataset.",
        metavar="GRAPH",
    ),
]
PrecisionOption = Annotated[float, typer.Option(help="Precision a neighbor has to exceed.")]
RecallOption = Annotated[float, typer.Option(help="Recall a neighbor has to exceed.")]
KeepSelfOption = Annotated[bool, typer.Option("--keep-self", help="Let a relation be its own neighbor.")]
AlgorithmOption = Annotated[int, typer.Option(help="3: single relations; 1: sets of relations (exact).")]
SizesOption = Annotated[str, typer.Option(help="Sizes of the sets of algorithm 1, like 1-5 or 4,5.")]
EngineOption = Annotated[
    Literal["memory", "disk", "duckdb", "spark"],
    typer.Option(
        help="Who counts: memory; disk, in bounded memory; duckdb; spark. The same counts from each."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


def mine(
    graph: GraphArgument,
    relation: Annotated[
        str | None, typer.Option("--relation", "-r", help="Query relation; 'r^-1' for an inverse.")
    ] = None,
    min_precision: PrecisionOption = 0.1,
    min_recall: RecallOption = 0.0,
    keep_self: KeepSelfOption = False,
    algorithm: AlgorithmOption = 3,
    sizes: SizesOption = "1-5",
    top: Annotated[int, typer.Option(help="Rows to print.", min=1)] = 10,
    engine: EngineOption = "memory",
    memory: Annotated[str, typer.Option(help="What disk, duckdb and spark may hold, like 512MiB.")] = "1GiB",
    master: Annotated[str | None, typer.Option(help="Spark's URL; without it, this machine.")] = None,
    temp: Annotated[Path | None, typer.Option(help="Folder to spill to; the system's by default.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Relevant relations as a table: by precision and by recall, side by side.

    Without --relation: one row per relation of the graph.
    """
    options = MiningOptions(engine, memory, master, temp)
    context: ContextNeighbors | ContextFamilies
    if options.wanted:
        context = _engine_context(graph, options, algorithm, min_precision, min_recall, keep_self)
    else:
        context = mined(load_graph(graph), algorithm, min_precision, min_recall, keep_self, sizes)
    if algorithm == 1:
        _print_families(context, relation, top, as_json)  # type: ignore[arg-type]
    elif relation is None:
        _print_overview(context, top, as_json)  # type: ignore[arg-type]
    else:
        _print_case_study(context, relation, top, as_json)  # type: ignore[arg-type]


def _engine_context(
    graph: str,
    options: MiningOptions,
    algorithm: int,
    min_precision: float,
    min_recall: float,
    keep_self: bool,
) -> ContextNeighbors:
    """Algorithm 3 over counts that an engine made."""
    from contextpool.context.neighbors import ContextNeighbors

    if algorithm != 3:
        raise ConfigError(
            f"--algorithm is {algorithm}; engines count pairs of relations, which is algorithm 3. "
            "Sets of relations are mined in memory, from a triple file or a dataset."
        )
    counts = engine_counts(graph, options)
    return ContextNeighbors(counts, min_precision, min_recall, "keep" if keep_self else "exclude")


def neighbor_rows(
    context: ContextNeighbors, query: str, by: Literal["precision", "recall"]
) -> list[dict[str, Any]]:
    """The neighbors of a query relation, best first by one measure, with both."""
    directed = context.relations.directed
    return [
        {
            "relation": directed[neighbor],
            "precision": context.precision(query, directed[neighbor]),
            "recall": context.recall(query, directed[neighbor]),
            "support": context.support(directed[neighbor]),
        }
        for neighbor in context.ranked_neighbors(query, by=by)
    ]


def side_by_side(context: ContextNeighbors, query: str, top: int) -> Any:
    """The paper's Table 3 for one relation, as a rich table."""
    by_precision = neighbor_rows(context, query, "precision")
    by_recall = neighbor_rows(context, query, "recall")
    rows = [
        (first["relation"], f"{first['precision']:.3f}", second["relation"], f"{second['recall']:.3f}")
        for first, second in zip(by_precision[:top], by_recall[:top], strict=True)
    ]
    title = (
        f"{query}: {len(by_precision)} context neighbors of {context.relations.num_directed} relations "
        f"(precision > {context.min_precision:g}, recall > {context.min_recall:g}; {context.support(query):,} entities)"
    )
    result = table(title, ("by precision", "precision", "by recall", "recall"), rows)
    result.columns[2].justify = "left"
    return result


def _print_case_study(context: ContextNeighbors, query: str, top: int, as_json: bool) -> None:
    if not as_json:
        console().print(side_by_side(context, query, top))
        return
    print_json(
        {
            "relation": query,
            "support": context.support(query),
            "min_precision": context.min_precision,
            "min_recall": context.min_recall,
            "by_precision": neighbor_rows(context, query, "precision"),
            "by_recall": neighbor_rows(context, query, "recall"),
        }
    )


def _print_overview(context: ContextNeighbors, top: int, as_json: bool) -> None:
    rows: list[dict[str, Any]] = [
        {
            "relation": label,
            "support": context.support(label),
            "neighbors": len(neighbors := context.neighbors(label)),
            "best": neighbors[0] if neighbors else None,
        }
        for label in context.relations.directed
    ]
    if as_json:
        print_json(rows)
        return
    rows.sort(key=lambda row: (-row["support"], row["relation"]))
    shown = [
        (row["relation"], f"{row['support']:,}", row["neighbors"], row["best"] or "-") for row in rows[:top]
    ]
    title = f"{min(top, len(rows))} of {len(rows)} relations, those of most entities first"
    result = table(title, ("relation", "entities", "neighbors", "best by precision"), shown)
    result.columns[3].justify = "left"
    console().print(result)


def _print_families(families: ContextFamilies, relation: str | None, top: int, as_json: bool) -> None:
    if relation is not None:
        _print_family(families, relation, top, as_json)
        return
    counts = {label: len(families[label]) for label in families.relations.directed}
    if as_json:
        print_json([{"relation": label, "sets": count} for label, count in counts.items()])
        return
    largest = sorted(counts, key=lambda label: (-counts[label], label))[:top]
    rows = [(label, f"{counts[label]:,}") for label in largest]
    console().print(table(f"context families of {len(counts)} relations", ("relation", "sets"), rows))


def _print_family(families: ContextFamilies, relation: str, top: int, as_json: bool) -> None:
    families.relations.id_of(relation)  # a misspelt relation deserves more than an empty family
    count, first = len(families[relation]), [sorted(members) for members in islice(families[relation], top)]
    if as_json:
        print_json({"relation": relation, "sets": count, "first": first})
        return
    rows = [(", ".join(members), len(members)) for members in first]
    console().print(table(f"{relation}: {count:,} sets, the first {len(rows)}", ("set", "size"), rows))
