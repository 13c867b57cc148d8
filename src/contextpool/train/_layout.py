"""Which files a run folder has, and how room is made for a new run without touching anything else."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from contextpool.errors import CheckpointWriteError, ConfigError, shortened
from contextpool.train._files import flush_folder, is_folder, is_there, read_json, reason, shown
from contextpool.train._lock import LOCK_NAME

CONFIG = "config.json"
EVENTS = "events.jsonl"
CHECKPOINTS = "checkpoints"
TENSORBOARD = "tensorboard"
JSON_FILES = ("metrics.json", "relations.json")
TENSOR_FILES = ("model.safetensors", "context.safetensors")
TEXT_FILES = ("README.md", "rules.txt")

Kind = Literal["last", "best"]
KINDS: tuple[Kind, ...] = ("last", "best")

RUN_FORMAT = "contextpool run"
"""What config.json says it belongs to, so that nobody else's is taken for one of ours."""


def _own_files(path: Path) -> list[Path]:
    """Every file that a run may have, config first: without it, the rest is no run."""
    names = (CONFIG, *JSON_FILES, *TENSOR_FILES, *TEXT_FILES, EVENTS)
    return [path / name for name in names] + [path / CHECKPOINTS / f"{kind}.safetensors" for kind in KINDS]


def _leftovers(path: Path) -> list[Path]:
    """Temporary files of writers that were killed."""
    return [part for file in _own_files(path) for part in file.parent.glob(f".{file.name}.*.part")]


def _curves(path: Path) -> list[Path]:
    """Event files of TensorBoard, where the run was tracked with it."""
    return sorted((path / TENSORBOARD).glob("events.out.tfevents.*"))


def refuse_foreign_content(path: Path) -> None:
    """Nothing is written into a folder that holds something else than a run, whatever the caller says."""
    if not is_there(path):
        return
    if not is_folder(path):
        raise ConfigError(f"output {shown(path)} is a file. Choose another folder.")
    if is_there(path / CONFIG):
        _refuse_foreign_config(path)
        return
    own = {file.name for file in _own_files(path)} | {LOCK_NAME, CHECKPOINTS, TENSORBOARD}
    own |= {part.name for part in _leftovers(path)}
    foreign = sorted(name for name in _names_in(path) if name not in own)
    if foreign:
        raise ConfigError(
            f"output {shown(path)} holds files that are no run's, such as {shortened(foreign[0])}. "
            "Choose an empty or a new folder."
        )


def _names_in(folder: Path) -> list[str]:
    try:
        return [entry.name for entry in folder.iterdir()]
    except OSError as error:
        raise ConfigError(
            f"output {shown(folder)} cannot be read ({reason(error)}). Choose another folder."
        ) from error


def _refuse_foreign_config(path: Path) -> None:
    content = read_json(path / CONFIG)
    if not isinstance(content, dict) or content.get("format") != RUN_FORMAT:
        raise ConfigError(
            f"output {shown(path)} holds a {CONFIG} that is not contextpool's. Choose an empty or a new folder."
        )


def make_folders(path: Path) -> None:
    """The folder and its checkpoints/, on disk with every folder above that had to be made for them."""
    missing = [folder for folder in (path / CHECKPOINTS, path, *path.parents) if not is_there(folder)]
    try:
        (path / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointWriteError(
            f"{shown(path)}: the run folder cannot be made ({reason(error)}). Choose another."
        ) from error
    for folder in missing:
        flush_folder(folder.parent)


def remove_old_run(path: Path, overwrite: bool) -> None:
    """Remove what a run may have left here, if the caller agreed to it; its config goes first."""
    old = [file for file in _own_files(path) if is_there(file)]
    if old and not overwrite:
        raise ConfigError(
            f"output {shown(path)} already holds a run ({old[0].name}). Resume it, choose another folder, "
            "or overwrite it (overwrite=True)."
        )
    _remove(old + _leftovers(path) + _curves(path))


def remove_leftovers(path: Path) -> None:
    """Remove what killed writers left behind. Only the holder of the lock may: a living one needs its own."""
    _remove(_leftovers(path))


def _remove(files: list[Path]) -> None:
    for file in files:
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            raise CheckpointWriteError(
                f"{shown(file)}: the file of an earlier run cannot be removed ({reason(error)}). Remove it by hand."
            ) from error
