"""Nodes, edges and view bits of a propagation against plain Python sets."""

from __future__ import annotations

import random

import numba
import numpy as np
import pytest
import torch

from contextpool.context.neighbors import MaskSelector
from contextpool.errors import ConfigError, DataError
from contextpool.graph.graph import Graph
from contextpool.kernels.hop import Hop
from contextpool.pool.expand import EdgeSet, expand
from contextpool.pool.hide import HiddenEdges
from contextpool.pool.propagation import MAX_VIEWS, Propagation, build_propagation
from learning_worlds import graph_over
from learning_worlds import one_thread as one_thread
from pool.literal import Case, Triple, literal_reach, random_case, visible_edges
from support import amount

CASES = amount(60, 3_000)
QueryEdge = tuple[int, Triple]
"""A query's number and an edge as labels."""


def built(case: Case, layers: int, views: list[list[EdgeSet]]) -> Propagation:
    return build_propagation(case.graph, case.query_head, case.query_relation, layers, case.hidden, views)


def check_same(one: Propagation, other: Propagation) -> None:
    """Every field, in value and in type."""
    assert (one.layer_sizes, one.layer_edges) == (other.layer_sizes, other.layer_edges)
    names = (
        "node_query",
        "node_entity",
        "row_start",
        "edge_source",
        "edge_relation",
        "edge_back",
        "edge_views",
    )
    for a, b in ((getattr(one, name), getattr(other, name)) for name in names):
        assert a.dtype == b.dtype
        assert torch.equal(a.cpu(), b.cpu())


def reached(case: Case, hops: int) -> list[dict[str, int]]:
    """For each query the entities within so many hops, with the first hop that reaches each."""
    return [
        literal_reach(case.triples, head, hops, hide)
        for (head, _), hide in zip(case.queries, case.hide, strict=True)
    ]


def edges_leaving(case: Case, within: int) -> set[QueryEdge]:
    """All edges not hidden from a query that leave what it reaches within so many hops."""
    return {
        (query, edge)
        for query, entities in enumerate(reached(case, within))
        for edge in visible_edges(case.triples, case.hide[query])
        if edge[0] in entities
    }


def labelled(walk: Propagation, hop: Hop, graph: Graph) -> list[QueryEdge]:
    """The edges of a hop from its own columns: the query and names of source, relation and target."""
    names, kinds = graph.entities, graph.relation_vocabulary.directed
    entity = walk.node_entity.tolist()
    columns = (hop.edge_query, hop.edge_source, hop.edge_relation, hop.edge_target)
    return [
        (query, (names[entity[source]], kinds[relation], names[entity[target]]))
        for query, source, relation, target in zip(*(column.tolist() for column in columns), strict=True)
    ]


def of_edge_set(graph: Graph, edges: EdgeSet) -> set[QueryEdge]:
    return set(zip(edges.edge_query.tolist(), graph.edge_labels(edges.edge.long()), strict=True))


def check_nodes(case: Case, walk: Propagation, layers: int) -> None:
    expected = sorted(
        (hop, query, case.graph.entity_id(entity))
        for query, entities in enumerate(reached(case, layers))
        for entity, hop in entities.items()
    )
    assert list(zip(walk.node_query.tolist(), walk.node_entity.tolist(), strict=True)) == [
        node[1:] for node in expected
    ]
    assert walk.layer_sizes == tuple(
        sum(hop <= layer for hop, _, _ in expected) for layer in range(layers + 1)
    )
    assert (walk.num_queries, walk.num_layers) == (len(case.queries), layers)


def check_hop(case: Case, walk: Propagation, layer: int) -> None:
    hop = walk.hop(layer).walked
    assert (hop.num_sources, hop.num_targets) == (walk.layer_sizes[layer - 1], walk.layer_sizes[layer])
    found = labelled(walk, hop, case.graph)
    assert len(found) == len(set(found)) == hop.num_edges
    assert set(found) == edges_leaving(case, layer - 1)
    assert (hop.edge_source < hop.num_sources).all()
    assert torch.equal(hop.node_query[hop.edge_source], hop.edge_query)
    assert hop.edge_target.tolist() == sorted(hop.edge_target.tolist())
    assert len(hop.row_start) == hop.num_targets + 1
    for target in range(hop.num_targets):
        rows = range(int(hop.row_start[target]), int(hop.row_start[target + 1]))
        assert list(rows) == torch.nonzero(hop.edge_target == target).squeeze(1).tolist()


