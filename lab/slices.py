"""Where the answers are found: reciprocal ranks by distance of the answer and by support of the relation.

Sums and counts, so that they add over seeds and settings.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from contextpool.evaluate.report import EvaluationReport
from contextpool.triples.audit import components, hops_between, undirected_links
from contextpool.triples.dataset import Dataset
from contextpool.triples.store import Triples

MOST_HOPS = 6
FARTHER, NEVER = f"{MOST_HOPS + 1}+", "never"
DISTANCES = (*(str(hop) for hop in range(MOST_HOPS + 1)), FARTHER, NEVER)
"""Hops from the head to the answer in the graph that is walked on, edges either way; `never`: no path at all."""
SUPPORTS = ("0", "1-9", "10-99", "100-999", "1000+")
"""Facts of the query relation in the training graph."""

Places = npt.NDArray[np.int64]
Sums = dict[str, dict[str, float]]
"""bucket -> {"sum": of reciprocal ranks, "count": of ranks}; buckets without a rank are left out."""


@dataclass(frozen=True, eq=False)
class QuerySlices:
    """The bucket of each of T query triples, in the order of `queries`."""

    distance: Places
    """[T] place in `DISTANCES`"""
    support: Places
    """[T] place in `SUPPORTS`"""

    @classmethod
    def of(cls, dataset: Dataset, queries: Triples) -> QuerySlices:
        """For queries over the inference graph; relations are supported by the training graph."""
        return cls(_distance(dataset.inference_graph, queries), _support(dataset.training_graph, queries))

    def by_distance(self, report: EvaluationReport) -> Sums:
        return _sums(report, self.distance, DISTANCES)

    def by_support(self, report: EvaluationReport) -> Sums:
        return _sums(report, self.support, SUPPORTS)


def _distance(graph: Triples, queries: Triples) -> Places:
    """[T] place in `DISTANCES`. O(edges * T / 64) time a hop."""
    head, tail = queries.ids[:, 0].astype(np.int64), queries.ids[:, 2].astype(np.int64)
    links = undirected_links(graph)
    hops = hops_between(links, head, tail, MOST_HOPS)
    component = components(links)
    apart = component[head] != component[tail]
    return np.where(apart, len(DISTANCES) - 1, hops)


def _support(graph: Triples, queries: Triples) -> Places:
    """[T] place in `SUPPORTS`; both have the same relations."""
    facts = np.bincount(graph.ids[:, 1], minlength=len(graph.relations))  # [R]
    return np.digitize(facts[queries.ids[:, 1]], [1, 10, 100, 1000]).astype(np.int64)


def _sums(report: EvaluationReport, place: Places, names: tuple[str, ...]) -> Sums:
    both = np.tile(place, 2)  # [2T] a triple is asked in both directions
    sums = np.bincount(both, 1 / report.ranks, len(names))
    counts = np.bincount(both, minlength=len(names))
    return {
        name: {"sum": float(sums[bucket]), "count": int(counts[bucket])}
        for bucket, name in enumerate(names)
        if counts[bucket]
    }
