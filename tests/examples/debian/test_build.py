"""The dataset from an index: unseen packages are unseen, on both ends; every fact has one place; the command line."""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

import contextpool as cp
from contextpool.errors import ConfigError, DataError, UnknownNameError
from contextpool.triples.dataset import Dataset
from contextpool.triples.store import Triple
from debian_example import FOLDER, build

Index, apt_lists, read_index = build.Index, build.apt_lists, build.read_index
build_dataset, hashed = build.build_dataset, build.hashed


def stanzas(numbers: Iterable[int], first: str = "p") -> str:
    """Packages in a chain that all need libc6, by two teams, in two sections."""
    return "\n".join(
        f"Package: {first}{n}\nSection: {'games' if n % 2 else 'math'}\nMaintainer: Team {n % 3} <t@example.org>\n"
        f"Depends: libc6, {first}{n - 1} | other\nSuggests: p{n + 1}\nTag: role::program, use::{{a,b}}\n"
        for n in numbers
    )


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    path = tmp_path / "Packages.gz"
    path.write_bytes(gzip.compress(stanzas(range(60)).encode()))
    return path


def parts(dataset: Dataset) -> list[set[Triple]]:
    assert dataset.training_valid is not None
    assert dataset.inference_valid is not None
    return [
        set(part)
        for part in (
            dataset.training_graph, dataset.training_valid, dataset.validation_queries,
            dataset.inference_graph, dataset.inference_valid, dataset.inference_test,
        )
    ]  # fmt: skip


def test_an_index_holds_every_fact_once(packages: Path, tmp_path: Path):
    index = read_index([packages])
    assert len(index.facts) == 60
    assert set(index.facts["p3"]) == {
        ("p3", "depends", "libc6"),
        ("p3", "depends-any", "p2"),
        ("p3", "depends-any", "other"),
        ("p3", "suggests", "p4"),
        ("p3", "section", "section:games"),
        ("p3", "source", "source:p3"),
        ("p3", "maintainer", "maintainer:Team 0"),
        ("p3", "tag:role", "role::program"),
        ("p3", "tag:use", "use::a"),
        ("p3", "tag:use", "use::b"),
    }
    (tmp_path / "more").write_text("Package: p3\nDepends: libc6, new\n")
    assert len(read_index([packages, tmp_path / "more"]).facts["p3"]) == 11


def test_held_out_packages_are_never_met_in_training(packages: Path):
    index = read_index([packages])
    built = build_dataset(index, hold_out="012")
    unseen = {name for name in index.facts if hashed(name) in "012"}
    train, train_valid, select, graph, valid, test = parts(built.dataset)
    assert (built.seen, built.unseen, built.facts) == (60 - len(unseen), len(unseen), index.num_facts)
    for head, _, tail in train | train_valid | select:
        assert head not in unseen
        assert tail not in unseen
    assert {head for head, _, _ in graph | valid | test} == unseen
    sides = [train, train_valid, select, graph, valid, test]
    assert sum(map(len, sides)) == len(set().union(*sides)) == index.num_facts - built.dropped - built.skipped
    naming = [
        fact
        for name, facts in index.facts.items()
        if name not in unseen
        for fact in facts
        if fact[2] in unseen
    ]
    assert built.dropped == len(naming) > 0


def test_another_release_gives_its_new_packages(packages: Path, tmp_path: Path):
    (tmp_path / "later").write_text(stanzas(range(40, 60)) + "\n" + stanzas(range(30), "q"))
    built = build_dataset(read_index([packages]), read_index([tmp_path / "later"]))
    *_, graph, valid, test = parts(built.dataset)
    assert (built.seen, built.unseen) == (60, 30)
    assert {head for head, _, _ in graph | valid | test} == {f"q{n}" for n in range(30)}


def test_relations_that_training_lacks_are_left_out_and_counted(packages: Path, tmp_path: Path):
    (tmp_path / "later").write_text(stanzas(range(30), "q").replace("Tag: ", "Enhances: p1\nTag: "))
    built = build_dataset(read_index([packages]), read_index([tmp_path / "later"]))
    assert built.skipped == 30
    assert "enhances" not in built.dataset.relations


def test_sections_and_relations_can_be_left_out(packages: Path):
    index = read_index([packages])
    assert set(index.of_sections(["games"]).facts) == {f"p{n}" for n in range(1, 60, 2)}
    kept = index.without(["tag:use", "section"])
    assert {relation for facts in kept.facts.values() for _, relation, _ in facts} == {
        "depends", "depends-any", "suggests", "source", "maintainer", "tag:role",
    }  # fmt: skip
    with pytest.raises(UnknownNameError, match=r"section 'gmes' is unknown \(2 known, closest 'games'\)"):
        index.of_sections(["gmes"])
    with pytest.raises(UnknownNameError, match="relation 'dependz' is unknown"):
        index.without(["dependz"])


def test_the_same_packages_whatever_the_order(packages: Path):
    index = read_index([packages])
    turned = Index(dict(reversed(list(index.facts.items()))), index.sections)
    assert parts(build_dataset(index).dataset) == parts(build_dataset(turned).dataset)
    assert parts(build_dataset(index).dataset) != parts(build_dataset(index, seed=1).dataset)


@pytest.mark.parametrize("letters", ["", "g", "00", "0123456789abcdef", "A"])
def test_letters_that_hold_out_nothing_or_all(letters: str, packages: Path):
    with pytest.raises(ConfigError, match="hold_out is"):
        build_dataset(read_index([packages]), hold_out=letters)


def test_too_few_packages_are_told(tmp_path: Path, packages: Path):
    with pytest.raises(DataError, match="0 facts are about unseen packages"):
        build_dataset(read_index([packages]), read_index([packages]))
    (tmp_path / "empty").write_text("\n\n")
    with pytest.raises(DataError, match="no packages"):
        read_index([tmp_path / "empty"])


def test_the_lists_of_apt(tmp_path: Path):
    with pytest.raises(DataError, match="apt-get update"):
        apt_lists(tmp_path)
    names = ["a_Packages", "b_Packages.lz4", "c_Packages.xz", "d_Packages.diff_Index", "e_InRelease"]
    for name in names:
        (tmp_path / name).touch()
    assert [path.name for path in apt_lists(tmp_path)] == names[:3]


def test_the_command_writes_a_dataset_that_loads(
    packages: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    target = tmp_path / "deb"
    call = [str(packages), str(target), "--hold-out", "0123"]
    assert build.main(call) == 0
    assert f"{len(cp.load_dataset(target).relations)} relations" in capsys.readouterr().out
    assert build.main(call) == 2  # it is there already
    assert "deb" in capsys.readouterr().err
    assert build.main([*call, "--overwrite", "--without", "tag:use", "--section", "games"]) == 0
    assert "unseen" in capsys.readouterr().out
    assert "tag:use" not in cp.load_dataset(target).relations


def test_a_bad_file_is_one_line_and_exit_code_2(tmp_path: Path):
    (tmp_path / "Packages").write_text("Package: a\nDepends: b c\n")
    command = [sys.executable, str(FOLDER / "build.py"), str(tmp_path / "Packages"), str(tmp_path / "x")]
    ran = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ran.returncode == 2
    assert "Packages:2: depends: 'b c'" in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert not (tmp_path / "x").exists()
