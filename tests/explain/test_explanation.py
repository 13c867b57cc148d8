"""Whole explanations on worlds small enough to check by hand, against plain sets."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import torch

from contextpool.context.config import ContextConfig
from contextpool.context.counts import Statistics
from contextpool.context.neighbors import mine_context
from contextpool.errors import ConfigError, InputError, NonFiniteError
from contextpool.evaluate.calibration import Calibration
from contextpool.explain import Explanation
from contextpool.explain.explainer import explain_answer, reached_by
from contextpool.graph.graph import Graph
from contextpool.pool.batch import BatchBuilder
from contextpool.pool.pooled import pool
from contextpool.predict import Names, Predictor
from kernels.triton_here import needs_triton
from learning_worlds import CONTEXTS, families, new_model
from learning_worlds import one_thread as one_thread
from support import context_with

FAMILIES = Graph.from_triples(families(4))
MODELS = pytest.mark.parametrize("name", ["nbfnet", "redgnn", "walk"])
NEW = ("f1", "grandparent of", "f2.0.0")
"""A fact that the graph does not hold, nor reaches."""
HELD = ("f1", "grandparent of", "f1.0.1")


def predictor_of(name: str = "nbfnet", context: ContextConfig | None = None, **options: Any) -> Predictor:
    model = new_model(name, FAMILIES, context)
    statistics = None if context is None else Statistics.of(FAMILIES)
    return Predictor(
        model, FAMILIES.relation_vocabulary, context, statistics, use_statistics="train", **options
    )


@MODELS
@pytest.mark.parametrize("context", ["plain", "all", "families"])
def test_paths_lead_from_the_head_to_the_answer_over_facts_of_the_graph(name: str, context: str) -> None:
    explanation = predictor_of(name, CONTEXTS[context]).explain(FAMILIES, *HELD)
    assert explanation.paths
    by_edge = name == "walk" or any(path.strength > 0 for path in explanation.paths)
    assert explanation.method in (("removal", "gradient") if by_edge else ("gradient",))
    for path in explanation.paths:
        assert (path.edges[0][0], path.edges[-1][2]) == ("f1", "f1.0.1")
        assert all(first[2] == second[0] for first, second in zip(path.edges, path.edges[1:], strict=False))
        visited = [path.edges[0][0], *(edge[2] for edge in path.edges)]
        assert len(set(visited)) == len(visited)
        assert all(FAMILIES.edge_id(*edge) >= 0 for edge in path.edges)
        assert 0 <= path.weight <= 1
    total = sum(path.weight for path in explanation.paths)
    assert total == pytest.approx(1) or total == 0
    strengths = [path.strength for path in explanation.paths]
    assert strengths == sorted(strengths, reverse=True)


@needs_triton
@MODELS
@pytest.mark.parametrize("context", ["plain", "all"])
def test_batches_built_on_the_device_are_explained_alike(name: str, context: str) -> None:
    """They hold edges that no layer walks as well, such as the one that is hidden."""
    model = new_model(name, FAMILIES, CONTEXTS[context])
    edge = FAMILIES.edge_id(*HELD)
    fact = (FAMILIES.edge_head[edge], FAMILIES.edge_relation[edge], FAMILIES.edge_tail[edge])
    found = []
    for backend in ("auto", "triton"):
        given = (FAMILIES, model.num_layers, CONTEXTS[context], Statistics.of(FAMILIES))
        builder = BatchBuilder(*given, backend=backend)  # type: ignore[arg-type]
        found.append(explain_answer(model, builder, *map(int, fact)))
    one, other = found
    assert one.dropped == other.dropped
    assert [path.edges for path in one.paths] == [path.edges for path in other.paths]
    assert [path.strength for path in other.paths] == pytest.approx([path.strength for path in one.paths])


@MODELS
def test_a_fact_is_no_evidence_for_itself(name: str) -> None:
    explanation = predictor_of(name).explain(FAMILIES, *HELD, paths=100)
    assert explanation.known
    assert all(HELD not in path.edges for path in explanation.paths)
    assert "was hidden" in explanation.text()
    other = predictor_of(name).explain(FAMILIES, *NEW)
    assert not other.known
    assert "was hidden" not in other.text()


def test_score_and_rank_are_those_of_the_prediction() -> None:
    predictor = predictor_of(calibration=Calibration(1.0, (0.0, 1.0), (0.0, 0.9)))
    answers = predictor.predict(FAMILIES, "f1", "grandparent of", k=100)
    for place in (0, 1, 5):
        explanation = predictor.explain(FAMILIES, "f1", "grandparent of", answers[place].entity)
        assert explanation.score == pytest.approx(answers[place].score, abs=1e-6)
        assert explanation.probability == pytest.approx(answers[place].probability, abs=1e-6)
        ties = [n for n, answer in enumerate(answers, 1) if answer.score == answers[place].score]
        assert explanation.rank == pytest.approx(sum(ties) / len(ties))
        assert explanation.candidates == len(answers)


def test_heads_are_explained_by_the_inverse_question() -> None:
    predictor = predictor_of(context=CONTEXTS["all"])
    by_head = predictor.explain(FAMILIES, *HELD, asked="head")
    assert by_head.answer == "f1"
    assert by_head.given == "f1.0.1"
    assert by_head.question == "(?, grandparent of, f1.0.1)"
    turned = predictor.explain(FAMILIES, "f1.0.1", "grandparent of^-1", "f1")
    assert (turned.paths, turned.score, turned.context, turned.rival) == (
        by_head.paths, by_head.score, by_head.context, by_head.rival,
    )  # fmt: skip


def test_the_drop_of_a_path_is_what_its_removal_costs() -> None:
    predictor = predictor_of()
    explanation = predictor.explain(FAMILIES, *HELD, paths=3)
    for path in explanation.paths:
        facts = {(h, r, t) if not r.endswith("^-1") else (t, r[:-3], h) for h, r, t in path.edges}
        smaller = Graph.from_triples([fact for fact in FAMILIES.triples if fact not in facts | {HELD}])
        if set(smaller.entities) != set(FAMILIES.entities):
            continue
        found = predictor.predict(smaller, "f1", "grandparent of", k=100)
        score = next(answer.score for answer in found if answer.entity == "f1.0.1")
        assert path.drop == pytest.approx(explanation.score - score, abs=1e-5)


def test_context_is_what_mining_finds() -> None:
    context = context_with(hops=2)
    explanation = predictor_of(context=context).explain(FAMILIES, *NEW)
    views = [mine_context(FAMILIES, 0.1), mine_context(FAMILIES, 0.0, 0.1)]
    kept = {label for view in views for label in view.neighbors("grandparent of")}
    assert {one.relation for one in explanation.context} == kept
    for one in explanation.context:
        assert one.precision == views[0].precision("grandparent of", one.relation)
        assert one.recall == views[0].recall("grandparent of", one.relation)
        assert one.facts == sum(edge[0] == "f1" and edge[1] == one.relation for edge in directed(FAMILIES))
        assert one.gate is None
    order = [(-one.precision, -one.recall, one.relation) for one in explanation.context]
    assert order == sorted(order)
    assert explanation.pooled


def directed(graph: Graph) -> list[tuple[str, str, str]]:
    return list(graph.edge_labels(torch.arange(graph.num_edges)))


def test_gates_are_shown_where_there_are_some() -> None:
    explanation = predictor_of(context=CONTEXTS["gate"]).explain(FAMILIES, *NEW)
    assert not explanation.pooled
    assert explanation.context
    assert all(one.gate is not None and 0 < one.gate < 2 for one in explanation.context)


@pytest.mark.parametrize("context", ["views", "families", "plain"])
def test_what_was_dropped_is_what_is_within_reach_and_in_no_pooled_graph(context: str) -> None:
    config = CONTEXTS[context]
    predictor = predictor_of(context=config)
    explanation = predictor.explain(FAMILIES, *NEW)
    selectors = predictor.builder(FAMILIES).selectors or (mine_context(FAMILIES, 0.1),)
    hops = 3 if config is None else config.hops
    held = {
        fact(edge) for one in selectors for edge in pool(FAMILIES, one, "f1", "grandparent of", hops).triples
    }
    near, reached = {"f1"}, set()
    for _ in range(predictor.model.num_layers):
        edges = [edge for edge in directed(FAMILIES) if edge[0] in near]
        reached |= {fact(edge) for edge in edges}
        near |= {edge[2] for edge in edges}
    expected = {
        relation: (
            sum(one[1] == relation for one in reached - held),
            sum(one[1] == relation for one in reached & held),
        )
        for relation in FAMILIES.relations
    }
    found = {one.relation: (one.dropped, one.kept) for one in explanation.dropped}
    assert found == {relation: counts for relation, counts in expected.items() if counts[0]}


def fact(edge: tuple[str, str, str]) -> tuple[str, str, str]:
    head, relation, tail = edge
    return (tail, relation[:-3], head) if relation.endswith("^-1") else edge


def test_the_rival_is_the_best_other_new_answer_and_lacks_what_does_not_lead_there() -> None:
    predictor = predictor_of(calibration=Calibration(1.0, (0.0, 1.0), (0.0, 0.9)))
    answers = predictor.predict(FAMILIES, "f1", "grandparent of", k=3)
    for place, rival_place in ((0, 1), (1, 0), (2, 0)):
        explanation = predictor.explain(FAMILIES, "f1", "grandparent of", answers[place].entity)
        rival = explanation.rival
        assert rival is not None
        assert rival.entity == answers[rival_place].entity
        assert rival.margin == pytest.approx(answers[place].score - answers[rival_place].score, abs=1e-6)
        patterns = {path.pattern for path in explanation.paths}
        assert set(rival.lacks) | set(rival.shares) == patterns
        for pattern in patterns:
            reached = reached_by(FAMILIES, FAMILIES.entity_id("f1"), pattern)
            assert (FAMILIES.entity_id(rival.entity) in reached) == (pattern in rival.shares)
        assert ("ahead by" in explanation.text()) == (rival.margin < 0)


def test_patterns_are_followed_by_sets() -> None:
    start = FAMILIES.entity_id("f1")
    grandchildren = {
        FAMILIES.entities[one] for one in reached_by(FAMILIES, start, ("parent of", "parent of"))
    }
    assert grandchildren == {t for h, r, t in FAMILIES.triples if h == "f1" and r == "grandparent of"}
    hidden = FAMILIES.edge_id("f1", "parent of", "f1.0")
    fewer = {
        FAMILIES.entities[one] for one in reached_by(FAMILIES, start, ("parent of", "parent of"), hidden)
    }
    assert fewer == {one for one in grandchildren if not one.startswith("f1.0")}


def test_where_there_is_one_entity_there_is_no_rival() -> None:
    graph = Graph.from_triples([("a", "r", "b"), ("b", "s", "a")])
    model = new_model("nbfnet", graph)
    explanation = Predictor(model, graph.relation_vocabulary, None, None).explain(graph, "a", "r", "a")
    assert explanation.rival is None
    assert explanation.paths == ()
    assert "no path within the model's reach" in explanation.text()


def test_an_answer_out_of_reach_has_no_path_and_all_the_rest() -> None:
    explanation = predictor_of(context=CONTEXTS["all"]).explain(FAMILIES, *NEW)
    assert explanation.paths == ()
    assert explanation.score_without == explanation.score
    assert explanation.context
    assert explanation.rival is not None


def test_how_much_the_answer_looks_like_one() -> None:
    predictor = predictor_of(context=CONTEXTS["arrive"])
    explanation = predictor.explain(FAMILIES, *NEW)
    batch = predictor.builder(FAMILIES).build(
        torch.tensor([FAMILIES.entity_id("f1")]), torch.tensor([FAMILIES.relation_id("grandparent of")])
    )
    assert batch.candidate_relevance is not None
    relevance = float(batch.candidate_relevance[0, FAMILIES.entity_id("f2.0.0")])
    assert explanation.candidate.relevance == pytest.approx(relevance)
    assert explanation.candidate.relation == "grandparent of^-1"
    hidden = predictor.explain(FAMILIES, *HELD)
    assert hidden.candidate.relation == "parent of^-1"


def test_everything_is_json_and_says_what_the_text_says() -> None:
    explanation = predictor_of(context=CONTEXTS["all"]).explain(FAMILIES, *HELD)
    values = json.loads(explanation.to_json())
    assert values == explanation.to_dict()
    assert values["answer"] == "f1.0.1"
    assert values["paths"][0]["edges"] == [list(edge) for edge in explanation.paths[0].edges]
    assert set(values) >= {
        "head",
        "relation",
        "tail",
        "score",
        "paths",
        "context",
        "dropped",
        "rival",
        "candidate",
    }
    text = explanation.text()
    assert text.splitlines()[0].startswith("(f1, grandparent of, ?)  f1.0.1: rank ")
    assert f"{explanation.paths[0].weight:4.0%}" in text


def test_a_small_probability_never_reads_as_none_at_all() -> None:
    explanation = replace(predictor_of().explain(FAMILIES, *HELD), probability=0.001)
    assert "probability <1%, score" in explanation.text()


def test_inverse_steps_are_written_as_arrows_that_point_back() -> None:
    explanation = predictor_of().explain(FAMILIES, "f1.0.0", "sibling of", "f1.0.1")
    steps = {relation for path in explanation.paths for relation in path.pattern}
    assert any(relation.endswith("^-1") for relation in steps)
    assert "f1.0.0 <-parent of- f1.0" in explanation.text()
    assert "^-1" not in "".join(line for line in explanation.text().splitlines() if "%  " in line)


def test_names_are_used_wherever_labels_are_shown() -> None:
    names = Names({"f1": "Ada", "f1.0": "Ben", "f1.0.1": "Cleo", "parent of": "raised"})
    explanation = predictor_of().explain(FAMILIES, "Ada", "grandparent of", "Cleo", names=names)
    assert (explanation.head, explanation.tail) == ("f1", "f1.0.1")
    assert explanation.question == "(Ada, grandparent of, ?)"
    assert "Ada -raised-> Ben -raised-> Cleo" in explanation.text()
    assert explanation.to_dict()["names"]["f1"] == "Ada"
    assert explanation.shown("parent of^-1") == "raised^-1"


def test_threads_explain_what_one_explains() -> None:
    predictor = predictor_of(context=CONTEXTS["all"])
    expected = predictor.explain(FAMILIES, *HELD)

    def explain(_: int) -> Explanation:
        return predictor.explain(FAMILIES, *HELD)

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(explain, range(8))) == [expected] * 8
    assert all(weight.grad is None for weight in predictor.model.parameters())


def test_explaining_reads_no_global_random_numbers_and_leaves_gradients_off() -> None:
    state = torch.get_rng_state()
    with torch.no_grad():
        predictor_of().explain(FAMILIES, *HELD)
        assert not torch.is_grad_enabled()
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"head": "f1x"}, "entity 'f1x' is unknown .* closest 'f1'"),
        ({"relation": "grandparent"}, "closest 'grandparent of'"),
        ({"head": "f1x", "tail": "f2x"}, "2 names .* 'f1x' .* 'f2x'"),
        ({"tail": ""}, "entity '' is unknown"),
        ({"tail": "x" * 10**6}, "1,000,000 characters"),
        ({"asked": "relation"}, "asked is 'relation'"),
        ({"paths": 0}, "paths is 0"),
        ({"paths": 10**9}, "paths is 1000000000"),
    ],
)
def test_bad_input_is_refused_by_name(options: dict[str, Any], words: str) -> None:
    asked = {"head": "f1", "relation": "grandparent of", "tail": "f1.0.1", **options}
    with pytest.raises(InputError, match=words):
        predictor_of().explain(FAMILIES, **asked)


def test_scores_that_are_not_finite_are_an_error() -> None:
    predictor = predictor_of()
    with torch.no_grad():
        next(iter(predictor.model.parameters())).fill_(float("nan"))
    with pytest.raises(NonFiniteError, match="not finite"):
        predictor.explain(FAMILIES, *HELD)


def test_pictures_are_refused_by_suffix(tmp_path: Any) -> None:
    with pytest.raises(ConfigError, match=r"\.svg or \.png, not '\.gif'"):
        predictor_of().explain(FAMILIES, *HELD).save(tmp_path / "x.gif")
