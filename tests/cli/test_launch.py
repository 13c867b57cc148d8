"""`--nproc` and torchrun: one message, one exit code, one run folder, whatever happens to which process."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from command_line import run
from contextpool.cli.launch import culprit, threads_each, without_nproc
from contextpool.train.checkpoint import load_tensors
from contextpool.train.run_folder import RunFolder
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


def test_the_process_that_was_killed_is_named_though_its_peer_aborted_first() -> None:
    killed, aborted, ended = -signal.SIGKILL, -signal.SIGABRT, -signal.SIGTERM
    assert culprit(0, [aborted, killed]) == 1
    assert culprit(0, [ended, aborted]) == 1
    assert culprit(0, [1, killed]) == 1
    assert culprit(1, [ended, 1]) == 1


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


# asked to stop


def long_training(tiny: list[str], output: Path, *more: str) -> subprocess.Popen[str]:
    """A training without end that has saved once."""
    endless = [*tiny, "--set", "train.epochs=1000000", "--set", "train.patience=0"]
    ran = started("contextpool", *endless, "-o", str(output), *more)
    deadline = time.monotonic() + 240
    while not (output / "checkpoints" / "last.safetensors").exists() and time.monotonic() < deadline:
        assert ran.poll() is None, ran.communicate()
        time.sleep(0.05)
    return ran


def listening(processes: list[int]) -> set[str]:
    """Addresses, as the kernel writes them, at which these processes listen."""
    own = set()
    for process in processes:
        for handle in Path(f"/proc/{process}/fd").iterdir():
            with contextlib.suppress(OSError):
                own.add(str(handle.readlink()))
    found = set()
    for table in ("tcp", "tcp6"):
        for row in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = row.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in own:
                found.add(fields[1].split(":")[0])
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="/proc as on Linux")
def test_several_processes_listen_on_loopback_alone_and_save_when_asked_to_stop(
    tiny: list[str], tmp_path: Path
) -> None:
    output = tmp_path / "run"
    ran = long_training(tiny, output, "--nproc", "2")
    found = listening([ran.pid, *children_of(ran.pid)])
    os.kill(ran.pid, signal.SIGTERM)
    _, err = ran.communicate(timeout=120)
    assert found <= {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}, (
        found
    )
    assert ran.returncode == 128 + signal.SIGTERM, err
    assert err.count("stopped by SIGTERM: epoch") == 1
    assert f"contextpool resume {output} DATASET" in err
    assert children_of(ran.pid) == []


@pytest.mark.parametrize("number", [pytest.param(signal.SIGTERM, marks=pytest.mark.soak), signal.SIGINT])
def test_a_training_that_is_asked_to_stop_saves_and_says_how_to_go_on(
    number: signal.Signals, tiny: list[str], tmp_path: Path
) -> None:
    output = tmp_path / "run"
    ran = long_training(tiny, output)
    os.kill(ran.pid, number)
    _, err = ran.communicate(timeout=120)
    assert ran.returncode == 128 + number, err
    assert "Traceback" not in err
    name = "Ctrl-C" if number == signal.SIGINT else "SIGTERM"
    assert f"contextpool: stopped by {name}: epoch" in err
    told = err.split("stopped by")[1]
    epoch, step = (int(found) for found in re.findall(r"epoch (\d+), step (\d+)", told)[0])
    position = load_tensors(output / "checkpoints" / "last.safetensors")[1]["position"]
    assert (position["epoch"] + 1, position["step"]) == (epoch, step)


def test_where_nothing_is_saved_yet_that_is_said(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "run", {"recipe": {"dataset": "world"}}) as opened:
        assert "nothing is saved yet" in opened.kept
        opened.save_checkpoint("last", {}, {})
        assert opened.kept.endswith(f"contextpool resume {tmp_path / 'run'}")
