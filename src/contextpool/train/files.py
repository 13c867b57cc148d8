"""Files of a run: written whole or not at all, opened so that nothing odd can stall the reader; strict JSON, an
append-only log, and a lock on a folder.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import math
import os
import socket
import stat
import weakref
from collections.abc import Iterator, Mapping
from io import BufferedReader
from pathlib import Path
from typing import IO, Any

from contextpool.errors import CheckpointError, CheckpointWriteError, shortened
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


def read_bytes(path: Path, limit: int = MAX_JSON_BYTES) -> bytes:
    """What the file holds, or a CheckpointError."""
    with regular_file(path, limit) as (stream, size):
        return stream.read(size)


def read_json(path: Path) -> Any:
    """The value in the file, or a CheckpointError."""
    return parse_json(read_bytes(path), shown(path))


# strict JSON: what is written reads back as the same value, here and in any other JSON reader

MOST_LEVELS = 50  # far below what the parser's recursion can take, so what was written can always be read
MOST_BITS = 4096  # random number generators keep integers of 128 bits; Python parses up to some 14,000
_ANY_PLAIN = "text, finite numbers, true, false, null, lists, and dictionaries with text as keys"


def compact_json(value: Any, where: str) -> str:
    """One line of ASCII, keys sorted. Tuples become lists; whatever JSON cannot hold is refused by place."""
    _check_plain(value, where, MOST_LEVELS)
    return json.dumps(value, sort_keys=True, allow_nan=False, separators=(",", ":"))


def readable_json(value: Any, where: str) -> str:
    """The same, indented and with the letters of every script as they are."""
    _check_plain(value, where, MOST_LEVELS)
    return json.dumps(value, sort_keys=True, allow_nan=False, indent=2, ensure_ascii=False) + "\n"


_OF_THE_DAY = frozenset({"machine", "seconds"})


def json_digest(value: Any, where: str) -> str:
    """sha256 over what a value says, without the machine and the time: the same for equal trainings."""
    return hashlib.sha256(compact_json(_lasting(value), where).encode()).hexdigest()


def _lasting(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _lasting(item) for key, item in value.items() if key not in _OF_THE_DAY}
    return [_lasting(item) for item in value] if isinstance(value, list | tuple) else value


def parse_json(data: bytes | str, where: str) -> Any:
    """The value, or a CheckpointError: not UTF-8, not JSON, a key twice, NaN, a thousand levels, huge numbers."""
    try:
        text = data.decode("utf-8") if isinstance(data, bytes) else data
        return json.loads(
            text, object_pairs_hook=_without_duplicates, parse_float=_finite, parse_constant=_finite
        )
    except RecursionError:
        raise CheckpointError(f"{where}: the JSON is nested too deeply. It is damaged; use a copy.") from None
    except ValueError as error:  # includes JSONDecodeError and UnicodeDecodeError
        why = shortened(str(error), 160)
        raise CheckpointError(f"{where}: this is not JSON ({why}). It is damaged; use a copy.") from None


def check_shape(value: Any, shape: Any, where: str) -> None:
    """Refuse JSON of another shape than was written.

    A shape is a type, None, a tuple of shapes of which one has to fit, [shape] for a list of such, or {key: shape} for
    a table that may hold more; a key that ends in `?` may be missing.
    """
    if not _has_shape(value, shape):
        raise CheckpointError(
            f"{where} is {shortened(str(value))}, which is not what is written there. It is damaged; use a copy."
        )
    if isinstance(shape, dict):
        for key, inner in shape.items():
            name = key.removesuffix("?")
            if name in value:
                check_shape(value[name], inner, f"{where}: {name}")
            elif name == key:
                raise CheckpointError(f"{where}: {name} is missing. It is damaged; use a copy.")
    elif isinstance(shape, list):
        for place, item in enumerate(value):
            check_shape(item, shape[0], f"{where}[{place}]")


def _has_shape(value: Any, shape: Any) -> bool:
    """Whether the value itself fits, its parts aside."""
    if isinstance(shape, tuple):
        return any(_has_shape(value, one) for one in shape)
    if shape is None or isinstance(shape, dict | list):
        return value is None if shape is None else isinstance(value, type(shape))
    if shape is float:
        return type(value) in (int, float)
    return type(value) is shape


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        raise ValueError("a key occurs twice")
    return result


def _finite(spelling: str) -> float:
    number = float(spelling)
    if not math.isfinite(number):
        raise ValueError(f"{shortened(spelling)} is no finite number")
    return number


def _check_plain(value: Any, where: str, levels: int) -> None:
    problem = _problem_of(value, levels)
    if problem:
        raise CheckpointError(f"{where} {problem}. It can hold {_ANY_PLAIN}.")
    if isinstance(value, dict):
        for key, item in value.items():
            _check_plain(item, f"{where}[{shortened(key)}]", levels - 1)
    elif isinstance(value, list | tuple):
        for position, item in enumerate(value):
            _check_plain(item, f"{where}[{position}]", levels - 1)


def _problem_of(value: Any, levels: int) -> str:
    """What keeps this one value, its parts aside, from being JSON; empty if nothing does."""
    if levels < 0:
        return f"is nested more than {MOST_LEVELS} levels deep"
    if isinstance(value, dict):
        odd = [key for key in value if not isinstance(key, str) or not is_text(key)]
        return f"has the key {shortened(str(odd[0]))}, which is not text" if odd else ""
    if isinstance(value, str):
        return "" if is_text(value) else "holds half of a surrogate pair"
    if isinstance(value, float):
        return "" if math.isfinite(value) else f"is {value}"
    if isinstance(value, int):
        return "" if value.bit_length() <= MOST_BITS else f"is a number of more than {MOST_BITS:,} bits"
    return "" if value is None or isinstance(value, list | tuple) else f"is a {type(value).__name__}"


def is_text(value: str) -> bool:
    """Whether UTF-8 can hold it: halves of surrogate pairs cannot be written, nor read by others."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


