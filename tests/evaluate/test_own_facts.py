"""Facts of a graph, each hidden from itself. The slow twin: the graph that never held the fact, counted anew."""

from __future__ import annotations

import pytest
import torch

from contextpool.context.config import ContextConfig
from contextpool.context.counts import Statistics
from contextpool.errors import ConfigError
from contextpool.evaluate.calibration import fit_on_answers
from contextpool.evaluate.own_facts import calibrate_on_facts, questions_at_once, scored_facts
from contextpool.graph.graph import Graph
from contextpool.graph.relations import DirectedQueries
from contextpool.models.nbfnet import mean_log_degree, set_mean_log_degree
from contextpool.pool.batch import BatchBuilder
from contextpool.triples.filters import KnownAnswers
from contextpool.triples.store import Triples
from learning_worlds import CONTEXTS, ask, families, new_model, random_graph, without_fact
from learning_worlds import one_thread as one_thread
from support import amount, context_with

CASES = [
    ("nbfnet", CONTEXTS["plain"]),
    ("nbfnet", CONTEXTS["all"]),
    ("redgnn", CONTEXTS["gate"]),
    ("walk", CONTEXTS["arrive"]),
    ("anygraph", context_with(views=(), gate=True, arrive=True, arrive_features=True, arrive_walk=True)),
]
FAMILIES = Graph.from_triples(families())


def builder_of(name: str, graph: Graph, context: ContextConfig | None, seed: int = 0):
    model = new_model(name, graph, context, seed)
    return model, model.builder(graph, context, None if context is None else Statistics.of(graph))


@pytest.mark.parametrize(("name", "context"), CASES)
def test_a_hidden_fact_scores_as_on_the_graph_without_it(name: str, context: ContextConfig | None) -> None:
    for seed in range(amount(4, 100)):
        graph = random_graph(seed)
        model, builder = builder_of(name, graph, context, seed)
        facts = graph.as_triples()
        asked, known = DirectedQueries.of(facts), KnownAnswers.of(facts)
        for chunk, _, _ in scored_facts(model, builder, facts.ids, known, batch_size=5):
            for row, place in enumerate(chunk.place.tolist()):
                query = [int(column[place]) for column in (asked.entity, asked.relation, asked.answer)]
                edge = graph.find_edge(*query)
                assert edge is not None
                smaller = without_fact(graph, edge)
                set_mean_log_degree(
                    smaller, mean_log_degree(graph)
                )  # shared on purpose: one number of the graph
                own = model.builder(smaller, context, None if context is None else Statistics.of(smaller))
                slow = ask(model, own, torch.tensor(query[:1]), torch.tensor(query[1:2]))[0]
                assert torch.allclose(chunk.scores[row].double(), slow.double(), atol=1e-5)


def test_facts_come_both_ways_with_what_else_the_graph_holds() -> None:
    graph = Graph.from_triples([("a", "r", "b"), ("a", "r", "c"), ("d", "r", "c")])
    model, builder = builder_of("walk", graph, CONTEXTS["arrive"])
    facts = graph.as_triples()
    tail, head = (one.answers for one in scored_facts(model, builder, facts.ids, KnownAnswers.of(facts), 8))
    assert (tail.place.tolist(), tail.query.tolist()) == ([0, 1, 2], [0, 1, 2])
    assert (head.place.tolist(), head.query.tolist()) == ([3, 4, 5], [0, 1, 2])
    assert [graph.entities[one] for one in tail.answer] == ["b", "c", "c"]
    assert [graph.entities[one] for one in head.answer] == ["a", "a", "d"]
    known = sorted(
        zip(tail.known_row.tolist(), (graph.entities[one] for one in tail.known_entity), strict=True)
    )
    assert known == [(0, "c"), (1, "b")]  # not what is hidden


def test_what_the_graph_does_not_hold_is_asked_as_it_is() -> None:
    graph = FAMILIES
    model, builder = builder_of("nbfnet", graph, CONTEXTS["gate"])
    other = Triples.from_labels([("f0", "parent of", "f1.0"), ("f3", "grandparent of", "f4")])
    claims = other.with_vocabularies(graph.entity_vocabulary, graph.as_triples().relations)
    known = KnownAnswers.of(graph.as_triples())
    for chunk, _, hidden in scored_facts(model, builder, claims.ids, known, batch_size=2):
        assert hidden.tolist() == [-1, -1]
        asked = DirectedQueries.of(claims).select(chunk.place)
        plain = ask(model, builder, torch.from_numpy(asked.entity), torch.from_numpy(asked.relation))
        assert torch.allclose(chunk.scores, plain, atol=1e-5)


def test_a_calibration_says_how_many_facts_it_rests_on() -> None:
    model, builder = builder_of("nbfnet", FAMILIES, CONTEXTS["all"])
    facts = FAMILIES.as_triples().sample(40)
    fit = calibrate_on_facts(model, builder, facts, batch_size=16)
    assert fit.calibration is not None
    assert fit.calibration.facts == 40
    assert fit.num_queries == 80
    assert fit.calibration.knots == fit.calibration.values == (0.0, 1.0)  # few facts: a temperature alone
    smaller = calibrate_on_facts(model, builder, facts, batch_size=7)
    assert smaller.calibration is not None
    assert smaller.calibration.temperature == pytest.approx(fit.calibration.temperature, rel=0.02)


def test_a_fit_is_pulled_to_the_softmax_as_it_is() -> None:
    model, builder = builder_of("nbfnet", FAMILIES, CONTEXTS["all"])
    facts = FAMILIES.as_triples().sample(40)
    asked, known = DirectedQueries.of(facts), KnownAnswers.of(FAMILIES.as_triples())

    def fitted(pulled: bool) -> float:
        scored = (one.answers for one in scored_facts(model, builder, facts.ids, known, 16))
        calibration = fit_on_answers(scored, facts, asked, 80, 40, pulled=pulled).calibration
        assert calibration is not None
        return calibration.temperature

    assert fitted(True) == pytest.approx(fitted(False) ** (40 / 140))


def test_too_few_facts_give_a_reason_and_no_calibration() -> None:
    model, builder = builder_of("nbfnet", FAMILIES, CONTEXTS["all"])
    fit = calibrate_on_facts(model, builder, FAMILIES.as_triples().sample(3), batch_size=16)
    assert fit.calibration is None
    assert "3 facts make 6 questions; 50 are needed" in fit.reason


def test_large_graphs_are_asked_fewer_questions_at_once() -> None:
    assert questions_at_once(FAMILIES) == 32
    graph = BatchBuilder(FAMILIES, 1).graph
    with pytest.raises(ConfigError, match="batch_size is 0"):
        next(
            scored_facts(
                *builder_of("walk", graph, None),
                graph.as_triples().ids,
                KnownAnswers.of(graph.as_triples()),
                0,
            )
        )
