"""The folder that one training run writes and everything later reads.

    config.json           what was asked for, with the schema version of the folder
    metrics.json          what came out
    model.safetensors     the weights            context.safetensors   the training graph's counts
    relations.json        the relation labels    README.md             the model card
    events.jsonl          what happened, one JSON object a line
    rules.txt             the rules of a model that has some, for reading; the model itself is in model.safetensors
    checkpoints/          last.safetensors, best.safetensors and refit.safetensors, for resuming
    tensorboard/          event files, where the run is tracked with TensorBoard
    .lock                 held by the process that trains

model.safetensors carries a manifest: the checksum of every other file that was written with it, so that a file of
another run in its place is noticed. README.md, the log and checkpoints/ are not in it.

Each file is replaced whole, so a reader never sees half of one, and a kill at any moment leaves the file that was
last acknowledged or a newer one. Who writes holds the lock; reading needs none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from contextpool.errors import CheckpointError, CheckpointWriteError, ConfigError, setting, shortened
from contextpool.train.checkpoint import Shapes, load_tensors, read_checkpoint, save_tensors
from contextpool.train.files import (
    LOCK_NAME,
    FolderLock,
    append_event,
    check_shape,
    flush_folder,
    is_folder,
    is_there,
    json_digest,
    read_bytes,
    read_events,
    read_json,
    readable_json,
    reason,
    shown,
    write_text,
)
from contextpool.train.schema import CONFIG, RUN_FORMAT, StoredConfig, config_text, read_config
from contextpool.triples.catalog import is_named

EVENTS = "events.jsonl"
CHECKPOINTS = "checkpoints"
TENSORBOARD = "tensorboard"
JSON_FILES = ("metrics.json", "relations.json")
TENSOR_FILES = ("model.safetensors", "context.safetensors")
TEXT_FILES = ("README.md", "rules.txt")

MANIFEST = (CONFIG, *JSON_FILES, "context.safetensors", "rules.txt")
"""The files of which the weights carry checksums."""
FIRST_WITH_MANIFEST = 3
MAX_TEXT_BYTES = 1 << 32

Kind = Literal["last", "best", "refit"]
KINDS: tuple[Kind, ...] = ("last", "best", "refit")


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
    refuse_old_run(path, overwrite)
    old = [file for file in _own_files(path) if is_there(file)]
    _remove(old + _leftovers(path) + _curves(path))


def refuse_old_run(path: Path, overwrite: bool) -> None:
    """Refuse a folder that holds a run already, unless it may be overwritten."""
    old = [file for file in _own_files(path) if is_there(file)]
    if old and not overwrite:
        raise ConfigError(
            f"output {shown(path)} already holds a run ({old[0].name}). Resume it, choose another folder, "
            f"or overwrite it ({setting('overwrite', True)})."
        )


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


@dataclass(frozen=True, eq=False)
class Results:
    """What a training leaves in its run folder."""

    weights: Mapping[str, Tensor]
    model: str
    """The name of the model."""
    metrics: Mapping[str, Any]
    card: str
    relations: Sequence[str] | None = None
    """Labels; None for a model that knows none."""
    context: tuple[Mapping[str, Tensor], Mapping[str, Any]] | None = None
    """The training graph's counts, where the model reads them."""
    rules: str = ""


