"""What is fitted on the graph at hand: calibrations and plausibility, on facts of the graph, each hidden from itself.

Fits are kept in memory as long as their graph is, and on disk by what they depend on: the facts and labels of the
graph, and the model. A cache folder that cannot be written costs a fit in every process, and nothing else.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from contextpool.errors import ContextPoolError
from contextpool.evaluate.calibration import Calibration
from contextpool.evaluate.claims import START, Floats, Plausibility, fit_plausibility
from contextpool.evaluate.own_facts import calibrate_on_facts, questions_at_once
from contextpool.graph.graph import Graph
from contextpool.predict.inputs import Newest, graph_digest
from contextpool.train.files import durable_file, read_json
from contextpool.triples.catalog import cache_folder

if TYPE_CHECKING:
    from contextpool.predict.predictor import Predictor

Fit = TypeVar("Fit", Calibration, Plausibility)
FACTS_AT_FIRST = 100
"""The most facts that are asked before a first answer."""
FACTS_ON_DEMAND = 2000
EDGES_AT_FIRST = 5_000_000
"""Edges that these may walk, about a second of one core: a larger graph is asked fewer facts."""
FEWEST_FACTS = 25
FORMAT = "contextpool fit 3"
PLAIN = Calibration(1.0, (0.0, 1.0), (0.0, 1.0), facts=0)
"""The softmax of the scores as it is."""
Progress = Callable[[int, int], None]


def facts_at_first(graph: Graph) -> int:
    """How many facts are asked before a first answer; 0 where even the fewest would take long."""
    pairs = (2 * graph.num_relations) ** 2  # nine of them take as long as an edge
    count = min(FACTS_AT_FIRST, EDGES_AT_FIRST // (2 * max(1, graph.num_edges + pairs // 9)))
    return count if count >= FEWEST_FACTS else 0


class Fits:
    """The fits of one predictor, by graph. Threads may share one; asking for more facts does not hold up others."""

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor
        self._best: WeakKeyDictionary[Graph, dict[str, Any]] = WeakKeyDictionary()
        self._made: Newest[Any] = Newest(16)

    def calibration(self, graph: Graph, facts: int) -> Calibration:
        """Fitted on so many facts of a prepared graph, or on more; as stored with the model, or plain, on too few."""

        def fit(count: int) -> Calibration:
            found = None
            if count >= FEWEST_FACTS:
                model, builder = self._predictor.model, self._predictor.builder(graph)
                drawn = graph.as_triples().sample(count)
                found = calibrate_on_facts(model, builder, drawn, questions_at_once(graph)).calibration
            return found or replace(self._predictor.calibration or PLAIN, facts=0)

        return self._fitted(Calibration, graph, facts, fit)

    def keep(self, graph: Graph, calibration: Calibration) -> None:
        """Use a calibration that was fitted elsewhere, for as long as nobody asks for more facts."""
        self._best.setdefault(graph, {})["calibration"] = calibration

    def plausibility(
        self, graph: Graph, facts: int, every: Floats | None = None, progress: Progress | None = None
    ) -> Plausibility:
        """Fitted on so many facts of a prepared graph, or on more; `every` [T, 10]: the features of all its facts."""

        def fit(count: int) -> Plausibility:
            if not count:
                return Plausibility(tuple(START.tolist()))
            model, builder, ids = (
                self._predictor.model,
                self._predictor.builder(graph),
                graph.as_triples().ids,
            )
            drawn = np.sort(np.random.default_rng(0).permutation(len(ids))[:count])
            own = None if every is None else every[drawn]
            return fit_plausibility(
                model, builder, ids[drawn], questions_at_once(graph), own, progress=progress
            )

        return self._fitted(Plausibility, graph, facts, fit)

    def _fitted(self, kind: type[Fit], graph: Graph, facts: int, fit: Callable[[int], Fit]) -> Fit:
        name, count = kind.__name__.lower(), min(facts, graph.num_triples)
        held: Fit | None = self._best.get(graph, {}).get(name)
        if held is not None and (held.facts or 0) >= count:
            return held
        made: Fit = self._made.get((graph, name, count), lambda: self._stored(kind, graph, count, fit))
        best = self._best.setdefault(graph, {})
        if name not in best or (best[name].facts or 0) <= (made.facts or 0):
            best[name] = made
        return best[name]  # type: ignore[no-any-return]

    def _stored(self, kind: type[Fit], graph: Graph, count: int, fit: Callable[[int], Fit]) -> Fit:
        """What the disk holds for as many facts or more, or else a fit, put there."""
        if not count:
            return fit(count)
        name = kind.__name__.lower()
        about = {
            "format": FORMAT, "kind": name, "graph": graph_digest(graph), "model": self._predictor.fingerprint
        }  # fmt: skip
        path = cache_folder() / "fits" / f"{hashlib.sha256(json.dumps(about).encode()).hexdigest()[:40]}.json"
        found = _read(path, about, count)
        if found is not None:
            try:
                return kind.from_dict(found["fit"])
            except (ContextPoolError, KeyError, TypeError):
                pass  # damaged: fitted and written anew
        made = fit(count)
        _write(path, {**about, "asked": count, "fit": made.to_dict()})
        return made


def _read(path: Path, about: dict[str, Any], count: int) -> dict[str, Any] | None:
    try:
        found = read_json(path)
    except (ContextPoolError, OSError):
        return None
    is_it = isinstance(found, dict) and {key: found.get(key) for key in about} == about
    asked = found.get("asked") if is_it else None
    return found if isinstance(asked, int) and asked >= count else None


def _write(path: Path, content: dict[str, Any]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with durable_file(path) as stream:
            stream.write(json.dumps(content).encode())
    except (OSError, ContextPoolError):
        pass  # in memory only
