from __future__ import annotations

import gc
import weakref

import numba
import numpy as np
import pytest
import torch

from contextpool.context.families import mine_families, select_relations
from contextpool.context.neighbors import MaskSelector, mine_context
from contextpool.errors import ConfigError, DataError
from contextpool.graph.graph import Graph
from contextpool.kernels import cpu_walk, threads
from contextpool.pool.expand import EdgeSet, PooledBatch, expand
from contextpool.pool.hide import HiddenEdges
from pool.literal import (
    ArbitrarySelector,
    Case,
    Triple,
    graph_of,
    labels,
    larger_case,
    literal_pool,
    random_case,
    visible_edges,
)
from support import amount

CASES = amount(128, 4_000)


def run(case: Case, graph: Graph | None = None) -> PooledBatch:
    graph = graph or case.graph
    hidden = HiddenEdges.from_triples(case.graph, case.hide).to(graph.device)
    return expand(graph, case.selector, case.query_head, case.query_relation, case.hops, hidden)


def assert_same(one: EdgeSet, other: EdgeSet) -> None:
    assert one.num_queries == other.num_queries
    assert one.edge.dtype == one.edge_query.dtype == torch.int32
    assert torch.equal(one.edge_query.cpu(), other.edge_query.cpu())
    assert torch.equal(one.edge.cpu(), other.edge.cpu())


def assert_literal(case: Case, batch: PooledBatch) -> None:
    assert batch.num_hops == case.hops
    assert batch.num_queries == len(case.queries)
    for query in range(len(case.queries)):
        found = [labels(case.graph, edges) for edges in batch.for_query(query)]
        assert found == case.expected(query), (case.triples, case.queries[query], case.hide[query])


@pytest.mark.parametrize("depends_on_entity", [False, True])
def test_equals_the_literal_algorithm(depends_on_entity: bool) -> None:
    edges_seen = 0
    for seed in range(CASES):
        case = random_case(seed, depends_on_entity=depends_on_entity)
        compiled = run(case)
        for one in compiled.hops:
            assert one.edge.dtype == one.edge_query.dtype == torch.int32
            assert one.edge_query.tolist() == sorted(one.edge_query.tolist())
        assert_literal(case, compiled)
        edges_seen += sum(len(hop) for hop in compiled.hops[1:])
    assert edges_seen > 10 * CASES  # the cases are not all empty beyond the first hop


