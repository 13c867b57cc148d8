"""Every answer that a walk over one batch of queries will ask for, looked up beforehand.

A selector (Algorithm 1 or 3) is a table by (relation set, query relation). An arrival at the pair (e, r) asks
with r at an entity whose set is NR_e: one row a pair, the same for all queries. Two things are special to a
query: its first hop asks with the query relation itself, and an entity that loses a relation because all its
edges of that relation are hidden has another NR_e, hence other rows.

In training Algorithm 3 is mined for each query as if its own fact had never been counted (`answers_left_out`). That
changes counts in the rows and columns of its relation x and of inverse(x) alone. Most decisions stay; the rows in
which one does not are replaced for that query: every pair that asks with such a relation gets an exception. Exact, and
nothing of shape [B, 2R, 2R] is formed.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from contextpool.context.counts import CountsOf, QueryCounts
from contextpool.context.neighbors import ContextNeighbors, RelationSelector, SelectionTable
from contextpool.graph.graph import Graph
from contextpool.graph.relation_sets import WORD_BITS, RelationSets, Words, num_words, unpack_bits
from contextpool.graph.relations import inverse
from contextpool.pool.hide import HiddenEdges
from contextpool.pool.incidence import cached_per_graph, incidence_of, relation_sets_of

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PairAnswers:
    """What holds for every query: `rows[pair_row[p]]` are the relations that may leave after an arrival at pair p."""

    rows: Tensor  # [K, W] int64, bits over the 2R directed relations
    pair_row: Tensor  # [P] int32
    row_of: npt.NDArray[np.int32]
    """[S, 2R] the selector's own table: a row for each (relation set, query relation)."""
    relation_row: Tensor  # [2R] int32, row_of[0]: all there is to know where the relation set does not matter


@dataclass(frozen=True, eq=False)
class BatchAnswers:
    """`PairAnswers` with what is special to each of B queries."""

    rows: Tensor  # [K, W] int64
    pair_row: Tensor  # [P] int32
    query_row: Tensor  # [B] int32, for the first hop
    changed_start: Tensor
    """[B + 1] int64 the exceptions of query b are changed_start[b]:changed_start[b + 1]."""
    changed_pair: Tensor  # [C] int32, ascending within a query
    changed_row: Tensor  # [C] int32, instead of pair_row[changed_pair]

    def part(self, first: int, last: int) -> BatchAnswers:
        """The answers of queries first..last - 1, renumbered from 0."""
        start = self.changed_start[first : last + 1]
        lowest, highest = int(start[0]), int(start[-1])
        return BatchAnswers(
            self.rows,
            self.pair_row,
            self.query_row[first:last],
            start - lowest,
            self.changed_pair[lowest:highest],
            self.changed_row[lowest:highest],
        )


_pair_answers: WeakKeyDictionary[Graph, WeakKeyDictionary[RelationSelector, PairAnswers]] = (
    WeakKeyDictionary()
)


def pair_answers(graph: Graph, selector: RelationSelector) -> PairAnswers:
    """The answers that hold for every query; remembered as long as both graph and selector live."""
    of_graph = _pair_answers.setdefault(graph, WeakKeyDictionary())
    answers = of_graph.get(selector)
    if answers is None:
        answers = of_graph[selector] = _build_pair_answers(graph, selector)
    return answers


def batch_answers(
    graph: Graph, selector: RelationSelector, query_head: Tensor, query_relation: Tensor, hidden: HiddenEdges
) -> BatchAnswers:
    """All answers for the queries (head [B], relation [B]); on the graph's device."""
    common = pair_answers(graph, selector)
    if not selector.depends_on_entity:
        return _without_exceptions(common, common.relation_row.index_select(0, query_relation.long()))
    head, asked = _numpy(query_head).astype(np.int64), _numpy(query_relation).astype(np.int64)
    sets = relation_sets_of(graph)
    changed = changed_entities(graph, sets, hidden)
    extra = _extra_sets(graph, sets, changed, head, asked)
    usual = common.row_of[sets.set_of_entity[head], asked]  # [B] means nothing where `extra` has to be asked
    if len(extra.words) == 0:
        return _without_exceptions(common, _ids(usual, graph.device))
    table = selector.selection_table(extra.words, extra.wanted)
    query_row = np.where(extra.of_query >= 0, table.row_of[extra.of_query, asked] + len(common.rows), usual)
    return _with_exceptions(common, query_row, table, *_changed_pairs(graph, changed, extra, table))


