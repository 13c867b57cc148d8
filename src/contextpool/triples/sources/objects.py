"""What other libraries hold as triples: a pandas or polars DataFrame, an Arrow table, a NetworkX graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from contextpool.errors import ConfigError, DataError
from contextpool.triples.sources.address import Address, check_options
from contextpool.triples.sources.columns import chosen_columns, row_batches
from contextpool.triples.sources.reading import Reading
from contextpool.triples.sources.tables import TABLE_ROWS, table_batches

RELATION = "relation"


def object_batches(address: Address, source: Any, reading: Reading) -> Iterator[pa.RecordBatch]:
    """Recognised by what it can do, so that nothing has to be imported."""
    if all(hasattr(source, name) for name in ("is_multigraph", "is_directed", "edges", "nodes")):
        return _network(address, source)
    if hasattr(source, "__arrow_c_stream__") or hasattr(source, "iloc"):
        return _table(address, source, reading)
    kind = type(source)
    raise DataError(
        f"a {kind.__module__}.{kind.__name__} is no source of triples. Give a file or an address, a DataFrame, an "
        "Arrow table or a NetworkX graph; of a list of (head, relation, tail), Graph.from_triples makes a graph."
    )


def _table(address: Address, table: Any, reading: Reading) -> Iterator[pa.RecordBatch]:
    """Anything that speaks Arrow: a pyarrow Table, a pandas or polars DataFrame, a DuckDB relation."""
    check_options(address, ("columns",))
    try:
        ready = pa.Table.from_pandas(table) if hasattr(table, "iloc") else pa.table(table)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise DataError(
            f"{address.text}: a column holds values of several kinds ({error}). Make it text, such as "
            "frame[column].astype(str), or whole numbers."
        ) from None
    reading.columns = positions = chosen_columns(address, ready.schema.names)
    stream = ready.to_batches(max_chunksize=TABLE_ROWS)
    return table_batches(address, ([batch.column(k) for k in positions] for batch in stream))


def _network(address: Address, network: Any) -> Iterator[pa.RecordBatch]:
    """Directed graphs; `relation` is "key" (of a MultiDiGraph) or the name of an attribute of edges.

    By default it is the attribute `relation` where the first edge has one, and the key of a MultiDiGraph.
    """
    check_options(address, ("relation",))
    if not network.is_directed():
        raise DataError(
            f"{address.text}: the graph is undirected, and a fact has a head and a tail. Say which way its edges "
            "point with a DiGraph, or take both ways with graph.to_directed()."
        )
    _, _, first = next(iter(network.edges(data=True)), (None, None, {}))
    usual = RELATION if RELATION in first else "key" if network.is_multigraph() else None
    relation = address.options.get("relation", usual)
    if not isinstance(relation, str):
        raise ConfigError(
            f"{address.text}: which attribute of an edge is its relation? Call it 'relation', name it with relation= "
            "of read_graph, or use a MultiDiGraph whose keys are the relations."
        )
    for node in network.nodes:
        if isinstance(node, int) and str(node) in network.nodes:
            raise DataError(
                f"{address.text}: there is a node {node!r} and a node {str(node)!r}, which would become one entity. "
                "Relabel one of them with networkx.relabel_nodes."
            )
    rows = _by_key(address, network) if relation == "key" else _by_attribute(address, network, relation)
    return row_batches(
        rows,
        lambda row, what: DataError(
            f"{address.text}: edge {row:,} (from 0): {what} Relabel it with networkx.relabel_nodes."
        ),
    )


def _by_attribute(address: Address, network: Any, relation: str) -> Iterator[tuple[Any, Any, Any]]:
    for head, tail, value in network.edges(data=relation):
        if value is None:
            raise DataError(
                f"{address.text}: the edge from {head!r} to {tail!r} has no attribute {relation!r}. Give it one, or "
                "name another with relation=."
            )
        yield head, value, tail


def _by_key(address: Address, network: Any) -> Iterator[tuple[Any, Any, Any]]:
    if not network.is_multigraph():
        raise ConfigError(
            f"{address.text}: relation is 'key', but only the edges of a MultiDiGraph have keys."
        )
    for head, tail, key in network.edges(keys=True):
        if not isinstance(key, str):
            raise DataError(
                f"{address.text}: the key of the edge from {head!r} to {tail!r} is {key!r}, a number that NetworkX "
                "gave it. Name the attribute that is the relation: relation='...'."
            )
        yield head, key, tail
