"""Context pooling (Algorithm 2): a literal version in Python sets against ours, in one run.

    PYTHONPATH=src python benchmarks/pooling.py [--queries 1000 --literal 100 --threads 2]

1,000 random edges of FB15k-237 v4 (grail/fb237_v4/train.txt under CONTEXTPOOL_DATA, or ../shared/data) are
asked as queries over 3 hops with min_precision 0.1, each hidden from itself. Everything that does not depend
on the query is prepared beforehand, for all alike. The literal version runs on the first --literal queries
only; its time per query is scaled to the mean number of edges of all of them. No time is reported before the
results have been found equal on the queries of the literal version.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numba
import numpy as np
import torch

from contextpool.context.neighbors import MaskSelector, mine_context
from contextpool.graph.graph import Graph
from contextpool.graph.relation_sets import relation_sets
from contextpool.graph.relations import inverse
from contextpool.pool.expand import PooledBatch, expand
from contextpool.pool.hide import HiddenEdges
from contextpool.triples.store import Triples

IdTriple = tuple[int, int, int]
Hops = list[list[set[IdTriple]]]
"""[query][hop]"""
MIN_PRECISION, NUM_HOPS, REPEATS = 0.1, 3, 5


def read_benchmark_graph() -> Graph:
    """The graph, read line by line, so that nothing but numpy and torch is needed here."""
    named = os.environ.get("CONTEXTPOOL_DATA")
    folder = Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "data"
    path = folder / "grail" / "fb237_v4" / "train.txt"
    if not path.is_file():
        raise SystemExit(f"{path} does not exist; set CONTEXTPOOL_DATA to the folder that holds grail/.")
    lines = path.read_text(encoding="utf-8").splitlines()
    return Graph.from_triples(Triples.from_labels([tuple(line.split("\t")) for line in lines]))  # type: ignore[misc]


def mined_mask(graph: Graph) -> np.ndarray:
    """Definition 5 and Algorithm 3, [query, neighbor]; the package's own mining gives the same."""
    sets = relation_sets(graph)
    members = sets.members().astype(np.int64)  # [D, 2R]
    both = members.T @ (members * sets.weight[:, None])
    mask = both / np.maximum(both.diagonal(), 1) > MIN_PRECISION
    np.fill_diagonal(mask, False)
    same = (mine_context(graph, MIN_PRECISION).mask == mask).all()
    require(bool(same), "mine_context and Definition 5 disagree")
    return mask


class LiteralPooling:
    """Algorithm 2 in Python sets over ids, with its adjacency and CNF' prepared."""

    def __init__(self, graph: Graph, mask: np.ndarray, each_arrival_once: bool) -> None:
        self.num_relations = graph.num_relations
        self.each_arrival_once = each_arrival_once
        self.neighbors = [set(np.flatnonzero(row).tolist()) for row in mask]
        self.tails: dict[int, dict[int, list[int]]] = {entity: {} for entity in range(graph.num_entities)}
        columns = (graph.edge_head.tolist(), graph.edge_relation.tolist(), graph.edge_tail.tolist())
        for head, relation, tail in zip(*columns, strict=True):
            self.tails[head].setdefault(relation, []).append(tail)

    def pool(self, head: int, relation: int, hidden: set[IdTriple]) -> list[set[IdTriple]]:
        hops: list[set[IdTriple]] = []
        arrivals = [(head, relation)]  # entity, and the relation it is asked with
        for _ in range(NUM_HOPS):
            hop = self._hop(arrivals, hidden)
            hops.append(hop)
            arrivals = [(tail, inverse(rho, self.num_relations)) for _, rho, tail in hop]
            if self.each_arrival_once:
                arrivals = list(set(arrivals))
        return hops

    def _hop(self, arrivals: list[tuple[int, int]], hidden: set[IdTriple]) -> set[IdTriple]:
        hop: set[IdTriple] = set()
        for entity, asked in arrivals:
            tails = self.tails[entity]
            for relation in tails.keys() & self.neighbors[asked]:
                hop.update((entity, relation, tail) for tail in tails[relation])
        return hop - hidden


@dataclass(frozen=True)
class Queries:
    """Edges of the graph, each asked as (head, relation, ?) and hidden from itself."""

    graph: Graph
    edge: torch.Tensor  # [B]

    def pool(self, selector: MaskSelector) -> PooledBatch:
        """What is timed: hiding and walking."""
        hidden = HiddenEdges.one_per_query(self.graph, self.edge)
        head, relation = self.graph.edge_head[self.edge], self.graph.edge_relation[self.edge]
        return expand(self.graph, selector, head, relation, NUM_HOPS, hidden)

    def triples(self, number: int) -> list[IdTriple]:
        """The query's own edge, then its inverse."""
        edge = self.edge[number]
        both = torch.stack([edge, self.graph.edge_inverse[edge].long()])
        return edge_triples(self.graph, both)


