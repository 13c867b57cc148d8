"""CompGCN: states are those of the equations over the query's own edges."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

import contextpool as cp
from contextpool import experiment
from contextpool.errors import ConfigError
from contextpool.graph.graph import Graph
from contextpool.graph.relations import inverse
from contextpool.models.baselines.compgcn import (
    CompGCN,
    CompGCNConfig,
    Normalization,
    correlated,
    incident_relations,
)
from contextpool.pool.batch import BatchBuilder
from learning_worlds import ask, every_query, family_dataset, new_model, random_graph, without_fact
from learning_worlds import one_thread as one_thread
from models.baselines.literal import Edges, edges_of
from support import amount

CASES = amount(4, 100)
EVERY_NORMALIZATION = pytest.mark.parametrize("normalization", get_args(Normalization))


POWER = {"mean": 1.0, "symmetric": 0.5, "sum": 0.0}
"""Of how many messages there are, which their sum is divided by."""


def ball(edges: Edges, head: int, hops: int) -> dict[int, int]:
    """Entities within so many hops, with their distance."""
    distance = {head: 0}
    for step in range(1, hops + 1):
        near = {tail for start, _, tail in edges if start in distance}
        distance |= {entity: step for entity in near if entity not in distance}
    return distance


def literal_scores(model: CompGCN, graph: Graph, head: int, query: int) -> Tensor:
    """[N] one entity and one edge at a time; what is farther away scores as an entity without edges."""
    hops, num_relations = model.settings.hops, graph.num_relations
    distance = ball(edges_of(graph), head, hops)
    walked = [
        (source, relation, target)
        for source, relation, target in edges_of(graph)
        if distance.get(source, hops) < hops and target in distance
    ]
    known = {edge for h, r, t in walked for edge in ((h, r, t), (t, inverse(r, num_relations), h))}
    starting = known if model.settings.incident else set()
    state = {
        node: literal_mean([model.relation[r] for h, r, _ in starting if h == node]) for node in distance
    }
    state[-1] = literal_mean([])
    state = {
        node: torch.zeros(model.settings.dim) if value is None else value for node, value in state.items()
    }
    if model.query is not None:
        state[head] = state[head] + model.query.weight[query]
    relations = model.relation
    symmetric = model.settings.normalization == "symmetric"
    sends = Counter(source for source, _, _ in walked)
    for layer in model.layers:
        messages: dict[tuple[int, bool], list[Tensor]] = defaultdict(list)
        for source, relation, target in walked:
            message = literal_correlation(state[source], relations[relation])
            message = message / sends[source] ** 0.5 if symmetric else message
            messages[target, relation < num_relations].append(message)
        state = {node: literal_update(layer, value, messages, node) for node, value in state.items()}
        relations = layer.relation(relations)
    by_entity = [state.get(entity, state[-1]) for entity in range(graph.num_entities)]
    return torch.stack([(state[head] * relations[query] * value).sum() for value in by_entity])


def literal_mean(vectors: list[Tensor]) -> Tensor | None:
    return torch.stack(vectors).mean(dim=0) if vectors else None


def literal_update(
    layer: torch.nn.Module, value: Tensor, messages: dict[tuple[int, bool], list[Tensor]], node: int
) -> Tensor:
    total = layer.stay(literal_correlation(value, layer.stay_relation[0]))
    for forward, weight in ((True, layer.along), (False, layer.against)):
        found = messages[node, forward]
        if found:
            total = total + weight(torch.stack(found).sum(dim=0) / len(found) ** POWER[layer.normalization])
    return torch.tanh(layer.norm(total / 3))


def literal_correlation(state: Tensor, relation: Tensor) -> Tensor:
    size = len(state)
    return torch.stack([sum(state[i] * relation[(i + k) % size] for i in range(size)) for k in range(size)])


@EVERY_NORMALIZATION
@pytest.mark.parametrize(("mark_head", "incident"), [(False, True), (True, True), (True, False)])
@pytest.mark.parametrize("dim", [4, 5])
def test_scores_are_those_of_the_equations(
    normalization: Normalization, mark_head: bool, incident: bool, dim: int
) -> None:
    ways: dict[str, Any] = {"normalization": normalization, "mark_head": mark_head, "incident": incident}
    for seed in range(CASES):
        graph = random_graph(seed)
        model = new_model("compgcn", graph, seed=seed, dim=dim, **ways)
        assert isinstance(model, CompGCN)
        head, relation = (column[:: 1 + len(column) // 8] for column in every_query(graph))
        scores = ask(model, BatchBuilder(graph, model.num_layers), head, relation)
        pairs = zip(head.tolist(), relation.tolist(), strict=True)
        with torch.no_grad():
            expected = torch.stack([literal_scores(model, graph, *pair) for pair in pairs])
        torch.testing.assert_close(scores, expected, atol=1e-5, rtol=1e-5)


def test_states_that_would_all_be_zero_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"set model\.mark_head = true"):
        CompGCNConfig(incident=False)


def test_the_query_s_own_fact_is_in_no_state() -> None:
    for seed in range(CASES):
        graph = random_graph(seed)
        model = new_model("compgcn", graph, seed=seed)
        head, relation, edge = graph.edge_head, graph.edge_relation, torch.arange(graph.num_edges)
        hiding = ask(model, BatchBuilder(graph, model.num_layers), head, relation, edge)
        for number in edge.tolist():
            builder = BatchBuilder(without_fact(graph, number), model.num_layers)
            alone = ask(model, builder, head[number, None], relation[number, None])
            torch.testing.assert_close(hiding[number, None], alone, atol=1e-5, rtol=1e-5)


def test_inside_the_last_shell_every_relation_of_an_entity_is_known() -> None:
    for seed in range(20):
        graph = random_graph(seed, most_entities=12, most=16)
        walk = BatchBuilder(graph, 2).build(torch.arange(graph.num_entities), torch.zeros(graph.num_entities))
        node, relation, _ = incident_relations(walk.propagation, graph.num_relations)
        found = Counter(zip(node.tolist(), relation.tolist(), strict=True))
        for number in range(walk.propagation.layer_sizes[1]):
            entity = int(walk.propagation.node_entity[number])
            expected = Counter(r for h, r, _ in edges_of(graph) if h == entity)
            assert {r: count for (at, r), count in found.items() if at == number} == expected


def test_correlation_by_hand() -> None:
    """State (1, 2, 3), relation (4, 5, 6): 1*4 + 2*5 + 3*6, then the relation turned by one, and by two."""
    found = correlated(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[4.0, 5.0, 6.0]]))
    torch.testing.assert_close(found, torch.tensor([[32.0, 29.0, 29.0]]))


def test_an_explanation_can_differentiate_by_edges() -> None:
    graph = Graph.from_triples([("a", "r", "b"), ("b", "s", "c"), ("a", "s", "c")])
    model = new_model("compgcn", graph)
    batch = BatchBuilder(graph, model.num_layers).build(torch.tensor([0]), torch.tensor([1]))
    scale = torch.ones(len(batch.propagation.edge_source), requires_grad=True)
    scaled = model(replace(batch, propagation=replace(batch.propagation, edge_scale=scale)))
    torch.testing.assert_close(scaled, model(batch))
    scaled[0, 2].backward()
    assert scale.grad is not None
    assert (scale.grad != 0).all()


def test_it_learns() -> None:
    data = family_dataset(inductive=True)
    settings = {"dim": 16, "layers": 2, "hops": 2, "dropout": 0.0}
    train = {"epochs": 8, "batch_size": 32, "lr": 0.02, "warmup_steps": 0}
    trained = cp.train(data, "compgcn", settings=settings, train=train, seed=1)
    untrained = cp.train(data, "compgcn", settings=settings, train={**train, "epochs": 1, "lr": 1e-9}, seed=1)
    better, worse = (experiment.evaluate(one, data).mrr for one in (trained, untrained))
    assert better > worse + 0.1


def test_settings_that_make_no_sense_are_refused_by_name() -> None:
    with pytest.raises(
        ConfigError, match=r"model\.normalization is 'max'; it is one of mean, symmetric, sum"
    ):
        CompGCNConfig(normalization="max")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"model\.hops is 0"):
        CompGCNConfig(hops=0)
