"""The edges that one layer walks, and what kernels on a device know of a batch that was built there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

HUB_EDGES = 64
"""Nodes with more edges than this are hubs: one warp would be at their rows long after all others are done."""


@dataclass(frozen=True, eq=False)
class LaunchPlan:
    """How kernels go over the nodes of a batch: how many there are, and in which order."""

    sizes: Tensor
    """[L + 1] int64, on the device: nodes reached within 0, 1, .. L hops. Of one hop [2]: its sources and targets."""
    order: Tensor | None = None
    """[nodes or more] int32 the nodes by (first hop, query, how many edges), then what was not reached: rows of like
    length lie side by side."""
    hubs: Tensor | None = None
    """[H] int32 every node with more than HUB_EDGES edges, perhaps others; those past the targets don't count."""
    place: Tensor | None = None
    """[B * N] int64 query * N + entity of the nodes, then of all that was not reached."""
    padded: bool = False
    """Whether the sizes that the host has are only bounds, and tensors hold more rows than count."""

    def of_layer(self, layer: int) -> LaunchPlan:
        """For the hop of layer 1..L."""
        return replace(self, sizes=self.sizes[layer - 1 : layer + 1])

    def without_rows(self) -> LaunchPlan:
        """A plan for the same nodes when the lengths of their rows have changed."""
        return replace(self, order=None, hubs=None)


@dataclass(frozen=True, eq=False)
class Hop:
    """The K edges that one layer may walk, sorted by target: those into target j are row_start[j]:row_start[j + 1].

    An edge is walked where its source is one of the first `num_sources` nodes, those that have a state by now;
    the others wait for a later layer. Layers share their edges, so a hop costs nothing. `walked` leaves them out.
    With a plan that is padded, another batch may come to lie in the same tensors: nothing is remembered that depends
    on their values.
    """

    num_sources: int
    num_targets: int
    row_start: Tensor  # [num_targets + 1] int64
    edge_source: Tensor  # [K] node
    edge_relation: Tensor  # [K] in [0, 2R)
    edge_views: Tensor  # [K] uint8, bit v is set where the edge belongs to view v
    node_query: Tensor  # [num_targets] int64
    complete: bool = False
    """Whether every edge is known to be walked."""
    edge_scale: Tensor | None = None
    """[K] what to multiply messages with, None for nothing; explanations differentiate by it."""
    plan: LaunchPlan | None = None
    """Set for a batch that was built on the device."""

    @property
    def num_edges(self) -> int:
        return len(self.edge_source)

    @cached_property
    def edge_target(self) -> Tensor:
        """[K] int64 node"""
        return numbers_of_rows(self.row_start.diff(), self.num_edges)

    @property
    def sender(self) -> Tensor:
        """[K] the source of each edge, and where it is not walked any node that has a state: to index states with."""
        return self.edge_source if self.complete else self.edge_source.clamp(max=self.num_sources - 1)

    @property
    def edge_query(self) -> Tensor:
        """[K] the query that each edge is walked for."""
        return self.node_query[self.sender]

    def in_view(self, view: int) -> Tensor:
        """[K] whether each edge belongs to a view."""
        return (self.edge_views >> view) & 1 != 0

    @cached_property
    def sizes(self) -> Tensor:
        """[2] int64 the numbers of sources and targets, on the device of the edges."""
        if self.plan is not None:
            return self.plan.sizes
        return torch.tensor([self.num_sources, self.num_targets], device=self.edge_source.device)

    @property
    def is_padded(self) -> bool:
        return self.plan is not None and self.plan.padded

    @property
    def compact(self) -> Hop:
        """`walked`, or the hop itself where only the device knows its sizes: the host must not wait for them."""
        return self if self.is_padded else self.walked

    @property
    def is_source(self) -> Tensor | None:
        """[num_sources, 1] which of the sources there really are, None for all."""
        return _first(self.sizes[0], self.num_sources) if self.is_padded else None

    @property
    def is_target(self) -> Tensor | None:
        """[num_targets, 1] which of the targets there really are, None for all."""
        return _first(self.sizes[1], self.num_targets) if self.is_padded else None

    @cached_property
    def walked(self) -> Hop:
        """The same hop with no other edges than the walked ones, its columns int64 as torch indexes with."""
        if self.complete:
            return self
        kept = torch.nonzero(self.edge_source < self.num_sources).squeeze(1)
        target = self.edge_target[kept]
        nodes = torch.arange(self.num_targets + 1, device=target.device)
        return replace(
            self,
            row_start=torch.searchsorted(target, nodes),
            edge_source=self.edge_source[kept].long(),
            edge_relation=self.edge_relation[kept].long(),
            edge_views=self.edge_views[kept],
            complete=True,
            edge_scale=None if self.edge_scale is None else self.edge_scale[kept],
            plan=None if self.plan is None else self.plan.without_rows(),
        )


def _first(count: Tensor, size: int) -> Tensor:
    """[size, 1] bool"""
    return (torch.arange(size, device=count.device) < count)[:, None]


def entries_of_rows(first: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
    """Row i has the entries first[i]:first[i] + size[i]; all of them as (row [K], entry [K]), int64, in order."""
    ends = torch.cumsum(size, 0)
    total = int(ends[-1]) if len(ends) else 0
    row = numbers_of_rows(size, total)
    entry = torch.arange(total, device=size.device) + (first - (ends - size)).index_select(0, row)
    return row, entry


def numbers_of_rows(size: Tensor, total: int) -> Tensor:
    """[total] int64 the number of the row that each entry belongs to, for rows of the sizes [A] given.

    On the CPU torch wakes all its threads for this, however short the rows; numpy doesn't.
    """
    if size.device.type == "cpu":
        return torch.from_numpy(np.repeat(np.arange(len(size)), size.numpy()))
    return torch.repeat_interleave(torch.arange(len(size), device=size.device), size, output_size=total)
