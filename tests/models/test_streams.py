"""Context for any model: streams over views, gates, candidate relevance; and where all of them begin."""

from __future__ import annotations

import copy

import pytest
import torch

from contextpool.context.config import ViewConfig
from contextpool.context.counts import Statistics
from contextpool.context.neighbors import MaskSelector
from contextpool.graph.graph import Graph
from contextpool.kernels.interface import FULL, Stream, aggregate, use_backend
from contextpool.models.base import LinkPredictor
from contextpool.models.registry import model_class
from contextpool.models.streams import CandidateHead, ContextStreams, RelevanceGate, edge_gate
from contextpool.pool.batch import BatchBuilder, QueryBatch
from contextpool.pool.expand import expand
from contextpool.pool.hide import HiddenEdges
from contextpool.pool.propagation import Propagation, build_propagation
from kernels.triton_here import DEVICE, needs_triton
from kernels.triton_here import few_programs as few_programs
from learning_worlds import SMALL, ask, every_query, new_model, random_graph, scatter_weights
from learning_worlds import one_thread as one_thread
from support import amount, context_with

CASES = amount(20, 500)
TRAINED = ("nbfnet", "redgnn")
REDUCTIONS = ("sum", "mean", "max", "min", "std")


def walk_under_an_all_true_mask(graph: Graph, layers: int, hops: int) -> Propagation:
    """Every edge as a query that does not see itself, with one view: the walk without any filter."""
    head, relation = graph.edge_head.long(), graph.edge_relation.long()
    hidden = HiddenEdges.one_per_query(graph, torch.arange(graph.num_edges))
    everything = MaskSelector.everything(graph.relation_vocabulary)
    view = expand(graph, everything, head, relation, hops, hidden).hops
    return build_propagation(graph, head, relation, layers, hidden, [view])


def test_a_stream_over_an_all_true_mask_aggregates_what_the_full_stream_does() -> None:
    """Hop l of the pooled walk leaves the ends of walks of l - 1 edges; L hops hold all that L layers can need."""
    for seed in range(CASES):
        graph, layers = random_graph(seed), 1 + seed % 3
        walk = walk_under_an_all_true_mask(graph, layers, layers)
        generator = torch.Generator().manual_seed(seed)
        weight = torch.randn(graph.relation_vocabulary.num_directed, 4, generator=generator)
        for hop in (hop.walked for hop in walk.hops):
            assert hop.in_view(0).all()
            state = torch.randn(hop.num_sources, 4, generator=generator)
            (full, view), (degree, degree_in_view) = aggregate(
                hop, state, [Stream(FULL, weight), Stream(0, weight)], message="distmult", reductions=REDUCTIONS
            )  # fmt: skip
            assert torch.equal(full, view)
            assert torch.equal(degree, degree_in_view)


def test_fewer_pooled_hops_than_layers_leave_the_outermost_edges_to_the_full_stream() -> None:
    left_out = 0
    for seed in range(CASES):
        walk = walk_under_an_all_true_mask(random_graph(seed), 3, 1)
        for hop in (hop.walked for hop in walk.hops):
            assert torch.equal(hop.in_view(0), hop.edge_source < walk.layer_sizes[0])
            left_out += int((~hop.in_view(0)).sum())
    assert left_out > CASES


