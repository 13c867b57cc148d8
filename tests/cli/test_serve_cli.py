"""serve on the command line: names of models and graphs, tokens, what is refused; and the end of the demo."""

from __future__ import annotations

import importlib.util
import re
import socket
from pathlib import Path
from typing import Any

import pytest

from contextpool.cli import demo as demo_module
from contextpool.cli import serve as serve_module
from contextpool.errors import ConfigError, DataError, UnknownNameError
from contextpool.interop.hub import SHIPPED
from contextpool.predict import Predictor
from contextpool.triples.files import write_triples
from learning_worlds import one_thread as one_thread
from world_model import world_predictor as world_predictor
from world_model import world_run as world_run

pytest.importorskip("fastapi", reason="the serve extra is not installed")
TOKEN = "a-token-that-is-long-enough"


@pytest.fixture(autouse=True)
def _no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CONTEXTPOOL_TOKEN", raising=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_triples(tmp_path / "mine.tsv", [("a", "borders", "b"), ("b", "borders", "c")])
    write_triples(tmp_path / "odd.tsv", [("a", "likes", "b")])
    (tmp_path / "names.tsv").write_text("a\tAlpha\n")
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    (tmp_path / "empty").write_text("\n")
    return tmp_path


def test_models_are_named_after_their_folders_or_as_told(tmp_path: Path) -> None:
    named = [str(tmp_path / "runs" / "demo"), "other=runs/x", "third=a=b"]
    found = serve_module.model_sources(named, "cpu")
    assert [(one.name, one.path) for one in found] == [
        ("demo", tmp_path / "runs" / "demo"),
        ("other", Path("runs/x")),
        ("third", Path("a=b")),
    ]
    (shipped,) = serve_module.model_sources([], "cpu")
    assert (shipped.name, shipped.path) == (SHIPPED, None)


def test_graphs_are_named_after_their_files_or_as_told(folder: Path) -> None:
    mine, names = str(folder / "mine.tsv"), str(folder / "names.tsv")
    found = serve_module.graph_sources([mine, f"second={mine}", "world"], [names, f"second={names}"])
    assert [one.name for one in found] == ["mine", "second", "world"]
    assert found[0].read().num_triples == 2
    named = [one.read_names() for one in found]
    assert [None if one is None else one.name("a") for one in named] == ["Alpha", "Alpha", None]
    with pytest.raises(ConfigError, match="same name"):
        serve_module.graph_sources([mine, f"mine={mine}"], [])
    with pytest.raises(UnknownNameError, match="graph 'mne' is unknown"):
        serve_module.graph_sources([mine], [f"mne={names}"])


def test_a_token_comes_from_the_option_a_file_or_the_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert serve_module.found_token(None, None) is None
    assert serve_module.found_token(TOKEN, None) == TOKEN
    assert serve_module.found_token(None, folder / "token") == TOKEN
    monkeypatch.setenv("CONTEXTPOOL_TOKEN", TOKEN)
    assert serve_module.found_token(None, None) == TOKEN
    assert serve_module.found_token(TOKEN, folder / "token") == TOKEN
    with pytest.raises(ConfigError, match="--token and CONTEXTPOOL_TOKEN name different tokens"):
        serve_module.found_token("another-token-of-some-length", None)
    with pytest.raises(DataError, match="the file is empty"):
        serve_module.found_token(None, folder / "empty")
    with pytest.raises(DataError, match="cannot be read"):
        serve_module.found_token(None, folder / "nowhere")


BAD_CALLS = [
    (["{run}"], "a run is named with --run. Type: contextpool serve GRAPH --run"),
    (["{run}", "--graph", "world"], "Type: contextpool serve world --run"),
    (["--model", "a={run}", "-g", "x=world", "--port", "1"], "Type: contextpool serve x=world --run a="),
    (["wrld", "--run", "{run}"], "wrld"),
    (["{folder}/nowhere.tsv", "--run", "{run}"], "nowhere.tsv"),
    (["world", "--run", "{folder}"], "this is no run folder"),
    (["world", "--run", "{folder}/nowhere"], "nowhere"),
    (["{folder}/odd.tsv", "--run", "{run}"], "graph 'odd' fits no model: relation 'likes' is unknown"),
    (["world", "--run", "{run}", "--run", "{run}"], "two of the models have the same name"),
    (["world", "--run", "{run}", "--run", "world-run={run}"], "two of the models have the same name"),
    (["world", "--run", "{run}", "--run", "={run}"], "model name ''"),
    (["world", "--run", "{run}", "--host", "0.0.0.0"], "no token is set"),
    (["world", "--run", "{run}", "--host", "no.such.host.invalid"], "no.such.host.invalid"),
    (["world", "--run", "{run}", "--token", "short"], "--token: 5 characters"),
    (["world", "--run", "{run}", "--token-file", "{folder}/empty"], "the file is empty"),
    (["world", "--run", "{run}", "--port", "70000"], "--port is 70000"),
    (["world", "--run", "{run}", "--deadline", "0"], "--deadline is 0"),
    (["world", "--run", "{run}", "--queue-size", "10"], "--queue-size is 10"),
    (["world", "--run", "{run}", "--labels", "{folder}/token"], "1 columns instead of 2"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "words"), BAD_CALLS)
def test_bad_input_is_one_message_that_names_it_and_code_2(cli, world_run, folder, arguments, words) -> None:
    names = {"run": str(world_run), "folder": str(folder)}
    ran = cli("serve", *(argument.format(**names) for argument in arguments))
    assert ran.code == 2, ran
    message = [line for line in ran.err.splitlines() if not line.startswith("using the")]
    assert len(message) == 1
    assert message[0].startswith("contextpool: error: ")
    assert words in message[0]


def test_a_port_that_is_taken_is_told(cli, world_run) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        ran = cli("serve", "world", "--run", str(world_run), "--port", str(other.getsockname()[1]))
    assert ran.code == 2
    assert "cannot listen at 127.0.0.1" in ran.err


@pytest.mark.parametrize("arguments", [["serve", "world", "--run", "RUN"], ["demo", "--serve"]])
def test_without_the_extra_its_name_is_told(
    cli, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "fastapi" else find(name, *rest)
    )
    ran = cli(*arguments)
    assert ran.code == 2
    assert "pip install 'contextpool[serve]'" in ran.err
    assert ran.out == ""


def test_the_demo_tells_how_to_open_the_page_and_opens_it(
    cli, world_run: Path, world_predictor: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[Any] = []
    monkeypatch.setattr(demo_module, "_tell_training", lambda dataset, output, seed: world_predictor)
    monkeypatch.setattr(serve_module, "run_server", lambda *arguments: served.append(arguments))
    ran = cli("demo", "--output", str(world_run))
    assert ran.code == 0
    assert served == []
    command = re.search(r"contextpool (serve world --run \S+) --open", ran.out)
    assert command is not None
    assert command.group(1) == f"serve world --run {world_run}"
    assert cli("demo", "--output", str(world_run), "--serve", "--port", "8123").code == 0
    ((models, graphs, settings),) = served
    assert [one.path for one in models] == [world_run]
    assert [one.name for one in graphs] == ["world"]
    assert settings.port == 8123


def test_serve_explains_itself(cli) -> None:
    ran = cli("serve", "--help")
    assert ran.code == 0
    for option in ("GRAPH", "--run", "--token-file", "--host", "--allow-host", "--deadline"):
        assert option in ran.out
