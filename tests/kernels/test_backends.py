"""Every fast backend against the definition: values, degrees and all gradients, whatever is asked of it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from contextpool.errors import ConfigError, DataError
from contextpool.kernels import cpu, interface, reference
from contextpool.kernels.hop import Hop, LaunchPlan
from contextpool.kernels.interface import Backend, chosen_backend, use_backend
from contextpool.kernels.reference import FULL, Message, Stream
from kernels.hops import REDUCTIONS, hop_of, random_hop
from kernels.poison import no_quiet_memory as no_quiet_memory
from kernels.triton_here import DEVICE, INTERPRETED, needs_triton
from learning_worlds import one_thread as one_thread
from support import SOAK, amount, combinations

MESSAGES: tuple[Message, ...] = ("distmult", "transe")
DIRECTED = 6
DIMS = (2, 4, 6, 16, 18, 32, 34)
FAST = [pytest.param("cpu", id="cpu"), pytest.param("triton", id="triton", marks=needs_triton)]
PRECISE = [
    pytest.param("cpu", torch.float64, id="cpu-float64"),
    pytest.param("cpu", torch.float32, id="cpu-float32"),
    pytest.param("triton", torch.float32, id="triton-float32", marks=needs_triton),
]
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5}
"""Relative to the largest number of the tensor that is compared."""
CASES = amount(12, 1_000)
WHOLE = SOAK or not INTERPRETED

Values = Callable[..., Tensor]


@dataclass(frozen=True)
class Case:
    """One call of `aggregate`."""

    hop: Hop
    state: Tensor
    weights: list[Tensor]
    views: tuple[int, ...]
    message: Message
    reductions: tuple[str, ...]
    boundary: Tensor | None
    edge_weight: Tensor | None

    @property
    def leaves(self) -> list[Tensor]:
        optional = [one for one in (self.boundary, self.edge_weight) if one is not None]
        return [self.state, *self.weights, *optional]

    def to(self, device: str | torch.device, dtype: torch.dtype) -> Case:
        """Fresh leaves of another type on another device."""

        def moved(value: Tensor | None) -> Tensor | None:
            return None if value is None else value.detach().to(device, dtype, copy=True).requires_grad_()

        return replace(
            self,
            hop=hop_on(self.hop, device),
            state=moved(self.state),
            weights=[moved(weight) for weight in self.weights],
            boundary=moved(self.boundary),
            edge_weight=moved(self.edge_weight),
        )

    def run(self, backend: Backend) -> tuple[list[Tensor], list[Tensor]]:
        streams = [Stream(view, weight) for view, weight in zip(self.views, self.weights, strict=True)]
        return interface.aggregate(
            self.hop, self.state, streams, message=self.message, reductions=self.reductions,  # type: ignore[arg-type]
            boundary=self.boundary, edge_weight=self.edge_weight, backend=backend,
        )  # fmt: skip


def hop_on(hop: Hop, device: str | torch.device) -> Hop:
    values = {field.name: getattr(hop, field.name) for field in fields(hop)}
    return Hop(**{name: v.to(device) if isinstance(v, Tensor) else v for name, v in values.items()})


def device_of(backend: str) -> str:
    return DEVICE if backend == "triton" else "cpu"


def interpreted(backend: Backend) -> bool:
    """Whether a backend runs hundreds of times slower than it is, so that a few inputs have to do."""
    return backend == "triton" and INTERPRETED


def numbers(seed: int, dtype: torch.dtype) -> Values:
    """Random numbers; in single precision halves, whose products and sums are exact: then a message equals another,
    and a deviation is zero, in either precision.
    """
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        if dtype == torch.float64:
            return torch.randn(*shape, dtype=dtype, generator=generator)
        return torch.randint(-4, 5, shape, generator=generator).to(torch.float64) / 2

    return draw


def random_case(
    seed: int, message: Message, boundary: str, weighted: bool, by_query: bool, dtype: torch.dtype
) -> Case:
    rng, draw = random.Random(seed), numbers(seed, dtype)
    hop = random_hop(seed, DIRECTED, most_targets=12, most_edges=40)
    hop = hop.walked if rng.random() < 0.3 else hop
    dim, num_queries = rng.choice(DIMS), int(hop.node_query.max()) + 1 if hop.num_targets else 1
    rows = {"none": None, "all": hop.num_targets, "few": rng.randint(0, hop.num_targets)}[boundary]
    views = tuple(rng.sample((FULL, 0, 1), rng.randint(1, 3)))
    shape = (num_queries, DIRECTED, dim) if by_query else (DIRECTED, dim)
    return Case(
        hop=hop,
        state=draw(hop.num_sources, dim),
        weights=[draw(*shape) for _ in views],
        views=views,
        message=message,
        reductions=tuple(rng.sample(REDUCTIONS, rng.randint(1, len(REDUCTIONS)))),
        boundary=None if rows is None else draw(rows, dim),
        edge_weight=draw(hop.num_edges) if weighted else None,
    )


def gradients_of(case: Case, results: list[Tensor], seed: int) -> list[Tensor]:
    """Of a random linear function of the results; zeros for what it does not depend on."""
    generator = torch.Generator().manual_seed(seed)
    due = [torch.randint(-2, 3, one.shape, generator=generator).to(one.device, one.dtype) for one in results]
    found = torch.autograd.grad(results, case.leaves, due, allow_unused=True)
    return [
        torch.zeros_like(leaf) if one is None else one for leaf, one in zip(case.leaves, found, strict=True)
    ]


def check_equal(
    case: Case, backend: Backend, dtype: torch.dtype, seed: int, in_tiles: tuple[bool, ...] = (False, True)
) -> None:
    """The backend in its precision against the definition in float64; Triton's with a warp a row, and in tiles."""
    for tiles in in_tiles if backend == "triton" else (False,):
        fast = case.to(device_of(backend), dtype)
        fast = replace(fast, hop=with_order(fast.hop, seed)) if tiles else fast
        check_close(case, fast, backend, dtype, seed)


