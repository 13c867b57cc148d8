"""`contextpool pool`: the query-specific graph of one question."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contextpool.cli.inputs import load_graph, mined
from contextpool.cli.mine import (
    AlgorithmOption,
    GraphArgument,
    JsonOption,
    KeepSelfOption,
    PrecisionOption,
    RecallOption,
    SizesOption,
)
from contextpool.cli.output import console, note, print_json, table

if TYPE_CHECKING:
    from contextpool.pool.pooled import PooledGraph
    from contextpool.triples.store import Triple


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

    loaded = load_graph(graph)
    context = mined(loaded, algorithm, min_precision, min_recall, keep_self, sizes)
    pooled = pool_graph(
        loaded, context, head=head, relation=relation, hops=hops, hide=parse_hidden(hide or [])
    )
    if output is not None:
        _write(pooled, output)
    if as_json:
        print_json(as_dict(pooled))
    else:
        print_pooled(pooled, limit)


def parse_hidden(texts: list[str]) -> list[Triple]:
    """Facts given on the command line, columns separated by tabs."""
    from contextpool.errors import ConfigError, shortened

    triples = []
    for text in texts:
        columns = text.split("\t")
        if len(columns) != 3:
            raise ConfigError(
                f"--hide is {shortened(text)}; write HEAD<tab>RELATION<tab>TAIL ($'a\\tr\\tb' in bash)."
            )
        triples.append((columns[0], columns[1], columns[2]))
    return triples


def as_dict(pooled: PooledGraph) -> dict[str, Any]:
    return {
        "head": pooled.head,
        "relation": pooled.relation,
        "hops": [sorted(hop) for hop in pooled.hops],
        "num_edges": len(pooled.triples),
    }


def print_pooled(pooled: PooledGraph, limit: int) -> None:
    """One table a hop, and what the union amounts to."""
    out = console()
    for number, hop in enumerate(pooled.hops, start=1):
        shown = sorted(hop)[:limit]
        title = f"hop {number}: {len(hop):,} edges" + (f", the first {limit}" if len(hop) > limit else "")
        out.print(table(title, ("from", "relation", "to"), shown, numbers_from=3) if shown else title)
    entities = {entity for head, _, tail in pooled.triples for entity in (head, tail)}
    out.print(f"query-specific graph of ({pooled.head}, {pooled.relation}, ?): {len(pooled.triples):,} edges, "
              f"{len(entities):,} entities", markup=False)  # fmt: skip


def _write(pooled: PooledGraph, output: Path) -> None:
    from contextpool.graph.graph import walk_back
    from contextpool.triples.files import write_triples
    from contextpool.triples.labels import INVERSE_SUFFIX

    facts = {walk_back(edge) if edge[1].endswith(INVERSE_SUFFIX) else edge for edge in pooled.triples}
    count = write_triples(output, sorted(facts))
    note(f"wrote {count:,} facts to {output}")