def edge_triples(graph: Graph, edges: torch.Tensor) -> list[IdTriple]:
    ids = edges.long()
    columns = (graph.edge_head[ids], graph.edge_relation[ids], graph.edge_tail[ids])
    return list(zip(*(column.tolist() for column in columns), strict=True))


def run_literal(literal: LiteralPooling, queries: Queries, count: int) -> tuple[float, Hops]:
    """Seconds per query over the first `count` (the best of several runs), and the hops of each."""
    asked = [queries.triples(number) for number in range(count)]
    found = [literal.pool(own[0], own[1], {own, back}) for own, back in asked]

    def run() -> None:
        for own, back in asked:
            literal.pool(own[0], own[1], {own, back})

    return seconds_of(run, repeats=2) / count, found


def check_against_literal(batch: PooledBatch, queries: Queries, expected: Hops) -> None:
    for number, hops in enumerate(expected):
        found = [set(edge_triples(queries.graph, edges)) for edges in batch.for_query(number)]
        require(found == hops, f"query {number}: the compiled walk and the literal algorithm disagree")


def require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise SystemExit(otherwise)


def seconds_of(task: Callable[[], object], repeats: int = REPEATS) -> float:
    """The best of several runs, after one to warm up."""
    seconds = []
    for _ in range(1 + repeats):
        started = time.perf_counter()
        task()
        seconds.append(time.perf_counter() - started)
    return min(seconds[1:])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--queries", type=int, default=1_000)
    parser.add_argument("--literal", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    graph = read_benchmark_graph()
    mask = mined_mask(graph)
    generator = torch.Generator().manual_seed(options.seed)
    queries = Queries(graph, torch.randint(graph.num_edges, (options.queries,), generator=generator))
    rows, expected = measure_literal(queries, mask, min(options.literal, options.queries))
    selector = MaskSelector(graph.relation_vocabulary, mask)
    numba.set_num_threads(min(options.threads, numba.config.NUMBA_NUM_THREADS))
    batch = queries.pool(selector)
    check_against_literal(batch, queries, expected)
    scale = mean_size(batch, batch.num_queries) / mean_size(batch, len(expected))
    rows = {name: scale * seconds for name, seconds in rows.items()}
    seconds = seconds_of(partial(queries.pool, selector))
    rows[f"compiled, {numba.get_num_threads()} threads"] = seconds / options.queries
    report(graph, batch, len(expected), rows)


def measure_literal(queries: Queries, mask: np.ndarray, count: int) -> tuple[dict[str, float], Hops]:
    """Seconds per query of both literal versions on the first `count` queries, and the hops of each of these."""
    seconds, hops = run_literal(LiteralPooling(queries.graph, mask, False), queries, count)
    faster, same_hops = run_literal(LiteralPooling(queries.graph, mask, True), queries, count)
    require(hops == same_hops, "the two literal versions disagree")
    return {
        f"literal, {count} queries": seconds,
        f"literal, each arrival once, {count} queries": faster,
    }, hops


def mean_size(batch: PooledBatch, count: int) -> float:
    """Edges of all hops together, on average over the first `count` queries."""
    return sum(int(hop.query_start[count]) for hop in batch.hops) / count


def report(graph: Graph, batch: PooledBatch, num_literal: int, rows: dict[str, float]) -> None:
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, torch {torch.__version__}"
    )
    print(f"{graph!r}; {batch.num_queries:,} queries, {NUM_HOPS} hops, min_precision {MIN_PRECISION}")
    sizes = ", ".join(f"{len(hop) / batch.num_queries:,.0f}" for hop in batch.hops)
    print(f"edges per query, by hop: {sizes}; all hops: {mean_size(batch, batch.num_queries):,.0f}")
    print(
        f"the {num_literal} queries of the literal versions: {mean_size(batch, num_literal):,.0f}, times scaled"
    )
    literal, once = list(rows.values())[:2]
    print(f"{'':52}{'ms per query':>14}{'vs literal':>12}{'vs each arrival once':>22}")
    for name, seconds in rows.items():
        print(f"{name:52}{1e3 * seconds:14.4f}{literal / seconds:12.1f}{once / seconds:22.1f}")


if __name__ == "__main__":
    main()
