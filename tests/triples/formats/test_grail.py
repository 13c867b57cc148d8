"""GraIL pairs: however they are named, and what becomes of unknown relations."""

from __future__ import annotations

import pytest

from contextpool.errors import ConfigError, DataError, TripleFileError
from contextpool.triples.formats import detect_layout, load_folder
from layouts import AWAY, TEST, TRAIN, VALID, flat, lay, pair


def test_a_grail_pair_may_be_named_by_either_folder_or_by_their_parent(tmp_path):
    first = pair(tmp_path)
    for path in (first, tmp_path / "tiny_ind", tmp_path):
        dataset = load_folder(path)
        assert detect_layout(path) == "grail"
        assert dataset.name == "tiny"
        assert set(dataset.training_graph) == set(TRAIN)
        assert set(dataset.training_queries) == {*TRAIN, *VALID}
        assert set(dataset.validation_queries) == set(TEST)
        assert set(dataset.inference_graph) == set(AWAY["train"])
        assert dataset.inference_valid is not None
        assert set(dataset.inference_valid) == set(AWAY["valid"])
        assert set(dataset.inference_test) == set(AWAY["test"])


def test_a_pair_is_found_from_within(tmp_path, monkeypatch):
    monkeypatch.chdir(pair(tmp_path))
    assert load_folder(".").inductive


def test_looking_can_be_overridden(tmp_path):
    dataset = load_folder(pair(tmp_path), layout="flat")
    assert not dataset.inductive
    with pytest.raises(DataError, match="there is no folder pair"):
        load_folder(flat(tmp_path / "alone"), layout="grail")
    with pytest.raises(ConfigError, match="layout is 'graill'"):
        load_folder(tmp_path, layout="graill")


def test_a_folder_of_several_pairs_asks_for_one(tmp_path):
    pair(tmp_path, "one")
    pair(tmp_path, "two")
    with pytest.raises(DataError, match=r"2 GraIL pairs are there \(one, two\)\. Name one: .*one"):
        load_folder(tmp_path)


def test_a_pair_with_a_missing_file_is_not_taken_for_something_else(tmp_path):
    first = pair(tmp_path)
    (tmp_path / "tiny_ind" / "train.txt").unlink()
    with pytest.raises(DataError, match=r"tiny_ind: train\.txt is missing"):
        load_folder(first)


def test_an_inductive_folder_without_its_partner_is_flat(tmp_path):
    assert detect_layout(flat(tmp_path / "tiny_ind")) == "flat"


@pytest.mark.filterwarnings("ignore:.*differ by case only")
def test_an_unknown_relation_names_file_line_and_the_closest_known_one(tmp_path):
    first = pair(tmp_path)
    lay(tmp_path / "tiny_ind", train=[("x", "knows", "y"), ("y", "Knows", "x"), ("y", "hates", "x")])
    with pytest.raises(TripleFileError) as caught:
        load_folder(first)
    assert caught.value.line == 2
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'tiny_ind' / 'train.txt'}:2: relation 'Knows' does not occur")
    assert "(2 known, closest 'knows')" in message
    assert "2 triples of the file have unknown relations, 2 different ones" in message
    assert "on_unknown='skip'" in message


def test_unknown_relations_can_be_skipped_and_are_counted(tmp_path):
    first = pair(tmp_path)
    lay(
        tmp_path / "tiny_ind",
        train=[("x", "knows", "y"), ("w", "hates", "x")],
        test=[*AWAY["test"], ("x", "is", "y")],
    )
    dataset = load_folder(first, on_unknown="skip")
    assert dataset.skipped == 2
    assert set(dataset.inference_graph) == {("x", "knows", "y")}
    assert "w" not in dataset.inference_entities


def test_skipping_everything_is_an_error(tmp_path):
    first = pair(tmp_path)
    lay(tmp_path / "tiny_ind", test=[("x", "is", "y")])
    with pytest.raises(DataError, match="leaves nothing"):
        load_folder(first, on_unknown="skip")


def test_a_relation_of_valid_alone_is_trained_on_in_a_pair_but_not_in_a_flat_folder(tmp_path):
    lay(pair(tmp_path), valid=[("ann", "hates", "bob")])
    lay(tmp_path / "tiny_ind", test=[("x", "hates", "y")])
    assert "hates" in load_folder(tmp_path / "tiny").relations
    with pytest.raises(TripleFileError, match=r"valid\.txt:1: relation 'hates'"):
        load_folder(tmp_path / "tiny", layout="flat")


def test_on_unknown_has_two_values(tmp_path):
    with pytest.raises(ConfigError, match="on_unknown is 'drop'"):
        load_folder(flat(tmp_path), on_unknown="drop")
