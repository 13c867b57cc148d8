"""Messages and their reduction on the CPU: torch's operations, the reference and the compiled backend, in one run.

    PYTHONPATH=src python benchmarks/aggregate.py [--threads 2 --edges 544000 --dim 32 --repeats 7]

The hop has the size of ten queries over FB15k-237 v4: 4,707 nodes and 54,400 edges each, tails by a power law, 438
directed relations. "torch" is the least that torch needs for a sum: gather, multiply, index_add. What is timed is
compared with the definition in double precision before; then all take turns, and the best of several counts.

Bytes: the fewest that have to move (every edge, state, weight, result and gradient once) with their share of what
a copy moves in the same time, and those of all gathers, which come from memory or from a cache. Compare within a
run, as ratios: the machine may be busy with other things.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

import numba
import torch
from torch import Tensor

from contextpool.kernels.hop import Hop
from contextpool.kernels.interface import FULL, Backend, Reduction, Stream, aggregate

NODES, EDGES, DIRECTED = 4_707, 54_400, 438
PNA: tuple[Reduction, ...] = ("mean", "max", "min", "std")
FLOAT = 4


@dataclass(frozen=True)
class Setting:
    """One hop with everything that is sent over it."""

    hop: Hop
    state: Tensor  # [M, D]
    weights: list[Tensor]
    """[B, 2R, D] or [2R, D] for each stream."""
    reductions: tuple[Reduction, ...]

    @property
    def streams(self) -> list[Stream]:
        return [Stream(FULL if v == 0 else v - 1, weight) for v, weight in enumerate(self.weights)]

    @property
    def leaves(self) -> list[Tensor]:
        return [self.state, *self.weights]

    @property
    def messages(self) -> int:
        views = [int(self.hop.in_view(stream.view).sum()) for stream in self.streams if stream.view != FULL]
        return self.hop.num_edges + sum(views)

    @property
    def result_numbers(self) -> int:
        return len(self.weights) * self.hop.num_targets * len(self.reductions) * self.state.size(1)

    def in_double(self) -> Setting:
        state, *weights = (leaf.detach().double().requires_grad_() for leaf in self.leaves)
        return Setting(self.hop, state, weights, self.reductions)

    def fewest_bytes(self, backward: bool) -> int:
        """Forward: edges (source, relation, views), inputs, results. Backward: that again, and gradients of all."""
        inputs = FLOAT * sum(leaf.numel() for leaf in self.leaves)
        once = 9 * self.hop.num_edges + inputs + FLOAT * self.result_numbers
        return 2 * once + FLOAT * self.result_numbers + 2 * inputs if backward else once

    def gathered_bytes(self, backward: bool) -> int:
        """A state and a weight for each message; backward reads them again and reads and writes both gradients."""
        return self.messages * 2 * FLOAT * self.state.size(1) * (4 if backward else 1)


def random_hop(num_edges: int, seed: int = 0) -> Hop:
    """Edges within queries of NODES nodes and about EDGES edges."""
    generator = torch.Generator().manual_seed(seed)
    num_queries = max(1, round(num_edges / EDGES))
    num_nodes = min(NODES, max(2, num_edges // 10))
    query = torch.randint(num_queries, (num_edges,), generator=generator)
    entity = (num_nodes * torch.rand(num_edges, generator=generator) ** 2).long()
    target = (query * num_nodes + entity).sort().values
    source = target - target % num_nodes + torch.randint(num_nodes, (num_edges,), generator=generator)
    count = num_queries * num_nodes
    return Hop(
        num_sources=count,
        num_targets=count,
        row_start=torch.searchsorted(target, torch.arange(count + 1)),
        edge_source=source.int(),
        edge_relation=torch.randint(DIRECTED, (num_edges,), generator=generator).int(),
        edge_views=torch.randint(4, (num_edges,), generator=generator).to(torch.uint8),
        node_query=torch.arange(count) // num_nodes,
    )


def setting_of(
    hop: Hop, dim: int, reductions: tuple[Reduction, ...], num_streams: int, by_query: bool
) -> Setting:
    generator = torch.Generator().manual_seed(1)
    shape = (int(hop.node_query[-1]) + 1, DIRECTED, dim) if by_query else (DIRECTED, dim)
    state, *weights = (
        torch.randn(*one, generator=generator).requires_grad_()
        for one in ((hop.num_sources, dim), *[shape] * num_streams)
    )
    return Setting(hop, state, weights, reductions)


def with_backend(setting: Setting, backend: Backend) -> Callable[[], list[Tensor]]:
    def run() -> list[Tensor]:
        return aggregate(
            setting.hop,
            setting.state,
            setting.streams,
            message="distmult",
            reductions=setting.reductions,
            backend=backend,
        )[0]

    return run


def with_torch(setting: Setting) -> Callable[[], list[Tensor]]:
    """The sum over all edges by torch's own operations, indexes prepared beforehand."""
    hop, state, (weight,) = setting.hop, setting.state, setting.weights
    source, relation, target = hop.edge_source.long(), hop.edge_relation.long(), hop.edge_target

    def run() -> list[Tensor]:
        total = state.new_zeros(hop.num_targets, state.size(1))
        return [total.index_add(0, target, state[source] * weight[relation])[:, None]]

    return run


