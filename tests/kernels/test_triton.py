"""What is Triton's alone: rows of hubs, rows that are only room, and sums in a fixed order."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from contextpool.kernels.hop import Hop, LaunchPlan
from contextpool.kernels.reference import FULL, Stream
from contextpool.kernels.reference import aggregate as reference_aggregate
from kernels.hops import drawn, random_hop
from kernels.poison import no_quiet_memory as no_quiet_memory
from kernels.triton_here import DEVICE, needs_triton
from support import amount

pytestmark = needs_triton
PNA = ("mean", "max", "min", "std")
DIRECTED, DIM = 6, 8
CASES = amount(3, 100)


def on_device(hop: Hop) -> Hop:
    """As the device builder makes them: int32 columns."""
    return replace(
        hop,
        row_start=hop.row_start.to(DEVICE),
        edge_source=hop.edge_source.int().to(DEVICE),
        edge_relation=hop.edge_relation.int().to(DEVICE),
        edge_views=hop.edge_views.to(DEVICE),
        node_query=hop.node_query.to(DEVICE),
    )


def inputs(hop: Hop, seed: int) -> list[Tensor]:
    """State, boundary and three relation weights."""
    values = drawn(seed)
    queries = int(hop.node_query.max()) + 1
    weights = [values(queries, DIRECTED, DIM) for _ in range(3)]
    return [values(hop.num_sources, DIM), values(min(2, hop.num_targets), DIM), *weights]


def aggregated(run, hop: Hop, given: list[Tensor], device: str, real_targets: int) -> list[Tensor]:  # type: ignore[no-untyped-def]
    """Results and gradients of the first targets."""
    state, boundary, *weights = (value.to(device).clone().requires_grad_() for value in given)
    streams = [Stream(view, weight) for view, weight in zip((FULL, 1, 0), weights, strict=True)]
    results, degrees = run(hop, state, streams, message="distmult", reductions=PNA, boundary=boundary)
    real = [result[:real_targets] for result in results]
    sum((one * torch.arange(1, DIM + 1, device=device)).sum() for one in real).backward()
    grads = [value.grad for value in (state, boundary, *weights)]
    kept = [*real, *(degree[:real_targets].float() for degree in degrees), *grads]
    return [value.detach().cpu() for value in kept]


def check(hop: Hop, given: list[Tensor], changed: Hop, real_targets: int | None = None) -> None:
    from contextpool.kernels.triton import aggregate

    targets = hop.num_targets if real_targets is None else real_targets
    expected = aggregated(reference_aggregate, hop, given, "cpu", targets)
    found = aggregated(aggregate, changed, given, DEVICE, targets)
    for one, other in zip(expected, found, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-4, atol=2e-4)


def cases(first: int) -> list[tuple[int, Hop]]:
    hops = ((seed, random_hop(seed, DIRECTED)) for seed in range(first, first + 2 * CASES))
    return [(seed, hop) for seed, hop in hops if hop.num_targets][:CASES]


def test_hubs_have_programs_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of the targets with many edges, with one past the targets: an entity that was not reached."""
    monkeypatch.setattr("contextpool.kernels.triton.HUB_EDGES", 4)
    longest = 0
    for seed, hop in cases(0):
        many = torch.nonzero(hop.row_start.diff() > 4).squeeze(1)
        longest += len(many)
        hubs = torch.cat([many, torch.tensor([10**6])]).int().to(DEVICE)
        order = torch.sort(hop.row_start.diff(), descending=True).indices.int().to(DEVICE)
        check(
            hop,
            inputs(hop, seed),
            replace(on_device(hop), plan=LaunchPlan(hop.sizes.to(DEVICE), order, hubs)),
        )
    assert longest > CASES // 2


def test_targets_that_are_only_room_are_left_alone() -> None:
    """Twice the rows: `sizes` says that only the first half are there; bounds of the others are anything."""
    for seed, hop in cases(100):
        here = on_device(hop)
        junk = torch.full((hop.num_targets,), 7, device=DEVICE)
        padded = replace(
            here,
            num_targets=2 * hop.num_targets,
            row_start=torch.cat([here.row_start, junk]),
            node_query=torch.cat([here.node_query, torch.zeros_like(junk)]),
            plan=LaunchPlan(hop.sizes.to(DEVICE)),
        )
        check(hop, inputs(hop, seed), padded, hop.num_targets)
        order = torch.cat([torch.arange(hop.num_targets).flip(0), torch.full((hop.num_targets,), 10**6)])
        none = torch.zeros(0, dtype=torch.int32, device=DEVICE)
        tiled = replace(padded, plan=LaunchPlan(hop.sizes.to(DEVICE), order.int().to(DEVICE), none))
        check(hop, inputs(hop, seed), tiled, hop.num_targets)


def test_sums_in_a_fixed_order_are_the_same_sums() -> None:
    for seed, hop in cases(200):
        torch.use_deterministic_algorithms(True)
        try:
            check(hop, inputs(hop, seed), on_device(hop))
        finally:
            torch.use_deterministic_algorithms(False)
