"""Relation questions (head, ?, tail), asked through the entity questions that the model knows."""

from __future__ import annotations

import torch
from torch import Tensor

from contextpool.evaluate.calibration import Calibration
from contextpool.evaluate.queries import Scorer
from contextpool.graph.graph import Graph
from contextpool.graph.relations import inverse
from contextpool.predict.answers import RelationAnswer
from contextpool.predict.names import Names
from contextpool.predict.ranking import best_places, known_answers, refuse_non_finite_rows


def relation_answers(
    scorer: Scorer,
    graph: Graph,
    head: int,
    tail: int,
    k: int,
    known: bool,
    calibration: Calibration | None,
    names: Names,
    batch_size: int,
) -> list[RelationAnswer]:
    """The k best forward relations from head to tail.

    The score of r is log P(tail | head, r) + log P(head | r, tail), each a softmax over all new answers at
    the temperature of the calibration: scores of different questions have no common scale, shares have.
    One that fits from a single end is no good answer, so both count. Under equal priors their product,
    divided by its sum over r, is the chance of r given that some new relation holds. 2R questions.
    """
    count = graph.num_relations
    relation = torch.arange(count, device=graph.device)
    temperature = 1.0 if calibration is None else calibration.temperature
    ends = ((head, relation, tail), (tail, inverse(relation, count), head))
    shares = [_log_share(scorer, graph, *end, temperature, batch_size) for end in ends]
    score = shares[0] + shares[1]  # [R]
    is_known = known_answers(graph, torch.tensor([head] * count), relation)[:, tail]
    chance = torch.softmax(score.masked_fill(is_known, -torch.inf), dim=0).masked_fill(is_known, 1.0)
    order = best_places(score if known else score.masked_fill(is_known, -torch.inf), k)
    return [
        RelationAnswer(
            label := graph.relations[place],
            float(score[place]),
            None if calibration is None else float(chance[place]),
            bool(is_known[place]),
            names.name(label),
        )
        for place in order
    ]


def _log_share(
    scorer: Scorer,
    graph: Graph,
    entity: int,
    relation: Tensor,
    answer: int,
    temperature: float,
    batch_size: int,
) -> Tensor:
    """[R] float64 log of the answer's share among the new answers, and itself, of (entity, relation [R], ?)."""
    parts = []
    for asked in relation.split(batch_size):
        entities = torch.full_like(asked, entity)
        scores = scorer(entities, asked)
        refuse_non_finite_rows(scores)
        others = known_answers(graph, entities, asked)
        others[:, answer] = False
        share = torch.log_softmax(scores.double().masked_fill(others, -torch.inf) / temperature, dim=1)
        parts.append(share[:, answer])
    return torch.cat(parts)
