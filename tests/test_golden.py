"""Four stored runs, trained before the sources were rearranged, still give the scores that they gave then.

Within 1e-6 everywhere; with CONTEXTPOOL_GOLDEN=exact, on the machine that made them, to the bit.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import numba
import pytest
import torch
from safetensors.torch import load_file

from golden.make import HERE, RUNS, golden_scores


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before, compiled = torch.get_num_threads(), numba.get_num_threads()
    torch.set_num_threads(1)
    numba.set_num_threads(1)
    yield
    torch.set_num_threads(before)
    numba.set_num_threads(compiled)


@pytest.mark.parametrize("name", RUNS)
def test_a_stored_run_gives_the_scores_it_gave(name: str) -> None:
    stored = load_file(HERE / "scores.safetensors")[name]
    scores = golden_scores(HERE / name)
    if os.environ.get("CONTEXTPOOL_GOLDEN") == "exact":
        assert torch.equal(scores, stored)
    torch.testing.assert_close(scores, stored, atol=1e-6, rtol=1e-6)