def with_order(hop: Hop, seed: int) -> Hop:
    """Any order of the targets will do."""
    order = torch.randperm(hop.num_targets, generator=torch.Generator().manual_seed(seed)).int()
    device = hop.edge_source.device
    none = torch.zeros(0, dtype=torch.int32, device=device)
    return replace(hop, plan=LaunchPlan(hop.sizes, order.to(device), none))


def check_close(case: Case, fast: Case, backend: Backend, dtype: torch.dtype, seed: int) -> None:
    exact = case.to("cpu", torch.float64)
    expected, degrees = exact.run("reference")
    found, counted = fast.run(backend)
    pairs = list(zip(found, expected, strict=True))
    assert all(one.dtype == dtype and one.shape == other.shape for one, other in pairs)
    assert [one.tolist() for one in counted] == [one.tolist() for one in degrees]
    pairs += zip(gradients_of(fast, found, seed), gradients_of(exact, expected, seed), strict=True)
    for one, other in pairs:
        largest = float(other.detach().abs().max()) if other.numel() else 0.0
        assert one.shape == other.shape
        torch.testing.assert_close(
            one.detach().cpu().double(), other.detach(), rtol=0, atol=TOLERANCE[dtype] * max(1.0, largest)
        )


CALLS = (MESSAGES, ("none", "all", "few"), (True, False), (True, False))


