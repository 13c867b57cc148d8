"""Install a wheel into an empty environment and let it tell its whole story there, away from the repository.

python scripts/wheel_test.py dist/contextpool-0.1.0-py3-none-any.whl --constraints constraints.txt
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

NEEDED = (
    "contextpool/py.typed",
    "contextpool/recipes/",
    "contextpool/triples/world/",
    "contextpool/serve/",
)
"""Without one of these an installed package would fail where a checkout does not."""


def missing_from(wheel: Path) -> list[str]:
    """What the wheel should hold and does not, and what it holds and should not."""
    names = zipfile.ZipFile(wheel).namelist()
    lacking = [part for part in NEEDED if not any(name.startswith(part) for name in names)]
    return lacking + [
        name for name in names if name.startswith(("tests/", "examples/", "benchmarks/", "lab/", "results/"))
    ]


def environment() -> dict[str, str]:
    """That of this process, less what could lead back to the repository."""
    led_back = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "MAKEFLAGS", "MFLAGS", "MAKELEVEL")
    return {name: value for name, value in os.environ.items() if name not in led_back}


def run(arguments: list[str | Path], folder: Path) -> str:
    """Run in `folder`, show what it prints if it fails, and give it back."""
    done = subprocess.run(
        arguments, cwd=folder, env=environment(), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, arguments))} failed ({done.returncode}):\n{done.stdout}{done.stderr}")
    return done.stdout


def try_wheel(wheel: Path, constraints: Path | None) -> None:
    """A new environment, the wheel in it, `contextpool demo` beside nothing else."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="contextpool-wheel-") as name:
        folder = Path(name)
        run([sys.executable, "-m", "venv", "venv"], folder)
        binaries = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
        pinned: list[str | Path] = [] if constraints is None else ["-c", constraints.resolve()]
        quiet = ["--quiet", "--disable-pip-version-check", "--no-compile"]
        run([binaries / "python", "-m", "pip", "install", *quiet, *pinned, wheel.resolve()], folder)
        place = run([binaries / "python", "-c", "import contextpool; print(contextpool.__file__)"], folder)
        if not Path(place.strip()).is_relative_to(folder.resolve()):
            sys.exit(f"the environment imports {place.strip()}, which is not the wheel's")
        installed = time.monotonic()
        told = run([binaries / "contextpool", "demo"], folder)
        if "because" not in told or not (folder / "runs" / "demo" / "model.safetensors").is_file():
            sys.exit(f"the demo explained nothing, or left no run:\n{told}")
    spent = time.monotonic()
    print(f"{wheel.name}: installed in {installed - began:.0f} s, demo in {spent - installed:.0f} s")


def main() -> None:
    """Check the wheel's content, then try it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--constraints", type=Path)
    chosen = parser.parse_args()
    wrong = missing_from(chosen.wheel)
    if wrong:
        sys.exit(f"{chosen.wheel}: lacks or should not hold {', '.join(wrong)}")
    try_wheel(chosen.wheel, chosen.constraints)


if __name__ == "__main__":
    main()
