"""The definitions in plain torch: what every fast backend has to equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from contextpool.errors import ConfigError
from contextpool.kernels.hop import Hop

Message = Literal["distmult", "transe"]
Reduction = Literal["sum", "mean", "max", "min", "std"]
FULL = -1
"""The stream over all edges; stream v >= 0 is over the edges of view v."""

STD_EPSILON = 1e-6
MIN_SCALE = 1e-2
"""What a degree scaler is divided by at least."""


@dataclass(frozen=True)
class Stream:
    """One accumulation over a hop: which edges, with which relation weights."""

    view: int
    """FULL, or the number of a context view."""
    relation_weight: Tensor
    """[2R, D], or [B, 2R, D] where it depends on the query."""


def aggregate(
    hop: Hop,
    state: Tensor,
    streams: list[Stream],
    *,
    message: Message,
    reductions: tuple[Reduction, ...],
    boundary: Tensor | None = None,
    edge_weight: Tensor | None = None,
) -> tuple[list[Tensor], list[Tensor]]:
    """Messages along the edges of a hop, reduced at their targets, once per stream.

    `state` [num_sources, D] -> per stream [num_targets, len(reductions), D], and per stream the number of
    messages that were reduced [num_targets] (the boundary counts as one). A target without messages gets
    zeros. `boundary` [at most num_targets, D] joins every target's messages as one more, zeros where it has no
    row; `edge_weight` [K] multiplies messages. Edges whose source has no state yet send nothing. max and min
    pass their gradient to the messages that attain them, ties share it.
    """
    check(message, reductions)
    if boundary is not None:
        boundary = functional.pad(boundary, (0, 0, 0, hop.num_targets - len(boundary)))
    results, degrees = [], []
    for stream in streams:
        edges = edges_of_stream(hop, stream.view)
        sent, target = _messages(hop, state, stream.relation_weight, message, edge_weight, edges)
        degree = torch.bincount(target, minlength=hop.num_targets)
        if boundary is not None:
            degree = degree + 1
        parts = [_reduce(name, sent, target, degree, boundary, hop.num_targets) for name in reductions]
        results.append(torch.stack(parts, dim=1))
        degrees.append(degree)
    return results, degrees


def edges_of_stream(hop: Hop, view: int) -> Tensor | None:
    """Which edges of a hop take part; None for all of them."""
    if hop.complete and view == FULL:
        return None
    walked = hop.edge_source < hop.num_sources
    return torch.nonzero(walked if view == FULL else walked & hop.in_view(view)).squeeze(1)


def check(message: str, reductions: tuple[str, ...]) -> None:
    if message not in get_args(Message):
        raise ConfigError(f"message is {message!r}; it is one of {', '.join(get_args(Message))}.")
    for name in reductions:
        if name not in get_args(Reduction):
            raise ConfigError(f"reduction is {name!r}; it is one of {', '.join(get_args(Reduction))}.")


def _messages(
    hop: Hop,
    state: Tensor,
    weight: Tensor,
    message: Message,
    edge_weight: Tensor | None,
    edges: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Messages [K, D] and their targets [K]; `edges` chooses some of the hop's edges."""
    source, target, relation = hop.edge_source, hop.edge_target, hop.edge_relation
    if edges is not None:
        source, target, relation = source[edges].long(), target[edges], relation[edges].long()
    if weight.dim() == 3:
        by_query = weight.flatten(0, 1)  # [B * 2R, D]
        edge_relation_weight = by_query[hop.node_query[target] * weight.size(1) + relation]
    else:
        edge_relation_weight = weight[relation]
    sent = compose(state[source], edge_relation_weight, message)
    if edge_weight is not None:
        chosen = edge_weight if edges is None else edge_weight[edges]
        sent = sent * chosen[:, None]
    return sent, target


def compose(state: Tensor, weight: Tensor, message: Message) -> Tensor:
    """How a state [K, D] and a relation [K, D] make a message [K, D]."""
    return state * weight if message == "distmult" else state + weight


def _reduce(
    name: Reduction, sent: Tensor, target: Tensor, degree: Tensor, boundary: Tensor | None, num_targets: int
) -> Tensor:
    """[num_targets, D]"""
    if name in ("max", "min"):
        return _extreme(name, sent, target, degree, boundary)
    total = _sum(sent, target, boundary, num_targets)
    if name == "sum":
        return total
    count = degree.clamp(min=1)[:, None].to(sent.dtype)
    mean = total / count
    if name == "mean":
        return mean
    square = _sum(sent * sent, target, None if boundary is None else boundary * boundary, num_targets) / count
    deviation = (square - mean * mean).clamp(min=STD_EPSILON).sqrt()
    return deviation * (degree > 0)[:, None]


def _sum(sent: Tensor, target: Tensor, boundary: Tensor | None, num_targets: int) -> Tensor:
    start = sent.new_zeros(num_targets, sent.size(1)) if boundary is None else boundary
    return start.index_add(0, target, sent)