def _build_pair_answers(graph: Graph, selector: RelationSelector) -> PairAnswers:
    incidence, num_directed = incidence_of(graph), graph.relation_vocabulary.num_directed
    if selector.depends_on_entity:
        sets = relation_sets_of(graph)
        table = selector.selection_table(sets.words, sets.members())
        set_of_pair = sets.set_of_entity[_numpy(incidence.pair_entity)]
    else:
        any_set = np.zeros((1, num_words(num_directed)), dtype=np.uint64)
        table = selector.selection_table(any_set, np.ones((1, num_directed), dtype=bool))
        set_of_pair = np.zeros(incidence.num_pairs, dtype=np.int32)
    pair_row = table.row_of[set_of_pair, _numpy(incidence.pair_relation)]
    ids = (_ids(pair_row, graph.device), table.row_of, _ids(table.row_of[0], graph.device))
    return PairAnswers(_bits(table, graph.device), *ids)


def _without_exceptions(common: PairAnswers, query_row: Tensor) -> BatchAnswers:
    device = common.rows.device
    no_start = torch.zeros(len(query_row) + 1, dtype=torch.int64, device=device)
    nothing = torch.empty(0, dtype=torch.int32, device=device)
    return BatchAnswers(common.rows, common.pair_row, query_row, no_start, nothing, nothing)


def _with_exceptions(
    common: PairAnswers,
    query_row: Int64s,
    table: SelectionTable,
    pair_query: Int64s,
    pair: Int64s,
    row: Int64s,
) -> BatchAnswers:
    """Rows of `table` follow the common ones; (pair_query, pair) [C] ask row [C] of it."""
    device = common.rows.device
    start = torch.from_numpy(np.searchsorted(pair_query, np.arange(len(query_row) + 1)).astype(np.int64))
    return BatchAnswers(
        rows=torch.cat([common.rows, _bits(table, device)]),
        pair_row=common.pair_row,
        query_row=_ids(query_row, device),
        changed_start=start.to(device),
        changed_pair=_ids(pair, device),
        changed_row=_ids(row + len(common.rows), device),
    )


@dataclass(frozen=True, eq=False)
class ChangedEntities:
    """The C (query, entity) pairs whose relation set shrinks because of hidden edges, sorted."""

    query: Int64s  # [C]
    entity: Int64s  # [C]
    words: Words  # [C, W] the relation set after hiding


