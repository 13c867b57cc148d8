"""Scorers and little worlds that several tests of the evaluation share."""

from __future__ import annotations

import random

import torch
from torch import Tensor

from contextpool.evaluate.ranks import Scorer
from contextpool.triples.labels import Vocabulary
from contextpool.triples.store import Triples


def numbered_triples(rows: list[tuple[int, int, int]], num_entities: int, num_relations: int) -> Triples:
    """Triples whose ids are the given numbers."""
    entities = Vocabulary.of(f"e{number:05d}" for number in range(num_entities))
    relations = Vocabulary.of((f"r{number:03d}" for number in range(num_relations)), "relation")
    labels = [(f"e{head:05d}", f"r{relation:03d}", f"e{tail:05d}") for head, relation, tail in rows]
    return Triples.from_labels(labels).with_vocabularies(entities, relations)


def distinct_rows(seed: int, num_entities: int, num_relations: int, count: int) -> list[tuple[int, int, int]]:
    rng = random.Random(seed)
    cells = rng.sample(range(num_entities * num_relations * num_entities), count)
    return [
        (cell // (num_relations * num_entities), cell // num_entities % num_relations, cell % num_entities)
        for cell in cells
    ]


def score_table(
    seed: int, num_entities: int, num_relations: int, tie_share: float, dtype: torch.dtype = torch.float32
) -> Tensor:
    """[N, 2R, N] distinct random scores of which a share is replaced by one and the same number."""
    rng = torch.Generator().manual_seed(seed)
    shape = (num_entities, 2 * num_relations, num_entities)
    scores = torch.randn(shape, generator=rng, dtype=dtype)
    return scores.masked_fill(torch.rand(shape, generator=rng) < tie_share, 0.25)


def table_scorer(table: Tensor) -> Scorer:
    return lambda head, relation: table.to(head.device)[head, relation].clone()