# a log of JSON lines

MAX_LINE_BYTES = 1 << 20
MAX_LOG_BYTES = 1 << 36
_SCAN_BYTES = 1 << 16


def append_event(path: Path, event: Mapping[str, Any]) -> None:
    """Add one line; once this returns, it survives the death of this process.

    A torn last line is cut off first, and the log says so: an event named `torn_line_removed`.
    """
    line = compact_json(dict(event), f"{shown(path)}: the event").encode("ascii") + b"\n"
    if len(line) > MAX_LINE_BYTES:
        raise CheckpointError(
            f"{shown(path)}: the event takes {len(line):,} bytes, more than {MAX_LINE_BYTES:,}. Log less at once."
        )
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            _write_all(handle, _repaired(handle) + line)
        finally:
            os.close(handle)
    except OSError as error:
        raise CheckpointWriteError(
            f"{shown(path)}: the event cannot be written ({reason(error)}). Earlier events are untouched. "
            "Make room, then run it again."
        ) from error


def read_events(path: Path) -> Iterator[dict[str, Any]]:
    """The events in order. A last line without its end is still being written, or torn: it is left out."""
    if not is_there(path):
        return
    with regular_file(path, MAX_LOG_BYTES) as (stream, _):
        for number, line in enumerate(iter(lambda: stream.readline(MAX_LINE_BYTES), b""), start=1):
            if line.endswith(b"\n"):
                yield _parse_event(line, f"{shown(path)}:{number}")
            elif len(line) == MAX_LINE_BYTES:
                raise CheckpointError(
                    f"{shown(path)}:{number}: the line has more than {MAX_LINE_BYTES:,} bytes. The log is damaged."
                )


def _parse_event(line: bytes, where: str) -> dict[str, Any]:
    event = parse_json(line, where)
    if not isinstance(event, dict):
        raise CheckpointError(f"{where}: the line is no JSON object. The log is damaged; use a copy.")
    return event


def _repaired(handle: int) -> bytes:
    """Cut a torn last line off; returns the line that says so, or nothing."""
    size = os.fstat(handle).st_size
    keep = _end_of_last_line(handle, size)
    if keep == size:
        return b""
    os.ftruncate(handle, keep)
    return compact_json({"event": "torn_line_removed", "bytes": size - keep}, "event").encode("ascii") + b"\n"


def _end_of_last_line(handle: int, size: int) -> int:
    """Where the last complete line ends. Reads backwards; one block if nothing is torn."""
    end = size
    while end > 0:
        start = max(0, end - _SCAN_BYTES)
        found = os.pread(handle, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def _write_all(handle: int, data: bytes) -> None:
    while data:
        data = data[os.write(handle, data) :]


# one writer a folder

LOCK_NAME = ".lock"


class FolderLock:
    """Holds the folder from creation to `release`. The lock file stays; only the lock on it counts.

    `flock` belongs to the open file, so reading or copying the folder meanwhile does not give it up, as
    `lockf` would. It is shared with forked children, which therefore close their copy at once.
    """

    _handle: int | None = None

    def __init__(self, folder: Path, doing: str = "training into this run folder") -> None:
        """`doing` is what others are told of who holds it."""
        self._handle = _lock(folder, doing)
        _held.add(self)

    def __del__(self) -> None:
        """Whoever forgets to release still gives the folder back."""
        self.release()

    def release(self) -> None:
        """Let others write; safe to call twice."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    @property
    def is_held(self) -> bool:
        """Whether this process may write."""
        return self._handle is not None


_held: weakref.WeakSet[FolderLock] = weakref.WeakSet()


def _release_all() -> None:
    for lock in list(_held):
        lock.release()


os.register_at_fork(after_in_child=_release_all)


def _lock(folder: Path, doing: str) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC  # a link could make us empty another file
    try:
        handle = os.open(folder / LOCK_NAME, flags, 0o644)
    except OSError as error:
        raise CheckpointWriteError(
            f"{shown(folder)}: the folder cannot be written ({reason(error)}). Choose another folder."
        ) from error
    try:
        _claim(handle, folder, doing)
    except BaseException:
        os.close(handle)
        raise
    return handle


def _claim(handle: int, folder: Path, doing: str) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
    except BlockingIOError:
        holder = os.pread(handle, 200, 0).decode("utf-8", errors="replace")
        raise CheckpointWriteError(
            f"{shown(folder)}: {_one_line(holder) or 'another process'} is {doing}. "
            "Wait for it, stop it, or choose another folder."
        ) from None
    except OSError as error:
        raise CheckpointWriteError(
            f"{shown(folder)}: the folder cannot be locked ({reason(error)}). Choose a folder on another disk."
        ) from error


def _one_line(text: str) -> str:
    return "".join(letter for letter in text if letter.isprintable())
