"""Predictor: labels in, labels out, on any graph, from any number of threads."""

from __future__ import annotations

import gc
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from contextpool.context.config import ContextConfig
from contextpool.context.counts import Statistics, count_cooccurrence
from contextpool.context.more import MoreAnswers
from contextpool.errors import ConfigError, ContextPoolError, UnknownNameError
from contextpool.evaluate.calibration import Calibration
from contextpool.graph.graph import Graph
from contextpool.models.base import LinkPredictor
from contextpool.models.walk import Walk, WalkConfig
from contextpool.pool.batch import BatchBuilder, QueryBatch
from contextpool.predict import REMEMBERED_GRAPHS, Answer, Predictor
from learning_worlds import CONTEXTS, ask, families, new_model, random_graph
from learning_worlds import one_thread as one_thread

FAMILIES = Graph.from_triples(families())
EVERY_CONTEXT = pytest.mark.parametrize("context", list(CONTEXTS.values()), ids=list(CONTEXTS))


class ByLength(Walk):
    """Scores an entity by the length of its label, or by a number that is not one."""

    labels: tuple[str, ...] = ()
    wrong: float = 0.0

    def forward(self, batch: QueryBatch) -> Tensor:
        scores = torch.tensor([float(len(label)) + self.wrong for label in self.labels])
        return scores.expand(batch.propagation.num_queries, -1)


def by_length(graph: Graph, wrong: float = 0.0) -> Predictor:
    model = ByLength(graph.num_relations, WalkConfig(1))
    model.labels, model.wrong = graph.entities, wrong
    return Predictor(model, graph.relation_vocabulary, None, None)


def predictor_of(
    graph: Graph, context: ContextConfig | None, name: str = "nbfnet", **options: Any
) -> Predictor:
    model = new_model(name, graph, context)
    statistics = None if context is None else Statistics.of(graph)
    return Predictor(model, graph.relation_vocabulary, context, statistics, **options)


# which answers, in which order


def test_the_best_answers_come_first_and_ties_end_at_the_sorted_label() -> None:
    facts = [("a", "r", "bb"), ("zz", "r", "ccc"), ("dd", "r", "aa"), ("e", "r", "yy")]
    graph = Graph.from_triples(facts)
    answers = by_length(graph).predict(graph, "e", "r", k=6)
    assert [answer.entity for answer in answers] == ["ccc", "aa", "bb", "dd", "zz", "a"]
    assert [answer.score for answer in answers] == [3, 2, 2, 2, 2, 1]
    assert all(
        replace(answer, share=None) == Answer(answer.entity, answer.score, None, False) for answer in answers
    )


def test_known_answers_are_left_out_unless_asked_for() -> None:
    graph = Graph.from_triples([("a", "r", "bb"), ("a", "s", "ccc"), ("bb", "s", "a"), ("ccc", "r", "a")])
    predictor = by_length(graph)
    assert [answer.entity for answer in predictor.predict(graph, "a", "r")] == ["ccc", "a"]
    everything = predictor.predict(graph, "a", "r", known=True)
    assert [(answer.entity, answer.known) for answer in everything] == [
        ("ccc", False),
        ("bb", True),
        ("a", False),
    ]
    assert [answer.entity for answer in predictor.predict(graph, "a", "r^-1")] == ["bb", "a"]


def test_k_answers_at_the_most() -> None:
    graph = random_graph(3)
    predictor = predictor_of(graph, None)
    everyone = predictor.predict(graph, "e0", "r0", k=10**6, known=True)
    assert sorted(answer.entity for answer in everyone) == list(graph.entities)
    for k in (1, 2, 3):
        assert predictor.predict(graph, "e0", "r0", k=k, known=True) == everyone[:k]
    for k in (0, -1):
        with pytest.raises(ConfigError, match=f"k is {k}; ask for at least one"):
            predictor.predict(graph, "e0", "r0", k=k)


def test_where_everything_is_known_there_is_nothing_to_predict() -> None:
    graph = Graph.from_triples([("a", "r", "a"), ("a", "r", "b")])
    predictor = by_length(graph)
    assert predictor.predict(graph, "a", "r") == []
    assert len(predictor.predict(graph, "a", "r", known=True)) == 2


@EVERY_CONTEXT
def test_scores_are_those_of_the_model(context: ContextConfig | None) -> None:
    graph = random_graph(3)
    predictor = predictor_of(graph, context, use_statistics="train")
    builder = BatchBuilder(graph, 2, context)
    for relation in graph.relation_vocabulary.directed:
        head, asked = torch.tensor([0]), torch.tensor([graph.relation_id(relation)])
        row = ask(predictor.model, builder, head, asked)[0]
        answers = predictor.predict(graph, graph.entities[0], relation, k=100, known=True)
        assert {answer.entity: answer.score for answer in answers} == {
            entity: float(row[place]) for place, entity in enumerate(graph.entities)
        }


