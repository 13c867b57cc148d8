"""A folder that appears whole or not at all."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from contextpool.errors import DataError
from contextpool.triples.formats.folder import listing, stem_of

_ONE_GRAPH = ("train", "valid", "test", "facts", "entities", "relations")
_TWO_GRAPHS = ("inference", "inference_graph", "inference_validation", "inference_test")
_NUMBERED = ("train2id", "valid2id", "test2id", "entity2id", "relation2id")
_STEMS = frozenset((*_ONE_GRAPH, *_TWO_GRAPHS, *_NUMBERED))


@contextlib.contextmanager
def published_folder(target: Path, *, overwrite: bool) -> Iterator[Path]:
    """An empty folder to write into, which takes the target's name once everything is in it.

    On an error nothing stays behind, and what the target held is as it was. Only a dataset is ever replaced:
    a folder with anything else in it is refused even with `overwrite`.
    """
    _check_target(target, overwrite)
    target.parent.mkdir(parents=True, exist_ok=True)
    workshop = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part"))
    try:
        fresh = workshop / "new"
        fresh.mkdir()
        yield fresh
        _exchange(fresh, target, workshop / "old")
    finally:
        shutil.rmtree(workshop, ignore_errors=True)


def _exchange(fresh: Path, target: Path, old: Path) -> None:
    """Two renames; where the second fails, the first is taken back."""
    if not target.exists():
        fresh.rename(target)
        return
    target.rename(old)
    try:
        fresh.rename(target)
    except BaseException:
        old.rename(target)
        raise


def _check_target(target: Path, overwrite: bool) -> None:
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise DataError(f"{target}: there is something that is no folder. Name another place to write to.")
    if not target.exists() or not any(target.iterdir()):
        return
    if not overwrite:
        raise DataError(
            f"{target}: the folder is there and holds {listing(target, limit=4)}. Name another one, or allow "
            "it to be overwritten."
        )
    foreign = next((path for path in sorted(target.rglob("*")) if not _belongs_to_a_dataset(path)), None)
    if foreign is not None:
        raise DataError(
            f"{target}: the folder holds {foreign.relative_to(target)}, which is no file of a dataset, so it "
            "is not overwritten. Move that away, or name another folder."
        )


def _belongs_to_a_dataset(path: Path) -> bool:
    return path.is_dir() or stem_of(path.name) in _STEMS
