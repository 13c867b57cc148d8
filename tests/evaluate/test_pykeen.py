"""E1: ranks and metrics against PyKEEN's own evaluator, run through its public entry point."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from contextpool.evaluate.metrics import HITS_AT, PYKEEN_NAMES, TIE_RULES
from contextpool.evaluate.report import EvaluationReport, evaluate_scorer
from contextpool.triples.dataset import joined
from contextpool.triples.filters import KnownAnswers
from evaluate.scorers import distinct_rows, numbered_triples, score_table, table_scorer

pykeen_evaluation = pytest.importorskip(
    "pykeen.evaluation", reason="compares with PyKEEN's evaluator: pip install pykeen==1.11.1"
)

ENTITIES, RELATIONS, QUERIES, OTHERS = 60, 5, 5_000, 3_000


class TableModel(torch.nn.Module):
    """What PyKEEN's evaluator asks of a model, answered from a table [N, 2R, N]."""

    device = torch.device("cpu")
    num_entities = ENTITIES
    num_relations = RELATIONS

    def __init__(self, table):
        super().__init__()
        self.table = table

    def predict(self, hrt_batch, target, slice_size=None, mode=None):
        head, relation, tail = hrt_batch.T
        if target == "tail":
            return self.table[head, relation].clone()
        return self.table[tail, relation + RELATIONS].clone()


@pytest.fixture(scope="module", params=[0.0, 0.1, 0.9, 1.0], ids=lambda share: f"{share:.0%} ties")
def both(request):
    """The same 10^4 queries, with known answers to filter, through both evaluators."""
    rows = distinct_rows(7, ENTITIES, RELATIONS, QUERIES + OTHERS)
    queries = numbered_triples(rows[:QUERIES], ENTITIES, RELATIONS)
    others = numbered_triples(rows[QUERIES:], ENTITIES, RELATIONS).with_vocabularies(
        queries.entities, queries.relations
    )
    table = score_table(11, ENTITIES, RELATIONS, request.param)
    known = KnownAnswers.of(joined([queries, others]))
    evaluator = pykeen_evaluation.RankBasedEvaluator(
        metrics=["inverse_harmonic_mean_rank", "arithmetic_mean_rank", *["hits_at_k"] * len(HITS_AT)],
        metrics_kwargs=[None, None, *({"k": k} for k in HITS_AT)],
        add_defaults=False,
        clear_on_finalize=False,
    )
    results = evaluator.evaluate(
        TableModel(table),
        torch.from_numpy(queries.ids).long(),
        batch_size=1_000,
        additional_filter_triples=torch.from_numpy(others.ids).long(),
        use_tqdm=False,
    )
    return evaluate_scorer(table_scorer(table), queries, known, batch_size=500), evaluator, results


def test_there_are_ten_thousand_queries(both):
    assert both[0].num_queries == 10_000


@pytest.mark.parametrize("rule", TIE_RULES)
def test_every_rank_is_pykeens(both, rule):
    report, evaluator, _ = both
    theirs = [np.concatenate(evaluator.ranks[side, rule]) for side in ("tail", "head")]
    np.testing.assert_allclose(report.under(rule).ranks, np.concatenate(theirs), rtol=0, atol=1e-6)


def test_the_number_of_candidates_is_pykeens(both):
    report, evaluator, _ = both
    theirs = [np.concatenate(evaluator.num_candidates[side]) for side in ("tail", "head")]
    np.testing.assert_array_equal(report.table.candidates, np.concatenate(theirs))


def test_every_metric_is_pykeens_under_pykeens_name(both):
    report, _, results = both
    ours = report.pykeen_keys()
    assert len(ours) == 3 * 3 * len(PYKEEN_NAMES)
    for name, figure in ours.items():
        assert figure == pytest.approx(results.get_metric(name), abs=1e-6), name


def test_the_share_of_ties_is_what_the_case_says(both, request):
    report: EvaluationReport = both[0]
    tied = report.table.pessimistic > report.table.optimistic
    share = request.node.callspec.params["both"]
    assert tied.mean() == pytest.approx(share, abs=0.03)
