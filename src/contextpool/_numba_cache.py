"""Where numba keeps what it compiled in a read-only installation whose user has no home, either; else it would fail."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from pathlib import Path


def choose_cache_folder(package: Path, user_cache: Path) -> None:
    """Name a folder to numba where it can write neither beside the package nor in the user's own cache."""
    if os.environ.get("NUMBA_CACHE_DIR") or can_be_written(package) or can_be_written(user_cache):
        return
    os.environ["NUMBA_CACHE_DIR"] = str(private_folder())
    if "numba" in sys.modules:  # which has read the variable by now
        sys.modules["numba"].config.CACHE_DIR = os.environ["NUMBA_CACHE_DIR"]


def can_be_written(folder: Path) -> bool:
    """Whether the folder, or the nearest one above it that there is, takes files."""
    there = next((one for one in (folder, *folder.parents) if one.is_dir()), None)
    return there is not None and os.access(there, os.W_OK | os.X_OK)


def private_folder() -> Path:
    """A folder for temporary files that nobody else may write into: what numba reads back is code."""
    path = Path(tempfile.gettempdir()) / f"contextpool-{os.getuid()}"
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            return Path(tempfile.mkdtemp(prefix="contextpool-"))  # somebody else's: compiled anew every time
    return path


if sys.platform != "win32":
    choose_cache_folder(
        Path(__file__).parent,
        Path(os.environ.get("XDG_CACHE_HOME") or f"{os.environ.get('HOME', '/')}/.cache"),
    )