class RunFolder:
    """A run folder, opened for reading or, holding its lock, for writing. A context manager: closing unlocks."""

    def __init__(self, path: Path, stored: StoredConfig, lock: FolderLock | None) -> None:
        self.path = path
        self.config = stored.config
        self._stored, self._lock = stored, lock
        self._digests = {CONFIG: stored.digest}
        """Checksums of the files that were read or written so far."""

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

    @property
    def kept(self) -> str:
        """What is left of a training that ends here, and how to go on."""
        if not self.has_checkpoint("last"):
            return f"nothing is saved yet in {shown(self.path)}; begin again"
        recipe = self.config.get("recipe")
        recipe = recipe if isinstance(recipe, dict) else {}
        name = recipe.get("dataset")
        given = "" if name is None or is_named(name) else " [RECIPE]" if recipe.get("mixture") else " DATASET"
        return f"what was trained is saved. Go on with: contextpool resume {shown(self.path)}{given}"

    @property
    def identity(self) -> str:
        """A checksum of what the run was asked for, so that a checkpoint can say whose it is."""
        return self._stored.digest

    def check_finished(self) -> None:
        """Refuse a run that was cut off: say how far it came, and how to go on."""
        if not is_there(self.path / "metrics.json") and is_there(self.path / CHECKPOINTS):
            epochs = sum(event.get("event") == "epoch" for event in self.events())
            recipe = self.config.get("recipe")
            name = str(recipe.get("dataset")) if isinstance(recipe, dict) else ""
            what = "" if is_named(name) else f" DATASET   (it was begun on {shortened(name)})"
            raise CheckpointError(
                f"{shown(self.path)}: the training is not finished ({epochs} epochs are). "
                f"Go on with: contextpool resume {self.path}{what}"
            )

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
        self._digests[name] = save_tensors(self._file(name, TENSOR_FILES), tensors, meta, require_finite=True)

    def load_tensors(
        self, name: str, *, check: Callable[[Shapes], None] | None = None
    ) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The content of model.safetensors or context.safetensors; `check` may refuse its header first."""
        stored = read_checkpoint(self._file(name, TENSOR_FILES), check=check)
        self._digests[name] = stored.digest
        return stored.tensors, stored.meta

    # all that a training leaves

    def write_results(self, results: Results) -> None:
        """Everything that `load` reads, in an order that a kill leaves recognisable: metrics.json comes last."""
        self._digests["metrics.json"] = self._json_digest("metrics.json", results.metrics)
        if results.relations is not None:
            self.write_json("relations.json", list(results.relations))
        if results.context is not None:
            self.save_tensors("context.safetensors", *results.context)
        if results.rules:
            self.write_text("rules.txt", results.rules)
        self.write_text("README.md", results.card)
        manifest = {name: self._digests[name] for name in sorted(self._digests) if name in MANIFEST}
        self.save_tensors(
            "model.safetensors", results.weights, {"model": results.model, "manifest": manifest}
        )
        self.write_json("metrics.json", results.metrics)

    def check_manifest(self, meta: Mapping[str, Any], *, every: bool = False) -> None:
        """Refuse files that were not written with the weights, whose meta this is; runs of schema 2 have no manifest.

        Those that were read so far are compared; with `every` all of them.
        """
        weights = shown(self.path / "model.safetensors")
        if "manifest" not in meta and self._stored.version < FIRST_WITH_MANIFEST:
            return
        check_shape(meta, {"manifest": dict}, f"{weights}: its meta")
        manifest: dict[str, Any] = meta["manifest"]
        read = {name: digest for name, digest in self._digests.items() if name in MANIFEST}
        if every:
            read |= {
                name: self._digest_of(name) for name in manifest if name in MANIFEST and name not in read
            }
        for name, digest in sorted(read.items()):
            if manifest.get(name) != digest:
                raise CheckpointError(
                    f"{shown(self.path / name)}: this is not the file that was written with {weights}: it is another "
                    "run's, was changed, or its training was cut off. Use a whole copy, or go on with "
                    "`contextpool resume`."
                )

    def _digest_of(self, name: str) -> str:
        if name in TENSOR_FILES:
            return read_checkpoint(self.path / name).digest
        if name in JSON_FILES:
            return self._json_digest(name, read_json(self.path / name))
        return hashlib.sha256(read_bytes(self.path / name, MAX_TEXT_BYTES)).hexdigest()

    # text

    def write_json(self, name: str, value: Any) -> None:
        """Replace metrics.json or relations.json."""
        self._check_writable()
        path = self._file(name, JSON_FILES)
        write_text(path, readable_json(value, f"{shown(path)}: the value"))
        self._digests[name] = self._json_digest(name, value)

    def _json_digest(self, name: str, value: Any) -> str:
        return json_digest(value, f"{shown(self._file(name, JSON_FILES))}: the value")

    def read_json(self, name: str, shape: Any = object) -> Any:
        """The value that `write_json` was given, tuples as lists; refused where it has another shape."""
        path = self._file(name, JSON_FILES)
        value = read_json(path)
        if shape is not object:
            check_shape(value, shape, shown(path))
        self._digests[name] = self._json_digest(name, value)
        return value

    def write_text(self, name: str, text: str) -> None:
        """Replace README.md, the model card, or rules.txt."""
        self._check_writable()
        write_text(self._file(name, TEXT_FILES), text)
        self._digests[name] = hashlib.sha256(text.encode("utf-8")).hexdigest()

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
                f"{shown(self.path)}: there is no checkpoint {shortened(kind)}, only {', '.join(KINDS)}."
            )
        return self.path / CHECKPOINTS / f"{kind}.safetensors"

    def _check_writable(self) -> None:
        if self._lock is None or not self._lock.is_held:
            raise CheckpointWriteError(
                f"{shown(self.path)}: the run folder is not open for writing in this process. "
                "Open it with RunFolder.open(path, writing=True)."
            )
