"""AnyBURL's rules, counts and comparison, and the chains of Neural LP and DRUM, in plain Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from contextpool.graph.graph import Graph
from contextpool.graph.relations import inverse


class LiteralRule(NamedTuple):
    """A directed relation and the body."""

    relation: int
    body: tuple[int, ...]


Edges = set[tuple[int, int, int]]


def edges_of(graph: Graph) -> Edges:
    columns = (graph.edge_head, graph.edge_relation, graph.edge_tail)
    return set(zip(*(column.tolist() for column in columns), strict=True))


def simple_walks(edges: Edges, start: int, length: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Relations and entities of all walks from the start that come nowhere twice."""
    if length == 0:
        yield (), (start,)
        return
    for relations, path in simple_walks(edges, start, length - 1):
        for head, relation, tail in edges:
            if head == path[-1] and tail not in path:
                yield (*relations, relation), (*path, tail)


def cyclic_rules(graph: Graph, length: int) -> set[LiteralRule]:
    edges = edges_of(graph)
    return {
        LiteralRule(relation, body)
        for head, relation, tail in edges
        if relation < graph.num_relations and head != tail
        for size in range(1, length + 1)
        for body, path in simple_walks(edges, head, size)
        if path[-1] == tail and body != (relation,)
    }


def predicted_for(edges: Edges, rule: LiteralRule, head: int) -> set[int]:
    """What the rule says about (head, relation, ?)."""
    return {path[-1] for body, path in simple_walks(edges, head, len(rule.body)) if body == rule.body}


def counts_of(graph: Graph, rule: LiteralRule) -> tuple[int, int]:
    """Predictions on the graph, and the true ones."""
    edges = edges_of(graph)
    pairs = {
        (head, answer) for head in range(graph.num_entities) for answer in predicted_for(edges, rule, head)
    }
    return len(pairs), sum((head, rule.relation, answer) in edges for head, answer in pairs)


def trusted_rules_for(
    graph: Graph, trust: dict[LiteralRule, float], head: int, relation: int
) -> dict[int, tuple[float, ...]]:
    """The confidences, highest first, of the rules that predict each candidate of (head, relation, ?)."""
    edges, found = edges_of(graph), {}
    for rule, confidence in trust.items():
        for answer in answers_of(graph, edges, rule, head, relation):
            found.setdefault(answer, []).append(confidence)
    return {answer: tuple(sorted(confidences, reverse=True)) for answer, confidences in found.items()}


def answers_of(graph: Graph, edges: Edges, rule: LiteralRule, head: int, relation: int) -> set[int]:
    """A rule answers its own question and the one in the other direction."""
    if rule.relation == relation:
        return predicted_for(edges, rule, head)
    if rule.relation != inverse(relation, graph.num_relations):
        return set()
    others = range(graph.num_entities)
    return {other for other in others if head in predicted_for(edges, rule, other)}


def walk_counts(graph: Graph, head: int, body: tuple[int, ...]) -> Counter[int]:
    """How many walks along the body lead from the head to each entity; they may come somewhere twice."""
    here: Counter[int] = Counter({head: 1})
    for step in body:
        there: Counter[int] = Counter()
        for source, relation, target in edges_of(graph):
            if relation == step:
                there[target] += here[source]
        here = there
    return here


def grandparent_through_parents(graph: Graph) -> tuple[str, str, str]:
    """A fact of the families that follows from two others which the graph holds."""
    facts = set(graph.triples)
    between = {(head, tail) for head, relation, tail in facts if relation == "parent of"}
    return next(
        (head, relation, tail)
        for head, relation, tail in graph.triples
        if relation == "grandparent of"
        and any((head, child) in between and (child, tail) in between for child in graph.entities)
    )
