"""Scorers that have learned nothing: what any model has to beat, and what checks the evaluation itself."""

from __future__ import annotations

import torch
from torch import Tensor

from contextpool.errors import DataError
from contextpool.evaluate.ranks import Scorer
from contextpool.graph.graph import Graph


def constant_scorer(num_entities: int) -> Scorer:
    """The same score for every entity: everything ties, and MRR is about 2 / (N + 1)."""

    def score(query_head: Tensor, query_relation: Tensor) -> Tensor:
        return torch.zeros(len(query_head), num_entities, device=query_head.device)

    return score


def frequency_scorer(graph: Graph) -> Scorer:
    """The most frequent answer: the score of c for (h, x, ?) is the number of edges of x that arrive at c.

    x is a directed relation in [0, 2R), so tails and heads have their own counts; h plays no part.
    Holds the distinct (relation, tail) pairs of the graph, at most 2T; a batch takes O(B N).
    """
    count = graph.num_entities
    key = graph.edge_relation.long() * count + graph.edge_tail.long()  # [2T]
    distinct, frequency = torch.unique(key, return_counts=True)  # [P] sorted by relation, then tail
    relations = torch.arange(2 * graph.num_relations + 1, device=key.device)
    start = torch.searchsorted(distinct, relations * count)  # [2R + 1] where each relation's pairs begin
    tail, frequency = distinct % count, frequency.float()

    def score(query_head: Tensor, query_relation: Tensor) -> Tensor:
        _check_relations(query_relation, 2 * graph.num_relations)
        asked = query_relation.to(start.device)
        row, pair = _entries(start[asked], start[asked + 1])
        scores = torch.zeros(len(asked), count, device=start.device)
        scores[row, tail[pair]] = frequency[pair]  # each place once: the pairs are distinct
        return scores.to(query_head.device)

    return score


def _entries(begin: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """Row [K] and position [K] of everything in begin[row]:end[row], row by row."""
    size = end - begin  # [B]
    row = torch.repeat_interleave(torch.arange(len(size), device=size.device), size)  # [K]
    before = size.cumsum(0) - size  # [B]
    return row, torch.arange(len(row), device=size.device) - before[row] + begin[row]


def _check_relations(relation: Tensor, count: int) -> None:
    wrong = (relation < 0) | (relation >= count)
    if wrong.any():
        raise DataError(
            f"relation id {int(relation[wrong][0])} is out of range: the graph has {count} with inverses. "
            "Number graph and queries by the same vocabularies."
        )
