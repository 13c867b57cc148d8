"""A read-only installation, and a user without a home, can still compile."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from contextpool import _numba_cache
from contextpool._numba_cache import can_be_written, choose_cache_folder, private_folder

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="folders of users are private there")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.delitem(sys.modules, "numba", raising=False)


def test_numba_finds_its_own_place_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose_cache_folder(Path("/proc/version/package"), tmp_path / "not" / "yet")
    choose_cache_folder(tmp_path, Path("/proc/version/home"))
    assert "NUMBA_CACHE_DIR" not in os.environ
    monkeypatch.setenv("NUMBA_CACHE_DIR", "mine")
    monkeypatch.setattr(_numba_cache, "can_be_written", lambda folder: False)
    choose_cache_folder(tmp_path, tmp_path)
    assert os.environ["NUMBA_CACHE_DIR"] == "mine"


def test_without_one_it_is_a_folder_that_only_we_may_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_numba_cache, "can_be_written", lambda folder: False)
    choose_cache_folder(tmp_path, tmp_path)
    chosen = Path(os.environ["NUMBA_CACHE_DIR"])
    assert chosen.parent == tmp_path
    assert chosen.stat().st_mode & 0o077 == 0
    assert private_folder() == chosen  # found again by the next process
    assert can_be_written(chosen / "below")


@pytest.mark.parametrize("planted", ["open", "link", "file"])
def test_a_folder_that_somebody_planted_is_not_used(planted: str, tmp_path: Path) -> None:
    """What is read back from there would be run."""
    (tmp_path / "other").mkdir(mode=0o700)
    trap = tmp_path / f"contextpool-{os.getuid()}"
    if planted == "link":
        trap.symlink_to(tmp_path / "other")
    elif planted == "open":
        trap.mkdir()
        trap.chmod(0o777)
    else:
        trap.write_text("")
    chosen = private_folder()
    assert chosen != trap
    assert chosen.stat().st_mode & 0o077 == 0