@pytest.mark.parametrize(("message", "boundary", "weighted", "by_query"), list(itertools.product(*CALLS)))
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_equals_the_definition(
    message: Message, boundary: str, weighted: bool, by_query: bool, dtype: torch.dtype
) -> None:
    """Any subset of the reductions in any order, any of the streams, every width, hops of every kind."""
    seen: set[tuple[str, ...]] = set()
    for seed in range(CASES):
        case = random_case(seed, message, boundary, weighted, by_query, dtype)
        check_equal(case, "cpu", dtype, seed)
        seen.add(case.reductions)
    assert len(seen) > min(CASES // 2, 200)  # of 325


@needs_triton
@pytest.mark.parametrize(("first", "call"), list(enumerate(combinations(*CALLS, whole=WHOLE))), ids=str)
def test_triton_equals_the_definition(first: int, call: tuple[Message, str, bool, bool]) -> None:
    for seed in range(first, first + (1 if INTERPRETED else CASES)):
        check_equal(random_case(seed, *call, torch.float32), "triton", torch.float32, seed)


@pytest.mark.parametrize(("backend", "dtype"), PRECISE)
@pytest.mark.parametrize("message", MESSAGES)
def test_every_subset_of_the_reductions(message: Message, backend: Backend, dtype: torch.dtype) -> None:
    sizes = range(1, len(REDUCTIONS) + 1)
    subsets = [subset for size in sizes for subset in itertools.combinations(REDUCTIONS, size)]
    if interpreted(backend):  # every subset once, with one of the messages and in one of the ways
        for number, reductions in enumerate(subsets[MESSAGES.index(message) :: len(MESSAGES)]):
            case = random_case(1, message, "few", True, True, dtype)
            check_equal(replace(case, reductions=reductions), backend, dtype, 1, (number % 2 == 1,))
        return
    for reductions, seed in itertools.product(subsets, range(amount(2, 20))):
        case = random_case(seed, message, "few", True, True, dtype)
        check_equal(replace(case, reductions=reductions), backend, dtype, seed)


def large_case(message: Message, dtype: torch.dtype, dim: int = 48, seed: int = 5) -> Case:
    """Enough work for several threads: 400 targets, half of all edges into one of them, every eighth target alone."""
    rng, draw = random.Random(seed), numbers(seed, dtype)
    num_targets, count, num_queries = 400, 6_000, 5
    connected = [target for target in range(num_targets) if target % 8]
    target = sorted(
        connected[7] if rng.random() < 0.5 else connected[rng.randrange(len(connected))] for _ in range(count)
    )
    hop = hop_of(
        source=[rng.randrange(num_targets) for _ in range(count)],
        target=target,
        relation=[rng.randrange(DIRECTED) for _ in range(count)],
        views=[rng.randrange(4) for _ in range(count)],
        node_query=[rng.randrange(num_queries) for _ in range(num_targets)],
        num_sources=300,
    )
    return Case(
        hop, draw(300, dim), [draw(num_queries, DIRECTED, dim) for _ in range(3)], (FULL, 1, 0), message,
        REDUCTIONS, draw(9, dim), draw(count),
    )  # fmt: skip


def use_threads(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the machine and the settings of torch and numba would allow."""
    monkeypatch.setattr(cpu, "available_threads", lambda: count)
    monkeypatch.setattr(torch, "get_num_threads", lambda: count)


@pytest.mark.parametrize("message", MESSAGES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_threads_share_the_work_of_a_large_hop(
    message: Message, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_threads(2, monkeypatch)
    check_equal(large_case(message, dtype), "cpu", dtype, seed=1)


@pytest.mark.parametrize("message", MESSAGES)
@pytest.mark.parametrize("dim", [32, 48, 128])
def test_any_number_of_threads_gives_the_same_bits(
    message: Message, dim: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = []
    for num_threads in (1, 2, 3, 2):
        use_threads(num_threads, monkeypatch)
        case = large_case(message, torch.float64, dim).to(
            "cpu", torch.float32
        )  # sums that depend on their order
        results, degrees = case.run("cpu")
        outcomes.append([*results, *degrees, *gradients_of(case, results, 3)])
    for other in outcomes[1:]:
        assert all(torch.equal(one, same) for one, same in zip(outcomes[0], other, strict=True))


@pytest.mark.parametrize("boundary", ["none", "all", "few"])
@pytest.mark.parametrize("message", MESSAGES)
def test_gradients_by_finite_differences(message: Message, boundary: str) -> None:
    for seed in (1, 2, 6, 10):  # 6 has no edges, 10 no targets
        case = random_case(seed, message, boundary, True, True, torch.float64)
        case = replace(
            case, hop=random_hop(seed, DIRECTED, most_targets=5, most_edges=9), reductions=REDUCTIONS
        )
        draw = numbers(seed, torch.float64)
        num_queries = int(case.hop.node_query.max()) + 1 if case.hop.num_targets else 1
        case = replace(
            case,
            state=draw(case.hop.num_sources, 2),
            weights=[draw(num_queries, DIRECTED, 2) for _ in case.views],
            boundary=None
            if case.boundary is None
            else draw(min(len(case.boundary), case.hop.num_targets), 2),
            edge_weight=draw(case.hop.num_edges),
        )

        def results(*leaves: Tensor, case: Case = case) -> tuple[Tensor, ...]:
            given = list(leaves)
            changed = replace(
                case,
                state=given.pop(0),
                weights=[given.pop(0) for _ in case.weights],
                boundary=None if case.boundary is None else given.pop(0),
                edge_weight=given.pop(0),
            )
            return tuple(changed.run("cpu")[0])

        leaves = [leaf.requires_grad_() for leaf in case.leaves]
        assert torch.autograd.gradcheck(results, leaves, fast_mode=not SOAK)


@pytest.mark.parametrize("wanted", range(4))
def test_one_gradient_alone_is_what_it_is_among_others(wanted: int) -> None:
    case = large_case("distmult", torch.float64, dim=4)
    leaf = case.leaves[(0, 1, -2, -1)[wanted]].requires_grad_()
    (alone,) = torch.autograd.grad(sum(one.sum() for one in case.run("cpu")[0]), leaf)
    among = case.to("cpu", torch.float64)
    results, _ = among.run("cpu")
    gradients = torch.autograd.grad(sum(one.sum() for one in results), among.leaves)
    assert torch.equal(alone, gradients[(0, 1, -2, -1)[wanted]])


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # numpy's, where Triton is interpreted
@pytest.mark.parametrize("backend", FAST)
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_surfaces_where_it_does_in_the_definition(backend: Backend, value: float) -> None:
    for message, name in itertools.product(MESSAGES, REDUCTIONS):
        for seed in (1,) if interpreted(backend) else range(8):
            case = random_case(seed, message, "few", True, True, torch.float32)
            case = replace(case, reductions=(name,)).to(device_of(backend), torch.float32)
            if case.state.numel():
                case.state.data.view(-1)[seed % case.state.numel()] = value
            if backend == "triton" and message == "distmult":
                case = replace(case, hop=with_order(case.hop, seed))
            expected, _ = case.run("reference")
            for one, other in zip(case.run(backend)[0], expected, strict=True):
                assert torch.equal(one.isfinite(), other.isfinite())


@pytest.mark.parametrize("backend", FAST)
@pytest.mark.parametrize(("name", "sign"), [("max", 1.0), ("min", -1.0)])
def test_the_gradient_of_a_nan_is_one(backend: Backend, name: str, sign: float) -> None:
    hop = hop_on(hop_of([0, 1], [0, 0], [0, 0], node_query=[0], num_sources=2), device_of(backend))
    state = torch.tensor([[torch.nan], [sign]], device=device_of(backend), requires_grad=True)
    weight = torch.ones(1, 1, device=device_of(backend))
    ([result], _) = interface.aggregate(
        hop, state, [Stream(FULL, weight)], message="distmult", reductions=(name,), backend=backend,  # type: ignore[arg-type]
    )  # fmt: skip
    (gradient,) = torch.autograd.grad(result.sum(), state)
    assert gradient.isnan().any()


def test_a_deviation_that_is_small_beside_its_messages_is_not_lost() -> None:
    """1000 and 1000.25 in single precision: their squares differ in what it rounds off."""
    hop = hop_of([0, 1, 1, 0], [0, 0, 0, 0], [0] * 4, node_query=[0, 0], num_sources=2)
    state = torch.tensor([[1000.0], [1000.25]])
    stream = [Stream(FULL, torch.ones(1, 1))]
    ([result], _) = interface.aggregate(
        hop, state, stream, message="distmult", reductions=("std",), backend="cpu"
    )
    assert float(result[0, 0, 0]) == 0.125


def test_inputs_that_are_not_contiguous_are_read_as_what_they_are() -> None:
    case = random_case(8, "transe", "all", True, True, torch.float64)

    def scattered(value: Tensor | None) -> Any:
        return None if value is None else torch.stack([value, value + 7], dim=-1)[..., 0]

    same = replace(
        case,
        state=scattered(case.state),
        weights=[scattered(weight) for weight in case.weights],
        boundary=scattered(case.boundary),
        edge_weight=scattered(case.edge_weight),
    )
    assert not same.state.is_contiguous()
    for one, other in zip(same.run("cpu")[0], case.run("cpu")[0], strict=True):
        assert torch.equal(one, other)


def test_the_backend_can_be_chosen() -> None:
    state = torch.zeros(1, 1)
    assert chosen_backend("auto", state) == "cpu"
    with use_backend("reference"):
        assert chosen_backend("auto", state) == "reference"
        assert chosen_backend("cpu", state) == "cpu"
    assert chosen_backend("auto", state) == "cpu"
    with pytest.raises(ConfigError, match="backend is 'quantum'; it is one of auto, reference, cpu, triton"):
        chosen_backend("quantum", state)  # type: ignore[arg-type]


def test_what_does_not_fit_the_hop_is_refused_before_it_is_read() -> None:
    """Compiled code does not look where it reads."""
    case = large_case("distmult", torch.float64, dim=4)
    wrong = {
        "state has 299 rows; the hop has 300 sources": replace(case, state=case.state[:299]),
        r"edge_weight is \(5,\); the hop has 6,000 edges": replace(case, edge_weight=torch.ones(5)),
        "states are 4 wide, but a relation weight or the boundary is": replace(
            case, boundary=torch.ones(9, 3)
        ),
        r"relations and \[4, 4, 4\] queries": replace(case, weights=[one[:4] for one in case.weights]),
        r"rows for \[5, 5, 5\] relations": replace(case, weights=[one[:, :5] for one in case.weights]),
        r"rows for \[6, 6, 2\] relations": replace(case, weights=[*case.weights[:2], case.weights[2][:, :2]]),
    }
    for message, changed in wrong.items():
        with pytest.raises(DataError, match=message):
            changed.run("cpu")


def test_hops_are_read_in_either_width_of_integers() -> None:
    case = large_case("distmult", torch.float64, dim=4)
    hop = case.hop
    narrow = replace(hop, edge_source=hop.edge_source.int(), edge_relation=hop.edge_relation.int())
    for one, other in zip(case.run("cpu")[0], replace(case, hop=narrow).run("cpu")[0], strict=True):
        assert torch.equal(one, other)


def test_the_definition_is_what_it_is_compared_with() -> None:
    """Nothing between the interface and the reference: they are the same tensors' bits."""
    case = random_case(4, "transe", "all", True, True, torch.float64)
    streams = [Stream(view, weight) for view, weight in zip(case.views, case.weights, strict=True)]
    options = {"boundary": case.boundary, "edge_weight": case.edge_weight, "message": case.message}
    expected, _ = reference.aggregate(case.hop, case.state, streams, reductions=case.reductions, **options)  # type: ignore[arg-type]
    for one, other in zip(case.run("reference")[0], expected, strict=True):
        assert torch.equal(one, other)
