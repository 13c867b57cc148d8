"""E2 and E3: scorers whose figures are known beforehand; nothing depends on batches or on order."""

from __future__ import annotations

import json
import math
import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from contextpool.errors import ConfigError, DataError, NonFiniteError
from contextpool.evaluate.ranks import DirectedQueries, batch_size_for
from contextpool.evaluate.references import constant_scorer, frequency_scorer
from contextpool.evaluate.report import EvaluationReport, evaluate_scorer
from contextpool.graph.graph import Graph
from contextpool.triples.catalog import load_dataset
from contextpool.triples.dataset import joined
from contextpool.triples.filters import KnownAnswers
from contextpool.triples.store import Triples
from evaluate.scorers import distinct_rows, numbered_triples, score_table, table_scorer
from support import benchmark_folder


def a_permutation(seed: int, count: int) -> Triples:
    """One relation, each entity once a head and once a tail: every query has one answer and N candidates."""
    tails = random.Random(seed).sample(range(count), count)
    return numbered_triples([(head, 0, tail) for head, tail in enumerate(tails)], count, 1)


def test_constant_scores_give_2_by_n_plus_1():
    queries = a_permutation(0, 200)
    report = evaluate_scorer(constant_scorer(200), queries, KnownAnswers.of(queries))
    assert report.mrr == pytest.approx(2 / 201, abs=1e-15)
    assert report.mr == 100.5
    assert report.optimistic.mrr == 1
    assert report.pessimistic.mrr == pytest.approx(1 / 200)
    assert report.hits == {1: 0, 3: 0, 10: 0}


def test_random_scores_give_h_n_by_n():
    count = 200
    queries = a_permutation(1, count)
    table = score_table(2, count, 1, tie_share=0)
    report = evaluate_scorer(table_scorer(table), queries, KnownAnswers.of(queries))
    reciprocals = 1 / np.arange(1, count + 1)
    deviation = reciprocals.std() / math.sqrt(2 * count)
    assert abs(report.mrr - reciprocals.mean()) < 3 * deviation
    assert reciprocals.mean() == pytest.approx(sum(1 / n for n in range(1, count + 1)) / count)


def test_perfect_scores_give_1_under_every_rule():
    rows = distinct_rows(3, 20, 3, 150)
    queries = numbered_triples(rows, 20, 3)
    table = torch.zeros(20, 6, 20)
    for head, relation, tail in rows:
        table[head, relation, tail] = table[tail, relation + 3, head] = 1.0
    report = evaluate_scorer(table_scorer(table), queries, KnownAnswers.of(queries))
    assert report.optimistic.mrr == report.realistic.mrr == report.pessimistic.mrr == 1.0
    assert report.hits == {1: 1.0, 3: 1.0, 10: 1.0}
    assert report.realistic.hits_at_10_of_50 == 1.0


def both_sides_by_hand(table: torch.Tensor, rows: list[tuple[int, int, int]], known: set) -> list[float]:
    """Realistic ranks of all tails, then of all heads, with sets of integers and no batches."""
    num_relations = table.shape[1] // 2
    ranks = []
    for side in ("tail", "head"):
        for head, relation, tail in sorted(rows):
            if side == "tail":
                scores, answer = table[head, relation].tolist(), tail
                others = {t for h, r, t in known if (h, r) == (head, relation)} - {tail}
            else:
                scores, answer = table[tail, relation + num_relations].tolist(), head
                others = {h for h, r, t in known if (r, t) == (relation, tail)} - {head}
            rivals = [score for entity, score in enumerate(scores) if entity not in others | {answer}]
            ties = sum(score == scores[answer] for score in rivals)
            ranks.append(1 + sum(score > scores[answer] for score in rivals) + ties / 2)
    return ranks


@given(st.integers(0, 10**6), st.integers(1, 9))
def test_ranks_of_both_directions_are_those_of_plain_python(seed, batch_size):
    rng = random.Random(seed)
    entities, relations = rng.randint(2, 8), rng.randint(1, 3)
    rows = distinct_rows(seed, entities, relations, rng.randint(2, entities * relations))
    table = score_table(seed, entities, relations, rng.choice([0.0, 0.3, 1.0]))
    asked = rows[: rng.randint(1, len(rows))]
    known = KnownAnswers.of(numbered_triples(rows, entities, relations))
    queries = numbered_triples(asked, entities, relations)
    report = evaluate_scorer(table_scorer(table), queries, known, batch_size=batch_size)
    assert report.ranks.tolist() == both_sides_by_hand(table, asked, set(rows))


@pytest.fixture(scope="module")
def setting():
    rows = distinct_rows(5, 40, 4, 700)
    queries, others = (numbered_triples(part, 40, 4) for part in (rows[:300], rows[300:]))
    others = others.with_vocabularies(queries.entities, queries.relations)
    return queries, KnownAnswers.of(joined([queries, others])), score_table(6, 40, 4, 0.5)


