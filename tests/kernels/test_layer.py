"""The fused layer against its two halves in plain torch, with the edges of views as bits and gathered in rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from contextpool.kernels.layer import next_states
from contextpool.kernels.reference import FULL, Stream
from contextpool.kernels.update import UpdateWeights
from contextpool.pool.propagation import Hop, ViewRows
from kernels.hops import drawn, random_hop
from kernels.poison import no_quiet_memory as no_quiet_memory
from kernels.triton_here import DEVICE, needs_triton
from learning_worlds import one_thread as one_thread
from support import amount

pytestmark = needs_triton
PNA = ("mean", "max", "min", "std")
DIRECTED, DIM, HEADS = 6, 16, 2
CASES = amount(4, 60)


def gathered(hop: Hop) -> ViewRows:
    """By plain lists, wider than it has to be; the order of targets is the hop's own."""
    assert hop.order is not None
    starts, sources, relations, orders, listed = [], [], [], [], []
    for view in range(2):
        kept = [
            [
                edge
                for edge in range(int(hop.row_start[target]), int(hop.row_start[target + 1]))
                if int(hop.edge_views[edge]) >> view & 1 and int(hop.edge_source[edge]) < hop.num_sources
            ]
            for target in range(hop.num_targets)
        ]
        flat = [edge for row in kept for edge in row]
        ends = torch.tensor([len(row) for row in kept], dtype=torch.int64).cumsum(0)
        starts.append(torch.cat([torch.zeros(1, dtype=torch.int64), ends, torch.tensor([-7])]))
        sources.append(_padded([int(hop.edge_source[edge]) for edge in flat], hop.num_edges))
        relations.append(_padded([int(hop.edge_relation[edge]) for edge in flat], hop.num_edges))
        rows = [target for target in hop.order.tolist() if kept[target] or target < HEADS]
        orders.append(_padded(rows, hop.num_targets))
        listed.append([10**6, len(rows)])
    tables = (torch.stack(table).to(DEVICE) for table in (starts, sources, relations, orders))
    return ViewRows(*tables, torch.tensor(listed, device=DEVICE))


def _padded(values: list[int], width: int) -> Tensor:
    return torch.tensor([*values, *[10**8] * (width + 3 - len(values))], dtype=torch.int32)


def on_device(hop: Hop, how: str) -> Hop:
    order = torch.sort(hop.row_start.diff(), descending=True).indices.int()
    hubs = torch.nonzero(hop.row_start.diff() > 4).squeeze(1).int()
    tiled = replace(hop, order=order, hubs=hubs)
    here = replace(
        tiled,
        row_start=hop.row_start.to(DEVICE),
        edge_source=hop.edge_source.int().to(DEVICE),
        edge_relation=hop.edge_relation.int().to(DEVICE),
        edge_views=hop.edge_views.to(DEVICE),
        node_query=hop.node_query.to(DEVICE),
        order=order.to(DEVICE),
        hubs=hubs.to(DEVICE),
        layer=1,
    )
    if how == "by row":
        return replace(here, order=None, hubs=None)
    return here if how == "bits" else replace(here, view_rows=gathered(tiled))


def inputs(hop: Hop, seed: int, streams: int) -> dict[str, Tensor]:
    values = drawn(seed)
    queries = int(hop.node_query.max()) + 1
    given = {"state": values(hop.num_sources, DIM), "boundary": values(min(HEADS, hop.num_targets), DIM)}
    given |= {"own": values(DIM, DIM), "bias": values(DIM), "gamma": values(DIM), "beta": values(DIM)}
    for stream in range(streams):
        given[f"relation{stream}"] = values(queries, DIRECTED, DIM)
        given[f"weight{stream}"] = values(3 * DIM, 4 * DIM) / 8
    return given


def stepped(
    hop: Hop, given: dict[str, Tensor], streams: int, device: str, **options: Any
) -> tuple[Tensor, dict[str, Tensor]]:
    leaf = {name: value.to(device).clone().requires_grad_() for name, value in given.items()}
    sent = [Stream(view, leaf[f"relation{number}"]) for number, view in enumerate((FULL, 1, 0)[:streams])]
    matrices = [leaf[f"weight{stream}"] for stream in range(streams)]
    log_degree = torch.tensor(1.7, device=device)
    weights = UpdateWeights(leaf["own"], leaf["bias"], matrices, leaf["gamma"], leaf["beta"], log_degree, 3)
    result = next_states(
        hop, leaf["state"], sent, weights, message="distmult", reductions=PNA, boundary=leaf["boundary"], **options
    )  # fmt: skip
    (result * torch.linspace(-1, 1, result.numel(), device=device).view_as(result)).sum().backward()
    return result.detach().cpu(), {
        name: value.grad.cpu() for name, value in leaf.items() if value.grad is not None
    }


def cases(first: int) -> Iterator[tuple[int, Hop]]:
    hops = (
        (seed, random_hop(seed, DIRECTED, most_targets=20, most_edges=60)) for seed in range(first, 10**6)
    )
    found = ((seed, hop) for seed, hop in hops if hop.num_targets)
    return (next(found) for _ in range(CASES))


def apart(one: Tensor, other: Tensor) -> float:
    """As a share of the whole: single relus may flip where a value is zero but for rounding."""
    return float((one - other).norm() / one.norm().clamp(min=1e-2))


@pytest.mark.parametrize("how", ["by row", "bits", "gathered"])
@pytest.mark.parametrize("streams", [1, 3])
@pytest.mark.parametrize("in_order", [False, True], ids=["atomic", "in order"])
def test_a_layer_is_its_halves(
    how: str, streams: int, in_order: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("contextpool.kernels.triton.HUB_EDGES", 4)
    without = 0
    for seed, hop in cases(streams):
        given = inputs(hop, seed, streams)
        options = {"short_cut": seed % 3 > 0}
        expected, expected_grads = stepped(hop, given, streams, "cpu", **options, backend="reference")
        torch.use_deterministic_algorithms(in_order)
        try:
            found, grads = stepped(on_device(hop, how), given, streams, DEVICE, **options, backend="triton")
        finally:
            torch.use_deterministic_algorithms(False)
        assert apart(expected, found) < 1e-4
        assert expected_grads.keys() == grads.keys()
        for name, grad in expected_grads.items():
            assert apart(grad, grads[name]) < 1e-2, (seed, name)
        without += int((hop.row_start.diff() == 0).sum())
    assert without > 0
