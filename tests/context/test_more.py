"""Whether a question has one more answer: small worlds that one can count by hand, and a slow twin."""

from __future__ import annotations

import numpy as np
import pytest

from contextpool.context.counts import count_cooccurrence
from contextpool.context.more import MoreAnswers
from contextpool.graph.graph import Graph
from learning_worlds import random_graph

COUNTRIES = [f"land{number}" for number in range(10)]
FACTS = (
    [(land, "currency", f"coin{number % 4}") for number, land in enumerate(COUNTRIES[:9])]
    + [(land, "capital", f"city {land}") for land in COUNTRIES]
    + [("land0", "borders", land) for land in COUNTRIES[1:5]]
    + [(land, "borders", "land0") for land in COUNTRIES[1:5]]
)


def chance(graph: Graph, entity: str, relation: str, hidden: bool = False) -> float:
    more = MoreAnswers(graph, count_cooccurrence(graph))
    return more.chance(graph.entity_id(entity), graph.relation_id(relation), hidden)


def slow_chance(graph: Graph, entity: str, relation: str) -> float:
    """The definition, fact by fact."""
    answers: dict[str, set[str]] = {}
    has: dict[str, set[str]] = {label: set() for label in graph.entities}
    for edge in range(graph.num_edges):
        head, directed, tail = graph.edge_label(edge)
        has[head].add(directed)
        if directed == relation:
            answers.setdefault(head, set()).add(tail)
    known = len(answers.get(entity, ()))
    others = {label: len(tails) for label, tails in answers.items() if label != entity}
    facts = sum(others.values()) + known
    if known:
        usual = (facts - len(answers) + 1) / (facts + 2)
        enough = [count for count in others.values() if count >= known]
        return (sum(count > known for count in enough) + usual) / (len(enough) + 1)
    usual = len(answers) / graph.num_entities
    best = [usual]
    for shared in has[entity]:
        alike = [label for label in graph.entities if label != entity and shared in has[label]]
        best.append((sum(label in answers for label in alike) + usual) / (len(alike) + 1))
    return max(best[1:], default=usual)


def test_who_has_one_of_what_others_have_one_of_has_no_other() -> None:
    graph = Graph.from_triples(FACTS)
    assert chance(graph, "land0", "currency") < 0.02
    assert chance(graph, "land0", "currency", hidden=True) > 0.85  # it looks like a country
    assert chance(graph, "land9", "currency") > 0.85


def test_what_looks_like_nothing_that_has_it_has_none() -> None:
    graph = Graph.from_triples(FACTS)
    assert chance(graph, "city land1", "capital") < 0.05
    assert chance(graph, "coin1", "borders") < chance(graph, "land9", "borders")


def test_the_more_others_have_the_likelier_is_one_more() -> None:
    many = [(f"p{person}", "knows", f"q{other}") for person in range(6) for other in range(person + 1)]
    graph = Graph.from_triples(many)
    found = [chance(graph, f"p{person}", "knows") for person in range(6)]
    assert found[0] > 0.9
    assert found == sorted(found, reverse=True)


@pytest.mark.parametrize("seed", range(3))
def test_it_counts_what_the_definition_says(seed: int) -> None:
    graph = random_graph(seed)
    relations = graph.relation_vocabulary.directed
    for entity in graph.entities[:8]:
        for relation in relations:
            assert chance(graph, entity, relation) == pytest.approx(slow_chance(graph, entity, relation))


def test_a_hidden_fact_is_as_one_that_is_not_there() -> None:
    """But for `usual`, which is of the relation at large."""
    graph = Graph.from_triples(FACTS)
    without = Graph.from_triples([fact for fact in FACTS if fact != ("land3", "currency", "coin3")])
    assert chance(graph, "land3", "currency", hidden=True) == pytest.approx(
        chance(without, "land3", "currency"), abs=0.02
    )
    assert 0 <= min(chance(graph, one, "borders", hidden=True) for one in COUNTRIES[:5]) <= 1


def test_relations_may_have_the_numbers_of_a_model() -> None:
    graph = Graph.from_triples(FACTS)
    counts = count_cooccurrence(graph)
    own = MoreAnswers(graph, counts)
    same = MoreAnswers(graph, counts, np.arange(2 * graph.num_relations))
    assert own.chance(0, 1) == same.chance(0, 1)
