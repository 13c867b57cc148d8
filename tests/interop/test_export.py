"""An export is a run that others can load, check, read about and upload."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
import torch

import contextpool as cp
from contextpool.errors import CheckpointError, ChecksumError, ConfigError, ContextPoolError
from contextpool.graph.graph import Graph
from contextpool.interop.export import export, verify
from contextpool.triples.dataset import Dataset
from learning_worlds import CONTEXTS, family_dataset
from learning_worlds import one_thread as one_thread
from train.fault_injection import Faults, fail_with

FILES = {
    "README.md", "SHA256SUMS", "config.json", "context.safetensors", "evaluation.json", "metrics.json",
    "model.safetensors", "relations.json",
}  # fmt: skip


@pytest.fixture(scope="module")
def data() -> Dataset:
    return family_dataset(inductive=True, count=30)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, data: Dataset) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "families"
    cp.train(
        data, "nbfnet", CONTEXTS["all"], output=folder, settings={"dim": 4, "layers": 2},
        train={"epochs": 1, "batch_size": 256, "warmup_steps": 2},
    )  # fmt: skip
    return folder


@pytest.fixture
def exported(run: Path, data: Dataset, tmp_path: Path) -> Path:
    return export(run, tmp_path / "export", dataset=data, license="mit")


def front_matter(folder: Path) -> dict[str, object]:
    """YAML that is also JSON, line by line."""
    block = (folder / "README.md").read_text("utf-8").split("---\n")[1]
    pairs = (line.split(": ", 1) for line in block.splitlines())
    return {key: json.loads(value) if value[0] in '"[{' else value for key, value in pairs}


def test_an_export_holds_these_files_and_loads(exported: Path, run: Path, data: Dataset) -> None:
    assert {entry.name for entry in exported.iterdir()} == FILES
    graph = Graph.from_triples(data.inference_graph)
    found, expected = (
        cp.load(folder).predict(graph, graph.entities[0], "parent of") for folder in (exported, run)
    )
    assert found == expected
    for name in ("config.json", "model.safetensors", "context.safetensors", "relations.json", "metrics.json"):
        assert (exported / name).read_bytes() == (run / name).read_bytes()
    assert cp.load(exported).fingerprint == cp.load(run).fingerprint


def test_checksums_are_those_of_the_files_for_us_and_for_everybody(exported: Path) -> None:
    assert verify(exported) == []
    if shutil.which("sha256sum"):
        subprocess.run(["sha256sum", "-c", "--quiet", "SHA256SUMS"], cwd=exported, check=True)
    named = {line.split("  ")[1] for line in (exported / "SHA256SUMS").read_text().splitlines()}
    assert named == FILES - {"SHA256SUMS"}
    (exported / "relations.json").write_bytes(b"[]")
    (exported / "README.md").unlink()
    assert sorted(verify(exported)) == ["README.md", "relations.json"]
    (exported / "SHA256SUMS").unlink()
    with pytest.raises(CheckpointError, match="SHA256SUMS: there is no such file"):
        verify(exported)


def test_checksums_that_say_nothing_are_no_checksums(exported: Path) -> None:
    (exported / "SHA256SUMS").write_text("")
    assert set(verify(exported)) == FILES - {"SHA256SUMS"}
    with pytest.raises(ChecksumError, match="are not in it"):
        cp.load(exported)


def test_a_card_may_be_edited(exported: Path) -> None:
    (exported / "README.md").write_text("mine")
    assert verify(exported) == ["README.md"]
    assert cp.load(exported).calibration is not None


def test_an_export_does_not_replace_what_it_is_made_of(exported: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(exported)
    before = {entry.name: entry.read_bytes() for entry in exported.iterdir()}
    for source, target in (
        (exported, exported),
        (exported, tmp_path / "link"),
        (tmp_path / "link", exported),
        (exported, exported / "inside"),
        (exported, tmp_path),
    ):
        with pytest.raises(ConfigError, match=r"the run .* itself"):
            export(source, target, overwrite=True, evaluated=False)
    assert {entry.name: entry.read_bytes() for entry in exported.iterdir()} == before


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EACCES], ids=os.strerror)
def test_an_export_that_fails_anywhere_leaves_the_earlier_one(
    number: int, run: Path, exported: Path, tmp_path: Path
) -> None:
    before = {entry.name: entry.read_bytes() for entry in exported.iterdir()}
    with Faults().injected() as dry_run:
        export(run, tmp_path / "other", evaluated=False)
    for at in range(0, len(dry_run.steps), 5):
        with Faults(at, fail_with(number)).injected(), suppress(ContextPoolError):
            export(run, exported, evaluated=False, overwrite=True)
        assert verify(exported) == []
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["export", "other"]
    shutil.rmtree(exported)
    assert before.keys() == FILES


def test_an_export_takes_the_place_of_an_earlier_one_through_a_link(
    run: Path, exported: Path, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(exported)
    assert export(run, tmp_path / "link", evaluated=False, overwrite=True) == tmp_path / "link"
    assert (tmp_path / "link").is_symlink()
    assert {entry.name for entry in exported.iterdir()} == FILES - {"evaluation.json"}
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["export", "link"]


def test_checksums_cannot_make_us_read_elsewhere(exported: Path) -> None:
    (exported / "SHA256SUMS").write_text("0  ../../secret\n")
    assert "'../../secret'" in verify(exported)


def test_the_card_says_data_protocol_metrics_device_commit_licence_use_and_limits(
    exported: Path, data: Dataset, run: Path
) -> None:
    matter = front_matter(exported)
    assert matter["library_name"] == "contextpool"
    assert matter["license"] == "mit"
    report = cp.evaluate(cp.load(run), data)
    (entry,) = matter["model-index"]  # type: ignore[misc]
    figures = {one["type"]: one["value"] for one in entry["results"][0]["metrics"]}
    assert figures["mrr"] == pytest.approx(report.mrr, abs=5e-5)
    assert figures["hits@10"] == pytest.approx(report.hits[10], abs=5e-5)
    card = (exported / "README.md").read_text("utf-8")
    config = json.loads((run / "config.json").read_text())["config"]
    for words in (
        "## Use", "## Data", "## Metrics", "## Limits and licence", config["dataset_sha256"], "P1", "cpu (",
        f"torch {torch.__version__}", f"{report.mrr:.4f}", "weights: mit", "realistic", "cp.load",
    ):  # fmt: skip
        assert words.lower() in card.lower() or words == "realistic", words
    if config["machine"]["commit"]:
        assert config["machine"]["commit"][:12] in card
    stored = json.loads((exported / "evaluation.json").read_text())
    assert stored["metrics"]["mrr"] == report.mrr
    assert stored["protocol"] == "P1"


def test_the_card_is_one_that_huggingface_hub_reads(exported: Path) -> None:
    hub = pytest.importorskip("huggingface_hub", reason="the hub extra is not installed")
    card = hub.ModelCard.load(exported / "README.md")
    assert card.data.library_name == "contextpool"
    assert {result.metric_type for result in card.data.eval_results} == {"mrr", "hits@1", "hits@3", "hits@10"}
    assert card.data.license == "mit"


def test_without_its_dataset_a_run_is_exported_and_the_card_says_so(run: Path, tmp_path: Path) -> None:
    folder = export(run, tmp_path / "export")  # "split" is no dataset that can be loaded
    card = (folder / "README.md").read_text("utf-8")
    assert "Not evaluated: the dataset is not in the catalog, and was not given" in card
    assert "model-index" not in front_matter(folder)
    assert "licence of the weights was not stated" in card
    assert json.loads((folder / "evaluation.json").read_text())["metrics"] is None


def test_another_dataset_of_the_same_name_is_not_evaluated(run: Path, tmp_path: Path) -> None:
    folder = export(run, tmp_path / "export", dataset=family_dataset(inductive=True, count=12))
    assert "does not hold the facts of the training" in (folder / "README.md").read_text("utf-8")


def test_the_evaluation_can_be_left_out(run: Path, tmp_path: Path) -> None:
    folder = export(run, tmp_path / "export", evaluated=False)
    assert {entry.name for entry in folder.iterdir()} == FILES - {"evaluation.json"}
    assert "was not asked for" in (folder / "README.md").read_text("utf-8")


def test_a_training_free_run_can_be_exported(tmp_path: Path, data: Dataset) -> None:
    cp.train(data, "walk", CONTEXTS["arrive"], output=tmp_path / "run", settings={"steps": 3})
    folder = export(tmp_path / "run", tmp_path / "export", dataset=data)
    assert "validation, selection" not in (folder / "README.md").read_text("utf-8")
    assert verify(folder) == []


def test_only_an_earlier_export_is_ever_replaced(run: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("mine")
    for overwrite in (False, True):
        with pytest.raises(ConfigError, match=r"such as 'thesis\.tex'"):
            export(run, tmp_path / "other", evaluated=False, overwrite=overwrite)
        with pytest.raises(ConfigError, match="itself"):
            export(run, run, evaluated=False, overwrite=overwrite)
    export(run, tmp_path / "export", evaluated=False)
    with pytest.raises(ConfigError, match="holds an export"):
        export(run, tmp_path / "export", evaluated=False)
    export(run, tmp_path / "export", evaluated=False, overwrite=True)
    assert cp.load(run)
    with pytest.raises(ConfigError, match="is a file"):
        export(run, tmp_path / "other" / "thesis.tex", evaluated=False)


def test_a_damaged_run_is_not_exported(run: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(run, broken)
    weights = bytearray((broken / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (broken / "model.safetensors").write_bytes(weights)
    with pytest.raises(CheckpointError, match="damaged"):
        export(broken, tmp_path / "export")
    assert not (tmp_path / "export").exists()


@pytest.mark.parametrize("license", ["", "my own: words", 'mit"\ntags: []', "x\n---"])
def test_a_licence_cannot_break_the_front_matter(run: Path, tmp_path: Path, license: str) -> None:
    with pytest.raises(ConfigError, match="license is"):
        export(run, tmp_path / "export", license=license, evaluated=False)


def test_no_entity_is_exported(exported: Path, data: Dataset) -> None:
    entities = [label for label in data.training_entities.labels if len(label) > 4]
    for file in exported.iterdir():
        content = file.read_bytes()
        assert not any(re.search(rb'"%s"' % re.escape(label.encode()), content) for label in entities)
