"""A file of JSON lines that only grows, and that a kill can at most leave with a half-written last line."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from contextpool.errors import CheckpointWriteError, DataError

Line = dict[str, Any]


def read_lines(path: str | Path) -> list[Line]:
    """Every line of the file, in order; a half-written last one is left out, other damage is an error by its line."""
    path = Path(path)
    if not path.exists():
        return []
    data = path.read_bytes()
    return _parsed(data[: _whole(data)], path)


def _parsed(data: bytes, path: Path) -> list[Line]:
    lines = []
    for number, text in enumerate(data.split(b"\n"), start=1):
        if text.strip():
            line = _object(text)
            if line is None:
                raise DataError(
                    f"{path}:{number}: the line is not a JSON object. Only the last line of the file can be "
                    "half-written; take this one from a copy, or delete it to have it made again."
                )
            lines.append(line)
    return lines


def _object(text: bytes) -> Line | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _whole(data: bytes) -> int:
    """Bytes up to the end of the last whole line. Complete but for its newline is whole; half a line is not."""
    start = data.rstrip(b"\n").rfind(b"\n") + 1
    last = data[start:].strip()
    return len(data) if not last or _object(last) is not None else start


class LineFile:
    """The file, open for appending by this process alone. A context manager."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.repaired: str | None = None
        """What was cut off when the file was opened, as one sentence; None where nothing was."""
        self._handle = self._open()
        try:
            self.lines = self._repair()
        except BaseException:
            self.close()
            raise

    def _open(self) -> int:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise CheckpointWriteError(
                f"{self.path}: cannot be written ({error.strerror}). Choose another file."
            ) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            raise CheckpointWriteError(
                f"{self.path}: another process is adding lines to this file. Wait for it, or choose another file."
            ) from None
        return handle

    def _repair(self) -> list[Line]:
        """The whole lines. What is left of a half-written one is cut off, a missing last newline added."""
        data = self.path.read_bytes()
        whole = _whole(data)
        lines = _parsed(data[:whole], self.path)
        if whole < len(data):
            os.ftruncate(self._handle, whole)
            self.repaired = (
                f"{self.path}: the last line was half-written; cut off its {len(data) - whole:,} bytes."
            )
        elif data and not data.endswith(b"\n"):
            self._write(b"\n")
        return lines

    def append(self, line: Mapping[str, Any]) -> None:
        """Add one line; once this returns it is on the disk."""
        try:
            text = json.dumps(dict(line), ensure_ascii=False, allow_nan=False)
        except ValueError as error:
            raise DataError(
                f"{self.path}: a line with a figure that is not finite is refused: {line}."
            ) from error
        self._write(text.encode("utf-8") + b"\n")
        self.lines.append(json.loads(text))

    def _write(self, data: bytes) -> None:
        try:
            while data:
                data = data[os.write(self._handle, data) :]
            os.fsync(self._handle)
        except OSError as error:
            raise CheckpointWriteError(
                f"{self.path}: a line cannot be written ({error.strerror}). Those before are whole. Make room, "
                "then run it again."
            ) from error

    def close(self) -> None:
        """Let others append; safe to call twice."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def __enter__(self) -> LineFile:
        """Itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()
