"""The session of a new user with a file, on `world`: each command as typed, one after the other."""

from __future__ import annotations

import json
from pathlib import Path

import contextpool as cp
from contextpool.triples.files import write_triples
from learning_worlds import one_thread as one_thread

QUESTION = ("--head", "Belarus", "--relation", "currency")
CAPPED = ("--set", "model.dim=4", "--set", "model.layers=2", "--set", "train.epochs=1")


def test_from_a_file_to_answers_and_to_a_model_of_ones_own(
    cli, tmp_path: Path, monkeypatch, one_thread
) -> None:
    monkeypatch.chdir(tmp_path)
    write_triples(Path("mine.tsv"), cp.load_dataset("world").inference_graph)

    ran = cli("ask", "mine.tsv", *QUESTION)
    assert ran.code == 0, ran.err
    assert "Belarusian Ruble" in ran.out.splitlines()[4]  # the first of the table

    ran = cli("ask", "mine.tsv", "--head", "France", "--relation", "currency")
    assert ran.out.splitlines()[1] == "already in the graph: Euro"
    assert "none that I would bet on" in ran.out.splitlines()[2]
    ran = cli("ask", "mine.tsv", "--head", "France", "--relation", "currency", "--all", "-k", "2")
    assert "Swiss Franc" in ran.out.splitlines()[-3] + ran.out.splitlines()[-2]

    ran = cli("explain", "mine.tsv", *QUESTION, "--tail", "Belarusian Ruble")
    assert ran.code == 0, ran.err
    assert "because" in ran.out
    both = cli("ask", "mine.tsv", *QUESTION, "--explain")
    assert ran.out in both.out

    Path("claims.tsv").write_text("Belarus\tcurrency\tBelarusian Ruble\nBelarus\tcurrency\tEuro\n")
    ran = cli("check", "mine.tsv", "claims.tsv", "--evidence", "0", "--json")
    assert ran.code == 0, ran.err
    right, wrong = (claim["probability"] for claim in json.loads(ran.out)["claims"])
    assert right > wrong

    ran = cli("complete", "mine.tsv", "-o", "links.tsv", "-r", "currency", "--processes", "1")
    assert ran.code == 0, ran.err
    assert "Belarus\tcurrency\tBelarusian Ruble" in Path("links.tsv").read_text("utf-8")

    ran = cli("train", "mine.tsv", "--model", "nbfnet", "--context", *CAPPED, "-o", "runs/mine")
    assert ran.code == 0, ran.err
    ran = cli("ask", "mine.tsv", "--run", "runs/mine", *QUESTION, "--json")
    assert ran.code == 0, ran.err
    answered = json.loads(ran.out)
    assert answered["question"] == {"head": "Belarus", "relation": "currency", "tail": None}
    assert (answered["num_known"], len(answered["answers"])) == (0, 10)
