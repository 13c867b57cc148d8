"""One suite that every registered model passes, with every kind of context it takes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import contextpool as cp
from contextpool import experiment
from contextpool.context.config import ContextConfig
from contextpool.context.counts import Statistics
from contextpool.errors import ConfigError
from contextpool.graph.graph import Graph
from contextpool.models.base import LinkPredictor
from contextpool.models.nbfnet import mean_log_degree, set_mean_log_degree
from contextpool.models.registry import model_class, model_names
from learning_worlds import (
    CONTEXTS,
    SMALL,
    ask,
    every_query,
    families,
    family_dataset,
    graph_over,
    new_model,
    random_graph,
    without_fact,
)
from learning_worlds import one_thread as one_thread
from support import amount

CASES = amount(3, 100)
LEAKS = amount(2, 100)
MODELS = pytest.mark.parametrize("name", model_names())


def takes(name: str, context: ContextConfig | None) -> bool:
    try:
        model_class(name).check_context(context)
    except ConfigError:
        return False
    return True


def in_context(*, but: str = "") -> pytest.MarkDecorator:
    """Every model with every way of using context that it takes, except one."""
    return pytest.mark.parametrize(
        ("name", "context"),
        [
            pytest.param(name, context, id=f"{name}-{way}")
            for name in model_names()
            for way, context in CONTEXTS.items()
            if way != but and takes(name, context)
        ],
    )


IN_CONTEXT = in_context()
TRAINED_ON_FACTS = in_context(but="families")  # which tests/test_leaks.py shows to be refused


def scores_on(
    model: LinkPredictor, graph: Graph, context: ContextConfig | None, head: Tensor, relation: Tensor
) -> Tensor:
    return ask(model, model.builder(graph, context, None), head, relation)


def close(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


# shapes


@IN_CONTEXT
def test_every_query_gets_a_finite_score_for_every_entity(name: str, context: ContextConfig | None) -> None:
    for seed in range(CASES):
        graph = random_graph(seed)
        head, relation = every_query(graph)
        scores = scores_on(new_model(name, graph, context, seed), graph, context, head, relation)
        assert scores.shape == (len(head), graph.num_entities)
        assert scores.isfinite().all()


@IN_CONTEXT
def test_neither_batch_size_nor_order_changes_a_score(name: str, context: ContextConfig | None) -> None:
    for seed in range(CASES):
        graph = random_graph(seed)
        head, relation = every_query(graph)
        model = new_model(name, graph, context, seed)
        builder = model.builder(graph, context, None)
        together = ask(model, builder, head, relation)
        order = torch.randperm(len(head), generator=torch.Generator().manual_seed(seed))
        for size in (1, 7):
            rows = order[: 5 * size].split(size)
            parts = [ask(model, builder, head[part], relation[part]) for part in rows]
            close(torch.cat(parts), together[torch.cat(rows)])


# names of entities mean nothing


@IN_CONTEXT
def test_renaming_entities_permutes_scores_and_changes_nothing_else(
    name: str, context: ContextConfig | None
) -> None:
    """Also where the new names keep the order of the old ones."""
    for seed in range(CASES):
        graph = random_graph(seed)
        names = [f"x{number:02}" for number in range(graph.num_entities)]
        if seed != 1:
            random.Random(seed).shuffle(names)
        renamed = dict(zip(graph.entities, names, strict=True))
        facts = [(renamed[head], relation, renamed[tail]) for head, relation, tail in graph.triples]
        other = graph_over(facts, names, list(graph.relations))
        place = torch.tensor([other.entity_id(renamed[entity]) for entity in graph.entities])
        head, relation = every_query(graph)
        model = new_model(name, graph, context, seed)
        scores = scores_on(model, graph, context, head, relation)
        close(scores_on(model, other, context, place[head], relation)[:, place], scores)


@MODELS
def test_shapes_of_weights_do_not_depend_on_the_entities(name: str) -> None:
    """Before anything is learned; how many rules there are depends on what there is to be found."""
    small, large = random_graph(1), random_graph(2)
    facts = [*large.triples, *((f"new{number}", "r0", "e0") for number in range(50))]
    entities = [*large.entities, *(f"new{number}" for number in range(50))]
    large = graph_over(facts, entities, list(small.relations) + list(large.relations))
    small = small.with_relations(large.relation_vocabulary)
    kind = model_class(name)
    config = kind.config_class(**SMALL[name])
    shapes = [
        {key: value.shape for key, value in kind.for_graph(graph, config).state_dict().items()}
        for graph in (small, large)
    ]
    assert shapes[0] == shapes[1]


@IN_CONTEXT
def test_a_model_answers_on_entities_it_has_never_seen(name: str, context: ContextConfig | None) -> None:
    """A second, larger graph beside the first: those of the first score as they did without it.

    Numbers over pairs are always those of the graph at hand (decision 19): as before, if the second is like the first.
    """
    graph = Graph.from_triples(families(3))
    model = new_model(name, graph, context)
    known = model.builder(graph, context, Statistics.of(graph))
    strangers = [
        (f"z{head}", relation, f"z{tail}") for head, relation, tail in families(3 if model.reads_pairs else 5)
    ]
    joined = Graph.from_triples([*graph.triples, *strangers])
    set_mean_log_degree(joined, mean_log_degree(graph))
    both = model.builder(joined, context, Statistics.of(graph))
    head, relation = torch.arange(5).repeat(6), torch.arange(6).repeat_interleave(5)
    place = torch.tensor([joined.entity_id(label) for label in graph.entities])
    close(ask(model, both, place[head], relation)[:, place], ask(model, known, head, relation))
    new = torch.tensor([joined.entity_id("zf2")])
    asked = torch.tensor([graph.relation_id("parent of")])
    scores = ask(model, both, new, asked)
    assert scores.shape == (1, joined.num_entities)
    assert scores.isfinite().all()


# no query sees its answer


@TRAINED_ON_FACTS
def test_hiding_a_fact_gives_the_scores_of_the_graph_that_never_held_it(
    name: str, context: ContextConfig | None
) -> None:
    for seed in range(LEAKS):
        graph = random_graph(seed)
        model = new_model(name, graph, context, seed)
        head, relation, edge = (
            graph.edge_head.long(),
            graph.edge_relation.long(),
            torch.arange(graph.num_edges),
        )
        hiding = ask(model, model.builder(graph, context, None), head, relation, edge)
        for number in edge.tolist():
            smaller = without_fact(graph, number)
            set_mean_log_degree(smaller, mean_log_degree(graph))  # one number for all queries of a graph
            statistics = None if context is None else Statistics.of(smaller)
            builder = model.builder(smaller, context, statistics)
            close(hiding[number, None], ask(model, builder, head[number, None], relation[number, None]))


# empty neighbourhoods


@MODELS
def test_entities_out_of_reach_tie(name: str) -> None:
    """Far away, in another component, without any fact: nothing tells them apart."""
    facts = [("a", "r", "b"), ("b", "s", "c"), ("c", "r", "d"), ("d", "r", "e"), ("x", "s", "y")]
    graph = graph_over(facts, ["a", "b", "c", "d", "e", "x", "y", "lonely"], ["r", "s"])
    head, relation = torch.tensor([graph.entity_id("a")] * 4), torch.arange(4)
    scores = scores_on(new_model(name, graph), graph, None, head, relation)
    far = [graph.entity_id(label) for label in ("e", "x", "y", "lonely")]
    assert all(len(set(row.tolist())) == 1 for row in scores[:, far])


@IN_CONTEXT
def test_an_isolated_head_and_a_graph_without_facts_get_finite_scores(
    name: str, context: ContextConfig | None
) -> None:
    graph = graph_over([("a", "r", "b")], ["a", "b", "lonely"], ["r", "s"])
    empty = Graph.from_triples(graph.as_triples().select(~torch.ones(1, dtype=torch.bool).numpy()))
    model = new_model(name, graph, context)
    for world in (graph, empty):
        builder = model.builder(world, context, Statistics.of(graph))
        scores = ask(model, builder, torch.tensor([2, 2]), torch.tensor([0, 3]))
        assert scores.isfinite().all()
    assert ask(model, builder, torch.empty(0).long(), torch.empty(0).long()).shape == (0, 3)
    assert new_model(name, empty, context).num_relations == 2


# stored and loaded


@IN_CONTEXT
def test_a_model_is_made_again_from_its_config_and_weights(name: str, context: ContextConfig | None) -> None:
    graph = random_graph(3)
    model = new_model(name, graph, context, seed=5)
    kind = type(model)
    again = kind(graph.num_relations, kind.config_class(**model.config()), context)
    again.load_state_dict(model.state_dict())
    head, relation = every_query(graph)
    builder = model.builder(graph, context, None)
    assert torch.equal(ask(again.eval(), builder, head, relation), ask(model, builder, head, relation))


@MODELS
def test_a_run_is_loaded_without_its_dataset_and_answers_as_before(name: str, tmp_path: Path) -> None:
    data = family_dataset(inductive=True)
    quick: dict[str, Any] = {"settings": SMALL[name], "train": {"epochs": 1, "batch_size": 64}}
    trained = cp.train(data, name, output=tmp_path / "run", seed=2, **quick)
    loaded = cp.load(tmp_path / "run")
    graph = Graph.from_triples(data.inference_graph)
    queries = [(head, "parent of") for head in graph.entities[:4]]
    assert loaded.predict_batch(graph, queries) == trained.predict_batch(graph, queries)
    assert loaded.fingerprint == trained.fingerprint
    reports = [experiment.evaluate(predictor, data) for predictor in (trained, loaded)]
    assert reports[0].ranks.tolist() == reports[1].ranks.tolist()


@MODELS
def test_a_model_without_context_refuses_it_by_name(name: str) -> None:
    kind = model_class(name)
    config = kind.config_class(**SMALL[name])
    if takes(name, CONTEXTS["all"]):
        assert kind(3, config, CONTEXTS["all"]).num_relations == 3
    else:
        why = f"context: {name} takes none" if not kind.takes_context else f"{name} has no pooled streams"
        with pytest.raises(ConfigError, match=why):
            kind(3, config, CONTEXTS["all"])
