"""Every verb: what it prints, its JSON, its exit code; bad input is one message, code 2, nothing half-written."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import contextpool as cp
from contextpool.triples.files import write_triples
from contextpool.triples.reader import read_triples

FAMILY = [
    ("ann", "parent_of", "bob"),
    ("bob", "parent_of", "cid"),
    ("ann", "grandparent_of", "cid"),
    ("ann", "lives_in", "rome"),
    ("bob", "lives_in", "rome"),
    ("cid", "lives_in", "oslo"),
]


@pytest.fixture
def family(tmp_path: Path) -> str:
    path = tmp_path / "family.tsv"
    write_triples(path, FAMILY)
    return str(path)


def test_help_is_quick_to_import_and_leaves_torch_alone():
    code = (
        "import sys; sys.argv = ['contextpool', '--help']\n"
        "from contextpool.__main__ import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'numba', 'scipy', 'pyarrow', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.mark.parametrize(
    "verb",
    ["demo", "data", "mine", "pool", "doctor", "train", "resume", "evaluate", "ask", "explain", "export"]
    + [f"data {verb}" for verb in ("ls", "info", "audit", "convert", "fetch", "split")],
)
def test_every_verb_explains_itself(cli, verb):
    ran = cli(*verb.split(), "--help")
    assert ran.code == 0
    assert "Usage" in ran.out


def test_version(cli):
    assert "contextpool 0." in cli("--version").out


def test_mine_prints_both_measures_side_by_side(cli, family):
    ran = cli("mine", family, "--relation", "grandparent_of")
    assert ran.code == 0
    assert "by precision" in ran.out
    assert "by recall" in ran.out
    assert "parent_of" in ran.out


def test_mine_as_json_holds_exact_ratios(cli, family):
    found = json.loads(cli("mine", family, "-r", "grandparent_of", "--json").out)
    by_label = {row["relation"]: row for row in found["by_precision"]}
    assert by_label["parent_of"]["precision"] == 0.5
    assert by_label["parent_of"]["recall"] == 1.0
    assert "grandparent_of" not in by_label


def test_mine_without_a_relation_lists_all(cli, family):
    assert len(json.loads(cli("mine", family, "--json").out)) == 6
    assert "lives_in" in cli("mine", family).out


def test_mine_families_lists_sets(cli, family):
    found = json.loads(
        cli("mine", family, "-r", "grandparent_of", "--algorithm", "1", "--sizes", "1-2", "--json").out
    )
    assert ["lives_in", "parent_of"] in found["first"]
    assert found["sets"] == len(found["first"])


def test_pool_walks_only_relevant_relations(cli, family):
    found = json.loads(
        cli("pool", family, "--head", "ann", "-r", "grandparent_of", "--hops", "1", "--json").out
    )
    assert ["ann", "parent_of", "bob"] in found["hops"][0]
    assert all(relation != "grandparent_of" for _, relation, _ in found["hops"][0])


def test_pool_hides_a_fact_and_writes_the_rest(cli, family, tmp_path):
    target = tmp_path / "pooled.tsv"
    hidden = "ann\tparent_of\tbob"
    ran = cli(
        "pool", family, "--head", "ann", "-r", "grandparent_of", "--hide", hidden, "--output", str(target)
    )
    assert ran.code == 0
    assert ("ann", "parent_of", "bob") not in set(read_triples(target))


def test_graph_may_be_a_dataset_name(cli):
    ran = cli("mine", "world", "--json")
    assert ran.code == 0
    assert "training graph of world" in ran.err
    assert json.loads(ran.out)


BAD_CALLS = [
    (["mine", "{family}", "-r", "grandparent"], "closest 'grandparent_of'"),
    (["mine", "{family}", "--min-precision", "1.5"], "min_precision is 1.5"),
    (["mine", "{family}", "--algorithm", "2"], "--algorithm is 2"),
    (["mine", "{family}", "--algorithm", "1", "--sizes", "x"], "--sizes is 'x'"),
    (["mine", "nowhere.tsv"], "nowhere.tsv"),
    (["pool", "{family}", "--head", "Ann", "-r", "parent_of"], "closest 'ann'"),
    (
        ["pool", "{family}", "--head", "ann", "-r", "parent_of", "--hide", "a b c"],
        "HEAD<tab>RELATION<tab>TAIL",
    ),
    (
        ["pool", "{family}", "--head", "ann", "-r", "parent_of", "--hide", "ann\tparent_of\tcid"],
        "not in the graph",
    ),
    (["pool", "{family}", "--head", "x" * 10**5, "-r", "parent_of"], "100,000 characters"),
    (["data", "info", "grail/fb237_v9"], "closest"),
    (["data", "fetch", "grail/fb237_v9"], "closest"),
    (["data", "audit", "{broken}"], "broken.tsv:2: 2 columns"),
    (["data", "convert", "{broken}", "{folder}/out.tsv"], "broken.tsv:2"),
    (["data", "convert", "{family}", "{family}"], "exists already"),
    (["data", "split", "{family}", "{folder}/split"], "split"),
]


@pytest.mark.parametrize(("arguments", "words"), BAD_CALLS)
def test_bad_input_is_one_message_and_code_2(cli, family, tmp_path, arguments, words):
    broken = tmp_path / "broken.tsv"
    broken.write_bytes(b"a\tr\tb\nc\tr\n")
    before = sorted(path.name for path in tmp_path.iterdir())
    names = {"family": family, "broken": str(broken), "folder": str(tmp_path)}
    ran = cli(*(argument.format(**names) if "{" in argument else argument for argument in arguments))
    assert ran.code == 2
    assert words in ran.err
    assert "Traceback" not in ran.err
    assert ran.err.count("\n") == 1
    assert len(ran.err) < 1_500
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert read_triples(family)


def test_data_ls_names_every_dataset(cli):
    rows = json.loads(cli("data", "ls", "--json").out)
    assert len(rows) == 28
    assert "grail/fb237_v1" in cli("data", "ls").out


def test_data_info_counts(cli):
    found = json.loads(cli("data", "info", "world", "--json").out)
    assert found["name"] == "world"
    assert "training" in cli("data", "info", "world").out


def test_data_audit_as_text_and_json(cli):
    ran = cli("data", "audit", "world")
    assert ran.code == 0
    assert "12 entities (1.74% of the inference graph's) are in both graphs" in ran.out
    report = json.loads(cli("data", "audit", "world", "--json").out)
    assert report["raw_files"]


def test_data_audit_of_one_file(cli, family):
    assert json.loads(cli("data", "audit", family, "--json").out)["setting"] == "one graph"


def test_data_convert_compresses_and_back(cli, family, tmp_path):
    for target in ("family.tsv.gz", "family.tsv.zst"):
        assert cli("data", "convert", family, str(tmp_path / target)).code == 0
        assert set(read_triples(tmp_path / target)) == set(FAMILY)


def test_data_convert_changes_the_layout(cli, tmp_path):
    target = tmp_path / "ilpc"
    assert cli("data", "convert", "world", str(target), "--layout", "grail").code == 0
    again = json.loads(cli("data", "info", str(target), "--json").out)
    original = json.loads(cli("data", "info", "world", "--json").out)
    assert {**again, "name": ""} == {**original, "name": ""}


def test_data_convert_takes_one_graph_of_a_dataset_as_a_file(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused = cli("data", "convert", "world", "w.tsv.gz")
    assert refused.code == 2
    assert not list(tmp_path.iterdir())
    assert "w.tsv.gz: a dataset is written as a folder" in refused.err
    as_folder, as_file = re.findall("`contextpool (.*?)`", " ".join(refused.err.split()))
    assert cli(*shlex.split(as_file)).code == 0
    dataset = cp.load_dataset("world")
    assert read_triples("w.tsv.gz") == dataset.inference_graph
    assert cli(*shlex.split(as_folder)).code == 0
    assert json.loads(cli("data", "info", "w", "--json").out)["inductive"] is True
    assert cli("data", "convert", "world", "w.tsv", "--part", "training").code == 0
    assert read_triples("w.tsv") == dataset.training_graph
    assert "w.tsv: exists already" in cli("data", "convert", "world", "w.tsv", "--part", "inference").err
    assert "is one graph" in cli("data", "convert", "w.tsv", "v.tsv", "--part", "inference").err
    for source, *part in (("world", "--part", "inference"), ("w.tsv",)):
        refused = cli("data", "convert", source, "w.csv", *part)
        assert (refused.code, "w.csv: what is written is head TAB" in refused.err) == (2, True)


def test_data_split_makes_a_loadable_dataset(cli, tmp_path):
    source = tmp_path / "ring.tsv"
    write_triples(
        source, [(f"e{n}", f"r{n % 3}", f"e{(n + step) % 200}") for n in range(200) for step in (1, 2, 5)]
    )
    assert cli("data", "split", str(source), str(tmp_path / "out")).code == 0
    assert json.loads(cli("data", "info", str(tmp_path / "out"), "--json").out)["inductive"] is True
    assert cli("data", "split", str(source), str(tmp_path / "flat"), "--transductive").code == 0
    assert json.loads(cli("data", "info", str(tmp_path / "flat"), "--json").out)["inductive"] is False


def test_data_fetch_offline_says_what_to_do(cli, tmp_path):
    ran = cli("data", "fetch", "grail/fb237_v1", "--folder", str(tmp_path), "--offline")
    assert ran.code == 1
    assert "train.txt" in ran.err


def test_doctor_finds_nothing_wrong(cli):
    ran = cli("doctor", "--json")
    assert ran.code == 0
    report = json.loads(ran.out)
    assert {check["result"] for check in report["checks"]} == {"ok"}
    assert "torch" in cli("doctor").out


def test_labels_are_never_read_as_markup(cli, tmp_path):
    path = tmp_path / "markup.tsv"
    write_triples(path, [("[bold]a[/bold]", "[red]r", "b"), ("[bold]a[/bold]", "s", "b")])
    ran = cli("pool", str(path), "--head", "[bold]a[/bold]", "-r", "s", "--hops", "1")
    assert "[bold]a[/bold]" in ran.out
    assert "[red]r" in ran.out
