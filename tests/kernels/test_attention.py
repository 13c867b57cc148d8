"""Fused attention against one edge after the other, and against plain torch: values and every gradient."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from contextpool.kernels.interface import edge_attention
from kernels.poison import no_quiet_memory as no_quiet_memory
from kernels.triton_here import DEVICE, needs_triton
from learning_worlds import one_thread as one_thread
from support import amount

QUERIES, RELATIONS, NODES = 3, 4, 11


def inputs(seed: int, width: int, edges: int) -> tuple[list[Tensor], list[Tensor]]:
    """What is learned, and source, relation and query of the edges."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(NODES, width), (QUERIES, RELATIONS, width), (1, width), (1,)]
    learned = [torch.randn(*shape, generator=generator) for shape in shapes]
    places = [torch.randint(size, (edges,), generator=generator) for size in (NODES, RELATIONS, QUERIES)]
    return learned, places


def results(backend: str, learned: list[Tensor], places: list[Tensor], due: Tensor) -> list[Tensor]:
    """Attention and the gradients of everything that is learned."""
    device = DEVICE if backend == "triton" else "cpu"
    leaves = [value.to(device).clone().requires_grad_() for value in learned]
    found = edge_attention(*leaves, *(place.to(device) for place in places), backend=backend)  # type: ignore[arg-type]
    gradients = torch.autograd.grad(found, leaves, due.to(device))
    return [value.detach().cpu() for value in (found, *gradients)]


def test_is_the_attention_of_the_paper() -> None:
    learned, places = inputs(1, 5, 20)
    by_node, by_relation, last, bias = (value.tolist() for value in learned)
    expected = []
    for source, relation, query in zip(*(place.tolist() for place in places), strict=True):
        pairs = zip(by_node[source], by_relation[query][relation], strict=True)
        hidden = [max(0.0, one + other) for one, other in pairs]
        logit = sum(weight * value for weight, value in zip(last[0], hidden, strict=True)) + bias[0]
        expected.append(1 / (1 + math.exp(-logit)))
    assert edge_attention(*learned, *places).tolist() == pytest.approx(expected, abs=1e-6)


@needs_triton
@pytest.mark.parametrize("integers", [torch.int32, torch.int64])
@pytest.mark.parametrize("width", [1, 5, 8, 32])
def test_fused_is_the_same(width: int, integers: torch.dtype) -> None:
    for seed in range(amount(3, 50)):
        learned, places = inputs(seed, width, edges=(0, 1, 300)[seed % 3])
        places = [places[0].to(integers), places[1].to(integers), places[2]]
        due = torch.randn(len(places[0]), generator=torch.Generator().manual_seed(seed))
        due[::3] = 0.0  # edges that nobody walks
        expected, found = (results(backend, learned, places, due) for backend in ("reference", "triton"))
        for one, other in zip(expected, found, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
