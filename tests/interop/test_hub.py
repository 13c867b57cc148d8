"""Runs by address: fetched from a server that speaks as the Hub does, checked, cached, and refused by name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import contextpool as cp
from contextpool.errors import (
    CheckpointError,
    ChecksumError,
    ConfigError,
    FetchError,
    MissingExtraError,
    OfflineError,
)
from contextpool.graph.graph import Graph
from contextpool.interop import hub
from contextpool.interop.export import export, verify
from contextpool.serve import ModelSource
from contextpool.triples.dataset import Dataset
from hub_server import COMMIT, serving
from learning_worlds import SMALL, family_dataset
from learning_worlds import one_thread as one_thread

NAME = "ann/families"


@pytest.fixture(scope="module")
def data() -> Dataset:
    return family_dataset(inductive=True, count=30)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory, data: Dataset) -> Path:
    """A rule model, for the hub."""
    folder = tmp_path_factory.mktemp("hub")
    cp.train(data, "anyburl", output=folder / "run", settings=SMALL["anyburl"])
    return export(folder / "run", folder / "export", dataset=data, license="mit", hub=NAME)


def test_the_layout_is_a_repository_of_the_hub(exported: Path) -> None:
    names = {entry.name for entry in exported.iterdir()}
    assert names == {*hub.RUN_FILES, hub.CARD, hub.EVALUATION, hub.CHECKSUMS, ".gitattributes"} - {
        "context.safetensors"
    }
    assert (exported / ".gitattributes").read_text() == "*.safetensors filter=lfs diff=lfs merge=lfs -text\n"
    assert verify(exported) == []
    card = (exported / "README.md").read_text("utf-8")
    assert f'cp.load("hf://{NAME}")' in card
    for words in (
        "## Intended use",
        "seed 0",
        "contextpool[hub]",
        'license: "mit"',
        "sha256 over every fact",
    ):
        assert words in card


def test_the_rules_of_a_rule_model_come_along(exported: Path) -> None:
    rules = (exported / "rules.txt").read_text("utf-8")
    assert rules == (exported.parent / "run" / "rules.txt").read_text("utf-8")
    assert "grandparent of" in rules
    assert "the weights know relations, never entities" in (exported / "README.md").read_text("utf-8")
    assert "rules.txt" in (exported / hub.CHECKSUMS).read_text()


@pytest.mark.parametrize("name", ["families", "a/b/c", "a b/c", "/x", "ann/", "ann/../x", 'a/b")'])
def test_a_name_that_no_repository_has_is_refused(exported: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="hub is"):
        export(exported, tmp_path / "out", evaluated=False, hub=name)
    with pytest.raises(ConfigError, match="no address of a run"):
        cp.load(f"hf://{name}")


FETCH = """
import json, sys
import contextpool as cp
from contextpool.errors import ContextPoolError
from pathlib import Path
for address in sys.argv[1:]:
    try:
        predictor = cp.load(Path(address) if address.endswith("@v1") else address)
        print(json.dumps([address, predictor.fingerprint]))
    except ContextPoolError as error:
        print(json.dumps([address, type(error).__name__ + ": " + str(error)]))