@pytest.mark.parametrize("depends_on_entity", [False, True])
def test_hiding_equals_walking_the_graph_without_the_hidden(depends_on_entity: bool) -> None:
    for seed in range(1_000_000, 1_000_000 + CASES // 4):
        case = random_case(seed, depends_on_entity=depends_on_entity)
        batch = run(case)
        for query, hide in enumerate(case.hide):
            left = visible_edges(case.triples, hide)
            keep = np.array([triple in left for triple in case.graph.triples], dtype=bool)
            rest = Graph.from_triples(case.graph.as_triples().select(keep))
            one = slice(query, query + 1)
            alone = expand(
                rest,
                case.selector,
                case.query_head[one],
                case.query_relation[one],
                case.hops,
            )
            found = [labels(case.graph, edges) for edges in batch.for_query(query)]
            assert found == [labels(rest, edges) for edges in alone.for_query(0)]


def test_mined_contexts_give_what_the_paper_says() -> None:
    for seed in range(2_000_000, 2_000_000 + CASES // 16):
        case = random_case(seed, depends_on_entity=False)
        for self_policy in ("exclude", "keep"):
            context = mine_context(case.graph, 0.3, 0.2, self=self_policy)
            _assert_context(case, context, lambda _, query: set(context.neighbors(query)))  # noqa: B023
        families = mine_families(case.graph, threshold=0.3, sizes=range(1, 4))
        _assert_context(case, families, lambda have, query: select_relations(families, have, query))  # noqa: B023


def _assert_context(case: Case, selector, select) -> None:  # type: ignore[no-untyped-def]
    mined = Case(case.graph, case.triples, selector, select, case.queries, case.hide, case.hops)
    assert_literal(mined, run(mined))


def test_an_all_true_mask_gives_the_plain_neighborhood() -> None:
    """Diagonal included: hop l holds every edge that leaves an entity at the end of a walk of l - 1 edges."""
    for seed in range(3_000_000, 3_000_000 + CASES // 8):
        case = random_case(seed, depends_on_entity=False)
        everything = _everything(case.graph)
        batch = expand(case.graph, everything, case.query_head, case.query_relation, 4, case.hidden)
        for query, (head, _) in enumerate(case.queries):
            edges, ends = visible_edges(case.triples, case.hide[query]), {head}
            for found in batch.for_query(query):
                leaving = {edge for edge in edges if edge[0] in ends}
                assert labels(case.graph, found) == leaving
                ends = {tail for _, _, tail in leaving}


def _everything(graph: Graph) -> MaskSelector:
    size = graph.relation_vocabulary.num_directed
    return MaskSelector(graph.relation_vocabulary, np.ones((size, size), dtype=bool))


@pytest.mark.parametrize("depends_on_entity", [False, True])
def test_threads_give_the_same(monkeypatch: pytest.MonkeyPatch, depends_on_entity: bool) -> None:
    cases = [random_case(seed, depends_on_entity=depends_on_entity) for seed in range(CASES // 8)]
    alone = [run(case) for case in cases]
    monkeypatch.setattr(threads, "LEAST_WORK", -1)
    used: list[int] = []
    in_blocks = threads.in_blocks
    monkeypatch.setattr(cpu_walk, "in_blocks", lambda *task: used.append(task[2]) or in_blocks(*task))
    for case, batch in zip(cases, alone, strict=True):
        together = run(case)
        for one, other in zip(batch.hops, together.hops, strict=True):
            assert_same(one, other)
        assert_same(batch.union(), together.union())
    assert set(used) == {numba.get_num_threads()}


@pytest.mark.parametrize("depends_on_entity", [False, True])
def test_a_larger_graph(depends_on_entity: bool) -> None:
    """Thousands of (entity, relation) pairs, tens of relations, hops of thousands of edges."""
    case = larger_case(7, depends_on_entity=depends_on_entity)
    compiled = run(case)
    assert len(compiled.hops[-1]) > 3_000
    for query in (0, len(case.queries) - 1):
        found = [labels(case.graph, edges) for edges in compiled.for_query(query)]
        assert found == case.expected(query)


def test_union_holds_each_edge_of_any_hop_once() -> None:
    for seed in range(5_000_000, 5_000_000 + CASES // 8):
        case = random_case(seed, depends_on_entity=False)
        batch = run(case)
        union = batch.union()
        for query in range(len(case.queries)):
            assert labels(case.graph, union.for_query(query)) == set().union(*case.expected(query))
        assert union.edge_query.tolist() == sorted(union.edge_query.tolist())
        assert int(union.query_start[-1]) == len(union)


CHAIN: list[Triple] = [("a", "r", "b"), ("b", "s", "c"), ("b", "u", "d"), ("c", "u", "a")]


def _chain_selector(graph: Graph, allowed: dict[str, list[str]]) -> MaskSelector:
    vocabulary = graph.relation_vocabulary
    mask = np.zeros((vocabulary.num_directed, vocabulary.num_directed), dtype=bool)
    for query, neighbors in allowed.items():
        mask[vocabulary.id_of(query), [vocabulary.id_of(neighbor) for neighbor in neighbors]] = True
    return MaskSelector(vocabulary, mask)


def test_a_chain_by_hand() -> None:
    """a -r-> b arrives at b by r, so b is asked with r^-1, which allows s but not u."""
    graph = Graph.from_triples(CHAIN)
    selector = _chain_selector(graph, {"u": ["r"], "r^-1": ["s"], "s^-1": ["u", "s^-1"]})
    batch = expand(
        graph,
        selector,
        torch.tensor([graph.entity_id("a")]),
        torch.tensor([graph.relation_id("u")]),
        3,
    )
    found = [labels(graph, edges) for edges in batch.for_query(0)]
    assert found == [{("a", "r", "b")}, {("b", "s", "c")}, {("c", "u", "a"), ("c", "s^-1", "b")}]


def test_hops_are_not_cumulative() -> None:
    """Hop 3 starts from the ends of hop 2 alone: a, reached again over c; b, of hop 1, is not asked again."""
    graph = Graph.from_triples([("a", "r", "b"), ("b", "s", "c")])
    selector = _chain_selector(graph, {"r": ["r"], "r^-1": ["s"], "s^-1": []})
    batch = expand(graph, selector, torch.tensor([0]), torch.tensor([0]), 3)
    assert [len(hop) for hop in batch.hops] == [1, 1, 0]


def test_a_relation_that_is_hidden_altogether_changes_the_relation_set() -> None:
    """NR_h is {r, s}; with its only s hidden it is {r}, and then the selector answers otherwise."""
    graph = graph_of([("h", "r", "x"), ("h", "s", "y")], "hxy", ["r", "s"])
    selector = ArbitrarySelector(graph.relation_vocabulary, seed=0)
    both, alone = frozenset({"r", "s"}), frozenset({"r"})
    for seed in range(1_000):  # a selector that tells the two apart
        selector = ArbitrarySelector(graph.relation_vocabulary, seed)
        if "r" in selector.select(alone, "s") and "r" not in selector.select(both, "s"):
            break
    hidden = HiddenEdges.from_triples(graph, [[], [("y", "s^-1", "h")]])
    heads, relations = torch.tensor([0, 0]), torch.tensor([graph.relation_id("s")] * 2)
    (hop,) = expand(graph, selector, heads, relations, 1, hidden).hops
    assert ("h", "r", "x") not in labels(graph, hop.for_query(0))
    assert labels(graph, hop.for_query(1)) == {("h", "r", "x")}


def test_an_isolated_head_and_an_empty_batch_give_empty_hops() -> None:
    graph = graph_of([("a", "r", "b")], ["a", "b", "lonely"], ["r"])
    lonely = torch.tensor([graph.entity_id("lonely")])
    batch = expand(graph, _everything(graph), lonely, torch.tensor([0]), 3)
    assert [len(hop) for hop in batch.hops] == [0, 0, 0]
    nothing = torch.empty(0, dtype=torch.int64)
    batch = expand(graph, _everything(graph), nothing, nothing, 2)
    assert [hop.num_queries for hop in batch.hops] == [0, 0]
    assert len(batch.union()) == 0


@pytest.mark.parametrize("depends_on_entity", [False, True])
def test_a_graph_without_facts_can_be_asked(depends_on_entity: bool) -> None:
    full = graph_of([("a", "r", "b")], ["a", "b"], ["r"])
    empty = Graph.from_triples(full.as_triples().select(np.zeros(1, dtype=bool)))
    selector = (
        ArbitrarySelector(empty.relation_vocabulary, 0)
        if depends_on_entity
        else MaskSelector(empty.relation_vocabulary, np.ones((2, 2), dtype=bool))
    )
    batch = expand(empty, selector, torch.tensor([0, 1]), torch.tensor([0, 1]), 2)
    assert [len(hop) for hop in batch.hops] == [0, 0]


def test_the_table_of_a_graph_is_asked_for_once_and_later_only_what_a_batch_adds() -> None:
    graph = Graph.from_triples(CHAIN)
    selector = ArbitrarySelector(graph.relation_vocabulary, 1)
    own = torch.tensor([graph.edge_id(*CHAIN[0])])
    for _ in range(2):
        expand(graph, selector, graph.edge_head[own], graph.edge_relation[own], 2)
    assert selector.asked == [
        (4, 8)
    ]  # each of the four entities has a set of its own; a head that has its relation
    expand(
        graph,
        selector,
        graph.edge_head[own],
        graph.edge_relation[own],
        2,
        HiddenEdges.one_per_query(graph, own),
    )
    # a loses r and is asked with it, b loses r^-1: {u^-1} with its member and r, {s, u} with its members
    assert selector.asked[1:] == [(2, 4)]


def test_what_is_remembered_dies_with_the_graph_and_the_selector() -> None:
    graph = Graph.from_triples(CHAIN)
    selector = ArbitrarySelector(graph.relation_vocabulary, 1)
    own = torch.tensor([0])
    expand(graph, selector, graph.edge_head[own], graph.edge_relation[own], 2)
    watched = weakref.ref(graph), weakref.ref(selector)
    del graph, selector
    gc.collect()
    assert [reference() for reference in watched] == [None, None]


def test_wrong_input_is_refused_with_what_to_do() -> None:
    graph = Graph.from_triples(CHAIN)
    everything, ids = _everything(graph), torch.tensor([0])
    with pytest.raises(ConfigError, match="num_hops is 0"):
        expand(graph, everything, ids, ids, 0)
    with pytest.raises(DataError, match=r"query_head runs from 4 to 4, but has to lie in \[0, 4\)"):
        expand(graph, everything, torch.tensor([4]), ids, 1)
    with pytest.raises(DataError, match="query_relation runs from -1"):
        expand(graph, everything, ids, torch.tensor([-1]), 1)
    with pytest.raises(DataError, match="have 1 and 2 entries"):
        expand(graph, everything, ids, torch.tensor([0, 1]), 1)
    with pytest.raises(DataError, match="one list of ids"):
        expand(graph, everything, ids[None], ids, 1)
    with pytest.raises(DataError, match="ids are integers"):
        expand(graph, everything, torch.tensor([0.0]), ids, 1)
    with pytest.raises(DataError, match="with_relations"):
        expand(Graph.from_triples(CHAIN[:1]), everything, ids, ids, 1)
    with pytest.raises(DataError, match="rows for 2 queries, but there are 1"):
        expand(graph, everything, ids, ids, 1, HiddenEdges.none(graph, 2))
    with pytest.raises(DataError, match="graph of 2 edges, this one has 8"):
        expand(graph, everything, ids, ids, 1, HiddenEdges.none(Graph.from_triples(CHAIN[:1]), 1))


def test_the_literal_algorithm_itself_on_a_world_done_by_hand() -> None:
    """The oracle: q allows r; arriving by r asks r^-1, which allows s; the hidden edge is gone both ways."""
    triples = [("h", "r", "x"), ("h", "r", "y"), ("x", "s", "z"), ("y", "s", "z")]
    allowed = {"s": {"r"}, "r^-1": {"s"}, "s^-1": {"s^-1"}}
    hops = literal_pool(
        triples, lambda _, query: allowed.get(query, set()), "h", "s", 3, [("z", "s^-1", "y")]
    )
    assert hops == [{("h", "r", "x"), ("h", "r", "y")}, {("x", "s", "z")}, {("z", "s^-1", "x")}]


@pytest.mark.gpu
@pytest.mark.parametrize("depends_on_entity", [False, True])
def test_cuda_equals_the_cpu(depends_on_entity: bool) -> None:
    for seed in range(6_000_000, 6_000_000 + CASES // 4):
        case = random_case(seed, depends_on_entity=depends_on_entity)
        on_device = case.graph.to("cuda")
        expected, found = run(case), run(case, on_device)
        assert found.hops[0].edge.device.type == "cuda"
        for one, other in zip(expected.hops, found.hops, strict=True):
            assert_same(one, other)
        assert_same(expected.union(), found.union())
