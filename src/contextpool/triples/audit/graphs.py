"""What one graph looks like: degrees, relation frequency, relation sets, components, twin relations."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse import csgraph

from contextpool.triples.audit.index import FactIndex, Integers, Neighbors, sorted_distinct
from contextpool.triples.store import Ids, Triples

TWIN_SHARE = 0.8
"""Two relations are twins where more than this share of the pairs of each is found in the other."""
RARE_FACTS = 3
"""A relation with no more facts than this is rare."""

TwinKind = Literal["symmetric", "inverse", "duplicate"]


@dataclass(frozen=True)
class Spread:
    """How a number is spread over the entities; all 0 where there are none."""

    min: float
    median: float
    mean: float
    p95: float
    max: float

    @classmethod
    def of(cls, values: npt.NDArray[np.int64]) -> Spread:
        """The five numbers of a list; percentiles interpolate linearly."""
        if len(values) == 0:
            return cls(0.0, 0.0, 0.0, 0.0, 0.0)
        low, median, p95, high = np.quantile(values, [0, 0.5, 0.95, 1]).tolist()
        return cls(low, median, float(values.mean()), p95, high)


@dataclass(frozen=True)
class RelationTwin:
    """Two relations that hold between (nearly) the same pairs. Self loops do not count."""

    kind: TwinKind
    """symmetric: its own inverse; inverse: the pairs turned round; duplicate: the same pairs."""
    relation: str
    other: str
    matched: int
    """Pairs of `relation` that `other` mirrors."""
    share: float
    """... out of all pairs of `relation`."""
    share_of_other: float


@dataclass(frozen=True)
class GraphStatistics:
    """One graph, counted. Entities are those of its vocabulary, so some may have no edge."""

    name: str
    triples: int
    entities: int
    isolated: int
    """Entities without an edge: they can only ever be wrong candidates, or questions without evidence."""
    relations: int
    """Relations with a fact."""
    linked_pairs: int
    """Distinct (head, tail) pairs."""
    parallel_pairs: int
    """... that more than one relation links."""
    self_loops: int
    degree: Spread
    """Edge ends per entity: in + out, a self loop counts twice, an isolated entity 0."""
    degree_histogram: tuple[tuple[int, int], ...]
    """(degree, entities that have it), ascending."""
    relation_frequency: tuple[tuple[str, int], ...]
    """(relation, facts), most frequent first, then by label."""
    rare_relations: tuple[str, ...]
    """Relations with 1 to `RARE_FACTS` facts, by label."""
    relation_sets: int
    """Distinct NR_e, inverses included, over entities that have an edge."""
    relation_set_size: Spread
    relation_set_histogram: tuple[tuple[int, int], ...]
    """(size of NR_e, entities that have such a set), ascending."""
    components: int
    """Connected components, edges taken both ways, isolated entities left out."""
    largest_component: int
    """Entities in the largest of them."""
    twins: tuple[RelationTwin, ...]
    """Twin relations, found among all triples of this side (held-out ones too), most pairs first."""


@dataclass(frozen=True, eq=False)
class AuditedGraph:
    """A graph with the look-ups that its statistics and the questions about its queries share."""

    triples: Triples
    index: FactIndex
    neighbors: Neighbors
    component: npt.NDArray[np.int32]
    """[N] the component of each entity."""
    has_edge: npt.NDArray[np.bool_]
    """[N]"""
    mirrored: Integers
    """Sorted codes r * R + x: x turned round is (nearly) r. Symmetric relations have r == x."""
    duplicated: Integers
    """Sorted codes r * R + x: x is (nearly) r."""
    statistics: GraphStatistics


def audit_graph(name: str, graph: Triples, all_ids: Ids | None = None) -> AuditedGraph:
    """Count a graph. `all_ids` [A, 3]: its facts with its held-out triples, on which twins are judged.

    With the held-out triples left out, a perfectly symmetric relation of an 80 : 10 : 10 split mirrors only
    80 % of itself and would be missed.
    """
    index = FactIndex.of(graph)
    everything = (
        index if all_ids is None else FactIndex.of_ids(all_ids, index.num_entities, index.num_relations)
    )
    neighbors = Neighbors.of(index)
    has_edge = np.zeros(index.num_entities, dtype=bool)
    has_edge[neighbors.nodes] = True
    component = _components(index)
    twins = relation_twins(everything, graph.relations.labels)
    return AuditedGraph(
        graph,
        index,
        neighbors,
        component,
        has_edge,
        _twin_codes(twins, graph, ("symmetric", "inverse")),
        _twin_codes(twins, graph, ("duplicate",)),
        _statistics(name, graph, index, component[has_edge], twins),
    )


def _statistics(
    name: str,
    graph: Triples,
    index: FactIndex,
    component: npt.NDArray[np.int32],
    twins: tuple[RelationTwin, ...],
) -> GraphStatistics:
    heads, tails = graph.ids[:, 0], graph.ids[:, 2]
    degree = np.bincount(np.concatenate([heads, tails]), minlength=index.num_entities)  # [N]
    frequency = _relation_frequency(graph)
    set_sizes, distinct_sets = _relation_sets(graph)
    component_sizes = np.unique(component, return_counts=True)[1]
    return GraphStatistics(
        name=name,
        triples=len(graph),
        entities=index.num_entities,
        isolated=int((degree == 0).sum()),
        relations=len(frequency),
        linked_pairs=len(index.pairs),
        parallel_pairs=int((np.bincount(index.fact_pairs) > 1).sum()),
        self_loops=int((heads == tails).sum()),
        degree=Spread.of(degree),
        degree_histogram=_histogram(degree),
        relation_frequency=frequency,
        rare_relations=tuple(sorted(label for label, count in frequency if count <= RARE_FACTS)),
        relation_sets=distinct_sets,
        relation_set_size=Spread.of(set_sizes),
        relation_set_histogram=_histogram(set_sizes),
        components=len(component_sizes),
        largest_component=int(component_sizes.max(initial=0)),
        twins=twins,
    )


def _histogram(values: npt.NDArray[np.int64]) -> tuple[tuple[int, int], ...]:
    distinct, counts = np.unique(values, return_counts=True)
    return tuple(zip(distinct.tolist(), counts.tolist(), strict=True))


def _relation_frequency(graph: Triples) -> tuple[tuple[str, int], ...]:
    counts = np.bincount(graph.ids[:, 1], minlength=len(graph.relations)).tolist()
    present = [(label, count) for label, count in zip(graph.relations.labels, counts, strict=True) if count]
    return tuple(sorted(present, key=lambda item: (-item[1], item[0])))


def _relation_sets(graph: Triples) -> tuple[Integers, int]:
    """[M] the size of NR_e for each entity that has an edge, and how many distinct sets there are.

    O(T log T) time, O(T) memory: sets are compared as slices of one byte string, never as rows of 2R.
    """
    heads, relations, tails = graph.ids.astype(np.int64).T
    num_directed = 2 * max(len(graph.relations), 1)
    of_head, of_tail = heads * num_directed + relations, tails * num_directed + relations + num_directed // 2
    membership = sorted_distinct(np.concatenate([of_head, of_tail]))  # (entity, directed relation)
    first = np.flatnonzero(np.diff(membership // num_directed, prepend=-1))  # where an entity's set begins
    bounds = np.append(first, len(membership))
    packed = (membership % num_directed).astype(np.int32).tobytes()
    offsets = (bounds * 4).tolist()
    distinct = {packed[start:stop] for start, stop in pairwise(offsets)}
    return np.diff(bounds).astype(np.int64), len(distinct)


def _components(index: FactIndex) -> npt.NDArray[np.int32]:
    """[N] a component number per entity; an isolated entity is its own."""
    size = index.num_entities
    if size == 0:
        return np.empty(0, dtype=np.int32)
    ones = np.ones(len(index.pairs), dtype=np.int8)
    adjacency = sparse.csr_array((ones, (index.pair_heads, index.pair_tails)), shape=(size, size))
    labels: npt.NDArray[np.int32] = csgraph.connected_components(adjacency, directed=False)[1]
    return labels


def relation_twins(index: FactIndex, labels: tuple[str, ...]) -> tuple[RelationTwin, ...]:
    """Relations whose pairs mirror each other by more than `TWIN_SHARE` both ways, most pairs first.

    Pairs are counted by two sparse products of [pair, relation] incidences: O(sum over pairs of the square of
    the relations on it).
    """
    pair_heads, pair_tails = index.pair_heads, index.pair_tails
    no_loop = pair_heads != pair_tails
    turned = index.pair_position(pair_tails, pair_heads)  # [P] the position of (tail, head)
    keep = no_loop[index.fact_pairs]
    pair, relation = index.fact_pairs[keep], index.fact_relations[keep]
    same = _incidence(pair, relation, index)
    mirror_pair = turned[pair]
    mirror = _incidence(mirror_pair[mirror_pair >= 0], relation[mirror_pair >= 0], index)
    support = np.bincount(relation, minlength=index.num_relations)
    twins = [
        *_twins_of(same.T @ mirror, support, labels, mirrored=True),
        *_twins_of(same.T @ same, support, labels, mirrored=False),
    ]
    return tuple(sorted(twins, key=lambda twin: (-twin.matched, twin.relation, twin.other, twin.kind)))


def _incidence(pair: Integers, relation: Integers, index: FactIndex) -> sparse.csr_array:
    """[P, R] which relations hold on which pair."""
    ones = np.ones(len(pair), dtype=np.int64)
    return sparse.csr_array((ones, (pair, relation)), shape=(len(index.pairs), index.num_relations))


def _twins_of(
    shared: sparse.csr_array, support: Integers, labels: tuple[str, ...], *, mirrored: bool
) -> list[RelationTwin]:
    """The entries of `shared` [R, R] (pairs in common) above the threshold; each unordered pair once."""
    entries = shared.tocoo()
    first, second = entries.coords
    matched = entries.data
    share, share_of_other = matched / support[first], matched / support[second]
    once = first <= second if mirrored else first < second
    found = np.flatnonzero(once & (share > TWIN_SHARE) & (share_of_other > TWIN_SHARE))
    return [
        RelationTwin(
            "duplicate" if not mirrored else "symmetric" if first[k] == second[k] else "inverse",
            labels[first[k]],
            labels[second[k]],
            int(matched[k]),
            float(share[k]),
            float(share_of_other[k]),
        )
        for k in found.tolist()
    ]


def _twin_codes(twins: tuple[RelationTwin, ...], graph: Triples, kinds: tuple[TwinKind, ...]) -> Integers:
    """Sorted codes r * R + x of the twins of these kinds, either of the two asked for."""
    index, size = graph.relations.index, len(graph.relations)
    chosen = [(index[twin.relation], index[twin.other]) for twin in twins if twin.kind in kinds]
    codes = {code for r, x in chosen for code in (r * size + x, x * size + r)}
    return np.array(sorted(codes), dtype=np.int64)
