"""All links that a graph seems to lack: likely questions, asked of the model, cut, with the best path of each.

    links.parquet.parts/links/part-00000.parquet ...    what some questions gave: links above the probability wanted
    links.parquet.parts/paths/part-00000.parquet ...    the best paths of some of the links that are kept
    links.parquet                                       all of it, once it is there; the parts are gone then

Questions are (head, relation, ?), or (?, relation, tail) for a relation named `r^-1`, in the order of their labels.
Which are worth asking is counted beforehand (`context.pairs`): no link is likelier than that its question has another
answer.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from contextpool.context.counts import Cooccurrence
from contextpool.context.pairs import Pairs, likely_pairs
from contextpool.errors import ConfigError, DataError, setting
from contextpool.evaluate.calibration import Calibration
from contextpool.explain.evidence import walk_text
from contextpool.explain.explainer import best_path
from contextpool.graph.graph import Graph
from contextpool.graph.relations import inverse
from contextpool.predict.answers import AnyAnswer, Selection, UnknownRelations
from contextpool.predict.asking import Asking, Ids
from contextpool.predict.inputs import graph_digest
from contextpool.predict.links import (
    NAMES,
    PATH,
    Likeliest,
    Links,
    likeliest,
    link_file_of,
    schema_of,
    write_links,
)
from contextpool.predict.names import Names
from contextpool.predict.shards import Manifest, begun_with
from contextpool.predict.workers import Workers
from contextpool.train.files import FolderLock, durable_file, reason

if TYPE_CHECKING:
    from contextpool.predict.predictor import Predictor

Stage = Literal["answering", "finding paths"]
Progress = Callable[[Stage, int, int], None]
"""Called with (stage, done, in all): questions, then links whose paths are looked for."""
MIN_PROBABILITY = 0.5
QUESTIONS_A_FACT, FEWEST_FACTS, MOST_FACTS = 20, 100, 2000
"""A model without a calibration of its own is calibrated on a fact for so many questions."""
MIN_CHANCE = 0.2
"""Of a question to have another answer, where no probability is asked for."""


@dataclass(frozen=True)
class CompletionSettings:
    """Which links are wanted; everything here changes what comes out."""

    min_probability: float | None = None
    """Links below it are left out; None for 0.5, and for any with `top`."""
    top: int | None = None
    """Only so many in all, the likeliest first; None for all, in the order of their questions."""
    relations: tuple[str, ...] | None = None
    """Only these; None for all, asked from the head. `r^-1` asks from the tail."""
    entities: tuple[str, ...] | None = None
    """Only questions about these; None for all."""
    max_questions: int | None = None
    """The likeliest so many; None for all."""
    k: int = 10
    """The most links of one question."""
    paths: bool = False
    """With the best path of every link."""
    on_unknown: UnknownRelations = "error"
    cap: int | None = None
    """Edges that a walk keeps in each hop; None for all."""
    batch_size: int = 32
    part_size: int = 256
    """Questions a part: what a kill costs."""
    path_part_size: int = 32

    def __post_init__(self) -> None:
        chosen = self.min_probability
        if chosen is not None and not 0 < chosen <= 1:
            raise ConfigError(
                f"{setting('min_probability')} is {chosen}; it has to be above 0 and at most 1."
            )
        for key in ("top", "max_questions", "batch_size", "part_size", "path_part_size"):
            value = getattr(self, key)
            if value is not None and value < 1:
                raise ConfigError(f"{setting(key)} is {value}; it has to be at least 1.")
        for key in ("relations", "entities"):
            if getattr(self, key) == ():
                raise ConfigError(
                    f"{key}: the list is empty, so nothing is asked. Name some, or leave it out."
                )

    @property
    def least(self) -> float:
        """The probability of a link at least."""
        return self.min_probability or (0.0 if self.top else MIN_PROBABILITY)

    @property
    def least_chance(self) -> float:
        """The chance of a question at least; below `least` no question gives a link."""
        return self.least or MIN_CHANCE


@dataclass(frozen=True)
class Asked:
    """Some of the questions."""

    entity: list[int]
    relation: list[int]  # directed, by the model's numbers

    def __len__(self) -> int:
        return len(self.entity)


@dataclass(frozen=True)
class Found:
    """Some of the links, by label, whose paths are wanted."""

    head: list[str]
    relation: list[str]
    tail: list[str]
    asked: list[str]

    def __len__(self) -> int:
        return len(self.head)


class Completing:
    """One predictor on one graph; a worker is sent this and does parts of it."""

    def __init__(
        self,
        predictor: Predictor,
        graph: Graph,
        settings: CompletionSettings,
        names: Names | None = None,
        calibration: Calibration | None = None,
    ) -> None:
        """The graph is prepared; `calibration` is what is to be used on it, where it is known."""
        self.predictor, self.settings, self.names = predictor, settings, names
        self.asking: Asking = predictor.asking(
            graph, names, on_unknown=settings.on_unknown, cap=settings.cap, batch_size=settings.batch_size
        )
        self.graph = self.asking.graph
        if calibration is not None:
            self.use(calibration)

    def use(self, calibration: Calibration) -> None:
        """Make probabilities by this one; a run has its own."""
        if self.predictor.relations is None:
            self.predictor.fits.keep(self.graph, calibration, self.asking.frontier)

    def __reduce__(self) -> tuple[Any, ...]:
        given = self.predictor, self.graph, self.settings, self.names, self.asking.calibration
        return Completing, given

    def work(self, piece: Asked | Found) -> bytes:
        """The links that some questions give, or the paths of some links, as Parquet."""
        return _parquet(self._links(piece) if isinstance(piece, Asked) else self._paths(piece))

    # links

    def _links(self, asked: Asked) -> Any:
        rows: dict[str, list[Any]] = {name: [] for name in self.schema.names}
        choice = self.asking.choose(Selection(self.settings.k))
        queries = list(zip(asked.entity, asked.relation, strict=True))
        for low in range(0, len(queries), self.settings.batch_size):
            some = queries[low : low + self.settings.batch_size]
            ids: list[Ids] = [(entity, relation, -1) for entity, relation in some]
            answers = self.asking.answer([(one, choice) for one in ids])
            for (entity, relation), found in zip(some, answers, strict=True):
                self._add(rows, entity, relation, found)
        return pa.table(rows, schema=self.schema)

    def _add(self, rows: dict[str, list[Any]], entity: int, relation: int, found: list[AnyAnswer]) -> None:
        relations = self.predictor.relations_for(self.graph)
        forward = relation < relations.num_relations
        label = relations.forward[relation % relations.num_relations]
        given = self.graph.entities[entity]
        for rank, answer in enumerate(found, start=1):
            if answer.probability is None or answer.probability < self.settings.least:
                continue
            head, tail = (given, answer.label) if forward else (answer.label, given)
            row = {
                "head": head,
                "relation": label,
                "tail": tail,
                "probability": answer.probability,
                "share": getattr(answer, "share", None),
                "score": answer.score,
                "rank": rank,
                "asked": "tail" if forward else "head",
            }
            if self.names is not None:
                row |= dict(zip(NAMES, map(self.names.name, (head, label, tail)), strict=True))
            for name, value in row.items():
                rows[name].append(value)

    @property
    def schema(self) -> Any:
        """Of the parts with links: all but the path."""
        return schema_of(self.names is not None, False)

    # paths

    def _paths(self, found: Found) -> Any:
        return pa.table(
            {
                PATH: pa.array(
                    map(self._path, found.head, found.relation, found.tail, found.asked), pa.string()
                )
            }
        )

    def _path(self, head: str, relation: str, tail: str, asked: str) -> str | None:
        graph, shown = self.graph, (lambda label: label) if self.names is None else self.names.shown
        ids = graph.entity_id(head), graph.relation_id(relation), graph.entity_id(tail)
        if asked == "head":
            ids = ids[2], inverse(ids[1], graph.num_relations), ids[0]
        edges = best_path(self.predictor.model, self.asking.builder, *ids)
        return walk_text(edges, shown) if edges else None

    # all of it

    def pairs(self) -> Pairs:
        """The questions, in order; relations by the model's numbers."""
        settings, resolver = self.settings, self.asking.resolver()
        relations = self.predictor.relations_for(self.graph)
        known = [relations.index.get(label, -1) for label in self.graph.relation_vocabulary.directed]
        asked = [number for number in known if 0 <= number < relations.num_relations]
        if settings.relations is not None:
            asked = [resolver.relation(label, "relation") for label in settings.relations]
        entities = None
        if settings.entities is not None:
            entities = [resolver.entity(label, "entities") for label in settings.entities]
        resolver.check()
        return likely_pairs(
            self.graph,
            self._counts(),
            settings.least_chance,
            asked,
            entities,
            settings.max_questions,
            np.array(known, dtype=np.int64),
        )

    def _counts(self) -> Cooccurrence:
        """Those that the chances of questions are counted from."""
        if self.asking.frontier is not None:
            return self.asking.frontier.counts
        return self.predictor.counts_with(self.graph)

    def identity(self) -> dict[str, Any]:
        """What the links depend on."""
        calibration, names = self.asking.calibration, sorted(self.names.of_id.items()) if self.names else []
        settings = asdict(self.settings)
        for key in ("relations", "entities"):
            settings[key] = None if settings[key] is None else _digest(settings[key])
        return {
            "model": self.predictor.fingerprint,
            "graph": graph_digest(self.graph),
            "calibration": None if calibration is None else calibration.to_dict(),
            "names": _digest(names) if self.names else None,
            "settings": settings,
        }


