"""Numbers over pairs wherever batches are made: of the whole graph, without the hidden fact, of the right relations.

That they are those of plain sets is in `context.test_parallel`; here the oracle is the graph that never held the fact.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from contextpool.context.config import ContextConfig
from contextpool.context.counts import Statistics
from contextpool.context.map_graph import map_graph
from contextpool.explain.attribution import Case
from contextpool.graph.graph import Graph
from contextpool.graph.mapped import MappedGraph
from contextpool.graph.relations import RelationVocabulary
from contextpool.models.nbfnet import mean_log_degree, set_mean_log_degree
from contextpool.models.walk import Walk, WalkConfig
from contextpool.pool.batch import BatchBuilder
from contextpool.predict import Predictor
from contextpool.predict.frontier import Frontier, Nearby
from learning_worlds import ask, graph_over, new_model, random_graph, without_fact
from learning_worlds import one_thread as one_thread
from support import amount

CONTEXT = ContextConfig()
CASES = amount(6, 200)


def smaller_graph(graph: Graph, edge: int) -> Graph:
    """That never held the fact; PNA's constant is shared on purpose."""
    smaller = without_fact(graph, edge)
    set_mean_log_degree(smaller, mean_log_degree(graph))
    return smaller


def any_model(graph: Graph, seed: int = 0) -> Predictor:
    return Predictor(new_model("anygraph", graph, CONTEXT, seed), None, CONTEXT, None)


def mapped_of(graph: Graph, folder: Path) -> MappedGraph:
    folder.mkdir()
    path = folder / "facts.tsv"
    path.write_text("".join("\t".join(triple) + "\n" for triple in graph.triples), encoding="utf-8")
    return map_graph([path], folder / "graph")


def numbers_of(builder: BatchBuilder, head: int, relation: int, hidden: int | None = None) -> Tensor:
    """[NUMBERS, 2R]"""
    columns = [None if one is None else torch.tensor([one]) for one in (head, relation, hidden)]
    numbers = builder.build(*columns).pair_numbers  # type: ignore[arg-type]
    assert numbers is not None
    return numbers[0]


def test_counts_of_pairs_that_keep_the_hidden_fact_would_be_noticed() -> None:
    """Everything else hidden: what the other tests compare with 1e-5 is a thousand times that."""
    worst, honest_worst = 0.0, 0.0
    for seed in range(CASES):
        graph = random_graph(seed)
        model = new_model("anygraph", graph, CONTEXT, seed)
        builder, leaky = (model.builder(graph, CONTEXT, Statistics.of(graph)) for _ in range(2))
        own = leaky._pair_numbers
        leaky.__dict__["_pair_numbers"] = lambda head, relation, _, own=own: own(head, relation, None)
        asked = graph.edge_head.long(), graph.edge_relation.long(), torch.arange(graph.num_edges)
        scores, leaked = ask(model, builder, *asked), ask(model, leaky, *asked)
        for edge in range(graph.num_edges):
            smaller = smaller_graph(graph, edge)
            less = model.builder(smaller, CONTEXT, Statistics.of(smaller))
            expected = ask(model, less, *(one[edge, None] for one in asked[:2]))[0]
            honest_worst = max(honest_worst, float((scores[edge] - expected).abs().max()))
            worst = max(worst, float((leaked[edge] - expected).abs().max()))
    assert honest_worst <= 1e-5
    assert worst > 1e-2


@pytest.mark.parametrize("cap", [0, 1])
@pytest.mark.parametrize("mapped", [False, True])
def test_a_capped_walk_knows_the_pairs_of_the_whole_graph(cap: int, mapped: bool, tmp_path: Path) -> None:
    """Where it keeps one edge a hop, too; with a fact hidden those of the graph that never held it."""
    lost = 0
    for seed in range(CASES):
        drawn = random_graph(seed, most_relations=4, most=24)
        graph = mapped_of(drawn, tmp_path / str(seed)) if mapped else drawn
        predictor = any_model(graph, seed)
        frontier, whole = Frontier(predictor, graph, cap), Graph.from_triples(list(graph.triples))
        if not mapped:
            whole = graph
        builder = predictor.model.builder(whole, CONTEXT, Statistics.of(whole))
        for edge in range(0, graph.num_edges, 2):
            query = int(graph.edge_head[edge]), int(graph.edge_relation[edge])
            near = frontier.nearby(*query)
            assert torch.equal(asked_near(near), numbers_of(builder, *query))
            lost += near.graph.num_edges < graph.num_edges
            near = frontier.nearby(*query, hidden=edge)
            less = predictor.model.builder(without_fact(whole, edge), CONTEXT, None)
            assert torch.equal(asked_near(near), numbers_of(less, *query))
    assert lost  # walks that do not hold the whole graph


def asked_near(near: Nearby) -> Tensor:
    return numbers_of(near.builder, near.head, near.relation)


class ReadsPairs(Walk):
    """A walk whose batches hold numbers over pairs, by the relations of the model as a trained one has them."""

    any_relation = False

    @property
    def reads_pairs(self) -> bool:
        return True


