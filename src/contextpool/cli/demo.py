"""`contextpool demo`: the whole story on the embedded graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from contextpool.cli.mine import side_by_side
from contextpool.cli.output import console, table

if TYPE_CHECKING:
    from contextpool.context.neighbors import ContextNeighbors
    from contextpool.graph.graph import Graph
    from contextpool.triples.dataset import Dataset


def demo(
    relation: Annotated[
        str, typer.Option("--relation", "-r", help="The relation to tell the story with.")
    ] = "currency",
    head: Annotated[str, typer.Option(help="A country of the graph that is never trained on.")] = "Austria",
) -> None:
    """Audit the embedded graph, mine what is relevant on one half of the world, pool a question about the other."""
    from contextpool.context.neighbors import mine_context
    from contextpool.graph.graph import Graph
    from contextpool.triples.catalog import load_dataset

    dataset = load_dataset("world")
    _tell_audit(dataset)
    training = Graph.from_triples(dataset.training_graph)
    context = mine_context(training, min_precision=0.1)
    _tell_context(training, context, relation)
    _tell_pooling(Graph.from_triples(dataset.inference_graph), context, head, relation)


def _tell_audit(dataset: Dataset) -> None:
    out = console()
    out.rule("1. The data: real facts about countries and cities, split by continent", align="left")
    report = dataset.audit()
    by_key = {section.key: section for section in report.sections}
    for key in ("graphs", "overlap"):
        section = by_key[key]
        out.print(table(section.title, section.columns, section.rows, numbers_from=section.text_columns))
    rows = [(finding.severity, finding.reading) for finding in report.findings if finding.severity != "ok"]
    out.print(table("what a reviewer would remark", ("", "finding"), rows, numbers_from=2))


def _tell_context(training: Graph, context: ContextNeighbors, relation: str) -> None:
    out = console()
    out.rule(
        f"2. The context: which relations are relevant to '{relation}', mined on {training!r}", align="left"
    )
    out.print(side_by_side(context, relation, top=8))
    out.print(
        "precision: of the entities having the neighbor, how many have the query; "
        "recall: of those having the query, how many have the neighbor"
    )


def _tell_pooling(inference: Graph, context: ContextNeighbors, head: str, relation: str) -> None:
    from contextpool.context.selection import MaskSelector
    from contextpool.pool.pooled import pool

    out = console()
    out.rule(
        f"3. The query-specific graph of ({head}, {relation}, ?), on entities never seen in step 2",
        align="left",
    )
    pooled = pool(inference, context, head=head, relation=relation, hops=3)
    everything = pool(
        inference, MaskSelector.everything(context.relations), head=head, relation=relation, hops=3
    )
    rows = [
        (f"hop {number}", f"{len(kept):,}", f"{len(full):,}", f"{len(kept) / max(1, len(full)):.0%}")
        for number, (kept, full) in enumerate(zip(pooled.hops, everything.hops, strict=True), start=1)
    ]
    out.print(table("edges walked", ("", "relevant relations only", "all relations", "kept"), rows))
    first = sorted(pooled.hops[0])[:8]
    out.print(table(f"hop 1 from {head}", ("from", "relation", "to"), first, numbers_from=3))
    out.print(
        f"Ask for more: contextpool pool world --head NAME --relation {relation}; contextpool mine world -r borders"
    )
