"""Counters, gauges and histograms in the text format of Prometheus (version 0.0.4)."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence

Labels = tuple[str, ...]
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Counter:
    """A number that only grows, for each combination of label values."""

    kind = "counter"

    def __init__(self, name: str, what: str, labels: Sequence[str] = ()) -> None:
        self.name, self.what, self._labels = name, what, tuple(labels)
        self._values: dict[Labels, float] = {}
        self._lock = threading.Lock()

    def add(self, *values: str, amount: float = 1) -> None:
        with self._lock:
            self._values[values] = self._values.get(values, 0) + amount

    def samples(self) -> Iterator[str]:
        with self._lock:
            current = sorted(self._values.items())
        for values, number in current:
            yield f"{self.name}{_braced(self._labels, values)} {_shown(number)}"


class Gauge:
    """Numbers that are looked up when they are asked for."""

    kind = "gauge"

    def __init__(
        self, name: str, what: str, labels: Sequence[str], read: Callable[[], Iterable[tuple[Labels, float]]]
    ) -> None:
        self.name, self.what, self._labels, self._read = name, what, tuple(labels), read

    def samples(self) -> Iterator[str]:
        for values, number in self._read():
            yield f"{self.name}{_braced(self._labels, values)} {_shown(number)}"


class Histogram:
    """How many observations were at most each bound, for each combination of label values."""

    kind = "histogram"

    def __init__(
        self, name: str, what: str, labels: Sequence[str] = (), bounds: Sequence[float] = SECONDS
    ) -> None:
        self.name, self.what, self._labels, self._bounds = name, what, tuple(labels), tuple(bounds)
        self._counts: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}
        self._lock = threading.Lock()

    def observe(self, number: float, *values: str) -> None:
        with self._lock:
            counts = self._counts.setdefault(values, [0] * (len(self._bounds) + 1))
            counts[bisect_left(self._bounds, number)] += 1
            self._sums[values] = self._sums.get(values, 0.0) + number

    def samples(self) -> Iterator[str]:
        with self._lock:
            current = sorted(
                (values, list(counts), self._sums[values]) for values, counts in self._counts.items()
            )
        for values, counts, total in current:
            so_far = 0
            for bound, count in zip((*map(_shown, self._bounds), "+Inf"), counts, strict=True):
                so_far += count
                yield f"{self.name}_bucket{_braced((*self._labels, 'le'), (*values, bound))} {so_far}"
            yield f"{self.name}_sum{_braced(self._labels, values)} {_shown(total)}"
            yield f"{self.name}_count{_braced(self._labels, values)} {so_far}"


def as_text(metrics: Iterable[Counter | Gauge | Histogram]) -> str:
    """All of them, each with its help and type."""
    lines: list[str] = []
    for metric in metrics:
        lines += [f"# HELP {metric.name} {metric.what}", f"# TYPE {metric.name} {metric.kind}"]
        lines += metric.samples()
    return "\n".join(lines) + "\n"


def _braced(names: Sequence[str], values: Sequence[str]) -> str:
    if not names:
        return ""
    pairs = (f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True))
    return "{" + ",".join(pairs) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _shown(number: float) -> str:
    return str(int(number)) if float(number).is_integer() else repr(float(number))
