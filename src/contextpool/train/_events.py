"""An append-only log of JSON lines that a kill can at most leave with a torn last line."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from contextpool.errors import CheckpointError, CheckpointWriteError
from contextpool.train._files import is_there, reason, regular_file, shown
from contextpool.train._json import compact_json, parse_json

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
