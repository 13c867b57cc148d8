"""Precision and recall of rare relations, pulled towards the base rate: exact, with and without a fact."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch

from contextpool.context.cooccurrence import count_cooccurrence
from contextpool.context.leave_one_out import CountsOf
from contextpool.context.neighbors import ContextNeighbors
from contextpool.context.relevance import neighborhood_precision, neighborhood_recall
from contextpool.errors import ConfigError
from contextpool.graph.graph import Graph
from contextpool.pool.batch import ContextConfig
from learning_worlds import one_thread as one_thread
from learning_worlds import random_graph, without_fact
from support import amount, relation_sets_of

CASES = amount(20, 500)


def literal(graph: Graph, query: str, neighbor: str, shrinkage: Fraction) -> tuple[float, float]:
    """Shrunk precision and recall by plain sets and fractions."""
    sets = relation_sets_of(list(graph.triples)).values()
    entities = graph.num_entities
    both = sum({query, neighbor} <= has for has in sets)
    having = {label: sum(label in has for has in sets) for label in (query, neighbor)}
    precision = (both + shrinkage * Fraction(having[query], entities)) / (having[neighbor] + shrinkage)
    recall = (both + shrinkage * Fraction(having[neighbor], entities)) / (having[query] + shrinkage)
    return float(precision), float(recall)


@pytest.mark.parametrize("shrinkage", [1.0, 2.5, 10.0])
def test_ratios_are_those_of_plain_sets_to_the_bit(shrinkage: float) -> None:
    for seed in range(CASES):
        graph = random_graph(seed)
        counts, directed = count_cooccurrence(graph), graph.relation_vocabulary.directed
        precision, recall = (
            measure(counts, shrinkage) for measure in (neighborhood_precision, neighborhood_recall)
        )
        for q, query in enumerate(directed):
            for n, neighbor in enumerate(directed):
                expected = literal(graph, query, neighbor, Fraction(shrinkage))
                assert (precision[q, n], recall[q, n]) == expected


def test_a_relation_that_nobody_has_is_at_the_base_rate_and_a_frequent_one_where_it_was() -> None:
    facts = [(f"e{number}", "often", "x") for number in range(1_000)]
    facts += [(f"e{number}", "half", "y") for number in range(500)] + [("e0", "once", "z")]
    context = ContextNeighbors(count_cooccurrence(Graph.from_triples(facts)), shrinkage=5.0)
    entities = 1_003
    assert context.precision("half", "often") == pytest.approx(0.5, abs=1e-3)
    assert context.precision("half", "once") == pytest.approx((1 + 5 * 500 / entities) / 6)
    plain = ContextNeighbors(count_cooccurrence(Graph.from_triples(facts)))
    assert plain.precision("half", "once") == 1


def test_no_shrinkage_is_the_papers() -> None:
    for seed in range(5):
        counts = count_cooccurrence(random_graph(seed))
        for measure in (neighborhood_precision, neighborhood_recall):
            assert (measure(counts, 0.0) == measure(counts)).all()


@pytest.mark.parametrize("shrinkage", [1.0, 3.0])
def test_without_a_fact_they_are_those_of_the_graph_that_never_held_it(shrinkage: float) -> None:
    changed = 0
    for seed in range(CASES):
        graph = random_graph(seed)
        own = CountsOf(graph, count_cooccurrence(graph), shrinkage)
        relation = graph.edge_relation.long()
        found = own.for_queries(relation, torch.arange(graph.num_edges))
        seen = own.for_queries(relation, torch.full_like(relation, -1))
        changed += int((found.precision(0) != seen.precision(0)).sum())
        back = (relation + graph.num_relations) % (2 * graph.num_relations)
        for edge in range(graph.num_edges):
            recount = count_cooccurrence(without_fact(graph, edge))
            precision, recall = (
                measure(recount, shrinkage) for measure in (neighborhood_precision, neighborhood_recall)
            )
            for row, asked in enumerate((relation[edge], back[edge])):
                assert found.precision(row)[edge].tolist() == precision[asked].tolist()
                assert found.recall(row)[edge].tolist() == recall[asked].tolist()
    assert changed > CASES


def test_a_shrinkage_below_zero_is_refused_by_name() -> None:
    for value in (-1.0, float("inf"), float("nan")):
        with pytest.raises(ConfigError, match=r"context\.shrinkage is"):
            ContextConfig(shrinkage=value)
    with pytest.raises(ConfigError, match="shrinkage is -1"):
        ContextNeighbors(count_cooccurrence(random_graph(0)), shrinkage=-1.0)
