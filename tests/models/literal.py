"""NBFNet and RED-GNN for one query, entity by entity and edge by edge, with the weights of a given model.

Written from the papers' equations and from what the design says about unreached nodes: they have no state and
send nothing, and means and degrees count messages of reached neighbors only.
"""

from __future__ import annotations

import torch
from torch import Tensor

from contextpool.graph.graph import Graph
from contextpool.models.nbfnet import NBFNet
from contextpool.models.redgnn import REDGNN

Edge = tuple[int, int, int]
"""head, directed relation, tail"""


def edges_of(graph: Graph) -> list[Edge]:
    columns = (graph.edge_head, graph.edge_relation, graph.edge_tail)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def literal_nbfnet(model: NBFNet, graph: Graph, head: int, relation: int) -> Tensor:
    """[N] scores. States start as the query's vector at the head; that vector joins the head's messages."""
    query = model.query.weight[relation]
    nothing = torch.zeros_like(query)
    state = {head: query}
    for layer in model.layers:
        received: dict[int, list[Tensor]] = {entity: [] for entity in state}
        by_relation = layer.relation[0](query).view(-1, len(query))  # type: ignore[operator,union-attr,index]  # [2R, D]
        for source, kind, target in edges_of(graph):
            if source in state:
                received.setdefault(target, []).append(state[source] * by_relation[kind])
        after = {}
        for entity, messages in received.items():
            before = state.get(entity, nothing)
            messages = [*messages, query if entity == head else nothing]
            columns = torch.cat([before, _aggregated(model, messages)])
            joint = torch.cat([layer.own.weight, _joint_weight(layer, len(query))], dim=1)  # type: ignore[operator,union-attr]
            update = torch.relu(layer.norm(joint @ columns + layer.own.bias))  # type: ignore[operator,union-attr]
            after[entity] = update + before
        state = after
    return torch.stack(
        [
            model.score(torch.cat([state.get(entity, nothing), query]))[0]
            for entity in range(graph.num_entities)
        ]
    )


def _aggregated(model: NBFNet, messages: list[Tensor]) -> Tensor:
    """What one linear layer would be given: PNA's aggregates as they are, amplified and damped."""
    stacked = torch.stack(messages)
    mean = stacked.mean(0)
    deviation = ((stacked - mean) ** 2).mean(0).clamp(min=1e-6).sqrt()
    plain = torch.cat([mean, stacked.amax(0), stacked.amin(0), deviation])
    scale = torch.tensor(float(len(messages))).log() / model.log_degree
    return torch.cat([plain, plain * scale, plain / max(float(scale), 1e-2)])


def _joint_weight(layer: torch.nn.Module, dim: int) -> Tensor:
    """[D, scalers * reductions * D] out of the layer's [scalers * D, reductions * D]."""
    return torch.cat(layer.received[0].weight.split(dim, dim=0), dim=1)  # type: ignore[index,union-attr,operator]


def literal_redgnn(model: REDGNN, graph: Graph, head: int, relation: int) -> Tensor:
    """[N] scores. Everyone reached also sends to itself, along a relation of its own (2R); the rest scores zero."""
    nothing = torch.zeros(model.settings.dim)
    activation = {"relu": torch.relu, "tanh": torch.tanh, "idd": lambda value: value}[
        model.settings.activation
    ]
    state = {head: nothing}
    for layer in model.layers:
        stream = layer.streams[0]  # type: ignore[index,union-attr]
        staying = [(entity, stream.stay, entity) for entity in state]
        received: dict[int, Tensor] = {}
        for source, kind, target in [*edges_of(graph), *staying]:
            if source not in state:
                continue
            hidden = (
                stream.from_state(state[source])
                + stream.from_relation(stream.relation.weight[kind])
                + stream.from_query(stream.relation.weight[relation])
            )
            attention = torch.sigmoid(stream.attention(torch.relu(hidden)))
            message = attention * (state[source] + stream.relation.weight[kind])
            received[target] = received.get(target, nothing) + message
        state = {
            entity: model.gru(activation(layer.update(total))[None], state.get(entity, nothing)[None])[0]  # type: ignore[operator]
            for entity, total in received.items()
        }
    return torch.stack(
        [
            model.score(state[entity])[0] if entity in state else torch.tensor(0.0)
            for entity in range(graph.num_entities)
        ]
    )
