"""Whatever writes: a full disk or a place that cannot be written is one clear error, and no traceback."""

from __future__ import annotations

import sys
from functools import reduce
from pathlib import Path

import pytest

from golden.make import HERE as GOLDEN
from hostile.harness import fork_server, problem_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits and /proc as on Linux")

QUESTION = ["--head", "Aalborg", "--relation", "near"]
RUN = ["--run", str(GOLDEN / "nbfnet")]
WRITERS = {
    "convert": ["data", "convert", "world", "{}"],
    "convert to tsv": ["data", "convert", "{facts}", "{}.tsv"],
    "convert to gz": ["data", "convert", "{facts}", "{}.tsv.gz"],
    "convert to zst": ["data", "convert", "{facts}", "{}.tsv.zst"],
    "convert to parquet": ["data", "convert", "{facts}", "{}.parquet"],
    "split": ["data", "split", "{facts}", "{}"],
    "map": ["data", "map", "{facts}", "--output", "{}"],
    "explain": ["explain", "world", *QUESTION, "--tail", "Gothenburg", *RUN, "--output", "{}.svg"],
    "questions": ["ask", "world", "--questions", "{questions}", *RUN, "--output", "{}"],
    "complete": ["complete", "world", *RUN, "--relation", "near", "--top", "50", "--output", "{}.tsv"],
    "check": ["check", "world", "{claims}", *RUN, "--output", "{}.tsv"],
    "export": ["export", str(GOLDEN / "nbfnet"), "{}", "--no-evaluate"],
    "train": ["train", "world", "--model", "walk", "--output", "{}"],
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "facts.tsv").write_text(
        "".join(f"e{number}\tr{number % 3}\te{number // 2}\n" for number in range(3000))
    )
    (folder / "questions.tsv").write_text("Aalborg\tnear\n" * 50)
    (folder / "claims.tsv").write_text("Aalborg\tnear\tGothenburg\n" * 50)
    return {name: str(folder / f"{name}.tsv") for name in ("facts", "questions", "claims")}


def arguments(name: str, target: Path, inputs: dict[str, str]) -> list[str]:
    places = {f"{{{key}}}": value for key, value in inputs.items()} | {"{}": str(target)}
    return [reduce(lambda text, one: text.replace(*one), places.items(), word) for word in WRITERS[name]]


@pytest.mark.parametrize("name", WRITERS)
def test_a_place_that_cannot_be_written_is_one_clear_error(
    name: str, inputs: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    outcome = fork_server().run(arguments(name, tmp_path / "file" / "below", inputs), target=tmp_path)
    assert problem_of(outcome) == "", outcome.err
    assert outcome.code in (1, 2)
    assert (tmp_path / "file").read_text() == "in the way"


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_is_one_clear_error(name: str, inputs: dict[str, str], tmp_path: Path) -> None:
    size = 600 if name == "train" else 2000
    code = (
        "import resource, sys\nfrom contextpool.__main__ import main\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))\n"  # as on a disk of so many bytes
        f"sys.argv = ['contextpool', *{arguments(name, tmp_path / 'out', inputs)!r}]\nmain()"
    )
    outcome = fork_server().run_python(code, target=tmp_path)
    assert problem_of(outcome) == "", outcome.err
    assert outcome.code in (1, 2), outcome.err


def test_output_that_cannot_be_written_is_one_clear_error() -> None:
    code = (
        "import os, sys\nfrom contextpool.__main__ import main\n"
        "os.dup2(os.open('/dev/full', os.O_WRONLY), 1)\nsys.argv = ['contextpool', 'data', 'ls']\nmain()"
    )
    outcome = fork_server().run_python(code, target="/dev/full")
    assert problem_of(outcome) == "", outcome.err
    assert (outcome.code, "No space left on device" in outcome.err) == (1, True)