"""


def fetched(home: Path, addresses: list[str], **environment: str) -> dict[str, str]:
    """What loading each address came to, in a process of its own whose cache is `home`."""
    chosen = {
        **os.environ, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1", "OMP_NUM_THREADS": "1", **environment,
    }  # fmt: skip
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
        chosen.pop(name, None)
    done = subprocess.run(
        [sys.executable, "-c", FETCH, *addresses], env=chosen, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(line) for line in done.stdout.splitlines())


def test_from_a_server_to_the_cache_and_without_a_network(exported: Path, tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub", reason="the hub extra is not installed")
    expected = cp.load(exported).fingerprint
    with serving(NAME, exported) as (server, url):
        found = fetched(
            tmp_path,
            [f"hf://{NAME}", f"hf://{NAME}@v1", f"hf://{NAME}@nowhere", "hf://ann/nothing"],
            HF_ENDPOINT=url,
        )
        assert found[f"hf://{NAME}"] == found[f"hf://{NAME}@v1"] == expected
        assert "FetchError" in found[f"hf://{NAME}@nowhere"]
        assert "no such revision" in found[f"hf://{NAME}@nowhere"]
        assert "FetchError" in found["hf://ann/nothing"]
        assert "no such model" in found["hf://ann/nothing"]
        assert not any(".gitattributes" in line for line in server.asked if "/resolve/" in line)
        loads = [line for line in server.asked if line == f"GET /{NAME}/resolve/{COMMIT}/model.safetensors"]
        assert len(loads) == 1  # the second load took it from the cache
    away = {"HF_ENDPOINT": url, "HF_HUB_OFFLINE": "1"}
    found = fetched(tmp_path, [f"hf://{NAME}", "hf://ann/other"], **away)
    assert found[f"hf://{NAME}"] == expected
    assert found["hf://ann/other"].startswith("OfflineError: hf://ann/other is not in the cache")


Download = Callable[..., str]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Callable[[Download], list[dict[str, Any]]]:
    """Put a function in the place of snapshot_download; gives the calls it got."""
    module = pytest.importorskip("huggingface_hub", reason="the hub extra is not installed")

    def install(download: Download) -> list[dict[str, Any]]:
        calls: list[dict[str, Any]] = []

        def recorded(repository: str, **options: Any) -> str:
            calls.append({"repository": repository, **options})
            return download(repository, **options)

        monkeypatch.setattr(module, "snapshot_download", recorded)
        return calls

    return install


def test_predictions_are_those_of_the_folder(fake: Any, exported: Path, data: Dataset) -> None:
    calls = fake(lambda repository, **_: str(exported))
    graph = Graph.from_triples(data.inference_graph)
    found = cp.load(f"hf://{NAME}@v1").predict(graph, graph.entities[0], "parent of")
    assert found == cp.load(exported).predict(graph, graph.entities[0], "parent of")
    assert (calls[0]["repository"], calls[0]["revision"]) == (NAME, "v1")
    assert set(calls[0]["allow_patterns"]) == {*hub.RUN_FILES, "README.md", "evaluation.json", "SHA256SUMS"}


def test_a_server_takes_an_address_too(fake: Any, exported: Path) -> None:
    fake(lambda repository, **_: str(exported))
    source = ModelSource("families", Path(f"hf://{NAME}"))  # a Path drops the second slash
    assert source.load().fingerprint == cp.load(exported).fingerprint


def test_changed_bytes_are_refused(fake: Any, exported: Path, tmp_path: Path) -> None:
    for file in exported.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "relations.json").write_text("[]")
    fake(lambda repository, **_: str(tmp_path))
    with pytest.raises(ChecksumError, match=r"relations\.json differ from SHA256SUMS"):
        cp.load(f"hf://{NAME}")
    (tmp_path / "config.json").unlink()
    with pytest.raises(CheckpointError, match="not a run of contextpool"):
        cp.load(f"hf://{NAME}")


def test_what_the_hub_says_is_told_by_our_names(fake: Any) -> None:
    errors = pytest.importorskip("huggingface_hub").errors

    def refusing(error: Exception) -> Download:
        def download(repository: str, **_: Any) -> str:
            raise error

        return download

    for error, kind, message in (
        (errors.LocalEntryNotFoundError("gone"), OfflineError, "Load it once with a network"),
        (errors.OfflineModeIsEnabled("off"), OfflineError, "HF_HUB_OFFLINE"),
        (TimeoutError("too slow"), FetchError, "cannot be fetched .'too slow'"),
    ):
        fake(refusing(error))
        with pytest.raises(kind, match=message):
            cp.load(f"hf://{NAME}")


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtraError, match=r"contextpool\[hub\]"):
        cp.load(f"hf://{NAME}")
