"""Files of a run: written so that they are whole or absent, opened so that nothing odd can stall the reader."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import IO, Any

from contextpool.errors import CheckpointError, CheckpointWriteError
from contextpool.train._json import parse_json
from contextpool.triples.files import atomic_file

MAX_JSON_BYTES = 1 << 26

# File systems that have no such operation, and folders that may be written but not read.
_FOLDER_CANNOT_BE_FLUSHED = {errno.EINVAL, errno.ENOTSUP, errno.EACCES}


def shown(path: str | Path) -> str:
    """A path as it can stand in a one-line message."""
    text = str(path)
    return text if text.isprintable() else repr(text)


def reason(error: OSError | ValueError) -> str:
    """Such as: No space left on device. Paths with a NUL are a ValueError to Python."""
    named = error.strerror if isinstance(error, OSError) else None
    return named or str(error) or type(error).__name__


def is_there(path: Path) -> bool:
    """Whether the path leads somewhere. Not being able to tell is an error, never a no."""
    return _mode(path) != 0


def is_folder(path: Path) -> bool:
    """Whether the path leads to a folder."""
    return stat.S_ISDIR(_mode(path))


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{shown(path)}: cannot be reached ({reason(error)}). Check the path."
        ) from error


@contextlib.contextmanager
def durable_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes its name once it is complete, and keeps it through a loss of power.

    Temporary file, fsync, rename, fsync of the folder. Whatever fails before the rename leaves what was
    there before and no temporary file; every failure is a CheckpointWriteError of one line.
    """
    if "\0" in str(path):
        raise CheckpointWriteError(f"{shown(path)}: no file can have this name. Choose another one.")
    try:
        with atomic_file(path) as stream:
            yield stream
    except OSError as error:
        raise CheckpointWriteError(
            f"{shown(path)}: the file cannot be written ({reason(error)}). What was there before is "
            "untouched. Make room or choose another folder, then run it again."
        ) from error
    flush_folder(path.parent)


def flush_folder(folder: Path) -> None:
    """Put the folder's list of names on disk, as far as its file system can."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno in _FOLDER_CANNOT_BE_FLUSHED:
            return
        raise CheckpointWriteError(
            f"{shown(folder)}: the folder cannot be flushed to disk ({reason(error)}). Its files are whole, but "
            "the newest may not survive a loss of power. Check the disk, then run it again."
        ) from error


@contextlib.contextmanager
def regular_file(path: str | Path, limit: int) -> Iterator[tuple[BufferedReader, int]]:
    """The opened file and its size; folders, pipes, devices and files over `limit` bytes are refused unread."""
    try:
        # Without O_NONBLOCK, opening a pipe that nobody writes to would wait for ever.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise CheckpointError(f"{shown(path)}: there is no such file. Check the path.") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{shown(path)}: the file cannot be opened ({reason(error)}). Check the path."
        ) from error
    try:
        size = _checked_size(os.fstat(handle), path, limit)
        with os.fdopen(handle, "rb", closefd=False) as stream:
            yield stream, size
    except OSError as error:
        raise CheckpointError(
            f"{shown(path)}: the file cannot be read ({reason(error)}). Check the disk, or use a copy."
        ) from error
    finally:
        os.close(handle)


def _checked_size(status: os.stat_result, path: str | Path, limit: int) -> int:
    if stat.S_ISDIR(status.st_mode):
        raise CheckpointError(f"{shown(path)}: this is a folder; name one of its files.")
    if not stat.S_ISREG(status.st_mode):
        raise CheckpointError(f"{shown(path)}: this is a pipe or a device, not a file. Check the path.")
    if status.st_size > limit:
        raise CheckpointError(
            f"{shown(path)}: the file has {status.st_size:,} bytes, more than the {limit:,} that are read. "
            "It is not one that contextpool wrote; check the path."
        )
    return status.st_size


def write_text(path: Path, text: str) -> None:
    """Replace the file by this text."""
    with durable_file(path) as stream:
        stream.write(text.encode("utf-8"))


def read_json(path: Path) -> Any:
    """The value in the file, or a CheckpointError."""
    with regular_file(path, MAX_JSON_BYTES) as (stream, size):
        data = stream.read(size)
    return parse_json(data, shown(path))
