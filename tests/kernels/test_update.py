"""The fused update and the fused scoring head against plain torch: values and every gradient."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from contextpool.kernels.score import node_scores
from contextpool.kernels.update import UpdateWeights, triton_takes, update_states
from kernels.poison import no_quiet_memory as no_quiet_memory
from kernels.triton_here import DEVICE, INTERPRETED, needs_triton
from learning_worlds import one_thread as one_thread

ROWS, SOURCES = 75, 50
OPTIONS = [
    pytest.param(*options, id="-".join(map(str, options)))
    for options in itertools.product((1, 3), (1, 4), (1, 3), ("norm", "no norm"), ("short cut", "none"))
]


def update_inputs(seed: int, streams: int, reductions: int, scalers: int, dim: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def values(*shape: int, scale: float = 1.0) -> Tensor:
        return scale * torch.randn(*shape, generator=generator)

    given = {"state": values(SOURCES, dim), "own": values(dim, dim, scale=0.2), "bias": values(dim)}
    given |= {"gamma": values(dim), "beta": values(dim)}
    for stream in range(streams):
        given[f"received{stream}"] = values(ROWS, reductions, dim)
        given[f"weight{stream}"] = values(scalers * dim, reductions * dim, scale=0.1)
    return given


def updated(
    given: dict[str, Tensor], degrees: list[Tensor], scalers: int, norm: bool, short_cut: bool, backend: str
) -> tuple[Tensor, dict[str, Tensor]]:
    device = DEVICE if backend == "triton" else "cpu"
    leaf = {name: value.to(device).clone().requires_grad_() for name, value in given.items()}
    streams = range(len(degrees))
    weights = UpdateWeights(
        leaf["own"],
        leaf["bias"],
        [leaf[f"weight{stream}"] for stream in streams],
        leaf["gamma"] if norm else None,
        leaf["beta"] if norm else None,
        torch.tensor(1.7, device=device),
        scalers,
    )
    result = update_states(
        leaf["state"],
        [leaf[f"received{stream}"] for stream in streams],
        [degree.to(device) for degree in degrees],
        weights,
        short_cut=short_cut,
        backend=backend,  # type: ignore[arg-type]
    )
    (result * torch.linspace(-1, 1, result.numel(), device=device).view_as(result)).sum().backward()
    zero = torch.zeros(())
    return result.detach().cpu(), {
        name: zero if value.grad is None else value.grad.cpu() for name, value in leaf.items()
    }


def apart(one: Tensor, other: Tensor) -> float:
    """How far apart, as a share of the whole: single relus may flip where a value is zero but for rounding."""
    return float((one - other).norm() / one.norm().clamp(min=1e-2))


def assert_fused_is_plain(given: dict[str, Tensor], degrees: list[Tensor], *options: Any) -> None:
    expected, expected_grads = updated(given, degrees, *options, "reference")
    found, grads = updated(given, degrees, *options, "triton")
    assert apart(expected, found) < 1e-4
    for name, grad in expected_grads.items():
        assert apart(grad, grads[name]) < 1e-2, name


@needs_triton
@pytest.mark.parametrize(("streams", "reductions", "scalers", "norm", "short_cut"), OPTIONS)
def test_the_fused_update_is_the_plain_one(
    streams: int, reductions: int, scalers: int, norm: str, short_cut: str
) -> None:
    for dim in (16,) if INTERPRETED else (16, 32, 64, 128):
        given = update_inputs(dim + streams, streams, reductions, scalers, dim)
        generator = torch.Generator().manual_seed(dim)
        degrees = [torch.randint(1, 50, (ROWS,), generator=generator) for _ in range(streams)]
        options = (scalers, norm == "norm", short_cut == "short cut")
        assert_fused_is_plain(given, degrees, *options)


@needs_triton
@pytest.mark.parametrize("numbers", [256, 512])
def test_products_cut_into_columns_are_the_whole_ones(numbers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 64 columns received 16 or 32 at a time, as wider states have it."""
    from contextpool.kernels import triton_update

    for name in ("FORWARD", "BACKWARD", "WEIGHTS"):
        monkeypatch.setattr(triton_update, name, triton_update.Tiling(32, numbers))
    assert triton_update.FORWARD.options(16, 64)["C"] == numbers // 16
    given = update_inputs(3, 2, 4, 3, 16)
    degrees = [torch.arange(1, ROWS + 1), torch.full((ROWS,), 2)]
    assert_fused_is_plain(given, degrees, 3, True, True)


