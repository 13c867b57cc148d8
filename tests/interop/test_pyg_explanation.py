"""Explanations as PyG has them: a mask over the graph's edges whose weights are those of the paths."""

from __future__ import annotations

import pytest

pytest.importorskip("torch_geometric", reason="the pyg extra is not installed")
from torch_geometric.explain import Explanation as PyGExplanation

from contextpool.errors import DataError
from contextpool.explain import Explanation
from contextpool.explain.evidence import CandidateRelevance, Path
from contextpool.graph.graph import Graph
from contextpool.predict import Predictor
from contextpool.triples.dataset import Dataset
from learning_worlds import one_thread as one_thread
from world_model import new_world as new_world
from world_model import world as world
from world_model import world_predictor as world_predictor
from world_model import world_run as world_run

FACTS = [("a", "r", "b"), ("b", "s", "c"), ("c", "r", "a"), ("d", "s", "a")]


def told(*paths: Path) -> Explanation:
    return Explanation(
        "a",
        "q",
        "c",
        asked="tail",
        score=2.5,
        probability=None,
        rank=1.0,
        candidates=4,
        known=False,
        method="gradient",
        paths=paths,
        score_without=0.0,
        context=(),
        dropped=(),
        pooled=0,
        candidate=CandidateRelevance(0.0, None),
        rival=None,
    )


def test_weights_of_paths_add_up_on_the_edges_they_walk() -> None:
    graph = Graph.from_triples(FACTS)
    why = told(
        Path((("a", "r", "b"), ("b", "s", "c")), 0.75, 3.0, 1.0), Path((("a", "r^-1", "c"),), 0.25, 1.0, 0.5)
    )
    found = why.to_pyg(graph)
    assert isinstance(found, PyGExplanation)
    assert found.validate()
    #                                  a-r-b  b-s-c  c-r-a d-s-a, then their inverses
    assert found.edge_mask.tolist() == [0.75, 0.75, 0.0, 0.0, 0.0, 0.0, 0.25, 0.0]
    assert why.to_pyg(graph, inverse="none").edge_mask.tolist() == [0.75, 0.75, 0.25, 0.0]
    assert (found.query, found.answer, found.prediction.item()) == (0, 2, 2.5)
    assert found.paths[1] == (("a", "r^-1", "c"),)


def test_an_edge_that_two_paths_share_and_one_that_a_path_walks_twice() -> None:
    graph = Graph.from_triples(FACTS)
    back_and_forth = Path(
        (("a", "r", "b"), ("b", "r^-1", "a"), ("a", "r", "b"), ("b", "s", "c")), 0.4, 1.0, 1.0
    )
    why = told(Path((("a", "r", "b"), ("b", "s", "c")), 0.6, 3.0, 1.0), back_and_forth)
    assert why.to_pyg(graph).edge_mask.tolist() == pytest.approx([1.0, 1.0, 0, 0, 0.4, 0, 0, 0])


def test_no_path_is_an_empty_mask_and_another_graph_is_refused() -> None:
    graph = Graph.from_triples(FACTS)
    assert told().to_pyg(graph).edge_mask.sum() == 0
    with pytest.raises(DataError, match="is not in the graph"):
        told(Path((("a", "s", "b"),), 1.0, 1.0, 1.0)).to_pyg(graph)


def test_a_trained_model_s_explanation_leaves_its_paths(
    world_predictor: Predictor, new_world: Graph, world: Dataset
) -> None:
    why = world_predictor.explain(new_world, head="Belarus", relation="currency", tail="Belarusian Ruble")
    found = why.to_pyg(new_world)
    walked = {edge for path in why.paths if path.weight > 0 for edge in path.edges}
    part = found.get_explanation_subgraph()
    kinds = new_world.relation_vocabulary.directed
    shown = {
        (new_world.entities[a], kinds[r], new_world.entities[b])
        for (a, b), r in zip(part.edge_index.T.tolist(), part.edge_type.tolist(), strict=True)
    }
    assert shown == walked
    assert float(found.edge_mask.sum()) == pytest.approx(
        sum(path.weight * len(set(path.edges)) for path in why.paths)
    )
    assert 0 < float(found.edge_mask.max()) <= 1 + 1e-6
