"""`contextpool mine`: which relations are relevant to which; `contextpool pool`: the graph of one question."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from contextpool.cli.inputs import GraphArgument, load_graph, mined, parse_bytes
from contextpool.cli.output import console, count_bar, note, print_json, table
from contextpool.errors import ConfigError, DataError, shortened

if TYPE_CHECKING:
    from contextpool.context.counts import Cooccurrence
    from contextpool.context.families import ContextFamilies
    from contextpool.context.neighbors import ContextNeighbors
    from contextpool.pool.pooled import PooledGraph
    from contextpool.triples.store import Triple

PrecisionOption = Annotated[float, typer.Option(help="Precision a neighbor has to exceed.")]
RecallOption = Annotated[float, typer.Option(help="Recall a neighbor has to exceed.")]
KeepSelfOption = Annotated[bool, typer.Option("--keep-self", help="Let a relation be its own neighbor.")]
AlgorithmOption = Annotated[int, typer.Option(help="3: single relations; 1: sets of relations (exact).")]
SizesOption = Annotated[str, typer.Option(help="Sizes of the sets of algorithm 1, like 1-5 or 4,5.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Engine = Literal["memory", "disk", "duckdb", "spark"]


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
    engine: Annotated[
        Engine,
        typer.Option(
            help="Who counts: memory; disk, in bounded memory; duckdb; spark. The same counts from each."
        ),
    ] = "memory",
    memory: Annotated[str, typer.Option(help="What disk, duckdb and spark may hold, like 512MiB.")] = "1GiB",
    master: Annotated[str | None, typer.Option(help="Spark's URL; without it, this machine.")] = None,
    temp: Annotated[Path | None, typer.Option(help="Folder to spill to; the system's by default.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Relevant relations as a table: by precision and by recall, side by side.

    Without --relation: one row per relation of the graph.
    """
    from contextpool.context.families import ContextFamilies
    from contextpool.context.neighbors import ContextNeighbors

    context: ContextNeighbors | ContextFamilies
    if engine == "memory" and master is None and temp is None:
        context = mined(load_graph(graph), algorithm, min_precision, min_recall, keep_self, sizes)
    elif algorithm == 3:
        counts = _engine_counts(graph, engine, memory, master, temp)
        context = ContextNeighbors(counts, min_precision, min_recall, "keep" if keep_self else "exclude")
    else:
        raise ConfigError(
            f"--algorithm is {algorithm}; engines count pairs of relations, which is algorithm 3. "
            "Sets of relations are mined in memory, from a triple file or a dataset."
        )
    if isinstance(context, ContextFamilies):
        _print_families(context, relation, top, as_json)
    elif relation is None:
        _print_overview(context, top, as_json)
    elif as_json:
        print_json(_as_dict(context, relation))
    else:
        console().print(side_by_side(context, relation, top))


def _engine_counts(
    graph: str, engine: Engine, memory: str, master: str | None, temp: Path | None
) -> Cooccurrence:
    """Counts by an engine, of a file of triples."""
    from contextpool.context.mining import mine_counts
    from contextpool.triples.sources.address import find_address

    address = find_address(graph)
    if address is None or not address.path.is_file():
        raise DataError(
            f"{graph}: --engine reads a file of triples, and there is none of this name. A dataset's folder "
            "holds such files; of any other source, `contextpool data convert` makes one."
        )
    room = parse_bytes(memory)
    with count_bar("mining") as progress:
        return mine_counts(address, engine, memory=room, master=master, temp=temp, progress=progress).counts


def _neighbor_rows(
    context: ContextNeighbors, query: str, by: Literal["precision", "recall"]
) -> list[dict[str, Any]]:
    """The neighbors of a query relation, best first by one measure, with both."""
    labels = [context.relations.directed[neighbor] for neighbor in context.ranked_neighbors(query, by=by)]
    return [
        {
            "relation": label,
            "precision": context.precision(query, label),
            "recall": context.recall(query, label),
            "support": context.support(label),
        }
        for label in labels
    ]


def _as_dict(context: ContextNeighbors, query: str) -> dict[str, Any]:
    return {
        "relation": query,
        "support": context.support(query),
        "min_precision": context.min_precision,
        "min_recall": context.min_recall,
        "by_precision": _neighbor_rows(context, query, "precision"),
        "by_recall": _neighbor_rows(context, query, "recall"),
    }


