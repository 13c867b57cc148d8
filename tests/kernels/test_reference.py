"""`aggregate`, the definition, against plain loops; gradients by finite differences."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from contextpool.errors import ConfigError
from contextpool.kernels.hop import Hop
from contextpool.kernels.interface import aggregate as aggregate_by_interface
from contextpool.kernels.reference import FULL, Message, Stream, aggregate
from kernels.hops import REDUCTIONS, hop_of, literal_aggregate, random_hop
from learning_worlds import one_thread as one_thread
from support import SOAK, amount

MESSAGES: tuple[Message, ...] = ("distmult", "transe")
DIRECTED = 6
EVERY_OPTION = [
    pytest.param(*options, id="-".join(map(str, options)))
    for options in itertools.product(
        MESSAGES, ("boundary", "no boundary"), ("weighted", "unweighted"), ("by query", "shared")
    )
]


def random_inputs(
    hop: Hop, seed: int, boundary: str, weighted: str, dependent: str, dim: int = 4
) -> dict[str, Any]:
    """Everything `aggregate` takes beside the hop, in float64: one stream over all edges, two over views."""
    generator = torch.Generator().manual_seed(seed)

    def values(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    num_queries = int(hop.node_query.max()) + 1 if hop.num_targets else 1
    shape = (num_queries, DIRECTED, dim) if dependent == "by query" else (DIRECTED, dim)
    return {
        "state": values(hop.num_sources, dim),
        "weights": [values(*shape) for _ in range(3)],
        "boundary": values(hop.num_targets, dim) if boundary == "boundary" else None,
        "edge_weight": values(hop.num_edges) if weighted == "weighted" else None,
    }


def streams_of(weights: list[Tensor]) -> list[Stream]:
    return [Stream(view, weight) for view, weight in zip((FULL, 1, 0), weights, strict=True)]


@pytest.mark.parametrize(("message", "boundary", "weighted", "dependent"), EVERY_OPTION)
def test_equals_plain_loops(message: Message, boundary: str, weighted: str, dependent: str) -> None:
    for seed in range(amount(12, 500)):
        hop = random_hop(seed, DIRECTED)
        given = random_inputs(hop, seed, boundary, weighted, dependent)
        state, streams = given["state"], streams_of(given["weights"])
        extras = given["boundary"], given["edge_weight"]
        expected, degrees = literal_aggregate(hop, state, streams, message, REDUCTIONS, *extras)
        options = {"message": message, "boundary": extras[0], "edge_weight": extras[1]}
        found, counted = aggregate(hop, state, streams, reductions=REDUCTIONS, **options)  # type: ignore[arg-type]
        for one, other in zip(found, expected, strict=True):
            assert one.shape == (hop.num_targets, len(REDUCTIONS), state.size(1))
            torch.testing.assert_close(one, other, atol=1e-9, rtol=1e-9)
        assert [degree.tolist() for degree in counted] == degrees
        for place, name in enumerate(REDUCTIONS):  # each alone is what it is among others
            alone, _ = aggregate(hop, state, streams, reductions=(name,), **options)  # type: ignore[arg-type]
            assert all(torch.equal(a[:, 0], b[:, place]) for a, b in zip(alone, found, strict=True))


@pytest.mark.parametrize(("message", "boundary", "weighted", "dependent"), EVERY_OPTION)
def test_gradients_by_finite_differences(
    message: Message, boundary: str, weighted: str, dependent: str
) -> None:
    for seed in (1, 2, 6, 10):  # 6 has no edges, 10 no targets
        hop = random_hop(seed, DIRECTED, most_targets=5, most_edges=9)
        given = random_inputs(hop, seed, boundary, weighted, dependent, dim=2)
        optional = [given[name] for name in ("boundary", "edge_weight") if given[name] is not None]
        inputs = [given["state"], *given["weights"], *optional]

        def results(*values: Tensor, hop: Hop = hop) -> tuple[Tensor, ...]:
            state, weights, rest = values[0], list(values[1:4]), list(values[4:])
            found, _ = aggregate(
                hop,
                state,
                streams_of(weights),
                message=message,
                reductions=REDUCTIONS,  # type: ignore[arg-type]
                boundary=rest.pop(0) if boundary == "boundary" else None,
                edge_weight=rest.pop(0) if weighted == "weighted" else None,
            )
            return tuple(found)

        values = tuple(value.requires_grad_() for value in inputs)
        assert torch.autograd.gradcheck(results, values, fast_mode=not SOAK)


def one_number_hop(count: int) -> Hop:
    """So many sources, each with one edge to the one target."""
    return hop_of(list(range(count)), [0] * count, [0] * count, node_query=[0] * count, num_sources=count)


def gradient_of_extreme(name: str, sent: list[float], boundary: float | None = None) -> list[float]:
    """What max or min passes to each message, and to the boundary last."""
    state = torch.tensor([[value] for value in sent], dtype=torch.float64, requires_grad=True)
    hop = one_number_hop(len(sent))
    start = None
    if boundary is not None:
        start = torch.full((hop.num_targets, 1), boundary, dtype=torch.float64, requires_grad=True)
    one = torch.ones(1, 1, dtype=torch.float64)
    ([result], _) = aggregate(
        hop, state, [Stream(FULL, one)], message="distmult", reductions=(name,), boundary=start  # type: ignore[arg-type]
    )  # fmt: skip
    result[0].sum().backward()
    assert state.grad is not None
    own = [] if start is None or start.grad is None else [float(start.grad[0, 0])]
    return [*state.grad[:, 0].tolist(), *own]


@pytest.mark.parametrize(("name", "sign"), [("max", 1.0), ("min", -1.0)])
def test_ties_share_the_gradient_of_an_extreme(name: str, sign: float) -> None:
    assert gradient_of_extreme(name, [2 * sign, 2 * sign, 1 * sign, 2 * sign]) == pytest.approx(
        [1 / 3, 1 / 3, 0, 1 / 3]
    )
    assert gradient_of_extreme(name, [2 * sign, 1 * sign], boundary=2 * sign) == [0.5, 0, 0.5]
    assert gradient_of_extreme(name, [2 * sign, 1 * sign], boundary=3 * sign) == [0, 0, 1]


@pytest.mark.parametrize(("name", "sign"), [("max", 1.0), ("min", -1.0)])
def test_an_extreme_of_zero_keeps_its_whole_gradient(name: str, sign: float) -> None:
    """What a target without messages gets, zero, is no message that could tie."""
    assert gradient_of_extreme(name, [0.0, -1 * sign]) == [1, 0]
    assert gradient_of_extreme(name, [0.0, 0.0, -1 * sign]) == [0.5, 0.5, 0]


def test_a_world_done_by_hand() -> None:
    """Two messages 2 * 3 and 4 * 3 arrive at target 1; the second only belongs to view 0; target 0 gets none."""
    hop = hop_of([0, 1], [1, 1], [0, 0], node_query=[0, 0], num_sources=2, views=[0, 1])
    streams = [Stream(FULL, torch.tensor([[3.0]])), Stream(0, torch.tensor([[3.0]]))]
    state = torch.tensor([[2.0], [4.0]])
    (full, view), (degree, degree_in_view) = aggregate(
        hop, state, streams, message="distmult", reductions=("sum", "mean", "std")
    )
    assert full[1, :, 0].tolist() == [18, 9, 3]
    assert view[1, :, 0].tolist() == pytest.approx([12, 12, 1e-3])
    assert not full[0].any()
    assert not view[0].any()
    assert (degree.tolist(), degree_in_view.tolist()) == ([0, 2], [0, 1])


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    hop, state = one_number_hop(1), torch.ones(1, 1)
    stream = [Stream(FULL, torch.ones(1, 1))]
    with pytest.raises(ConfigError, match="message is 'conv'; it is one of distmult, transe"):
        aggregate(hop, state, stream, message="conv", reductions=("sum",))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="reduction is 'median'"):
        aggregate(hop, state, stream, message="distmult", reductions=("median",))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="backend is 'quantum'"):
        aggregate_by_interface(
            hop, state, stream, message="distmult", reductions=("sum",), backend="quantum"  # type: ignore[arg-type]
        )  # fmt: skip


def test_the_interface_gives_what_the_definition_gives() -> None:
    hop = random_hop(4, DIRECTED)
    given = random_inputs(hop, 4, "boundary", "weighted", "by query")
    arguments = (hop, given["state"], streams_of(given["weights"]))
    options = {key: given[key] for key in ("boundary", "edge_weight")}
    for message in MESSAGES:
        expected, _ = aggregate(*arguments, message=message, reductions=REDUCTIONS, **options)  # type: ignore[arg-type]
        for backend in ("auto", "reference"):
            found, _ = aggregate_by_interface(
                *arguments, message=message, reductions=REDUCTIONS, backend=backend, **options  # type: ignore[arg-type]
            )  # fmt: skip
            for one, other in zip(found, expected, strict=True):
                torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
