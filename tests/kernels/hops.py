"""Random hops, and `aggregate` as plain loops over plain numbers: what every backend has to equal."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from contextpool.kernels.hop import Hop
from contextpool.kernels.reference import FULL, STD_EPSILON, Stream

REDUCTIONS = ("sum", "mean", "max", "min", "std")


def random_hop(
    seed: int, num_directed: int = 6, *, most_targets: int = 9, most_edges: int = 30, num_views: int = 2
) -> Hop:
    """Isolated targets, a hub, parallel edges; every seventh has no edges, every eleventh no targets."""
    rng = random.Random(seed)
    num_targets = 0 if seed % 11 == 10 else rng.randint(1, most_targets)
    num_sources = rng.randint(1, num_targets) if num_targets else 0
    num_queries = max(1, num_sources // 2)
    count = 0 if num_targets == 0 or seed % 7 == 6 else rng.randint(1, most_edges)
    hub = rng.randrange(num_targets) if num_targets else 0
    target = sorted(hub if rng.random() < 0.3 else rng.randrange(num_targets) for _ in range(count))
    return hop_of(
        source=[
            rng.randrange(rng.choice((num_sources, num_targets))) for _ in range(count)
        ],  # some without a state
        target=target,
        relation=[rng.randrange(num_directed) for _ in range(count)],
        views=[rng.randrange(2**num_views) for _ in range(count)],
        node_query=[rng.randrange(num_queries) for _ in range(num_targets)],
        num_sources=num_sources,
    )


def drawn(seed: int) -> Callable[..., Tensor]:
    """Tensors of a shape, one after the other; small integers at every other seed, so that extremes tie."""
    generator = torch.Generator().manual_seed(seed)

    def values(*shape: int) -> Tensor:
        if seed % 2:
            return torch.randint(-2, 3, shape, generator=generator).float()
        return torch.randn(*shape, generator=generator)

    return values


def hop_of(
    source: list[int],
    target: list[int],
    relation: list[int],
    node_query: list[int],
    num_sources: int,
    views: list[int] | None = None,
) -> Hop:
    """A hop from plain lists; `target` ascends."""
    targets = torch.tensor(target, dtype=torch.int64)
    return Hop(
        num_sources=num_sources,
        num_targets=len(node_query),
        row_start=torch.searchsorted(targets, torch.arange(len(node_query) + 1)),
        edge_source=torch.tensor(source, dtype=torch.int64),
        edge_relation=torch.tensor(relation, dtype=torch.int64),
        edge_views=torch.tensor(views or [0] * len(source), dtype=torch.uint8),
        node_query=torch.tensor(node_query, dtype=torch.int64),
    )


def literal_aggregate(
    hop: Hop,
    state: Tensor,
    streams: Sequence[Stream],
    message: str,
    reductions: Sequence[str],
    boundary: Tensor | None,
    edge_weight: Tensor | None,
) -> tuple[list[Tensor], list[list[int]]]:
    """One target, one edge, one number after the other."""
    results, degrees = [], []
    for stream in streams:
        rows, degree = [], []
        for target in range(hop.num_targets):
            edges = [edge for edge in range(hop.num_edges) if _takes_part(hop, stream, edge, target)]
            received = [_sent(hop, state, stream, message, edge, edge_weight) for edge in edges]
            if boundary is not None:
                row = boundary[target].tolist() if target < len(boundary) else [0.0] * state.size(1)
                received.append(row)
            rows.append([_reduced(name, received, state.size(1)) for name in reductions])
            degree.append(len(received))
        shape = (hop.num_targets, len(reductions), state.size(1))
        results.append(torch.tensor(rows, dtype=state.dtype).reshape(shape))
        degrees.append(degree)
    return results, degrees


def _takes_part(hop: Hop, stream: Stream, edge: int, target: int) -> bool:
    in_stream = stream.view == FULL or (int(hop.edge_views[edge]) >> stream.view) % 2 == 1
    walked = int(hop.edge_source[edge]) < hop.num_sources
    return in_stream and walked and int(hop.edge_target[edge]) == target


def _sent(
    hop: Hop, state: Tensor, stream: Stream, message: str, edge: int, edge_weight: Tensor | None
) -> list[float]:
    relation, weight = int(hop.edge_relation[edge]), stream.relation_weight
    by_query = weight if weight.dim() == 2 else weight[int(hop.node_query[int(hop.edge_target[edge])])]
    one, other = state[int(hop.edge_source[edge])].tolist(), by_query[relation].tolist()
    factor = 1.0 if edge_weight is None else float(edge_weight[edge])
    return [factor * value for value in _composed(message, one, other)]


def _composed(message: str, one: list[float], other: list[float]) -> list[float]:
    if message == "distmult":
        return [a * b for a, b in zip(one, other, strict=True)]
    return [a + b for a, b in zip(one, other, strict=True)]


def _reduced(name: str, received: list[list[float]], dim: int) -> list[float]:
    if not received:
        return [0.0] * dim
    columns = list(zip(*received, strict=True))
    if name in ("max", "min"):
        return [(max if name == "max" else min)(column) for column in columns]
    if name == "sum":
        return [math.fsum(column) for column in columns]
    means = [math.fsum(column) / len(column) for column in columns]
    if name == "mean":
        return means
    variances = [
        math.fsum((value - mean) ** 2 for value in column) / len(column)
        for column, mean in zip(columns, means, strict=True)
    ]
    return [math.sqrt(max(variance, STD_EPSILON)) for variance in variances]
