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
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from contextpool.errors import CheckpointError, CheckpointWriteError, shortened
from contextpool.train._events import append_event, read_events
from contextpool.train._files import is_there, read_json, shown, write_text
from contextpool.train._json import readable_json
from contextpool.train._layout import (
    CHECKPOINTS,
    CONFIG,
    EVENTS,
    JSON_FILES,
    KINDS,
    TENSOR_FILES,
    TEXT_FILES,
    Kind,
    make_folders,
    refuse_foreign_content,
    remove_leftovers,
    remove_old_run,
)
from contextpool.train._lock import FolderLock
from contextpool.train._schema import config_text, read_config
from contextpool.train.checkpoint import load_tensors, save_tensors


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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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