def test_a_mapped_graph_numbers_pairs_by_the_relations_of_the_model(tmp_path: Path) -> None:
    """The graph has relations that the model lacks, and lacks one of the model, in another order."""
    facts = [
        ("a", "o", "b"),
        ("a", "r", "b"),
        ("b", "q", "a"),
        ("c", "r", "d"),
        ("c", "o", "d"),
        ("c", "q", "e"),
    ]
    mapped = mapped_of(Graph.from_triples(facts), tmp_path / "map")
    relations = RelationVocabulary(("p", "q", "r"))
    predictor = Predictor(ReadsPairs(3, WalkConfig(2)), relations, None, None)
    frontier, alone = Frontier(predictor, mapped, 0), BatchBuilder(mapped, 1, pairs=True)
    for label in ("r", "q^-1"):
        for edge in (-1, mapped.edge_id("a", label, "b")):
            near = frontier.nearby(mapped.entity_id("a"), relations.index[label], edge)
            found = asked_near(near)
            own = numbers_of(alone, mapped.entity_id("a"), mapped.relation_id(label), edge)
            for number, name in enumerate(relations.directed):
                known = name.removesuffix("^-1") != "p"
                expected = own[:, mapped.relation_id(name)] if known else torch.zeros(4)
                assert torch.equal(found[:, number], expected), (label, edge, name)
    asked = asked_near(frontier.nearby(mapped.entity_id("a"), relations.index["p"]))
    assert not asked[:2].any()
    assert asked[2:].any()


def test_a_graph_numbered_by_a_run_says_of_its_pairs_what_it_says_by_itself() -> None:
    """A model of any relation that brings the counts of its training graph: `Predictor.prepared` numbers anew."""
    training = Graph.from_triples([("x", "a", "y"), ("y", "zz", "x"), ("x", "r1", "x")])
    for seed in range(CASES):
        graph = random_graph(seed)
        model = new_model("anygraph", training, CONTEXT, seed)
        brought = Predictor(model, training.relation_vocabulary, CONTEXT, Statistics.of(training))
        prepared, _ = brought.prepared(graph)
        assert prepared.num_relations > graph.num_relations
        alone = any_model(graph).builder(graph)
        places = torch.tensor([prepared.relation_id(label) for label in graph.relation_vocabulary.directed])
        builders = brought.builder(prepared), Frontier(brought, prepared, 0).nearby(0, int(places[0])).builder
        for edge in range(graph.num_edges):
            head, relation = int(graph.edge_head[edge]), int(graph.edge_relation[edge])
            here = prepared.find_edge(head, int(places[relation]), int(graph.edge_tail[edge]))
            found = numbers_of(builders[0], head, int(places[relation]), here)
            assert torch.equal(found[:, places], numbers_of(alone, head, relation, edge))
        near = Frontier(brought, prepared, 0).nearby(0, int(places[0]))
        assert torch.equal(asked_near(near)[:, places], numbers_of(alone, 0, 0))


def test_an_explanation_hides_the_fact_from_pairs_and_what_it_removes_from_walks_alone() -> None:
    """Without further edges its scores are those of the graph that never held the fact."""
    for seed in range(CASES):
        graph = random_graph(seed)
        model = new_model("anygraph", graph, CONTEXT, seed)
        builder = model.builder(graph, CONTEXT, Statistics.of(graph))
        for edge in range(0, graph.num_edges, 3):
            head, relation, tail = (
                int(column[edge]) for column in (graph.edge_head, graph.edge_relation, graph.edge_tail)
            )
            case, smaller = Case(model, builder, head, relation, tail, edge), smaller_graph(graph, edge)
            less = model.builder(smaller, CONTEXT, Statistics.of(smaller))
            expected = ask(model, less, torch.tensor([head]), torch.tensor([relation]))[0]
            torch.testing.assert_close(case.scores(), expected, atol=1e-5, rtol=1e-5)
            left = case.scores_without([[], [(edge + 1) % graph.num_edges]])
            assert left[0] == pytest.approx(float(expected[tail]), abs=1e-5)
            own = case.batch().pair_numbers
            assert own is not None
            assert torch.equal(own[0], numbers_of(less, head, relation))


def test_a_checked_fact_ranks_as_a_claim_does_on_the_graph_without_it() -> None:
    """By the whole of `check`: walks, counts, pairs, known answers."""
    facts = [(f"e{place % 7}", f"r{place % 3}", f"e{place * place % 11}") for place in range(40)]
    graph = graph_over(facts, [f"e{place}" for place in range(12)], ["r0", "r1", "r2"])
    predictor = any_model(graph)
    for fact in list(graph.triples)[::5]:
        smaller = smaller_graph(graph, graph.edge_id(*fact))
        ranks = [
            (found.tail_rank, found.head_rank)
            for found in (predictor.check(one, [fact], evidence=0)[0] for one in (graph, smaller))
        ]
        assert ranks[0] == ranks[1]
