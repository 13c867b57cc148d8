"""Scorers that have learned nothing: what any model has to beat, and what checks the evaluation itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from contextpool.errors import DataError
from contextpool.evaluate.ranks import Scorer
from contextpool.evaluate.report import EvaluationReport
from contextpool.graph.graph import Graph


def evaluation_figures(reports: Mapping[str, EvaluationReport]) -> dict[str, dict[str, Any]]:
    """Reports as a run keeps them: per relation the model's alone, and nothing that depends on the machine's speed."""
    left_out = {"seconds", "queries_per_second"}
    return {
        name: {
            key: value
            for key, value in report.to_dict().items()
            if key not in left_out and (name == "model" or key != "per_relation")
        }
        for name, report in reports.items()
    }


def evaluation_told(figures: Mapping[str, Mapping[str, Any]] | None) -> str:
    """Lines of a model card: the model's figures beside those of what needs no training, and which is better."""
    if figures is None:
        return ""
    own, remark = figures["model"], better_untrained(figures)
    others = "; ".join(f"{name} {found['mrr']:.4f}" for name, found in untrained(figures).items())
    shown = f"MRR {own['mrr']:.4f}, Hits@1 {own['hits@1']:.4f}, Hits@10 {own['hits@10']:.4f}"
    lines = f"- evaluation: {own['num_queries']:,} queries, {shown}; without training: {others}\n"
    return lines + (f"- {remark}\n" if remark else "")


def untrained(figures: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Figures of what needs no training, the best first."""
    others = ((name, found) for name, found in figures.items() if name != "model")
    return dict(sorted(others, key=lambda entry: -entry[1]["mrr"]))


def better_untrained(figures: Mapping[str, Mapping[str, Any]], packaged: bool = False) -> str:
    """Sentences that name what needs no training and does no worse than the model; empty where nothing does.

    They also say what to type instead, which is something else for the model in the package (`packaged`) than for a
    run. The model `walk` is the scorer walk x relevance, whose very figures it has.
    """
    own = figures["model"]["mrr"]
    better = {name: found["mrr"] for name, found in untrained(figures).items() if found["mrr"] >= own}
    if _same(figures["model"], figures.get("walk x relevance", {})):
        better.pop("walk x relevance")
    if not better:
        return ""
    named = ", ".join(f"{name} (MRR {mrr:.3f})" for name, mrr in better.items())
    model = "The model in the package" if packaged else "This model"
    advice = _advice(next(iter(better)), packaged)
    return f"{model} (MRR {own:.3f}) is no better than {named}, which needs no training. {advice}"


def _advice(best: str, packaged: bool) -> str:
    """What to do instead, by which of what needs no training is the best."""
    if best == "walk x relevance":
        return (
            "To use that, type contextpool train GRAPH --model walk -o RUN, and from then on ask with --run RUN; or "
            "train a model on this graph (contextpool train GRAPH)."
            if packaged
            else "Use that (train --model walk), ask without a run, start from the model in the package (train --from "
            "anygraph-1), or train longer."
        )
    return (
        "Train a model on this graph (contextpool train GRAPH), or look at the data (contextpool data audit GRAPH)."
        if packaged
        else "Do not use it: train longer, or look at the data."
    )


def _same(figures: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    return all(figures.get(key) == others.get(key) for key in ("mrr", "mr", "hits@1", "hits@10"))


def constant_scorer(num_entities: int) -> Scorer:
    """The same score for every entity: everything ties, and MRR is about 2 / (N + 1)."""

    def score(query_head: Tensor, query_relation: Tensor) -> Tensor:
        return torch.zeros(len(query_head), num_entities, device=query_head.device)

    return score


def frequency_scorer(graph: Graph) -> Scorer:
    """The most frequent answer: the score of c for (h, x, ?) is the number of edges of x that arrive at c.

    x is a directed relation in [0, 2R), so tails and heads have their own counts; h plays no part.
    Holds the distinct (relation, tail) pairs of the graph, at most 2T; a batch takes O(B N).
    """
    count = graph.num_entities
    key = graph.edge_relation.long() * count + graph.edge_tail.long()  # [2T]
    distinct, frequency = torch.unique(key, return_counts=True)  # [P] sorted by relation, then tail
    relations = torch.arange(2 * graph.num_relations + 1, device=key.device)
    start = torch.searchsorted(distinct, relations * count)  # [2R + 1] where each relation's pairs begin
    tail, frequency = distinct % count, frequency.float()

    def score(query_head: Tensor, query_relation: Tensor) -> Tensor:
        _check_relations(query_relation, 2 * graph.num_relations)
        asked = query_relation.to(start.device)
        row, pair = _entries(start[asked], start[asked + 1])
        scores = torch.zeros(len(asked), count, device=start.device)
        scores[row, tail[pair]] = frequency[pair]  # each place once: the pairs are distinct
        return scores.to(query_head.device)

    return score


def _entries(begin: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """Row [K] and position [K] of everything in begin[row]:end[row], row by row."""
    size = end - begin  # [B]
    row = torch.repeat_interleave(torch.arange(len(size), device=size.device), size)  # [K]
    before = size.cumsum(0) - size  # [B]
    return row, torch.arange(len(row), device=size.device) - before[row] + begin[row]


def _check_relations(relation: Tensor, count: int) -> None:
    wrong = (relation < 0) | (relation >= count)
    if wrong.any():
        raise DataError(
            f"relation id {int(relation[wrong][0])} is out of range: the graph has {count} with inverses. "
            "Number graph and queries by the same vocabularies."
        )
