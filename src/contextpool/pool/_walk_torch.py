"""Algorithm 2 with torch operations, on any device: all queries of a chunk at once, hop by hop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from contextpool.graph.graph import Graph
from contextpool.pool._rows import entries_of_rows, pieces, without
from contextpool.pool.answers import BatchAnswers
from contextpool.pool.edge_set import EdgeSet, joined
from contextpool.pool.hidden import HiddenEdges
from contextpool.pool.incidence import Incidence, incidence_of

BYTES_PER_FLAG = 26
"""For each (query, pair) of a chunk: two flags, and the ids of those that are set, three times as int64."""
BYTES_PER_ENTRY = 64
"""For each entry of a compressed row that is expanded: row, position, relation, key, mask, ..."""


def walk(
    graph: Graph,
    query_head: Tensor,
    answers: BatchAnswers,
    hidden: HiddenEdges,
    num_hops: int,
    scratch_bytes: int,
) -> tuple[EdgeSet, ...]:
    """All hops of all queries. Half of the scratch goes to flags per (query, pair), half to expanded rows."""
    incidence, num_queries = incidence_of(graph), len(query_head)
    chunk = max(1, scratch_bytes // (2 * BYTES_PER_FLAG * max(incidence.num_pairs, 1)))
    limit = max(1, scratch_bytes // (2 * BYTES_PER_ENTRY))
    parts: list[list[tuple[Tensor, Tensor]]] = [[] for _ in range(num_hops)]
    for first in range(0, num_queries, chunk):
        last = min(first + chunk, num_queries)
        part = _Chunk.of(incidence, answers.part(first, last), hidden.part(first, last), limit)
        for hop, edges in enumerate(part.hops(query_head[first:last].long(), num_hops)):
            parts[hop] += [(query + first, edge) for query, edge in edges]
    return tuple(joined(hop, num_queries, graph.device) for hop in parts)


@dataclass(frozen=True, eq=False)
class _Askers:
    """A entities of some query, each asking with one row of the answers which relations may leave it."""

    query: Tensor  # [A] int64
    entity: Tensor  # [A] int64
    row: Tensor  # [A] int64


@dataclass(frozen=True, eq=False)
class _Chunk:
    """The walk of Q queries; sets of (query, pair) are flags [Q * P], so they come out sorted and each once."""

    incidence: Incidence
    answers: BatchAnswers
    changed_keys: Tensor  # [C]
    hidden_keys: Tensor  # [H]
    num_edges: int
    limit: int
    """Entries of rows that are expanded at a time."""

    @classmethod
    def of(cls, incidence: Incidence, answers: BatchAnswers, hidden: HiddenEdges, limit: int) -> _Chunk:
        return cls(incidence, answers, answers.changed_keys, hidden.keys, hidden.num_edges, limit)

    def hops(self, query_head: Tensor, num_hops: int) -> Iterator[list[tuple[Tensor, Tensor]]]:
        """For each hop its (query, edge) parts, int32, sorted."""
        queries = torch.arange(len(query_head), device=query_head.device)
        askers = _Askers(queries, query_head, self.answers.query_row.long())
        for hop in range(num_hops):
            edges = list(self._edges(*self._members(self._leaving(askers))))
            yield edges
            if hop + 1 < num_hops:
                askers = self._arriving(edges)

    def _leaving(self, askers: _Askers) -> Tensor:
        """[Q * P] the pairs (e, r') that some asker at e may leave by."""
        flags = self._no_flags()
        words, first_word = self.answers.rows.view(-1), askers.row * self.answers.rows.shape[1]
        first = self.incidence.entity_start.index_select(0, askers.entity)
        size = self.incidence.entity_start.index_select(0, askers.entity + 1) - first
        for start, end in pieces(size, self.limit):
            asker, pair = entries_of_rows(first[start:end], size[start:end])
            relation = self.incidence.pair_relation.index_select(0, pair)
            word = first_word[start:end].index_select(0, asker) + (relation >> 6)
            allowed = (words.index_select(0, word) >> (relation & 63)) & 1 != 0
            keys = askers.query[start:end].index_select(0, asker) * self.incidence.num_pairs + pair
            flags[keys[allowed]] = True
        return flags

    def _edges(self, query: Tensor, pair: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """(query, edge) of the edges of the pairs [F], except hidden ones, in pieces, int32."""
        first = self.incidence.pair_start.index_select(0, pair)
        size = self.incidence.pair_start.index_select(0, pair + 1) - first
        for start, end in pieces(size, self.limit):
            row, edge = entries_of_rows(first[start:end], size[start:end])
            edge_query = query[start:end].index_select(0, row)
            keep = without(edge_query * self.num_edges + edge, self.hidden_keys)
            if keep is not None:
                edge_query, edge = edge_query[keep], edge[keep]
            yield edge_query.int(), edge.int()

    def _arriving(self, edges: list[tuple[Tensor, Tensor]]) -> _Askers:
        """Each entity asks once with each relation it was arrived at by."""
        flags = self._no_flags()
        for edge_query, edge in edges:
            pair = self.incidence.edge_arrival.index_select(0, edge)
            flags[edge_query.long() * self.incidence.num_pairs + pair] = True
        query, pair = self._members(flags)
        return _Askers(
            query, self.incidence.pair_entity.index_select(0, pair).long(), self._rows_of(query, pair)
        )

    def _rows_of(self, query: Tensor, pair: Tensor) -> Tensor:
        """[A] the row that an arrival at the pair asks for; some queries have exceptions."""
        row = self.answers.pair_row.index_select(0, pair).long()
        if len(self.changed_keys) == 0 or len(row) == 0:
            return row
        keys = query * self.incidence.num_pairs + pair
        place = torch.searchsorted(keys, self.changed_keys).clamp(max=len(keys) - 1)
        arrived = keys[place] == self.changed_keys
        row[place[arrived]] = self.answers.changed_row[arrived].long()
        return row

    def _no_flags(self) -> Tensor:
        size = len(self.answers.query_row) * self.incidence.num_pairs
        return torch.zeros(size, dtype=torch.bool, device=self.incidence.pair_entity.device)

    def _members(self, flags: Tensor) -> tuple[Tensor, Tensor]:
        """(query, pair) [F] int64 of the flags that are set, sorted."""
        keys = torch.nonzero(flags).squeeze(1)
        query = torch.div(keys, max(self.incidence.num_pairs, 1), rounding_mode="floor")
        return query, keys - query * self.incidence.num_pairs
