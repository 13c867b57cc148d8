"""The beam search against every simple path, enumerated."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpool.explain.attribution import beam_search, strongest_paths

Edge = tuple[int, int, float]
EDGES = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 5), st.sampled_from([-1.0, 0.0, 0.5, 1.0, 2.0])), max_size=14
)


def every_path(edges: list[Edge], start: int, end: int, longest: int) -> list[tuple[int, ...]]:
    """All simple paths, by trying everything."""
    found: list[tuple[int, ...]] = []

    def go_on(at: int, seen: tuple[int, ...], walked: tuple[int, ...]) -> None:
        for number, (source, target, _) in enumerate(edges):
            if source != at or target in seen or len(walked) == longest:
                continue
            if target == end:
                found.append((*walked, number))
            else:
                go_on(target, (*seen, target), (*walked, number))

    go_on(start, (start,), ())
    return found


def columns(edges: list[Edge]):  # type: ignore[no-untyped-def]
    source, target, value = ([edge[column] for edge in edges] for column in range(3))
    ends = np.array(source, dtype=np.int64), np.array(target, dtype=np.int64)
    return *ends, np.array(value, dtype=np.float64)


def search(edges: list[Edge], start: int, end: int, longest: int, most: int, beam: int = 10_000):  # type: ignore[no-untyped-def]
    return strongest_paths(*columns(edges), start, end, longest, most, beam)


@given(EDGES, st.integers(0, 5), st.integers(0, 5), st.integers(1, 4), st.integers(1, 6))
def test_with_a_wide_beam_it_finds_what_trying_everything_finds(
    edges: list[Edge], start: int, end: int, longest: int, most: int
) -> None:
    def order(path: tuple[int, ...]) -> tuple[float, float, int, tuple[int, ...]]:
        values = [edges[number][2] for number in path]
        return -min(values), -sum(values) / len(values), len(path), path

    expected = sorted(every_path(edges, start, end, longest), key=order)[:most]
    if start == end:
        expected = []
    found = search(edges, start, end, longest, most)
    assert [path.edges for path in found] == expected
    for path in found:
        values = [edges[number][2] for number in path.edges]
        assert path.strength == min(values)
        assert path.mean == pytest.approx(sum(values) / len(values))


@given(EDGES, st.integers(1, 3))
def test_a_narrow_beam_finds_only_paths_and_the_strongest_of_all(edges: list[Edge], beam: int) -> None:
    """Cutting back to the strongest path of a node cannot lose the strongest of all, unless it crosses itself."""
    every = every_path(edges, 0, 5, 3)
    found = search(edges, 0, 5, 3, 4, beam)
    assert {path.edges for path in found} <= set(every)
    assert bool(found) == bool(every) or beam < 3


@given(EDGES, st.integers(0, 5), st.integers(1, 4), st.integers(1, 5), st.integers(1, 3))
def test_looking_at_strong_edges_first_finds_what_looking_at_all_of_them_does(
    edges: list[Edge], end: int, longest: int, most: int, beam: int
) -> None:
    whole = beam_search(*columns(edges), 0, end, longest, beam)[:most]
    assert search(edges, 0, end, longest, most, beam) == whole


def test_a_chain_is_as_strong_as_its_weakest_edge() -> None:
    edges = [(0, 1, 5.0), (1, 3, 0.1), (0, 2, 1.0), (2, 3, 1.0), (0, 3, 0.5)]
    assert [path.edges for path in search(edges, 0, 3, 3, 5)] == [(2, 3), (4,), (0, 1)]


def test_there_may_be_no_path() -> None:
    assert search([], 0, 1, 3, 5) == []
    assert search([(1, 0, 1.0)], 0, 1, 3, 5) == []
    assert search([(0, 2, 1.0), (2, 1, 1.0)], 0, 1, 1, 5) == []
