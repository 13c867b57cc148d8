"""Ask a scorer every query in both directions and report how its answers rank."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch

from contextpool.errors import ConfigError, DataError
from contextpool.evaluate.metrics import (
    PYKEEN_NAMES,
    TIE_RULES,
    Bools,
    Floats,
    Interval,
    RankMetrics,
    RankTable,
    TieRule,
    bootstrap_intervals,
)
from contextpool.evaluate.ranks import (
    DIRECTIONS,
    DirectedQueries,
    Direction,
    Progress,
    Scorer,
    check_same_numbers,
    describe_query,
    in_canonical_order,
    rank_answers,
    scored_answers,
)
from contextpool.notebook import frame_of, html_table
from contextpool.processes import Processes
from contextpool.triples.filters import KnownAnswers
from contextpool.triples.store import Triples

FRAME = ("head", "relation", "tail", "asked", "rank", "optimistic", "pessimistic", "candidates")


def evaluate_scorer(
    scorer: Scorer,
    queries: Triples,
    known: KnownAnswers,
    *,
    batch_size: int = 64,
    device: torch.device | str | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    processes: Processes | None = None,
) -> EvaluationReport:
    """Rank the tail and the head of every query triple among all entities, leaving out `known` answers.

    The scorer gets its queries on `device` (default: the CPU) and sees equal queries once. Ranks are put in
    one order, so neither the batch size nor the order of the queries changes them. `seed` draws the
    bootstrap intervals, nothing else. Of several processes each ranks its share, and all get the whole report.
    """
    processes = processes or Processes()
    ranking, began = Ranking.of(queries, known, batch_size), time.perf_counter()
    own = processes.agreed(
        lambda: ranking.table(scorer, processes.turns(ranking.num_batches), device, progress)
    )
    return EvaluationReport(ranking.queries, gathered(own, processes), seed, time.perf_counter() - began)


@dataclass(frozen=True, eq=False)
class Ranking:
    """Queries whose answers are ranked, in batches that are the same whoever ranks which of them."""

    queries: Triples
    """In canonical order."""
    known: KnownAnswers
    batch_size: int

    @classmethod
    def of(cls, queries: Triples, known: KnownAnswers, batch_size: int) -> Ranking:
        check_same_numbers(queries, known)
        return cls(in_canonical_order(queries), known, batch_size)

    @cached_property
    def asked(self) -> DirectedQueries:
        return DirectedQueries.of(self.queries)

    @cached_property
    def num_batches(self) -> int:
        return -(-len(self.asked.distinct(self.known.num_relations)[0]) // max(1, self.batch_size))

    def table(
        self,
        scorer: Scorer,
        turns: Iterable[int] | None = None,
        device: torch.device | str | None = None,
        progress: Progress | None = None,
    ) -> RankTable:
        """The ranks of the batches of these numbers, None for all; 0 elsewhere."""
        asked, where = self.asked, torch.device(device) if device else None
        table = RankTable(np.zeros(len(asked)), np.zeros(len(asked)), np.zeros(len(asked), dtype=np.int64))
        done = 0
        for chunk in scored_answers(scorer, asked, self.known, self.batch_size, where, turns):
            ranks = rank_answers(
                chunk.scores,
                chunk.answer,
                chunk.known_row,
                chunk.known_entity,
                describe=partial(describe_query, self.queries, asked, chunk.place),
            )
            table.optimistic[chunk.place] = ranks.optimistic.cpu().numpy()
            table.pessimistic[chunk.place] = ranks.pessimistic.cpu().numpy()
            table.candidates[chunk.place] = ranks.candidates.cpu().numpy()
            done += len(chunk.place)
            if progress is not None:
                progress(done, len(asked))
        return table


@dataclass(frozen=True, eq=False)
class EvaluationReport:
    """How the answers to T triples rank, asked in both directions: 2T ranks. Realistic unless said."""

    queries: Triples
    """The T triples, sorted."""
    table: RankTable
    """[2T] the tail queries in the order of `queries`, then the head queries in the same order."""
    seed: int = 0
    """The seed of the bootstrap intervals."""
    seconds: float | None = None
    """Seconds of scoring and ranking; None for a part of another report."""

    @cached_property
    def optimistic(self) -> RankMetrics:
        return self.table.under("optimistic")

    @cached_property
    def realistic(self) -> RankMetrics:
        return self.table.under("realistic")

    @cached_property
    def pessimistic(self) -> RankMetrics:
        return self.table.under("pessimistic")

    def under(self, rule: TieRule) -> RankMetrics:
        """The metrics under one of the three rules for ties."""
        if rule not in TIE_RULES:
            raise ConfigError(f"the rule for ties is {rule!r}; it is one of {', '.join(TIE_RULES)}.")
        metrics: RankMetrics = getattr(self, rule)
        return metrics

    @property
    def mrr(self) -> float:
        """Mean reciprocal rank."""
        return self.realistic.mrr

    @property
    def mr(self) -> float:
        """Mean rank."""
        return self.realistic.mr

    @property
    def hits(self) -> dict[int, float]:
        """{k: share of ranks <= k} for k = 1, 3, 10."""
        return self.realistic.hits

    @property
    def hits_at_10_of_50(self) -> float:
        """Expected share of ranks <= 10 against 50 sampled negatives: `metrics.chance_among_sampled`."""
        return self.realistic.hits_at_10_of_50

    @property
    def ranks(self) -> Floats:
        """[2T]: tail queries, then head queries, each in the order of `queries`."""
        return self.realistic.ranks

    @property
    def num_queries(self) -> int:
        """2T"""
        return 2 * len(self.queries)

    @property
    def queries_per_second(self) -> float | None:
        return self.num_queries / self.seconds if self.seconds else None

    @cached_property
    def per_relation(self) -> dict[str, RankMetrics]:
        """By relation label, both directions together; relations that are not asked are left out."""
        relation = np.tile(self.queries.ids[:, 1], 2)
        labels = self.queries.relations.labels
        return {labels[r]: self.realistic.select(relation == r) for r in np.unique(relation).tolist()}

    @cached_property
    def per_direction(self) -> dict[Direction, RankMetrics]:
        """By what is asked for: "tail" for (h, r, ?), "head" for (?, r, t)."""
        return {side: self.realistic.select(self._asking(side)) for side in DIRECTIONS}

    @cached_property
    def intervals(self) -> dict[str, Interval]:
        """95 % bootstrap intervals; a triple is drawn with both of its directions."""
        triple = np.tile(np.arange(len(self.queries)), 2)
        return bootstrap_intervals(self.realistic, triple, seed=self.seed)

    def _asking(self, side: Direction) -> Bools:
        return np.repeat([side == "tail", side == "head"], len(self.queries))

    def subset(self, keep: Bools) -> EvaluationReport:
        """The report of the triples where `keep` [T], in the order of `queries`, is true; scores nothing."""
        if keep.shape != (len(self.queries),) or keep.dtype != np.bool_:
            raise DataError(
                f"the mask is {keep.dtype} {list(keep.shape)}; it has to be bool [{len(self.queries)}], "
                "one for each triple asked."
            )
        table = self.table.select(np.tile(keep, 2))
        return EvaluationReport(self.queries.select(keep), table, self.seed)

    def restricted_to(self, triples: Triples) -> EvaluationReport:
        """The report of these triples alone, such as P2 (test) out of P1 (valid + test); scores nothing."""
        wanted = {tuple(row) for row in triples.with_vocabularies(*self._vocabularies).ids.tolist()}
        keep = np.array([tuple(row) in wanted for row in self.queries.ids.tolist()], dtype=np.bool_)
        if int(keep.sum()) < len(wanted):
            missing = len(wanted) - int(keep.sum())
            raise DataError(f"{missing:,} of the {len(wanted):,} triples were not asked in this report.")
        return self.subset(keep)

    @property
    def _vocabularies(self) -> tuple[Any, Any]:
        return self.queries.entities, self.queries.relations

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it: the realistic metrics by their short names, then everything else by name."""
        return {
            **self.realistic.to_dict(),
            "intervals": {name: list(interval) for name, interval in self.intervals.items()},
            "ties": {rule: self.under(rule).to_dict() for rule in TIE_RULES},
            "per_direction": {side: metrics.to_dict() for side, metrics in self.per_direction.items()},
            "per_relation": {label: metrics.to_dict() for label, metrics in self.per_relation.items()},
            "seconds": self.seconds,
            "queries_per_second": self.queries_per_second,
        }

    def pykeen_keys(self) -> dict[str, float]:
        """The metrics by PyKEEN's names, `side.rank_type.metric`: "both.realistic.hits_at_10" and so on."""
        return {
            f"{side}.{rule}.{PYKEEN_NAMES[name]}": figures[name]
            for rule in TIE_RULES
            for side, figures in self._sides(rule)
            for name in PYKEEN_NAMES
        }

    def _sides(self, rule: TieRule) -> Iterator[tuple[str, dict[str, float]]]:
        metrics = self.under(rule)
        yield "both", metrics.to_dict()
        for side in DIRECTIONS:
            yield side, metrics.select(self._asking(side)).to_dict()

    def to_frame(self) -> Any:
        """A pandas DataFrame, a row a rank: the fact, what was asked, its rank, and among how many."""
        table, realistic = self.table, self.ranks.tolist()
        rows = [
            dict(zip(FRAME, values, strict=True))
            for values in zip(
                *zip(*[*self.queries, *self.queries], strict=True),
                ["tail"] * len(self.queries) + ["head"] * len(self.queries),
                realistic,
                table.optimistic.tolist(),
                table.pessimistic.tolist(),
                table.candidates.tolist(),
                strict=True,
            )
        ]
        return frame_of(rows, FRAME)

    def _repr_html_(self) -> str:
        rows: list[tuple[object, ...]] = [(rule, *_figures(self.under(rule))) for rule in TIE_RULES]
        rows += [
            (f"asked for the {side}", *_figures(metrics)) for side, metrics in self.per_direction.items()
        ]
        rows += [(label, *_figures(metrics)) for label, metrics in self.per_relation.items()]
        return html_table(("", "ranks", "MRR", "Hits@1", "Hits@3", "Hits@10", "MR"), rows, above=repr(self))

    def __repr__(self) -> str:
        return f"EvaluationReport({self.realistic.in_words})"


def _figures(metrics: RankMetrics) -> tuple[int, float, float, float, float, float]:
    return metrics.num_queries, metrics.mrr, metrics.hits[1], metrics.hits[3], metrics.hits[10], metrics.mr


def gathered(own: RankTable, processes: Processes) -> RankTable:
    """The whole table in every process, from tables that are 0 where another process ranked.

    A rank plus zeros is that rank to the bit. Every place has to be filled by exactly one process: an answer is
    compared with one entity at least, itself, so an empty place is one without candidates.
    """
    if not processes.are_several:
        return own
    ranks = torch.from_numpy(own.optimistic), torch.from_numpy(own.pessimistic)
    candidates = torch.from_numpy(own.candidates)
    counts = torch.stack([candidates, (candidates > 0).long()])  # [2, Q]
    optimistic, pessimistic = processes.sum(torch.stack(ranks)).numpy()  # [Q]
    candidates, filled = processes.sum(counts)
    if not bool((filled == 1).all()):
        raise DataError(
            f"{int((filled != 1).sum()):,} of {len(filled):,} ranks were found by no process or by several: "
            "the processes were given different queries. Give all of them the same dataset and batch size."
        )
    return RankTable(optimistic, pessimistic, candidates.numpy())