def forward_only(run: Callable[[], list[Tensor]]) -> Callable[[], object]:
    def work() -> object:
        with torch.no_grad():
            return run()

    return work


def with_backward(setting: Setting, run: Callable[[], list[Tensor]]) -> Callable[[], object]:
    due = [torch.ones_like(one) for one in forward_only(run)()]  # type: ignore[attr-defined]
    return lambda: torch.autograd.grad(run(), setting.leaves, due)


def check(setting: Setting, run: Callable[[], list[Tensor]]) -> None:
    """Results and gradients are those of the definition in double precision, relative to the largest number."""
    outcomes = []
    exact = setting.in_double()
    for of, task in ((setting, run), (exact, with_backend(exact, "reference"))):
        results = task()
        due = [torch.ones_like(one) for one in results]
        outcomes.append([*results, *torch.autograd.grad(results, of.leaves, due)])
    for one, other in zip(*outcomes, strict=True):
        worst = float((one.detach() - other.detach()).abs().max() / other.detach().abs().max())
        if worst > 1e-4:
            raise SystemExit(f"a backend and the definition disagree by {worst:.1e} of the largest number")


def best_of(tasks: list[Callable[[], object]], repeats: int) -> list[float]:
    """The best seconds of each, all taking turns, after one turn to warm up."""
    seconds: list[list[float]] = [[] for _ in tasks]
    for _ in range(1 + repeats):
        for number, task in enumerate(tasks):
            started = time.perf_counter()
            task()
            seconds[number].append(time.perf_counter() - started)
    return [min(found[1:]) for found in seconds]


def copy_bandwidth() -> float:
    """Bytes read and written by a copy, per second."""
    source = torch.rand(2**25)
    target = torch.empty_like(source)
    (seconds,) = best_of([lambda: target.copy_(source)], 7)
    return 2 * FLOAT * source.numel() / seconds


def compare(name: str, setting: Setting, repeats: int, bandwidth: float, beside_torch: bool) -> None:
    runs = {"reference": with_backend(setting, "reference"), "cpu": with_backend(setting, "cpu")}
    if beside_torch:
        runs = {"torch": with_torch(setting), **runs}
    for label, run in runs.items():
        if label != "reference":
            check(setting, run)
    for backward in (False, True):
        work = [with_backward(setting, run) if backward else forward_only(run) for run in runs.values()]
        times = dict(zip(runs, best_of(work, repeats), strict=True))
        fewest, gathers = setting.fewest_bytes(backward), setting.gathered_bytes(backward)
        for label, seconds in times.items():
            print(
                f"{name:25}{'and backward' if backward else 'forward':13} {label:9} {1e3 * seconds:8.2f} "
                f"{next(iter(times.values())) / seconds:7.1f} {100 * fewest / seconds / bandwidth:8.1f} "
                f"{fewest / 1e6:10.0f} {gathers / 1e6:10.0f}",
                flush=True,
            )


def scaling(dim: int, repeats: int, bandwidth: float) -> None:
    print("\nedges        sum, ms   ns an edge   % of copy   and backward, ms   ns an edge   % of copy")
    for exponent in (4, 5, 6, 7):
        hop = random_hop(10**exponent)
        setting = setting_of(hop, dim, ("sum",), 1, by_query=False)
        run = with_backend(setting, "cpu")
        few = repeats if exponent < 7 else 2
        forward, both = best_of([forward_only(run), with_backward(setting, run)], few)
        shares = [
            100 * setting.fewest_bytes(backward) / seconds / bandwidth
            for backward, seconds in ((False, forward), (True, both))
        ]
        print(
            f"10^{exponent} {1e3 * forward:15.2f} {1e9 * forward / hop.num_edges:12.1f} {shares[0]:11.1f} "
            f"{1e3 * both:18.2f} {1e9 * both / hop.num_edges:12.1f} {shares[1]:11.1f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--edges", type=int, default=544_000)
    parser.add_argument("--dim", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    numba.set_num_threads(min(options.threads, numba.config.NUMBA_NUM_THREADS))
    bandwidth = copy_bandwidth()
    hop = random_hop(options.edges)
    threads = f"{torch.get_num_threads()} threads of torch, {numba.get_num_threads()} of numba"
    print(
        f"{threads}; copy {bandwidth / 1e9:.1f} GB/s; {hop.num_edges:,} edges, {hop.num_targets:,} nodes, "
        f"d {options.dim}, {DIRECTED} relations, distmult\n"
        f"{'':48} {'ms':>8} {'times':>7} {'% of copy':>9} {'fewest MB':>9} {'gathers MB':>10}"
    )
    for name, reductions, streams, by_query in (
        ("sum", ("sum",), 1, False),
        ("PNA", PNA, 1, False),
        ("PNA, weights by query", PNA, 1, True),
        ("PNA, two views, by query", PNA, 3, True),
    ):
        setting = setting_of(hop, options.dim, reductions, streams, by_query)  # type: ignore[arg-type]
        few = options.repeats if name == "sum" else max(2, options.repeats // 3)
        compare(name, setting, few, bandwidth, beside_torch=name == "sum")
    scaling(options.dim, options.repeats, bandwidth)


if __name__ == "__main__":
    main()
