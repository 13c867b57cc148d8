"""Names that differ by spaces in one place and by case in another: what is told to type mends both."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from command_line import run

FACTS = [(f"person{n}", "knows", f"person{7 * n % 30}") for n in range(30)]
SPACES, CASE = ("person1 ", "knows", "person2"), ("PERSON1", "knows", "person3")
RELATION = ("person1", "Knows", "person3")
MERGED = {*FACTS, ("person1", "knows", "person2"), ("person1", "knows", "person3")}


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (
            [SPACES, CASE],
            ["'person1 ' differ by spaces only, and are two entities; 'person1' and 'PERSON1' differ"],
        ),
        ([SPACES, RELATION], ["'person1 ' differ by spaces only", "'knows' and 'Knows' differ by case only"]),
        (
            [("person1 ", "knows", "person2"), ("person1", "knows\u00a0", "person3")],
            ["'person1 ' differ", "'knows'"],
        ),
    ],
    ids=["of entities", "of entities and relations", "by spaces alone"],
)
def test_names_that_differ_by_spaces_and_by_case_are_mended_at_once(
    rows: list[tuple[str, str, str]],
    told: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("f.tsv").write_text("".join("\t".join(row) + "\n" for row in [*FACTS, *rows]))
    ran = run(["data", "convert", "f.tsv", "read.tsv"], capsys, monkeypatch)
    warned = [line for line in ran.err.splitlines() if "warning" in line]
    assert len(warned) == len(told)
    assert all(part in line for part, line in zip(told, warned, strict=True))
    (typed,) = {shlex.split(line.rpartition("type ")[2])[0] for line in warned}
    assert typed == ("f.tsv?merge=case" if "case only" in ran.err else "f.tsv?merge=spaces")
    ran = run(["data", "convert", typed, "read.tsv", "--overwrite"], capsys, monkeypatch)
    assert ran.code == 0
    assert "warning" not in ran.err
    assert {tuple(line.split("\t")) for line in Path("read.tsv").read_text().splitlines()} == MERGED
