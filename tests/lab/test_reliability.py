"""Claimed against observed, on cases whose bins one can count by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from contextpool.errors import ConfigError
from contextpool.evaluate.calibration import Calibration
from contextpool.triples.filters import KnownAnswers
from contextpool.triples.labels import Vocabulary
from contextpool.triples.store import Triples
from lab.reliability import binned, reliability


def test_bins_hold_means_and_counts() -> None:
    probability = np.array([0.0, 0.1, 0.19, 0.5, 0.99, 1.0])
    hit = np.array([0.0, 0.0, 1.0, 0.5, 1.0, 1.0])
    found = binned(probability, hit, (0.0, 0.2, 0.9, 1.0))
    assert [(one.low, one.high, one.count) for one in found.bins] == [
        (0.0, 0.2, 3),
        (0.2, 0.9, 1),
        (0.9, 1.0, 2),
    ]
    assert found.bins[0].claimed == pytest.approx(0.29 / 3)
    assert [one.observed for one in found.bins] == pytest.approx([1 / 3, 0.5, 1.0])
    assert found.num_points == 6
    assert found.to_dict()["bins"][1]["claimed"] == 0.5


def test_empty_bins_are_left_out() -> None:
    assert len(binned(np.array([0.5]), np.array([1.0])).bins) == 1


@pytest.mark.parametrize("edges", [(0.0,), (0.0, 0.0, 1.0), (1.0, 0.0)])
def test_edges_have_to_ascend(edges: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match="ascend"):
        binned(np.array([0.5]), np.array([1.0]), edges)


def test_a_scorer_that_knows_its_chances_is_reliable_and_one_that_boasts_is_not() -> None:
    """Scores are the logarithms of how often each entity is the answer; the entity asked plays no part."""
    rng = np.random.default_rng(0)
    chance = np.array([0.5, 0.3, 0.15, 0.05])
    entities = Vocabulary.of(
        [f"a{number}" for number in range(4)] + [f"h{number:04}" for number in range(3000)]
    )
    relations = Vocabulary.of(["r"], "relation")
    tails = rng.choice(4, size=3000, p=chance)
    ids = np.stack([np.arange(4, 3004), np.zeros(3000), tails], axis=1).astype(np.int32)
    triples = Triples(entities, relations, ids)
    logits = torch.full((len(entities),), -30.0)
    logits[:4] = torch.from_numpy(chance).log().float()

    def scorer(head: torch.Tensor, relation: torch.Tensor) -> torch.Tensor:
        return torch.where(relation[:, None] == 0, logits, torch.zeros_like(logits))

    plain, sharp = Calibration(1.0, (0.0, 1.0), (0.0, 1.0)), Calibration(0.3, (0.0, 1.0), (0.0, 1.0))
    known = KnownAnswers.of(triples)
    honest, boasting = (reliability(scorer, triples, known, one, top=4) for one in (plain, sharp))
    assert honest.error < 0.02 < 0.05 < boasting.error
    for one in honest.bins:
        assert one.observed == pytest.approx(one.claimed, abs=0.03)
