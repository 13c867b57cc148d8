"""Answers from a capped walk: without a cap the scores of the whole graph, with one never a known answer as new."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from contextpool.context.config import ContextConfig
from contextpool.context.counts import Statistics
from contextpool.context.map_graph import map_graph
from contextpool.errors import ConfigError, UnknownNameError
from contextpool.graph.graph import Graph
from contextpool.graph.mapped import MappedGraph
from contextpool.models.walk import Walk, WalkConfig
from contextpool.predict import Predictor, Question
from contextpool.predict.answers import Selection
from contextpool.predict.asking import Asking
from contextpool.predict.bulk import observed_pairs
from contextpool.predict.frontier import Frontier
from learning_worlds import CONTEXTS, families, new_model, random_graph
from learning_worlds import one_thread as one_thread
from support import amount

FAMILIES = Graph.from_triples(families())


def predictor_of(graph: Graph, context: ContextConfig | None, name: str = "nbfnet") -> Predictor:
    statistics = None if context is None else Statistics.of(graph)
    return Predictor(new_model(name, graph, context), graph.relation_vocabulary, context, statistics)


def mapped_of(graph: Graph, folder: Path) -> MappedGraph:
    path = folder / "facts.tsv"
    path.write_text("".join("\t".join(triple) + "\n" for triple in graph.triples), encoding="utf-8")
    return map_graph([path], folder / "graph")


def both_scores(
    predictor: Predictor, graph: Graph, frontier: Frontier, query: tuple[int, int]
) -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
    """Of the reached entities by the frontier and by the whole graph, and who they are in the latter."""
    entity = frontier.graph.entity_id(graph.entities[query[0]])
    near = frontier.nearby(entity, query[1])
    scores = frontier.scores(near, entity, query[1])[0]
    whole = predictor.scorer(graph)(*(torch.tensor([one]) for one in query))[0]
    places = np.array([graph.entity_id(frontier.graph.entities[one]) for one in near.found.entities.tolist()])
    return scores, whole[torch.from_numpy(places)], places


@pytest.mark.parametrize(
    ("name", "context"),
    [("nbfnet", "plain"), ("nbfnet", "all"), ("nbfnet", "families"), ("redgnn", "views"), ("drum", "gate")],
)
def test_without_a_cap_what_is_reached_scores_as_on_the_whole_graph(name: str, context: str) -> None:
    """To the bit."""
    for seed in range(amount(2, 20)):
        graph = random_graph(seed, most_entities=12, most_relations=3, most=20)
        predictor = predictor_of(graph, CONTEXTS[context], name)
        frontier = predictor.frontier(graph, None)
        for query in [(e, r) for e in range(graph.num_entities) for r in range(2 * graph.num_relations)][
            :: amount(7, 3)
        ]:
            scores, whole, _ = both_scores(predictor, graph, frontier, query)
            assert torch.equal(scores, whole), (seed, query)


@pytest.mark.parametrize("context", ["plain", "all"])
def test_a_mapped_graph_answers_as_the_graph_in_memory_does(context: str, tmp_path: Path) -> None:
    predictor = predictor_of(FAMILIES, CONTEXTS[context])
    mapped = mapped_of(FAMILIES, tmp_path)
    head, relation, _ = FAMILIES.triples[3]
    for cap in (None, 3, 1000):
        answers = predictor.predict(mapped, head, relation, cap=cap)
        asking = Asking(predictor, FAMILIES, frontier=predictor.frontier(FAMILIES, cap))
        assert answers == next(asking.stream([Question(head, relation)], Selection()))
        assert [answer.known for answer in answers] == [False] * len(answers)


def test_no_cap_on_a_graph_in_memory_ranks_every_entity_as_before() -> None:
    predictor = predictor_of(FAMILIES, CONTEXTS["all"])
    head, relation, _ = FAMILIES.triples[0]
    answers = predictor.predict(FAMILIES, head, relation, k=10_000, known=True, cap=None)
    scores = predictor.scorer(FAMILIES)(
        torch.tensor([FAMILIES.entity_id(head)]), torch.tensor([FAMILIES.relation_id(relation)])
    )[0]
    assert len(answers) == FAMILIES.num_entities
    assert all(answer.score == float(scores[FAMILIES.entity_id(answer.entity)]) for answer in answers)


class EveryoneAlike(Walk):
    """All candidates tie, so answers come by label; relations are those of the model, as a trained one has it."""

    any_relation = False

    def forward(self, batch):  # type: ignore[no-untyped-def]
        walk = batch.propagation
        return torch.zeros(walk.num_queries, walk.num_entities)


def alike(graph: Graph, steps: int = 2) -> Predictor:
    return Predictor(
        EveryoneAlike(graph.num_relations, WalkConfig(steps)), graph.relation_vocabulary, None, None
    )


def test_an_answer_is_known_where_the_walk_has_dropped_the_fact() -> None:
    """The cap keeps p before r: b is reached by p, and (a, r, b) is not walked, but b is no new answer."""
    graph = Graph.from_triples([("a", "p", "b"), ("a", "r", "b"), ("a", "r", "c"), ("c", "p", "d")])
    predictor = alike(graph, steps=1)
    assert predictor.frontier(graph, 1).nearby(0, graph.relation_id("r")).found.edges_kept == (1,)
    shown = predictor.predict(graph, "a", "r", known=True, cap=1)
    assert {answer.entity: answer.known for answer in shown} == {"a": False, "b": True}
    assert [answer.entity for answer in predictor.predict(graph, "a", "r", cap=1)] == ["a"]


def test_heads_are_asked_candidates_and_having_restrict() -> None:
    graph = Graph.from_triples([("a", "r", "b"), ("c", "s", "b"), ("c", "r", "d"), ("e", "s", "d")])
    predictor = alike(graph)
    reached = [answer.entity for answer in predictor.predict_heads(graph, "r", "b", cap=50)]
    assert reached == ["b", "c", "d"]  # a is known; e is three hops away
    some = predictor.predict_heads(graph, "r", "b", cap=50, candidates=["c", "e"])
    assert [answer.entity for answer in some] == ["c"]
    having = predictor.predict_heads(graph, "r", "b", cap=50, having="s^-1")
    assert [answer.entity for answer in having] == ["b", "d"]


def test_relations_of_a_mapped_graph_are_numbered_by_the_model(tmp_path: Path) -> None:
    """The graph lacks a relation of the model and has one that the model does not know."""
    model = Graph.from_triples([("x", "p", "y"), ("x", "q", "y"), ("x", "r", "y")])
    facts = [("a", "r", "b"), ("b", "o", "c"), ("b", "q", "d"), ("d", "o", "e")]
    mapped = mapped_of(Graph.from_triples(facts), tmp_path)
    predictor = alike(model)
    with pytest.raises(UnknownNameError, match="'o'"):
        predictor.predict(mapped, "a", "q", cap=9)
    answers = predictor.predict(mapped, "a", "q", cap=9, on_unknown="skip")
    assert [answer.entity for answer in answers] == ["a", "b", "d"]
    assert predictor.prepared(mapped, on_unknown="skip") == (mapped, 2)
    near = predictor.frontier(mapped, None).nearby(mapped.entity_id("a"), model.relation_id("q"))
    assert set(near.graph.triples) == {("a", "r", "b"), ("b", "q", "d")}
    assert near.graph.relation_vocabulary == model.relation_vocabulary
    assert predictor.predict(mapped, "a", "p", cap=9, on_unknown="skip") != []


def test_what_a_capped_walk_cannot_do_is_refused(tmp_path: Path) -> None:
    predictor = predictor_of(FAMILIES, None)
    head, relation, tail = FAMILIES.triples[0]
    with pytest.raises(ConfigError, match="asks for a relation"):
        predictor.predict_batch(FAMILIES, [Question(head, None, tail)], cap=5)
    with pytest.raises(ConfigError, match="cap is 0"):
        predictor.predict(FAMILIES, head, relation, cap=0)
    features = replace(CONTEXTS["arrive"], arrive_features=True)  # type: ignore[type-var]
    with pytest.raises(ConfigError, match="arrive_features"):
        predictor_of(FAMILIES, features).predict(FAMILIES, head, relation, cap=5)
    sets = predictor_of(FAMILIES, CONTEXTS["families"])
    with pytest.raises(ConfigError, match="Algorithm 1"):
        sets.predict(mapped_of(FAMILIES, tmp_path), head, relation, cap=5)


def test_observed_pairs_are_those_with_an_answer() -> None:
    found = {(FAMILIES.entities[e], FAMILIES.relations[r]) for e, r in observed_pairs(FAMILIES)}
    assert found == {(head, relation) for head, relation, _ in FAMILIES.triples}
    assert len(list(observed_pairs(FAMILIES))) == len(found)