def check_edge_ids(case: Case, walk: Propagation) -> None:
    """`edge_id` names the edge that source, relation and target describe; none is held that no layer needs."""
    assert len(walk.edge_id) == walk.hops[-1].walked.num_edges
    entity = walk.node_entity
    columns = (entity[walk.edge_source], walk.edge_relation.long(), entity[walk.edge_target])
    assert torch.equal(case.graph.find_edges(*columns), walk.edge_id)


def test_nodes_and_edges_equal_plain_sets() -> None:
    edges_seen = 0
    for seed in range(CASES):
        case = random_case(seed, depends_on_entity=False)
        layers = 1 + seed % 4
        walk = built(case, layers, [])
        check_nodes(case, walk, layers)
        check_edge_ids(case, walk)
        for layer in range(1, layers + 1):
            check_hop(case, walk, layer)
            assert not walk.hop(layer).walked.edge_views.any()
        edges_seen += len(walk.edge_id)
    assert edges_seen > 10 * CASES


def random_edge_sets(case: Case, hops: int, rng: random.Random) -> list[EdgeSet]:
    """Any (query, edge) pairs at all, also unreached and hidden ones."""
    num_pairs = len(case.queries) * case.graph.num_edges
    result = []
    for _ in range(hops):
        keys = sorted(rng.sample(range(num_pairs), rng.randint(0, num_pairs)))
        query, edge = np.divmod(np.array(keys, dtype=np.int32), np.int32(case.graph.num_edges))
        result.append(EdgeSet(torch.from_numpy(query), torch.from_numpy(edge), len(case.queries)))
    return result


def check_bits(case: Case, walk: Propagation, views: list[list[EdgeSet]]) -> None:
    for layer in range(1, walk.num_layers + 1):
        hop = walk.hop(layer).walked
        edges = labelled(walk, hop, case.graph)
        for view, hops in enumerate(views):
            members = set().union(*(of_edge_set(case.graph, part) for part in hops))
            assert hop.in_view(view).tolist() == [edge in members for edge in edges]
        assert not (hop.edge_views >> len(views)).any()


