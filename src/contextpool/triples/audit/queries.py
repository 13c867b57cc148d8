"""What a set of held-out triples gives away, and what its graph can and cannot answer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from contextpool.triples.audit.graphs import AuditedGraph
from contextpool.triples.audit.index import FactIndex, Flags, Integers, hops_between
from contextpool.triples.store import Ids, Triple, Triples, renumbering

MOST_HOPS = 6
REACH_SAMPLE = 2_000
"""Reach is measured on at most this many queries, spread evenly over the sorted triples."""
EXAMPLES = 5

TRAINING_VALID, SELECTION, TEST = "training valid", "selection", "test"
INFERENCE_VALID, INFERENCE_TEST, EVALUATION = "inference valid", "inference test", "evaluation"
"""Names of the parts of held-out triples."""


@dataclass(frozen=True)
class QueryStatistics:
    """Held-out triples against the graph that they are asked over. Counts are of triples."""

    name: str
    graph: str
    """Name of the graph that they are asked over."""
    queries: int
    in_graph: int
    """Leaked: the triple itself is a fact of that graph."""
    trained_on: int
    """The same triple, by its labels, is a fact or a query of training."""
    selected_on: int
    """The same triple, by its labels, is a query that models are selected on."""
    direct: int
    """Some relation leads from head to tail in the graph."""
    reverse: int
    """Some relation leads from tail to head."""
    reverse_same: int
    """... and it is the relation that is asked for."""
    adjacent: int
    """Head and tail are linked in either direction."""
    by_inverse: int
    """The reverse fact is there with a relation known to be the inverse twin (or symmetric)."""
    by_duplicate: int
    """The fact is there with a relation known to be a duplicate."""
    unseen_relation: int
    """The relation has no fact in the training graph."""
    untrained_relation: int
    """... and no training query asks for it either."""
    unseen_relations: tuple[str, ...]
    without_edge: int
    """Head or tail has no edge in the graph."""
    entities_without_edge: tuple[str, ...]
    sample: int
    """Triples on which `within` was measured."""
    within: tuple[float, ...]
    """[6] share of the answers at most 1, ..., 6 hops from the head; the same in both directions."""
    connected: float
    """Share of the answers that any number of hops reaches; of all triples, not of a sample."""
    leaked_examples: tuple[Triple, ...]
    trained_examples: tuple[Triple, ...]


@dataclass(frozen=True)
class OverlapStatistics:
    """What the two sides share, by label."""

    shared_entities: int
    """Entities with an edge in both graphs."""
    share_of_inference: float
    """... out of the entities with an edge in the inference graph."""
    entity_examples: tuple[str, ...]
    shared_facts: int
    """Facts of the inference graph that are facts of the training graph."""
    valid_in_test: int
    """Triples that are both in the inference side's valid and in its test."""
    new_relations: tuple[str, ...]
    """Relations of the inference graph's facts without a fact in the training graph."""
    new_relation_facts: int


@dataclass(frozen=True, eq=False)
class TrainingSide:
    """What training and selection have seen, as look-ups over the training side's ids."""

    graph: Triples
    trained: FactIndex
    selected: FactIndex
    relation_has_fact: Flags
    """[R + 1]; the last one, which id -1 reads, stands for a relation that training does not know."""
    relation_is_asked: Flags
    """[R + 1] whether a training query asks for it."""

    @classmethod
    def of(cls, graph: Triples, queries: Triples, selection: Triples) -> TrainingSide:
        """The parts share their vocabularies."""
        size, relations = len(graph.entities), len(graph.relations)
        trained = FactIndex.of_ids(np.concatenate([graph.ids, queries.ids]), size, relations)
        has_fact, is_asked = (
            np.bincount(part.ids[:, 1], minlength=relations + 1) > 0 for part in (graph, queries)
        )
        return cls(graph, trained, FactIndex.of(selection), has_fact, is_asked)

    def numbered_here(self, triples: Triples, ids: Ids) -> tuple[Integers, Integers, Integers]:
        """Rows [Q, 3] of other vocabularies in this side's ids; -1 where a label is not known here."""
        entities = renumbering(triples.entities, self.graph.entities).astype(np.int64)
        relations = renumbering(triples.relations, self.graph.relations).astype(np.int64)
        return entities[ids[:, 0]], relations[ids[:, 1]], entities[ids[:, 2]]


