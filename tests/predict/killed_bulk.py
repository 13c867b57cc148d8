"""Answers a file of questions in a process of its own, slowly enough to be killed in the middle of it."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch

from contextpool.context.counts import Statistics
from contextpool.graph.graph import Graph
from contextpool.predict import Predictor
from contextpool.predict.answers import Selection
from contextpool.predict.bulk import Bulk, BulkSettings
from learning_worlds import CONTEXTS, families, new_model


def family_bulk(kind: str = "jsonl", shard_size: int = 7, batch_size: int = 3, **settings: str) -> Bulk:
    """A small model with random weights on the families, the same in every process."""
    torch.set_num_threads(1)
    graph = Graph.from_triples(families())
    model = new_model("nbfnet", graph, CONTEXTS["gate"])
    predictor = Predictor(model, graph.relation_vocabulary, CONTEXTS["gate"], Statistics.of(graph))
    options = BulkSettings(kind, shard_size=shard_size, batch_size=batch_size, **settings)  # type: ignore[arg-type]
    return Bulk(predictor, graph, Selection(3), options)


def main() -> None:
    questions, output = Path(sys.argv[1]), Path(sys.argv[2])

    def slowly(done: int, total: int) -> None:
        print(done, flush=True)
        time.sleep(0.05)

    family_bulk().write(questions, output, progress=slowly)


if __name__ == "__main__":
    main()
