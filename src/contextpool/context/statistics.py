"""What is known of a graph's relations: co-occurrence counts and relation sets. Statistics of two graphs add."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from contextpool.context.cooccurrence import Cooccurrence, count_cooccurrence
from contextpool.errors import DataError
from contextpool.graph.graph import Graph
from contextpool.graph.relation_sets import RelationSets, num_words, relation_sets
from contextpool.graph.relations import RelationVocabulary


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
