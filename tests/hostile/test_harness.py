"""The harness can tell: what is not allowed is found, and what is allowed passes."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from hostile.harness import MOST_SECONDS, Tally, fork_server, problem_of
from hostile.mutants import mutated_bytes, mutated_json

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits and /proc as on Linux")


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("x = bytearray(900_000_000)\nx[::4096] = b'1' * len(x[::4096])", "memory"),
        ("import time\nwhile True: pass", "hang"),
        ("import os\nos.abort()", "crash: SIGABRT"),
        ("1 / 0", "traceback: ZeroDivisionError"),
        ("import sys\nsys.exit(2)", "no clear error"),
        ("import os\nos.system('true')", "outside: os.system"),
        ("open('outside', 'w')", "outside: open"),
        ("import socket\nsocket.socket().bind(('127.0.0.1', 0))", "outside: socket.bind"),
        ("import pickle\npickle.loads(b'cos\\ngetcwd\\n(tR.')", "outside: pickle.find_class"),
    ],
)
def test_what_is_not_allowed_is_found(code: str, problem: str) -> None:
    seconds = 1.0 if problem == "hang" else MOST_SECONDS  # a busy machine fills memory slowly
    assert problem_of(fork_server().run_python(code, seconds=seconds)).startswith(problem)


def test_what_is_allowed_passes(tmp_path: Path) -> None:
    server = fork_server()
    assert problem_of(server.run(["--version"])) == ""
    refused = server.run(["mine", tmp_path / "nothing.tsv", "--relation", "r"])
    assert (refused.code, problem_of(refused)) == (2, "")
    written = server.run_python(f"open({str(tmp_path / 'x')!r}, 'w').close()", target=tmp_path)
    assert (written.code, problem_of(written), (tmp_path / "x").exists()) == (0, "", True)


def test_another_answer_is_a_silent_difference() -> None:
    outcome = fork_server().run_python("print(1)")
    assert (problem_of(outcome, "1\n"), problem_of(outcome, "2\n")) == ("", "silent difference")
    tally = Tally("control")
    tally.add("seed 1", outcome, "2\n")
    with pytest.raises(AssertionError, match="seed 1: silent difference"):
        tally.check()


def test_mutants_are_the_same_for_the_same_seed_and_seldom_the_original() -> None:
    content, value = bytes(range(256)), {"a": [1, {"b": "c"}], "d": None}
    for seed in range(50):
        pairs = [
            (mutated_bytes(content, rng), mutated_json(value, rng))
            for rng in map(random.Random, (seed, seed))
        ]
        assert pairs[0] == pairs[1]
    assert value == {"a": [1, {"b": "c"}], "d": None}
    assert sum(mutated_json(value, random.Random(seed)) == value for seed in range(100)) < 20
