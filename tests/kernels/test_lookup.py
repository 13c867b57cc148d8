"""Numbers of edges against one edge after the other: values and gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from contextpool.kernels.interface import edge_values
from kernels.poison import no_quiet_memory as no_quiet_memory
from kernels.triton_here import DEVICE, needs_triton
from support import amount

QUERIES, RELATIONS = 3, 7
BACKENDS = [("cpu", "auto"), pytest.param((DEVICE, "triton"), marks=needs_triton)]


@pytest.mark.parametrize("where", BACKENDS, ids=["torch", "triton"])
@pytest.mark.parametrize("integers", [torch.int32, torch.int64])
def test_is_looked_up_and_added_up_one_edge_after_the_other(where: Any, integers: torch.dtype) -> None:
    device, backend = where
    for seed in range(amount(6, 100)):
        draw = torch.Generator().manual_seed(seed)
        table = torch.randn(QUERIES, RELATIONS, generator=draw)
        edges = (0, 1, 700)[seed % 3]
        query = torch.randint(QUERIES, (edges,), generator=draw)
        relation = torch.randint(RELATIONS, (edges,), generator=draw)
        due = torch.randn(edges, generator=draw)
        due[::3] = 0.0  # edges that nobody walks
        sums = [[0.0] * RELATIONS for _ in range(QUERIES)]
        for row, column, value in zip(query.tolist(), relation.tolist(), due.tolist(), strict=True):
            sums[row][column] += value

        leaf = table.to(device).requires_grad_()
        found = edge_values(leaf, query.to(device), relation.to(device, integers), backend=backend)
        (gradient,) = torch.autograd.grad(found, leaf, due.to(device))

        assert found.tolist() == [
            table[row, column].item() for row, column in zip(query, relation, strict=True)
        ]
        torch.testing.assert_close(gradient.cpu(), torch.tensor(sums), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("where", BACKENDS, ids=["torch", "triton"])
def test_a_gradient_that_is_no_number_is_not_lost(where: Any) -> None:
    device, backend = where
    leaf = torch.ones(1, 2, device=device, requires_grad=True)
    zeros = torch.zeros(3, dtype=torch.int64, device=device)
    found = edge_values(leaf, zeros, zeros, backend=backend)
    due = torch.tensor([0.0, float("nan"), 1.0], device=device)
    (gradient,) = torch.autograd.grad(found, leaf, due)
    assert gradient[0, 0].isnan()
    assert gradient[0, 1] == 0


@needs_triton
def test_sums_in_a_fixed_order_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def in_any_order(*given: Any) -> None:
        raise AssertionError("atomics add in an order that changes")

    monkeypatch.setattr("contextpool.kernels.triton_heads.edge_values", in_any_order)
    leaf = torch.randn(2, 3, device=DEVICE, requires_grad=True)
    query, relation = torch.tensor([0, 1, 1], device=DEVICE), torch.tensor([2, 0, 0], device=DEVICE)
    with pytest.raises(AssertionError, match="atomics"):
        edge_values(leaf, query, relation, backend="triton")
    torch.use_deterministic_algorithms(True)
    try:
        found = edge_values(leaf, query, relation, backend="triton")
        (gradient,) = torch.autograd.grad(found.sum(), leaf)
    finally:
        torch.use_deterministic_algorithms(False)
    assert gradient.tolist() == [[0, 0, 1], [2, 0, 0]]
