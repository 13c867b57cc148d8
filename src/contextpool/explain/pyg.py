"""An explanation as PyG has them: a mask over the edges of the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from contextpool.errors import MissingExtraError
from contextpool.explain.evidence import Explanation
from contextpool.graph.graph import Graph
from contextpool.graph.pyg import InverseEdges

if TYPE_CHECKING:
    from torch_geometric.explain import Explanation as PyGExplanation


def explanation_to_pyg(
    explanation: Explanation, graph: Graph, *, inverse: InverseEdges = "offset"
) -> PyGExplanation:
    """`torch_geometric.explain.Explanation` over the edges of `graph.to_pyg(inverse=inverse)`, in their order.

    `edge_mask` [E] is the weight of the paths through an edge, in the direction they walk it (with "none": in either);
    weights of all paths add up to 1. `paths`, `path_weight`, `query` and `answer` (node numbers) and `prediction` (the
    score) say the rest. `get_explanation_subgraph()` leaves the paths.
    """
    try:
        from torch_geometric.explain import Explanation as PyGExplanation
    except ImportError:
        raise MissingExtraError("torch_geometric", "pyg", "An explanation for PyG") from None
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
