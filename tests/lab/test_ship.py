"""The folder of a packaged model is made from checkpoints of the laboratory, its card from a JSON of figures."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest
import torch

import contextpool as cp
from contextpool.errors import ConfigError
from lab.anygraph_model import Settings, new_model
from lab.ship import ship

SMALL = Settings(dim=8, layers=2, relation_layers=1)


def checkpoint(path: Path, seed: int, settings: Settings = SMALL) -> Path:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        torch.save({"settings": asdict(settings), "model": new_model(settings).state_dict()}, path)
    return path


def test_weights_are_averaged_and_the_card_says_what_the_figures_say(tmp_path: Path) -> None:
    both = [checkpoint(tmp_path / f"{seed}.pt", seed) for seed in (0, 1)]
    figures = {
        "training": {"steps": 10},
        "tables": [{"title": "Zero-shot", "columns": ["graph", "MRR"], "rows": [["nell_v1", 0.8]]}],
        "bad_at": ["graphs of one relation"],
    }
    ship(both, figures, tmp_path / "any-1")
    predictor = cp.load(tmp_path / "any-1")
    first, second = (torch.load(path, weights_only=True)["model"] for path in both)
    for name, weight in predictor.model.state_dict().items():
        torch.testing.assert_close(weight, (first[name] + second[name]) / 2)
    card = (tmp_path / "any-1" / "README.md").read_text("utf-8")
    for said in ("# any-1", "- steps: 10", "## Zero-shot", "| nell_v1 | 0.8 |", "- graphs of one relation"):
        assert said in card
    ship([tmp_path / "any-1"], {}, tmp_path / "again")  # a folder of the product will do, too
    assert cp.load(tmp_path / "again").fingerprint == predictor.fingerprint


def test_checkpoints_of_different_models_are_not_averaged(tmp_path: Path) -> None:
    other = checkpoint(tmp_path / "b.pt", 0, Settings(dim=16, layers=2, relation_layers=1))
    with pytest.raises(ConfigError, match="different models"):
        ship([checkpoint(tmp_path / "a.pt", 0), other], {}, tmp_path / "out")
