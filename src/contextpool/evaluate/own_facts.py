"""Facts asked of a graph, each hidden from itself: labelled questions that cost nothing, on any graph.

Where the graph holds the fact, walks, relation sets and counts are as if it had never been there. Three things are
shared on purpose: the weights, the counts that a run brings from its own training graph, and PNA's constant, one
number of the whole graph. A claim that the graph does not hold is asked of the graph as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from contextpool.errors import ConfigError
from contextpool.evaluate.calibration import FEWEST_QUERIES, CalibrationFit, fit_on_answers
from contextpool.evaluate.ranks import ScoredAnswers
from contextpool.graph.graph import Graph
from contextpool.graph.relations import DirectedQueries
from contextpool.models.base import LinkPredictor
from contextpool.pool.batch import BatchBuilder, QueryBatch
from contextpool.triples.filters import KnownAnswers
from contextpool.triples.store import Triples

Rows = npt.NDArray[np.integer[Any]]
"""[n, 3] head, relation in [0, R), tail by the graph's ids, in any order."""
BYTES_AT_ONCE = 2**24
"""More does not stay in the processor's cache: 100 questions at once take a third longer than 8 at a time."""
BYTES_PER_ENTITY = 1024
"""Of one question: what a layer holds of each entity, and what is known of each candidate."""


def questions_at_once(graph: Graph, most: int = 32) -> int:
    """So many that what they hold of every entity stays within `BYTES_AT_ONCE`."""
    return max(1, min(most, BYTES_AT_ONCE // (BYTES_PER_ENTITY * max(1, graph.num_entities))))


class ScoredFacts(NamedTuple):
    """B claims asked one way."""

    answers: ScoredAnswers
    batch: QueryBatch
    hidden: Tensor
    """[B] the edge that each question does not see, -1 for none."""


def scored_facts(
    model: LinkPredictor,
    builder: BatchBuilder,
    claims: Rows,
    known: KnownAnswers,
    batch_size: int,
    instead_of: Rows | None = None,
) -> Iterator[ScoredFacts]:
    """Claims [n, 3] asked both ways, each hidden from itself: a batch as (h, r, ?), then the same as (?, r, t).

    With `instead_of` [n, 3], facts of the same relations, these are hidden in the place of the claims: what was false
    of a fact is asked as if it stood in the graph in its place. `place` numbers the questions, n to 2n for heads;
    `query` numbers the claims. What is hidden is nobody's known answer.
    """
    if batch_size < 1:
        raise ConfigError(f"batch_size is {batch_size}; it has to be at least 1.")
    count, graph = len(claims), builder.graph
    asked = _both_ways(claims, graph.num_relations)
    hidden = asked if instead_of is None else _both_ways(instead_of, graph.num_relations)
    for low in range(0, count, batch_size):
        high = min(low + batch_size, count)
        for direction in (0, count):
            places = np.arange(low, high) + direction
            columns = _on(graph, asked.select(places))
            edge = graph.find_edges(*_on(graph, hidden.select(places)))
            batch = builder.build(columns[0], columns[1], edge)
            with torch.no_grad():
                scores = model(batch)
            rows, entities = _known_besides(graph, asked.select(places), edge, known)
            answers = ScoredAnswers(places, places % count, scores, columns[2], rows, entities)
            yield ScoredFacts(answers, batch, edge)


def _both_ways(claims: Rows, num_relations: int) -> DirectedQueries:
    head, relation, tail = claims.T.astype(np.int64)
    return DirectedQueries(
        np.append(head, tail), np.append(relation, relation + num_relations), np.append(tail, head)
    )


def _on(graph: Graph, asked: DirectedQueries) -> tuple[Tensor, Tensor, Tensor]:
    head, relation, answer = (
        torch.from_numpy(ids).to(graph.device) for ids in (asked.entity, asked.relation, asked.answer)
    )
    return head, relation, answer


def _known_besides(
    graph: Graph, asked: DirectedQueries, edge: Tensor, known: KnownAnswers
) -> tuple[Tensor, Tensor]:
    """Row [K] and entity [K] of the known answers, but for what the hidden edge [B] of the row leads to."""
    row, entity = (torch.from_numpy(ids).to(graph.device) for ids in asked.known_answers(known))
    hidden = edge.clamp(min=0)[row]
    starts_here = graph.edge_head[hidden].long() == torch.from_numpy(asked.entity).to(graph.device)[row]
    ends_there = graph.edge_tail[hidden].long() == entity
    kept = ~((edge[row] >= 0) & starts_here & ends_there)
    return row[kept], entity[kept]


def calibrate_on_facts(
    model: LinkPredictor,
    builder: BatchBuilder,
    facts: Triples,
    batch_size: int,
    progress: Callable[[int, int], None] | None = None,
) -> CalibrationFit:
    """A calibration without training: facts of the builder's graph, each hidden from itself, are the answers.

    What else the graph holds as answers to the same question is left out, as it is when a question is answered.
    `progress` hears of questions done, of all; what it raises ends the fit.
    """
    count = 2 * len(facts)
    if count < FEWEST_QUERIES:
        reason = f"{len(facts)} facts make {count} questions; {FEWEST_QUERIES} are needed"
        return CalibrationFit(None, reason, count)
    known = KnownAnswers.of(builder.graph.as_triples())

    def scored() -> Iterator[ScoredAnswers]:
        done = 0
        for one in scored_facts(model, builder, facts.ids, known, batch_size):
            yield one.answers
            done += len(one.hidden)
            if progress is not None:
                progress(done, count)

    return fit_on_answers(scored(), facts, DirectedQueries.of(facts), count, len(facts), pulled=True)
