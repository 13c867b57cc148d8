"""Models and graphs by name. A swap replaces the whole snapshot; who holds the old one finishes on it."""

from __future__ import annotations

import atexit
import contextlib
import re
import threading
import time
import unicodedata
import weakref
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, count, islice
from pathlib import Path
from typing import TypeVar

from contextpool.errors import ConfigError, ContextPoolError, InputError, UnknownNameError, shortened
from contextpool.experiment import load
from contextpool.graph.graph import Graph
from contextpool.interop.hub import local_folder
from contextpool.predict import Names, Predictor
from contextpool.predict.answers import Selection, UnknownRelations
from contextpool.predict.names import NO_NAMES
from contextpool.serve.examples import example_questions
from contextpool.serve.rehearsal import rehearse
from contextpool.serve.settings import MOST_ADDED

LONGEST_NAME = 100
SECONDS_TO_END = 10.0
"""For a calibration that is under way, at the end of the process."""


def check_name(name: str, kind: str) -> None:
    """A name has to fit into an address and a line of metrics."""
    if not name or len(name) > LONGEST_NAME or not name.isprintable():
        raise ConfigError(
            f"{kind} name {shortened(name)}: take 1 to {LONGEST_NAME} printable characters (NAME=...)."
        )


@dataclass(frozen=True)
class ModelSource:
    """A run folder, or the address of one, under a name; no path stands for the model that comes with contextpool."""

    name: str
    path: Path | None
    device: str = "cpu"

    def __post_init__(self) -> None:
        check_name(self.name, "model")

    def load(self, *, rehearsed: bool = False) -> Predictor:
        """What the folder holds now. A link is followed once, so that one that changes meanwhile does no harm."""
        folder = local_folder(self.path).resolve()
        if rehearsed:
            rehearse("model", str(folder))
        return load(folder, device=self.device)


@dataclass(frozen=True)
class GraphSource:
    """A graph under a name; `read` gives its facts, `read_names` what people call its entities."""

    name: str
    read: Callable[[], Graph]
    read_names: Callable[[], Names | None] = lambda: None
    place: str = ""
    """The file or folder that `read` reads, where it is one."""

    def __post_init__(self) -> None:
        check_name(self.name, "graph")

    def load(self, *, rehearsed: bool = False) -> Graph:
        """The facts as they are now."""
        if rehearsed and Path(self.place.partition("?")[0]).exists():
            rehearse("graph", self.place)
        return self.read()


Source = TypeVar("Source", ModelSource, GraphSource)
Starts = list[tuple[str, str]]
"""(folded text, label), sorted."""
LONGEST_START, MOST_WORDS = 80, 40
_WORD_START = re.compile(r"(?<=[^\w])\w")


def folded(text: str) -> str:
    """Without case and accents, as people type it."""
    parts = unicodedata.normalize("NFKD", text)
    return "".join(one for one in parts if not unicodedata.combining(one)).casefold()


class Completions:
    """Completes the names of one graph's entities. O(N log N) to build, O(log N + limit) to ask.

    Of a name the beginnings of its first words count, as much of each as anybody types: what is kept of a label does
    not grow with its square.
    """

    def __init__(self, graph: Graph, names: Names) -> None:
        self._labels = graph.entities
        self._first: Starts = []
        self._later: Starts = []
        for label in graph.entities:
            for text in {folded(label), folded(names.shown(label))}:
                self._first.append((text[:LONGEST_START], label))
                words = islice(_WORD_START.finditer(text), MOST_WORDS)
                self._later += [(text[one.start() : one.start() + LONGEST_START], label) for one in words]
        self._first.sort()
        self._later.sort()

    def starting_with(self, prefix: str, limit: int) -> tuple[list[str], bool]:
        """Labels, those that start so before those with such a word; and whether there are more."""
        wanted = folded(prefix)[:LONGEST_START]
        found: dict[str, None] = {}
        for label in chain(_starting(self._first, wanted), _starting(self._later, wanted)):
            found[label] = None
            if len(found) > limit:
                break
        return list(found)[:limit], len(found) > limit


