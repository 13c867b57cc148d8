"""Which column of a PyG edge_index belongs to which edge of a Graph, and back."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from contextpool.errors import DataError
from contextpool.graph.graph import Graph
from contextpool.graph.pyg import InverseEdges, check_below, checked_edges, count_relations, forward_facts
from contextpool.graph.relations import RelationVocabulary
from contextpool.triples.labels import Vocabulary
from contextpool.triples.numbered import numbered_labels
from contextpool.triples.store import Triples


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