def _extreme(name: str, sent: Tensor, target: Tensor, degree: Tensor, boundary: Tensor | None) -> Tensor:
    how = "amax" if name == "max" else "amin"
    place = target[:, None].expand_as(sent)
    if boundary is not None:
        return boundary.scatter_reduce(0, place, sent, how, include_self=True)
    # Any message beats where this starts; a start at zero would take part of the gradient of a zero.
    start = sent.new_full((len(degree), sent.size(1)), -torch.inf if name == "max" else torch.inf)
    found = start.scatter_reduce(0, place, sent, how, include_self=True)
    return found.masked_fill((degree == 0)[:, None], 0.0)


@dataclass(frozen=True)
class UpdateWeights:
    """The parameters of an update; `scalers` is 3 with PNA's degree scalers, 1 without."""

    own_weight: Tensor  # [D, D]
    own_bias: Tensor  # [D]
    received_weight: Sequence[Tensor]  # per stream [scalers * D, reductions * D]
    norm_weight: Tensor | None  # [D]
    norm_bias: Tensor | None  # [D]
    log_degree: Tensor  # [] PNA's constant, the training graph's
    scalers: int
    norm_eps: float = 1e-5

    @classmethod
    def of(
        cls, own: nn.Linear, received: Sequence[nn.Linear], norm: nn.Module, log_degree: Tensor, scalers: int
    ) -> UpdateWeights:
        """From the modules of a layer; a norm that is no `LayerNorm` is none."""
        weights = [linear.weight for linear in received]
        if isinstance(norm, nn.LayerNorm):
            return cls(own.weight, own.bias, weights, norm.weight, norm.bias, log_degree, scalers, norm.eps)
        return cls(own.weight, own.bias, weights, None, None, log_degree, scalers)


def update_states(
    state: Tensor,
    results: Sequence[Tensor],
    degrees: Sequence[Tensor],
    weights: UpdateWeights,
    *,
    short_cut: bool,
) -> Tensor:
    """[num_sources, D], per stream [M, reductions, D] and degrees [M] -> relu(norm(update)) (+ state), [M, D].

    The update is own(state) plus, for every stream, received(result); with scalers its three parts are taken as
    they are, times log(degree) / log_degree, and divided by that. Nodes that are reached only now have state 0.
    """
    before = functional.pad(state, (0, 0, 0, len(results[0]) - len(state)))
    update = functional.linear(before, weights.own_weight, weights.own_bias)
    for matrix, result, degree in zip(weights.received_weight, results, degrees, strict=True):
        update = update + _scaled(functional.linear(result.flatten(1), matrix), degree, weights)
    if weights.norm_weight is not None:
        shape = weights.norm_weight.shape
        update = functional.layer_norm(
            update, shape, weights.norm_weight, weights.norm_bias, weights.norm_eps
        )
    after = torch.relu(update)
    return after + before if short_cut else after


def _scaled(projected: Tensor, degree: Tensor, weights: UpdateWeights) -> Tensor:
    """PNA's degree scalers are numbers per node: scaling the projection equals projecting scaled copies."""
    if weights.scalers == 1:
        return projected
    plain, amplified, damped = projected.chunk(3, dim=1)
    scale = (degree.clamp(min=1).log() / weights.log_degree).to(projected.dtype)[:, None]
    return plain + scale * amplified + damped / scale.clamp(min=MIN_SCALE)


def edge_values(table: Tensor, query: Tensor, relation: Tensor) -> Tensor:
    """[K] `table[query, relation]` of a table [B, R], for `query` and `relation` [K]."""
    return table.reshape(-1).index_select(0, query * table.size(1) + relation)


def edge_attention(
    by_node: Tensor,
    by_relation: Tensor,
    last: Tensor,
    last_bias: Tensor,
    source: Tensor,
    relation: Tensor,
    query: Tensor,
) -> Tensor:
    """RED-GNN's attention [K]: sigmoid(last . relu(by_node[source] + by_relation[query, relation]) + last_bias).

    `by_node` is [M, A], `by_relation` [B, R, A], `last` [1, A], `last_bias` [1]; `source`, `relation` and `query` [K].
    """
    place = query * by_relation.size(1) + relation
    hidden = by_node.index_select(0, source) + by_relation.flatten(0, 1).index_select(0, place)
    return torch.sigmoid(functional.linear(torch.relu(hidden), last, last_bias).squeeze(1))


def node_scores(
    state: Tensor, by_query: Tensor, node_query: Tensor, weight: Tensor, last: Tensor, last_bias: Tensor
) -> Tensor:
    """The scoring head, scores [M]: last . relu(weight state + by_query[node_query]) + last_bias.

    `state` is [M, D], `by_query` [B, H] (the query's part of the first product, the same for all its nodes),
    `node_query` [M], `weight` [H, D], `last` [1, H], `last_bias` [1].
    """
    hidden = functional.linear(state, weight) + by_query.index_select(0, node_query)
    return functional.linear(torch.relu(hidden), last, last_bias).squeeze(1).float()