@EVERY_CONTEXT
def test_many_questions_are_answered_like_each_alone(context: ContextConfig | None) -> None:
    predictor = predictor_of(FAMILIES, context)
    queries = [
        (head, relation) for head in FAMILIES.entities[:6] for relation in ("parent of", "sibling of^-1")
    ]
    alone = [predictor.predict(FAMILIES, head, relation, k=4) for head, relation in queries]
    for size in (1, 5, 64):
        together = predictor.predict_batch(FAMILIES, queries, 4, batch_size=size)
        assert [[answer.entity for answer in answers] for answers in together] == [
            [answer.entity for answer in answers] for answers in alone
        ]
        for one, other in zip(together, alone, strict=True):
            expected = [answer.score for answer in other]
            assert [answer.score for answer in one] == pytest.approx(expected, abs=1e-5)
    assert predictor.predict_batch(FAMILIES, []) == []


def test_heads_are_asked_by_the_inverse() -> None:
    predictor = predictor_of(FAMILIES, None)
    expected = predictor.predict(FAMILIES, "f1.0", "parent of^-1", k=5)
    assert predictor.predict_heads(FAMILIES, "parent of", "f1.0", k=5) == expected
    tails = predictor.predict(FAMILIES, "f1.0", "parent of", k=5)
    assert predictor.predict_heads(FAMILIES, "parent of^-1", "f1.0", k=5) == tails


def test_probabilities_are_calibrated_where_there_is_a_calibration() -> None:
    graph = Graph.from_triples([("a", "r", "bb"), ("a", "s", "ccc"), ("bb", "s", "a"), ("ccc", "r", "a")])
    predictor = by_length(graph)
    predictor.calibration = Calibration(1.0, (0.0, 1.0), (0.0, 0.5))
    answers = predictor.predict(graph, "a", "r", known=True)
    share = torch.softmax(torch.tensor([1.0, 3.0]).double(), 0)  # a and ccc: bb is known and takes no part
    found = {answer.entity: answer.probability for answer in answers}
    more = MoreAnswers(graph, count_cooccurrence(graph)).chance(graph.entity_id("a"), graph.relation_id("r"))
    half = more / 2
    assert found == pytest.approx({"a": float(share[0]) * half, "ccc": float(share[1]) * half, "bb": 1.0})
    shares = {answer.entity: answer.share for answer in answers}
    assert shares == {"a": pytest.approx(float(share[0])), "ccc": pytest.approx(float(share[1])), "bb": None}


def test_scores_that_are_not_finite_are_an_error() -> None:
    graph = random_graph(3)
    for wrong in (float("nan"), float("inf")):
        with pytest.raises(ContextPoolError, match="not finite"):
            by_length(graph, wrong).predict(graph, "e0", "r0")


# graphs that are numbered otherwise, or hold what the model does not know


def test_unknown_names_are_errors_that_suggest_the_nearest() -> None:
    predictor = predictor_of(FAMILIES, None)
    with pytest.raises(
        UnknownNameError, match=r"entity 'f1\.00' is unknown \(85 known, closest 'f1\.0\.0', 'f1\.0',"
    ):
        predictor.predict(FAMILIES, "f1.00", "parent of")
    with pytest.raises(UnknownNameError, match=r"relation 'parents of' is unknown .* closest 'parent of'"):
        predictor.predict(FAMILIES, "f1.0", "parents of")
    with pytest.raises(UnknownNameError, match="relation"):
        predictor.predict(FAMILIES, "f1.0", "")


@EVERY_CONTEXT
def test_a_graph_with_fewer_relations_is_numbered_by_the_models(context: ContextConfig | None) -> None:
    facts = [triple for triple in FAMILIES.triples if triple[1] != "grandparent of"]
    smaller = Graph.from_triples(facts)
    same = smaller.with_relations(FAMILIES.relation_vocabulary)
    assert smaller.relations != FAMILIES.relations
    predictor = predictor_of(FAMILIES, context)
    for relation in ("sibling of", "grandparent of", "parent of^-1"):
        found = predictor.predict(smaller, "f1.0", relation, k=5)
        assert found == predictor.predict(same, "f1.0", relation, k=5)
    prepared, left_out = predictor.prepared(smaller)
    assert prepared.relation_vocabulary == FAMILIES.relation_vocabulary
    assert (prepared.triples == set(facts), left_out) == (True, 0)


@EVERY_CONTEXT
def test_unknown_relations_are_refused_or_skipped_and_counted(context: ContextConfig | None) -> None:
    more = [*FAMILIES.triples, ("f1", "likes", "f2"), ("f2", "likes", "f3"), ("f1", "adores", "newcomer")]
    graph = Graph.from_triples(more)
    predictor = predictor_of(FAMILIES, context)
    with pytest.raises(
        UnknownNameError, match=r"2 names .* 'adores' is unknown .* 'likes' .*on_unknown='skip'"
    ):
        predictor.predict(graph, "f1", "parent of")
    prepared, left_out = predictor.prepared(graph, on_unknown="skip")
    assert left_out == 3
    assert prepared.triples == set(FAMILIES.triples)
    assert "newcomer" in prepared.entities
    answers = predictor.predict(graph, "f1", "parent of", k=3, on_unknown="skip")
    assert len(answers) == 3
    assert predictor.prepared(FAMILIES, on_unknown="skip")[1] == 0


