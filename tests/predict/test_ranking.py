"""Who is answered, in which order, against plain sorting and plain sets."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from contextpool.errors import DataError, WrongNamesError
from contextpool.graph.graph import Graph
from contextpool.models.walk import Walk, WalkConfig
from contextpool.predict import Predictor
from contextpool.predict.answers import Selection
from contextpool.predict.asking import Asking, best_places, known_answers
from learning_worlds import every_query, random_graph
from learning_worlds import one_thread as one_thread

VALUES = st.lists(st.sampled_from([-math.inf, -1.0, 0.0, 0.5, 2.0]), max_size=30)


@given(VALUES, st.integers(1, 40))
def test_the_best_places_are_those_of_a_plain_sort(values: list[float], k: int) -> None:
    expected = sorted(
        (place for place, value in enumerate(values) if value > -math.inf), key=lambda p: (-values[p], p)
    )
    assert best_places(torch.tensor(values, dtype=torch.float32), k) == expected[:k]


@pytest.mark.parametrize("seed", range(8))
def test_known_answers_are_the_facts_of_the_graph(seed: int) -> None:
    graph = random_graph(seed)
    entity, relation = every_query(graph)
    known = known_answers(graph, entity, relation)
    facts = set(graph.edge_labels(torch.arange(graph.num_edges)))
    for row, (one, asked) in enumerate(zip(entity.tolist(), relation.tolist(), strict=True)):
        label = graph.relation_vocabulary.directed[asked]
        expected = [(graph.entities[one], label, other) in facts for other in graph.entities]
        assert known[row].tolist() == expected


def mask(graph: Graph, selection: Selection) -> set[str] | None:
    model = Walk(graph.num_relations, WalkConfig(1))
    predictor = Predictor(model, graph.relation_vocabulary, None, None)
    found = Asking(predictor, graph).choose(selection).allowed
    if found is None:
        return None
    return {label for label, allowed in zip(graph.entities, found.tolist(), strict=True) if allowed}


TOWNS = Graph.from_triples(
    [("paris", "capital of", "france"), ("rome", "capital of", "italy"), ("paris", "near", "rome")]
)


def test_candidates_are_listed_or_have_a_relation_or_both() -> None:
    assert mask(TOWNS, Selection()) is None
    assert mask(TOWNS, Selection(candidates=("rome", "italy", "rome"))) == {"rome", "italy"}
    assert mask(TOWNS, Selection(having=("capital of",))) == {"paris", "rome"}
    assert mask(TOWNS, Selection(having=("capital of^-1",))) == {"france", "italy"}
    assert mask(TOWNS, Selection(having=("capital of", "near^-1"))) == {"rome"}
    assert mask(TOWNS, Selection(candidates=("paris", "italy"), having=("capital of",))) == {"paris"}


def test_candidates_that_are_none_are_refused() -> None:
    with pytest.raises(DataError, match="the list is empty"):
        mask(TOWNS, Selection(candidates=()))
    with pytest.raises(DataError, match=r"having 'near', 'capital of\^-1': no candidate is left"):
        mask(TOWNS, Selection(having=("near", "capital of^-1")))
    with pytest.raises(WrongNamesError, match=r"2 names .* candidates: entity 'Rome' .* 'rome'.*'oslo'"):
        mask(TOWNS, Selection(candidates=("Rome", "paris", "oslo")))
    with pytest.raises(WrongNamesError, match="having: relation 'capital' is unknown"):
        mask(TOWNS, Selection(having=("capital",)))
