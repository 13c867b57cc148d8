"""Inverse arithmetic: the inverse of an inverse is the original."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from contextpool.errors import UnknownNameError
from contextpool.graph.relations import RelationVocabulary, inverse, inverse_label


@given(st.integers(1, 50), st.data())
def test_inverse_of_inverse_is_the_original(num_relations, data):
    relation = data.draw(st.integers(0, 2 * num_relations - 1))
    assert inverse(inverse(relation, num_relations), num_relations) == relation
    assert abs(inverse(relation, num_relations) - relation) == num_relations


def test_inverse_takes_arrays_and_tensors():
    assert inverse(np.array([0, 1, 2, 3]), 2).tolist() == [2, 3, 0, 1]
    assert inverse(torch.tensor([0, 1, 2, 3]), 2).tolist() == [2, 3, 0, 1]


def test_labels_and_ids_agree_on_what_the_inverse_is():
    relations = RelationVocabulary(("born_in", "lives_in"))
    for label in relations.directed:
        assert relations.directed[relations.inverse(relations.id_of(label))] == inverse_label(label)
        assert inverse_label(inverse_label(label)) == label


def test_sort_rank_follows_labels_not_ids():
    relations = RelationVocabulary(("p", "p!"))
    by_rank = sorted(range(4), key=relations.sort_rank.__getitem__)
    assert [relations.directed[relation] for relation in by_rank] == sorted(relations.directed)


def test_unknown_relation_names_the_closest():
    with pytest.raises(UnknownNameError, match="closest 'born_in'"):
        RelationVocabulary(("born_in",)).id_of("born_im")