def side_by_side(context: ContextNeighbors, query: str, top: int) -> Any:
    """The paper's Table 3 for one relation, as a rich table."""
    found = _as_dict(context, query)
    best = zip(found["by_precision"][:top], found["by_recall"][:top], strict=True)
    rows = [
        (first["relation"], f"{first['precision']:.3f}", second["relation"], f"{second['recall']:.3f}")
        for first, second in best
    ]
    title = (
        f"{query}: {len(found['by_recall'])} context neighbors of {context.relations.num_directed} relations "
        f"(precision > {context.min_precision:g}, recall > {context.min_recall:g}; {found['support']:,} entities)"
    )
    return table(title, ("by precision", "precision", "by recall", "recall"), rows, words=(0, 2))


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
    title = f"{len(shown)} of {len(rows)} relations, those of most entities first"
    columns = ("relation", "entities", "neighbors", "best by precision")
    console().print(table(title, columns, shown, words=(0, 3)))


def _print_families(families: ContextFamilies, relation: str | None, top: int, as_json: bool) -> None:
    if relation is None:
        counts = {label: len(families[label]) for label in families.relations.directed}
        if as_json:
            print_json([{"relation": label, "sets": count} for label, count in counts.items()])
            return
        largest = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:top]
        rows: list[tuple[str, object]] = [(label, f"{count:,}") for label, count in largest]
        title, columns = f"context families of {len(counts)} relations", ("relation", "sets")
    else:
        families.relations.id_of(relation)  # a misspelt relation deserves more than an empty family
        family = families[relation]
        first = [sorted(members) for members in islice(family, top)]
        if as_json:
            print_json({"relation": relation, "sets": len(family), "first": first})
            return
        rows = [(", ".join(members), len(members)) for members in first]
        title, columns = f"{relation}: {len(family):,} sets, the first {len(rows)}", ("set", "size")
    console().print(table(title, columns, rows))


def pool(
    graph: GraphArgument,
    head: Annotated[str, typer.Option("--head", help="The entity that the question is about.")],
    relation: Annotated[
        str, typer.Option("--relation", "-r", help="The relation asked for; 'r^-1' for an inverse.")
    ],
    hops: Annotated[int, typer.Option(help="How far to walk.", min=1)] = 3,
    hide: Annotated[
        list[str] | None, typer.Option(help="A fact to hide, as HEAD<tab>RELATION<tab>TAIL; may be repeated.")
    ] = None,
    min_precision: PrecisionOption = 0.1,
    min_recall: RecallOption = 0.0,
    keep_self: KeepSelfOption = False,
    algorithm: AlgorithmOption = 3,
    sizes: SizesOption = "1-5",
    output: Annotated[Path | None, typer.Option(help="Write the pooled facts as a triple file.")] = None,
    limit: Annotated[int, typer.Option(help="Edges to print per hop.", min=0)] = 10,
    as_json: JsonOption = False,
) -> None:
    """The graph that remains when only relevant relations are walked from the head."""
    from contextpool.pool.pooled import pool as pool_graph
    from contextpool.triples.files import write_triples

    hidden = [_fact(text) for text in hide or []]
    loaded = load_graph(graph)
    context = mined(loaded, algorithm, min_precision, min_recall, keep_self, sizes)
    pooled = pool_graph(loaded, context, head=head, relation=relation, hops=hops, hide=hidden)
    if output is not None:
        note(f"wrote {write_triples(output, _facts(pooled)):,} facts to {output}")
    if as_json:
        edges = [sorted(hop) for hop in pooled.hops]
        print_json({"head": head, "relation": relation, "hops": edges, "num_edges": len(pooled.triples)})
    else:
        _print_pooled(pooled, limit)


def _fact(text: str) -> Triple:
    """A fact given on the command line, columns separated by tabs."""
    columns = text.split("\t")
    if len(columns) != 3:
        raise ConfigError(
            f"--hide is {shortened(text)}; write HEAD<tab>RELATION<tab>TAIL ($'a\\tr\\tb' in bash)."
        )
    return columns[0], columns[1], columns[2]


def _facts(pooled: PooledGraph) -> list[Triple]:
    """The facts behind the edges: inverse ones turned round."""
    from contextpool.graph.graph import walk_back
    from contextpool.triples.labels import INVERSE_SUFFIX

    return sorted({walk_back(edge) if edge[1].endswith(INVERSE_SUFFIX) else edge for edge in pooled.triples})


def _print_pooled(pooled: PooledGraph, limit: int) -> None:
    """One table a hop, and what the union amounts to."""
    out = console()
    for number, hop in enumerate(pooled.hops, start=1):
        shown = sorted(hop)[:limit]
        title = f"hop {number}: {len(hop):,} edges" + (f", the first {limit}" if len(hop) > limit else "")
        out.print(table(title, ("from", "relation", "to"), shown, numbers_from=3) if shown else title)
    entities = {entity for head, _, tail in pooled.triples for entity in (head, tail)}
    asked = f"({pooled.head}, {pooled.relation}, ?)"
    out.print(
        f"query-specific graph of {asked}: {len(pooled.triples):,} edges, {len(entities):,} entities",
        markup=False,
    )
