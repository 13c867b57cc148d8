"""Answers from a capped walk: without a cap the scores of the whole graph, with one never a known answer as new."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from contextpool.context.config import PRESETS, ContextConfig
from contextpool.context.counts import Statistics
from contextpool.context.map_graph import map_graph
from contextpool.errors import ConfigError, DataError, UnknownNameError
from contextpool.experiment import load
from contextpool.graph.graph import Graph
from contextpool.graph.mapped import MappedGraph
from contextpool.models.nbfnet import mean_log_degree, set_mean_log_degree
from contextpool.models.walk import Walk, WalkConfig
from contextpool.predict import Predictor, Question
from contextpool.predict.answers import Selection
from contextpool.predict.asking import Asking
from contextpool.predict.bulk import observed_pairs
from contextpool.predict.fitted import FACTS_AT_FIRST
from contextpool.predict.frontier import Frontier
from learning_worlds import CONTEXTS, families, new_model, random_graph, without_fact
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
    scores = frontier.scores(near)[0]
    whole = predictor.scorer(graph)(*(torch.tensor([one]) for one in query))[0]
    places = np.array([graph.entity_id(frontier.graph.entities[one]) for one in near.found.entities.tolist()])
    return scores, whole[torch.from_numpy(places)], places


def queries_of(graph: Graph) -> list[tuple[int, int]]:
    pairs = [(e, r) for e in range(graph.num_entities) for r in range(2 * graph.num_relations)]
    return pairs[:: amount(7, 3)]


@pytest.mark.parametrize(
    ("name", "context"),
    [("nbfnet", "plain"), ("nbfnet", "all"), ("nbfnet", "families"), ("redgnn", "views"), ("drum", "gate")],
)
def test_without_a_cap_what_is_reached_scores_as_on_the_whole_graph(name: str, context: str) -> None:
    """To the bit."""
    for seed in range(amount(2, 20)):
        graph = random_graph(seed, most_entities=12, most_relations=3, most=20)
        predictor = predictor_of(graph, CONTEXTS[context], name)
        frontier = Frontier(predictor, graph, 0)
        for query in queries_of(graph):
            scores, whole, _ = both_scores(predictor, graph, frontier, query)
            assert torch.equal(scores, whole), (seed, query)


@pytest.mark.parametrize("name", ["anygraph", "nbfnet", "redgnn", "walk"])
def test_candidates_are_known_as_on_the_whole_graph(name: str) -> None:
    """Walk mass and features, on which the walk goes further than the two layers; products of other shapes round alike
    but for the last bits. Many entities are five and more hops away.
    """
    for seed in range(amount(12, 200)):
        graph = random_graph(seed, most_entities=16, most_relations=3, most=18)
        context = None if name == "walk" else PRESETS["default"]
        predictor = any_model(graph, context) if name == "anygraph" else predictor_of(graph, context, name)
        frontier = Frontier(predictor, graph, 0)
        for query in queries_of(graph):
            scores, whole, _ = both_scores(predictor, graph, frontier, query)
            torch.testing.assert_close(scores, whole, rtol=1e-6, atol=1e-6, msg=f"{seed} {query}")


def test_a_model_as_deep_as_the_walk_of_mass_gives_the_same_bits_or_nearly() -> None:
    """The model that ships, on a graph with structure: every candidate of every question of some entities."""
    predictor = load()
    frontier = Frontier(predictor, FAMILIES, 0)
    for query in [(0, 0), (7, 3), (30, 1), (52, 5), (61, 2)]:
        scores, whole, places = both_scores(predictor, FAMILIES, frontier, query)
        torch.testing.assert_close(scores, whole, rtol=1e-6, atol=1e-6)
        assert len(places) > 5


def any_model(graph: Graph, context: ContextConfig | None) -> Predictor:
    return Predictor(new_model("anygraph", graph, context), None, context, None)


def test_a_hidden_fact_is_as_if_it_had_never_been_there() -> None:
    """For the walk, the counts, the candidates, and what is known; PNA's constant is one number of the whole graph."""
    for seed in range(amount(12, 200)):
        graph = random_graph(seed, most_entities=9, most_relations=3, most=16)
        predictor = any_model(graph, PRESETS["default"])
        for edge in range(0, graph.num_edges, amount(3, 1)):
            smaller = without_fact(graph, edge)
            set_mean_log_degree(smaller, mean_log_degree(graph))
            query = int(graph.edge_head[edge]), int(graph.edge_relation[edge])
            for cap in (0, 3):
                frontier = Frontier(predictor, graph, cap)
                honest = Frontier(predictor, smaller, cap).nearby(*query)
                near = frontier.nearby(*query, hidden=edge)
                assert near.found.entities.tolist() == honest.found.entities.tolist()
                assert near.graph.triples == honest.graph.triples
                expected = Frontier(predictor, smaller, cap).scores(honest)
                torch.testing.assert_close(frontier.scores(near), expected, rtol=1e-6, atol=1e-6)