@pytest.mark.parametrize("batch_size", [1, 7, 64, 10_000])
def test_the_batch_size_changes_no_rank(setting, batch_size):
    queries, known, table = setting
    expected = evaluate_scorer(table_scorer(table), queries, known)
    report = evaluate_scorer(table_scorer(table), queries, known, batch_size=batch_size)
    for rule in ("optimistic", "realistic", "pessimistic"):
        assert np.array_equal(report.under(rule).ranks, expected.under(rule).ranks)
    assert np.array_equal(report.table.candidates, expected.table.candidates)


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_the_queries_changes_no_rank(setting, seed):
    queries, known, table = setting
    expected = evaluate_scorer(table_scorer(table), queries, known)
    order = np.random.default_rng(seed).permutation(len(queries))
    shuffled = Triples(queries.entities, queries.relations, queries.ids[order])
    report = evaluate_scorer(table_scorer(table), shuffled, known, batch_size=7)
    assert np.array_equal(report.queries.ids, queries.ids)
    assert np.array_equal(report.ranks, expected.ranks)
    assert report.intervals == expected.intervals


def test_equal_queries_are_asked_once_and_every_batch_fits(setting):
    queries, known, table = setting
    seen: list[tuple[int, int]] = []

    def scorer(head, relation):
        assert head.dtype == relation.dtype == torch.int64
        assert len(head) <= 16
        seen.extend(zip(head.tolist(), relation.tolist(), strict=True))
        return table[head, relation]

    evaluate_scorer(scorer, queries, known, batch_size=16)
    tails = {(h, r) for h, r, _ in queries.ids.tolist()}
    heads = {(t, r + 4) for _, r, t in queries.ids.tolist()}
    assert len(seen) == len(set(seen))
    assert set(seen) == tails | heads


def test_the_filter_works_in_both_directions():
    rows = [(0, 0, 1), (0, 0, 2), (3, 0, 1)]
    everything = numbered_triples(rows, 4, 1)
    query = everything.select(np.array([True, False, False]))
    table = torch.zeros(4, 2, 4)
    table[0, 0] = torch.tensor([0.0, 5.0, 9.0, 0.0])  # the other tail, 2, is better than the answer 1
    table[1, 1] = torch.tensor([5.0, 0.0, 0.0, 9.0])  # the other head, 3, is better than the answer 0
    raw = evaluate_scorer(table_scorer(table), query, KnownAnswers.of(query))
    filtered = evaluate_scorer(table_scorer(table), query, KnownAnswers.of(everything))
    assert raw.ranks.tolist() == [2, 2]
    assert filtered.ranks.tolist() == [1, 1]


def test_directions_and_relations_partition_the_ranks(setting):
    queries, known, table = setting
    report = evaluate_scorer(table_scorer(table), queries, known)
    sides = report.per_direction
    assert np.array_equal(np.append(sides["tail"].ranks, sides["head"].ranks), report.ranks)
    assert report.mrr == pytest.approx((sides["tail"].mrr + sides["head"].mrr) / 2)
    assert list(report.per_relation) == ["r000", "r001", "r002", "r003"]
    assert sum(metrics.num_queries for metrics in report.per_relation.values()) == report.num_queries == 600
    weighted = sum(metrics.mrr * metrics.num_queries for metrics in report.per_relation.values())
    assert report.mrr == pytest.approx(weighted / 600)
    chosen = np.tile(queries.ids[:, 1] == 2, 2)
    assert report.per_relation["r002"].ranks.tolist() == report.ranks[chosen].tolist()


def test_a_part_of_a_report_is_the_report_of_the_part(setting):
    queries, known, table = setting
    keep = np.random.default_rng(0).random(len(queries)) < 0.4
    whole = evaluate_scorer(table_scorer(table), queries, known)
    alone = evaluate_scorer(table_scorer(table), queries.select(keep), known)
    for part in (whole.subset(keep), whole.restricted_to(queries.select(keep))):
        assert part.ranks.tolist() == alone.ranks.tolist()
        assert part.pykeen_keys() == alone.pykeen_keys()
        assert part.intervals == alone.intervals
        assert part.seconds is part.queries_per_second is None
    with pytest.raises(DataError, match="mask"):
        whole.subset(keep[:-1])
    with pytest.raises(DataError, match=r"\d+ of the 300 triples were not asked"):
        alone.restricted_to(queries)


def test_a_report_is_json_and_says_what_it_holds(setting):
    queries, known, table = setting
    report = evaluate_scorer(table_scorer(table), queries, known)
    stored = json.loads(json.dumps(report.to_dict()))
    assert stored["mrr"] == report.mrr == stored["ties"]["realistic"]["mrr"]
    assert stored["hits@1"] == report.hits[1]
    assert stored["hits@10_50"] == report.hits_at_10_of_50
    assert stored["mr"] == report.mr
    assert stored["num_queries"] == 600
    low, high = stored["intervals"]["mrr"]
    assert low < report.mrr < high
    assert set(stored["per_direction"]) == {"tail", "head"}
    assert stored["queries_per_second"] == pytest.approx(600 / stored["seconds"])
    assert f"mrr {report.mrr:.4f}" in repr(report)
    assert "600 ranks" in repr(report)


