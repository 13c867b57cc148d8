"""Kills, full disks and other failures of a writer never cost a checkpoint that was acknowledged (C2, C3)."""

from __future__ import annotations

import errno
import os
import signal
import sys
import tempfile
from pathlib import Path

import pytest
import torch

from contextpool.errors import CheckpointError, CheckpointWriteError
from contextpool.train.checkpoint import load_tensors, save_tensors
from support import amount
from train.fault_injection import Faults, fail_with, number_in, numbered_tensors
from train.sandbox import sandbox

needs_fork = pytest.mark.skipif(sys.platform != "linux", reason="forks and limits as on Linux")


def save_numbered(path: Path, number: int) -> None:
    save_tensors(path, numbered_tensors(number), {"number": number})


def steps_of_a_save(path: Path, *, short_writes: bool = False) -> list[str]:
    with Faults(short_writes=short_writes).injected() as dry_run:
        save_numbered(path, 1)
    return dry_run.steps


# C2


@needs_fork
def test_random_kills_never_cost_an_acknowledged_checkpoint(tmp_path: Path):
    count = amount(50, 500)
    kills = sandbox().run("random_kills", folder=str(tmp_path / "run"), count=count, seed=0)
    assert len(kills) == count
    for kill in kills:
        assert kill["error"] == ""
        assert kill["acknowledged"] <= kill["number"] <= kill["acknowledged"] + 1
        assert all(isinstance(number, int) for number in kill["told"])
        assert set(range(1, kill["acknowledged"] + 1)) - set(kill["events"]) <= _unlogged(kills)
    assert sum(kill["leftovers"] for kill in kills) > 0  # kills did hit the writer at work
    assert kills[-1]["number"] > 0  # and it did work


def _unlogged(kills: list[dict[str, int]]) -> set[int]:
    """Saved, but killed before it was logged."""
    return {kill["number"] for kill in kills}


@needs_fork
def test_random_kills_do_destroy_what_is_written_in_place(tmp_path: Path):
    """The control: the same experiment on the usual way to save."""
    kills = sandbox().run("random_kills", folder=str(tmp_path / "run"), count=200, seed=0, naive=True)
    assert "CheckpointError" in kills[-1]["error"]


@needs_fork
@pytest.mark.parametrize("short_writes", [False, True])
def test_a_kill_at_each_step_leaves_the_old_or_the_new_checkpoint(short_writes: bool, tmp_path: Path):
    kills = sandbox().run("kills_at_each_step", folder=str(tmp_path), short_writes=short_writes)
    renamed = [kill["step"] for kill in kills].index("replace")
    for position, kill in enumerate(kills[:-1]):
        assert kill["signal"] == signal.SIGKILL
        assert kill["told"] == []
        assert kill["number"] == (1 if position <= renamed else 2)
    assert kills[-1]["told"] == ["acknowledged"]
    assert kills[-1]["number"] == 2


def test_the_order_of_steps_survives_a_loss_of_power(tmp_path: Path):
    """Data is on disk before it gets its name, and the name is on disk before the save returns."""
    steps = steps_of_a_save(tmp_path / "t")
    last_write = len(steps) - 1 - steps[::-1].index("write")
    assert steps[last_write:] == ["write", "fsync", "chmod", "replace", "open", "fsync"]


# C3


@pytest.mark.parametrize("short_writes", [False, True])
@pytest.mark.parametrize(
    "number", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT, errno.EACCES], ids=os.strerror
)
def test_an_error_at_each_step_keeps_the_previous_checkpoint(number: int, short_writes: bool, tmp_path: Path):
    path = tmp_path / "checkpoints" / "last.safetensors"
    save_numbered(path, 1)
    steps = steps_of_a_save(tmp_path / "dry" / "t", short_writes=short_writes)
    (tmp_path / "dry").joinpath("t").unlink()
    for at, step in enumerate(steps):
        save_numbered(path, 1)
        before = path.read_bytes()
        after_rename = at > steps.index("replace")
        with Faults(at, fail_with(number), short_writes).injected():
            message = _failure(path)
        assert path.read_bytes() == before or after_rename, step
        assert number_in(*load_tensors(path)) == (2 if after_rename else 1)
        assert [file.name for file in path.parent.iterdir()] == [path.name], step
        if message is not None:
            assert os.strerror(number) in message
            assert str(path.parent) in message
            assert "\n" not in message


