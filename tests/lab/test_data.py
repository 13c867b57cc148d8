"""A search reads the training side, whole, and opens nothing of the inference side: it need not even be readable."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from contextpool.errors import ChecksumError, ConfigError, DataError
from contextpool.triples import catalog
from contextpool.triples.catalog import load_dataset
from contextpool.triples.formats import load_folder, write_dataset
from lab.selection import halved, selection_dataset, training_side
from learning_worlds import family_dataset
from support import benchmark_folder

POISON = b"this is\nno triple file \xff\xfe\n"


def inference_files(layout: str) -> tuple[str, ...]:
    return {
        "grail": ("split_ind/train.txt", "split_ind/valid.txt", "split_ind/test.txt"),
        "ilpc": ("inference.txt", "inference_validation.txt", "inference_test.txt"),
        "flat": ("test.txt",),
        "openke": ("test2id.txt",),
        "redgnn": ("test.txt",),
    }[layout]


@pytest.mark.parametrize("layout", ["grail", "ilpc", "flat", "openke"])
def test_the_training_side_is_read_with_poisoned_and_with_missing_inference_files(
    layout: str, tmp_path: Path
) -> None:
    dataset = family_dataset(inductive=layout in ("grail", "ilpc"))
    write_dataset(dataset, tmp_path / "data", layout)
    folder = tmp_path / "data" / "split" if layout == "grail" else tmp_path / "data"
    whole = load_folder(folder)
    for name in inference_files(layout):
        (tmp_path / "data" / name).write_bytes(POISON)
    with pytest.raises(DataError):
        load_folder(folder)
    poisoned = training_side(str(folder))
    (tmp_path / "data" / inference_files(layout)[-1]).unlink()
    for side in (poisoned, training_side(str(folder))):
        assert side.training_graph == whole.training_graph
        assert side.training_queries == whole.training_queries
        assert side.validation_queries == whole.validation_queries
        assert side.inductive == whole.inductive
        assert len(side.inference_test) == 0
        assert len(side.evaluation_queries("P1")) == 0


def test_a_transductive_split_with_facts_finds_its_valid_next_door(tmp_path: Path) -> None:
    folder = benchmark_folder()
    for part in (
        "grail_transductive/nell_v1/facts.txt",
        "grail_transductive/nell_v1/train.txt",
        "grail/nell_v1/valid.txt",
    ):
        (tmp_path / part).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / part, tmp_path / part)
    side, whole = (
        training_side(str(tmp_path / "grail_transductive/nell_v1")),
        load_dataset("grail_transductive/nell_v1"),
    )
    assert side.training_graph == whole.training_graph
    assert side.facts == whole.facts
    assert side.validation_queries == whole.validation_queries
    assert len(side.inference_test) == 0


def test_the_embedded_world_is_read_as_it_is() -> None:
    side, whole = training_side("world"), load_dataset("world")
    assert side.name == "world"
    assert side.training_queries == whole.training_queries
    assert side.validation_filter.num_entities == whole.validation_filter.num_entities


def test_named_datasets_are_checked_but_for_the_files_that_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = benchmark_folder()
    monkeypatch.setenv("CONTEXTPOOL_DATA", str(tmp_path))
    with pytest.raises(DataError, match="its training files are not on this machine"):
        training_side("grail/nell_v1")
    shutil.copytree(source / "grail" / "nell_v1", tmp_path / "grail" / "nell_v1")
    (tmp_path / "grail" / "nell_v1_ind").mkdir()
    (tmp_path / "grail" / "nell_v1_ind" / "test.txt").write_bytes(POISON)
    side = training_side("grail/nell_v1")
    expected = catalog.find("grail/nell_v1").training
    assert expected is not None
    assert (len(side.training_graph), len(side.validation_queries)) == (expected.train, expected.test)
    with (tmp_path / "grail" / "nell_v1" / "valid.txt").open("a") as file:
        file.write("concept:a\tconcept:r\tconcept:b\n")
    with pytest.raises(ChecksumError, match=r"grail/nell_v1.*valid\.txt"):
        training_side("grail/nell_v1")


def test_a_training_file_that_is_missing_is_named_where_it_should_be(tmp_path: Path) -> None:
    write_dataset(family_dataset(inductive=True), tmp_path / "data")
    (tmp_path / "data" / "split" / "valid.txt").unlink()
    with pytest.raises(DataError, match=r"data/split: valid\.txt is missing"):
        training_side(str(tmp_path / "data" / "split"))


def test_the_halves_share_no_entity_and_selection_asks_about_the_second(tmp_path: Path) -> None:
    write_dataset(family_dataset(inductive=True, count=20), tmp_path / "data")
    side = training_side(str(tmp_path / "data" / "split"))
    both = halved(side, seed=0)
    first, second = set(both.training_graph), set(both.validation_graph) | set(both.validation_queries)
    names = [{entity for head, _, tail in part for entity in (head, tail)} for part in (first, second)]
    assert not names[0] & names[1]
    allowed = set(side.training_graph) | set(side.training_queries)
    assert first | second <= allowed
    assert not set(both.validation_queries) & set(both.validation_graph)
    assert both.validation_filter.num_entities == len(both.inference_entities)
    again = both.with_queries("valid")
    assert set(again.validation_queries) == set(both.validation_queries)
    assert selection_dataset(str(tmp_path / "data" / "split"), "pseudo-inductive", 0).validation_queries == (
        both.validation_queries
    )


def test_a_transductive_dataset_is_not_halved_and_other_selections_are_unknown(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is transductive"):
        halved(family_dataset(), seed=0)
    with pytest.raises(ConfigError, match="select is 'test'"):
        selection_dataset("world", "test")  # type: ignore[arg-type]
