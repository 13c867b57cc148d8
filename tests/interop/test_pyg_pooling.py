"""ContextPooling on PyG's tensors is Algorithm 2: against the plain Python twin, and by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch_geometric", reason="the pyg extra is not installed")
from torch_geometric.data import Data
from torch_geometric.nn import RGCNConv
from torch_geometric.nn.pool.connect import ConnectOutput, FilterEdges
from torch_geometric.nn.pool.select import SelectOutput
from torch_geometric.transforms import BaseTransform, Compose

import contextpool as cp
from contextpool.context.neighbors import ContextNeighbors, MaskSelector
from contextpool.errors import ConfigError, DataError
from contextpool.graph.graph import Graph, walk_back
from contextpool.interop.pyg import ContextPooling, ContextSelection
from contextpool.interop.pyg_data import InverseEdges
from learning_worlds import without_fact
from pool.literal import literal_pool, select_by_mask
from support import Triple, amount, random_triples, relation_sets_of

EXAMPLES = amount(30, 2_000)
FAMILY = [
    ("ann", "works_in", "bern"),
    ("ann", "speaks", "german"),
    ("bob", "works_in", "bern"),
    ("bob", "speaks", "french"),
    ("bern", "lies_in", "switzerland"),
]


def labelled(graph: Graph, selection: ContextSelection, query: int) -> set[Triple]:
    """The pooled edges of one query by name."""
    mine = selection.query_index[selection.pooled_edge_index[0]] == query
    ends = selection.node_index[selection.pooled_edge_index[:, mine]].tolist()
    kinds = selection.pooled_edge_type[mine].tolist()
    names, relations = graph.entities, graph.relation_vocabulary.directed
    return {(names[a], relations[r], names[b]) for a, b, r in zip(*ends, kinds, strict=True)}


def select(
    pooling: ContextPooling,
    graph: Graph,
    asked: list[tuple[str, str]],
    inverse: InverseEdges = "offset",
    hide: list[int] | None = None,
) -> ContextSelection:
    data = graph.to_pyg(inverse=inverse)
    head = torch.tensor([graph.entity_id(label) for label, _ in asked])
    relation = torch.tensor([graph.relation_id(label) for _, label in asked])
    hidden = None if hide is None else torch.tensor(hide)
    return pooling.select(
        data.edge_index, data.edge_type, head, relation, num_nodes=data.num_nodes, hide=hidden
    )


def test_a_small_world_by_hand() -> None:
    graph = Graph.from_triples(FAMILY)
    picked = select(
        ContextPooling(hops=2), graph, [("ann", "speaks"), ("bern", "lies_in"), ("german", "lies_in")]
    )
    assert labelled(graph, picked, 0) == {("ann", "works_in", "bern"), ("bern", "lies_in", "switzerland")}
    assert labelled(graph, picked, 1) == {
        ("bern", "works_in^-1", "ann"), ("bern", "works_in^-1", "bob"),
        ("ann", "speaks", "german"), ("bob", "speaks", "french"),
    }  # fmt: skip
    assert labelled(graph, picked, 2) == set()
    of_third = picked.node_index[picked.query_index == 2].tolist()
    assert of_third == [graph.entity_id("german")]  # its head is there though nothing leaves it
    names = [graph.entities[node] for node in picked.node_index[picked.query_index == 0].tolist()]
    assert names == ["ann", "bern", "switzerland"]


def test_the_results_are_pyg_s_own() -> None:
    graph = Graph.from_triples(FAMILY)
    data = graph.to_pyg()
    pooling = ContextPooling(hops=2)
    head, relation = torch.tensor([graph.entity_id("ann")] * 2), torch.tensor([1, 2])
    picked = pooling.select(data.edge_index, data.edge_type, head, relation, num_nodes=data.num_nodes)
    assert isinstance(picked, SelectOutput)
    assert picked.cluster_index.tolist() == list(range(picked.num_clusters))
    assert picked.num_nodes == graph.num_entities
    pooled = pooling.connect(picked, data.edge_index)
    assert isinstance(pooled, ConnectOutput)
    assert pooled.batch.tolist() == picked.query_index.tolist()
    columns = pooling.connect(picked, data.edge_index, torch.arange(data.num_edges)).edge_attr
    assert torch.equal(data.edge_type[columns], pooled.edge_attr)
    assert torch.equal(data.edge_index[:, columns], picked.node_index[pooled.edge_index])
    assert torch.equal(picked.node_index[picked.head_cluster], head)
    FilterEdges()(picked, data.edge_index)  # what takes PyG's selections takes ours
    states = RGCNConv(3, 3, 2 * graph.num_relations)(
        torch.ones(picked.num_clusters, 3), pooled.edge_index, pooled.edge_attr
    )
    assert states.shape == (picked.num_clusters, 3)


@settings(max_examples=EXAMPLES)
@given(
    seed=st.integers(0, 10_000),
    hops=st.integers(1, 3),
    inverse=st.sampled_from(["offset", "none"]),
    policy=st.sampled_from(["exclude", "keep"]),
)
def test_random_worlds_equal_the_literal_algorithm(
    seed: int, hops: int, inverse: InverseEdges, policy: str
) -> None:
    facts = random_triples(seed)
    graph = Graph.from_triples(facts)
    context = cp.mine_context(graph, 0.3, self=policy)  # type: ignore[arg-type]
    rule = select_by_mask(MaskSelector(graph.relation_vocabulary, context.mask))
    rng = np.random.default_rng(seed)
    directed = graph.relation_vocabulary.directed
    asked = [(str(rng.choice(graph.entities)), str(rng.choice(directed))) for _ in range(3)]
    for pooling in (
        ContextPooling(context, hops, inverse=inverse),
        ContextPooling(None, hops, min_precision=0.3, self_policy=policy, inverse=inverse),  # type: ignore[arg-type]
    ):
        picked = select(pooling, graph, asked, inverse)
        for query, (head, relation) in enumerate(asked):
            literal = literal_pool(facts, rule, head, relation, hops)
            assert labelled(graph, picked, query) == set().union(*literal)
            for edge, hop in zip(_edges_in_order(graph, picked, query), _hops(picked, query), strict=True):
                assert hop == 1 + next(number for number, part in enumerate(literal) if edge in part)


def _edges_in_order(graph: Graph, picked: ContextSelection, query: int) -> list[Triple]:
    mine = torch.nonzero(picked.query_index[picked.pooled_edge_index[0]] == query).squeeze(1)
    ends = picked.node_index[picked.pooled_edge_index[:, mine]].T.tolist()
    names, kinds = graph.entities, graph.relation_vocabulary.directed
    return [
        (names[a], kinds[r], names[b])
        for (a, b), r in zip(ends, picked.pooled_edge_type[mine].tolist(), strict=True)
    ]


def _hops(picked: ContextSelection, query: int) -> list[int]:
    return picked.edge_hop[picked.query_index[picked.pooled_edge_index[0]] == query].tolist()


@settings(max_examples=EXAMPLES)
@given(seed=st.integers(0, 10_000), inverse=st.sampled_from(["offset", "none"]), turned=st.booleans())
def test_a_hidden_edge_never_existed_not_even_for_the_counts(
    seed: int, inverse: InverseEdges, turned: bool
) -> None:
    graph = Graph.from_triples(random_triples(seed))
    column = seed % graph.num_triples
    fact = graph.triples[column]
    head, relation, _ = walk_back(fact) if turned else fact
    poorer = without_fact(graph, graph.edge_id(*fact))
    pooling = ContextPooling(hops=3, min_precision=0.3, inverse=inverse)
    hidden = select(pooling, graph, [(head, relation)], inverse, hide=[column])
    types = graph.num_relations * (2 if inverse == "offset" else 1)
    fresh = ContextPooling(hops=3, min_precision=0.3, inverse=inverse, num_types=types)
    assert labelled(graph, hidden, 0) == labelled(
        poorer, select(fresh, poorer, [(head, relation)], inverse), 0
    )


@settings(max_examples=EXAMPLES)
@given(seed=st.integers(0, 10_000), hides=st.booleans())
def test_weights_say_how_much_a_node_looks_like_an_answer(seed: int, hides: bool) -> None:
    """By plain sets: of the entities having y, how many does the relation point to; the best y of a node counts."""
    facts = sorted(set(random_triples(seed)))
    graph = Graph.from_triples(facts)
    column = seed % len(facts)
    head, relation, _ = graph.triples[column]
    picked = select(ContextPooling(hops=2), graph, [(head, relation)], hide=[column] if hides else None)
    left = [fact for fact in facts if not (hides and fact == graph.triples[column])]
    has = relation_sets_of(left)
    asked = relation + "^-1"
    for node, weight in zip(picked.node_index.tolist(), picked.weight.tolist(), strict=True):
        shares = [0.0]
        for y in has.get(graph.entities[node], set()):
            having = [entity for entity, kinds in has.items() if y in kinds]
            shares.append(sum(asked in has[entity] for entity in having) / len(having))
        assert weight == pytest.approx(max(shares))


def test_a_context_without_counts_gives_no_weights() -> None:
    graph = Graph.from_triples(FAMILY)
    everything = MaskSelector.everything(graph.relation_vocabulary)
    assert select(ContextPooling(everything, 1), graph, [("ann", "speaks")]).weight is None


def test_families_can_be_pooled_by() -> None:
    graph = Graph.from_triples(FAMILY)
    families = cp.mine_families(graph, measure="precision", threshold=0.1, sizes=range(1, 3))
    expected = cp.pool(graph, families, head="ann", relation="speaks", hops=2).triples
    assert labelled(graph, select(ContextPooling(families, 2), graph, [("ann", "speaks")]), 0) == expected


def test_context_of_another_graph_is_taken_as_it_is() -> None:
    graph = Graph.from_triples(FAMILY)
    other = Graph.from_triples([("x", "works_in", "y"), ("x", "lies_in", "y"), ("x", "speaks", "z")])
    context = cp.mine_context(other.with_relations(graph.relation_vocabulary))
    assert isinstance(context, ContextNeighbors)
    expected = cp.pool(graph, context, head="ann", relation="works_in", hops=2).triples
    assert labelled(graph, select(ContextPooling(context, 2), graph, [("ann", "works_in")]), 0) == expected


def asking(graph: Graph, head: str, relation: str, inverse: InverseEdges = "offset") -> Data:
    data = graph.to_pyg(inverse=inverse)
    data.query_head, data.query_relation = graph.entity_id(head), graph.relation_id(relation)
    data.note = torch.arange(data.num_edges)
    return data


def test_as_a_transform_it_leaves_the_walked_edges() -> None:
    graph = Graph.from_triples(FAMILY)
    data = asking(graph, "ann", "speaks")
    transform = ContextPooling(hops=2)
    assert isinstance(transform, BaseTransform)
    out = Compose([transform])(data)
    assert data.num_edges == 10  # the input is as it was
    assert out.num_nodes == graph.num_entities
    assert [(graph.entities[a], graph.entities[b]) for a, b in out.edge_index.T.tolist()] == [
        ("ann", "bern"),
        ("bern", "switzerland"),
    ]
    assert out.edge_hop.tolist() == [1, 2]
    assert torch.equal(data.edge_type[out.note], out.edge_type)
    assert torch.equal(data.edge_index[:, out.note], out.edge_index)


def test_facts_walked_backwards_come_out_turned() -> None:
    graph = Graph.from_triples(FAMILY)
    out = ContextPooling(hops=1, inverse="none")(asking(graph, "bern", "lies_in", "none"))
    assert {(graph.entities[a], graph.entities[b]) for a, b in out.edge_index.T.tolist()} == {
        ("bern", "ann"),
        ("bern", "bob"),
    }
    assert out.edge_type.tolist() == [graph.relation_id("works_in^-1")] * 2


@pytest.mark.parametrize("inverse", ["offset", "none"])
def test_as_a_mask_it_keeps_all_edges(inverse: InverseEdges) -> None:
    graph = Graph.from_triples(FAMILY)
    data = asking(graph, "bern", "lies_in", inverse)
    out = ContextPooling(hops=1, inverse=inverse, mode="mask")(data)
    marked = {
        (graph.entities[a], graph.entities[b]) for a, b in out.edge_index[:, out.context_mask].T.tolist()
    }
    assert marked == (
        {("bern", "ann"), ("bern", "bob")} if inverse == "offset" else {("ann", "bern"), ("bob", "bern")}
    )
    assert out.num_edges == data.num_edges


def test_the_query_of_the_data_can_be_hidden_by_its_column() -> None:
    graph = Graph.from_triples(FAMILY)
    data = asking(graph, "ann", "works_in")
    column = list(graph.triples).index(("ann", "works_in", "bern"))
    data.query_edge = column
    expected = cp.pool(
        without_fact(graph, graph.edge_id("ann", "works_in", "bern")),
        cp.mine_context(without_fact(graph, graph.edge_id("ann", "works_in", "bern"))),
        head="ann", relation="works_in", hops=3,
    ).triples  # fmt: skip
    assert ContextPooling(hops=3)(data).num_edges == len(expected)
    assert column not in ContextPooling(hops=3)(data).note.tolist()


def test_the_graph_is_kept_while_the_tensors_stay_the_same() -> None:
    graph = Graph.from_triples(FAMILY)
    data = graph.to_pyg()
    pooling = ContextPooling(hops=1)
    head, relation = torch.tensor([graph.entity_id("ann")]), torch.tensor([graph.relation_id("speaks")])
    ask = lambda: pooling.select(data.edge_index, data.edge_type, head, relation, num_nodes=data.num_nodes)  # noqa: E731
    ask()
    kept = pooling._prepared
    assert len(ask().edge_column) == 1
    assert pooling._prepared is kept
    swapped = data.edge_type.clone()
    works, speaks = graph.relation_id("works_in"), graph.relation_id("speaks")
    for one, other in ((works, speaks), (works + 3, speaks + 3)):
        swapped[data.edge_type == one], swapped[data.edge_type == other] = other, one
    data.edge_type.copy_(swapped)  # in place: the same tensor holds another graph
    assert labelled(graph, ask(), 0) == {("ann", "works_in", "german")}
    assert pooling._prepared is not kept


EDGES = torch.tensor([[0, 1], [1, 0]])
ONE = torch.tensor([0])


@pytest.mark.parametrize(
    ("act", "error", "message"),
    [
        (lambda: ContextPooling(hops=0), ConfigError, "hops is 0"),
        (lambda: ContextPooling(mode="cut"), ConfigError, "mode is 'cut'"),
        (lambda: ContextPooling(inverse="both"), ConfigError, "inverse is 'both'"),
        (lambda: ContextPooling(num_types=3), ConfigError, "even"),
        (
            lambda: ContextPooling(cp.mine_context(Graph.from_triples(FAMILY)), num_types=8),
            ConfigError,
            "3 relations",
        ),
        (
            lambda: ContextPooling().select(EDGES, torch.tensor([0, 1]), ONE, torch.tensor([2])),
            DataError,
            "query_relation",
        ),
        (
            lambda: ContextPooling().select(EDGES, torch.tensor([0, 1]), torch.tensor([2]), ONE),
            DataError,
            "query_head",
        ),
        (
            lambda: ContextPooling().select(EDGES, torch.tensor([0, 1]), ONE, ONE, num_nodes=1),
            DataError,
            "holds 1",
        ),
        (
            lambda: ContextPooling().select(EDGES, torch.tensor([0, 1]), ONE, ONE, hide=torch.tensor([7])),
            DataError,
            "outside the 2",
        ),
        (
            lambda: ContextPooling().select(EDGES, torch.tensor([0, 1]), ONE, ONE, hide=torch.tensor([0, 0])),
            DataError,
            r"\[2\] for 1",
        ),
        (
            lambda: ContextPooling().select(EDGES, torch.tensor([0, 1]), torch.tensor([1]), ONE, hide=ONE),
            DataError,
            "Hide the edge that the query",
        ),
        (
            lambda: ContextPooling()(Data(edge_index=EDGES, edge_type=torch.tensor([0, 1]), num_nodes=2)),
            DataError,
            "no query_head",
        ),
        (
            lambda: ContextPooling()(
                Data(
                    edge_index=EDGES,
                    edge_type=torch.tensor([0, 1]),
                    num_nodes=2,
                    query_head=EDGES[0],
                    query_relation=0,
                )
            ),
            DataError,
            "select and connect",
        ),
        (
            lambda: ContextPooling().connect(SelectOutput(ONE, 2, ONE, 1), EDGES),
            DataError,
            "does not say what was walked",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(act, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        act()