def test_progress_counts_up_to_all_queries(setting):
    queries, known, table = setting
    calls: list[tuple[int, int]] = []
    evaluate_scorer(
        table_scorer(table), queries, known, progress=lambda done, total: calls.append((done, total))
    )
    assert [done for done, _ in calls] == sorted({done for done, _ in calls})
    assert calls[-1] == (600, 600)
    assert {total for _, total in calls} == {600}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("side", ["tail", "head"])
def test_a_non_finite_score_names_its_query(value, side):
    queries = Triples.from_labels([("alice", "knows", "bob"), ("bob", "knows", "carol")])
    table = torch.zeros(3, 2, 3)
    table[(0, 0, 2) if side == "tail" else (1, 1, 2)] = value
    named = {"tail": r"\('alice', 'knows', \?\)", "head": r"\('bob', 'knows\^-1', \?\)"}[side]
    with pytest.raises(NonFiniteError, match=rf"query {named}, candidate 'carol': the score is {value}"):
        evaluate_scorer(table_scorer(table), queries, KnownAnswers.of(queries))


def test_a_scorer_of_the_wrong_shape_is_refused(setting):
    queries, known, _ = setting
    with pytest.raises(DataError, match=r"returned \[64, 39\] for 64 queries over 40 entities"):
        evaluate_scorer(constant_scorer(39), queries, known)


def test_wrong_settings_are_refused(setting):
    queries, known, table = setting
    scorer = table_scorer(table)
    with pytest.raises(ConfigError, match="batch_size is 0"):
        evaluate_scorer(scorer, queries, known, batch_size=0)
    with pytest.raises(DataError, match="no queries"):
        evaluate_scorer(scorer, queries.select(np.zeros(len(queries), dtype=bool)), known)
    with pytest.raises(DataError, match="same vocabularies"):
        evaluate_scorer(scorer, queries, KnownAnswers.of(a_permutation(0, 5)))
    report: EvaluationReport = evaluate_scorer(scorer, queries, known)
    with pytest.raises(ConfigError, match="rule for ties"):
        report.under("random")  # type: ignore[arg-type]


def test_evaluation_needs_no_gradient(setting):
    queries, known, table = setting
    weights = table.clone().requires_grad_()
    seen = []

    def scorer(head, relation):
        scores = weights[head, relation] * 2
        seen.append(scores.requires_grad)
        return scores

    evaluate_scorer(scorer, queries, known)
    assert not any(seen)


def test_batches_fit_their_memory():
    assert batch_size_for(1_000, 64_000, 16) == 4
    assert batch_size_for(1_000, 16_000, 16) == 1
    with pytest.raises(ConfigError, match=r"memory_bytes is 15,999.*needs 16,000"):
        batch_size_for(1_000, 15_999, 16)
    with pytest.raises(ConfigError, match="positive"):
        batch_size_for(0, 100, 16)


def test_directed_queries_are_tails_then_heads():
    asked = DirectedQueries.of(numbered_triples([(0, 0, 1), (2, 1, 0)], 3, 2))
    assert asked.entity.tolist() == [0, 2, 1, 0]
    assert asked.relation.tolist() == [0, 1, 2, 3]
    assert asked.answer.tolist() == [1, 0, 0, 2]


@pytest.mark.benchmark_data
def test_p2_follows_from_p1_on_a_benchmark(monkeypatch):
    monkeypatch.setenv("CONTEXTPOOL_DATA", str(benchmark_folder()))
    dataset = load_dataset("grail/nell_v1")
    scorer = frequency_scorer(Graph.from_triples(dataset.inference_graph))
    p1 = evaluate_scorer(scorer, dataset.evaluation_queries("P1"), dataset.evaluation_filter)
    p2 = evaluate_scorer(scorer, dataset.evaluation_queries("P2"), dataset.evaluation_filter)
    assert p1.num_queries == 402
    assert p1.restricted_to(dataset.inference_test).pykeen_keys() == p2.pykeen_keys()
    constant = constant_scorer(len(dataset.inference_entities))
    nothing = evaluate_scorer(constant, dataset.evaluation_queries("P1"), dataset.evaluation_filter)
    expected = np.mean(2 / (nothing.table.candidates + 1))
    assert nothing.mrr == pytest.approx(expected, abs=1e-12)
    assert p1.mrr > 10 * nothing.mrr


@pytest.mark.gpu
def test_cuda_reports_are_those_of_the_cpu(setting):
    queries, known, table = setting
    here = evaluate_scorer(table_scorer(table), queries, known)
    there = evaluate_scorer(table_scorer(table), queries, known, device="cuda")
    assert np.array_equal(here.ranks, there.ranks)
