"""What the counts of a dataset's queries mean for a benchmark: leaks, shortcuts, what cannot be answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from contextpool.triples.audit.findings import (
    Finding,
    Severity,
    finding_of,
    graded,
    judge_graph,
    named,
    out_of,
    triples_as_text,
    twin_text,
)
from contextpool.triples.audit.graphs import GraphStatistics, RelationTwin
from contextpool.triples.audit.queries import (
    SELECTION,
    TRAINING_VALID,
    OverlapStatistics,
    QueryStatistics,
    share,
)

ENTITY_OVERLAP_WARNING = 0.01
"""Share of the inference graph's entities."""
EASY_NOTE, EASY_WARNING = 0.1, 0.5
"""Share of the queries that one edge between head and tail gives away."""
TWIN_WARNING = 0.1
"""Share of the queries that a twin relation answers."""
WITHOUT_EDGE_WARNING = 0.05
REACH_NOTE, REACH_WARNING = 0.05, 0.2
"""Share of the answers that six hops do not reach."""
SHIFT_NOTE = 0.2
FEW_RANKS_NOTE, FEW_RANKS_WARNING = 1_000, 100


def judge_dataset(
    inductive: bool,
    graphs: Sequence[GraphStatistics],
    parts: Sequence[QueryStatistics],
    overlap: OverlapStatistics,
) -> list[Finding]:
    """The findings of a dataset. The last of `parts` is what is evaluated in the end."""
    selection = next(part for part in parts if part.name == SELECTION)
    evaluation = parts[-1]
    return [
        _entity_overlap(overlap, inductive),
        *([_fact_overlap(overlap)] if inductive else []),
        _leakage(parts),
        _trained_on(parts),
        _selected_on(evaluation, overlap),
        _direct_edges(evaluation),
        _reverse_pairs(evaluation),
        _inverse_relations(graphs, evaluation),
        _duplicate_relations(graphs, evaluation),
        _unseen_relations(parts, overlap),
        _unseen_entities(parts),
        _reach(evaluation),
        *([_shift(selection, evaluation)] if inductive else []),
        _evaluation_size(evaluation),
        *(finding for graph in graphs for finding in judge_graph(graph)),
    ]


def _entity_overlap(overlap: OverlapStatistics, inductive: bool) -> Finding:
    key, count, part = "entity_overlap", overlap.shared_entities, overlap.share_of_inference
    if not inductive:
        return finding_of(key, "ok", f"{count:,} entities in both sides, as expected: it is transductive.")
    if not count:
        return finding_of(key, "ok", "the two graphs share no entity: the setting is fully inductive.")
    reading = (
        f"{count:,} entities ({part:.2%} of the inference graph's) are in both graphs: "
        "for them the test is not inductive."
    )
    severity: Severity = "warning" if part >= ENTITY_OVERLAP_WARNING else "note"
    return finding_of(key, severity, reading, named(overlap.entity_examples))


def _fact_overlap(overlap: OverlapStatistics) -> Finding:
    count = overlap.shared_facts
    if not count:
        return finding_of("fact_overlap", "ok", "the two graphs share no fact.")
    reading = f"{count:,} facts are in both graphs: part of the inference graph was trained on."
    return finding_of("fact_overlap", "note", reading)


def _each_part(parts: Sequence[QueryStatistics], count_of: Callable[[QueryStatistics], int]) -> str:
    """As in: selection 3 of 492 (0.6%), inference test 1 of 205 (0.5%). Parts without any are left out."""
    return ", ".join(
        f"{part.name} {out_of(count_of(part), part.queries)}" for part in parts if count_of(part)
    )


def _leakage(parts: Sequence[QueryStatistics]) -> Finding:
    where = _each_part(parts, lambda part: part.in_graph)
    if not where:
        return finding_of("leakage", "ok", "no held-out triple is a fact of the graph it is asked over.")
    examples = dict.fromkeys(example for part in parts for example in part.leaked_examples)
    return finding_of(
        "leakage",
        "warning",
        f"held-out triples are facts of the graph they are asked over: {where}. Looking them up is enough.",
        triples_as_text(list(examples)),
    )


def _trained_on(parts: Sequence[QueryStatistics]) -> Finding:
    asked = [part for part in parts if part.name != TRAINING_VALID]
    where = _each_part(asked, lambda part: part.trained_on)
    if not where:
        return finding_of("trained_on", "ok", "no selection or evaluation query is a training triple.")
    examples = dict.fromkeys(example for part in asked for example in part.trained_examples)
    return finding_of(
        "trained_on",
        "warning",
        f"training triples come back as queries: {where}. Scores on them measure memory.",
        triples_as_text(list(examples)),
    )


def _selected_on(evaluation: QueryStatistics, overlap: OverlapStatistics) -> Finding:
    if evaluation.selected_on:
        both = out_of(evaluation.selected_on, evaluation.queries)
        return finding_of("selected_on", "warning", f"{both} evaluation queries are selected on as well.")
    if overlap.valid_in_test:
        reading = f"{overlap.valid_in_test:,} triples are in the inference side's valid and in its test."
        return finding_of("selected_on", "note", reading)
    return finding_of("selected_on", "ok", "no evaluation query is selected on.")


def _direct_edges(part: QueryStatistics) -> Finding:
    severity = graded(share(part.direct, part.queries), EASY_NOTE, EASY_WARNING)
    hint = "" if severity == "ok" else ": a model must not be trained to ignore such edges"
    reading = f"{out_of(part.direct, part.queries)} evaluation queries have an edge from head to tail{hint}."
    return finding_of("direct_edges", severity, reading)