@pytest.mark.parametrize("name", TRAINED)
def test_two_halves_of_the_full_stream_are_the_plain_model(name: str) -> None:
    """One half through the full stream, one through a view of everything: nothing is lost, nothing counts twice."""
    for seed in range(CASES // 4):
        graph = random_graph(seed)
        walk = walk_under_an_all_true_mask(graph, 2, 2)
        streamed = new_model(name, graph, context_with(views=(ViewConfig(),)), seed)
        plain = new_model(name, graph, None, seed)
        share_two_streams(plain, streamed)
        with torch.no_grad():
            torch.testing.assert_close(
                streamed(QueryBatch(walk)), plain(QueryBatch(walk)), atol=1e-5, rtol=1e-5
            )


def share_two_streams(plain: LinkPredictor, streamed: LinkPredictor) -> None:
    """Give the two-stream model the plain one's weights: each stream the same, each counting for half."""
    weights = plain.state_dict()
    wanted = {}
    for key, value in streamed.state_dict().items():
        source = key.replace("streams.1.", "streams.0.").replace("relation.1.", "relation.0.")
        source = source.replace("received.1.", "received.0.")
        given = weights[source]
        if "received." in key:
            given = given / 2
        elif key.endswith("update.weight"):
            given = torch.cat([given / 2, given / 2], dim=1)
        assert given.shape == value.shape
        wanted[key] = given
    streamed.load_state_dict(wanted)


def test_streams_are_the_full_graph_and_then_the_views_in_order() -> None:
    weights = [torch.full((2, 1), float(number)) for number in range(3)]
    context = ContextStreams(context_with(views=(ViewConfig(), ViewConfig())))
    assert context.num_streams == 3
    assert [stream.view for stream in context.streams(weights)] == [FULL, 0, 1]
    assert [stream.relation_weight for stream in context.streams(weights)] == weights
    plain = ContextStreams(None)
    assert plain.num_streams == 1
    assert not list(plain.parameters())
    with pytest.raises(ValueError, match="zip"):
        plain.streams(weights)


@pytest.mark.parametrize("name", TRAINED)
@pytest.mark.parametrize("use", ["gate", "arrive"])
def test_relevance_starts_without_effect(name: str, use: str) -> None:
    """The gate starts at 1 and the candidate logit at 0: with equal weights the model is the plain one."""
    kind = model_class(name)
    context = context_with(views=(), gate=use == "gate", arrive=use == "arrive")
    for seed in range(CASES // 4):
        graph = random_graph(seed)
        plain = new_model(name, graph, None, seed)
        gated = kind(graph.num_relations, kind.config_class(**SMALL[name]), context).eval()
        missing, unexpected = gated.load_state_dict(plain.state_dict(), strict=False)
        assert not unexpected
        assert missing
        assert all(key.startswith(f"context.{use}.") for key in missing)
        head, relation = every_query(graph)
        expected = ask(plain, BatchBuilder(graph, 2), head, relation)
        found = ask(gated, BatchBuilder(graph, 2, context), head, relation)
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)


def test_a_gate_lies_between_zero_and_two_and_tells_relevance_and_identity_apart() -> None:
    torch.manual_seed(0)
    gate = RelevanceGate()
    relevance = torch.rand(5, 6, 2)
    relation = torch.arange(5)
    assert torch.equal(gate(relevance, relation), torch.ones(5, 6))
    scatter_weights(gate)
    weights = gate(relevance, relation)
    assert weights.shape == (5, 6)
    assert ((weights > 0) & (weights < 2)).all()
    assert len(weights.unique()) == 30
    same = relevance[:1].expand(6, -1, -1)[:, :1].expand(-1, 6, -1)  # everything equally relevant
    table = gate(same, torch.arange(6))
    own = torch.eye(6, dtype=torch.bool)
    assert len(table[own].unique()) == len(table[~own].unique()) == 1
    assert table[0, 0] != table[0, 1]


def test_the_gate_of_an_edge_is_looked_up_by_its_query_and_relation() -> None:
    graph = random_graph(5)
    head, relation = every_query(graph)
    walk = build_propagation(graph, head, relation, 2)
    table = torch.randn(len(head), graph.relation_vocabulary.num_directed)
    for hop in walk.hops:
        found = edge_gate(table, hop)
        assert found is not None
        walked = hop.edge_source < hop.num_sources
        queries, relations = walk.node_query[hop.edge_target[walked]], hop.edge_relation[walked]
        expected = [table[q, r].item() for q, r in zip(queries.tolist(), relations.tolist(), strict=True)]
        assert found[walked].tolist() == expected
    assert edge_gate(None, walk.hops[0]) is None


def test_a_gate_of_zero_silences_a_relation() -> None:
    """What a relation weighs is what its messages weigh: nothing arrives along one whose gate is closed."""
    graph = Graph.from_triples([("a", "r", "b"), ("a", "s", "c")])
    walk = build_propagation(graph, torch.tensor([0]), torch.tensor([0]), 1)
    hop = walk.hops[0]
    table = torch.tensor([[0.0, 1.0, 1.0, 1.0]])
    ([result], _) = aggregate(
        hop, torch.ones(1, 1), [Stream(FULL, torch.ones(4, 1))], message="distmult", reductions=("sum",),
        edge_weight=edge_gate(table, hop),
    )  # fmt: skip
    received = dict(zip((graph.entities[e] for e in walk.node_entity), result[:, 0, 0].tolist(), strict=True))
    assert received == {"a": 0, "b": 0, "c": 1}


def test_the_candidate_logit_is_linear_in_its_three_features() -> None:
    head = CandidateHead()
    relevance = torch.tensor([[0.0, 0.25, 1.0]])
    assert not head(relevance).any()
    head.scale.data = torch.tensor([2.0, 3.0, 5.0])
    logarithm = torch.log(relevance + 1e-3)
    expected = 2 * relevance + 3 * logarithm + 5 * torch.tensor([[1.0, 0.0, 0.0]])
    torch.testing.assert_close(head(relevance), expected)
    assert head(relevance).isfinite().all()


@pytest.mark.parametrize("name", TRAINED)
def test_a_model_says_what_its_batches_lack(name: str) -> None:
    graph = random_graph(3)
    head, relation = every_query(graph)
    bare = BatchBuilder(graph, 2).build(head, relation)
    for use in ({"gate": True}, {"arrive": True}):
        model = new_model(name, graph, context_with(views=(), **use))
        with pytest.raises(AssertionError, match="needs batches with"):
            model(bare)


@needs_triton
@pytest.mark.parametrize(("dim", "views"), [(16, 2), (12, 3)], ids=["fused", "halves"])
def test_views_with_rows_of_their_own_change_nothing(dim: int, views: int) -> None:
    """Scores and gradients on batches that were built on the device are those of the general ones."""
    context = context_with(
        views=(ViewConfig(0.3), ViewConfig(0.0, 0.3), ViewConfig(0.1))[:views], hops=2, gate=True
    )
    for seed in (views - 1, *range(3, amount(3, 20))):  # 1 and 2 have some edges
        graph = random_graph(seed)
        model = new_model("nbfnet", graph, context, seed, dim=dim, layers=2)
        edge = torch.arange(0, graph.num_edges, 3)[:3]
        found = []
        for building, computing, device in (("general", "reference", "cpu"), ("triton", "triton", DEVICE)):
            here, moved, asked = copy.deepcopy(model).to(device), graph.to(device), edge.to(device)
            builder = BatchBuilder(moved, 2, context, Statistics.of(graph), backend=building)  # type: ignore[arg-type]
            batch = builder.build(moved.edge_head[asked].long(), moved.edge_relation[asked].long(), asked)
            with use_backend(computing):  # type: ignore[arg-type]
                scores = here(batch)
                torch.nn.functional.cross_entropy(scores, moved.edge_tail[asked].long()).backward()
            given = [weight.grad.cpu() for weight in here.parameters() if weight.grad is not None]
            found.append([scores.detach().cpu(), *given])
        for one, other in zip(*found, strict=True):
            assert float((one - other).norm()) <= 1e-2 * float(one.norm().clamp(min=1e-3))
