from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from contextpool.errors import ChecksumError, ConfigError, DataError, UnknownNameError
from contextpool.triples import catalog
from contextpool.triples.catalog import (
    CatalogEntry,
    CatalogFile,
    GraphCounts,
    benchmark_names,
    cache_folder,
    data_folders,
    entries,
    file_paths,
    find,
    load_dataset,
    locate,
    verify,
)
from contextpool.triples.dataset import Dataset
from contextpool.triples.store import Triples, union
from support import benchmark_folder

TINY = {
    "grail/tiny/train.txt": "a\tr\tb\nb\tr\tc\nc\ts\ta\n",
    "grail/tiny/valid.txt": "a\tr\tc\n",
    "grail/tiny/test.txt": "b\ts\ta\n",
    "grail/tiny_ind/train.txt": "x\tr\ty\ny\tr\tz\n",
    "grail/tiny_ind/valid.txt": "x\tr\tz\n",
    "grail/tiny_ind/test.txt": "z\tr\tx\n",
}


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def tiny_entry() -> CatalogEntry:
    files = tuple(CatalogFile(path, sha256(text), len(text), ()) for path, text in TINY.items())
    return CatalogEntry("grail/tiny", inductive=True, origin="made for this test", files=files)


def write_tiny(folder: Path, **changed: str) -> Path:
    for path, text in TINY.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(changed.get(path, text))
    return folder


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """A working directory, a shared folder beside it, a data folder and a cache, all empty; none named yet."""
    found = {name: tmp_path / name for name in ("project", "data", "home")} | {
        "shared": tmp_path / "shared/data"
    }
    for folder in found.values():
        folder.mkdir(parents=True)
    monkeypatch.chdir(found["project"])
    monkeypatch.delenv("CONTEXTPOOL_DATA", raising=False)
    monkeypatch.setenv("CONTEXTPOOL_HOME", str(found["home"]))
    monkeypatch.setattr(catalog, "__file__", str(tmp_path / "site-packages/contextpool/triples/catalog.py"))
    return found


def test_the_catalog_names_every_setting_as_released() -> None:
    versions = [f"{family}_v{number}" for family in ("WN18RR", "fb237", "nell") for number in (1, 2, 3, 4)]
    expected = [
        "world",
        *(f"grail/{name}" for name in versions),
        *(f"grail_transductive/{name}" for name in versions),
    ]
    assert [entry.name for entry in entries()] == [*expected, "full/FB15K237", "full/NELL-995", "full/WN18RR"]
    assert [entry.name for entry in entries() if entry.inductive] == expected[:13]


def test_a_transductive_split_borrows_valid_and_test_from_its_inductive_sibling() -> None:
    assert file_paths("grail_transductive/nell_v2") == (
        "grail/nell_v2/valid.txt",
        "grail/nell_v2/test.txt",
        "grail_transductive/nell_v2/facts.txt",
        "grail_transductive/nell_v2/train.txt",
    )


def test_every_file_has_a_checksum_a_size_and_an_address_that_ends_in_its_name() -> None:
    for entry in entries():
        for file in entry.files:
            assert len(bytes.fromhex(file.sha256)) == 32
            assert file.size > 0
            assert file.urls
            folder, name = file.path.split("/")[-2:]
            assert all(url.startswith("https://") and url.endswith(f"/{folder}/{name}") for url in file.urls)


def test_the_stored_catalog_holds_what_the_entries_need_and_nothing_else() -> None:
    stored = json.loads((Path(catalog.__file__).parent / "catalog.json").read_text())
    assert set(stored["counts"]) == set(benchmark_names())
    assert set(stored["files"]) == {path for name in benchmark_names() for path in file_paths(name)}


def test_counts_of_the_two_splits_of_one_graph_agree() -> None:
    for entry in entries():
        if entry.name.startswith("grail_transductive/"):
            inductive = find(entry.name.replace("_transductive", "")).training
            assert entry.training is not None
            assert inductive is not None
            assert entry.training.facts + entry.training.train == inductive.train
            assert entry.training.triples == inductive.triples
            assert (entry.training.valid, entry.training.test) == (inductive.valid, inductive.test)


def test_an_unknown_name_is_answered_with_the_closest() -> None:
    with pytest.raises(
        UnknownNameError, match=r"'grail/fb237_v5' is unknown \(28 known, closest 'grail/fb237_v"
    ):
        find("grail/fb237_v5")
    with pytest.raises(UnknownNameError, match="closest 'grail/WN18RR_v1'"):
        find("grail/wn18rr_v1")