def changed_entities(graph: Graph, sets: RelationSets, hidden: HiddenEdges) -> ChangedEntities:
    """An entity loses relation r for a query when all its edges by r are hidden from that query."""
    incidence = incidence_of(graph)
    entity_of, relation_of = _numpy(incidence.pair_entity), _numpy(incidence.pair_relation)
    hidden_pair = _numpy(incidence.edge_pair.index_select(0, hidden.edge))  # [H]
    keys, count = np.unique(_numpy(hidden.edge_query) * len(entity_of) + hidden_pair, return_counts=True)
    query, pair = np.divmod(keys, max(len(entity_of), 1))
    gone = count == np.diff(_numpy(incidence.pair_start))[pair]
    query, pair = query[gone], pair[gone]
    nodes, place = np.unique(query * graph.num_entities + entity_of[pair], return_inverse=True)
    node_query, node_entity = np.divmod(nodes, max(graph.num_entities, 1))
    words = sets.words[sets.set_of_entity[node_entity]]  # a copy [C, W]
    bit = np.uint64(1) << (relation_of[pair] % WORD_BITS).astype(np.uint64)
    np.bitwise_and.at(words, (place, relation_of[pair] // WORD_BITS), ~bit)
    return ChangedEntities(node_query, node_entity, words)


@dataclass(frozen=True, eq=False)
class _ExtraSets:
    words: Words  # [X, W] distinct relation sets to be asked about beside the graph's own
    wanted: npt.NDArray[np.bool_]  # [X, 2R]
    of_changed: Int64s  # [C] row of `words` for each changed entity
    of_query: Int64s  # [B] row of `words` that the first hop asks, -1 where the graph's own table has it


def _extra_sets(
    graph: Graph, sets: RelationSets, changed: ChangedEntities, head: Int64s, asked: Int64s
) -> _ExtraSets:
    """The changed sets, and those of heads that lack the relation they are asked with."""
    place = _places_of(changed, head, graph.num_entities)  # [B] the head among the changed entities, or -1
    own_words = sets.words[sets.set_of_entity[head]]  # [B, W]
    has_it = (
        own_words[np.arange(len(head)), asked // WORD_BITS] >> (asked % WORD_BITS).astype(np.uint64)
    ) & np.uint64(1)
    lacking = np.flatnonzero((place < 0) & (has_it == 0))  # [Q] queries
    words, row = np.unique(np.concatenate([changed.words, own_words[lacking]]), axis=0, return_inverse=True)
    of_changed, of_lacking = np.split(row.reshape(-1).astype(np.int64), [len(changed.words)])
    of_query = np.full(len(head), -1, dtype=np.int64)
    of_query[place >= 0] = of_changed[place[place >= 0]]
    of_query[lacking] = of_lacking
    wanted = np.zeros((len(words), sets.num_directed), dtype=bool)
    wanted[of_changed] = unpack_bits(changed.words, sets.num_directed)
    wanted[of_query[of_query >= 0], asked[of_query >= 0]] = True
    return _ExtraSets(words, wanted, of_changed, of_query)


def _places_of(changed: ChangedEntities, head: Int64s, num_entities: int) -> Int64s:
    """[B] the position of (b, head[b]) among the changed entities, -1 where it isn't there."""
    keys = changed.query * num_entities + changed.entity
    wanted = np.arange(len(head)) * num_entities + head
    place = np.searchsorted(keys, wanted)
    found = place < len(keys)
    found[found] = keys[place[found]] == wanted[found]
    return np.where(found, place, -1)


def _changed_pairs(
    graph: Graph, changed: ChangedEntities, extra: _ExtraSets, table: SelectionTable
) -> tuple[Int64s, Int64s, Int64s]:
    """query, pair, row of the pairs of changed entities; a pair that is gone can't be arrived at."""
    incidence = incidence_of(graph)
    start, relation_of = _numpy(incidence.entity_start), _numpy(incidence.pair_relation)
    size = start[changed.entity + 1] - start[changed.entity]  # [C] pairs of each
    node = np.repeat(np.arange(len(size)), size)
    pair = np.arange(len(node)) + np.repeat(start[changed.entity] - (np.cumsum(size) - size), size)
    alive = extra.wanted[extra.of_changed[node], relation_of[pair]]
    node, pair = node[alive], pair[alive]
    row = table.row_of[extra.of_changed[node], relation_of[pair]]
    return changed.query[node], pair, row.astype(np.int64)


def _bits(table: SelectionTable, device: torch.device) -> Tensor:
    return torch.tensor(table.rows.view(np.int64), device=device)


def _ids(values: npt.NDArray[np.integer], device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=torch.int32, device=device)


def _numpy(tensor: Tensor) -> Int64s:
    array: Int64s = tensor.cpu().numpy()
    return array


def answers_left_out(
    graph: Graph, context: ContextNeighbors, counts: CountsOf, query_relation: Tensor, hidden_edge: Tensor
) -> BatchAnswers:
    """What may be walked by queries [B] whose facts hidden_edge [B] (-1: none) count nowhere."""
    common = pair_answers(graph, context)
    rows = torch.stack([query_relation, inverse(query_relation, graph.num_relations)], dim=1)  # [B, 2]
    without = counts.for_queries(query_relation, hidden_edge)
    base = torch.from_numpy(context.mask).to(graph.device)  # [2R, 2R]
    own_rows, columns = _decisions(context, without, rows)
    replaced = (columns != base.T[rows]).any(dim=1)  # [B, 2R] rows whose bit for x or inverse(x) changes
    replaced = replaced.scatter(1, rows, (own_rows != base[rows]).any(dim=2))
    query, relation = torch.nonzero(replaced).unbind(1)  # [E]
    if len(query) == 0:
        return _without_exceptions(common, query_relation.int())
    bits = base[relation]  # [E, 2R], a copy
    bits = bits.scatter(1, rows[query], columns[query, :, relation])
    for place in (0, 1):
        is_own = relation == rows[query, place]
        bits = torch.where(is_own[:, None], own_rows[query, place], bits)
    number = torch.full(replaced.shape, -1, dtype=torch.int64, device=graph.device)
    number[query, relation] = len(common.rows) + torch.arange(len(query), device=graph.device)
    asked = number.gather(1, query_relation[:, None]).squeeze(1)
    pair_query, pair, row = _exceptions(graph, query, relation, number[query, relation])
    queries = torch.arange(len(query_relation) + 1, device=graph.device)
    return BatchAnswers(
        rows=torch.cat([common.rows, _pack_words(bits)]),
        pair_row=common.pair_row,
        query_row=torch.where(asked >= 0, asked, query_relation).int(),
        changed_start=torch.searchsorted(pair_query, queries),
        changed_pair=pair.int(),
        changed_row=row.int(),
    )


def _decisions(context: ContextNeighbors, without: QueryCounts, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows [B, 2, 2R] of (x, inverse(x)) and columns [B, 2, 2R] of them, as booleans."""
    own_rows, columns = [], []
    for place in (0, 1):
        precision, recall = without.precision(place), without.recall(place)
        row = (precision > context.min_precision) & (recall > context.min_recall)
        column = (recall > context.min_precision) & (
            precision > context.min_recall
        )  # the measures swap roles
        own = rows[:, place : place + 1]
        keep = (
            without.support.gather(1, own) > 0
            if context.self_policy == "keep"
            else torch.zeros_like(own, dtype=torch.bool)
        )
        own_rows.append(row.scatter(1, own, keep))
        columns.append(column.scatter(1, own, keep))
    return torch.stack(own_rows, dim=1), torch.stack(columns, dim=1)


def _exceptions(graph: Graph, query: Tensor, relation: Tensor, row: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """query, pair, row for every pair that asks with a replaced (query, relation), sorted by (query, pair)."""
    start, order = _pairs_by_relation(graph)
    count = start[relation + 1] - start[relation]
    owner = torch.repeat_interleave(torch.arange(len(query), device=graph.device), count)
    first = count.cumsum(0) - count
    place = torch.arange(len(owner), device=graph.device) - first[owner] + start[relation][owner]
    pair = order[place]
    by_query = torch.argsort(query[owner] * len(order) + pair)
    return query[owner][by_query], pair[by_query], row[owner][by_query]


@cached_per_graph
def _pairs_by_relation(graph: Graph) -> tuple[Tensor, Tensor]:
    """Start [2R + 1] and pairs [P] ordered by relation."""
    relation = incidence_of(graph).pair_relation.long()
    order = torch.argsort(relation, stable=True)
    relations = torch.arange(2 * graph.num_relations + 1, device=graph.device)
    return torch.searchsorted(relation[order], relations), order


def _pack_words(bits: Tensor) -> Tensor:
    """[E, 2R] booleans to [E, W] int64 words, bit x % 64 of word x // 64."""
    width = max(1, -(-bits.size(1) // WORD_BITS))
    padded = torch.nn.functional.pad(bits.long(), (0, width * WORD_BITS - bits.size(1)))
    shifts = torch.arange(WORD_BITS, device=bits.device)
    return (padded.view(len(bits), width, WORD_BITS) << shifts).sum(dim=2)