def audit_queries(name: str, ids: Ids, graph: AuditedGraph, training: TrainingSide) -> QueryStatistics:
    """Count what is wrong or easy or impossible about the queries `ids` [Q, 3], numbered as the graph is."""
    heads, relations, tails = ids.astype(np.int64).T
    index = graph.index
    in_graph = index.has_triple(heads, relations, tails)
    direct, reverse = index.has_pair(heads, tails), index.has_pair(tails, heads)
    seen = training.numbered_here(graph.triples, ids)
    trained_on = training.trained.has_triple(*seen)
    unseen = ~training.relation_has_fact[seen[1]]
    ends = np.concatenate([heads, tails])
    sample, within = _reach(graph, heads, tails)
    connected = graph.component[heads] == graph.component[tails]
    return QueryStatistics(
        name=name,
        graph=graph.statistics.name,
        queries=len(ids),
        in_graph=_count(in_graph),
        trained_on=_count(trained_on),
        selected_on=_count(training.selected.has_triple(*seen)),
        direct=_count(direct),
        reverse=_count(reverse),
        reverse_same=_count(index.has_triple(tails, relations, heads)),
        adjacent=_count(direct | reverse),
        by_inverse=_count(index.has_related(tails, relations, heads, graph.mirrored)),
        by_duplicate=_count(index.has_related(heads, relations, tails, graph.duplicated)),
        unseen_relation=_count(unseen),
        untrained_relation=_count(unseen & ~training.relation_is_asked[seen[1]]),
        unseen_relations=_labels(relations[unseen], graph.triples.relations.labels),
        without_edge=_count(~graph.has_edge[heads] | ~graph.has_edge[tails]),
        entities_without_edge=_labels(ends[~graph.has_edge[ends]], graph.triples.entities.labels),
        sample=sample,
        within=within,
        connected=share(_count(connected), len(ids)),
        leaked_examples=_examples(graph.triples, ids, in_graph),
        trained_examples=_examples(graph.triples, ids, trained_on),
    )


def _reach(graph: AuditedGraph, heads: Integers, tails: Integers) -> tuple[int, tuple[float, ...]]:
    """How many queries were looked at, and the share of them answered within 1, ..., 6 hops."""
    sample = min(len(heads), REACH_SAMPLE)
    chosen = np.arange(sample) * len(heads) // max(sample, 1)
    hops = hops_between(graph.neighbors, heads[chosen], tails[chosen], MOST_HOPS)
    return sample, tuple(share(_count(hops <= hop), sample) for hop in range(1, MOST_HOPS + 1))


def audit_overlap(
    training: TrainingSide, inference: AuditedGraph, valid: Triples | None, test: Triples
) -> OverlapStatistics:
    """What the inference side shares with the training side."""
    graph = inference.triples
    heads, relations, tails = training.numbered_here(graph, graph.ids)
    has_edge_there = np.zeros(
        len(training.graph.entities) + 1, dtype=bool
    )  # the last one stands for "unknown"
    has_edge_there[training.graph.ids[:, [0, 2]].reshape(-1)] = True
    entity_map = renumbering(graph.entities, training.graph.entities)
    shared = np.flatnonzero(inference.has_edge & has_edge_there[entity_map])
    new = ~training.relation_has_fact[relations]
    facts = FactIndex.of(training.graph)
    return OverlapStatistics(
        shared_entities=len(shared),
        share_of_inference=share(len(shared), _count(inference.has_edge)),
        entity_examples=tuple(graph.entities.labels[entity] for entity in shared[:EXAMPLES].tolist()),
        shared_facts=_count(facts.has_triple(heads, relations, tails)),
        valid_in_test=_common(valid, test),
        new_relations=_labels(graph.ids[new, 1].astype(np.int64), graph.relations.labels),
        new_relation_facts=_count(new),
    )


def _common(valid: Triples | None, test: Triples) -> int:
    if valid is None:
        return 0
    return _count(FactIndex.of(test).has_triple(*valid.ids.astype(np.int64).T))


def share(count: int, total: int) -> float:
    """The part that count is of total; 0 out of 0 reads 0."""
    return count / total if total else 0.0


def _count(flags: Flags) -> int:
    return int(np.count_nonzero(flags))


def _labels(ids: Integers, labels: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(labels[position] for position in np.unique(ids).tolist())


def _examples(triples: Triples, ids: Ids, chosen: Flags) -> tuple[Triple, ...]:
    """The first few chosen triples in sorted order, as labels."""
    return tuple(Triples(triples.entities, triples.relations, ids[chosen][:EXAMPLES]))
