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
    from contextpool.predict.frontier import Frontier
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


def facts_at_first(graph: Graph, frontier: Frontier | None = None) -> int:
    """How many facts are asked before a first answer; 0 where even the fewest would take long.

    Of walks with a cap, what the cap allows and the neighborhood of what it reaches is walked.
    """
    pairs = (2 * graph.num_relations) ** 2  # nine of them take as long as an edge
    edges = graph.num_edges
    if frontier is not None and frontier.cap:
        edges = min(edges, frontier.cap * frontier.num_hops)
    count = min(FACTS_AT_FIRST, EDGES_AT_FIRST // (2 * max(1, edges + pairs // 9)))
    return count if count >= FEWEST_FACTS else 0


class Fits:
    """The fits of one predictor, by graph. Threads may share one; asking for more facts does not hold up others."""

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor
        self._best: WeakKeyDictionary[Graph, dict[str, Any]] = WeakKeyDictionary()
        self._made: Newest[Any] = Newest(16)

    def calibration(
        self, graph: Graph, facts: int, frontier: Frontier | None = None, progress: Progress | None = None
    ) -> Calibration:
        """Fitted on so many facts of a prepared graph, or on more; as stored with the model, or plain, on too few.

        With a frontier it is that of walks with its cap, fitted on `FACTS_AT_FIRST` at the most.
        """

        def fit(count: int) -> Calibration:
            found = None
            if count >= FEWEST_FACTS and frontier is not None:
                found = frontier.fit(count)
            elif count >= FEWEST_FACTS:
                model, builder = self._predictor.model, self._predictor.builder(graph)
                drawn = graph.as_triples().sample(count)
                size = questions_at_once(graph)
                found = calibrate_on_facts(model, builder, drawn, size, progress).calibration
            return found or replace(self._predictor.calibration or PLAIN, facts=0)

        most = facts if frontier is None else min(facts, FACTS_AT_FIRST)
        return self._fitted(Calibration, graph, most, fit, _walked(frontier))

    def keep(self, graph: Graph, calibration: Calibration, frontier: Frontier | None = None) -> None:
        """Use a calibration that was fitted elsewhere, for as long as nobody asks for more facts."""
        self._best.setdefault(graph, {})[f"calibration{_walked(frontier)}"] = calibration

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

    def _fitted(
        self, kind: type[Fit], graph: Graph, facts: int, fit: Callable[[int], Fit], walked: str = ""
    ) -> Fit:
        name, count = kind.__name__.lower() + walked, min(facts, graph.num_triples)
        held: Fit | None = self._best.get(graph, {}).get(name)
        if held is not None and (held.facts or 0) >= count:
            return held
        made: Fit = self._made.get((graph, name, count), lambda: self._stored(kind, name, graph, count, fit))
        best = self._best.setdefault(graph, {})
        if name not in best or (best[name].facts or 0) <= (made.facts or 0):
            best[name] = made
        return best[name]  # type: ignore[no-any-return]

    def _stored(self, kind: type[Fit], name: str, graph: Graph, count: int, fit: Callable[[int], Fit]) -> Fit:
        """What the disk holds for as many facts or more, or else a fit, put there."""
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
        if count:
            _write(path, {**about, "asked": count, "fit": made.to_dict()})
        return made


def _walked(frontier: Frontier | None) -> str:
    """What the name of a fit says of the walks it belongs to."""
    return "" if frontier is None else f" of walks with {frontier.cap or 'all'} edges a hop"


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
