"""A query never sees its own answer, with any option of context, of models and of training."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from contextpool.context.config import ContextConfig, ViewConfig
from contextpool.context.counts import Statistics
from contextpool.graph.graph import Graph
from contextpool.models.base import LinkPredictor
from contextpool.pool.batch import BatchBuilder
from contextpool.pool.hide import EdgeDropout, HiddenEdges
from learning_worlds import ask, new_model, random_graph, without_fact
from learning_worlds import one_thread as one_thread
from support import amount, context_with

CASES = amount(5, 150)
LAYERS = 2
VIEWS = (ViewConfig(0.49, 0.0), ViewConfig(0.0, 0.32))
"""Thresholds just below a half and a third, which are frequent in small graphs: one fact decides often."""
EVERYTHING = context_with(views=VIEWS, hops=2, gate=True, arrive=True, arrive_features=True, arrive_walk=True)
CONTEXTS: dict[str, ContextConfig | None] = {
    "features": context_with(views=(), arrive=True, arrive_features=True),
    "random walk": context_with(views=(), arrive=True, arrive_walk=True),
    "shuffled relevance": context_with(views=(), gate=True, arrive=True, relevance_control="shuffled"),
    "everything": EVERYTHING,
}
TRAINED = pytest.mark.parametrize("name", ["nbfnet", "redgnn"])


def hiding_and_honest(
    model: LinkPredictor, graph: Graph, context: ContextConfig | None, *, counts_know: bool = False
) -> tuple[Tensor, Tensor]:
    """Scores with every edge hidden from itself (with `counts_know`, from walks alone), and on the graphs that never
    held them.
    """
    head, relation, edge = graph.edge_head.long(), graph.edge_relation.long(), torch.arange(graph.num_edges)
    related = model.reads_relations
    builder = BatchBuilder(graph, LAYERS, context, relation_graph=related)
    hidden = {"removed": HiddenEdges.one_per_query(graph, edge)} if counts_know else {"hidden_edge": edge}
    with torch.no_grad():
        hiding = model(builder.build(head, relation, **hidden))
    honest = []
    for number in edge.tolist():
        smaller = without_fact(graph, number)
        own = BatchBuilder(smaller, LAYERS, context, Statistics.of(smaller), relation_graph=related)
        honest.append(ask(model, own, head[number, None], relation[number, None])[0])
    return hiding, torch.stack(honest)


def worst(name: str, context: ContextConfig | None, **settings: Any) -> float:
    largest = 0.0
    for seed in range(CASES):
        graph = random_graph(seed)
        model = new_model(name, graph, context, seed, **settings)
        hiding, honest = hiding_and_honest(model, graph, context)
        largest = max(largest, float((hiding - honest).abs().max()))
    return largest


@TRAINED
@pytest.mark.parametrize("way", sorted(CONTEXTS))
def test_scores_with_an_option_of_context(name: str, way: str) -> None:
    assert worst(name, CONTEXTS[way]) <= 1e-5


@pytest.mark.parametrize(
    "context",
    [None, EVERYTHING, CONTEXTS["shuffled relevance"]],
    ids=["plain", "everything", "shuffled relevance"],
)
def test_scores_with_a_relation_encoder(context: ContextConfig | None) -> None:
    assert worst("nbfnet", context, relation_encoder=True) <= 2e-5


def test_scores_that_exclude_the_head() -> None:
    """The mask is the model's, so it is the same for both graphs."""
    assert worst("nbfnet", None, exclude_head=True) <= 1e-5


@pytest.mark.parametrize("way", ["features", "shuffled relevance", "everything"])
def test_counts_that_keep_the_hidden_fact_would_be_noticed(way: str) -> None:
    context = CONTEXTS[way]
    assert context is not None
    assert seen_with_the_fact(context) > 1e-2


def test_an_encoder_that_keeps_the_hidden_fact_would_be_noticed() -> None:
    assert seen_with_the_fact(context_with(views=()), relation_encoder=True) > 1e-2


def seen_with_the_fact(context: ContextConfig, **settings: Any) -> float:
    """Where it is hidden from the walks, and the counts know it."""
    largest = 0.0
    for seed in range(CASES):
        graph = random_graph(seed)
        model = new_model("nbfnet", graph, context, seed, **settings)
        hiding, honest = hiding_and_honest(model, graph, context, counts_know=True)
        largest = max(largest, float((hiding - honest).abs().max()))
    return largest


@TRAINED
def test_dropping_edges_never_brings_the_hidden_one_back(name: str) -> None:
    """Scores under dropout are those of the smaller graph without the same facts."""
    for seed in range(CASES):
        graph = random_graph(seed, most=20)
        model = new_model(name, graph, EVERYTHING, seed)
        builder = BatchBuilder(graph, LAYERS, EVERYTHING)
        head, relation, edge = (
            graph.edge_head.long(),
            graph.edge_relation.long(),
            torch.arange(graph.num_edges),
        )
        dropout = EdgeDropout(0.3, seed)
        with torch.no_grad():
            scores = model(builder.build(head, relation, edge, dropout=dropout))
        gone = dropout.dropped(graph, len(head))
        for number in edge.tolist():
            smaller = without_fact(graph, number)
            place = smaller.find_edges(graph.edge_head, graph.edge_relation, graph.edge_tail)
            lost = place[gone[number] & (place >= 0)]
            removed = HiddenEdges.of_edges(smaller, torch.zeros_like(lost), lost, 1)
            own = BatchBuilder(smaller, LAYERS, EVERYTHING, Statistics.of(smaller))
            with torch.no_grad():
                honest = model(own.build(head[number, None], relation[number, None], removed=removed))
            torch.testing.assert_close(scores[number, None], honest, atol=1e-5, rtol=1e-5)
