"""Scorers that have learned nothing, by hand and against counting in plain Python."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from contextpool.errors import DataError
from contextpool.evaluate.references import constant_scorer, frequency_scorer
from contextpool.graph.graph import Graph
from support import random_triples


def test_constant_scores_are_all_the_same():
    scores = constant_scorer(5)(torch.tensor([0, 1]), torch.tensor([0, 3]))
    assert scores.shape == (2, 5)
    assert scores.unique().tolist() == [0]


def test_the_most_frequent_answer_by_hand():
    graph = Graph.from_triples(
        [
            ("ann", "lives_in", "oslo"),
            ("bob", "lives_in", "oslo"),
            ("bob", "lives_in", "rome"),
            ("ann", "knows", "bob"),
        ]
    )
    score = frequency_scorer(graph)
    ann, bob, oslo, rome = (graph.entity_id(label) for label in ("ann", "bob", "oslo", "rome"))
    asked = torch.tensor([graph.relation_id("lives_in"), graph.relation_id("lives_in^-1")])
    scores = score(torch.tensor([rome, rome]), asked)
    assert [scores[0, entity].item() for entity in (oslo, rome, ann, bob)] == [2, 1, 0, 0]
    assert [scores[1, entity].item() for entity in (oslo, rome, ann, bob)] == [0, 0, 1, 2]


@given(st.integers(0, 10**9))
def test_frequencies_are_those_of_a_counter(seed):
    triples = set(random_triples(seed))
    graph = Graph.from_triples(list(triples))
    arrivals = Counter((relation, tail) for _, relation, tail in triples)
    arrivals.update((relation + "^-1", head) for head, relation, _ in triples)
    directed = graph.relation_vocabulary.directed
    asked = torch.arange(len(directed)).repeat(2)  # every relation twice in one batch
    scores = frequency_scorer(graph)(torch.zeros_like(asked), asked)
    for row, relation in enumerate(asked.tolist()):
        expected = [arrivals[directed[relation], entity] for entity in graph.entities]
        assert scores[row].tolist() == expected


@pytest.mark.parametrize("relation", [-1, 2])
def test_a_relation_that_the_graph_does_not_have_is_refused(relation):
    score = frequency_scorer(Graph.from_triples([("a", "r", "b")]))
    with pytest.raises(DataError, match=f"relation id {relation} is out of range"):
        score(torch.tensor([0]), torch.tensor([relation]))