@needs_triton
def test_rows_that_are_only_room_become_zero_and_count_nowhere() -> None:
    """`sizes` says how many rows are real: what lies beyond may be anything."""
    from contextpool.kernels import triton_update

    dim, real_sources, real_rows = 16, 20, 33
    given = update_inputs(1, 1, 4, 3, dim)
    given["state"][real_sources:] = float("nan")
    given["received0"][real_rows:] = float("nan")
    leaf = {name: value.to(DEVICE).requires_grad_() for name, value in given.items()}
    weights = UpdateWeights(
        leaf["own"], leaf["bias"], [leaf["weight0"]], leaf["gamma"], leaf["beta"], torch.tensor(1.7, device=DEVICE), 3
    )  # fmt: skip
    degrees = [torch.full((ROWS,), 3, device=DEVICE)]
    sizes = torch.tensor([real_sources, real_rows], device=DEVICE)
    result = triton_update.update_states(
        leaf["state"], [leaf["received0"]], degrees, weights, short_cut=True, sizes=sizes
    )
    assert torch.isfinite(result).all()
    assert not result[real_rows:].any()
    grad = torch.ones_like(result)
    grad[real_rows:] = float("nan")
    result.backward(grad)
    for name in ("own", "bias", "weight0", "gamma", "beta"):
        value = leaf[name].grad
        assert value is not None
        assert torch.isfinite(value).all(), name


def test_the_fused_update_is_for_powers_of_two_that_fit() -> None:
    assert triton_takes(32, 4)
    assert triton_takes(64, 1)
    assert not triton_takes(48, 4)
    assert not triton_takes(8, 1)
    assert triton_takes(128, 4)
    assert not triton_takes(256, 4)


def test_weights_of_a_layer_without_norm() -> None:
    own, received = nn.Linear(4, 4), nn.Linear(4, 4, bias=False)
    weights = UpdateWeights.of(own, [received], nn.Identity(), torch.tensor(1.0), 1)
    assert weights.norm_weight is None
    state = torch.randn(2, 4)
    found = update_states(
        state, [torch.zeros(3, 1, 4)], [torch.ones(3)], weights, short_cut=False, backend="reference"
    )
    assert torch.allclose(found[:2], torch.relu(own(state)))
    assert torch.allclose(found[2], torch.relu(own.bias))


@needs_triton
@pytest.mark.parametrize(
    ("rows", "dim", "hidden", "queries"),
    [(80, 16, 32, 3), (70, 32, 64, 1), (64, 16, 16, 7), (70, 64, 128, 2)],
)
def test_the_fused_score_is_the_plain_one(rows: int, dim: int, hidden: int, queries: int) -> None:
    generator = torch.Generator().manual_seed(rows)
    shapes = ((rows, dim), (queries, hidden), (hidden, dim), (1, hidden), (1,))
    given = [torch.randn(*shape, generator=generator) / 2 for shape in shapes]
    query = torch.sort(torch.randint(0, queries, (rows,), generator=generator))[0]
    found = []
    for backend, device in (("reference", "cpu"), ("triton", DEVICE)):
        leaf = [value.to(device).clone().requires_grad_() for value in given]
        state, by_query, weight, last, bias = leaf
        scores = node_scores(state, by_query, query.to(device), weight, last, bias, backend=backend)  # type: ignore[arg-type]
        (scores * torch.linspace(-1, 1, rows, device=device)).sum().backward()
        found.append([scores.detach().cpu(), *(value.grad.cpu() for value in leaf if value.grad is not None)])
    for one, other in zip(*found, strict=True):
        assert apart(one, other) < 1e-2


@needs_triton
def test_the_mask_of_known_answers() -> None:
    from contextpool.kernels.known import known_mask

    entity = torch.tensor([3, 1, 4, 1, 0, 2], dtype=torch.int32, device=DEVICE)
    begin, end = (torch.tensor(values, device=DEVICE) for values in ([0, 3, 6], [3, 6, 6]))
    answer = torch.tensor([1, 9, 0], device=DEVICE)
    mask = known_mask(begin, end, entity, answer, 10)
    assert [torch.nonzero(row).squeeze(1).tolist() for row in mask] == [[3, 4], [0, 1, 2], []]
