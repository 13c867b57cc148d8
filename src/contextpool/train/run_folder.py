"""The folder that one training run writes and everything later reads.

    config.json           what was asked for, with the schema version of the folder
    metrics.json          what came out
    model.safetensors     the weights            context.safetensors   the training graph's counts
    relations.json        the relation labels    README.md             the model card
    events.jsonl          what happened, one JSON object a line
    rules.txt             the rules of a model that has some, for reading; the model itself is in model.safetensors
    checkpoints/          last.safetensors and best.safetensors, for resuming
    tensorboard/          event files, where the run is tracked with TensorBoard
    .lock                 held by the process that trains

Each file is replaced whole, so a reader never sees half of one, and a kill at any moment leaves the file that was
last acknowledged or a newer one. Who writes holds the lock; reading needs none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from contextpool.errors import CheckpointError, CheckpointWriteError, ConfigError, shortened
from contextpool.train.checkpoint import load_tensors, save_tensors
from contextpool.train.files import (
    LOCK_NAME,
    FolderLock,
    append_event,
    flush_folder,
    is_folder,
    is_there,
    read_events,
    read_json,
    readable_json,
    reason,
    shown,
    write_text,
)
from contextpool.train.schema import CONFIG, RUN_FORMAT, config_text, read_config

EVENTS = "events.jsonl"
CHECKPOINTS = "checkpoints"
TENSORBOARD = "tensorboard"
JSON_FILES = ("metrics.json", "relations.json")
TENSOR_FILES = ("model.safetensors", "context.safetensors")
TEXT_FILES = ("README.md", "rules.txt")

Kind = Literal["last", "best"]
KINDS: tuple[Kind, ...] = ("last", "best")


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


class RunFolder:
    """A run folder, opened for reading or, holding its lock, for writing. A context manager: closing unlocks."""

    def __init__(self, path: Path, config: dict[str, Any], lock: FolderLock | None) -> None:
        self.path = path
        self.config = config
        self._lock = lock

    @classmethod
    def create(cls, path: str | Path, config: Mapping[str, Any], *, overwrite: bool = False) -> RunFolder:
        """A new run in an empty or new folder, open for writing.

        `overwrite` first removes the files of the run that is there, and no others. A folder with other
        content is refused in any case.
        """
        path = Path(path)
        text = config_text(config, path)
        refuse_foreign_content(path)
        make_folders(path)
        lock = FolderLock(path)
        try:
            remove_old_run(path, overwrite)
            write_text(path / CONFIG, text)
            return cls(path, read_config(path), lock)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def open(cls, path: str | Path, *, writing: bool = False) -> RunFolder:
        """An existing run, to read from or, with `writing`, to go on with."""
        path = Path(path)
        config = read_config(path)
        if not writing:
            return cls(path, config, None)
        lock = FolderLock(path)
        try:
            remove_leftovers(path)
            config = read_config(path)  # again: it may have been replaced until we held the lock
        except BaseException:
            lock.release()
            raise
        return cls(path, config, lock)

    def close(self) -> None:
        """Give the lock back; reading still works."""
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> RunFolder:
        """Itself: `with RunFolder.create(...) as run`."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close."""
        self.close()

    # checkpoints and tensors

    def has_checkpoint(self, kind: Kind) -> bool:
        """Whether a checkpoint of this kind was ever acknowledged."""
        return is_there(self._checkpoint(kind))

    def save_checkpoint(
        self,
        kind: Kind,
        tensors: Mapping[str, Tensor],
        meta: Mapping[str, Any],
        *,
        require_finite: bool = False,
    ) -> None:
        """Replace the checkpoint; once this returns, it or a newer one survives whatever happens."""
        self._check_writable()
        save_tensors(self._checkpoint(kind), tensors, meta, require_finite=require_finite)

    def load_checkpoint(
        self, kind: Kind, *, device: str | torch.device = "cpu"
    ) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The checkpoint that was last acknowledged, or a newer one."""
        return load_tensors(self._checkpoint(kind), device=device)

    def save_tensors(self, name: str, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        """Replace model.safetensors or context.safetensors; NaN and infinity are refused."""
        self._check_writable()
        save_tensors(self._file(name, TENSOR_FILES), tensors, meta, require_finite=True)

    def load_tensors(
        self, name: str, *, device: str | torch.device = "cpu"
    ) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The content of model.safetensors or context.safetensors."""
        return load_tensors(self._file(name, TENSOR_FILES), device=device)

    # text

    def write_json(self, name: str, value: Any) -> None:
        """Replace metrics.json or relations.json."""
        self._check_writable()
        path = self._file(name, JSON_FILES)
        write_text(path, readable_json(value, f"{shown(path)}: the value"))

    def read_json(self, name: str) -> Any:
        """The value that `write_json` was given; tuples are lists."""
        return read_json(self._file(name, JSON_FILES))

    def write_text(self, name: str, text: str) -> None:
        """Replace README.md, the model card, or rules.txt."""
        self._check_writable()
        write_text(self._file(name, TEXT_FILES), text)

    def append_event(self, event: Mapping[str, Any]) -> None:
        """Add one event to the log. It survives a kill of this process; a loss of power may take the newest."""
        self._check_writable()
        append_event(self.path / EVENTS, event)

    def events(self) -> Iterator[dict[str, Any]]:
        """All events, oldest first; a torn last line is left out, other damage is an error with its line."""
        return read_events(self.path / EVENTS)

    def _file(self, name: str, allowed: tuple[str, ...]) -> Path:
        if name not in allowed:
            raise CheckpointError(
                f"{shown(self.path)}: {shortened(name)} is not among the files of a run that can be used this way: "
                f"{', '.join(allowed)}."
            )
        return self.path / name

    def _checkpoint(self, kind: str) -> Path:
        if kind not in KINDS:
            raise CheckpointError(
                f"{shown(self.path)}: there is no checkpoint {shortened(kind)}, only {' and '.join(KINDS)}."
            )
        return self.path / CHECKPOINTS / f"{kind}.safetensors"

    def _check_writable(self) -> None:
        if self._lock is None or not self._lock.is_held:
            raise CheckpointWriteError(
                f"{shown(self.path)}: the run folder is not open for writing in this process. "
                "Open it with RunFolder.open(path, writing=True)."
            )