def test_probabilities_of_walks_are_fitted_on_facts_that_they_do_not_see() -> None:
    predictor = any_model(FAMILIES, PRESETS["default"])
    calibration = predictor.calibrate(FAMILIES, 40, cap=2)
    assert calibration is not None
    assert calibration.facts is not None
    assert 25 <= calibration.facts <= 40
    assert calibration.values[-1] < 1  # some answers were not reached
    everywhere = predictor.calibrate(FAMILIES, 40, cap=1000)
    assert everywhere is not None
    assert everywhere.values[-1] == 1
    assert predictor.calibrate(FAMILIES, 5000, cap=2).facts <= FACTS_AT_FIRST  # type: ignore[union-attr, operator]
    answers = predictor.predict(FAMILIES, *FAMILIES.triples[0][:2], cap=2)
    assert answers.calibrated_on == predictor.calibration_for(FAMILIES, cap=2).facts  # type: ignore[union-attr]
    assert all(one.probability <= calibration.values[-1] for one in answers if not one.known)  # type: ignore[operator]


def test_how_many_were_considered_is_said() -> None:
    graph = Graph.from_triples([("a", "r", "b"), ("b", "r", "c"), ("c", "r", "d"), ("d", "s", "e")])
    predictor = alike(graph, steps=2)
    some, every = (predictor.predict(graph, "a", "r", cap=cap) for cap in (9, None))
    assert (some.considered, every.considered) == ((3, 5), (5, 5))
    assert "considered 3 of 5 entities" in some.lines()
    assert not any("considered" in line for line in every.lines())
    assert (some.to_dict()["considered"], some.to_dict()["num_entities"]) == (3, 5)


@pytest.mark.parametrize("context", ["plain", "all"])
def test_a_mapped_graph_answers_as_the_graph_in_memory_does(context: str, tmp_path: Path) -> None:
    predictor = predictor_of(FAMILIES, CONTEXTS[context])
    mapped = mapped_of(FAMILIES, tmp_path)
    head, relation, _ = FAMILIES.triples[3]
    for cap in (0, 3, 1000, None):
        answers = predictor.predict(mapped, head, relation, cap=cap)
        asking = Asking(predictor, FAMILIES, frontier=Frontier(predictor, FAMILIES, cap or 0))
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
    asked = mapped.entity_id("a"), model.relation_id("q")
    near = Frontier(predictor, mapped, 0).nearby(*asked)
    assert set(near.graph.triples) == {("a", "r", "b"), ("b", "q", "d")}
    assert near.graph.relation_vocabulary == model.relation_vocabulary
    assert predictor.predict(mapped, "a", "p", cap=9, on_unknown="skip") != []
    asked = mapped.entity_id("b"), model.relation_id("q")
    hiding = Frontier(predictor, mapped, 0).nearby(*asked, hidden=mapped.edge_id("b", "q", "d"))
    assert set(hiding.graph.triples) == {("a", "r", "b")}


def test_what_a_capped_walk_cannot_do_is_refused(tmp_path: Path) -> None:
    predictor = predictor_of(FAMILIES, None)
    head, relation, tail = FAMILIES.triples[0]
    with pytest.raises(ConfigError, match="asks for a relation"):
        predictor.predict_batch(FAMILIES, [Question(head, None, tail)], cap=5)
    with pytest.raises(ConfigError, match="cap is -1"):
        predictor.predict(FAMILIES, head, relation, cap=-1)
    sets = predictor_of(FAMILIES, CONTEXTS["families"])
    with pytest.raises(ConfigError, match="Algorithm 1"):
        sets.predict(mapped_of(FAMILIES, tmp_path), head, relation, cap=5)


def test_observed_pairs_are_those_with_an_answer() -> None:
    found = {(FAMILIES.entities[e], FAMILIES.relations[r]) for e, r in observed_pairs(FAMILIES)}
    assert found == {(head, relation) for head, relation, _ in FAMILIES.triples}
    assert len(list(observed_pairs(FAMILIES))) == len(found)


@pytest.mark.parametrize("name", ["anygraph", "nbfnet"])
def test_an_explanation_by_a_walk_that_keeps_everything_is_that_of_the_whole_graph(
    name: str, tmp_path: Path
) -> None:
    """Of a fact of the graph, which is hidden, and of one that it lacks; each the tail's and the head's."""
    streets = [(f"f{number}", "lives beside", f"f{number + 1}") for number in range(3)]
    graph = Graph.from_triples(families(4) + streets)
    mapped = mapped_of(graph, tmp_path)
    context = PRESETS["default"]
    predictor = any_model(graph, context) if name == "anygraph" else predictor_of(graph, context)
    for fact in (("f1", "parent of", "f1.0"), ("f1.0", "sibling of", "f1.2")):
        for asked in ("tail", "head"):
            whole = predictor.explain(graph, *fact, asked=asked).to_dict()
            near = predictor.explain(mapped, *fact, asked=asked).to_dict()
            for one in (whole, near):
                for key in (
                    "probability",
                    "share",
                    "rank",
                    "candidates",
                ):  # among what is reached, and fitted on it
                    one.pop(key)
                if one["known"]:  # the walk's counts are those without the fact
                    one.pop("context"), one.pop("candidate")
                one["rival"].pop("probability")
            assert _rounded(near) == _rounded(whole)


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return round(value, 4) if isinstance(value, float) else value


def test_what_is_not_reached_is_not_explained() -> None:
    graph = Graph.from_triples([("a", "r", "b"), ("b", "r", "c"), ("c", "r", "d"), ("d", "s", "e")])
    with pytest.raises(DataError, match=r"'e' is not among the 3 entities .* from 'a', .* larger cap"):
        alike(graph, steps=2).explain(graph, "a", "r", "e", cap=9)
