"""Graphs to and from `torch_geometric.data.Data`. The caller says whether inverse edges are there; nothing is guessed.

inverse="offset"   edges come in both directions, the inverse of type r being r + R, as RGCN-style models want them
inverse="none"     an edge is a fact; there are R types
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from contextpool.errors import ConfigError, DataError, MissingExtraError
from contextpool.graph.graph import MAX_EDGES, Graph
from contextpool.graph.relations import RelationVocabulary
from contextpool.triples.labels import Vocabulary
from contextpool.triples.store import Triples, distinct_rows, numbered_labels, triples_by_number

if TYPE_CHECKING:
    from torch_geometric.data import Data

InverseEdges = Literal["offset", "none"]
ENTITY_LABELS, RELATION_LABELS = "entity_label", "relation_label"
_Columns = npt.NDArray[np.int64]


def graph_from_data(
    data: Data,
    inverse: InverseEdges = "offset",
    entities: Sequence[str] | None = None,
    relations: Sequence[str] | None = None,
) -> Graph:
    """Implements `Graph.from_pyg`."""
    check_inverse(inverse)
    edge_index, edge_type = checked_edges(getattr(data, "edge_index", None), getattr(data, "edge_type", None))
    num_nodes = int(data.num_nodes or 0)
    check_below("edge_index", edge_index, num_nodes, "nodes")
    names = list(entities if entities is not None else getattr(data, ENTITY_LABELS, None) or [])
    kinds = list(relations if relations is not None else _stored_relations(data))
    count = len(kinds) or count_relations(edge_type, inverse)
    names, kinds = names or numbered_labels("e", num_nodes), kinds or numbered_labels("r", count)
    if len(names) != num_nodes:
        raise DataError(
            f"{len(names):,} entity labels for {num_nodes:,} nodes; there has to be one for each."
        )
    facts = forward_facts(edge_index, edge_type, count, inverse)  # [T, 3]
    return Graph.from_triples(triples_by_number(facts, names, kinds))


def graph_of_pyg(data: Any) -> Graph:
    """A graph of `Data` or `HeteroData` as it is: every edge is a fact, but for the inverses that `to_pyg` added.

    Those are there where edge types go beyond the stored relation labels; anybody else's inverses are said with
    `Graph.from_pyg(data, inverse="offset")`. Nodes of a `HeteroData` are called after their type and number, or as the
    `entity_label` of their type says; relations after the middle one of their edge type.
    """
    if hasattr(data, "edge_types"):
        return _graph_of_types(data)
    _, edge_type = checked_edges(getattr(data, "edge_index", None), getattr(data, "edge_type", None))
    labels = len(_stored_relations(data))
    has_inverses = 0 < labels < (int(edge_type.max()) + 1 if len(edge_type) else 0)
    return graph_from_data(data, "offset" if has_inverses else "none")


def _graph_of_types(data: Any) -> Graph:
    nodes = {kind: _node_labels(data, kind) for kind in data.node_types}
    triples: list[tuple[str, str, str]] = []
    for head, relation, tail in data.edge_types:
        edges = getattr(data[head, relation, tail], "edge_index", None)
        if edges is None or edges.ndim != 2 or len(edges) != 2 or edges.is_floating_point():
            raise DataError(f"({head}, {relation}, {tail}) has no edge_index of integers [2, E].")
        for kind, ids in ((head, edges[0]), (tail, edges[1])):
            check_below(
                f"edge_index of ({head}, {relation}, {tail})", ids, len(nodes[kind]), f"nodes of {kind}"
            )
        ends = zip(*edges.tolist(), strict=True)
        triples += [(nodes[head][one], relation, nodes[tail][other]) for one, other in ends]
    if not triples:
        raise DataError("the HeteroData holds no edges, and so no facts.")
    return Graph.from_triples(triples)


def _node_labels(data: Any, kind: str) -> list[str]:
    """Such as author 07; or as they are stored."""
    stored = getattr(data[kind], ENTITY_LABELS, None)
    count = int(data[kind].num_nodes or 0)
    if stored is not None and len(stored) != count:
        raise DataError(
            f"{len(stored):,} entity labels for {count:,} nodes of {kind}; there has to be one for each."
        )
    return numbered_labels(f"{kind} ", count) if stored is None else list(stored)


def graph_to_data(graph: Graph, inverse: InverseEdges = "offset") -> Data:
    """Implements `Graph.to_pyg`."""
    check_inverse(inverse)
    try:
        from torch_geometric.data import Data
    except ImportError:
        raise MissingExtraError("torch_geometric", "pyg", "Graph.to_pyg") from None
    edges = graph.forward_edges
    head, relation, tail = (
        part[edges].long() for part in (graph.edge_head, graph.edge_relation, graph.edge_tail)
    )
    edge_index, edge_type = torch.stack([head, tail]), relation
    if inverse == "offset":
        edge_index = torch.cat([edge_index, edge_index.flip(0)], dim=1)  # [2, 2T]
        edge_type = torch.cat([edge_type, graph.relation_vocabulary.inverse(edge_type)])
    data = Data(edge_index=edge_index, edge_type=edge_type, num_nodes=graph.num_entities)
    data[ENTITY_LABELS] = list(graph.entities)
    data[RELATION_LABELS] = dict(enumerate(graph.relations))  # a list might be as long as there are nodes
    return data


def _stored_relations(data: Data) -> list[str]:
    stored = getattr(data, RELATION_LABELS, None) or {}
    return [stored[number] for number in sorted(stored)] if isinstance(stored, dict) else list(stored)


def check_inverse(inverse: str) -> None:
    """Refuse anything but the two ways."""
    if inverse not in get_args(InverseEdges):
        raise ConfigError(
            f"inverse is {inverse!r}; it is 'offset' (the inverse of edge type r is r + R, and those edges are there) "
            "or 'none' (every edge is a fact)."
        )


def checked_edges(edge_index: Tensor | None, edge_type: Tensor | None) -> tuple[Tensor, Tensor]:
    """edge_index [2, E] and edge_type [E] after a look at their shapes."""
    if edge_index is None or edge_type is None:
        raise DataError("the data has no edge_index or no edge_type; a knowledge graph needs both.")
    fits = edge_index.ndim == 2 and len(edge_index) == 2 and edge_type.shape == edge_index.shape[1:]
    if not fits or edge_index.is_floating_point() or edge_type.is_floating_point():
        raise DataError(
            f"edge_index is {edge_index.dtype} {list(edge_index.shape)} and edge_type {edge_type.dtype} "
            f"{list(edge_type.shape)}; they have to be integers [2, E] and [E]."
        )
    if edge_index.size(1) > MAX_EDGES:
        raise DataError(f"{edge_index.size(1):,} edges are more than a graph holds ({MAX_EDGES:,}).")
    return edge_index, edge_type


def check_below(name: str, ids: Tensor, count: int, what: str) -> None:
    """Refuse numbers that name nothing; a negative one would count from the end."""
    if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < count:
        wrong = int(ids[(ids < 0) | (ids >= count)][0])
        raise DataError(f"{name} holds {wrong}, but there are {count:,} {what}, numbered from 0.")


def count_relations(edge_type: Tensor, inverse: InverseEdges) -> int:
    """R, from the highest edge type: half of the types where inverses are among them."""
    types = int(edge_type.max()) + 1 if len(edge_type) else 0
    if inverse == "none":
        return types
    if types % 2:
        raise DataError(
            f"edge_type counts {types} types, an odd number: those are not R relations and their R inverses. Name the "
            "relations, or say inverse='none' where every edge is a fact."
        )
    return types // 2


def forward_facts(
    edge_index: Tensor, edge_type: Tensor, num_relations: int, inverse: InverseEdges
) -> _Columns:
    """[T, 3] head, relation, tail of the distinct facts; inverse edges have to be exactly those of the facts."""
    num_types = num_relations if inverse == "none" else 2 * num_relations
    check_below("edge_type", edge_type, num_types, "types")
    columns = torch.stack([edge_index[0], edge_type, edge_index[1]], dim=1).cpu().numpy().astype(np.int64)
    if inverse == "none":
        return _distinct(columns)
    is_forward = columns[:, 1] < num_relations
    facts, backward = _distinct(columns[is_forward]), columns[~is_forward]
    turned = _distinct(backward[:, ::-1] - np.array([0, num_relations, 0]))
    if not np.array_equal(facts, turned):
        raise DataError(_lone_edge(facts, turned, num_relations))
    return facts


def _distinct(columns: _Columns) -> _Columns:
    return distinct_rows(columns.astype(np.int32)).astype(np.int64)


def _lone_edge(facts: _Columns, turned: _Columns, num_relations: int) -> str:
    ours, theirs = ({tuple(row) for row in rows.tolist()} for rows in (facts, turned))
    head, relation, tail = min(ours ^ theirs)
    shown, missing = (
        ((head, relation, tail), (tail, relation + num_relations, head))
        if (head, relation, tail) in ours
        else ((tail, relation + num_relations, head), (head, relation, tail))
    )
    return (
        f"edge {shown[0]} -> {shown[2]} of type {shown[1]} has no edge {missing[0]} -> {missing[2]} of type "
        f"{missing[1]} beside it ({len(ours ^ theirs):,} such in all), so type + {num_relations} is not the inverse. "
        "Say inverse='none' where every edge is a fact, or add the missing edges."
    )


@dataclass(frozen=True, eq=False)
class EdgeColumns:
    """A graph whose entity ids are node numbers and whose relation ids are edge types."""

    graph: Graph
    edge_of: Tensor
    """[E] int64 the directed edge of each column; columns that repeat a fact share theirs."""
    column_of: Tensor
    """[2T] int64 the first column of each directed edge; with inverse="none" a fact's own for both directions."""

    @classmethod
    def of(
        cls,
        edge_index: Tensor,
        edge_type: Tensor,
        num_nodes: int,
        inverse: InverseEdges,
        relations: RelationVocabulary | None,
    ) -> EdgeColumns:
        """Number everything as the tensors do; `relations` are those of a context, numbered alike. O(E log E)."""
        edge_index, edge_type = checked_edges(edge_index, edge_type)
        check_below("edge_index", edge_index, num_nodes, "nodes")
        count = count_relations(edge_type, inverse) if relations is None else relations.num_relations
        kinds = tuple(numbered_labels("r", count)) if relations is None else relations.forward
        facts = forward_facts(edge_index, edge_type, count, inverse)
        store = Triples(
            Vocabulary(tuple(numbered_labels("e", num_nodes))),
            Vocabulary(kinds, "relation"),
            facts.astype("int32"),
        )
        graph = Graph.from_triples(store).to(edge_index.device)
        edge_of = graph.find_edges(edge_index[0].long(), edge_type.long(), edge_index[1].long())
        return cls(graph, edge_of, _columns(graph, edge_of))

    def queries_themselves(self, head: Tensor, relation: Tensor, column: Tensor) -> Tensor:
        """[B] the edge that each query (head [B], relation [B]) is, from its column [B]; -1 stays -1."""
        column = column.to(head.device).long()
        if column.shape != head.shape:
            raise DataError(
                f"hide is {list(column.shape)} for {len(head)} queries; each needs a column, or -1."
            )
        if len(column) and not -1 <= int(column.min()) <= int(column.max()) < len(self.edge_of):
            raise DataError(
                f"hide holds columns outside the {len(self.edge_of):,} of edge_index; -1 hides nothing."
            )
        if len(self.edge_of) == 0:
            return column
        edge = self.edge_of[column.clamp(min=0)]  # [B] in the direction of its column
        edge = torch.where(self._starts(edge, head, relation), edge, self.graph.edge_inverse[edge].long())
        wrong = ~self._starts(edge, head, relation) & (column >= 0)
        if bool(wrong.any()):
            row = int(wrong.nonzero()[0])
            raise DataError(
                f"hide: column {int(column[row])} is not an edge of type {int(relation[row])} at node {int(head[row])} "
                "nor the inverse of one. Hide the edge that the query itself is."
            )
        return torch.where(column < 0, column, edge)

    def _starts(self, edge: Tensor, head: Tensor, relation: Tensor) -> Tensor:
        return (self.graph.edge_head[edge] == head) & (self.graph.edge_relation[edge] == relation)


def _columns(graph: Graph, edge_of: Tensor) -> Tensor:
    """[2T] the first column of each edge; one that has none of its own is another's, walked back."""
    size = len(edge_of)
    first = torch.full((graph.num_edges,), size, device=graph.device)
    first = first.scatter_reduce(0, edge_of, torch.arange(size, device=graph.device), reduce="amin")
    return torch.where(first == size, first[graph.edge_inverse.long()], first)
