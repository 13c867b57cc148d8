"""ILPC folders: selection never reads the inference queries."""

from __future__ import annotations

import pytest

from contextpool.errors import DataError
from contextpool.triples.formats import detect_layout, load_folder
from layouts import AWAY, TEST, TRAIN, VALID, ilpc, lay


@pytest.mark.parametrize("graph", ["inference", "inference_graph"])
def test_ilpc_holds_selection_queries_out_of_train(tmp_path, graph):
    dataset = load_folder(ilpc(tmp_path, graph))
    assert detect_layout(tmp_path) == "ilpc"
    assert dataset.inductive
    assert set(dataset.inference_graph) == set(AWAY["train"])
    assert dataset.inference_valid is not None
    assert set(dataset.inference_valid) == set(AWAY["valid"])
    assert set(dataset.inference_test) == set(AWAY["test"])
    selection = set(dataset.validation_queries)
    assert len(selection) == 1
    assert selection == {TRAIN[0]} or selection == {TRAIN[2]}  # 'likes' has one triple and must stay
    assert set(dataset.training_graph) == set(dataset.training_queries) == set(TRAIN) - selection


def test_ilpc_selects_on_the_same_tenth_every_time(tmp_path):
    rows = [(f"e{i}", "knows", f"e{j}") for i in range(20) for j in range(20) if i != j]
    for name, order in (("one", rows), ("two", rows[::-1])):
        lay(ilpc(tmp_path / name), train=order, inference_test=[("z", "knows", "x")])
    one, two = (load_folder(tmp_path / name) for name in ("one", "two"))
    assert len(one.validation_queries) == 38
    assert one.validation_queries == two.validation_queries


def test_ilpc_with_test_takes_nothing_out(tmp_path):
    dataset = load_folder(lay(ilpc(tmp_path), test=TEST, valid=VALID))
    assert set(dataset.training_graph) == set(TRAIN)
    assert set(dataset.training_queries) == {*TRAIN, *VALID}
    assert set(dataset.validation_queries) == set(TEST)


def test_ilpc_with_valid_alone_is_unclear(tmp_path):
    with pytest.raises(DataError, match=r"valid\.txt: there is no test\.txt beside it"):
        load_folder(lay(ilpc(tmp_path), valid=VALID))


def test_ilpc_without_anything_to_hold_out_says_so(tmp_path):
    with pytest.raises(DataError, match=r"none of its 2 triples can be held out"):
        load_folder(lay(ilpc(tmp_path), train=[("a", "knows", "b"), ("c", "likes", "d")]))


def test_ilpc_with_two_inference_graphs_is_refused(tmp_path):
    with pytest.raises(DataError, match="both there"):
        load_folder(lay(ilpc(tmp_path), inference_graph=AWAY["train"]))
