from __future__ import annotations

import numba
import pytest
import torch

from contextpool.errors import ConfigError, DataError
from contextpool.graph.graph import Graph
from contextpool.pool import _frontier_cpu, _walk_cpu
from contextpool.pool._backend import Backend
from contextpool.pool.frontier import Frontier, frontier
from contextpool.pool.hidden import HiddenEdges
from pool.literal import labels, literal_reach, random_case, visible_edges
from support import amount

BACKENDS: tuple[Backend, ...] = ("cpu", "torch")
CASES = amount(80, 2_000)


def nodes_of(found: Frontier, query: int) -> dict[str, int]:
    mine = found.node_query == query
    names = [found.graph.entities[entity] for entity in found.node_entity[mine].tolist()]
    assert names == sorted(set(names))
    return dict(zip(names, found.node_hop[mine].tolist(), strict=True))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("scratch_bytes", [1, 2**30])
def test_nodes_and_edges_equal_plain_sets(backend: Backend, scratch_bytes: int) -> None:
    for seed in range(CASES):
        case = random_case(seed, depends_on_entity=False)
        found = frontier(
            case.graph, case.query_head, case.hops, case.hidden, backend=backend, scratch_bytes=scratch_bytes
        )
        assert found.node_query.tolist() == sorted(found.node_query.tolist())
        layers = [found.edges(layer, scratch_bytes) for layer in range(1, case.hops + 2)]
        for query, (head, _) in enumerate(case.queries):
            first_hop = literal_reach(case.triples, head, case.hops, case.hide[query])
            assert nodes_of(found, query) == first_hop
            edges = visible_edges(case.triples, case.hide[query])
            for layer, needed in enumerate(layers, start=1):
                within = {entity for entity, hop in first_hop.items() if hop < layer}
                leaving = {edge for edge in edges if edge[0] in within}
                assert labels(case.graph, needed.for_query(query)) == leaving


def test_threads_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [random_case(seed, depends_on_entity=False) for seed in range(CASES // 8)]
    alone = [frontier(case.graph, case.query_head, case.hops, case.hidden) for case in cases]
    monkeypatch.setattr(_walk_cpu, "LEAST_WORK", -1)
    used: list[int] = []
    in_blocks = _walk_cpu.in_blocks
    monkeypatch.setattr(_frontier_cpu, "in_blocks", lambda *task: used.append(task[2]) or in_blocks(*task))
    for case, one in zip(cases, alone, strict=True):
        other = frontier(case.graph, case.query_head, case.hops, case.hidden)
        assert torch.equal(one.node_keys, other.node_keys)
        assert torch.equal(one.node_hop, other.node_hop)
    assert set(used) == {numba.get_num_threads()}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_hidden_bridge_by_hand(backend: Backend) -> None:
    """h - x - y and h - y: with (h, r, y) hidden, y is two hops away instead of one."""
    graph = Graph.from_triples([("h", "r", "x"), ("x", "r", "y"), ("h", "r", "y")])
    hidden = HiddenEdges.from_triples(graph, [[], [("h", "r", "y")]])
    found = frontier(graph, torch.tensor([0, 0]), 2, hidden, backend=backend)
    assert nodes_of(found, 0) == {"h": 0, "x": 1, "y": 1}
    assert nodes_of(found, 1) == {"h": 0, "x": 1, "y": 2}
    assert found.nodes(1).tolist() == [0, 1, 2, 3, 4]
    query, entity = torch.tensor([1, 0, 1]), torch.tensor([2, 0, 0])
    assert found.find_nodes(query, entity).tolist() == [5, 0, 3]


def test_nodes_that_were_not_reached_are_not_found() -> None:
    graph = Graph.from_triples([("a", "r", "b"), ("c", "r", "d")])
    found = frontier(graph, torch.tensor([0]), 3)
    assert found.find_nodes(torch.tensor([0, 0, 0]), torch.tensor([1, 2, 3])).tolist() == [1, -1, -1]


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_empty_batch_has_no_nodes(backend: Backend) -> None:
    graph = Graph.from_triples([("a", "r", "b")])
    found = frontier(graph, torch.empty(0, dtype=torch.int64), 2, backend=backend)
    assert found.num_nodes == len(found.edges(1)) == 0
    assert (
        found.find_nodes(torch.tensor([], dtype=torch.int64), torch.tensor([], dtype=torch.int64)).tolist()
        == []
    )


def test_wrong_input_is_refused() -> None:
    graph = Graph.from_triples([("a", "r", "b")])
    with pytest.raises(ConfigError, match="num_hops is 0"):
        frontier(graph, torch.tensor([0]), 0)
    with pytest.raises(DataError, match="query_head runs from 2"):
        frontier(graph, torch.tensor([2]), 1)
    with pytest.raises(ConfigError, match="layer is 3; this frontier knows the layers 1 to 2"):
        frontier(graph, torch.tensor([0]), 1).edges(3)


@pytest.mark.gpu
def test_cuda_equals_the_cpu() -> None:
    for seed in range(CASES):
        case = random_case(seed, depends_on_entity=False)
        expected = frontier(case.graph, case.query_head, case.hops, case.hidden)
        found = frontier(case.graph.to("cuda"), case.query_head, case.hops, case.hidden)
        assert torch.equal(expected.node_keys, found.node_keys.cpu())
        assert torch.equal(expected.node_hop, found.node_hop.cpu())
        assert torch.equal(expected.edges(case.hops).edge, found.edges(case.hops).edge.cpu())
