"""ask, explain and export on the command line: what they print, and bad questions as one message with code 2."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from contextpool.cli.inputs import tell_calibration
from contextpool.graph.graph import Graph
from contextpool.interop.export import verify
from contextpool.predict import Predictor
from contextpool.triples.files import write_triples
from learning_worlds import families, new_model
from learning_worlds import one_thread as one_thread
from world_model import world_run as world_run

BELARUS = ["--head", "Belarus", "--relation", "currency"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = {
        "names.tsv": "Belarus\tБеларусь\nEuro\tthe money\nBelarusian Ruble\tthe money\ncurrency\tpays with\n",
        "list.txt": "Euro\nRussian Ruble\n",
        "strangers.txt": "Euro\nEurro\nDollarr\n",
        "empty.txt": "",
        "questions.tsv": "Belarus\tcurrency\n?\tlocated_in\tBelarus\nMinsk\t?\tBelarus\n",
        "bad.tsv": "Belarus\tcurrency\nBelarrus\tcurrency\nMinsk\tis in\n",
        "torn.jsonl": '{"head": "Belarus", "relation": "currency"}\n{"head": \n',
        "broken.tsv": "a\tr\n",
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content, "utf-8")
    write_triples(tmp_path / "odd.tsv", [("a", "borders", "b"), ("b", "likes", "c"), ("c", "bordrs", "a")])
    return tmp_path


def test_tails_heads_and_relations_are_answered(cli, world_run):
    ran = cli("ask", "world", "--run", str(world_run), *BELARUS, "-k", "3")
    assert ran.code == 0
    assert "(Belarus, currency, ?)" in ran.out
    assert "Belarusian Ruble" in ran.out
    header = next(line for line in ran.out.splitlines() if "probability" in line)
    assert header.replace("|", "┃").split("┃")[-2].strip() == "score"  # no column that is empty
    assert "using the inference graph of world" in ran.err
    heads = json.loads(
        cli(
            "ask",
            "world",
            "--run",
            str(world_run),
            "--relation",
            "capital",
            "--tail",
            "Baku",
            "--known",
            "-k",
            "10",
            "--json",
        ).out
    )
    assert (heads["known"], heads["num_known"]) == (["Azerbaijan"], 1)
    heads = heads["answers"]
    assert len(heads) == 10
    assert {"entity", "score", "probability", "share", "known"} == set(heads[0])
    assert any(answer["entity"] == "Azerbaijan" and answer["known"] for answer in heads)
    relations = json.loads(
        cli(
            "ask",
            "world",
            "--run",
            str(world_run),
            "--head",
            "Minsk",
            "--tail",
            "Belarus",
            "-k",
            "2",
            "--json",
        ).out
    )
    assert relations["answers"][0]["relation"] == "located_in"


def test_a_run_without_a_calibration_says_why_there_are_no_probabilities(capsys):
    graph = Graph.from_triples(families(2))
    tell_calibration(Predictor(new_model("walk", graph, None), graph.relation_vocabulary, None, None), graph)
    assert "no probabilities: the run has no calibration" in " ".join(capsys.readouterr().err.split())


def test_candidates_are_restricted(cli, world_run, folder):
    listed = json.loads(
        cli(
            "ask",
            "world",
            "--run",
            str(world_run),
            *BELARUS,
            "--candidates",
            str(folder / "list.txt"),
            "--json",
        ).out
    )
    assert {answer["entity"] for answer in listed["answers"]} == {"Euro", "Russian Ruble"}
    capitals = json.loads(
        cli(
            "ask",
            "world",
            "--run",
            str(world_run),
            "--head",
            "Minsk",
            "-r",
            "near",
            "--having",
            "capital^-1",
            "--json",
        ).out
    )
    assert {"Vilnius", "Kyiv"} & {answer["entity"] for answer in capitals["answers"]}


def test_names_go_in_and_out(cli, world_run, folder):
    names = ["--labels", str(folder / "names.tsv")]
    ran = cli(
        "ask", "world", "--run", str(world_run), "--head", "Беларусь", "-r", "pays with", "-k", "2", *names
    )
    assert ran.code == 0
    assert "the money" in ran.out
    assert "Belarusian Ruble" in ran.out
    ran = cli(
        "explain",
        "world",
        "--run",
        str(world_run),
        "--head",
        "Беларусь",
        "-r",
        "pays with",
        "--tail",
        "Belarusian Ruble",
        *names,
    )
    assert "(Беларусь, pays with, ?)  the money" in ran.out


def test_explain_as_text_json_and_picture(cli, world_run, tmp_path):
    pytest.importorskip("matplotlib", reason="the plot extra is not installed")
    asked = ["explain", "world", "--run", str(world_run), *BELARUS, "--tail", "Belarusian Ruble"]
    ran = cli(*asked)
    assert ran.code == 0
    for words in ("because", "context", "pooling", "rival", "pays_in"):
        assert words in ran.out
    ran = cli(*asked, "--json", "--output", str(tmp_path / "x.svg"), "--paths", "2")
    assert len(json.loads(ran.out)["paths"]) == 2
    assert (tmp_path / "x.svg").read_bytes().startswith(b"<?xml")
    ran = cli(*asked, "--asked", "head", "--json")
    assert json.loads(ran.out)["answer"] == "Belarus"


def test_a_file_of_questions_is_answered_to_a_folder_and_again(cli, world_run, folder):
    asked = ["ask", "world", "--run", str(world_run), "--questions", str(folder / "questions.tsv"), "-k", "2"]
    out = str(folder / "answers")
    first = json.loads(cli(*asked, "-o", out, "--format", "parquet", "--shard-size", "2", "--json").out)
    assert (first["questions"], first["answered_now"], len(first["files"])) == (3, 3, 2)
    again = json.loads(cli(*asked, "-o", out, "--format", "parquet", "--shard-size", "2", "--json").out)
    assert again["answered_now"] == 0
    rows = pq.read_table(out).to_pylist()
    streamed = [line.split("\t") for line in cli(*asked).out.splitlines()]
    assert [(str(row["question"]), row["answer"]) for row in rows] == [(row[0], row[5]) for row in streamed]
    lines = [json.loads(line) for line in cli(*asked, "--format", "jsonl").out.splitlines()]
    assert [line["question"] for line in lines] == [1, 2, 3]
    ran = cli(*asked, "-o", str(folder / "more"))
    assert ran.out == ""
    assert "answered 3 questions" in ran.err


def test_unknown_relations_and_names_may_be_skipped_and_are_counted(cli, world_run, folder):
    ran = cli(
        "ask",
        str(folder / "odd.tsv"),
        "--run",
        str(world_run),
        "--head",
        "a",
        "-r",
        "borders",
        "--on-unknown",
        "skip",
    )
    assert ran.code == 0
    assert "left out 2 of 3 facts" in ran.err
    ran = cli(
        "ask",
        "world",
        "--run",
        str(world_run),
        "--questions",
        str(folder / "bad.tsv"),
        "--on-unknown",
        "skip",
        "-k",
        "1",
    )
    assert ran.code == 0
    assert "closest 'Belarus'" in ran.out
    assert len(ran.out.splitlines()) == 3


def test_export_writes_what_can_be_loaded(cli, world_run, tmp_path):
    ran = cli("export", str(world_run), str(tmp_path / "export"), "--license", "mit", "--json")
    assert ran.code == 0
    assert verify(tmp_path / "export") == []
    assert "README.md" in json.loads(ran.out)["files"]
    assert cli("ask", "world", "--run", str(tmp_path / "export"), *BELARUS, "-k", "1").code == 0


QUESTION = ["ask", "world", "--run", "{run}"]
LONG = "x" * 10**6
BAD_CALLS = [
    ([*QUESTION, "--head", "Belarrus", "-r", "currency"], "entity 'Belarrus' is unknown (689 known, closest 'Belarus'"),
    ([*QUESTION, "--head", "Belarus", "-r", "curency"], "closest 'currency'"),
    ([*QUESTION, "--head", "Belarrus", "-r", "curency"], "2 names cannot be used"),
    ([*QUESTION, "--head", "currency", "-r", "borders"], "(689 known). It is a relation."),
    ([*QUESTION, "--head", "Belarus", "-r", "Euro"], "It is an entity."),
    (["world", "ask", *BELARUS], "the verb comes first. Type: contextpool ask world --head Belarus"),
    (["ask", "world", "Belarus", "currency", "-k", "3"],
     "after the graph come options. Type: contextpool ask world --head Belarus --relation currency -k 3"),
    (["ask", "world", "Belarus", "currency", "Euro", "more"], "ask takes one graph, and 'Belarus' is one word more"),
    ([*QUESTION, "--head", "", "-r", "currency"], "entity '' is unknown"),
    ([*QUESTION, "--head", "Belarus", "-r", ""], "relation '' is unknown"),
    ([*QUESTION, "--head", LONG, "-r", "currency"], "1,000,000 characters"),
    ([*QUESTION, "--head", "Belarus", "-r", LONG], "1,000,000 characters"),
    ([*QUESTION, "--head", "\x1b[31m\n", "-r", "currency"], "is unknown"),
    ([*QUESTION, *BELARUS, "-k", "0"], "-k is 0"),
    ([*QUESTION, *BELARUS, "-k", "-1"], "-k is -1"),
    ([*QUESTION, *BELARUS, "-k", "1000000000"], "-k is 1000000000"),
    ([*QUESTION], "gives nothing"),
    ([*QUESTION, "--head", "Belarus"], "gives head"),
    ([*QUESTION, *BELARUS, "--tail", "Euro"], "gives head and relation and tail"),
    ([*QUESTION, *BELARUS, "--candidates", "{folder}/strangers.txt"], "2 names cannot be used: candidates: entity"),
    ([*QUESTION, *BELARUS, "--candidates", "{folder}/empty.txt"], "names nothing"),
    ([*QUESTION, *BELARUS, "--candidates", "{folder}/nowhere.txt"], "nowhere.txt"),
    ([*QUESTION, *BELARUS, "--having", "kapital"], "having: relation 'kapital' is unknown"),
    ([*QUESTION, *BELARUS, "--having", "capital", "--having", "observes"], "no candidate is left"),
    ([*QUESTION, *BELARUS, "--labels", "{folder}/list.txt"], "list.txt:1: 1 columns instead of 2"),
    ([*QUESTION, "--head", "the money", "-r", "x", "--labels", "{folder}/names.tsv"], "mean 'Belarusian Ruble'"),
    ([*QUESTION, "--questions", "{folder}/bad.tsv"], "bad.tsv:2: entity 'Belarrus'"),
    ([*QUESTION, "--questions", "{folder}/bad.tsv", "-o", "{folder}/out"], "bad.tsv:3: relation 'is in'"),
    ([*QUESTION, "--questions", "{folder}/torn.jsonl"], "torn.jsonl:2: this is no JSON object"),
    ([*QUESTION, "--questions", "{folder}/nowhere.tsv"], "nowhere.tsv: there is no such file"),
    ([*QUESTION, "--questions", "{folder}/questions.csv"], "not .csv"),
    ([*QUESTION, "--questions", "{folder}/questions.tsv", "--head", "Belarus"], "leave out --head"),
    ([*QUESTION, "--questions", "{folder}/questions.tsv", "--shard-size", "0"], "--shard-size is 0"),
    ([*QUESTION, "--questions", "{folder}/questions.tsv", "--format", "parquet"], "Parquet goes into files"),
    ([*QUESTION, "--questions", "{folder}/questions.tsv", "-o", "{folder}/list.txt"], "is a file"),
    ([*QUESTION, "--questions", "{folder}/questions.tsv", "-o", "{folder}"], "holds other files"),
    (["ask", "{folder}/odd.tsv", "--run", "{run}", "--head", "a", "-r", "borders"], "15 known, closest 'borders'"),
    (["ask", "{folder}/broken.tsv", "--run", "{run}", *BELARUS], "broken.tsv:1: 2 columns"),
    (["ask", "world", "--run", "{folder}", *BELARUS], "this is no run folder"),
    (["ask", "world", "--run", "{folder}/nowhere", *BELARUS], "nowhere"),
    (["ask", "wrld", "--run", "{run}", *BELARUS], "wrld"),
    (["explain", "world", "--run", "{run}", *BELARUS, "--tail", "Euroo"], "closest 'Euro'"),
    (["explain", "world", "--run", "{run}", "--head", "x", "-r", "y", "--tail", "z"], "3 names cannot be used"),
    (["explain", "world", "--run", "{run}", *BELARUS, "--tail", "Euro", "--paths", "0"], "--paths is 0"),
    (["explain", "world", "--run", "{run}", *BELARUS, "--tail", "Euro", "-o", "{folder}/x.pdf"], "not '.pdf'"),
    (["export", "{folder}", "{run}-export"], "this is no run folder"),
    (["export", "{run}", "{folder}", "--no-evaluate"], "holds other files"),
    (["export", "{run}", "{folder}/out", "--license", "my own"], "license is 'my own'"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "words"), BAD_CALLS)
def test_bad_input_is_one_message_that_names_it_and_code_2(cli, world_run, folder, arguments, words):
    before = sorted(path.name for path in folder.iterdir())
    names = {"run": str(world_run), "folder": str(folder)}
    ran = cli(*(argument.format(**names) if "{" in argument else argument for argument in arguments))
    assert ran.code == 2, ran
    message = [line for line in ran.err.splitlines() if not line.startswith("using the")]
    assert len(message) == 1
    assert message[0].startswith("contextpool: error: ")
    assert words in message[0]
    assert len(message[0]) < 2_000
    assert message[0].isprintable()
    assert ran.out == ""
    assert sorted(path.name for path in folder.iterdir()) == before


def test_a_number_that_is_none_is_refused(cli, world_run):
    ran = cli("ask", "world", "--run", str(world_run), *BELARUS, "-k", "many")
    assert ran.code == 2
    assert "Invalid value for '-k'" in ran.err


@pytest.mark.parametrize("verb", ["explain", "export", "ask"])
def test_every_verb_explains_itself(cli, verb):
    ran = cli(verb, "--help")
    assert ran.code == 0
    assert "Usage" in ran.out


ASKED = "--head Belarus --relation currency"
MOVED = [
    (["predict", "{run}", "world", *BELARUS, "-k", "3"], f"ask world --run {{run}} {ASKED} -k 3"),
    (["predict", "--head", "a b", "{run}", "c d.tsv", "--all"], "ask 'c d.tsv' --run {run} --head 'a b' --every-pair"),
    (["predict", "runs/gone", "mine.tsv", *BELARUS], f"ask mine.tsv --run runs/gone {ASKED}"),
    (["predict"], "ask GRAPH"),
    (["ask", "{run}", "world", *BELARUS], f"ask world --run {{run}} {ASKED}"),
    (["ask", "{run}", *BELARUS], f"ask GRAPH --run {{run}} {ASKED}"),
    (["explain", "{run}", "world", *BELARUS, "--tail=Euro"], f"explain world --run {{run}} {ASKED} --tail=Euro"),
    (["evaluate", "{run}", "--per-relation"], "evaluate --run {run} --per-relation"),
    (["evaluate", "{run}", "world"], "evaluate world --run {run}"),
    (["evaluate", "hf://ann/world"], "evaluate --run hf://ann/world"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "now"), MOVED)
def test_who_types_what_was_there_before_is_told_what_to_type(cli, world_run, arguments, now):
    ran = cli(*(argument.format(run=world_run) for argument in arguments))
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.endswith(f"Type: contextpool {now.format(run=world_run)}\n")
    assert "the graph comes first; a run is named with --run" in ran.err
