"""One writer a run folder: a lock that the system takes back when its holder dies, however it dies."""

from __future__ import annotations

import fcntl
import os
import socket
import weakref
from pathlib import Path

from contextpool.errors import CheckpointWriteError
from contextpool.train._files import reason, shown

LOCK_NAME = ".lock"


class FolderLock:
    """Holds the folder from creation to `release`. The lock file stays; only the lock on it counts.

    `flock` belongs to the open file, so reading or copying the folder meanwhile does not give it up, as
    `lockf` would. It is shared with forked children, which therefore close their copy at once.
    """

    _handle: int | None = None

    def __init__(self, folder: Path) -> None:
        self._handle = _lock(folder)
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


def _lock(folder: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC  # a link could make us empty another file
    try:
        handle = os.open(folder / LOCK_NAME, flags, 0o644)
    except OSError as error:
        raise CheckpointWriteError(
            f"{shown(folder)}: the run folder cannot be written ({reason(error)}). Choose another folder."
        ) from error
    try:
        _claim(handle, folder)
    except BaseException:
        os.close(handle)
        raise
    return handle


def _claim(handle: int, folder: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
    except BlockingIOError:
        holder = os.pread(handle, 200, 0).decode("utf-8", errors="replace")
        raise CheckpointWriteError(
            f"{shown(folder)}: {_one_line(holder) or 'another process'} is training into this run folder. "
            "Wait for it, stop it, or choose another folder."
        ) from None
    except OSError as error:
        raise CheckpointWriteError(
            f"{shown(folder)}: the run folder cannot be locked ({reason(error)}). Choose a folder on another disk."
        ) from error


def _one_line(text: str) -> str:
    return "".join(letter for letter in text if letter.isprintable())
