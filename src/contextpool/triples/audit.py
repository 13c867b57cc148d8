"""Audit a dataset: overlap, leakage, duplicates, twin relations, reach.

    report = audit_dataset(dataset)       # or audit_triples(triples, "my graph")
    print(report.to_text()); report.worst; report.findings; report.to_dict()

Everything is counted exactly, except reach, which looks at no more than 2,000 queries and says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse import csgraph

from contextpool.errors import DataError
from contextpool.triples.audit_report import (
    EXAMPLES,
    AuditReport,
    GraphStatistics,
    OverlapStatistics,
    QueryStatistics,
    RawFile,
    RelationTwin,
    TwinKind,
    judge_dataset,
    judge_graph,
    judge_loading,
    share,
)
from contextpool.triples.dataset import Dataset
from contextpool.triples.files import raw_lines
from contextpool.triples.labels import Vocabulary
from contextpool.triples.store import Triples

Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

MOST_HOPS = 6
REACH_SAMPLE = 2_000
"""Reach is measured on at most this many queries, spread evenly over the sorted triples."""
TWIN_SHARE = 0.8
"""Two relations are twins where more than this share of the pairs of each is found in the other."""


def audit_triples(triples: Triples, name: str) -> AuditReport:
    """Audit one graph alone. O(T log T) time, O(T) memory."""
    graph = _Graph.of("graph", triples, len(triples.entities)).statistics
    return AuditReport(name, None, (graph,), (), None, (), tuple(judge_graph(graph)))


def audit_dataset(dataset: Dataset, folders: Iterable[str | Path] = ()) -> AuditReport:
    """Audit a dataset; with the `folders` that it was read from, their raw files' duplicate lines too.

    O(T log T) time for the counts, and O(pairs * queries / 64) a hop for reach.
    """
    entities = Vocabulary.of((*dataset.training_entities.labels, *dataset.inference_entities.labels))
    relations = Vocabulary.of(
        (*dataset.relations.labels, *dataset.inference_graph.relations.labels), "relation"
    )

    def numbered(*parts: Triples | None) -> list[Triples]:
        """Those that there are, in one numbering for both sides."""
        return [part.with_vocabularies(entities, relations) for part in parts if part is not None]

    first, queries, selection, *beside = numbered(
        dataset.training_graph, dataset.training_queries, dataset.validation_queries, dataset.training_valid
    )
    second, test = numbered(dataset.inference_graph, dataset.inference_test)
    valid = numbered(dataset.inference_valid)
    before, after = [queries, selection, *beside], [*valid, test]
    if not dataset.inductive:
        before = after = [first, *before, second, *after]
    if not dataset.inductive and np.array_equal(first.ids, second.ids):
        training = inference = _Graph.of("graph", first, len(dataset.training_entities), after)
    else:
        training = _Graph.of("training graph", first, len(dataset.training_entities), before)
        inference = _Graph.of("inference graph", second, len(dataset.inference_entities), after)
    trained, selected = FactIndex.of(first, queries), FactIndex.of(selection)
    asked = [
        *(("training valid", part, training) for part in beside),
        ("selection", selection, training if dataset.inductive else inference),
        *(("inference valid", part, inference) for part in valid),
        ("inference test" if valid else "test", test, inference),
        *(("evaluation", part, inference) for part in numbered(dataset.evaluation_queries("P1")) if valid),
    ]
    held_out = tuple(_audit_queries(name, part, graph, trained, selected) for name, part, graph in asked)
    overlap = _overlap(training, inference, valid, test)
    graphs = tuple(graph.statistics for graph in dict.fromkeys((training, inference)))
    files = tuple(file for folder in folders for file in audit_folder_duplicates(folder))
    findings = judge_dataset(dataset.inductive, graphs, held_out, overlap)
    findings += judge_loading(dataset.skipped, dataset.kept_share, files)
    return AuditReport(dataset.name, dataset.inductive, graphs, held_out, overlap, files, tuple(findings))


# -- look-ups


@dataclass(frozen=True, eq=False)
class FactIndex:
    """Facts, to be looked up by triple and by (head, tail) pair. Codes fit 64 bits for any int32 ids."""

    num_entities: int
    num_relations: int
    pairs: Integers
    """[P] codes head * N + tail of the linked pairs, sorted, each once."""
    keys: Integers
    """[T] position of the fact's pair * R + its relation, sorted, each once."""

    @classmethod
    def of(cls, *parts: Triples) -> FactIndex:
        """All facts of parts that share their vocabularies. O(T log T) time, O(T) memory."""
        heads, relations, tails = np.concatenate([part.ids for part in parts]).astype(np.int64).T
        num_entities, num_relations = len(parts[0].entities), len(parts[0].relations)
        codes = heads * num_entities + tails
        pairs = np.unique(codes)
        keys = np.unique(np.searchsorted(pairs, codes) * num_relations + relations)
        return cls(num_entities, num_relations, pairs, keys)

    def pair_position(self, heads: Integers, tails: Integers) -> Integers:
        """[Q] where each pair stands in `pairs`; -1 where it is not linked."""
        return _position_in(self.pairs, heads * self.num_entities + tails)

    def has_pair(self, heads: Integers, tails: Integers) -> Flags:
        """[Q] whether any relation leads from head to tail."""
        return self.pair_position(heads, tails) >= 0

    def has_triple(self, heads: Integers, relations: Integers | int, tails: Integers) -> Flags:
        """[Q] whether the triple is a fact."""
        position = self.pair_position(heads, tails)
        return (position >= 0) & (_position_in(self.keys, position * self.num_relations + relations) >= 0)


