"""Models that look at the graph instead of being trained: what they found is validated and told once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from contextpool.graph.graph import Graph
from contextpool.models.base import Learning, LinkPredictor
from contextpool.train.learning import learn_from_graph
from contextpool.train.progress import Progress
from contextpool.train.run_folder import RunFolder


@dataclass(frozen=True)
class NoSettings:
    """Nothing to set."""


class Counter(LinkPredictor):
    """Finds as many things as it is given steps."""

    name: ClassVar[str] = "counter"
    config_class: ClassVar[type] = NoSettings

    def __init__(self, steps: int) -> None:
        super().__init__(1)
        self.steps, self.found = steps, 0

    def learn(self, graph: Graph, seed: int = 0) -> Iterator[Learning]:
        for step in range(1, self.steps + 1):
            self.found = seed + step
            yield Learning(step / self.steps, self.steps - step, {"found": self.found})


GRAPH = Graph.from_triples([("a", "r", "b")])


def validated(model: LinkPredictor) -> float:
    return model.found / 100  # type: ignore[operator]


def test_what_was_found_is_validated_once_and_is_the_outcome() -> None:
    told: list[Progress] = []
    outcome = learn_from_graph(Counter(5), GRAPH, validated, seed=10, progress=told.append)
    assert outcome is not None
    assert outcome.history == [{"epoch": 1, "valid_mrr": 0.15, "found": 15}]
    assert (outcome.best_mrr, outcome.best_epoch, outcome.epochs) == (0.15, 1, 1)
    assert [progress.step for progress in told] == [200, 400, 600, 800, 1000]
    assert [progress.mrr for progress in told] == [None, None, None, None, 0.15]
    assert told[-1].seconds_left == 0


def test_a_model_with_nothing_to_learn_has_no_outcome() -> None:
    def never(model: LinkPredictor) -> float:
        pytest.fail("there is nothing to validate")

    class Nothing(LinkPredictor):
        name = "nothing"
        config_class = NoSettings

    assert learn_from_graph(Nothing(1), GRAPH, never) is None


def test_events_go_to_the_run_and_to_whoever_listens(tmp_path: Path) -> None:
    heard: list[dict[str, Any]] = []
    with RunFolder.create(tmp_path / "run", {}) as run:
        learn_from_graph(Counter(4), GRAPH, validated, run=run, on_event=heard.append)
        assert list(run.events()) == heard
    (event,) = heard
    assert (event["event"], event["epoch"], event["found"]) == ("learned", 1, 4)
    assert event["seconds"] >= 0
