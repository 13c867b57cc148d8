"""Labels are shown, whatever they hold: nothing in them acts on the terminal."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from command_line import run

TITLE, CLEAR, TURN = "\x1b]0;owned\x07", "\x9b2J", "\u202e"
HEAD, RELATION, TAIL = f"ann{TITLE}", f"likes{CLEAR}", f"bob{TURN}"
ACTS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    rows = [(HEAD, RELATION, TAIL), (HEAD, RELATION, "eve"), ("joe", RELATION, TAIL), ("joe", "knows", HEAD)]
    Path("facts.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    Path("asked.tsv").write_text(f"joe\t{RELATION}\t?\n")
    return lambda *arguments: run(list(arguments), capsys, monkeypatch)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("ask", "facts.tsv", "--head", "joe", "-r", RELATION, "--all", "--known", "--explain"), 0),
        (("ask", "facts.tsv", "--head", f"jo{TITLE}", "-r", RELATION), 2),
        (("explain", "facts.tsv", "--head", "joe", "-r", RELATION, "--tail", "eve"), 0),
        (("check", "facts.tsv"), 0),
        (("mine", "facts.tsv"), 0),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_what_is_printed_for_people_holds_no_escape_sequence(
    cli: Any, command: tuple[str, ...], code: int
) -> None:
    printed = cli(*command)
    assert printed.code == code, printed.err
    assert not ACTS.search(printed.out + printed.err)


def test_json_says_the_same_label_in_its_own_escapes(cli: Any) -> None:
    printed = cli("ask", "facts.tsv", "--head", "joe", "-r", RELATION, "--known", "--json")
    assert not ACTS.search(printed.out)
    assert {answer["entity"] for answer in json.loads(printed.out)["answers"]} == {HEAD, "joe", TAIL, "eve"}


def test_rows_for_machines_are_written_out_on_a_terminal_only(
    cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("ask", "facts.tsv", "--questions", "asked.tsv", "--known")
    assert TAIL in cli(*command).out
    monkeypatch.setattr("contextpool.cli.output.on_terminal", lambda: True)
    assert not ACTS.search(cli(*command).out)
