"""Algorithm 2 as the paper prints it, in plain Python sets of labels: slow, and what the fast walks have to equal."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from contextpool.context.neighbors import MaskSelector, RelationSelector, SelectionTable
from contextpool.graph.graph import Graph
from contextpool.graph.relation_sets import Words, pack_bits, unpack_bits
from contextpool.graph.relations import RelationVocabulary
from contextpool.pool.hide import HiddenEdges
from contextpool.triples.labels import Vocabulary
from contextpool.triples.store import Triples

Triple = tuple[str, str, str]
Select = Callable[[frozenset[str], str], set[str]]
"""CNFGenerate: (NR_e, query relation) -> relations that may leave."""


def inverse(relation: str) -> str:
    return relation[:-3] if relation.endswith("^-1") else relation + "^-1"


def back(triple: Triple) -> Triple:
    return triple[2], inverse(triple[1]), triple[0]


def visible_edges(triples: Iterable[Triple], hide: Iterable[Triple]) -> set[Triple]:
    """Both directions of all facts, less both directions of the hidden ones."""
    edges = {way for triple in triples for way in (triple, back(triple))}
    return edges - {way for triple in hide for way in (triple, back(triple))}


def context_pooling(edges: set[Triple], previous: set[Triple], select: Select) -> set[Triple]:
    """Algorithm 2, line by line."""
    hop: set[Triple] = set()
    for _, rho, entity in previous:
        relations = frozenset(r for head, r, _ in edges if head == entity)
        relevant = select(relations, inverse(rho)) & relations
        hop |= {(head, r, tail) for head, r, tail in edges if head == entity and r in relevant}
    return hop


def literal_pool(
    triples: Iterable[Triple],
    select: Select,
    head: str,
    relation: str,
    hops: int,
    hide: Iterable[Triple] = (),
) -> list[set[Triple]]:
    """G_context^1 .. G_context^L, from G_context^0 = {(?, inverse(relation), head)}."""
    edges = visible_edges(triples, hide)
    result = [{("?", inverse(relation), head)}]
    for _ in range(hops):
        result.append(context_pooling(edges, result[-1], select))
    return result[1:]


def literal_reach(
    triples: Iterable[Triple], head: str, hops: int, hide: Iterable[Triple] = ()
) -> dict[str, int]:
    """Entities within `hops` of the head, with the fewest hops that it takes."""
    edges, first_hop = visible_edges(triples, hide), {head: 0}
    for hop in range(1, hops + 1):
        for tail in {tail for source, _, tail in edges if source in first_hop}:
            first_hop.setdefault(tail, hop)
    return first_hop


def select_by_mask(selector: MaskSelector) -> Select:
    names = selector.relations.directed
    neighbors = {query: {names[n] for n in np.flatnonzero(selector.mask[q])} for q, query in enumerate(names)}
    return lambda relations, query: neighbors[query]


@dataclass(frozen=True, eq=False)
class ArbitrarySelector:
    """Any function at all of (NR_e, query): what the walk has to get right if the answer depends on the entity.

    Pairs that were not wanted lead to a row that allows everything, so that reading one shows.
    """

    relations: RelationVocabulary
    seed: int
    depends_on_entity: bool = True
    asked: list[tuple[int, int]] = field(default_factory=list)
    """How many sets, and how many pairs of set and query, each call wanted."""

    def select(self, relation_set: frozenset[str], query: str) -> set[str]:
        rng = random.Random(f"{self.seed} {sorted(relation_set)} {query}")
        return {label for label in self.relations.directed if rng.random() < 0.5}

    def selection_table(self, sets: Words, wanted: npt.NDArray[np.bool_]) -> SelectionTable:
        self.asked.append((len(sets), int(wanted.sum())))
        names = self.relations.directed
        members = unpack_bits(sets, len(names))
        row_of = np.zeros(wanted.shape, dtype=np.int32)
        rows = [np.ones(len(names), dtype=bool)]
        for s, q in zip(*np.nonzero(wanted), strict=True):
            chosen = self.select(frozenset(names[n] for n in np.flatnonzero(members[s])), names[q])
            row_of[s, q] = len(rows)
            rows.append(np.array([name in chosen for name in names], dtype=bool))
        return SelectionTable(row_of, pack_bits(np.stack(rows)))


@dataclass(frozen=True, eq=False)
class Case:
    """A random graph, a selector, a batch of queries with what is hidden from each, and a number of hops."""

    graph: Graph
    triples: list[Triple]
    selector: RelationSelector
    select: Select
    queries: list[tuple[str, str]]
    hide: list[list[Triple]]
    hops: int

    @property
    def query_head(self) -> torch.Tensor:
        return torch.tensor([self.graph.entity_id(head) for head, _ in self.queries])

    @property
    def query_relation(self) -> torch.Tensor:
        return torch.tensor([self.graph.relation_id(relation) for _, relation in self.queries])

    @property
    def hidden(self) -> HiddenEdges:
        return HiddenEdges.from_triples(self.graph, self.hide)

    def expected(self, query: int) -> list[set[Triple]]:
        head, relation = self.queries[query]
        return literal_pool(self.triples, self.select, head, relation, self.hops, self.hide[query])


def random_case(seed: int, *, depends_on_entity: bool) -> Case:
    """Parallel edges, self loops, isolated entities, relations without facts; few or many relations."""
    rng = random.Random(seed)
    entities = [f"e{number}" for number in range(rng.randint(1, 7))]
    relations = [f"r{number:02}" for number in range(rng.choice([1, 2, 3, 5, 40]))]
    used = relations[-6:]  # with 40 relations, ids on both sides of a word of 64 bits
    drawn = {
        (rng.choice(entities), rng.choice(used), rng.choice(entities)) for _ in range(rng.randint(1, 16))
    }
    triples = sorted(drawn)
    graph = graph_of(triples, [*entities, "lonely"], relations)
    directed = graph.relation_vocabulary.directed
    if depends_on_entity:
        arbitrary = ArbitrarySelector(graph.relation_vocabulary, seed)
        selector, select = arbitrary, arbitrary.select
    else:
        density = rng.choice([0.2, 0.5, 0.9, 1.0])
        mask = np.array([[rng.random() < density for _ in directed] for _ in directed], dtype=bool)
        selector = MaskSelector(graph.relation_vocabulary, mask)
        select = select_by_mask(selector)
    own = [rng.choice(triples) for _ in range(rng.randint(1, 8))]
    ways = [rng.choice([triple, back(triple)]) for triple in own]
    queries = [(head, relation) for head, relation, _ in ways]
    if rng.random() < 0.3:
        queries[0] = (rng.choice([*entities, "lonely"]), rng.choice(directed))
    hide = [_hide(rng, triples, way) for way in ways]
    return Case(graph, triples, selector, select, queries, hide, rng.randint(1, 4))


def larger_case(seed: int, *, depends_on_entity: bool) -> Case:
    """1,500 entities, 35 relations, 6,000 facts between them; each query's own edge hidden, sometimes more."""
    rng = random.Random(seed)
    entities = [f"e{number:04}" for number in range(1_500)]
    relations = [f"r{number:02}" for number in range(35)]
    triples = sorted(
        {(rng.choice(entities), rng.choice(relations), rng.choice(entities)) for _ in range(6_000)}
    )
    graph = graph_of(triples, entities, relations)
    directed = graph.relation_vocabulary.directed
    arbitrary = ArbitrarySelector(graph.relation_vocabulary, seed)
    mask = MaskSelector(
        graph.relation_vocabulary, np.array([[rng.random() < 0.6 for _ in directed] for _ in directed])
    )
    own = rng.sample(triples, 60)
    queries = [(head, relation) for head, relation, _ in own]
    hide = [_hide(rng, triples, triple) for triple in own]
    if depends_on_entity:
        return Case(graph, triples, arbitrary, arbitrary.select, queries, hide, 3)
    return Case(graph, triples, mask, select_by_mask(mask), queries, hide, 3)


def _hide(rng: random.Random, triples: list[Triple], own: Triple) -> list[Triple]:
    """Nothing, the query's own edge, that and others, or a whole relation of the head; in either direction."""
    kind = rng.randrange(4)
    if kind == 0:
        return []
    hidden = [own]
    if kind == 2:
        hidden += rng.choices(triples, k=rng.randint(1, 4))
    if kind == 3:
        hidden += [edge for edge in visible_edges(triples, []) if edge[:2] == own[:2]]
    return [rng.choice([triple, back(triple)]) for triple in hidden]


def graph_of(triples: Iterable[Triple], entities: Iterable[str], relations: Iterable[str]) -> Graph:
    """A graph whose vocabularies hold more than its facts use."""
    store = Triples.from_labels(triples)
    return Graph.from_triples(
        store.with_vocabularies(Vocabulary.of(entities), Vocabulary.of(relations, "relation"))
    )


def labels(graph: Graph, edges: torch.Tensor) -> set[Triple]:
    """Edge ids as labels; they have to be distinct and ascending."""
    ids = edges.tolist()
    assert ids == sorted(set(ids))
    return set(graph.edge_labels(edges.long()))
