"""The fused update and the fused scoring head against plain torch: values and every gradient."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from contextpool.kernels.interface import node_scores, triton_takes
from contextpool.kernels.reference import UpdateWeights, update_states
from kernels.poison import no_quiet_memory as no_quiet_memory
from kernels.triton_here import DEVICE, INTERPRETED, needs_triton
from learning_worlds import one_thread as one_thread
from support import SOAK, combinations

ROWS, SOURCES = 75, 50
CHOICES = ((1, 3), (1, 4), (1, 3), ("norm", "no norm"), ("short cut", "none"))
OPTIONS = [
    pytest.param(*options, id="-".join(map(str, options)))
    for options in combinations(*CHOICES, whole=SOAK or not INTERPRETED)
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


def weights_of(given: dict[str, Tensor], streams: int, scalers: int, norm: bool) -> UpdateWeights:
    device = given["own"].device
    matrices = [given[f"weight{stream}"] for stream in range(streams)]
    of_norm = (given["gamma"], given["beta"]) if norm else (None, None)
    log_degree = torch.tensor(1.7, device=device)
    return UpdateWeights(given["own"], given["bias"], matrices, *of_norm, log_degree, scalers)


def passed_back(result: Tensor) -> Tensor:
    return torch.linspace(-1, 1, result.numel(), device=result.device).view_as(result)


def plain(
    given: dict[str, Tensor], degrees: list[Tensor], scalers: int, norm: bool, short_cut: bool
) -> tuple[Tensor, dict[str, Tensor]]:
    """Result and gradients by autograd."""
    leaf = {name: value.clone().requires_grad_() for name, value in given.items()}
    results = [leaf[f"received{stream}"] for stream in range(len(degrees))]
    weights = weights_of(leaf, len(degrees), scalers, norm)
    result = update_states(leaf["state"], results, degrees, weights, short_cut=short_cut)
    (result * passed_back(result)).sum().backward()
    return result.detach(), {name: value.grad for name, value in leaf.items() if value.grad is not None}


def fused(
    given: dict[str, Tensor],
    degrees: list[Tensor],
    scalers: int,
    norm: bool,
    short_cut: bool,
    sizes: tuple[int, int] = (SOURCES, ROWS),
) -> tuple[Tensor, dict[str, Tensor]]:
    """Result and gradients by the passes; rows that are only room have NaN for gradient."""
    from contextpool.kernels.triton_update import Parameters, Update

    here = {name: value.to(DEVICE) for name, value in given.items()}
    streams = range(len(degrees))
    received = torch.stack([here[f"received{stream}"] for stream in streams])
    degree = torch.stack(degrees).to(DEVICE)
    weights = weights_of(here, len(degrees), scalers, norm)
    shape = (len(degrees), *received.shape[1:])
    update = Update(weights, shape, torch.tensor(sizes, device=DEVICE), short_cut=short_cut)
    parameters = Parameters.of(weights)
    given_all = (here["state"], received, degree)
    result, kept = update.forward(parameters, *given_all, keep=True)
    grad = passed_back(result)
    grad[sizes[1] :] = float("nan")
    rows = update.backward(parameters, grad, *given_all, kept)
    to_parameters = update.backward_of_parameters(parameters, rows, *given_all)
    found = {"state": rows.to_state, "own": to_parameters.own, "bias": to_parameters.own_bias}
    if to_parameters.norm is not None and to_parameters.norm_bias is not None:
        found |= {"gamma": to_parameters.norm, "beta": to_parameters.norm_bias}
    for stream in streams:
        found[f"received{stream}"] = rows.to_received[stream]
        found[f"weight{stream}"] = to_parameters.received[stream]
    return result.cpu(), {name: value.cpu() for name, value in found.items()}


def apart(one: Tensor, other: Tensor) -> float:
    """How far apart, as a share of the whole: single relus may flip where a value is zero but for rounding."""
    return float((one - other).norm() / one.norm().clamp(min=1e-2))


def assert_fused_is_plain(given: dict[str, Tensor], degrees: list[Tensor], *options: Any) -> None:
    expected, expected_grads = plain(given, degrees, *options)
    found, grads = fused(given, degrees, *options)
    assert apart(expected, found) < 1e-4
    assert expected_grads.keys() == grads.keys()
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
    real_sources, real_rows = 20, 33
    given = update_inputs(1, 1, 4, 3, 16)
    given["state"][real_sources:] = float("nan")
    given["received0"][real_rows:] = float("nan")
    degrees = [torch.full((ROWS,), 3)]
    result, grads = fused(given, degrees, 3, True, True, (real_sources, real_rows))
    assert torch.isfinite(result).all()
    assert not result[real_rows:].any()
    for name in ("own", "bias", "weight0", "gamma", "beta"):
        assert torch.isfinite(grads[name]).all(), name


def test_the_fused_update_is_for_powers_of_two_that_fit() -> None:
    pna = ("mean", "max", "min", "std")
    assert triton_takes(32, pna)
    assert triton_takes(64, ("max",))
    assert not triton_takes(48, pna)
    assert not triton_takes(8, ("sum",))
    assert triton_takes(128, pna)
    assert not triton_takes(256, pna)
    assert not triton_takes(32, ("std",))  # it needs the mean beside


def test_weights_of_a_layer_without_norm() -> None:
    own, received = nn.Linear(4, 4), nn.Linear(4, 4, bias=False)
    weights = UpdateWeights.of(own, [received], nn.Identity(), torch.tensor(1.0), 1)
    assert weights.norm_weight is None
    state = torch.randn(2, 4)
    found = update_states(state, [torch.zeros(3, 1, 4)], [torch.ones(3)], weights, short_cut=False)
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
    from contextpool.kernels.triton_heads import known_mask

    entity = torch.tensor([3, 1, 4, 1, 0, 2], dtype=torch.int32, device=DEVICE)
    begin, end = (torch.tensor(values, device=DEVICE) for values in ([0, 3, 6], [3, 6, 6]))
    answer = torch.tensor([1, 9, 0], device=DEVICE)
    mask = known_mask(begin, end, entity, answer, 10)
    assert [torch.nonzero(row).squeeze(1).tolist() for row in mask] == [[3, 4], [0, 1, 2], []]