def _reverse_pairs(part: QueryStatistics) -> Finding:
    severity = graded(share(part.reverse, part.queries), EASY_NOTE, EASY_WARNING)
    same = f", {part.reverse_same:,} of them by the same relation" if part.reverse else ""
    hint = "" if severity == "ok" else ": turning edges round is a baseline to report"
    reading = f"{out_of(part.reverse, part.queries)} evaluation queries have an edge from tail to head"
    return finding_of("reverse_pairs", severity, f"{reading}{same}{hint}.")


def _inverse_relations(graphs: Sequence[GraphStatistics], part: QueryStatistics) -> Finding:
    twins = [twin for graph in graphs for twin in graph.twins if twin.kind != "duplicate"]
    if not twins:
        reading = "no relation is (nearly) the inverse of another or of itself."
        return finding_of("inverse_relations", "ok", reading)
    reading = (
        f"{_distinct(twins):,} relations or pairs of relations are symmetric or inverse; "
        f"turning one edge round gives {out_of(part.by_inverse, part.queries)} evaluation answers away."
    )
    return _twin_finding("inverse_relations", twins, share(part.by_inverse, part.queries), reading)


def _duplicate_relations(graphs: Sequence[GraphStatistics], part: QueryStatistics) -> Finding:
    twins = [twin for graph in graphs for twin in graph.twins if twin.kind == "duplicate"]
    if not twins:
        reading = "no two relations hold between (nearly) the same pairs."
        return finding_of("duplicate_relations", "ok", reading)
    reading = (
        f"{_distinct(twins):,} pairs of relations hold between (nearly) the same entities; "
        f"copying one edge gives {out_of(part.by_duplicate, part.queries)} evaluation answers away."
    )
    return _twin_finding("duplicate_relations", twins, share(part.by_duplicate, part.queries), reading)


def _distinct(twins: Sequence[RelationTwin]) -> int:
    return len({(twin.relation, twin.other) for twin in twins})


def _twin_finding(key: str, twins: Sequence[RelationTwin], given_away: float, reading: str) -> Finding:
    examples = list(dict.fromkeys(twin_text(twin) for twin in twins))
    return finding_of(key, "warning" if given_away >= TWIN_WARNING else "note", reading, examples)


def _unseen_relations(parts: Sequence[QueryStatistics], overlap: OverlapStatistics) -> Finding:
    key, where = "unseen_relations", _each_part(parts, lambda part: part.unseen_relation)
    if where:
        labels = sorted({label for part in parts for label in part.unseen_relations})
        untrained = any(part.untrained_relation for part in parts)
        meaning = (
            "Training never meets some of them." if untrained else "Training asks for them without evidence."
        )
        reading = f"queries ask for {len(labels):,} relations without a fact in the training graph: {where}. {meaning}"
        return finding_of(key, "warning" if untrained else "note", reading, named(labels))
    if overlap.new_relations:
        reading = (
            f"{overlap.new_relation_facts:,} inference facts use {len(overlap.new_relations):,} relations "
            "without a fact in the training graph; no query asks for them."
        )
        return finding_of(key, "note", reading, named(overlap.new_relations))
    return finding_of(key, "ok", "every relation of a query or an inference fact has a training fact.")


def _unseen_entities(parts: Sequence[QueryStatistics]) -> Finding:
    where = _each_part(parts, lambda part: part.without_edge)
    if not where:
        return finding_of("unseen_entities", "ok", "every entity of a query has an edge in its graph.")
    labels = sorted({label for part in parts for label in part.entities_without_edge})
    most = max(share(part.without_edge, part.queries) for part in parts)
    return finding_of(
        "unseen_entities",
        "warning" if most >= WITHOUT_EDGE_WARNING else "note",
        f"{len(labels):,} query entities have no edge in their graph: {where}. No path leads there.",
        named(labels),
    )


def _reach(part: QueryStatistics) -> Finding:
    if not part.queries:
        return finding_of("reach", "warning", "there is nothing to evaluate on.")
    within_3, within_6 = part.within[2], part.within[5]
    sampled = f" (of {part.sample:,} sampled ones)" if part.sample < part.queries else ""
    reading = (
        f"{within_3:.1%} of the evaluation answers lie within 3 hops of the head, {within_6:.1%} within 6"
        f"{sampled}, {part.connected:.1%} at any distance: the ceiling of a model with as many layers."
    )
    return finding_of("reach", graded(1 - within_6, REACH_NOTE, REACH_WARNING), reading)


def _shift(selection: QueryStatistics, evaluation: QueryStatistics) -> Finding:
    before = share(selection.adjacent, selection.queries)
    after = share(evaluation.adjacent, evaluation.queries)
    differs = abs(after - before) >= SHIFT_NOTE
    hint = ": selection on the training graph is nearly blind to that" if differs else ""
    reading = f"one edge links head and tail of {before:.1%} of the selection queries and {after:.1%} of the "
    return finding_of("shift", "note" if differs else "ok", f"{reading}evaluation queries{hint}.")


def _evaluation_size(part: QueryStatistics) -> Finding:
    ranks = 2 * part.queries
    severity: Severity = (
        "warning" if ranks < FEW_RANKS_WARNING else "note" if ranks < FEW_RANKS_NOTE else "ok"
    )
    points = f": one answer can move a score by {100 / ranks:.2f} points" if ranks else ""
    reading = f"{part.queries:,} evaluation triples give {ranks:,} ranks{points}."
    return finding_of("evaluation_size", severity, reading)