def _failure(path: Path) -> str | None:
    """How the second save fails; None if it need not, as when a folder may not be read for flushing it."""
    try:
        save_numbered(path, 2)
    except CheckpointWriteError as error:
        return str(error)
    return None


def test_only_a_folder_that_cannot_be_flushed_at_all_is_no_failure(tmp_path: Path):
    steps = steps_of_a_save(tmp_path / "t")
    silent = []
    for number in (errno.EIO, errno.ENOSPC, errno.EINVAL, errno.EACCES):
        for at in range(len(steps)):
            with Faults(at, fail_with(number)).injected():
                if _failure(tmp_path / "t") is None:
                    silent.append((errno.errorcode[number], at - len(steps)))
    assert silent == [("EINVAL", -2), ("EINVAL", -1), ("EACCES", -2), ("EACCES", -1)]


def test_short_writes_alone_do_no_harm(tmp_path: Path):
    with Faults(short_writes=True).injected() as faults:
        save_numbered(tmp_path / "short", 3)
    save_numbered(tmp_path / "whole", 3)
    assert faults.steps.count("write") > 10
    assert (tmp_path / "short").read_bytes() == (tmp_path / "whole").read_bytes()


@needs_fork
@pytest.mark.parametrize("limit", [0, 100, 4096, 70_000])
def test_a_file_that_the_system_cuts_off_keeps_the_previous_checkpoint(limit: int, tmp_path: Path):
    path = tmp_path / "last.safetensors"
    save_numbered(path, 1)
    child = sandbox().run("save_under_size_limit", path=str(path), limit=limit)
    (told,) = child["told"]
    assert told["type"] == "CheckpointWriteError"
    assert os.strerror(errno.EFBIG) in told["message"]
    assert "\n" not in told["message"]
    assert number_in(*load_tensors(path)) == 1
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@needs_fork
def test_a_folder_that_may_only_be_read_keeps_the_previous_checkpoint():
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are closed to other users
        Path(folder).chmod(0o755)
        path = Path(folder) / "read-only" / "last.safetensors"
        save_numbered(path, 1)
        child = sandbox().run("save_without_rights", path=str(path))
        could_read, told = child["told"]
        assert could_read == {"number": 1}
        assert told["type"] == "CheckpointWriteError"
        assert os.strerror(errno.EACCES) in told["message"]
        assert number_in(*load_tensors(path)) == 1
        assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_failing_to_write_exits_with_1_and_a_damaged_file_with_2(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointWriteError) as caught:
        save_numbered(tmp_path / "file" / "t", 1)
    assert caught.value.exit_code == 1
    with pytest.raises(CheckpointError) as refused:
        load_tensors(tmp_path / "file")
    assert refused.value.exit_code == 2
    assert not isinstance(refused.value, CheckpointWriteError)


def test_odd_places_are_one_line(tmp_path: Path):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    places = [tmp_path / "file" / "t", tmp_path / "folder", tmp_path / ("x" * 300), tmp_path / "a\0b"]
    for path in places:
        with pytest.raises(CheckpointWriteError) as caught:
            save_tensors(path, {"t": torch.ones(1)}, {})
        assert "\n" not in str(caught.value)
    with pytest.raises(CheckpointWriteError, match=r"two\\nlines"):
        save_tensors(tmp_path / "file" / "two\nlines", {}, {})


def test_interrupting_a_save_keeps_the_previous_checkpoint(tmp_path: Path):
    path = tmp_path / "t"
    save_numbered(path, 1)
    steps = steps_of_a_save(tmp_path / "dry")

    def interrupt() -> None:
        raise KeyboardInterrupt

    with Faults(steps.index("fsync"), interrupt).injected(), pytest.raises(KeyboardInterrupt):
        save_numbered(path, 2)
    assert number_in(*load_tensors(path)) == 1
    assert sorted(file.name for file in tmp_path.iterdir()) == ["dry", "t"]
