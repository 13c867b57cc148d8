"""The maps of all streams in one kernel against one torch product each: values and every gradient."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from contextpool.kernels.relations import relation_weights
from kernels.triton_here import DEVICE, needs_triton
from learning_worlds import one_thread as one_thread


def mapped(queries: int, streams: int, width: int, backend: str) -> list[Tensor]:
    """Results of every stream, then gradients of the query and of all parameters."""
    torch.manual_seed(queries)
    device = DEVICE if backend == "triton" else "cpu"
    linears = nn.ModuleList(nn.Linear(16, width) for _ in range(streams)).to(device)
    query = torch.randn(queries, 16).to(device).requires_grad_()
    results = relation_weights(query, list(linears), backend=backend)  # type: ignore[arg-type]
    factor = torch.linspace(-1, 1, queries * width, device=device).view(queries, width)
    sum(((number + 1) * factor * result).sum() for number, result in enumerate(results)).backward()  # type: ignore[union-attr]
    grads = [query.grad, *(one.grad for one in linears.parameters())]
    return [one.detach().cpu() for one in (*results, *grads) if one is not None]


@needs_triton
@pytest.mark.parametrize(("queries", "streams", "width"), [(5, 1, 96), (16, 3, 208), (40, 2, 80)])
def test_all_streams_at_once_are_each_alone(
    queries: int, streams: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("contextpool.kernels.triton_relations.TOGETHER", True)
    monkeypatch.setattr("contextpool.kernels.triton_relations.PROGRAMS", 2)
    expected, found = (mapped(queries, streams, width, backend) for backend in ("reference", "triton"))
    assert len(expected) == len(found) == 3 * streams + 1
    for one, other in zip(expected, found, strict=True):
        assert float((one - other).norm() / one.norm()) < 2e-3


@needs_triton
def test_stacked_weights_of_one_tensor_are_that_tensor() -> None:
    from contextpool.kernels.reference import Stream
    from contextpool.kernels.triton import stacked_weights

    whole = torch.randn(2, 3, 4, 8, device=DEVICE, requires_grad=True) * 1.0
    streams = [Stream(number, one.view(3, 4, 8)) for number, one in enumerate(whole.view(2, 3, 32).unbind(0))]
    assert stacked_weights(streams).data_ptr() == whole.data_ptr()
    swapped = stacked_weights(streams[::-1])
    assert swapped.data_ptr() != whole.data_ptr()
    assert torch.equal(swapped, whole.flip(0))
    (grad,) = torch.autograd.grad((stacked_weights(streams) * whole.detach()).sum(), whole)
    assert torch.equal(grad, whole.detach())
