"""`--nproc` and torchrun: one message, one exit code, one run folder, whatever happens to which process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from command_line import run
from contextpool.cli.launch import threads_each, without_nproc
from lab_small import family_folder

SMALL = ("train.epochs=1", "train.batch_size=512", "model.dim=4", "model.layers=2")
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}


@pytest.fixture
def tiny(tmp_path: Path) -> list[str]:
    """A training of a second."""
    return ["train", family_folder(tmp_path), *(word for one in SMALL for word in ("--set", one))]


def started(*command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **ENVIRONMENT},
    )


def children_of(process: int) -> list[int]:
    """Of the one that trains: processes with RANK in their environment, by rank."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = (folder / "stat").read_text().rsplit(")", 1)[1].split()[1]
            if int(parent) == process and b"spawn_main" in (folder / "cmdline").read_bytes():
                found[int(folder.name)] = folder
        except OSError:
            continue
    return sorted(found)


def test_two_processes_print_one_report_and_leave_one_run(tiny: list[str], tmp_path: Path) -> None:
    output = tmp_path / "run"
    ran = started("contextpool", *tiny, "--nproc", "2", "--json", "-o", str(output))
    out, err = ran.communicate(timeout=300)
    assert ran.returncode == 0, err
    assert json.loads(out)["model"]["num_queries"] > 0
    assert err.count("wrote ") == 1
    assert json.loads((output / "config.json").read_text())["config"]["machine"]["processes"] == 2


@pytest.mark.soak
def test_torchrun_starts_it_too(tiny: list[str], tmp_path: Path) -> None:
    torchrun = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "contextpool")
    ran = started(*torchrun, *tiny, "--json", "-o", str(tmp_path / "run"))
    out, err = ran.communicate(timeout=300)
    assert ran.returncode == 0, err
    assert json.loads(out)["model"]["num_queries"] > 0


def test_a_killed_process_ends_all_and_is_named(tiny: list[str], tmp_path: Path) -> None:
    output = tmp_path / "run"
    long = [*tiny, "--set", "train.epochs=1000000", "--set", "train.patience=0"]
    ran = started("contextpool", *long, "--nproc", "2", "-o", str(output))
    deadline = time.monotonic() + 240
    while not (output / "checkpoints" / "last.safetensors").exists() and time.monotonic() < deadline:
        assert ran.poll() is None, ran.communicate()
        time.sleep(0.05)
    second = children_of(ran.pid)[1]
    os.kill(second, signal.SIGKILL)
    _, err = ran.communicate(timeout=120)
    assert ran.returncode == 1
    assert "process 1 of 2 was ended by SIGKILL; the others were stopped" in err
    assert "contextpool resume" in err
    assert children_of(ran.pid) == []
    assert (output / "checkpoints" / "last.safetensors").exists()


@pytest.mark.soak
def test_what_is_wrong_with_the_input_is_told_once_with_its_exit_code(tmp_path: Path) -> None:
    ran = started(
        "contextpool", "train", str(tmp_path / "nothing"), "--nproc", "2", "-o", str(tmp_path / "r")
    )
    _, err = ran.communicate(timeout=300)
    assert ran.returncode == 2
    assert err.count("contextpool: error:") == 1
    assert "Traceback" not in err


def test_a_bad_setting_starts_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = run(["train", "world", "--nproc", "2", "--set", "train.lr=-1"], capsys, monkeypatch)
    assert (ran.code, ran.err.count("train.lr is -1")) == (2, 1)


def test_nproc_within_torchrun_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    ran = run(["train", "world", "--nproc", "2"], capsys, monkeypatch)
    assert ran.code == 2
    assert "this is already one of several" in ran.err


def test_the_command_of_one_process_is_the_same_without_nproc() -> None:
    assert without_nproc(["train", "x", "--nproc", "2", "--seed", "2"]) == ["train", "x", "--seed", "2"]
    assert without_nproc(["--nproc=3", "resume", "run"]) == ["resume", "run"]


def test_threads_are_shared_out() -> None:
    assert threads_each(1) >= max(1, threads_each(2)) >= threads_each(1000) == 1