def test_view_bits_are_membership_in_the_given_edge_sets() -> None:
    bits_set = 0
    for seed in range(1_000, 1_000 + CASES // 2):
        rng = random.Random(seed)
        case = random_case(seed, depends_on_entity=False)
        pooled = expand(
            case.graph, case.selector, case.query_head, case.query_relation, case.hops, case.hidden
        )
        views = [list(pooled.hops), random_edge_sets(case, rng.randint(1, 4), rng)]
        walk = built(case, 1 + seed % 3, views)
        check_bits(case, walk, views)
        bits_set += sum(int((hop.edge_views > 0).sum()) for hop in walk.hops)
    assert bits_set > CASES


def test_threads_share_the_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph and a batch that are large enough for it; the same comes out as on one thread."""
    rng = random.Random(0)
    names = [f"e{number:03}" for number in range(300)]
    graph = Graph.from_triples(
        [(rng.choice(names), f"r{rng.randrange(5)}", rng.choice(names)) for _ in range(4_000)]
    )
    head = torch.tensor([rng.randrange(graph.num_entities) for _ in range(40)])
    hidden = HiddenEdges.one_per_query(
        graph, torch.tensor([rng.randrange(graph.num_edges) for _ in range(40)])
    )
    everything = MaskSelector.everything(graph.relation_vocabulary)
    views = [expand(graph, everything, head, torch.zeros_like(head), 2, hidden).hops]
    walks = []
    for num_threads in (1, 2, 3):
        monkeypatch.setattr(numba, "get_num_threads", lambda count=num_threads: count)
        walks.append(build_propagation(graph, head, torch.zeros_like(head), 3, hidden, views))
    for walk in walks[1:]:
        check_same(walks[0], walk)


def test_eight_views_have_a_bit_each_and_nine_are_refused() -> None:
    case = random_case(3, depends_on_entity=False)
    views = [random_edge_sets(case, 1, random.Random(seed)) for seed in range(MAX_VIEWS)]
    check_bits(case, built(case, 2, views), views)
    with pytest.raises(ConfigError, match="9 context views"):
        built(case, 2, [*views, views[0]])


def test_a_world_done_by_hand() -> None:
    """Two relations between a and b, a loop at b, and c behind b; asked at a and at c."""
    graph = Graph.from_triples([("a", "r", "b"), ("a", "s", "b"), ("b", "r", "b"), ("b", "s", "c")])
    a, b, c = range(3)
    walk = build_propagation(graph, torch.tensor([a, c]), torch.tensor([0, 1]), 2)
    assert walk.layer_sizes == (2, 4, 6)
    assert walk.node_query.tolist() == [0, 1, 0, 1, 0, 1]
    assert walk.node_entity.tolist() == [a, c, b, b, c, a]
    first, second = (hop.walked for hop in walk.hops)
    assert set(labelled(walk, first, graph)) == {
        (0, ("a", "r", "b")), (0, ("a", "s", "b")), (1, ("c", "s^-1", "b")),
    }  # fmt: skip
    leaving_b = {("b", "r^-1", "a"), ("b", "s^-1", "a"), ("b", "r", "b"), ("b", "r^-1", "b"), ("b", "s", "c")}
    assert set(labelled(walk, second, graph)) == {
        *labelled(walk, first, graph),
        *((query, edge) for query in (0, 1) for edge in leaving_b),
    }
    assert second.row_start.diff().tolist() == [2, 1, 4, 3, 1, 2]


def test_hiding_the_only_way_leaves_the_head_alone() -> None:
    graph = Graph.from_triples([("a", "r", "b"), ("b", "r", "c")])
    hidden = HiddenEdges.one_per_query(graph, torch.tensor([graph.edge_id("b", "r^-1", "a")]))
    walk = build_propagation(graph, torch.tensor([0]), torch.tensor([0]), 3, hidden)
    assert walk.layer_sizes == (1, 1, 1, 1)
    assert [hop.num_edges for hop in walk.hops] == [0, 0, 0]


def test_an_isolated_head_a_graph_without_facts_and_an_empty_batch() -> None:
    graph = graph_over([("a", "r", "b")], ["a", "b", "lonely"], ["r"])
    everything = MaskSelector.everything(graph.relation_vocabulary)
    empty = Graph.from_triples(graph.as_triples().select(np.zeros(1, dtype=bool)))
    for world, heads in ((graph, [2]), (empty, [0, 1]), (graph, []), (empty, [])):
        head = torch.tensor(heads, dtype=torch.int64)
        views = [expand(world, everything, head, torch.zeros_like(head), 2).hops]
        walk = build_propagation(world, head, torch.zeros_like(head), 2, views=views)
        assert walk.layer_sizes == (len(heads),) * 3
        for hop in walk.hops:
            assert hop.num_edges == 0
            assert hop.row_start.tolist() == [0] * (len(heads) + 1)


def test_what_is_hidden_has_to_fit_the_queries() -> None:
    graph = Graph.from_triples([("a", "r", "b")])
    with pytest.raises(DataError, match="rows for 2 queries, but there are 1"):
        build_propagation(graph, torch.tensor([0]), torch.tensor([0]), 1, HiddenEdges.none(graph, 2))
    with pytest.raises(DataError, match="query_head runs from 2"):
        build_propagation(graph, torch.tensor([2]), torch.tensor([0]), 1)
    with pytest.raises(ConfigError, match="num_layers is 0"):
        build_propagation(graph, torch.tensor([0]), torch.tensor([0]), 0)


def test_a_hidden_bridge_by_hand() -> None:
    """h - x - y and h - y: with (h, r, y) hidden, y is two hops away instead of one."""
    graph = Graph.from_triples([("h", "r", "x"), ("x", "r", "y"), ("h", "r", "y")])
    hidden = HiddenEdges.from_triples(graph, [[], [("h", "r", "y")]])
    walk = build_propagation(graph, torch.tensor([0, 0]), torch.tensor([0, 0]), 2, hidden)
    assert walk.layer_sizes == (2, 5, 6)
    assert walk.node_query.tolist() == [0, 1, 0, 0, 1, 1]
    assert walk.node_entity.tolist() == [0, 0, 1, 2, 1, 2]


@pytest.mark.gpu
def test_cuda_equals_the_cpu() -> None:
    for seed in range(CASES // 4):
        case = random_case(seed, depends_on_entity=False)
        given = (case.query_head, case.query_relation, 2, case.hidden)
        found = build_propagation(case.graph.to("cuda"), *given)
        assert found.edge_source.device.type == "cuda"
        check_same(build_propagation(case.graph, *given), found)
