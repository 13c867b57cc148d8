"""A run folder is whole: each part was written with the weights, has its shape, and takes no more than it is."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import contextpool as cp
from command_line import Ran, run
from contextpool.errors import ContextPoolError
from contextpool.train.checkpoint import load_tensors, save_tensors
from golden.make import HERE as GOLDEN
from golden.make import RUNS
from world_model import world_run as world_run

Change = Callable[[Path], None]
QUESTION = ("world", "--head", "Aalborg", "--relation", "near", "-k", "3", "--json")


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], Ran]:
    return lambda folder: run(["ask", *QUESTION, "--run", str(folder)], capsys, monkeypatch)


@pytest.fixture
def copy(world_run: Path, tmp_path: Path) -> Path:
    shutil.copytree(world_run, tmp_path / "run")
    return tmp_path / "run"


def changed_json(name: str, change: Callable[[Any], Any]) -> Change:
    def apply(folder: Path) -> None:
        value = json.loads((folder / name).read_text("utf-8"))
        (folder / name).write_text(json.dumps(change(value)), "utf-8")

    return apply


def of_another_run(name: str) -> Change:
    return lambda folder: shutil.copyfile(GOLDEN / "nbfnet_context" / name, folder / name) and None


def other_counts(folder: Path) -> None:
    tensors, meta = load_tensors(folder / "context.safetensors")
    save_tensors(folder / "context.safetensors", {**tensors, "both": tensors["both"] + 1}, meta)


def set_in(*path: str, value: Any) -> Callable[[Any], Any]:
    def change(content: Any) -> Any:
        place = content
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        return content

    return change


SWAPS: dict[str, tuple[Change, str]] = {
    "relations permuted": (changed_json("relations.json", lambda value: value[::-1]), "not sorted"),
    "a relation renamed": (
        changed_json("relations.json", lambda value: sorted([*value[1:], "zzz"])),
        "not the file that was written with",
    ),
    "calibration of another run": (of_another_run("metrics.json"), "metrics.json: this is not the file"),
    "other counts": (other_counts, "context.safetensors: this is not the file"),
    "weights of another run": (of_another_run("model.safetensors"), "model.safetensors|do not fit"),
    "a setting turned": (
        changed_json("config.json", set_in("config", "recipe", "context", "gate", value=False)),
        "do not fit|config.json: this is not the file",
    ),
    "a seed turned": (changed_json("config.json", set_in("config", "seed", value=7)), "config.json: this is"),
}


@pytest.mark.parametrize("name", SWAPS)
def test_a_part_that_was_not_written_with_the_weights_is_refused(
    name: str, copy: Path, ask: Callable[[Path], Ran]
) -> None:
    change, said = SWAPS[name]
    assert ask(copy).code == 0
    change(copy)
    ran = ask(copy)
    assert ran.code == 2
    assert ran.err.count("contextpool: error:") == 1
    assert any(words in ran.err for words in said.split("|")), ran.err


def test_a_run_whose_weights_lost_their_manifest_is_refused(copy: Path, ask: Callable[[Path], Ran]) -> None:
    weights, meta = load_tensors(copy / "model.safetensors")
    save_tensors(copy / "model.safetensors", weights, {"model": meta["model"]})
    assert "manifest is missing" in ask(copy).err


@pytest.mark.parametrize("name", [*RUNS, "shipped"])
def test_runs_from_before_the_manifest_load_with_what_they_had(name: str, ask: Callable[[Path], Ran]) -> None:
    folder = Path(cp.__file__).parent / "checkpoints" / cp.SHIPPED if name == "shipped" else GOLDEN / name
    assert ask(folder).code == 0


# shapes


SHAPES: dict[str, Change] = {
    "metrics {}": changed_json("metrics.json", lambda _: {}),
    "metrics []": changed_json("metrics.json", lambda _: []),
    "metrics with text": changed_json("metrics.json", set_in("calibration", value="yes")),
    "metrics with a number of text": changed_json("metrics.json", set_in("valid_mrr", value="high")),
    "calibration a list": changed_json("metrics.json", set_in("calibration", "calibration", value=[])),
    "calibration {}": changed_json("metrics.json", set_in("calibration", "calibration", value={})),
    "relations of numbers": changed_json("relations.json", lambda _: [1, 2]),
    "relations a table": changed_json("relations.json", lambda _: {"a": 1}),
    "no relations": changed_json("relations.json", lambda _: []),
    "relations like inverses": changed_json("relations.json", lambda value: [one + "^-1" for one in value]),
    "config without recipe": changed_json("config.json", set_in("config", value={})),
    "recipe a list": changed_json("config.json", set_in("config", "recipe", value=[])),
    "model a list": changed_json("config.json", set_in("config", "recipe", "model", value=[])),
    "seed of text": changed_json("config.json", set_in("config", "seed", value="1")),
    "machine a list": changed_json("config.json", set_in("config", "machine", value=[])),
    "threads of text": changed_json("config.json", set_in("config", "machine", value={"threads": "x"})),
}
SIZES: dict[str, Change] = {
    f"{key} {value}": changed_json("config.json", set_in("config", "recipe", *key.split("."), value=value))
    for key, value in {
        "model.dim": 3000,
        "model.layers": 10**30,
        "context.hops": 10**9,
        "context.control_seed": 10**30,
        "train.lr": 10**400,
        "context.views": [{}] * 10_000,
        "train.batch_size": 10**15,
    }.items()
}


@pytest.mark.parametrize("name", [*SHAPES, *SIZES])
@pytest.mark.parametrize("run_name", ["nbfnet_context"])
def test_json_of_another_shape_or_size_is_one_clear_error(
    name: str, run_name: str, tmp_path: Path, ask: Callable[[Path], Ran]
) -> None:
    shutil.copytree(GOLDEN / run_name, tmp_path / "run")
    {**SHAPES, **SIZES}[name](tmp_path / "run")
    ran = ask(tmp_path / "run")
    assert ran.code == 2, ran.err
    assert ran.err.count("contextpool: error:") == 1
    assert str(tmp_path / "run") in ran.err


def test_shapes_are_compared_before_memory_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of 300 million weights is refused without one of them."""
    shutil.copytree(GOLDEN / "nbfnet", tmp_path / "run")
    SIZES["model.dim 3000"](tmp_path / "run")
    made: list[int] = []
    real = torch.nn.Linear.reset_parameters

    def counted(layer: torch.nn.Linear) -> None:
        made.append(0 if layer.weight.is_meta else layer.weight.numel())
        real(layer)

    monkeypatch.setattr(torch.nn.Linear, "reset_parameters", counted)
    with pytest.raises(ContextPoolError, match="do not fit the recipe"):
        cp.load(tmp_path / "run")
    assert made
    assert sum(made) == 0