def complete(
    predictor: Predictor,
    graph: Graph,
    output: Path | None,
    settings: CompletionSettings,
    names: Names | None = None,
    workers: Workers | None = None,
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Links:
    """The links that a prepared graph lacks, into a file, or into memory without one.

    Goes on where an earlier call with the same arguments was cut off, whoever the workers of either are.
    """
    workers = workers or Workers(1)
    if output is None:
        with tempfile.TemporaryDirectory(prefix="contextpool-") as folder:
            path = Path(folder) / "links.parquet"
            links = complete(predictor, graph, path, settings, names, workers, progress=progress)
            return replace(links, output=None, in_memory=links.table)
    job = Completing(predictor, graph, settings, names)
    link_file_of(output)
    _check(job)
    workers = workers.for_device(predictor.device)
    pairs = _pairs(job)
    with _parts_of(output, overwrite) as parts:
        return _completed(job, pairs, output, parts, workers, overwrite, progress or (lambda *_: None))


def _check(job: Completing) -> None:
    if job.predictor.relations is not None and job.predictor.calibration is None:
        raise ConfigError(
            "this run has no calibration, so it cannot say how likely a link is, and links of different questions "
            "cannot be compared. Complete with the model that comes with contextpool, or train on more facts."
        )
    if job.settings.paths and job.asking.frontier is not None:
        raise ConfigError(
            f"{setting('paths')}: the whole graph is needed; leave them out with a cap, and on a mapped graph."
        )


def _pairs(job: Completing) -> Pairs:
    pairs = job.pairs()
    if not len(pairs):
        raise DataError(
            f"no question has a chance of {job.settings.least_chance:g} to have an answer that the graph lacks, so "
            f"nothing is asked. Lower {setting('min_probability')}, or ask about other relations or entities."
        )
    return pairs


def _completed(
    job: Completing,
    pairs: Pairs,
    output: Path,
    parts: Path,
    workers: Workers,
    overwrite: bool,
    progress: Progress,
) -> Links:
    settings = job.settings
    progress("answering", 0, len(pairs))
    _calibrate(job, len(pairs), begun_with(parts / "links"))
    found = Manifest.opened(parts / "links", job.identity(), "parquet", overwrite)
    with workers.at(job) as doing:
        now = found.fill(
            _asked(pairs, settings.part_size),
            -(-len(pairs) // settings.part_size),
            doing,
            lambda done: progress("answering", done, len(pairs)),
        )
        kept, trails = _Kept(found, settings.top, job.schema), None
        if settings.paths:
            identity = {**job.identity(), "links": kept.rows}
            trails = Manifest.opened(parts / "paths", identity, "parquet", overwrite)
            progress("finding paths", 0, kept.rows)
            trails.fill(
                _found(kept.tables(), settings.path_part_size),
                -(-kept.rows // settings.path_part_size),
                doing,
                lambda done: progress("finding paths", done, kept.rows),
            )
    schema, best = schema_of(job.names is not None, settings.paths), Likeliest()
    with durable_file(output) as stream:
        tables = kept.tables() if trails is None else _with_paths(kept.tables(), trails, schema)
        written = write_links(stream, best.seen(tables), schema, link_file_of(output))
    for manifest in (found, trails):
        if manifest is not None:
            manifest.remove()
    return Links(len(pairs), now, written, output, best.rows)


def _calibrate(job: Completing, questions: int, begun: Mapping[str, Any] | None) -> None:
    """As the parts that are there, which more facts may have been asked since; else the better the more is asked."""
    before = None if begun is None else begun.get("calibration")
    if isinstance(before, dict):
        job.use(Calibration.from_dict(before))
    else:
        facts = min(MOST_FACTS, max(FEWEST_FACTS, questions // QUESTIONS_A_FACT))
        job.predictor.calibrate(job.graph, facts, cap=job.settings.cap)


def _asked(pairs: Pairs, size: int) -> Iterator[Asked]:
    for low in range(0, len(pairs), size):
        some = pairs.select(slice(low, low + size))
        yield Asked(some.entity.tolist(), some.relation.tolist())


class _Kept:
    """The links of all parts that are kept: all of them, or the likeliest."""

    def __init__(self, parts: Manifest, top: int | None, schema: Any) -> None:
        self._parts, self._top, self._schema = parts, top, schema

    @cached_property
    def rows(self) -> int:
        return sum(table.num_rows for table in self.tables())

    def tables(self) -> Iterator[Any]:
        if self._top is None:
            for path in self._parts.paths:
                yield pq.read_table(path, schema=self._schema)
        else:
            yield self._best

    @cached_property
    def _best(self) -> Any:
        """The `top` likeliest, best first; ties end at the question and the answer that come first."""
        top = self._top or 1
        kept, size = [self._schema.empty_table()], 0
        for path in self._parts.paths:
            kept.append(pq.read_table(path, schema=self._schema))
            size += kept[-1].num_rows
            if size > 4 * top:
                kept = [likeliest(pa.concat_tables(kept), top)]
                size = kept[0].num_rows
        return likeliest(pa.concat_tables(kept), top)


def _found(tables: Iterable[Any], size: int) -> Iterator[Found]:
    """All links in pieces of `size`."""
    columns = [field.name for field in fields(Found)]
    left: list[list[Any]] = [[] for _ in columns]
    for table in tables:
        for column, values in zip(columns, left, strict=True):
            values.extend(table[column].to_pylist())
        while len(left[0]) >= size:
            yield Found(*(values[:size] for values in left))
            left = [values[size:] for values in left]
    if left[0]:
        yield Found(*left)


def _with_paths(tables: Iterable[Any], trails: Manifest, schema: Any) -> Iterator[Any]:
    """Every table with the paths of its rows."""
    paths = (value for part in trails.paths for value in pq.read_table(part)[PATH])
    for table in tables:
        column = pa.array([next(paths).as_py() for _ in range(table.num_rows)], pa.string())
        yield table.append_column(PATH, column).select(schema.names)


@contextmanager
def _parts_of(output: Path, overwrite: bool) -> Iterator[Path]:
    """The folder of parts beside the output, held against other processes; gone afterwards where nothing is in it."""
    parts = output.with_name(f"{output.name}.parts")
    try:
        if output.is_dir():
            raise ConfigError(f"output {output} is a folder; links go into a file. Choose another name.")
        if output.exists() and not parts.exists() and not overwrite:
            raise ConfigError(
                f"output {output} is there already, and complete. Choose another name, or replace it "
                f"({setting('overwrite', True)})."
            )
        parts.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"output {output} cannot be written ({reason(error)}). Choose another place."
        ) from error
    lock = FolderLock(parts, "writing these links")
    try:
        yield parts
    finally:
        lock.release()
        if not any(path.is_dir() for path in parts.iterdir()):
            shutil.rmtree(parts, ignore_errors=True)


def _parquet(table: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


def _digest(values: Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()
