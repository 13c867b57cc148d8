"""Findings: what counts mean for a benchmark, each ok, a note or a warning; those of graphs and files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from contextpool.errors import shortened
from contextpool.triples.audit.files import RawFile
from contextpool.triples.audit.graphs import RARE_FACTS, GraphStatistics, RelationTwin
from contextpool.triples.audit.queries import EXAMPLES, share
from contextpool.triples.store import Triple

Severity = Literal["ok", "note", "warning"]
SEVERITIES: tuple[Severity, ...] = ("ok", "note", "warning")

COMPONENT_NOTE, COMPONENT_WARNING = 0.1, 0.5
"""Share of the entities outside the largest component."""


@dataclass(frozen=True)
class Finding:
    """The answer to one question, with what it means for a benchmark."""

    key: str
    """Stable name of the question."""
    severity: Severity
    reading: str
    """One line: the count, and what it means."""
    examples: tuple[str, ...] = ()
    graph: str = ""
    """The graph it is about; empty where it is about the dataset."""


def judge_graph(graph: GraphStatistics) -> list[Finding]:
    """What one graph tells, apart from its twin relations, which a dataset judges by its queries."""
    questions = (_degrees, _components, _self_loops, _rare_relations, _relation_sets)
    return [replace(ask(graph), graph=graph.name) for ask in questions]


def judge_lone_graph(graph: GraphStatistics) -> list[Finding]:
    """All findings of one graph without queries."""
    return [*judge_graph(graph), replace(_twin_relations(graph), graph=graph.name)]


def judge_loading(skipped: int, kept_share: float) -> list[Finding]:
    """What was lost between the files and the dataset."""
    left_out = _skipped(skipped)
    if kept_share >= 1:
        return [left_out]
    reading = f"{kept_share:.1%} of the original graph's triples are left after it was split in two."
    return [left_out, finding_of("kept_share", "note", reading)]


def judge_files(files: Sequence[RawFile]) -> list[Finding]:
    """Duplicate lines of the raw files; nothing where none were looked at."""
    if not files:
        return []
    repeated = [file for file in files if file.duplicates]
    shared = [file for file in files if file.repeated_elsewhere]
    lines, total = sum(file.duplicates for file in files), sum(file.triples for file in files)
    within = finding_of(
        "duplicate_lines",
        "note" if lines else "ok",
        f"{lines:,} of {total:,} lines repeat a line of their file; they collapse on reading, "
        "so counts of lines and of triples differ."
        if lines
        else f"none of {total:,} lines repeats a line of its file.",
        [f"{file.path}: {file.duplicates:,}" for file in repeated],
    )
    across = finding_of(
        "lines_in_two_files",
        "warning" if shared else "ok",
        "files of one folder share triples: one file's held-out triples are another's facts."
        if shared
        else "no triple stands in two files of a folder.",
        [f"{file.path}: {file.repeated_elsewhere:,}" for file in shared],
    )
    return [within, across]


def worst_of(findings: Sequence[Finding]) -> Severity:
    """The most severe of them; ok where there are none."""
    return max((finding.severity for finding in findings), key=SEVERITIES.index, default="ok")


def finding_of(key: str, severity: Severity, reading: str, examples: Sequence[str] = ()) -> Finding:
    return Finding(key, severity, reading, tuple(examples[:EXAMPLES]))


def graded(value: float, note: float, warning: float) -> Severity:
    """How severe a value is; larger is worse."""
    return "warning" if value >= warning else "note" if value >= note else "ok"


def out_of(count: int, total: int) -> str:
    """As in: 3 of 492 (0.6%)."""
    return f"{count:,} of {total:,} ({share(count, total):.1%})"


def named(labels: Sequence[str]) -> list[str]:
    """The first few labels, as they can stand in a line of text."""
    return [quoted(label) for label in labels[:EXAMPLES]]


def quoted(label: str) -> str:
    return shortened(label, 120)


def triples_as_text(triples: Sequence[Triple]) -> list[str]:
    return [f"({', '.join(quoted(label) for label in triple)})" for triple in triples]


def _skipped(skipped: int) -> Finding:
    if not skipped:
        return finding_of("skipped", "ok", "no triple was left out on loading.")
    return finding_of(
        "skipped", "warning", f"{skipped:,} triples were left out on loading: scores are not comparable."
    )


def _degrees(graph: GraphStatistics) -> Finding:
    spread = graph.degree
    reading = (
        f"{graph.name}: degree median {spread.median:g}, mean {spread.mean:.1f}, 95 % up to {spread.p95:g}, "
        f"largest {spread.max:,.0f}; {graph.isolated:,} of {graph.entities:,} entities have no edge."
    )
    return finding_of("degrees", "note" if graph.isolated else "ok", reading)


def _components(graph: GraphStatistics) -> Finding:
    connected = graph.entities - graph.isolated
    outside = 1 - share(graph.largest_component, connected) if connected else 0.0
    severity = graded(outside, COMPONENT_NOTE, COMPONENT_WARNING)
    return finding_of(
        "components",
        severity,
        f"{graph.name}: {graph.components:,} connected components, the largest with "
        f"{out_of(graph.largest_component, connected)} entities.",
    )


def _self_loops(graph: GraphStatistics) -> Finding:
    reading = f"{graph.name}: {out_of(graph.self_loops, graph.triples)} facts link an entity to itself."
    return finding_of("self_loops", "note" if graph.self_loops else "ok", reading)


def _rare_relations(graph: GraphStatistics) -> Finding:
    rare = graph.rare_relations
    reading = f"{graph.name}: {out_of(len(rare), graph.relations)} relations have at most {RARE_FACTS} facts"
    hint = ": their statistics are anecdotes." if rare else "."
    return finding_of("rare_relations", "note" if rare else "ok", reading + hint, named(rare))


def _relation_sets(graph: GraphStatistics) -> Finding:
    size = graph.relation_set_size
    reading = (
        f"{graph.name}: {graph.relation_sets:,} distinct relation sets, median {size.median:g} relations, "
        f"largest {size.max:g}."
    )
    return finding_of("relation_sets", "ok", reading)


def _twin_relations(graph: GraphStatistics) -> Finding:
    reading = f"{graph.name}: {len(graph.twins):,} symmetric, inverse or duplicate pairs of relations."
    return finding_of(
        "twin_relations", "note" if graph.twins else "ok", reading, [twin_text(twin) for twin in graph.twins]
    )


def twin_text(twin: RelationTwin) -> str:
    if twin.kind == "symmetric":
        return f"{quoted(twin.relation)} is symmetric"
    sign = "inverse of " if twin.kind == "inverse" else ""
    return f"{quoted(twin.relation)} ~ {sign}{quoted(twin.other)}"