def _position_in(sorted_codes: Integers, codes: Integers) -> Integers:
    """[Q] position of each code among the sorted ones; -1 where it is missing."""
    if len(sorted_codes) == 0:
        return np.full(len(codes), -1, dtype=np.int64)
    position = np.minimum(np.searchsorted(sorted_codes, codes), len(sorted_codes) - 1)
    return np.where(sorted_codes[position] == codes, position, -1)


def undirected_links(graph: Triples) -> sparse.csr_array:
    """[N, N] who is one step from whom, whatever the relation and its direction."""
    heads, tails = graph.ids[:, 0], graph.ids[:, 2]
    ends = np.concatenate([heads, tails]), np.concatenate([tails, heads])
    size = len(graph.entities)
    return sparse.csr_array((np.ones(2 * len(graph), dtype=bool), ends), shape=(size, size))


def components(links: sparse.csr_array) -> Integers:
    """[N] a component number per entity; an entity without an edge is its own."""
    if links.shape[0] == 0:
        return np.empty(0, dtype=np.int64)
    return csgraph.connected_components(links, directed=False)[1].astype(np.int64)


def hops_between(links: sparse.csr_array, heads: Integers, tails: Integers, most: int) -> Integers:
    """[Q] steps from head to tail along `undirected_links`; `most` + 1 where it takes more.

    Sixty-four queries walk at once, one bit each: O(K Q / 64) time a step, O(N + K) memory, K links.
    """
    blocks = [slice(start, start + 64) for start in range(0, len(heads), 64)]
    hops = [_hops_of_block(links, heads[block], tails[block], most) for block in blocks]
    return np.concatenate(hops) if hops else np.empty(0, dtype=np.int64)


def _hops_of_block(links: sparse.csr_array, heads: Integers, tails: Integers, most: int) -> Integers:
    nodes = np.flatnonzero(np.diff(links.indptr))  # [M] entities that have an edge
    bit = np.uint64(1) << np.arange(len(heads), dtype=np.uint64)
    reached = np.zeros(links.shape[0], dtype=np.uint64)  # [N] the queries that reached an entity
    np.bitwise_or.at(reached, heads, bit)
    hops = np.where(heads == tails, 0, most + 1)
    for hop in range(1, most + 1):
        if len(nodes) == 0 or (hops <= most).all():
            break
        reached[nodes] |= np.bitwise_or.reduceat(reached[links.indices], links.indptr[nodes])
        arrived = (reached[tails] & bit) != 0
        hops = np.where(arrived, np.minimum(hops, hop), hops)
    return hops


