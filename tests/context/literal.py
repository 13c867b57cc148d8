"""Algorithm 1 as the paper prints it, in plain Python sets of labels: slow, and what the fast one has to equal."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from fractions import Fraction

from contextpool.graph.graph import Graph
from contextpool.triples.labels import Vocabulary
from contextpool.triples.store import Triples
from support import relation_sets_of

Labels = frozenset[str]


def power_set(labels: Labels) -> Iterable[Labels]:
    for size in range(len(labels) + 1):
        yield from map(frozenset, itertools.combinations(labels, size))


def cnf_train(
    has: Mapping[str, Labels], measure: str, threshold: float, sizes: Iterable[int]
) -> dict[str, set[Labels]]:
    """CNFTrain of Algorithm 1. `has` is NR_e of every entity, isolated ones included."""
    r2n: dict[str, Counter[Labels]] = defaultdict(Counter)
    for relations in has.values():
        for relation in relations:
            r2n[relation][relations] += 1

    def entities(relations: Labels) -> int:
        return sum(relations <= having for having in has.values())

    def rel(neighbors: Labels, relation: str) -> float:
        below = neighbors if measure == "precision" else frozenset({relation})
        return entities(neighbors | {relation}) / entities(below)

    cnf: dict[str, set[Labels]] = defaultdict(set)
    wanted = set(sizes)
    for relation, having in r2n.items():
        for relations in having:
            for neighbors in power_set(relations - {relation}):
                if len(neighbors) in wanted and rel(neighbors, relation) > threshold:
                    cnf[relation].add(neighbors)
    return cnf


def cnf_generate(family: Iterable[Labels], relations: Labels) -> Labels:
    """CNFGenerate of Algorithm 1; what the paper leaves to the order of the family is settled by the ties."""

    def rank(member: Labels) -> tuple[Fraction, int, int, list[str]]:
        shared = len(member & relations)
        return -Fraction(shared, len(member | relations) or 1), -shared, len(member), sorted(member)

    best = min(family, key=rank, default=frozenset())
    return best & relations


def graph_of(triples: list[tuple[str, str, str]], hermits: int = 0, unused: Iterable[str] = ()) -> Graph:
    """The graph of the triples with isolated entities and relations that nobody has."""
    store = Triples.from_labels(triples)
    entities = Vocabulary.of([*store.entities.labels, *(f"hermit{number}" for number in range(hermits))])
    relations = Vocabulary.of([*store.relations.labels, *unused], "relation")
    return Graph.from_triples(store.with_vocabularies(entities, relations))


def neighbors_of(graph: Graph) -> dict[str, Labels]:
    """NR_e of every entity of the graph in plain Python."""
    has = relation_sets_of(list(graph.triples))
    return {entity: frozenset(has.get(entity, ())) for entity in graph.entities}
