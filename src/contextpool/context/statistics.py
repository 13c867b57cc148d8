"""What is known of a graph's relations: co-occurrence counts and relation sets. Statistics of two graphs add."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from contextpool.context.cooccurrence import Cooccurrence, count_cooccurrence
from contextpool.context.delta import (
    Change,
    column_map,
    entity_changes,
    touched_entities,
    updated_counts,
    widened,
)
from contextpool.errors import DataError
from contextpool.graph.graph import Graph, walk_back
from contextpool.graph.relation_sets import RelationSets, num_words, pack_bits, relation_sets
from contextpool.graph.relations import RelationVocabulary
from contextpool.triples.labels import INVERSE_SUFFIX
from contextpool.triples.store import Triple


@dataclass(frozen=True, eq=False)
class Statistics:
    """Integer counts, so sums over graphs are exact; a run stores those of its training graph."""

    counts: Cooccurrence
    sets: RelationSets
    """Distinct relation sets with how many entities have each; `set_of_entity` belongs to the graph alone."""

    @classmethod
    def of(cls, graph: Graph) -> Statistics:
        return cls(count_cooccurrence(graph), relation_sets(graph))

    @property
    def relations(self) -> RelationVocabulary:
        return self.counts.relations

    def __add__(self, other: Statistics) -> Statistics:
        """Over the entities of both graphs."""
        counts = self.counts + other.counts
        stacked = np.concatenate([self.sets.words, other.sets.words])
        weight = np.concatenate([self.sets.weight, other.sets.weight])
        words, place = np.unique(stacked, axis=0, return_inverse=True)
        total = np.bincount(place.reshape(-1), weights=weight, minlength=len(words)).astype(np.int64)
        nobody = np.empty(0, dtype=np.int32)
        return Statistics(counts, RelationSets(self.sets.num_directed, words, total, nobody))

    def updated(
        self, graph: Graph, added: Sequence[Triple] = (), removed: Sequence[Triple] = ()
    ) -> Statistics:
        """Exactly the statistics of `graph`, which these are of, with some triples added and others removed.

        Costs the triples of the touched entities, not the graph. An entity or a relation without a triple left
        is gone, as from a graph read anew; isolated entities and unused relations that were there before stay.
        """
        entities = touched_entities([*added, *removed])
        known = [entity for entity in sorted(entities) if entity in graph.entity_vocabulary]
        touching = list(_triples_of(graph, known))
        hermits = frozenset(known) - touched_entities(touching)
        changes = entity_changes(touching, added, removed, hermits=hermits)
        counts = updated_counts(self.counts, changes)
        return Statistics(counts, _updated_sets(self, counts.relations, changes))

    def to_tensors(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """As tensors and a few plain values, to be stored."""
        tensors = {
            "both": torch.from_numpy(self.counts.both.copy()),
            "set_words": torch.from_numpy(self.sets.words.view(np.int64).copy()),
            "set_weight": torch.from_numpy(self.sets.weight.copy()),
        }
        return tensors, {"num_entities": self.counts.num_entities}

    @classmethod
    def from_tensors(
        cls, relations: RelationVocabulary, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]
    ) -> Statistics:
        """What `to_tensors` gave, for the same relations."""
        size, width = relations.num_directed, num_words(relations.num_directed)
        both, words, weight = (tensors[name].cpu().numpy() for name in ("both", "set_words", "set_weight"))
        if both.shape != (size, size) or words.shape[1:] != (width,) or len(words) != len(weight):
            raise DataError(f"the stored context does not belong to {relations.num_relations} relations.")
        counts = Cooccurrence(relations, both.astype(np.int64), int(meta["num_entities"]))
        nobody = np.empty(0, dtype=np.int32)
        return cls(counts, RelationSets(size, words.view(np.uint64), weight.astype(np.int64), nobody))


def _triples_of(graph: Graph, entities: Sequence[str]) -> Iterator[Triple]:
    """The facts that touch some entities of a graph, as they stand in it; those between two come twice."""
    for entity in map(graph.entity_id, entities):
        edges = torch.arange(
            int(graph.row_start[entity]), int(graph.row_start[entity + 1]), device=graph.device
        )
        for triple in graph.edge_labels(edges):
            yield walk_back(triple) if triple[1].endswith(INVERSE_SUFFIX) else triple


def _updated_sets(old: Statistics, relations: RelationVocabulary, changes: Sequence[Change]) -> RelationSets:
    """The distinct relation sets after the changes: each takes an entity from one set to another."""
    wide = widened(old.relations, changes)
    moved = [(change.old, -1) for change in changes if change.old or change.hermit]
    moved += [(change.new, 1) for change in changes if change.new]
    rows = np.zeros((len(old.sets.words) + len(moved), wide.num_directed), dtype=bool)
    rows[: len(old.sets.words), column_map(old.relations, wide)] = old.sets.members()
    for row, (members, _) in enumerate(moved, start=len(old.sets.words)):
        rows[row, [wide.index[label] for label in sorted(members)]] = True
    step = np.concatenate([old.sets.weight, np.array([step for _, step in moved], dtype=np.int64)])
    words, place = np.unique(pack_bits(rows[:, column_map(relations, wide)]), axis=0, return_inverse=True)
    weight = np.zeros(len(words), dtype=np.int64)
    np.add.at(weight, place.reshape(-1), step)
    nobody = np.empty(0, dtype=np.int32)
    return RelationSets(relations.num_directed, words[weight > 0], weight[weight > 0], nobody)
