"""NetworkX graphs as triples: an edge's key or one of its attributes is the relation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from contextpool.errors import ConfigError, DataError
from contextpool.triples.sources.address import Address, check_options
from contextpool.triples.sources.collect import TripleCollector
from contextpool.triples.store import Triples


def is_network(source: Any) -> bool:
    """Whether this is a NetworkX graph, without importing NetworkX."""
    return all(hasattr(source, name) for name in ("is_multigraph", "is_directed", "edges", "nodes"))


def read_network(address: Address, network: Any) -> Triples:
    """Directed graphs; `relation` is "key" (of a MultiDiGraph, the default there) or the name of an attribute."""
    check_options(address, ("relation",))
    if not network.is_directed():
        raise DataError(
            f"{address.text}: the graph is undirected, and a fact has a head and a tail. Say which way its edges "
            "point with a DiGraph, or take both ways with graph.to_directed()."
        )
    relation = address.options.get("relation", "key" if network.is_multigraph() else None)
    if not isinstance(relation, str):
        raise ConfigError(
            f"{address.text}: which attribute of an edge is its relation? Name it with relation=, or use a "
            "MultiDiGraph whose keys are the relations."
        )
    _refuse_twins(address, network)
    collector = TripleCollector(
        lambda row: f"{address.text}: edge {row:,} (from 0)", "Relabel it with networkx.relabel_nodes."
    )
    collector.add_rows(_rows(address, network, relation))
    return collector.triples(f"{address.text}: the graph has no edges.")


def _refuse_twins(address: Address, network: Any) -> None:
    """7 and "7" are two nodes, and would be one entity."""
    for node in network.nodes:
        if isinstance(node, int) and str(node) in network.nodes:
            raise DataError(
                f"{address.text}: there is a node {node!r} and a node {str(node)!r}, which would become one entity. "
                "Relabel one of them with networkx.relabel_nodes."
            )


def _rows(address: Address, network: Any, relation: str) -> Iterator[tuple[Any, Any, Any]]:
    if relation == "key":
        yield from _by_key(address, network)
        return
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
