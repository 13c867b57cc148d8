"""Small worlds for everything that learns: random graphs, graphs that lack one fact, a dataset with structure."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numba
import pytest
import torch
from torch import Tensor, nn

from contextpool.context.config import ContextConfig, ViewConfig
from contextpool.graph.graph import Graph, split
from contextpool.models.base import LinkPredictor
from contextpool.models.registry import model_class
from contextpool.pool.batch import BatchBuilder
from contextpool.triples.dataset import Dataset
from contextpool.triples.labels import Vocabulary
from contextpool.triples.store import Triples
from support import context_with

Triple = tuple[str, str, str]

VIEWS = (ViewConfig(min_precision=0.1), ViewConfig(min_precision=0.0, min_recall=0.3))
CONTEXTS: dict[str, ContextConfig | None] = {
    "plain": None,
    "gate": context_with(views=(), gate=True),
    "arrive": context_with(views=(), arrive=True),
    "views": context_with(views=VIEWS, hops=2, self_policy="keep"),
    "families": context_with(views=(ViewConfig(0.1, algorithm="families-precision", sizes=(1, 2)),), hops=2),
    "all": context_with(views=VIEWS, hops=3, gate=True, arrive=True),
}
"""Every way of using context, by name."""

SMALL: dict[str, dict[str, Any]] = {
    "anyburl": {"length": 2, "paths": 3_000, "seconds": 0.0, "min_support": 1},
    "anygraph": {"dim": 4, "layers": 2, "relation_layers": 2},
    "compgcn": {"dim": 4, "layers": 2, "hops": 2, "dropout": 0.0},
    "drum": {"dim": 4, "hidden": 3, "layers": 2, "rank": 2},
    "grail": {"dim": 4, "layers": 2, "hops": 1, "bases": 2, "attention_dim": 3, "edge_dropout": 0.0},
    "nbfnet": {"dim": 4, "layers": 2},
    "neural_lp": {"dim": 4, "hidden": 3, "layers": 2, "rank": 2},
    "redgnn": {"dim": 4, "layers": 2, "attention_dim": 3, "dropout": 0.0},
    "walk": {"steps": 3},
}
"""Settings of each model that are quick to compute."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small tensors are quicker on one thread, above all beside other tests."""
    before, compiled = torch.get_num_threads(), numba.get_num_threads()
    torch.set_num_threads(1)
    numba.set_num_threads(1)
    yield
    torch.set_num_threads(before)
    numba.set_num_threads(compiled)


def random_graph(seed: int, *, most_entities: int = 7, most_relations: int = 3, most: int = 14) -> Graph:
    """Self loops, parallel relations, two entities and a relation without facts."""
    rng = random.Random(seed)
    entities = [f"e{number}" for number in range(rng.randint(1, most_entities))]
    relations = [f"r{number}" for number in range(rng.randint(1, most_relations))]
    drawn = [
        (rng.choice(entities), rng.choice(relations), rng.choice(entities))
        for _ in range(rng.randint(1, most))
    ]
    return graph_over(drawn, [*entities, "lonely", "zz"], [*relations, "unused"])


def graph_over(triples: list[Triple], entities: list[str], relations: list[str]) -> Graph:
    """A graph whose vocabularies may hold more than its facts use."""
    store = Triples.from_labels(triples)
    return Graph.from_triples(
        store.with_vocabularies(Vocabulary.of(entities), Vocabulary.of(relations, "relation"))
    )


def without_fact(graph: Graph, edge: int) -> Graph:
    """The graph that never held this fact; entities and relations are numbered as before."""
    head, relation, tail = graph.edge_label(edge)
    gone = (tail, relation.removesuffix("^-1"), head) if relation.endswith("^-1") else (head, relation, tail)
    facts = [triple for triple in graph.triples if triple != gone]
    return graph_over(facts, list(graph.entities), list(graph.relations))


def new_model(
    name: str, graph: Graph, context: ContextConfig | None = None, seed: int = 0, **settings: Any
) -> LinkPredictor:
    """A small model with random weights everywhere, also where training would start at zero, or with its rules."""
    kind = model_class(name)
    config = kind.config_class(**{**SMALL[name], **settings})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = kind.for_graph(graph, config, context)
        scatter_weights(model)
    for _ in model.learn(graph, seed):
        pass
    return model.eval()


def scatter_weights(module: nn.Module) -> None:
    """Random values in all parameters, from the global generator."""
    for weight in module.parameters():
        nn.init.uniform_(weight.data, -0.8, 0.8)


def ask(
    model: LinkPredictor,
    builder: BatchBuilder,
    head: Tensor,
    relation: Tensor,
    hidden_edge: Tensor | None = None,
) -> Tensor:
    """Scores [B, N], without gradients."""
    with torch.no_grad():
        scores: Tensor = model(builder.build(head, relation, hidden_edge))
    return scores


def every_query(graph: Graph) -> tuple[Tensor, Tensor]:
    """All heads with all relations: [N * 2R] each."""
    pairs = torch.cartesian_prod(
        torch.arange(graph.num_entities), torch.arange(graph.relation_vocabulary.num_directed)
    )
    return pairs[:, 0], pairs[:, 1]


def families(count: int = 10) -> list[Triple]:
    """Families of three generations: who is whose grandparent and sibling follows from who is whose parent."""
    facts: set[Triple] = set()
    for number in range(count):
        root, children = f"f{number}", [f"f{number}.{child}" for child in range(2 + number % 2)]
        facts |= {(root, "parent of", child) for child in children}
        facts |= {(one, "sibling of", other) for one in children for other in children if one != other}
        for child in children:
            grandchildren = [f"{child}.{grandchild}" for grandchild in range(2)]
            facts |= {(child, "parent of", grandchild) for grandchild in grandchildren}
            facts |= {(root, "grandparent of", grandchild) for grandchild in grandchildren}
    return sorted(facts)


@functools.cache
def family_dataset(inductive: bool = False, count: int = 10) -> Dataset:
    """The families as a dataset; inductive: some of the families are for inference."""
    return split(Graph.from_triples(families(count)), inductive=inductive, seed=1)


def run_contents(folder: Path) -> dict[str, bytes]:
    """What a run came to: every file but the log, the lock, and the config, which names machine and commit."""
    left_out = ("events.jsonl", ".lock", "config.json")
    files = [file for file in folder.rglob("*") if file.is_file() and file.name not in left_out]
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}
