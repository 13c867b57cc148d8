"""Context pooling on PyG's tensors (Algorithms 1 to 3), and explanations as PyG has them.

`ContextPooling` is a transform, and inside a model it selects and connects with PyG's own results.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from contextpool.context.counts import CountsOf
from contextpool.context.neighbors import ContextNeighbors, RelationSelector, SelfPolicy, mine_context
from contextpool.errors import ConfigError, DataError, MissingExtraError
from contextpool.explain import Explanation
from contextpool.graph.graph import Graph
from contextpool.graph.relations import RelationVocabulary
from contextpool.interop.pyg_data import EdgeColumns, InverseEdges, check_inverse
from contextpool.pool.answers import answers_left_out
from contextpool.pool.candidates import best_precision
from contextpool.pool.expand import PooledBatch, expand
from contextpool.pool.hide import HiddenEdges
from contextpool.triples.store import numbered_labels

try:
    from torch_geometric.data import Data
    from torch_geometric.explain import Explanation as PyGExplanation
    from torch_geometric.nn.pool.connect import ConnectOutput
    from torch_geometric.nn.pool.select import SelectOutput
    from torch_geometric.transforms import BaseTransform
except ImportError:
    raise MissingExtraError("torch_geometric", "pyg", "contextpool.interop.pyg") from None

__all__ = ["ContextPooling", "ContextSelection", "explanation_to_pyg"]


@dataclass(frozen=True, eq=False)
class _Prepared:
    """The graph of some tensors, kept while the same tensors come again."""

    edge_index: Tensor
    edge_type: Tensor
    num_nodes: int
    versions: tuple[int, int]
    columns: EdgeColumns
    context: RelationSelector
    counts: CountsOf | None
    """The counts of the context; None where it has none."""

    def fits(self, edge_index: Tensor, edge_type: Tensor, num_nodes: int) -> bool:
        same = self.edge_index is edge_index and self.edge_type is edge_type and self.num_nodes == num_nodes
        return same and self.versions == (edge_index._version, edge_type._version)


class ContextPooling(BaseTransform):
    """The query-specific graph of (head, relation, ?) (Algorithm 2), with nothing to learn.

    Edge types are numbered as the context numbers its relations (`Graph.to_pyg` does), inverses by `inverse` as in
    `Graph.from_pyg`: with "offset" edges come in both directions and types in [0, 2R); with "none" every edge is a
    fact, and one that is walked backwards comes out turned, with type r + R.

    `context` is what `cp.mine_context` or `cp.mine_families` mined, on this graph or on another one with the same
    relations. None mines Algorithm 3 on each graph that is pooled, with the thresholds given; a query's hidden edge
    is then left out of the counts, too, exactly. `num_types` says how many edge types there are (what RGCNConv calls
    num_relations), where a graph may lack some of them; without it the highest type of each graph decides.

    As a transform it pools the one query of a `Data`, its `query_head` and `query_relation`, without the edge in column
    `query_edge` where the data names one: `mode="filter"` leaves the walked edges (each with `edge_hop`), nodes stay as
    they are; `"mask"` keeps all edges and adds `context_mask`. For a batch of queries inside a model there are `select`
    and `connect`.
    """

    def __init__(
        self,
        context: RelationSelector | None = None,
        hops: int = 3,
        *,
        min_precision: float = 0.1,
        min_recall: float = 0.0,
        self_policy: SelfPolicy = "exclude",
        inverse: InverseEdges = "offset",
        num_types: int | None = None,
        mode: Literal["filter", "mask"] = "filter",
    ) -> None:
        check_inverse(inverse)
        if hops < 1:
            raise ConfigError(f"hops is {hops}; a walk has at least one hop.")
        if mode not in ("filter", "mask"):
            raise ConfigError(f"mode is {mode!r}; it is 'filter' or 'mask'.")
        self.context, self.hops, self.inverse, self.mode = context, hops, inverse, mode
        self.relations = _vocabulary(context, num_types, inverse)
        self.min_precision, self.min_recall, self.self_policy = min_precision, min_recall, self_policy
        self._prepared: _Prepared | None = None

    def select(
        self,
        edge_index: Tensor,
        edge_type: Tensor,
        query_head: Tensor,
        query_relation: Tensor,
        *,
        num_nodes: int | None = None,
        hide: Tensor | None = None,
    ) -> ContextSelection:
        """The (query, node) pairs that the walks of queries (query_head [B], query_relation [B]) reach.

        Relations asked for are in [0, 2R). hide [B] is the column of the edge that is each query itself, -1 for none:
        it and its inverse don't exist for that query. The graph of the tensors is kept for the next call with the
        same ones; making it takes O(E log E), a walk what it walks.
        """
        count = num_nodes if num_nodes is not None else _num_nodes(edge_index)
        ready = self._ready(edge_index, edge_type, count)
        head, relation = query_head.to(edge_index.device).long(), query_relation.to(edge_index.device).long()
        own = None if hide is None else ready.columns.queries_themselves(head, relation, hide)
        pooled = self._walk(ready, head, relation, own)
        return ContextSelection(ready.columns, head, pooled, self._relevance(ready, relation, own))

    def connect(
        self,
        selection: SelectOutput,
        edge_index: Tensor,
        edge_attr: Tensor | None = None,
        batch: Tensor | None = None,
    ) -> ConnectOutput:
        """The walked edges between the clusters of a selection, with PyG's arguments in PyG's order.

        edge_attr [E, ...] is looked up for each; without it the result's edge_attr are the edge types. The batch
        vector of the result is the query of each cluster, or batch [N] looked up by node where it is given.
        """
        if not isinstance(selection, ContextSelection):
            raise DataError(
                f"connect got a {type(selection).__name__}, which does not say what was walked. Give it what "
                "`select` of a ContextPooling returned."
            )
        columns = selection.edge_column
        if len(columns) and int(columns.max()) >= edge_index.size(1):
            raise DataError(
                "the selection was made from more edges than edge_index has. Give it the same edges."
            )
        attr = selection.pooled_edge_type if edge_attr is None else edge_attr[columns]
        query = selection.query_index if batch is None else batch[selection.node_index]
        return ConnectOutput(selection.pooled_edge_index, attr, query)

    def forward(self, data: Data) -> Data:
        """Pool the query of the data; called through the transform itself, which copies the data first."""
        head, relation, hide = (
            _scalar(data, name) for name in ("query_head", "query_relation", "query_edge")
        )
        if head is None or relation is None:
            raise DataError(
                "the data has no query_head or no query_relation: nodes and types, one number each."
            )
        ready = self._ready(data.edge_index, data.edge_type, int(data.num_nodes or 0))
        own = None if hide is None else ready.columns.queries_themselves(head, relation, hide)
        pooled = self._walk(ready, head, relation, own)
        chosen = ContextSelection(ready.columns, head, pooled)
        return self._masked(data, ready, pooled) if self.mode == "mask" else self._filtered(data, chosen)

    def _filtered(self, data: Data, chosen: ContextSelection) -> Data:
        """In the order of the columns; other edge attributes go with their column."""
        order = torch.argsort(chosen.edge_column, stable=True)
        column = chosen.edge_column[order]
        others = [key for key in data.to_dict() if key not in ("edge_index", "edge_type")]
        picked = {key: data[key] for key in others if data.is_edge_attr(key)}
        data.edge_index = chosen.node_index[chosen.pooled_edge_index[:, order]]
        data.edge_type = chosen.pooled_edge_type[order]
        for key, value in picked.items():
            data[key] = (
                value[column] if isinstance(value, Tensor) else [value[place] for place in column.tolist()]
            )
        data.edge_hop = chosen.edge_hop[order]
        return data

    def _masked(self, data: Data, ready: _Prepared, pooled: PooledBatch) -> Data:
        """A column is in the mask where its edge is walked, or, if it stands for both directions, either is."""
        graph = ready.columns.graph
        walked = torch.zeros(graph.num_edges, dtype=torch.bool, device=graph.device)
        walked[pooled.union().edge.long()] = True
        if self.inverse == "none":
            walked = walked | walked[graph.edge_inverse.long()]
        data.context_mask = walked[ready.columns.edge_of]
        return data

    def _ready(self, edge_index: Tensor, edge_type: Tensor, num_nodes: int) -> _Prepared:
        if self._prepared is not None and self._prepared.fits(edge_index, edge_type, num_nodes):
            return self._prepared
        columns = EdgeColumns.of(edge_index, edge_type, num_nodes, self.inverse, self.relations)
        context = self.context
        if context is None:
            context = mine_context(columns.graph, self.min_precision, self.min_recall, self=self.self_policy)
        versions = (edge_index._version, edge_type._version)
        counts = None
        if isinstance(context, ContextNeighbors):
            counts = CountsOf(columns.graph, context.counts)
        self._prepared = _Prepared(edge_index, edge_type, num_nodes, versions, columns, context, counts)
        return self._prepared

    def _walk(self, ready: _Prepared, head: Tensor, relation: Tensor, own: Tensor | None) -> PooledBatch:
        """Algorithm 2, each query without the edge it is, own [B]."""
        graph, context = ready.columns.graph, ready.context
        if own is None:
            return expand(graph, context, head, relation, self.hops)
        hidden = HiddenEdges.one_per_query(graph, own)
        if self.context is not None or not isinstance(context, ContextNeighbors) or ready.counts is None:
            return expand(graph, context, head, relation, self.hops, hidden)
        answers = answers_left_out(graph, context, ready.counts, relation, own)
        return expand(graph, context, head, relation, self.hops, hidden, answers=answers)

    def _relevance(self, ready: _Prepared, relation: Tensor, own: Tensor | None) -> Tensor | None:
        """[B, N] `best_precision`; a context that was given keeps its counts, a node never its hidden edge."""
        if ready.counts is None:
            return None
        nothing = torch.full_like(relation, -1)
        hidden = nothing if own is None else own
        queries = ready.counts.for_queries(relation, hidden if self.context is None else nothing)
        return best_precision(ready.columns.graph, ready.counts, queries, hidden)

    def __repr__(self) -> str:
        told = (
            f"min_precision={self.min_precision}, min_recall={self.min_recall}"
            if self.context is None
            else type(self.context).__name__
        )
        return f"ContextPooling({told}, hops={self.hops}, inverse={self.inverse!r})"


def _vocabulary(
    context: RelationSelector | None, num_types: int | None, inverse: InverseEdges
) -> RelationVocabulary | None:
    """The relations of the context or of `num_types`; None where each graph has its own."""
    if num_types is None:
        return None if context is None else context.relations
    if num_types < 1 or (inverse == "offset" and num_types % 2):
        wanted = "even: R relations and their R inverses" if inverse == "offset" else "at least 1"
        raise ConfigError(f"num_types is {num_types}; with inverse={inverse!r} it has to be {wanted}.")
    count = num_types // 2 if inverse == "offset" else num_types
    if context is None:
        return RelationVocabulary(tuple(numbered_labels("r", count)))
    if context.relations.num_relations != count:
        raise ConfigError(
            f"num_types is {num_types}, but the context was mined over {context.relations.num_relations} relations."
        )
    return context.relations


def _num_nodes(edge_index: Tensor) -> int:
    return int(edge_index.max()) + 1 if edge_index.numel() else 0


def _scalar(data: Any, name: str) -> Tensor | None:
    """[1] the number that the data holds under this name, or None."""
    value = getattr(data, name, None)
    if value is None:
        return None
    number = torch.as_tensor(value).reshape(-1)
    if len(number) != 1:
        raise DataError(
            f"{name} holds {len(number)} numbers; a transform pools the one query of a Data. "
            "For a batch of queries use select and connect."
        )
    return number.long().to(data.edge_index.device)


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


def explanation_to_pyg(
    explanation: Explanation, graph: Graph, *, inverse: InverseEdges = "offset"
) -> PyGExplanation:
    """`torch_geometric.explain.Explanation` over the edges of `graph.to_pyg(inverse=inverse)`, in their order.

    `edge_mask` [E] is the weight of the paths through an edge, in the direction they walk it (with "none": in either);
    weights of all paths add up to 1. `paths`, `path_weight`, `query` and `answer` (node numbers) and `prediction` (the
    score) say the rest. `get_explanation_subgraph()` leaves the paths.
    """
    data = graph.to_pyg(inverse=inverse)
    given, answer = (graph.entity_id(label) for label in (explanation.given, explanation.answer))
    return PyGExplanation(
        edge_index=data.edge_index,
        edge_type=data.edge_type,
        num_nodes=data.num_nodes,
        edge_mask=_edge_mask(explanation, graph, inverse),
        paths={number: path.edges for number, path in enumerate(explanation.paths)},
        path_weight={number: path.weight for number, path in enumerate(explanation.paths)},
        query=given,
        answer=answer,
        prediction=torch.tensor([explanation.score]),
    )


def _edge_mask(explanation: Explanation, graph: Graph, inverse: InverseEdges) -> Tensor:
    """[T] or [2T]: facts in their order, then their inverses. O(path edges x log degree + T)."""
    place = torch.empty(graph.num_edges, dtype=torch.int64, device=graph.device)  # [2T] edge -> column
    forward = graph.forward_edges
    place[forward] = torch.arange(graph.num_triples, device=graph.device)
    offset = graph.num_triples if inverse == "offset" else 0
    place[graph.edge_inverse[forward].long()] = torch.arange(graph.num_triples, device=graph.device) + offset
    mask = torch.zeros(graph.num_triples + offset, device=graph.device)
    for path in explanation.paths:
        edges = [graph.edge_id(*triple) for triple in path.edges]  # one that is not there is an error
        for column in {int(place[edge]) for edge in edges}:
            mask[column] += path.weight
    return mask
