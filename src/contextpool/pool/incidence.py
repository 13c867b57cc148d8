"""The (entity, relation) pairs of a graph, as the walk sees them.

Edges are sorted by (head, relation, tail), so the edges of one pair lie side by side. An edge (e', rho, e)
arrives at the pair (e, inverse(rho)), which is also the question asked there: "which relations may leave e,
asked with inverse(rho)?". So the state of a walk is a set of pairs, and inverses need no arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from contextpool.graph.graph import Graph
from contextpool.graph.relation_sets import RelationSets, relation_sets

Built = TypeVar("Built")


@dataclass(frozen=True, eq=False)
class Incidence:
    """The P pairs (e, r) with r in NR_e, sorted by (e, r): the nonzeros of `has_relation`."""

    entity_start: Tensor
    """[N + 1] int64 the pairs of entity e are entity_start[e]:entity_start[e + 1]."""
    pair_entity: Tensor  # [P] int32
    pair_relation: Tensor  # [P] int32
    pair_start: Tensor
    """[P + 1] int64 the edges of pair p are pair_start[p]:pair_start[p + 1]."""
    edge_pair: Tensor
    """[2T] int32 the pair that edge k belongs to."""
    edge_arrival: Tensor
    """[2T] int32 the pair (tail, inverse(relation)) that edge k arrives at."""

    @property
    def num_pairs(self) -> int:
        return len(self.pair_entity)

    def to(self, device: torch.device | str) -> Incidence:
        return Incidence(*(getattr(self, field.name).to(device) for field in fields(self)))


def cached_per_graph(build: Callable[[Graph], Built]) -> Callable[[Graph], Built]:
    """Remember what was built for a graph as long as the graph lives. What is built must not hold the graph."""
    known: WeakKeyDictionary[Graph, Built] = WeakKeyDictionary()

    def look_up(graph: Graph) -> Built:
        built = known.get(graph)
        if built is None:
            built = known[graph] = build(graph)
        return built

    return look_up


def in_main_memory(graph: Graph) -> Graph:
    """The graph itself where it is on the CPU, or a copy of it there, made once: for what is compiled for the CPU."""
    return graph if graph.device.type == "cpu" else _copy_in_main_memory(graph)


@cached_per_graph
def _copy_in_main_memory(graph: Graph) -> Graph:
    return graph.to("cpu")


@cached_per_graph
def incidence_of(graph: Graph) -> Incidence:
    """The pairs of a graph, on its device. O(edges) time and memory."""
    head, relation = graph.edge_head, graph.edge_relation
    opens_pair = torch.ones(graph.num_edges, dtype=torch.bool, device=graph.device)  # [2T]
    opens_pair[1:] = (head[1:] != head[:-1]) | (relation[1:] != relation[:-1])
    first_edge = torch.nonzero(opens_pair).squeeze(1)  # [P]
    edge_pair = (torch.cumsum(opens_pair, 0) - 1).int()
    pair_entity = head[first_edge]
    entities = torch.arange(graph.num_entities + 1, dtype=torch.int32, device=graph.device)
    return Incidence(
        entity_start=torch.searchsorted(pair_entity, entities),
        pair_entity=pair_entity,
        pair_relation=relation[first_edge],
        pair_start=torch.cat([first_edge, first_edge.new_tensor([graph.num_edges])]),
        edge_pair=edge_pair,
        edge_arrival=edge_pair[graph.edge_inverse],
    )


@dataclass(frozen=True, eq=False)
class Whole:
    """What a larger graph knows of the entities of a part of it, which lacks some of their edges."""

    pair_entity: Tensor
    """[P] int64 entity, as the part numbers it, and relation of all pairs (e, r) with r in NR_e."""
    pair_relation: Tensor  # [P] int64
    pair_size: Tensor
    """[P] int64 how many edges each pair has."""
    degree: Tensor  # [N] int64


_whole: WeakKeyDictionary[Graph, Whole] = WeakKeyDictionary()


def set_whole(graph: Graph, whole: Whole) -> None:
    """Say what is known of a graph's entities where it is part of a larger one. No fact is hidden from it later."""
    _whole[graph] = whole


def whole_of(graph: Graph) -> Whole:
    """What was set, or what the graph itself knows."""
    given = _whole.get(graph)
    if given is not None:
        return given
    incidence = incidence_of(graph)
    pairs = incidence.pair_entity.long(), incidence.pair_relation.long(), incidence.pair_start.diff()
    return Whole(*pairs, graph.row_start.diff())


def is_part(graph: Graph) -> bool:
    """Whether it is part of a larger graph."""
    return graph in _whole


@cached_per_graph
def relation_sets_of(graph: Graph) -> RelationSets:
    """The distinct relation sets of a graph, counted once."""
    return relation_sets(graph)