def test_the_named_data_folder_comes_before_the_cache_and_replaces_the_shared_one(
    places: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert data_folders() == [places["shared"], places["home"]]
    monkeypatch.setenv("CONTEXTPOOL_DATA", str(places["data"]))
    assert data_folders() == [places["data"], places["home"]]
    monkeypatch.setenv("CONTEXTPOOL_HOME", str(places["data"]))
    assert data_folders() == [places["data"]]


def test_a_checkout_finds_the_shared_folder_beside_itself(
    places: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "deep" / "inside"
    elsewhere.mkdir(parents=True)
    monkeypatch.chdir(elsewhere)
    assert data_folders() == [places["home"]]
    module = places["project"] / "src/contextpool/triples/catalog.py"
    monkeypatch.setattr(catalog, "__file__", str(module))
    assert data_folders() == [places["home"]]  # installed into a folder called src, say: not a checkout
    (places["project"] / "pyproject.toml").touch()
    assert data_folders() == [places["shared"], places["home"]]


def test_a_data_folder_that_does_not_exist_is_a_config_error(
    places: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTEXTPOOL_DATA", "/nowhere/at/all")
    with pytest.raises(ConfigError, match="CONTEXTPOOL_DATA is '/nowhere/at/all', which is not a folder"):
        locate(tiny_entry())


def test_the_cache_is_the_platforms_or_the_usual_one_without_platformdirs(
    places: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cache_folder() == places["home"]
    monkeypatch.delenv("CONTEXTPOOL_HOME")
    assert cache_folder().name == "contextpool"
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    assert cache_folder() == Path.home() / ".cache" / "contextpool"


def test_the_first_folder_with_every_file_is_taken(
    places: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = tiny_entry()
    assert locate(entry) is None
    write_tiny(places["home"])
    assert locate(entry) == places["home"] / "grail/tiny"
    write_tiny(places["shared"])
    assert locate(entry) == places["shared"] / "grail/tiny"
    monkeypatch.setenv("CONTEXTPOOL_DATA", str(write_tiny(places["data"])))
    assert locate(entry) == places["data"] / "grail/tiny"
    (places["data"] / "grail/tiny_ind/test.txt").unlink()
    assert locate(entry) == places["home"] / "grail/tiny"


def test_verify_reports_each_file_that_is_not_the_published_one(places: dict[str, Path]) -> None:
    entry = tiny_entry()
    assert "is not on this machine" in verify(entry)[0]
    write_tiny(places["home"])
    assert verify(entry) == []
    (places["home"] / "grail/tiny/test.txt").write_text("b\ts\tc\n")
    (places["home"] / "grail/tiny/valid.txt").write_text("a\tr\tc\na\tr\tb\n")
    changed = sha256("b\ts\tc\n")
    longer, other = verify(entry)
    assert longer == f"{places['home']}/grail/tiny/valid.txt: 12 bytes instead of 6"
    assert other.startswith(f"{places['home']}/grail/tiny/test.txt: sha256 is {changed} instead of")


def test_a_missing_dataset_says_where_it_was_looked_for_and_how_to_get_it(
    places: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tiny(places["shared"])
    (places["shared"] / "grail/tiny/train.txt").unlink()
    places["home"].rmdir()
    monkeypatch.setattr(catalog, "entries", lambda: (tiny_entry(),))
    with pytest.raises(DataError) as caught:
        load_dataset("grail/tiny")
    for part in (
        f"{places['shared']} (lacks grail/tiny/train.txt)",
        f"{places['home']} (no such folder)",
        "`contextpool data fetch grail/tiny`",
        "CONTEXTPOOL_DATA",
    ):
        assert part in str(caught.value)


def test_a_named_dataset_whose_files_were_changed_is_refused(
    places: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "entries", lambda: (tiny_entry(),))
    write_tiny(places["home"], **{"grail/tiny/test.txt": "b\ts\tc\n"})
    with pytest.raises(ChecksumError, match=r"1 of 6 files are not the published ones: .*tiny/test\.txt"):
        load_dataset("grail/tiny")
    assert len(load_dataset(places["home"] / "grail/tiny").validation_queries) == 1


def test_a_named_dataset_carries_its_name_and_its_counts(
    places: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "entries", lambda: (tiny_entry(),))
    write_tiny(places["home"])
    dataset = load_dataset("grail/tiny")
    assert dataset.name == "grail/tiny"
    assert count(dataset) == (
        GraphCounts(entities=3, relations=2, train=3, valid=1, test=1),
        GraphCounts(entities=3, relations=1, train=2, valid=1, test=1),
    )


def test_a_name_wins_over_a_folder_unless_the_path_is_spelled_as_one(places: dict[str, Path]) -> None:
    write_tiny(places["project"])
    (places["project"] / "grail/tiny").rename(places["project"] / "world")
    (places["project"] / "grail/tiny_ind").rename(places["project"] / "world_ind")
    for spelled in ("./world", str(places["project"] / "world"), Path("world"), "../project/world"):
        assert len(load_dataset(spelled).training_graph) == 3
    assert len(load_dataset("world").training_graph) > 100


@pytest.mark.usefixtures("places")
def test_a_path_that_does_not_exist_is_not_taken_for_a_misspelled_name() -> None:
    with pytest.raises(DataError, match="wolrd"):
        load_dataset("./wolrd")


def test_a_transductive_split_counts_its_facts_apart(places: dict[str, Path]) -> None:
    for name, text in {"facts": "a\tr\tb\nb\tr\tc\n", "train": "c\tr\ta\n", "valid": "a\tr\tc\n"}.items():
        (places["data"] / f"{name}.txt").write_text(text)
    (places["data"] / "test.txt").write_text("b\tr\ta\nc\tr\tb\n")
    counts = GraphCounts(entities=3, relations=1, train=1, valid=1, test=2, facts=2)
    assert count(load_dataset(places["data"])) == (counts, None)


def test_a_folder_that_is_no_name_is_loaded_as_it_is(places: dict[str, Path]) -> None:
    write_tiny(places["project"])
    assert len(load_dataset("grail/tiny").training_graph) == 3


def test_what_is_neither_a_name_nor_a_folder_is_an_unknown_name(places: dict[str, Path]) -> None:
    with pytest.raises(UnknownNameError, match=r"closest 'world'.*a folder of your own is given by its path"):
        load_dataset("wolrd")


def test_the_embedded_graph_is_there_without_any_data_folder(places: dict[str, Path]) -> None:
    assert verify(find("world")) == []
    training, inference = count(load_dataset("world"))
    assert inference is not None
    folder = locate(find("world"))
    assert folder is not None
    assert (training, inference) == (plain_counts(folder), plain_counts(folder.with_name("world_ind")))


def plain_counts(folder: Path) -> GraphCounts:
    rows = {split: plain_rows(folder / f"{split}.txt") for split in ("train", "valid", "test")}
    return plain_count(rows)


def plain_rows(path: Path) -> set[tuple[str, ...]]:
    return {tuple(line.split("\t")) for line in path.read_text("utf-8").split("\n") if line}


def plain_count(files: dict[str, set[tuple[str, ...]]]) -> GraphCounts:
    """The slow twin: sets of labels in plain Python."""
    everything = set().union(*files.values())
    entities = {head for head, _, _ in everything} | {tail for _, _, tail in everything}
    relations = {relation for _, relation, _ in everything}
    return GraphCounts(len(entities), len(relations), **{split: len(rows) for split, rows in files.items()})


@pytest.fixture
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = benchmark_folder()
    monkeypatch.setenv("CONTEXTPOOL_DATA", str(folder))
    return folder


@pytest.mark.benchmark_data
@pytest.mark.usefixtures("benchmarks")
@pytest.mark.parametrize("name", benchmark_names())
def test_benchmark_files_are_the_published_ones_and_hold_what_the_catalog_says(name: str) -> None:
    entry = find(name)
    assert verify(entry) == []
    assert count(load_dataset(name)) == (entry.training, entry.inference)


@pytest.mark.benchmark_data
@pytest.mark.parametrize("name", [name for name in benchmark_names() if name.startswith("grail/")])
def test_inductive_counts_equal_those_of_plain_sets(benchmarks: Path, name: str) -> None:
    entry = find(name)
    assert entry.training == plain_counts(benchmarks / name)
    assert entry.inference == plain_counts(benchmarks / f"{name}_ind")


@pytest.mark.benchmark_data
def test_no_file_holds_a_triple_twice_and_few_pairs_of_graphs_share_an_entity(benchmarks: Path) -> None:
    shared = {}
    for name in benchmark_names()[:12]:
        entities: list[set[str]] = []
        for folder in (benchmarks / name, benchmarks / f"{name}_ind"):
            rows = [plain_rows(folder / f"{split}.txt") for split in ("train", "valid", "test")]
            lines = [
                (folder / f"{split}.txt").read_text().count("\n") for split in ("train", "valid", "test")
            ]
            assert [len(part) for part in rows] == lines
            entities.append({label for head, _, tail in set().union(*rows) for label in (head, tail)})
        shared[name] = len(entities[0] & entities[1])
    assert {name: number for name, number in shared.items() if number} == {
        "grail/WN18RR_v3": 8,
        "grail/nell_v3": 3,
        "grail/nell_v4": 1,
    }


def count(dataset: Dataset) -> tuple[GraphCounts, GraphCounts | None]:
    """The counts of a loaded dataset, training graph and inference graph (None where transductive).

    A query that is also a fact of its graph is counted once, as a fact; no dataset of the catalog has one.
    """
    graph, selection = dataset.training_graph, dataset.validation_queries
    if dataset.inference_valid is None:
        facts = 0 if dataset.facts is None else len(dataset.facts)
        return graph_counts(graph, selection, dataset.inference_test, facts), None
    training = graph_counts(graph, dataset.training_queries, selection)
    return training, graph_counts(dataset.inference_graph, dataset.inference_valid, dataset.inference_test)


def graph_counts(graph: Triples, valid: Triples, test: Triples, facts: int = 0) -> GraphCounts:
    """Labels are counted where they occur: a vocabulary may hold those of the other graph too."""
    with_valid = union([graph, valid])
    with_test = union([with_valid, test])
    return GraphCounts(
        entities=len(np.unique(with_test.ids[:, [0, 2]])),
        relations=len(np.unique(with_test.ids[:, 1])),
        train=len(graph) - facts,
        valid=len(with_valid) - len(graph),
        test=len(with_test) - len(with_valid),
        facts=facts,
    )