def _starting(starts: Starts, prefix: str) -> Iterator[str]:
    for place in range(bisect_left(starts, (prefix,)), len(starts)):
        text, label = starts[place]
        if not text.startswith(prefix):
            return
        yield label


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A predictor under its name."""

    name: str
    predictor: Predictor
    loaded_at: float
    """Seconds since 1970."""

    @property
    def fingerprint(self) -> str:
        """Short, but no two models that anybody compares share it."""
        return self.predictor.fingerprint[:16]

    @property
    def reference(self) -> dict[str, str]:
        """How an answer names the model that gave it."""
        return {"name": self.name, "fingerprint": self.fingerprint}


@dataclass(frozen=True, eq=False)
class LoadedGraph:
    """A graph under its name, as it was read."""

    name: str
    graph: Graph
    names: Names
    completions: Completions


class _Beside:
    """Work beside the answers, which ends with the process: compiled code that runs on at its end would abort it."""

    def __init__(self) -> None:
        self._ending, self._threads = threading.Event(), weakref.WeakSet[threading.Thread]()
        atexit.register(self._end)

    def start(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name="calibrate", daemon=True)
        self._threads.add(thread)
        thread.start()

    def go_on(self, *_: int) -> None:
        if self._ending.is_set():
            raise InterruptedError

    def _end(self) -> None:
        self._ending.set()
        for thread in list(self._threads):
            thread.join(SECONDS_TO_END)


_beside = _Beside()


class Engine:
    """A model made ready for a graph; never changes, so a request that holds one is answered by it alone."""

    def __init__(self, model: LoadedModel, graph: LoadedGraph, on_unknown: UnknownRelations) -> None:
        self.model, self.graph = model, graph
        prepared, self.left_out = model.predictor.prepared(graph.graph, on_unknown=on_unknown)
        self.asking = model.predictor.asking(prepared, graph.names)
        self._warm_up()
        if model.predictor.relations is None:
            _beside.start(self._calibrate)

    @cached_property
    def examples(self) -> list[tuple[int, int]]:
        """Questions (entity, relation, ?) of the graph to begin with, by id; asked for in one thread."""
        return example_questions(self.asking)

    def _calibrate(self) -> None:
        """Meanwhile: what answers rest on until then is what could be asked before the first of them."""
        with contextlib.suppress(Exception):  # as it was; a question would tell what is wrong
            self.model.predictor.calibrate(self.asking.graph, progress=_beside.go_on)

    def _warm_up(self) -> None:
        """Answer one question, so that the first request finds everything counted and compiled."""
        prepared = self.asking.graph
        if prepared.num_edges:
            ids = int(prepared.edge_head[0]), int(prepared.edge_relation[0]), -1
            self.asking.answer([(ids, self.asking.choose(Selection(k=1)))])


class SwapUnderWayError(ContextPoolError):
    """Another reload has not finished."""


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The models and graphs that are served at one moment; never changes."""

    models: Mapping[str, LoadedModel]
    graphs: Mapping[str, LoadedGraph]
    engines: Mapping[tuple[str, str], Engine | InputError]
    """An error where the model does not know the graph's relations."""

    def model(self, name: str | None) -> LoadedModel:
        return self.models[_chosen(name, self.models, "model")]

    def graph(self, name: str | None) -> LoadedGraph:
        return self.graphs[_chosen(name, self.graphs, "graph")]

    def engine(self, model: str | None, graph: str | None) -> Engine:
        """The engine of a model and a graph; None stands for the first one."""
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
        self._added: list[str] = []
        self._swapping = threading.Lock()
        self.snapshot = self._snapshot(
            {name: _load_model(source) for name, source in self._models.items()},
            {name: _load_graph(source) for name, source in self._graphs.items()},
        )

    def remarks(self) -> list[str]:
        """Notes for the operator: models that do not fit a graph, and facts that were left out."""
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
        """Load a model or a graph again, or all where neither is named. What was served stays if it cannot.

        A process of its own loads each of them first, so that what ends a process does not end this one.
        """
        models: Collection[str] = _names_of(model, self._models, "model", everything=graph is None)
        graphs: Collection[str] = _names_of(graph, self._graphs, "graph", everything=model is None)
        with self._swap():
            old = self.snapshot
            self.snapshot = self._snapshot(
                {**old.models, **{name: _load_model(self._models[name], True) for name in models}},
                {**old.graphs, **{name: _load_graph(self._graphs[name], True) for name in graphs}},
                old,
            )
            return self.snapshot

    def add(self, name: str, graph: Graph) -> LoadedGraph:
        """Serve another graph, by this name or one like it; of those that were added the newest few are kept."""
        check_name(name, "graph")
        with self._swap():
            old = self.snapshot
            free = (f"{name} ({number})" if number > 1 else name for number in count(1))
            loaded = _loaded(next(one for one in free if one not in old.graphs), graph, NO_NAMES)
            added = [*self._added, loaded.name]
            gone = added[:-MOST_ADDED]
            kept = {name: one for name, one in old.graphs.items() if name not in gone}
            self.snapshot = self._snapshot(old.models, {**kept, loaded.name: loaded}, old)
            self._added = added[-MOST_ADDED:]
            return loaded

    @contextlib.contextmanager
    def _swap(self) -> Iterator[None]:
        """One at a time; a second one is refused."""
        if not self._swapping.acquire(blocking=False):
            raise SwapUnderWayError("another graph or model is being loaded; ask again when that is done.")
        try:
            yield
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
        kept = None if old is None else old.engines.get((model.name, graph.name))
        if isinstance(kept, Engine) and kept.model is model and kept.graph is graph:
            return kept
        try:
            return Engine(model, graph, self._on_unknown)
        except InputError as error:
            return error


def _load_model(source: ModelSource, rehearsed: bool = False) -> LoadedModel:
    predictor = source.load(rehearsed=rehearsed)
    assert predictor.fingerprint  # counted now rather than in the first answer
    return LoadedModel(source.name, predictor, time.time())


def _load_graph(source: GraphSource, rehearsed: bool = False) -> LoadedGraph:
    graph = source.load(rehearsed=rehearsed)
    return _loaded(source.name, graph, source.read_names() or NO_NAMES)


def _loaded(name: str, graph: Graph, names: Names) -> LoadedGraph:
    return LoadedGraph(name, graph, names, Completions(graph, names))


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
