"""RED-GNN folders: facts and train, lists, and valid and test from elsewhere."""

from __future__ import annotations

import pytest

from contextpool.errors import DataError, TripleFileError
from contextpool.triples.formats import detect_layout, load_folder
from layouts import FACTS, TEST, TRAIN, VALID, flat, lay, pair, put


def test_redgnn_walks_on_facts_and_train(tmp_path):
    dataset = load_folder(lay(flat(tmp_path / "tiny"), facts=FACTS))
    assert detect_layout(tmp_path / "tiny") == "redgnn"
    assert dataset.facts is not None
    assert set(dataset.facts) == set(FACTS)
    assert set(dataset.training_graph) == {*FACTS, *TRAIN}
    assert set(dataset.with_queries("train").training_queries) == set(TRAIN)


def test_redgnn_takes_valid_and_test_from_the_grail_folder_of_its_name(tmp_path, monkeypatch):
    pair(tmp_path / "grail")
    folder = lay(tmp_path / "divided" / "tiny", facts=TRAIN[:2], train=TRAIN[2:])
    for path in (folder, "."):
        dataset = load_folder(path)
        assert dataset.name == "tiny"
        assert not dataset.inductive
        assert set(dataset.training_graph) == set(TRAIN)
        assert set(dataset.validation_queries) == set(VALID)
        assert set(dataset.inference_test) == set(TEST)
        monkeypatch.chdir(folder)


def test_redgnn_without_valid_and_test_anywhere_says_where_it_looked(tmp_path):
    folder = lay(tmp_path / "divided" / "tiny", facts=FACTS, train=TRAIN)
    with pytest.raises(DataError, match=rf"valid\.txt and test\.txt are missing.*{tmp_path}/grail/tiny"):
        load_folder(folder)


def test_redgnn_lists_have_to_hold_what_is_used(tmp_path):
    folder = lay(flat(tmp_path), facts=FACTS)
    put(folder / "entities.txt", ["ann", "bob\t1", "cid", "dan", "unused"])
    put(folder / "relations.txt", ["knows", "likes", "helps"])
    assert "unused" not in load_folder(folder).training_entities
    put(folder / "relations.txt", ["knows", "likes"])
    with pytest.raises(
        DataError, match=r"relations\.txt: it does not list the relation 'helps' of .*facts\.txt"
    ):
        load_folder(folder)
    put(folder / "entities.txt", ["ann", "bob", "ann"])
    with pytest.raises(TripleFileError, match=r"entities\.txt:3: 'ann' is listed twice"):
        load_folder(folder)
