"""Models and graphs by name. A swap replaces the whole snapshot; who holds the old one finishes on it."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from contextpool.errors import ConfigError, ContextPoolError, InputError, UnknownNameError
from contextpool.predict.answers import UnknownRelations
from contextpool.predict.names import NO_NAMES
from contextpool.serve.completion import Completions
from contextpool.serve.engine import Engine, LoadedGraph, LoadedModel
from contextpool.serve.sources import GraphSource, ModelSource

Source = TypeVar("Source", ModelSource, GraphSource)


class SwapUnderWayError(ContextPoolError):
    """Another reload has not finished."""


@dataclass(frozen=True, eq=False)
class Snapshot:
    """What is served at a moment; never changes."""

    models: Mapping[str, LoadedModel]
    graphs: Mapping[str, LoadedGraph]
    engines: Mapping[tuple[str, str], Engine | InputError]
    """An error where the model does not know the graph's relations."""

    def model(self, name: str | None) -> LoadedModel:
        return self.models[_chosen(name, self.models, "model")]

    def graph(self, name: str | None) -> LoadedGraph:
        return self.graphs[_chosen(name, self.graphs, "graph")]

    def engine(self, model: str | None, graph: str | None) -> Engine:
        """Of a model and a graph; each may be left out where the first one is meant."""
        found = self.engines[self.model(model).name, self.graph(graph).name]
        if isinstance(found, InputError):
            raise found
        return found


class Registry:
    """Loads what the sources name, all of it before anything is served."""

    def __init__(
        self,
        models: Sequence[ModelSource],
        graphs: Sequence[GraphSource],
        on_unknown: UnknownRelations = "error",
    ) -> None:
        self._models, self._graphs = _by_name(models, "model"), _by_name(graphs, "graph")
        self._on_unknown: UnknownRelations = on_unknown
        self._swapping = threading.Lock()
        self.snapshot = self._snapshot(
            {name: _load_model(source) for name, source in self._models.items()},
            {name: _load_graph(source) for name, source in self._graphs.items()},
        )

    def remarks(self) -> list[str]:
        """What whoever starts the server should know: what fits nowhere, and what was left out."""
        told = []
        for (model, graph), engine in self.snapshot.engines.items():
            if isinstance(engine, InputError):
                told.append(f"model {model} does not answer on graph {graph}: {engine}")
            elif engine.left_out:
                told.append(
                    f"model {model} leaves out {engine.left_out:,} facts of graph {graph}: unknown relations"
                )
        return told

    def reload(self, model: str | None = None, graph: str | None = None) -> Snapshot:
        """Load a model or a graph again, or all where neither is named. What was served stays if it cannot."""
        models: Collection[str] = _names_of(model, self._models, "model", everything=graph is None)
        graphs: Collection[str] = _names_of(graph, self._graphs, "graph", everything=model is None)
        if not self._swapping.acquire(blocking=False):
            raise SwapUnderWayError("another reload is under way; ask again when it has finished.")
        try:
            old = self.snapshot
            self.snapshot = self._snapshot(
                {**old.models, **{name: _load_model(self._models[name]) for name in models}},
                {**old.graphs, **{name: _load_graph(self._graphs[name]) for name in graphs}},
                old,
            )
            return self.snapshot
        finally:
            self._swapping.release()

    def _snapshot(
        self,
        models: Mapping[str, LoadedModel],
        graphs: Mapping[str, LoadedGraph],
        old: Snapshot | None = None,
    ) -> Snapshot:
        engines: dict[tuple[str, str], Engine | InputError] = {}
        for graph in graphs.values():
            for model in models.values():
                engines[model.name, graph.name] = self._engine(model, graph, old)
            fitting = [engines[name, graph.name] for name in models]
            if all(isinstance(one, InputError) for one in fitting):
                raise ConfigError(f"graph {graph.name!r} fits no model: {fitting[0]}")
        return Snapshot(models, graphs, engines)

    def _engine(self, model: LoadedModel, graph: LoadedGraph, old: Snapshot | None) -> Engine | InputError:
        kept = None if old is None else old.engines[model.name, graph.name]
        if isinstance(kept, Engine) and kept.model is model and kept.graph is graph:
            return kept
        try:
            engine = Engine(model, graph, self._on_unknown)
        except InputError as error:
            return error
        engine.warm_up()
        return engine


def _load_model(source: ModelSource) -> LoadedModel:
    predictor = source.load()
    assert predictor.fingerprint  # counted now rather than in the first answer
    return LoadedModel(source.name, predictor, time.time())


def _load_graph(source: GraphSource) -> LoadedGraph:
    graph, names = source.read(), source.read_names()
    return LoadedGraph(source.name, graph, names, Completions(graph, names or NO_NAMES))


def _chosen(name: str | None, known: Mapping[str, object], kind: str) -> str:
    chosen = next(iter(known)) if name is None else name
    if chosen not in known:
        raise UnknownNameError(kind, chosen, known)
    return chosen


def _names_of(
    name: str | None, known: Mapping[str, object], kind: str, *, everything: bool
) -> Collection[str]:
    if name is None:
        return list(known) if everything else []
    return [_chosen(name, known, kind)]


def _by_name(sources: Sequence[Source], kind: str) -> dict[str, Source]:
    found = {source.name: source for source in sources}
    if len(found) < len(sources):
        raise ConfigError(f"two of the {kind}s have the same name; name them apart with NAME=...")
    if not found:
        raise ConfigError(f"no {kind} to serve; name at least one.")
    return found