# -- graphs


@dataclass(frozen=True, eq=False)
class _Graph:
    """A graph with the look-ups that the questions about its queries share."""

    triples: Triples
    index: FactIndex
    links: sparse.csr_array
    statistics: GraphStatistics

    @classmethod
    def of(cls, name: str, graph: Triples, entities: int, held_out: Iterable[Triples] = ()) -> _Graph:
        """Twins are judged with the held-out triples, too.

        Without them, a perfectly symmetric relation of an 80 : 10 : 10 split mirrors only 80 % of itself and
        would be missed.
        """
        index, links = FactIndex.of(graph), undirected_links(graph)
        twins = relation_twins(FactIndex.of(graph, *held_out), graph.relations.labels)
        relations, linked = len(np.unique(graph.ids[:, 1])), _count(np.diff(links.indptr) > 0)
        counts = GraphStatistics(name, len(graph), entities, entities - linked, relations, twins)
        return cls(graph, index, links, counts)

    @property
    def has_edge(self) -> Flags:
        """[N]"""
        return np.diff(self.links.indptr) > 0


def relation_twins(index: FactIndex, labels: tuple[str, ...]) -> tuple[RelationTwin, ...]:
    """Relations whose pairs mirror each other by more than `TWIN_SHARE` both ways, most pairs first.

    Pairs are counted by two sparse products of [pair, relation] incidences: O(sum over pairs of the square of
    the relations on it).
    """
    heads, tails = np.divmod(index.pairs, max(index.num_entities, 1))  # [P]
    pair, relation = np.divmod(index.keys, max(index.num_relations, 1))  # [T]
    no_loop = (heads != tails)[pair]
    pair, relation = pair[no_loop], relation[no_loop]
    turned = index.pair_position(tails, heads)[pair]  # of (tail, head); -1 where it is not linked
    same = _incidence(pair, relation, index)
    mirror = _incidence(turned[turned >= 0], relation[turned >= 0], index)
    support = np.bincount(relation, minlength=index.num_relations)
    twins = []
    for shared, mirrored in ((same.T @ mirror, True), (same.T @ same, False)):
        entries = shared.tocoo()  # [R, R] pairs in common
        for first, second, matched in zip(*entries.coords, entries.data, strict=True):
            shares = float(matched / support[first]), float(matched / support[second])
            if min(shares) > TWIN_SHARE and (first < second or (mirrored and first == second)):
                kind: TwinKind = (
                    "duplicate" if not mirrored else "symmetric" if first == second else "inverse"
                )
                twins.append(RelationTwin(kind, labels[first], labels[second], int(matched), *shares))
    return tuple(sorted(twins, key=lambda twin: (-twin.matched, twin.relation, twin.other, twin.kind)))


def _incidence(pair: Integers, relation: Integers, index: FactIndex) -> sparse.csr_array:
    """[P, R] which relations hold on which pair."""
    shape = (len(index.pairs), index.num_relations)
    return sparse.csr_array((np.ones(len(pair), dtype=np.int64), (pair, relation)), shape=shape)


# -- queries


def _audit_queries(
    name: str, queries: Triples, graph: _Graph, trained: FactIndex, selected: FactIndex
) -> QueryStatistics:
    """Count what is wrong or easy or impossible about the queries."""
    heads, relations, tails = queries.ids.astype(np.int64).T
    in_graph = graph.index.has_triple(heads, relations, tails)
    trained_on = trained.has_triple(heads, relations, tails)
    component = components(graph.links)
    sample, within = _reach(graph.links, heads, tails)
    return QueryStatistics(
        name=name,
        queries=len(queries),
        in_graph=_count(in_graph),
        trained_on=_count(trained_on),
        selected_on=_count(selected.has_triple(heads, relations, tails)),
        direct=_count(graph.index.has_pair(heads, tails)),
        reverse=_count(graph.index.has_pair(tails, heads)),
        by_inverse=_answered_by_twins(graph, tails, relations, heads, duplicates=False),
        by_duplicate=_answered_by_twins(graph, heads, relations, tails, duplicates=True),
        without_edge=_count(~graph.has_edge[heads] | ~graph.has_edge[tails]),
        sample=sample,
        within=within,
        connected=share(_count(component[heads] == component[tails]), len(queries)),
        leaked_examples=tuple(queries.select(in_graph))[:EXAMPLES],
        trained_examples=tuple(queries.select(trained_on))[:EXAMPLES],
    )


