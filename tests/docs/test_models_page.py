"""The tables of the page of models are what the committed lines say."""

from __future__ import annotations

import subprocess
import sys

from conftest import REPOSITORY


def test_the_tables_are_what_the_lines_say() -> None:
    check = [sys.executable, "scripts/models_table.py", "--check"]
    told = subprocess.run(check, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
