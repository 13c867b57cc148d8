"""Pre-training on a mixture of graphs, by the command line: a run like any other, cut off and resumed to the byte."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import contextpool as cp
from command_line import Ran, run
from contextpool import experiment
from contextpool.errors import ContextPoolError, DataError
from contextpool.pretraining import seconds_in
from contextpool.provenance import facts_sha256
from contextpool.recipe import read_recipe
from contextpool.train.progress import Progress
from contextpool.triples.catalog import read_training_graph
from contextpool.triples.store import Triples
from learning_worlds import families
from learning_worlds import one_thread as one_thread

RECIPE = """
model = { name = "anygraph", dim = 4, layers = 2, relation_layers = 1 }
context = { gate = true, arrive = true, views = [] }

[mixture]
graphs = ["facts.tsv", { name = "folder", share = 2.0 }, "folder/msg"]
steps = 9
work = 3000

[train]
batch_size = 12
checkpoint_steps = 4
warmup_steps = 2
"""
TRIPLES = families()
Cli = Callable[..., Ran]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    return lambda *arguments: run(list(arguments), capsys, monkeypatch)


def written(path: Path, triples: list[tuple[str, str, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join("\t".join(triple) + "\n" for triple in triples), "utf-8")


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recipe over three small graphs, in the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONTEXTPOOL_HOME", str(tmp_path / "cache"))
    third = len(TRIPLES) // 3
    written(tmp_path / "facts.tsv", TRIPLES[:third])
    written(tmp_path / "folder" / "train.txt", TRIPLES[third : 2 * third])
    written(tmp_path / "folder" / "msg.tsv", TRIPLES[2 * third :])
    (tmp_path / "mine.toml").write_text(RECIPE, "utf-8")
    return tmp_path / "mine.toml"


def test_a_recipe_of_graphs_trains_a_model_for_any_graph(cli: Cli, recipe: Path) -> None:
    result = cli("train", "mine.toml", "--seed", "3", "--device", "cpu", "--json")
    assert result.code == 0, result.err
    told = json.loads(result.out)
    assert told["run"] == "runs/mine/anygraph+cp-seed3"
    folder = Path(told["run"])
    assert {file.name for file in folder.iterdir()} >= {
        "config.json", "model.safetensors", "metrics.json", "README.md", "events.jsonl",
    }  # fmt: skip
    card = (folder / "README.md").read_text("utf-8")
    assert [graph["name"] for graph in told["graphs"]] == ["facts", "folder", "msg"]  # not where they lie
    for graph, name in zip(told["graphs"], ("facts.tsv", "folder", "folder/msg"), strict=True):
        facts = read_training_graph(name)
        assert graph["sha256"] == facts_sha256(facts)
        assert graph["facts"] == len(facts)
        assert graph["name"] in card
        assert graph["sha256"] in card
    assert "seed 3" in card
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text("utf-8").splitlines()]
    assert [event["epoch"] for event in events if event["event"] == "epoch"] == [1, 2, 3]
    answers = cp.load(folder).predict(
        cp.Graph.from_triples([("a", "new", "b"), ("b", "new", "c")]), "a", "new"
    )
    assert {answer.entity for answer in answers} <= {"a", "b", "c"}


def test_a_graph_can_be_left_out_by_name(cli: Cli, recipe: Path) -> None:
    result = cli("train", "mine.toml", "--set", 'mixture.without=["folder*"]', "--device", "cpu", "--json")
    assert result.code == 0, result.err
    assert [graph["name"] for graph in json.loads(result.out)["graphs"]] == ["facts"]
    again = cli("resume", "runs/mine/anygraph+cp-seed0", "mine.toml", "--device", "cpu", "--json")
    assert json.loads(again.out) == json.loads(result.out)


def test_options_of_one_dataset_are_refused(cli: Cli, recipe: Path) -> None:
    for words, told in (
        (("--minutes", "5"), "a mixture of graphs has a number of steps"),
        (("--epochs", "5"), "train.epochs is 5, which training on a mixture does not read"),
        (("--refit",), "--refit is for one graph"),
        (("--model", "redgnn"), "needs one that takes any relation"),
    ):
        result = cli("train", "mine.toml", *words, "--device", "cpu")
        assert result.code == 2
        assert told in " ".join(result.err.split())


class Cut(BaseException):
    """Not an Exception, so that nothing on the way mistakes it for a failure it knows."""


def cut_after(steps: int) -> Callable[[Progress], None]:
    left = iter(range(steps))

    def cut(_: Progress) -> None:
        if next(left, None) is None:
            raise Cut

    return cut


def begin_or_go_on(folder: Path, progress: Callable[[Progress], None] | None = None) -> bool:
    """Whether it came to its end."""
    try:
        if (folder / "config.json").exists():
            experiment.resume(folder, "mine.toml", progress=progress)
        else:
            experiment.run_recipe(read_recipe("mine.toml"), output=folder, progress=progress)
    except Cut:
        return False
    return True


def weights(folder: Path) -> dict[str, bytes]:
    """What depends on no clock."""
    files = ("model.safetensors", "checkpoints/last.safetensors")
    return {name: (folder / name).read_bytes() for name in files}


@pytest.mark.parametrize("seed", range(3))
def test_a_pretraining_cut_off_twice_ends_with_the_same_bytes(
    seed: int, recipe: Path, tmp_path: Path
) -> None:
    assert begin_or_go_on(tmp_path / "whole")
    draw = random.Random(seed)
    assert not begin_or_go_on(tmp_path / "cut", cut_after(draw.randint(0, 6)))
    begin_or_go_on(tmp_path / "cut", cut_after(draw.randint(0, 6)))
    assert begin_or_go_on(tmp_path / "cut")
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")


def test_a_pretraining_is_resumed_by_the_command_line(cli: Cli, recipe: Path, tmp_path: Path) -> None:
    assert begin_or_go_on(tmp_path / "whole")
    assert not begin_or_go_on(tmp_path / "cut", cut_after(6))
    result = cli("resume", str(tmp_path / "cut"), "mine.toml", "--device", "cpu")
    assert result.code == 0, result.err
    assert "9 steps" in result.out
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")


def test_other_facts_are_told_by_the_name_of_their_graph(recipe: Path, tmp_path: Path) -> None:
    assert not begin_or_go_on(tmp_path / "cut", cut_after(6))
    written(tmp_path / "folder" / "train.txt", TRIPLES[:7])
    with pytest.raises(DataError, match="the graph 'folder' does not hold the facts"):
        experiment.resume(tmp_path / "cut", "mine.toml")


def test_a_run_names_no_file_that_is_opened(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Graphs of one's own are found by the recipe; of what the run says, only what lies in a data folder."""
    assert not begin_or_go_on(tmp_path / "cut", cut_after(6))
    with pytest.raises(DataError, match=r"not trusted to say what is opened\. Give its recipe"):
        experiment.resume(tmp_path / "cut")
    config = tmp_path / "cut" / "config.json"
    for name in (str(tmp_path / "facts.tsv"), "../facts.tsv", "facts.tsv?delimiter=;"):
        content = json.loads(config.read_text("utf-8"))
        content["config"]["recipe"]["mixture"]["graphs"][0]["name"] = name
        config.write_text(json.dumps(content), "utf-8")
        with pytest.raises(DataError, match="not trusted to say what is opened"):
            experiment.resume(tmp_path / "cut")
    data = tmp_path / "data"
    data.mkdir()
    (tmp_path / "facts.tsv").rename(data / "facts.tsv")
    monkeypatch.setenv("CONTEXTPOOL_DATA", str(data))
    assert read_training_graph("facts", for_run=config.parent)
    with pytest.raises(DataError, match="not trusted"):
        read_training_graph("../folder", for_run=config.parent)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (('"facts.tsv"', '"nowhere"'), "graph 'nowhere' is not on this machine"),
        (('"facts.tsv", { name = "folder", share = 2.0 }, "folder/msg"', ""), "mixture.graphs is empty"),
        (("share = 2.0", 'share = "much"'), "mixture.graphs.share is 'much'"),
        (("share = 2.0", "share = -1"), "the share of 'folder' is -1.0"),
        (("share = 2.0", "weight = 1"), "mixture.graphs.weight is not a setting"),
        (('name = "folder", share', "share"), "mixture.graphs has a table without name"),
        (("steps = 9", "step = 9"), "mixture.step is not a setting. Did you mean mixture.steps?"),
        (("steps = 9", 'steps = "many"'), "mixture.steps is 'many'"),
        (("work = 3000", "edge_dropout = 0.3"), "mixture.edge_dropout is 0.3; it has to be a list of two numbers"),
        (("batch_size = 12", "epochs = 12"), "train.epochs is 12, which training on a mixture does not read"),
        (('name = "anygraph", ', 'name = "nbfnet", '), "relation_layers is not a setting"),
        (("[mixture]", 'dataset = "world"\n[mixture]'), "dataset is 'world', and there is a mixture"),
    ],
)  # fmt: skip
def test_a_bad_recipe_is_refused_before_anything_is_written(
    change: tuple[str, str], told: str, cli: Cli, recipe: Path
) -> None:
    recipe.write_text(RECIPE.replace(*change), "utf-8")
    result = cli("train", "mine.toml", "--device", "cpu")
    assert result.code == 2
    assert told in " ".join(result.err.split())
    assert not Path("runs").exists()