@pytest.mark.parametrize("name", ["config.json", "metrics.json", "relations.json", "model.safetensors"])
def test_a_pipe_in_the_place_of_a_file_keeps_nobody_waiting(
    name: str, tmp_path: Path, ask: Callable[[Path], Ran]
) -> None:
    shutil.copytree(GOLDEN / "nbfnet", tmp_path / "run")
    (tmp_path / "run" / name).unlink()
    os.mkfifo(tmp_path / "run" / name)
    assert "pipe or a device" in ask(tmp_path / "run").err


@pytest.mark.parametrize("what", ["a pipe", "a terabyte"])
def test_a_card_that_is_a_pipe_or_of_any_size_is_not_read_by_export(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(Path(cp.__file__).parent / "checkpoints" / cp.SHIPPED, tmp_path / "run")
    card = tmp_path / "run" / "README.md"
    card.unlink()
    if what == "a pipe":
        os.mkfifo(card)
    else:
        with card.open("wb") as file:
            file.truncate(10**12)
    ran = run(["export", str(tmp_path / "run"), str(tmp_path / "out"), "--no-evaluate"], capsys, monkeypatch)
    if what == "a pipe":  # there is no card then
        assert ran.code == 0
        return
    assert ran.code == 2
    assert ran.err.count("contextpool: error:") == 1
    assert "README.md" in ran.err
    assert not (tmp_path / "out").exists()
