"""Graph: a frozen multigraph, walkable in both directions, as compressed rows by head."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from contextpool.errors import DataError, UnknownNameError, shortened
from contextpool.graph.relations import RelationVocabulary, inverse_label
from contextpool.triples.labels import INVERSE_SUFFIX, Vocabulary
from contextpool.triples.store import Ids, Triple, Triples

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from contextpool.triples.dataset import Dataset

MAX_EDGES = 2**31 - 1


@dataclass(frozen=True, eq=False)
class Graph:
    """T distinct triples over N entities and R relations as 2T directed edges.

    Edge k leads from `edge_head[k]` by `edge_relation[k]` in [0, 2R) to `edge_tail[k]`; edges are sorted by
    (head, relation, tail), so those of entity e are `row_start[e]:row_start[e + 1]`. `edge_inverse[k]` is
    the same fact walked the other way. Several relations between one pair are all there.
    """

    entity_vocabulary: Vocabulary
    relation_vocabulary: RelationVocabulary
    row_start: Tensor  # [N + 1] int64
    edge_head: Tensor  # [2T] int32
    edge_relation: Tensor  # [2T] int32
    edge_tail: Tensor  # [2T] int32
    edge_inverse: Tensor  # [2T] int32

    def __getstate__(self) -> dict[str, Any]:
        """For other processes: arrays by value, as torch would put them into shared memory, and nothing derived."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {key: one.cpu().numpy() if isinstance(one, Tensor) else one for key, one in values.items()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """What `__getstate__` gave; a graph of a GPU comes back on the CPU."""
        for key, one in state.items():
            is_array = isinstance(one, np.ndarray)
            own = torch.from_numpy(np.require(one, requirements="W")) if is_array else one
            object.__setattr__(self, key, own)

    @classmethod
    def from_triples(cls, triples: Iterable[Triple] | Triples) -> Graph:
        """From (head, relation, tail) labels, or from a `Triples` whose vocabularies are kept as they are."""
        store = triples if isinstance(triples, Triples) else Triples.from_labels(triples)
        if 2 * len(store) > MAX_EDGES:
            raise DataError(
                f"{len(store):,} triples make more than {MAX_EDGES:,} directed edges, the most a graph holds."
            )
        return cls(store.entities, RelationVocabulary.of(store.relations), *_directed_edges(store))

    @classmethod
    def from_pyg(
        cls,
        data: Data,
        *,
        inverse: Literal["offset", "none"] = "offset",
        entities: Sequence[str] | None = None,
        relations: Sequence[str] | None = None,
    ) -> Graph:
        """From PyG's `Data(edge_index, edge_type)`; nodes without an edge are entities, too.

        `inverse="offset"`: every edge of type r has an edge of type r + R beside it that leads back, and these two are
        one fact. `"none"`: every edge is a fact. Labels are those given (by node and by type), else those that
        `to_pyg` stored, else numbers that sort as the nodes do. A graph's own ids follow the sorted labels.
        """
        from contextpool.interop.pyg_data import graph_from_data

        return graph_from_data(data, inverse, entities, relations)

    def to_pyg(self, *, inverse: Literal["offset", "none"] = "offset") -> Data:
        """As PyG's `Data`: node e is entity e, `entity_label` and `relation_label` hold the names.

        With "offset" the T facts come first and their inverses, of type r + R, follow in the same order. Needs the
        extra `pyg`.
        """
        from contextpool.interop.pyg_data import graph_to_data

        return graph_to_data(self, inverse)

    @property
    def entities(self) -> tuple[str, ...]:
        """[N] labels, sorted; an entity's id is its position."""
        return self.entity_vocabulary.labels

    @property
    def relations(self) -> tuple[str, ...]:
        """[R] labels of the forward relations, sorted."""
        return self.relation_vocabulary.forward

    @property
    def num_entities(self) -> int:
        return len(self.entity_vocabulary)

    @property
    def num_relations(self) -> int:
        return self.relation_vocabulary.num_relations

    @property
    def num_edges(self) -> int:
        """2T"""
        return len(self.edge_head)

    @property
    def num_triples(self) -> int:
        return self.num_edges // 2

    @property
    def device(self) -> torch.device:
        return self.edge_head.device

    @property
    def triples(self) -> TripleView:
        """The T facts as (head, relation, tail) labels: a set that is also a sequence, made as it is read."""
        return TripleView(self)

    @cached_property
    def forward_edges(self) -> Tensor:
        """[T] ids of the edges that are walked in their own direction, in the order of the triples."""
        return torch.nonzero(self.edge_relation < self.num_relations).squeeze(1)

    def to(self, device: torch.device | str) -> Graph:
        """The same graph with its tensors on `device`."""
        if self.device == torch.device(device):
            return self
        moved = {
            field.name: getattr(self, field.name).to(device)
            for field in fields(self)
            if isinstance(getattr(self, field.name), Tensor)
        }
        return replace(self, **moved)

    def entity_id(self, label: str) -> int:
        """The id of an entity; an unknown one is an error that names the closest known labels."""
        return self.entity_vocabulary.id_of(label)

    def relation_id(self, label: str) -> int:
        """The id in [0, 2R) of `r` or `r^-1`."""
        return self.relation_vocabulary.id_of(label)

    def edge_id(self, head: str, relation: str, tail: str) -> int:
        """The id of the directed edge; one that is not in the graph is an error."""
        edge = self.find_edge(self.entity_id(head), self.relation_id(relation), self.entity_id(tail))
        if edge is None:
            raise DataError(
                f"triple ({shortened(head)}, {shortened(relation)}, {shortened(tail)}) is not in the graph, "
                "though its entities and its relation are. Name a triple of the graph, in either direction."
            )
        return edge

    def find_edge(self, head: int, relation: int, tail: int) -> int | None:
        """The id of the edge with these ids, or None. O(log degree)."""
        start, end = int(self.row_start[head]), int(self.row_start[head + 1])
        keys = self.edge_relation[start:end].long() * self.num_entities + self.edge_tail[start:end].long()
        wanted = relation * self.num_entities + tail
        place = int(torch.searchsorted(keys, torch.tensor(wanted, device=keys.device)))
        return start + place if place < len(keys) and int(keys[place]) == wanted else None

    def find_edges(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        """[B] ids of the edges with these ids [B], -1 where there is none. O(E + B log E)."""
        keys = self._edge_key(self.edge_head.long(), self.edge_relation.long(), self.edge_tail.long())
        wanted = self._edge_key(head.to(self.device), relation.to(self.device), tail.to(self.device))
        if len(keys) == 0:
            return torch.full_like(wanted, -1)
        place = torch.searchsorted(keys, wanted).clamp(max=len(keys) - 1)
        return torch.where(keys[place] == wanted, place, -1)

    def _edge_key(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        return (head * (2 * self.num_relations) + relation) * self.num_entities + tail

    def edge_label(self, edge: int) -> Triple:
        """(head, relation, tail) of a directed edge; the relation of an inverse one ends in `^-1`."""
        return (
            self.entities[int(self.edge_head[edge])],
            self.relation_vocabulary.directed[int(self.edge_relation[edge])],
            self.entities[int(self.edge_tail[edge])],
        )

    def edge_labels(self, edges: Tensor) -> Iterator[Triple]:
        """`edge_label` for many edges [K], in order."""
        names, kinds = self.entities, self.relation_vocabulary.directed
        columns = (self.edge_head[edges], self.edge_relation[edges], self.edge_tail[edges])
        for head, relation, tail in zip(*(column.tolist() for column in columns), strict=True):
            yield names[head], kinds[relation], names[tail]

    def with_relations(self, vocabulary: RelationVocabulary) -> Graph:
        """The same facts numbered by another relation vocabulary (a model's); it has to know them all."""
        unknown = [label for label in self.relations if label not in vocabulary.index]
        if unknown:
            raise UnknownNameError(
                "relation",
                unknown[0],
                vocabulary.forward,
                f"{len(unknown)} relation(s) of this graph are unknown there: {', '.join(unknown[:10])}. "
                "Rename them, or leave their triples out with without_relations().",
            )
        forward = Vocabulary(vocabulary.forward, "relation")
        return Graph.from_triples(self.as_triples().with_vocabularies(self.entity_vocabulary, forward))

    def without_relations(self, labels: Iterable[str]) -> Graph:
        """The graph without the facts of these relations; its entities all stay."""
        dropped = torch.tensor([self.relation_id(label) for label in labels], dtype=torch.int32)
        store = self.as_triples()
        keep = ~np.isin(store.ids[:, 1], dropped.numpy())
        return Graph.from_triples(store.select(keep))

    def as_triples(self) -> Triples:
        """The facts as a `Triples` with this graph's vocabularies."""
        edges = self.forward_edges
        columns = (self.edge_head[edges], self.edge_relation[edges], self.edge_tail[edges])
        ids: Ids = torch.stack(columns, dim=1).cpu().numpy()
        return Triples(self.entity_vocabulary, Vocabulary(self.relations, "relation"), ids)

    def __repr__(self) -> str:
        return (
            f"Graph({self.num_entities:,} entities, {self.num_relations:,} relations, "
            f"{self.num_triples:,} triples, {self.device})"
        )


class TripleView(Set[Triple], Sequence[Triple]):
    """A graph's facts as labels. Compares equal to a set of the same triples; made as it is read."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def __len__(self) -> int:
        return self._graph.num_triples

    def __iter__(self) -> Iterator[Triple]:
        return self._graph.edge_labels(self._graph.forward_edges)

    def __contains__(self, triple: object) -> bool:
        if not isinstance(triple, (tuple, list)) or len(triple) != 3:
            return False
        head, relation, tail = triple
        entities, relations = self._graph.entity_vocabulary.index, self._graph.relation_vocabulary.index
        if head not in entities or tail not in entities or relation not in relations:
            return False
        if relation.endswith(INVERSE_SUFFIX):
            return False
        return self._graph.find_edge(entities[head], relations[relation], entities[tail]) is not None

    def __getitem__(self, position: Any) -> Any:
        edges = self._graph.forward_edges[position]
        if isinstance(position, slice):
            return list(self._graph.edge_labels(edges))
        return self._graph.edge_label(int(edges))

    @classmethod
    def _from_iterable(cls, triples: Iterable[Any]) -> set[Any]:
        return set(triples)

    def __repr__(self) -> str:
        return f"<{len(self):,} triples of {self._graph!r}>"


def read_graph(source: Any, *, tell: Callable[[str], None] | None = None, **options: Any) -> Graph:
    """Read a graph: a triple file (head TAB relation TAB tail; `.gz` and `.zst` too), RDF, a table, a query.

    `source` is a path, an address such as "sqlite:shop.db?query=SELECT h, r, t FROM facts", a DataFrame, an Arrow
    table or a NetworkX graph; docs/own-data.md tells the options of each. `tell` hears what was left out.
    """
    from contextpool.triples.reader import read_triples

    return Graph.from_triples(read_triples(source, tell=tell, **options))


def split(graph: Graph, *, inductive: bool = True, seed: int = 0) -> Dataset:
    """Make a Dataset from one graph: two entity-disjoint halves, or held-out facts of the same graph."""
    from contextpool.triples.split import split_triples

    return split_triples(graph.as_triples(), inductive=inductive, seed=seed)


def walk_back(triple: Triple) -> Triple:
    """The same fact in the other direction."""
    head, relation, tail = triple
    return tail, inverse_label(relation), head


def _directed_edges(store: Triples) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """row_start, head, relation, tail, inverse of the 2T edges sorted by (head, relation, tail)."""
    num_triples, num_relations = len(store), len(store.relations)
    head, relation, tail = store.ids[:, 0], store.ids[:, 1], store.ids[:, 2]
    heads = np.concatenate([head, tail])
    relations = np.concatenate([relation, relation + num_relations])
    tails = np.concatenate([tail, head])
    order = np.lexsort((tails, relations, heads))  # [2T] place -> unsorted edge
    place = np.empty(2 * num_triples, dtype=np.int32)  # [2T] unsorted edge -> place
    place[order] = np.arange(2 * num_triples, dtype=np.int32)
    twin = np.concatenate([place[num_triples:], place[:num_triples]])  # the unsorted edge's inverse, placed
    row_start = np.zeros(len(store.entities) + 1, dtype=np.int64)
    np.cumsum(np.bincount(heads, minlength=len(store.entities)), out=row_start[1:])
    arrays = (row_start, heads[order], relations[order], tails[order], twin[order])
    start, *edges = (torch.from_numpy(np.ascontiguousarray(array)) for array in arrays)
    return start, edges[0].int(), edges[1].int(), edges[2].int(), edges[3].int()
