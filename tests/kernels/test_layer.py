"""Aggregation and update as one function against one after the other in plain torch: values and every gradient."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from contextpool.kernels.layer import layer_states
from contextpool.kernels.reference import FULL, Stream
from contextpool.kernels.update import UpdateWeights
from contextpool.pool.propagation import Hop
from kernels.hops import random_hop
from kernels.test_triton import on_device
from kernels.triton_here import DEVICE, needs_triton
from learning_worlds import one_thread as one_thread

pytestmark = needs_triton
PNA = ("mean", "max", "min", "std")
DIRECTED, DIM, VIEWS = 6, 16, (FULL, 1, 0)
SEEDS = (0, 3, 6)  # the last has no edges


def layer_inputs(hop: Hop, seed: int, num_reductions: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def values(*shape: int, scale: float = 1.0) -> Tensor:
        return scale * torch.randn(*shape, generator=generator)

    queries = int(hop.node_query.max()) + 1
    given = {"state": values(hop.num_sources, DIM), "boundary": values(1, DIM)}
    given |= {"own": values(DIM, DIM, scale=0.2), "bias": values(DIM)}
    given |= {"gamma": values(DIM), "beta": values(DIM)}
    for stream in range(len(VIEWS)):
        given[f"relation{stream}"] = values(queries, DIRECTED, DIM)
        given[f"weight{stream}"] = values(3 * DIM, num_reductions * DIM, scale=0.1)
    return given


def layered(
    hop: Hop, given: dict[str, Tensor], reductions: Any, with_boundary: bool, backend: Any
) -> dict[str, Tensor]:
    """The result, and the gradient of every input."""
    device = DEVICE if backend == "triton" else "cpu"
    leaf = {name: value.to(device).clone().requires_grad_() for name, value in given.items()}
    result = layer_states(
        hop,
        leaf["state"],
        [Stream(view, leaf[f"relation{number}"]) for number, view in enumerate(VIEWS)],
        UpdateWeights(
            leaf["own"],
            leaf["bias"],
            [leaf[f"weight{number}"] for number in range(len(VIEWS))],
            leaf["gamma"],
            leaf["beta"],
            torch.tensor(1.7, device=device),
            3,
        ),
        message="distmult",
        reductions=reductions,
        boundary=leaf["boundary"] if with_boundary else None,
        short_cut=True,
        backend=backend,
    )
    (result * torch.linspace(-1, 1, result.numel(), device=device).view_as(result)).sum().backward()
    grads = {name: value.grad for name, value in leaf.items() if value.grad is not None}
    return {name: value.detach().cpu() for name, value in {"result": result, **grads}.items()}


@pytest.fixture(params=["together", "merged", "by mask"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows left out, and what is not written holds NaN instead of whatever was there."""
    monkeypatch.setattr("contextpool.kernels.triton_layer.TOGETHER", True)
    monkeypatch.setattr("contextpool.kernels.triton_layer.LEAVE_OUT", True)
    monkeypatch.setattr("contextpool.kernels.triton_update.MERGED", request.param == "merged")
    for name in ("BY_MASK", "APART", "IN_RUNS"):
        monkeypatch.setattr(f"contextpool.kernels.triton.{name}", request.param == "by mask")
    for name in ("empty", "empty_like"):
        monkeypatch.setattr(torch, name, poisoned(getattr(torch, name)))


def poisoned(make: Any) -> Any:
    def made(*shape: Any, **options: Any) -> Tensor:
        tensor: Tensor = make(*shape, **options)
        return tensor.fill_(float("nan")) if tensor.is_floating_point() else tensor

    return made


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("with_boundary", "reductions", "deterministic"),
    [(True, PNA, False), (True, PNA, True), (False, PNA, False), (True, ("max",), False)],
    ids=["pna", "in order", "no boundary", "max"],
)
def test_a_layer_is_an_update_of_an_aggregation(
    with_boundary: bool, reductions: Any, deterministic: bool
) -> None:
    for seed in SEEDS:
        hop = random_hop(seed, DIRECTED)
        if deterministic:  # which takes a walk's word that the ends of an edge are of one query
            hop = replace(hop, node_query=torch.zeros_like(hop.node_query))
        given = layer_inputs(hop, seed, len(reductions))
        order = torch.sort(hop.row_start.diff(), descending=True).indices.int().to(DEVICE)
        none = torch.zeros(0, dtype=torch.int32, device=DEVICE)
        here = on_device(hop)
        expected = layered(hop, given, reductions, with_boundary, "reference")
        torch.use_deterministic_algorithms(deterministic)
        try:
            for changed in (here, replace(here, order=order, hubs=none)):
                found = layered(changed, given, reductions, with_boundary, "triton")
                assert expected.keys() == found.keys()
                for name, value in expected.items():
                    assert float((value - found[name]).norm() / value.norm().clamp(min=1e-2)) < 5e-3, name
        finally:
            torch.use_deterministic_algorithms(False)