def test_statistics_of_both_graphs_are_summed_or_the_training_graphs_used() -> None:
    context = CONTEXTS["all"]
    train, new = FAMILIES, Graph.from_triples([("a", "parent of", "b"), ("a", "sibling of", "c")])
    own = new.with_relations(train.relation_vocabulary)
    summed, trained = (predictor_of(train, context, use_statistics=use) for use in ("sum", "train"))
    both = Statistics.of(train).counts.both
    assert (summed.builder(own)._counts.both.numpy() == both + Statistics.of(own).counts.both).all()
    assert (trained.builder(own)._counts.both.numpy() == both).all()
    with pytest.raises(ConfigError, match="statistics is 'mine'"):
        predictor_of(train, context, use_statistics="mine")


# threads and memory


def answers_in_threads(
    predictor: Predictor, graph: Graph, queries: list[tuple[str, str]]
) -> list[list[Answer]]:
    with ThreadPoolExecutor(4) as threads:
        return list(threads.map(lambda query: predictor.predict(graph, *query, k=5), queries))


@EVERY_CONTEXT
@pytest.mark.parametrize("renumbered", [False, True])
def test_four_threads_get_the_answers_that_one_gets(context: ContextConfig | None, renumbered: bool) -> None:
    """Also the first time, when everything about the graph still has to be counted."""
    facts = [triple for triple in FAMILIES.triples if not renumbered or triple[1] != "grandparent of"]
    queries = [(head, "parent of") for head in FAMILIES.entities[:12]]
    expected = [
        predictor_of(FAMILIES, context).predict(Graph.from_triples(facts), head, relation, k=5)
        for head, relation in queries
    ]
    for _ in range(2):
        predictor, graph = predictor_of(FAMILIES, context), Graph.from_triples(facts)
        assert answers_in_threads(predictor, graph, queries) == expected


@EVERY_CONTEXT
@pytest.mark.parametrize("renumbered", [False, True])
def test_a_graph_is_counted_once(context: ContextConfig | None, renumbered: bool) -> None:
    facts = [triple for triple in FAMILIES.triples if not renumbered or triple[1] != "grandparent of"]
    predictor, graph = predictor_of(FAMILIES, context), Graph.from_triples(facts)
    first = predictor.builder(predictor.prepared(graph)[0])
    answers_in_threads(predictor, graph, [("f1", "parent of")] * 8)
    assert predictor.builder(predictor.prepared(graph)[0]) is first
    skipping, _ = predictor.prepared(graph, on_unknown="skip")
    assert skipping.triples == set(facts)


def test_threads_that_come_at_once_wait_for_the_first_to_count(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[Graph] = []

    def slowly(graph: Graph, *rest: Any, **named: Any) -> BatchBuilder:
        counted.append(graph)
        time.sleep(0.05)
        return BatchBuilder(graph, *rest, **named)

    monkeypatch.setattr("contextpool.models.base.BatchBuilder", slowly)
    answers_in_threads(predictor_of(FAMILIES, None), FAMILIES, [("f1", "parent of")] * 4)
    assert counted == [FAMILIES]


@EVERY_CONTEXT
@pytest.mark.parametrize("renumbered", [False, True])
def test_graphs_do_not_pile_up(context: ContextConfig | None, renumbered: bool) -> None:
    """Only what is known about the newest few is kept; an older graph is forgotten with its owner."""
    facts = [triple for triple in FAMILIES.triples if not renumbered or triple[1] != "grandparent of"]
    predictor = predictor_of(FAMILIES, context)
    watched = []
    for _ in range(3 * REMEMBERED_GRAPHS):
        graph = Graph.from_triples(facts)
        predictor.predict(graph, "f1", "parent of")
        watched += [weakref.ref(graph), weakref.ref(predictor.prepared(graph)[0])]
    del graph
    gc.collect()
    alive = {id(reference()) for reference in watched if reference() is not None}
    assert 1 <= len(alive) <= 2 * REMEMBERED_GRAPHS


def test_reading_leaves_the_model_in_peace() -> None:
    """No gradients, no training mode, no global random numbers."""
    predictor = predictor_of(FAMILIES, CONTEXTS["all"])
    state = torch.get_rng_state()
    predictor.predict(FAMILIES, "f1", "parent of")
    assert torch.equal(torch.get_rng_state(), state)
    assert not predictor.model.training
    assert all(weight.grad is None for weight in predictor.model.parameters())
    scores = predictor.scorer(FAMILIES)(torch.tensor([0]), torch.tensor([0]))
    assert not scores.requires_grad
    assert isinstance(predictor.model, LinkPredictor)
