"""The walk without a filter with torch operations, on any device: all queries of a chunk at once, hop by hop."""

from __future__ import annotations

import torch
from torch import Tensor

from contextpool.graph.graph import Graph
from contextpool.pool._rows import entries_of_rows, pieces, without
from contextpool.pool.hidden import HiddenEdges

BYTES_PER_NODE = 36
"""For each (query, entity) of a chunk: its first hop, and ids of those that were just reached."""
BYTES_PER_EDGE = 48
"""For each edge that is expanded: row, position, key, tail, mask, ..."""


def reach(
    graph: Graph, query_head: Tensor, hidden: HiddenEdges, num_hops: int, scratch_bytes: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Query, entity, first hop [M] of every node reached, sorted."""
    chunk = max(1, scratch_bytes // (2 * BYTES_PER_NODE * max(graph.num_entities, 1)))
    limit = max(1, scratch_bytes // (2 * BYTES_PER_EDGE))
    empty = torch.empty(0, dtype=torch.int32, device=graph.device)
    parts = [(empty, empty, empty)]
    for first in range(0, len(query_head), chunk):
        last = min(first + chunk, len(query_head))
        first_hop = _first_hops(
            graph, query_head[first:last].long(), hidden.part(first, last).keys, num_hops, limit
        )
        query, entity = _members(first_hop >= 0, graph.num_entities)
        parts.append(((query + first).int(), entity.int(), first_hop[first_hop >= 0]))
    query, entity, hop = (torch.cat(columns) for columns in zip(*parts, strict=True))
    return query, entity, hop


def _first_hops(graph: Graph, query_head: Tensor, hidden_keys: Tensor, num_hops: int, limit: int) -> Tensor:
    """[Q * N] int32 the hop at which each (query, entity) is reached first; -1 where it isn't."""
    query, entity = torch.arange(len(query_head), device=graph.device), query_head
    first_hop = torch.full(
        (len(query_head) * graph.num_entities,), -1, dtype=torch.int32, device=graph.device
    )
    first_hop[query * graph.num_entities + entity] = 0
    for hop in range(1, num_hops + 1):
        first = graph.row_start.index_select(0, entity)
        size = graph.row_start.index_select(0, entity + 1) - first
        for start, end in pieces(size, limit):
            row, edge = entries_of_rows(first[start:end], size[start:end])
            edge_query = query[start:end].index_select(0, row)
            target = edge_query * graph.num_entities + graph.edge_tail.index_select(0, edge)
            keep = without(edge_query * graph.num_edges + edge, hidden_keys)
            target = target if keep is None else target[keep]
            first_hop[target[first_hop.index_select(0, target) < 0]] = hop
        query, entity = _members(first_hop == hop, graph.num_entities)
    return first_hop


def _members(flags: Tensor, num_entities: int) -> tuple[Tensor, Tensor]:
    """(query, entity) [M] int64 of the flags [Q * N] that are set, sorted."""
    keys = torch.nonzero(flags).squeeze(1)
    query = torch.div(keys, max(num_entities, 1), rounding_mode="floor")
    return query, keys - query * num_entities
