"""The fused layer against its two halves in plain torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
import torch
from torch import Tensor

from contextpool.kernels.hop import Hop, LaunchPlan
from contextpool.kernels.interface import next_states
from contextpool.kernels.reference import FULL, Stream, UpdateWeights
from kernels.hops import drawn, random_hop
from kernels.poison import no_quiet_memory as no_quiet_memory
from kernels.triton_here import DEVICE, INTERPRETED, needs_triton
from kernels.triton_here import few_programs as few_programs
from learning_worlds import one_thread as one_thread
from support import SOAK, amount, combinations

pytestmark = needs_triton
PNA = ("mean", "max", "min", "std")
DIRECTED, DIM, HEADS = 6, 16, 2
CASES = amount(2, 60)
WHOLE = SOAK or not INTERPRETED
MOST = (20, 60) if WHOLE else (10, 30)
"""Targets and edges."""


def on_device(hop: Hop, how: str) -> Hop:
    order = torch.sort(hop.row_start.diff(), descending=True).indices.int()
    hubs = torch.nonzero(hop.row_start.diff() > 4).squeeze(1).int()
    here = replace(
        hop,
        row_start=hop.row_start.to(DEVICE),
        edge_source=hop.edge_source.int().to(DEVICE),
        edge_relation=hop.edge_relation.int().to(DEVICE),
        edge_views=hop.edge_views.to(DEVICE),
        node_query=hop.node_query.to(DEVICE),
    )
    if how == "by row":
        return here
    return replace(here, plan=LaunchPlan(here.sizes, order.to(DEVICE), hubs.to(DEVICE)))


def inputs(hop: Hop, seed: int, streams: int) -> dict[str, Tensor]:
    values = drawn(seed)
    queries = int(hop.node_query.max()) + 1
    given = {"state": values(hop.num_sources, DIM), "boundary": values(min(HEADS, hop.num_targets), DIM)}
    given |= {"own": values(DIM, DIM), "bias": values(DIM), "gamma": values(DIM), "beta": values(DIM)}
    given["edge"] = values(hop.num_edges)
    for stream in range(streams):
        given[f"relation{stream}"] = values(queries, DIRECTED, DIM)
        given[f"weight{stream}"] = values(3 * DIM, 4 * DIM) / 8
    return given


def stepped(
    hop: Hop,
    given: dict[str, Tensor],
    streams: int,
    device: str,
    *,
    boundary: bool = True,
    weighted: bool = False,
    norm: bool = True,
    scalers: int = 3,
    reductions: Any = PNA,
    **options: Any,
) -> tuple[Tensor, dict[str, Tensor]]:
    """New states and every gradient."""
    leaf = {name: value.to(device).clone().requires_grad_() for name, value in given.items()}
    sent = [Stream(view, leaf[f"relation{number}"]) for number, view in enumerate((FULL, 1, 0)[:streams])]
    shape = (scalers * DIM, len(reductions) * DIM)
    matrices = [leaf[f"weight{stream}"][: shape[0], : shape[1]] for stream in range(streams)]
    of_norm = (leaf["gamma"], leaf["beta"]) if norm else (None, None)
    log_degree = torch.tensor(1.7, device=device)
    weights = UpdateWeights(leaf["own"], leaf["bias"], matrices, *of_norm, log_degree, scalers)
    result = next_states(
        hop, leaf["state"], sent, weights, reductions=reductions, boundary=leaf["boundary"] if boundary else None,
        edge_weight=leaf["edge"] if weighted else None, **options,
    )  # fmt: skip
    (result * torch.linspace(-1, 1, result.numel(), device=device).view_as(result)).sum().backward()
    return result.detach().cpu(), {
        name: value.grad.cpu() for name, value in leaf.items() if value.grad is not None
    }


def cases(first: int) -> Iterator[tuple[int, Hop]]:
    """12 and 5 have two queries, hubs and isolated targets, without and with the short cut; then any."""
    hops = (
        (seed, random_hop(seed, DIRECTED, most_targets=MOST[0], most_edges=MOST[1]))
        for seed in chain((12, 5), range(first, 10**6))
    )
    found = ((seed, hop) for seed, hop in hops if hop.num_targets)
    return (next(found) for _ in range(CASES))


def apart(one: Tensor, other: Tensor) -> float:
    """As a share of the whole: single relus may flip where a value is zero but for rounding."""
    return float((one - other).norm() / one.norm().clamp(min=1e-2))


def assert_fused_is_plain(hop: Hop, seed: int, streams: int, how: str, **options: Any) -> None:
    given = inputs(hop, seed, streams)
    options = {"short_cut": seed % 3 > 0, "message": "distmult"} | options
    expected, expected_grads = stepped(hop, given, streams, "cpu", **options, backend="reference")
    found, grads = stepped(on_device(hop, how), given, streams, DEVICE, **options, backend="triton")
    assert apart(expected, found) < 1e-4
    assert expected_grads.keys() == grads.keys()
    for name, grad in expected_grads.items():
        assert apart(grad, grads[name]) < 1e-2, (seed, name)


@pytest.fixture(autouse=True)
def hubs_of_few_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("contextpool.kernels.triton.HUB_EDGES", 4)


@pytest.mark.parametrize(
    ("how", "streams", "in_order"), combinations(["by row", "in tiles"], [1, 3], [False, True], whole=WHOLE)
)
def test_a_layer_is_its_halves(how: str, streams: int, in_order: bool) -> None:
    without = 0
    for seed, hop in cases(streams):
        torch.use_deterministic_algorithms(in_order)
        try:
            assert_fused_is_plain(hop, seed, streams, how)
        finally:
            torch.use_deterministic_algorithms(False)
        without += hop.num_targets - len(set(hop.edge_target[hop.in_view(0)].tolist()))
    assert without > CASES


OPTIONS: dict[str, dict[str, Any]] = {
    "transe": {"message": "transe"},
    "no boundary": {"boundary": False},
    "sum": {"reductions": ("sum",), "scalers": 1, "norm": False},
    "weighted": {"weighted": True},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_every_option(options: dict[str, Any]) -> None:
    for seed, hop in cases(50):
        assert_fused_is_plain(hop, seed, 3, "in tiles", **options)


def test_programs_that_take_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    from contextpool.kernels import triton_update

    monkeypatch.setattr("contextpool.kernels.triton.TILE_PROGRAMS", 1)
    monkeypatch.setattr(triton_update, "PROGRAMS", 1)
    for name in ("FORWARD", "BACKWARD", "WEIGHTS"):
        monkeypatch.setattr(triton_update, name, triton_update.Tiling(16, 4096))
    hop = random_hop(74, DIRECTED, most_targets=40, most_edges=60)
    assert hop.num_targets == 40  # three tiles of the update, one program
    assert_fused_is_plain(hop, 74, 3, "in tiles")
