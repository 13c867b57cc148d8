"""What is trained on: every training triple both ways, each with the edge that it must not see."""

from __future__ import annotations

import random

import pytest
import torch

from contextpool.graph.graph import Graph
from contextpool.train.queries import TrainingQueries, epoch_batches, mixed_seed
from contextpool.triples.dataset import Dataset, joined
from contextpool.triples.filters import KnownAnswers
from contextpool.triples.labels import Vocabulary
from contextpool.triples.store import Triples
from learning_worlds import family_dataset, random_graph
from support import amount, known_tails

CASES = amount(60, 2_000)


def random_queries(seed: int) -> tuple[Graph, Triples, TrainingQueries]:
    """A graph, and queries that are its facts and a few triples beside it (as valid.txt is)."""
    graph = random_graph(seed)
    rng = random.Random(seed)
    inside = graph.as_triples()
    drawn = {
        (rng.choice(graph.entities), rng.choice(graph.relations), rng.choice(graph.entities))
        for _ in range(4)
    }
    outside = Triples.from_labels(sorted(drawn)).with_vocabularies(
        inside.entities, Vocabulary(graph.relations, "relation")
    )
    outside = Triples(inside.entities, inside.relations, outside.ids)
    asked = joined([inside, outside])
    return graph, asked, TrainingQueries.of(asked, graph, KnownAnswers.of(asked))


def as_labels(graph: Graph, queries: TrainingQueries) -> list[tuple[str, str, str]]:
    names, kinds = graph.entities, graph.relation_vocabulary.directed
    columns = (queries.head.tolist(), queries.relation.tolist(), queries.answer.tolist())
    return [
        (names[head], kinds[relation], names[answer]) for head, relation, answer in zip(*columns, strict=True)
    ]


def test_every_triple_is_asked_in_both_directions() -> None:
    for seed in range(CASES):
        graph, asked, queries = random_queries(seed)
        expected = [way for h, r, t in asked for way in ((h, r, t), (t, f"{r}^-1", h))]
        assert sorted(as_labels(graph, queries)) == sorted(expected)
        assert len(queries) == 2 * len(asked)


def test_the_hidden_edge_is_the_query_itself_or_nothing() -> None:
    outside = 0
    for seed in range(CASES):
        graph, _, queries = random_queries(seed)
        facts = graph.triples
        for label, edge in zip(as_labels(graph, queries), queries.hidden_edge.tolist(), strict=True):
            head, relation, tail = label
            way = (tail, relation.removesuffix("^-1"), head) if relation.endswith("^-1") else label
            assert edge == (graph.edge_id(*label) if way in facts else -1)
            outside += edge == -1
    assert outside > CASES // 2


def test_other_answers_equal_a_dictionary_of_sets() -> None:
    for seed in range(CASES):
        graph, _, queries = random_queries(seed)
        known: dict[tuple[str, str], set[str]] = {}
        for head, relation, answer in as_labels(graph, queries):
            known.setdefault((head, relation), set()).add(answer)
        rows, entities = queries.other_answers()
        found = list(zip(rows.tolist(), (graph.entities[entity] for entity in entities), strict=True))
        expected = {
            (row, other)
            for row, (head, relation, answer) in enumerate(as_labels(graph, queries))
            for other in known[head, relation] - {answer}
        }
        assert len(found) == len(set(found))
        assert set(found) == expected


def test_a_batch_is_some_of_the_rows() -> None:
    _, _, queries = random_queries(3)
    rows = torch.tensor([4, 0, 2])
    batch = queries.batch(rows)
    for name in ("head", "relation", "answer", "hidden_edge"):
        assert torch.equal(getattr(batch, name), getattr(queries, name)[rows])
    of_all, of_batch = ({} for _ in range(2))  # type: ignore[var-annotated]
    for group, asked in ((of_all, queries), (of_batch, batch)):
        for row, entity in zip(*(column.tolist() for column in asked.other_answers()), strict=True):
            group.setdefault(row, set()).add(entity)
    assert [of_batch.get(place, set()) for place in range(3)] == [of_all.get(row, set()) for row in (4, 0, 2)]


@pytest.mark.parametrize("inductive", [False, True])
def test_roles_of_a_dataset(inductive: bool) -> None:
    """Facts of the training graph are hidden from themselves; valid.txt queries have nothing to hide."""
    data = family_dataset(inductive)
    queries = queries_of(data)
    graph_size = len(data.training_graph)
    assert int((queries.hidden_edge >= 0).sum()) == 2 * graph_size
    beside = 0 if data.training_valid is None else len(data.training_valid)
    assert int((queries.hidden_edge == -1).sum()) == 2 * beside
    assert (beside > 0) == inductive
    assert sorted(queries.hidden_edge[queries.hidden_edge >= 0].tolist()) == list(range(2 * graph_size))


@pytest.mark.parametrize("inductive", [False, True])
def test_no_held_out_answer_is_known_in_training(inductive: bool) -> None:
    data = family_dataset(inductive)
    known = data.training_filter
    trained = {
        tuple(row) for part in (data.training_graph, data.training_queries) for row in part.ids.tolist()
    }
    held_out = [tuple(row) for row in data.validation_queries.ids.tolist()]
    assert held_out
    assert not trained & set(held_out)
    assert all(tail not in known_tails(known, head, relation) for head, relation, tail in held_out)


def queries_of(data: Dataset) -> TrainingQueries:
    graph = Graph.from_triples(data.training_graph)
    return TrainingQueries.of(data.training_queries, graph, data.training_filter)


def test_the_batches_of_an_epoch_cover_every_query_once() -> None:
    for count, size in ((1, 1), (10, 3), (64, 64), (65, 64), (7, 100)):
        batches = list(epoch_batches(count, size, seed=1, epoch=2))
        assert sorted(torch.cat(batches).tolist()) == list(range(count))
        assert [len(batch) for batch in batches[:-1]] == [size] * (len(batches) - 1)
        assert 1 <= len(batches[-1]) <= size


def test_the_order_depends_on_seed_and_epoch_alone() -> None:
    def order(seed: int, epoch: int, size: int = 8) -> list[int]:
        return torch.cat(list(epoch_batches(50, size, seed, epoch))).tolist()

    torch.manual_seed(0)
    first = order(3, 4)
    torch.manual_seed(1)
    state = torch.get_rng_state()
    assert order(3, 4) == first
    assert order(3, 4, size=5) == first
    assert torch.equal(torch.get_rng_state(), state)
    others = {tuple(order(seed, epoch)) for seed in range(5) for epoch in range(5)}
    assert len(others) == 25


def test_seeds_of_steps_are_all_different_and_fit_a_generator() -> None:
    seeds = {mixed_seed(seed, epoch, step) for seed in range(10) for epoch in range(20) for step in range(20)}
    assert len(seeds) == 4_000
    for seed in (-1, 0, 2**40, 2**63 - 1, 2**64):
        torch.Generator().manual_seed(mixed_seed(seed, 3, 5))
