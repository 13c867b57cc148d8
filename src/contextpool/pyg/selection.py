"""What `ContextPooling.select` returns: PyG's SelectOutput that also knows which edges were walked."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.nn.pool.select import SelectOutput

from contextpool.pool.edge_set import PooledBatch
from contextpool.pyg.columns import EdgeColumns


class ContextSelection(SelectOutput):
    """M clusters, one for each (query, node) pair that the walks of B queries reached, by query and then by node.

    `node_index` [M] is the node of each cluster, so features come by `x[selection.node_index]`; a node that several
    queries reach is in as many clusters. `cluster_index` counts them: 0 ... M - 1. `weight` [M] says how much the node
    looks like an answer: the highest precision[inverse(relation), y] of the relations y it has, in [0, 1], without the
    hidden edge; None where the context holds no counts (Algorithm 1, a plain mask).
    """

    query_index: Tensor
    """[M] the query of each cluster: PyG's batch vector."""
    head_cluster: Tensor
    """[B] the cluster in which each query starts; it is there even where no edge leaves it."""
    pooled_edge_index: Tensor
    """[2, K] clusters; edges lead outward, from where the walk came to where it went."""
    pooled_edge_type: Tensor
    """[K] edge types in [0, 2R)."""
    edge_column: Tensor
    """[K] the column of edge_index that each was made from."""
    edge_hop: Tensor
    """[K] the first hop that has it, from 1 on."""

    def __init__(
        self, columns: EdgeColumns, query_head: Tensor, pooled: PooledBatch, relevance: Tensor | None = None
    ) -> None:
        """`relevance` [B, N] of every node for every query; the weights are looked up in it."""
        graph, count = columns.graph, columns.graph.num_entities
        edges = pooled.union()
        query, edge = edges.edge_query.long(), edges.edge.long()  # [K]
        source, target = graph.edge_head[edge].long(), graph.edge_tail[edge].long()
        start = torch.arange(len(query_head), device=query_head.device) * count + query_head  # [B]
        pair = torch.unique(torch.cat([start, query * count + source, query * count + target]))  # [M]
        query_index, node_index = torch.div(pair, max(count, 1), rounding_mode="floor"), pair % max(count, 1)
        super().__init__(
            node_index=node_index,
            num_nodes=count,
            cluster_index=torch.arange(len(pair), device=pair.device),
            num_clusters=len(pair),
            weight=None if relevance is None else relevance[query_index, node_index],
        )
        self.query_index = query_index
        self.head_cluster = torch.searchsorted(pair, start)
        ends = [torch.searchsorted(pair, query * count + node) for node in (source, target)]
        self.pooled_edge_index = torch.stack(ends)
        self.pooled_edge_type = graph.edge_relation[edge].long()
        self.edge_column = columns.column_of[edge]
        self.edge_hop = _first_hops(pooled, query, edge, graph.num_edges)

    def __repr__(self) -> str:
        size = f"{self.num_clusters:,} (query, node) pairs, {len(self.edge_column):,} edges"
        return f"ContextSelection({len(self.head_cluster):,} queries, {size})"


def _first_hops(pooled: PooledBatch, query: Tensor, edge: Tensor, num_edges: int) -> Tensor:
    """[K] the first hop of each (query, edge), which are sorted."""
    key = query * num_edges + edge
    first = torch.full_like(key, pooled.num_hops)
    for hop in range(pooled.num_hops, 0, -1):
        there = pooled.hops[hop - 1]
        first[torch.searchsorted(key, there.edge_query.long() * num_edges + there.edge.long())] = hop
    return first