def _answered_by_twins(
    graph: _Graph, heads: Integers, relations: Integers, tails: Integers, *, duplicates: bool
) -> int:
    """How many queries have a fact (head, x, tail) whose relation x is a twin of the one asked for."""
    number = graph.triples.relations.index
    twins = [twin for twin in graph.statistics.twins if (twin.kind == "duplicate") == duplicates]
    pairs = {(number[twin.relation], number[twin.other]) for twin in twins}
    answered = np.zeros(len(heads), dtype=bool)
    for relation, other in pairs | {(other, relation) for relation, other in pairs}:
        asked = np.flatnonzero(relations == relation)
        answered[asked] |= graph.index.has_triple(heads[asked], other, tails[asked])
    return _count(answered)


def _reach(links: sparse.csr_array, heads: Integers, tails: Integers) -> tuple[int, tuple[float, ...]]:
    """How many queries were looked at, and the share of them answered within 1, ..., 6 hops."""
    sample = min(len(heads), REACH_SAMPLE)
    chosen = np.arange(sample) * len(heads) // max(sample, 1)
    hops = hops_between(links, heads[chosen], tails[chosen], MOST_HOPS)
    return sample, tuple(share(_count(hops <= hop), sample) for hop in range(1, MOST_HOPS + 1))


def _overlap(training: _Graph, inference: _Graph, valid: list[Triples], test: Triples) -> OverlapStatistics:
    """What the inference side shares with the training side; both are numbered alike."""
    labels = training.triples.entities.labels
    shared = np.flatnonzero(training.has_edge & inference.has_edge).tolist()
    facts = training.index.has_triple(*inference.triples.ids.astype(np.int64).T)
    in_test = [FactIndex.of(test).has_triple(*part.ids.astype(np.int64).T) for part in valid]
    return OverlapStatistics(
        shared_entities=len(shared),
        share_of_inference=share(len(shared), _count(inference.has_edge)),
        entity_examples=tuple(labels[entity] for entity in shared[:EXAMPLES]),
        shared_facts=_count(facts),
        valid_in_test=sum(map(_count, in_test)),
    )


def _count(flags: Flags) -> int:
    return int(np.count_nonzero(flags))


# -- raw files


def audit_folder_duplicates(folder: str | Path) -> tuple[RawFile, ...]:
    """Count repeated lines in each triple file of a folder, by name. O(bytes) time and memory.

    A triple file ends in .txt or .tsv (.gz, .zst) and has three columns on every line, split at tabs or,
    where there are none, at spaces; its first line may be a lone count, as in OpenKE's id files. Other files are
    passed over.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f"{folder}: there is no such folder. Name the folder that holds the triple files.")
    lines_of = {path: lines for path in sorted(folder.iterdir()) if (lines := _triple_lines(path))}
    distinct = {path: set(lines) for path, lines in lines_of.items()}
    files = []
    for path, lines in lines_of.items():
        others = set().union(*(distinct[path] & distinct[other] for other in distinct if other != path))
        files.append(RawFile(str(path), len(lines), len(lines) - len(distinct[path]), len(others)))
    return tuple(files)


def _triple_lines(path: Path) -> list[bytes]:
    """The file's lines without their ends and a leading count; nothing where it is no triple file."""
    plain = path.with_suffix("") if path.suffix in (".gz", ".zst") else path
    if not path.is_file() or plain.suffix not in (".txt", ".tsv"):
        return []
    lines = [line for _, line in raw_lines(path)]
    lines = lines[1:] if lines and lines[0].strip().isdigit() else lines
    columns = (line.split(b"\t") if b"\t" in line else line.split() for line in lines)
    return lines if all(len(row) == 3 for row in columns) else []