def test_a_model_of_one_graphs_relations_takes_no_mixture(recipe: Path) -> None:
    recipe.write_text('model = { name = "nbfnet" }\n[mixture]\ngraphs = ["facts.tsv"]\n', "utf-8")
    with pytest.raises(ContextPoolError, match="needs one that takes any relation"):
        read_recipe(recipe)


def test_the_recipe_of_the_model_in_the_package_is_found_by_its_name(recipe: Path) -> None:
    shipped = read_recipe("anygraph-1.toml")
    assert shipped.mixture is not None
    assert shipped.model == "anygraph"
    names = {graph.name for graph in shipped.mixture.graphs}
    assert not any("umls" in name or "wikitopics-loc" in name or "_ind" in name for name in names)


def test_a_name_that_two_files_have_is_refused(recipe: Path, tmp_path: Path) -> None:
    written(tmp_path / "folder" / "train.tsv", TRIPLES[:3])
    with pytest.raises(DataError, match="may be meant"):
        read_training_graph("folder")


def test_the_checksum_is_that_of_the_sorted_lines() -> None:
    """printf 'a\\tr\\tb\\na\\tr\\tc\\n' | sha256sum"""
    facts = Triples.from_labels([("a", "r", "c"), ("a", "r", "b")])
    assert facts_sha256(facts) == "56300435117d70b38af89aae7c55fd49551d234b8427ebd728d8dd5b2ee4d7eb"


def test_seconds_of_a_run_that_was_cut_off_are_those_of_all_its_processes() -> None:
    def epoch(seconds: float) -> dict[str, Any]:
        return {"event": "epoch", "seconds": seconds}

    assert seconds_in([epoch(2), epoch(5), epoch(1), {"event": "other", "seconds": 9}, epoch(4)], 1.0) == 9
    assert seconds_in([], 1.5) == 1.5
