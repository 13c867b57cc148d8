"""What is no dataset is refused with what was found; the published benchmarks are found."""

from __future__ import annotations

import pytest

from contextpool.errors import DataError
from contextpool.triples.formats import detect_layout, load_folder
from layouts import flat, put
from support import benchmark_folder


def test_one_file_is_no_dataset(tmp_path):
    with pytest.raises(DataError, match=r"one file.*read_graph.*data split"):
        load_folder(flat(tmp_path) / "train.txt")


def test_an_unknown_layout_lists_what_was_found_and_what_could_be(tmp_path):
    put(tmp_path / "notes.md", ["hello"])
    (tmp_path / "sub").mkdir()
    with pytest.raises(DataError, match=r"found: notes\.md, sub/") as caught:
        detect_layout(tmp_path)
    for name in ("flat", "grail", "ilpc", "redgnn", "openke"):
        assert f"{name}: " in str(caught.value)


def test_nothing_there(tmp_path):
    with pytest.raises(DataError, match="no such folder"):
        load_folder(tmp_path / "gone")
    with pytest.raises(DataError, match="found: nothing"):
        load_folder(tmp_path)


@pytest.mark.benchmark_data
def test_grail_benchmarks_load_with_their_published_counts():
    dataset = load_folder(benchmark_folder() / "grail" / "fb237_v1")
    counts = dataset.summary()
    assert (counts["relations"], counts["training_entities"], counts["inference_entities"]) == (
        180,
        1594,
        1093,
    )
    assert counts["triples"]["training_graph"] == 4245
    assert counts["triples"]["inference_test"] == 205


@pytest.mark.benchmark_data
def test_divided_benchmarks_make_the_training_graph_of_their_source():
    divided = load_folder(benchmark_folder() / "grail_transductive" / "nell_v1")
    source = load_folder(benchmark_folder() / "grail" / "nell_v1")
    assert divided.training_graph == source.training_graph
    assert source.training_valid == divided.validation_queries
    assert source.validation_queries == divided.inference_test


@pytest.mark.benchmark_data
def test_full_benchmarks_load_from_their_numbers():
    counts = load_folder(benchmark_folder() / "full" / "WN18RR").summary()
    assert (counts["relations"], counts["inference_entities"]) == (11, 40943)
    assert (counts["triples"]["training_graph"], counts["triples"]["inference_test"]) == (86835, 3134)
