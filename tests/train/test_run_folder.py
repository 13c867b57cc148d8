"""The run folder: what was acknowledged is there, one process writes, nothing else is ever touched."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from contextpool.errors import CheckpointError, CheckpointWriteError, ConfigError
from contextpool.train import schema
from contextpool.train.run_folder import RunFolder
from train.fault_injection import Faults, fail_with
from train.sandbox import sandbox

needs_fork = pytest.mark.skipif(sys.platform != "linux", reason="forks as on Linux")
CONFIG = {"model": "redgnn", "layers": 5, "name": "é"}


def files_in(folder: Path) -> list[str]:
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


def fill(run: RunFolder) -> None:
    """Everything a run may have."""
    run.write_json("metrics.json", {"mrr": 0.5})
    run.write_json("relations.json", ["born in", "lebt in Köln"])
    run.write_text("README.md", "# A model\n")
    run.save_tensors("model.safetensors", {"w": torch.ones(3)}, {"d": 3})
    run.save_tensors("context.safetensors", {"counts": torch.arange(4)}, {})
    run.save_checkpoint("last", {"w": torch.zeros(2)}, {"epoch": 2})
    run.save_checkpoint("best", {"w": torch.ones(2)}, {"epoch": 1})
    run.append_event({"event": "start"})


# reading what was written


def test_everything_comes_back(tmp_path: Path):
    with RunFolder.create(tmp_path / "a" / "run", CONFIG) as run:
        fill(run)
    run = RunFolder.open(tmp_path / "a" / "run")
    assert run.config == CONFIG
    assert run.read_json("metrics.json") == {"mrr": 0.5}
    assert run.read_json("relations.json") == ["born in", "lebt in Köln"]
    assert run.load_tensors("model.safetensors")[1] == {"d": 3}
    assert run.load_tensors("context.safetensors")[0]["counts"].tolist() == [0, 1, 2, 3]
    assert run.load_checkpoint("last")[1] == {"epoch": 2}
    assert run.load_checkpoint("best", device="cpu")[0]["w"].tolist() == [1, 1]
    assert list(run.events()) == [{"event": "start"}]
    assert files_in(run.path) == [
        ".lock",
        "README.md",
        "checkpoints/best.safetensors",
        "checkpoints/last.safetensors",
        "config.json",
        "context.safetensors",
        "events.jsonl",
        "metrics.json",
        "model.safetensors",
        "relations.json",
    ]


def test_files_are_for_people_too_and_always_the_same(tmp_path: Path):
    for name, config in (("one", CONFIG), ("two", dict(reversed(CONFIG.items())))):
        with RunFolder.create(tmp_path / name, config) as run:
            fill(run)
    for file in files_in(tmp_path / "one"):
        if file != ".lock":
            assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()
    assert '  "lebt in Köln"' in (tmp_path / "one" / "relations.json").read_text("utf-8")
    assert json.loads((tmp_path / "one" / "config.json").read_text("utf-8"))["schema_version"] == 4


def test_what_is_not_there_is_named(tmp_path: Path):
    with RunFolder.create(tmp_path / "run", {}) as run:
        assert not run.has_checkpoint("last")
        assert list(run.events()) == []
        for read in (lambda: run.load_checkpoint("last"), lambda: run.load_tensors("model.safetensors")):
            with pytest.raises(CheckpointError, match=r"(last|model)\.safetensors: there is no such file"):
                read()
        with pytest.raises(CheckpointError, match=r"metrics\.json: there is no such file"):
            run.read_json("metrics.json")
        run.save_checkpoint("last", {}, {})
        assert run.has_checkpoint("last")
        assert not run.has_checkpoint("best")


def test_a_checkpoint_that_cannot_be_seen_is_not_taken_for_absent(tmp_path: Path):
    """Else a run would start anew over it."""
    with RunFolder.create(tmp_path / "run", {}) as run:
        file = tmp_path / "run" / "checkpoints" / "last.safetensors"
        file.symlink_to(file)
        with pytest.raises(CheckpointError, match="cannot be reached"):
            run.has_checkpoint("last")


@pytest.mark.parametrize(
    "use",
    [
        lambda run: run.write_json("../outside.json", 1),
        lambda run: run.write_json("config.json", {}),
        lambda run: run.write_json("/etc/passwd", 1),
        lambda run: run.read_json("model.safetensors"),
        lambda run: run.write_text("notes.txt", ""),
        lambda run: run.save_tensors("metrics.json", {}, {}),
        lambda run: run.load_tensors("checkpoints/../config.json"),
        lambda run: run.save_checkpoint("../last", {}, {}),
        lambda run: run.load_checkpoint("newest"),
        lambda run: run.has_checkpoint(""),
    ],
)
def test_only_the_files_of_a_run_can_be_used(use: Callable[[RunFolder], Any], tmp_path: Path):
    with RunFolder.create(tmp_path / "run", {}) as run:
        before = files_in(tmp_path)
        with pytest.raises(CheckpointError) as caught:
            use(run)
        assert "\n" not in str(caught.value)
        assert files_in(tmp_path) == before


def test_values_that_json_cannot_hold_are_refused_by_place(tmp_path: Path):
    with pytest.raises(CheckpointError, match=r"config.*\['lr'\] is inf"):
        RunFolder.create(tmp_path / "bad", {"lr": float("inf")})
    assert not (tmp_path / "bad").exists()
    with RunFolder.create(tmp_path / "run", {}) as run:
        run.write_json("metrics.json", {"mrr": 0.5})
        with pytest.raises(CheckpointError, match=r"metrics\.json: the value\['mrr'\] is nan"):
            run.write_json("metrics.json", {"mrr": float("nan")})
        with pytest.raises(CheckpointError, match=r"the event\['loss'\] is nan"):
            run.append_event({"loss": float("nan")})
        with pytest.raises(CheckpointError, match="not finite"):
            run.save_tensors("model.safetensors", {"w": torch.tensor([float("nan")])}, {})
        assert run.read_json("metrics.json") == {"mrr": 0.5}
        assert list(run.events()) == []


# schema and damage of config.json


def change_config(folder: Path, **changes: Any) -> None:
    content = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps({**content, **changes}), encoding="utf-8")


def test_a_newer_schema_is_refused_by_name(tmp_path: Path):
    RunFolder.create(tmp_path, CONFIG).close()
    change_config(tmp_path, schema_version=5, written_by="contextpool 9.1")
    with pytest.raises(
        CheckpointError, match=r"schema version 5, written by 'contextpool 9\.1'.*Upgrade contextpool"
    ):
        RunFolder.open(tmp_path)


@pytest.mark.parametrize("version", [0, -1])
def test_an_older_schema_without_migration_is_refused_by_name(version: int, tmp_path: Path):
    RunFolder.create(tmp_path, CONFIG).close()
    change_config(tmp_path, schema_version=version)
    with pytest.raises(CheckpointError, match=rf"schema version {version}, .* no longer reads .*train again"):
        RunFolder.open(tmp_path)


def test_an_older_schema_is_migrated_step_by_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    RunFolder.create(tmp_path, {"hops": 3}).close()
    change_config(tmp_path, schema_version=1)
    monkeypatch.delitem(schema.MIGRATIONS, 2)
    monkeypatch.setitem(
        schema.MIGRATIONS, 1, lambda old: {**old, "config": {"layers": old["config"]["hops"]}}
    )
    with pytest.raises(CheckpointError, match=r"schema version 1, .* no longer reads"):
        RunFolder.open(tmp_path)
    monkeypatch.setitem(schema.MIGRATIONS, 2, lambda old: {**old, "config": {**old["config"], "new": True}})
    assert RunFolder.open(tmp_path).config == {"layers": 3, "new": True}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b'{"schema_version": 1}',
        b'{"format": "contextpool run", "schema_version": "1", "config": {}}',
        b'{"format": "contextpool run", "schema_version": true, "config": {}}',
        b'{"format": "contextpool run", "schema_version": 1e0, "config": {}}',
        b'{"format": "contextpool run", "schema_version": 1' + b"0" * 4000 + b', "config": {}}',
        b'{"format": "contextpool run", "schema_version": 1}',
        b'{"format": "contextpool run", "schema_version": 1, "config": []}',
        b'{"format": "contextpool run", "schema_version": 1, "config": {"a": NaN}}',
        b'{"format": "contextpool run", "schema_version": 1, "config": {"a": 1, "a": 2}}',
        b"[" * 200_000,
        b'{"a":' * 200_000,
    ],
)
def test_a_damaged_or_foreign_config_is_refused_in_one_line(content: bytes, tmp_path: Path):
    RunFolder.create(tmp_path, {}).close()
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"config\.json") as caught:
        RunFolder.open(tmp_path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_what_is_no_run_folder_is_named(tmp_path: Path):
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    cases = {
        "missing": "there is no run folder",
        "file": "this is a file",
        "empty": "it has no config.json",
        "a\0b": "cannot be reached",
        "x" * 300: "cannot be reached",
    }
    for name, words in cases.items():
        for writing in (False, True):
            with pytest.raises(CheckpointError) as caught:
                RunFolder.open(tmp_path / name, writing=writing)
            assert words in str(caught.value)
    assert files_in(tmp_path) == ["file"]


# making room


def test_an_existing_run_is_kept_unless_told_otherwise(tmp_path: Path):
    with RunFolder.create(tmp_path / "run", CONFIG) as run:
        fill(run)
    (tmp_path / "run" / "notes.txt").write_text("mine")
    before = {file: (tmp_path / "run" / file).read_bytes() for file in files_in(tmp_path / "run")}
    with pytest.raises(
        ConfigError, match=r"already holds a run .*Resume it, choose another folder, or overwrite"
    ):
        RunFolder.create(tmp_path / "run", {})
    after = {file: (tmp_path / "run" / file).read_bytes() for file in files_in(tmp_path / "run")}
    assert {**after, ".lock": b""} == {**before, ".lock": b""}
    RunFolder.create(tmp_path / "run", {"new": 1}, overwrite=True).close()
    assert files_in(tmp_path / "run") == [".lock", "config.json", "notes.txt"]
    assert RunFolder.open(tmp_path / "run").config == {"new": 1}


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("name", ["thesis.tex", "config.json", ".hidden", "src/main.c"])
def test_a_folder_with_other_content_is_never_touched(name: str, overwrite: bool, tmp_path: Path):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text('{"name": "not ours"}')
    (tmp_path / "README.md").write_text("not ours either")
    with pytest.raises(ConfigError, match="Choose an empty or a new folder"):
        RunFolder.create(tmp_path, {}, overwrite=overwrite)
    assert files_in(tmp_path) == sorted(["README.md", name])


def test_odd_outputs_are_refused_in_one_line(tmp_path: Path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "run", tmp_path / ("x" * 300), tmp_path / "a\0b"):
        with pytest.raises((CheckpointError, ConfigError)) as caught:
            RunFolder.create(path, {})
        assert "\n" not in str(caught.value)
    assert files_in(tmp_path) == ["file"]


def test_an_interrupted_creation_can_be_repeated(tmp_path: Path):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / ".lock").write_text("process 1 on nowhere")
    (tmp_path / ".config.json.abc.part").write_text("{")
    RunFolder.create(tmp_path, {"a": 1}).close()
    assert files_in(tmp_path) == [".lock", "config.json"]


def test_opening_for_writing_removes_what_killed_writers_left(tmp_path: Path):
    with RunFolder.create(tmp_path, {}) as run:
        fill(run)
    kept = files_in(tmp_path)
    for name in (".metrics.json.x1.part", "checkpoints/.last.safetensors.y_2.part"):
        (tmp_path / name).write_text("half")
    (tmp_path / ".mine.part").write_text("not a run's")
    RunFolder.open(tmp_path)
    assert len(files_in(tmp_path)) == len(kept) + 3  # reading changes nothing
    RunFolder.open(tmp_path, writing=True).close()
    assert files_in(tmp_path) == sorted([*kept, ".mine.part"])


# one writer


def test_reading_needs_no_lock_and_gives_no_right_to_write(tmp_path: Path):
    with RunFolder.create(tmp_path, {}) as writer:
        fill(writer)
        reader = RunFolder.open(tmp_path)
        assert reader.load_checkpoint("last")[1] == {"epoch": 2}
        for write in (
            fill,
            lambda run: run.append_event({}),
            lambda run: run.save_checkpoint("last", {}, {}),
        ):
            with pytest.raises(CheckpointWriteError, match="not open for writing"):
                write(reader)
    with pytest.raises(CheckpointWriteError, match="not open for writing"):
        writer.append_event({})


def test_a_second_writer_in_this_process_is_refused_until_the_first_is_done(tmp_path: Path):
    first = RunFolder.create(tmp_path, {})
    shutil.copytree(tmp_path, tmp_path.parent / "copy")  # reading the lock file does not open the lock
    for attempt in (
        lambda: RunFolder.open(tmp_path, writing=True),
        lambda: RunFolder.create(tmp_path, {}, overwrite=True),
    ):
        with pytest.raises(
            CheckpointWriteError, match=f"process {os.getpid()} on .* is training into this run folder"
        ):
            attempt()
    first.close()
    first.close()
    second = RunFolder.open(tmp_path, writing=True)
    del second  # forgotten, not closed
    RunFolder.open(tmp_path, writing=True).close()


@needs_fork
@pytest.mark.parametrize("with_orphan", [False, True])
def test_the_lock_names_its_holder_and_dies_with_it(with_orphan: bool, tmp_path: Path):
    RunFolder.create(tmp_path, {}).close()
    found = sandbox().run("lock_and_die", folder=str(tmp_path), with_orphan=with_orphan)
    assert found["while_alive"].startswith(f"CheckpointWriteError: {tmp_path}: process {found['pid']} on ")
    assert "\n" not in found["while_alive"]
    assert found["after_death"] == "written"


def test_a_lock_file_that_leads_elsewhere_is_not_followed(tmp_path: Path):
    RunFolder.create(tmp_path / "run", {}).close()
    (tmp_path / "precious").write_text("keep me")
    for name in (".lock", "events.jsonl"):
        (tmp_path / "run" / name).unlink(missing_ok=True)
        (tmp_path / "run" / name).symlink_to(tmp_path / "precious")
        with pytest.raises(CheckpointWriteError), RunFolder.open(tmp_path / "run", writing=True) as run:
            run.append_event({"event": "x"})
        (tmp_path / "run" / name).unlink()
    assert (tmp_path / "precious").read_text() == "keep me"


# whatever fails while a run is made or written, what was there stays


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS], ids=os.strerror)
def test_json_that_cannot_be_written_keeps_the_previous_one(number: int, tmp_path: Path):
    with RunFolder.create(tmp_path, {}) as run:
        run.write_json("metrics.json", {"mrr": 0.1})
        with Faults().injected() as dry_run:
            run.write_json("metrics.json", {"mrr": 0.1})
        before = files_in(tmp_path)
        for at in range(len(dry_run.steps)):
            with Faults(at, fail_with(number)).injected(), pytest.raises(CheckpointWriteError) as caught:
                run.write_json("metrics.json", {"mrr": 0.2})
            assert os.strerror(number) in str(caught.value)
            after_rename = at > dry_run.steps.index("replace")
            assert run.read_json("metrics.json") == {"mrr": 0.2 if after_rename else 0.1}
            assert files_in(tmp_path) == before


def test_a_creation_that_fails_anywhere_can_be_repeated(tmp_path: Path):
    with Faults().injected() as dry_run:
        RunFolder.create(tmp_path / "dry", {}).close()
    for at in range(len(dry_run.steps)):
        folder = tmp_path / str(at)
        with (
            Faults(at, fail_with(errno.ENOSPC)).injected(),
            pytest.raises(CheckpointError, match="No space left"),
        ):
            RunFolder.create(folder, {})
        RunFolder.create(folder, {"again": True}, overwrite=True).close()
        assert RunFolder.open(folder).config == {"again": True}


def test_a_run_of_schema_1_loses_settings_that_are_gone_and_is_refused_where_it_turned_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(schema.REMOVED, "context", {"forgotten": 0.5})
    recipe: dict[str, Any] = {"context": {"gate": True, "forgotten": 0.5}, "train": {}}
    RunFolder.create(tmp_path, {"recipe": recipe}).close()
    change_config(tmp_path, schema_version=1)
    assert RunFolder.open(tmp_path).config["recipe"]["context"] == {"gate": True}
    recipe["context"]["forgotten"] = 0.7
    change_config(tmp_path, config={"recipe": recipe})
    with pytest.raises(CheckpointError, match=r"context\.forgotten was turned in this run"):
        RunFolder.open(tmp_path)


@pytest.mark.parametrize(
    ("name", "key", "left", "gone"),
    [
        ("compgcn", "composition", "corr", "sub"),
        ("anyburl", "constants", False, True),
        ("anyburl", "snapshots", [], [5]),
    ],
)
def test_a_run_of_schema_3_loses_the_settings_that_its_model_no_longer_has(
    name: str, key: str, left: Any, gone: Any, tmp_path: Path
):
    model = {"name": name, "dim": 4, **({"constants": False} if name == "anyburl" else {}), key: left}
    RunFolder.create(tmp_path, {"recipe": {"model": model}}).close()
    change_config(tmp_path, schema_version=3)
    assert RunFolder.open(tmp_path).config["recipe"]["model"] == {"name": name, "dim": 4}
    change_config(tmp_path, config={"recipe": {"model": {**model, "name": "my.model:Own", key: gone}}})
    assert RunFolder.open(tmp_path).config["recipe"]["model"][key] == gone
    change_config(tmp_path, config={"recipe": {"model": {**model, key: gone}}})
    with pytest.raises(CheckpointError, match=rf"model\.{key} was turned in this run"):
        RunFolder.open(tmp_path)


def test_a_run_of_schema_3_that_did_not_say_so_had_rules_with_constants(tmp_path: Path):
    RunFolder.create(tmp_path, {"recipe": {"model": {"name": "anyburl"}}}).close()
    assert RunFolder.open(tmp_path).config["recipe"]["model"] == {"name": "anyburl"}
    change_config(tmp_path, schema_version=3)
    with pytest.raises(CheckpointError, match=r"model\.constants was turned in this run"):
        RunFolder.open(tmp_path)
