"""The context of a question: relations kept with their relevance, and what the pooled graph leaves out."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from contextpool.context.neighbors import ContextNeighbors
from contextpool.context.relevance import neighborhood_precision, neighborhood_recall
from contextpool.context.selection import RelationSelector
from contextpool.context.statistics import Statistics
from contextpool.explain.attribution import Asking
from contextpool.explain.evidence import CandidateRelevance, ContextRelation, DroppedRelation
from contextpool.graph.graph import Graph
from contextpool.graph.relations import inverse
from contextpool.models.streams import ContextStreams
from contextpool.pool.batch import ContextConfig, QueryBatch
from contextpool.pool.edge_set import PooledBatch
from contextpool.pool.expand import expand
from contextpool.pool.hidden import HiddenEdges
from contextpool.pool.incidence import cached_per_graph

statistics_of = cached_per_graph(Statistics.of)


class QuestionContext:
    """What is relevant to the relation of one question, by the counts that the model was given."""

    def __init__(self, asking: Asking, batch: QueryBatch) -> None:
        self.asking, self.batch = asking, batch
        builder = asking.builder
        self.graph: Graph = builder.graph
        self.config = builder.context or ContextConfig(views=())
        self.counts = (builder.statistics or statistics_of(self.graph)).counts
        self.pooled = bool(builder.selectors)
        default = (ContextNeighbors(self.counts, self_policy=self.config.self_policy),)
        self.selectors: tuple[RelationSelector, ...] = builder.selectors or default
        self.walks = [self._pool(selector) for selector in self.selectors]

    def _pool(self, selector: RelationSelector) -> PooledBatch:
        """Algorithm 2 as the model would walk it; corrected counts of the hidden fact aside."""
        head, relation = torch.tensor([self.asking.head]), torch.tensor([self.asking.relation])
        hidden = HiddenEdges.one_per_query(self.graph, torch.tensor([self.asking.hidden]))
        return expand(self.graph, selector, head, relation, self.config.hops, hidden)

    def relations(self) -> tuple[ContextRelation, ...]:
        """Those that a view keeps for the relation asked for: by precision, then recall, then label."""
        asked = self.asking.relation
        precision, recall = (
            neighborhood_precision(self.counts)[asked],
            neighborhood_recall(self.counts)[asked],
        )
        facts, gates = self._facts_of_head(), self._gates()
        labels = self.graph.relation_vocabulary.directed
        found = [
            ContextRelation(
                labels[one],
                float(precision[one]),
                float(recall[one]),
                int(facts[one]),
                None if gates is None else float(gates[one]),
            )
            for one in self._kept()
        ]
        return tuple(sorted(found, key=lambda one: (-one.precision, -one.recall, one.relation)))

    def _kept(self) -> list[int]:
        """Relations in row r of a mask (Algorithm 3), or that leave the head (Algorithm 1)."""
        kept: set[int] = set()
        for selector, walk in zip(self.selectors, self.walks, strict=True):
            if isinstance(selector, ContextNeighbors):
                kept |= set(np.flatnonzero(selector.mask[self.asking.relation]).tolist())
            else:
                kept |= set(self.graph.edge_relation[walk.hops[0].edge.long()].tolist())
        return sorted(kept)

    def _facts_of_head(self) -> Tensor:
        """[2R] facts of each directed relation at the entity that the question names, the hidden one aside."""
        row = slice(
            int(self.graph.row_start[self.asking.head]), int(self.graph.row_start[self.asking.head + 1])
        )
        count = torch.bincount(
            self.graph.edge_relation[row].long(), minlength=self.graph.relation_vocabulary.num_directed
        )
        if self.asking.hidden >= 0:
            count[self.asking.relation] -= 1
        return count

    def _gates(self) -> Tensor | None:
        """[2R] what the model multiplies messages with; None where it has no gate."""
        streams = getattr(self.asking.model, "context", None)
        if not isinstance(streams, ContextStreams):
            return None
        with torch.no_grad():
            table = streams.gate_table(self.batch)
        return None if table is None else table[0].cpu()

    def dropped(self) -> tuple[DroppedRelation, ...]:
        """By forward relation, the facts within reach of the model that no pooled graph holds; most first."""
        reached = self._facts(self.batch.propagation.edge_id)
        kept = torch.cat([self._facts(walk.union().edge.long()) for walk in self.walks])
        is_kept = torch.isin(reached, kept)
        relation = self.graph.edge_relation[reached].long()
        totals = torch.bincount(relation, minlength=self.graph.num_relations).tolist()
        held = torch.bincount(relation[is_kept], minlength=self.graph.num_relations).tolist()
        rows = [
            DroppedRelation(label, total - kept_here, kept_here)
            for label, total, kept_here in zip(self.graph.relations, totals, held, strict=True)
            if total > kept_here
        ]
        return tuple(sorted(rows, key=lambda row: (-row.dropped, row.relation)))

    def _facts(self, edges: Tensor) -> Tensor:
        """The distinct facts behind directed edges, as the ids of their forward edges."""
        forward = self.graph.edge_relation[edges] < self.graph.num_relations
        facts = torch.where(forward, edges, self.graph.edge_inverse[edges].long())
        return facts.unique(sorted=True)  # type: ignore[no-any-return]

    def candidate(self) -> CandidateRelevance:
        """The largest precision[inverse(r), y] over the relations y of the answer, the hidden fact aside."""
        answer, wanted = self.asking.answer, inverse(self.asking.relation, self.graph.num_relations)
        row = torch.arange(int(self.graph.row_start[answer]), int(self.graph.row_start[answer + 1]))
        if self.asking.hidden >= 0:
            row = row[row != int(self.graph.edge_inverse[self.asking.hidden])]
        has = torch.unique(self.graph.edge_relation[row.to(self.graph.device)]).tolist()
        precision = neighborhood_precision(self.counts)[wanted]
        labels = self.graph.relation_vocabulary.directed
        best = min(((-float(precision[one]), labels[one]) for one in has), default=(0.0, ""))
        return CandidateRelevance(-best[0], best[1] if best[0] < 0 else None)
