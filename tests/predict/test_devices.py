"""Answers and explanations on a CUDA device are those of the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

import contextpool as cp
from contextpool.graph.graph import Graph
from contextpool.predict import Question
from learning_worlds import one_thread as one_thread
from world_model import new_world as new_world
from world_model import world as world
from world_model import world_run as world_run


@pytest.mark.gpu
def test_a_cuda_device_answers_and_explains_like_the_cpu(world_run: Path, new_world: Graph) -> None:
    here, there = cp.load(world_run), cp.load(world_run, device="cuda")
    questions = [
        Question("Belarus", "currency", None), Question(None, "currency", "Euro"), Question("Minsk", None, "Belarus"),
    ]  # fmt: skip
    options = {"k": 5, "known": True}
    for one, other in zip(
        here.predict_batch(new_world, questions, **options),  # type: ignore[arg-type]
        there.predict_batch(new_world, questions, **options),  # type: ignore[arg-type]
        strict=True,
    ):
        assert [answer.score for answer in other] == pytest.approx([answer.score for answer in one], abs=1e-3)
    fact = ("Belarus", "currency", "Belarusian Ruble")
    why, why_there = here.explain(new_world, *fact), there.explain(new_world, *fact)
    assert why_there.paths[0].strength == pytest.approx(why.paths[0].strength, rel=0.02)
    assert why_there.context == why.context or [one.relation for one in why_there.context] == [
        one.relation for one in why.context
    ]
    assert (why_there.dropped, why_there.candidate) == (why.dropped, why.candidate)
