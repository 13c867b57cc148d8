"""Completes the families again and again, each time killed a little later, until a call gets to its end.

The kills are of processes forked from this one, which has everything imported: three of them take no longer than one.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import numba
import torch

from contextpool.context.counts import Statistics
from contextpool.evaluate.calibration import Calibration
from contextpool.graph.graph import Graph
from contextpool.predict import Predictor
from contextpool.predict import complete as module
from learning_worlds import CONTEXTS, families, new_model


def family_predictor() -> tuple[Predictor, Graph]:
    """A small model with random weights on the families, the same in every process."""
    graph = Graph.from_triples(families(3))
    model = new_model("nbfnet", graph, CONTEXTS["gate"])
    calibration = Calibration(1.0, (0.0, 0.05), (0.0, 1.0))
    numbers = Statistics.of(graph)
    return Predictor(model, graph.relation_vocabulary, CONTEXTS["gate"], numbers, calibration), graph


def small_parts(**changed: object) -> module.CompletionSettings:
    """Settings of many parts for few questions."""
    plain = {
        "min_probability": 0.3,
        "k": 1,
        "paths": True,
        "part_size": 8,
        "path_part_size": 8,
        "batch_size": 3,
    }
    return module.CompletionSettings(**{**plain, **changed})  # type: ignore[arg-type]


def main() -> None:
    output, kills = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    numba.set_num_threads(1)
    for kill in range(kills + 1):
        reading, writing = os.pipe()
        child = os.fork()
        if not child:

            def tell(stage: str, done: int, total: int, pipe: int = writing) -> None:
                os.write(pipe, b".")
                time.sleep(0.01)

            predictor, graph = family_predictor()
            module.complete(predictor, graph, output, small_parts(), progress=tell)
            os._exit(0)
        os.close(writing)
        left = 3 + 4 * kill if kill < kills else 1 << 20
        while left and os.read(reading, 1):
            left -= 1
        if not left:
            os.kill(child, signal.SIGKILL)
        os.close(reading)
        status = os.waitpid(child, 0)[1]
        print(
            "killed" if os.WIFSIGNALED(status) else f"ended {os.waitstatus_to_exitcode(status)}", flush=True
        )


if __name__ == "__main__":
    main()
