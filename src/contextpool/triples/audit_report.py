"""AuditReport: what was counted in a dataset and what it means for a benchmark, as data and as text."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from contextpool.errors import shortened
from contextpool.notebook import frame_of, html_text
from contextpool.triples.store import Triple

Severity = Literal["ok", "note", "warning"]
TwinKind = Literal["symmetric", "inverse", "duplicate"]
SEVERITIES: tuple[Severity, ...] = ("ok", "note", "warning")

EXAMPLES = 5
TEXT_WIDTH = 110

# Thresholds, each a share: where a finding becomes a note and where a warning.
ENTITY_OVERLAP = (0.0, 0.01)  # of the inference graph's entities
EASY = (0.1, 0.5)  # of the queries: one edge between head and tail gives them away
TWINS = (0.0, 0.1)  # of the queries: a twin relation answers them
OUT_OF_REACH = (0.05, 0.2)  # of the answers: six hops do not reach them


@dataclass(frozen=True)
class RelationTwin:
    """Two relations that hold between (nearly) the same pairs. Self loops do not count."""

    kind: TwinKind  # symmetric: its own inverse; inverse: the pairs turned round; duplicate: the same pairs
    relation: str
    other: str
    matched: int  # pairs of `relation` that `other` mirrors
    share: float  # ... out of all pairs of `relation`
    share_of_other: float

    def __str__(self) -> str:
        relation, other = shortened(self.relation, 120), shortened(self.other, 120)
        if self.kind == "symmetric":
            return f"{relation} is symmetric"
        return f"{relation} ~ {'inverse of ' if self.kind == 'inverse' else ''}{other}"


@dataclass(frozen=True)
class GraphStatistics:
    """One graph, counted. Entities are those of its vocabulary, so some may have no edge."""

    name: str
    triples: int
    entities: int
    isolated: int
    """Entities without an edge: they can only ever be wrong candidates, or questions without evidence."""
    relations: int  # relations with a fact
    twins: tuple[RelationTwin, ...]
    """Twin relations, found among all triples of this side (held-out ones too), most pairs first."""


@dataclass(frozen=True)
class QueryStatistics:
    """Held-out triples against the graph that they are asked over. Counts are of triples."""

    name: str
    queries: int
    in_graph: int  # leaked: the triple itself is a fact of that graph
    trained_on: int  # the same triple, by its labels, is a fact or a query of training
    selected_on: int  # the same triple, by its labels, is a query that models are selected on
    direct: int  # some relation leads from head to tail in the graph
    reverse: int  # some relation leads from tail to head
    by_inverse: int  # the reverse fact is there with a relation known to be the inverse twin (or symmetric)
    by_duplicate: int  # the fact is there with a relation known to be a duplicate
    without_edge: int  # head or tail has no edge in the graph
    sample: int  # triples on which `within` was measured
    within: tuple[float, ...]
    """[6] share of the answers at most 1, ..., 6 hops from the head; the same in both directions."""
    connected: float  # share of the answers that any number of hops reaches; of all triples, not of a sample
    leaked_examples: tuple[Triple, ...]
    trained_examples: tuple[Triple, ...]


@dataclass(frozen=True)
class OverlapStatistics:
    """What the two sides share, by label."""

    shared_entities: int  # entities with an edge in both graphs
    share_of_inference: float  # ... out of the entities with an edge in the inference graph
    entity_examples: tuple[str, ...]
    shared_facts: int
    valid_in_test: int  # triples that are both in the inference side's valid and in its test


@dataclass(frozen=True)
class RawFile:
    """The lines of one triple file before duplicates are dropped."""

    path: str
    triples: int  # lines that hold a triple
    duplicates: int  # ... that repeat an earlier line of the file
    repeated_elsewhere: int
    """Distinct triples that another file of the folder holds too: train.txt against valid.txt, say."""


@dataclass(frozen=True)
class Finding:
    """The answer to one question, with what it means for a benchmark."""

    key: str  # stable name of the question
    severity: Severity
    reading: str  # one line: the count, and what it means
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, repr=False)
class AuditReport:
    """What a careful reviewer would ask about a dataset or a graph, answered."""

    name: str
    inductive: bool | None
    """None for the audit of one graph alone."""
    graphs: tuple[GraphStatistics, ...]
    held_out: tuple[QueryStatistics, ...]
    """Parts of the dataset, in the order of their use; the last is what is evaluated in the end."""
    overlap: OverlapStatistics | None
    raw_files: tuple[RawFile, ...]
    findings: tuple[Finding, ...]

    @property
    def worst(self) -> Severity:
        """The severity of the worst finding; ok where there are none."""
        return max((finding.severity for finding in self.findings), key=SEVERITIES.index, default="ok")

    @property
    def setting(self) -> str:
        """In words."""
        if self.inductive is None:
            return "one graph"
        return "inductive" if self.inductive else "transductive"

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain lists, dicts, strings and numbers: what `json.dumps` takes as it is."""
        content = {"schema": 2, "setting": self.setting, "worst": self.worst, **asdict(self)}
        plain: dict[str, Any] = json.loads(json.dumps(content))  # tuples as lists, as they are read back
        return plain

    def __repr__(self) -> str:
        return (
            f"<AuditReport of {shortened(self.name)}: {len(self.findings)} findings, the worst {self.worst}>"
        )

    def _repr_html_(self) -> str:
        return html_text(self.to_text())

    def to_frame(self) -> Any:
        """The findings as a pandas DataFrame; needs pandas (extra `frame`)."""
        return frame_of(
            [asdict(finding) for finding in self.findings], ("key", "severity", "reading", "examples")
        )

    def to_text(self) -> str:
        """The report as aligned plain text: findings, worst first, then the counts."""
        head = f"Audit of {shortened(self.name)} ({self.setting}): worst finding {self.worst}"
        tables = [_table("Graphs", self.graphs, ("triples", "entities", "isolated", "relations"))]
        if self.held_out:
            counts = (
                "in_graph",
                "trained_on",
                "selected_on",
                "direct",
                "reverse",
                "by_inverse",
                "by_duplicate",
            )
            tables.append(_table("Held-out triples", self.held_out, ("queries", *counts, "without_edge")))
        return "\n\n".join([head, _findings_text(self.findings), *tables]) + "\n"


def _table(title: str, items: Sequence[Any], fields: Sequence[str]) -> str:
    """One column per item and one row per field."""
    rows = [["", *(item.name for item in items)]]
    rows += [[field.replace("_", " "), *(f"{getattr(item, field):,}" for item in items)] for field in fields]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [title, "-" * len(title)]
    for label, *cells in rows:
        numbers = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
        lines.append("  ".join([label.ljust(widths[0]), *numbers]))
    return "\n".join(lines)


def _findings_text(findings: Sequence[Finding]) -> str:
    width = max(len(finding.key) for finding in findings)
    blocks = []
    for finding in sorted(findings, key=lambda one: -SEVERITIES.index(one.severity)):
        head = f"{finding.severity:<8} {finding.key:<{width}}  "
        reading = finding.reading + (f" E.g. {'; '.join(finding.examples[:3])}" if finding.examples else "")
        wrapped = textwrap.wrap(
            reading, TEXT_WIDTH - len(head), break_long_words=False, break_on_hyphens=False
        )
        blocks.append(head + ("\n" + " " * len(head)).join(wrapped))
    return "\n".join(blocks)


# -- findings


def judge_graph(graph: GraphStatistics) -> list[Finding]:
    """The findings of one graph without queries."""
    reading = f"{graph.name}: {len(graph.twins):,} symmetric, inverse or duplicate pairs of relations."
    return [_finding("twin_relations", "note" if graph.twins else "ok", reading, map(str, graph.twins))]


def judge_dataset(
    inductive: bool,
    graphs: Sequence[GraphStatistics],
    parts: Sequence[QueryStatistics],
    overlap: OverlapStatistics,
) -> list[Finding]:
    """The findings of a dataset. The last of `parts` is what is evaluated in the end."""
    return [
        *_overlap(overlap, inductive),
        *_leakage(parts, overlap),
        *_shortcuts(parts[-1]),
        *_twins([twin for graph in graphs for twin in graph.twins], parts[-1]),
        _reach(parts[-1]),
    ]


def judge_loading(skipped: int, kept_share: float, files: Sequence[RawFile]) -> list[Finding]:
    """What was lost between the files and the dataset; duplicate lines, where files were looked at."""
    findings = [_finding("skipped", "ok", "no triple was left out on loading.")]
    if skipped:
        reading = f"{skipped:,} triples were left out on loading: scores are not comparable."
        findings = [_finding("skipped", "warning", reading)]
    if kept_share < 1:
        reading = f"{kept_share:.1%} of the original graph's triples are left after it was split in two."
        findings.append(_finding("kept_share", "note", reading))
    if files:
        lines, total = sum(file.duplicates for file in files), sum(file.triples for file in files)
        repeated = [f"{file.path}: {file.duplicates:,}" for file in files if file.duplicates]
        shared = [f"{file.path}: {file.repeated_elsewhere:,}" for file in files if file.repeated_elsewhere]
        within = f"{lines:,} of {total:,} lines repeat a line of their file, and are read once."
        across = f"{len(shared)} of {len(files)} files share triples with another file of their folder."
        findings.append(_finding("duplicate_lines", "note" if lines else "ok", within, repeated))
        findings.append(_finding("lines_in_two_files", "warning" if shared else "ok", across, shared))
    return findings


def _overlap(overlap: OverlapStatistics, inductive: bool) -> list[Finding]:
    count, part = overlap.shared_entities, overlap.share_of_inference
    if not inductive:
        expected = f"{count:,} entities in both sides, as expected: it is transductive."
        return [_finding("entity_overlap", "ok", expected)]
    entities = f"{count:,} entities ({part:.2%} of the inference graph's) are in both graphs"
    meaning = ": for them the test is not inductive." if count else ": fully inductive."
    facts = f"{overlap.shared_facts:,} facts of the inference graph are facts of the training graph."
    examples = [shortened(label, 120) for label in overlap.entity_examples]
    return [
        _finding("entity_overlap", _graded(part, *ENTITY_OVERLAP), entities + meaning, examples),
        _finding("fact_overlap", "note" if overlap.shared_facts else "ok", facts),
    ]


def _leakage(parts: Sequence[QueryStatistics], overlap: OverlapStatistics) -> list[Finding]:
    evaluation, asked = parts[-1], [part for part in parts if part.name != "training valid"]
    leaked, trained = _each_part(parts, "in_graph"), _each_part(asked, "trained_on")
    in_graph = "no held-out triple is a fact of the graph it is asked over."
    trained_on = "no selection or evaluation query is a training triple."
    selected_on = f"{_out_of(evaluation.selected_on, evaluation.queries)} evaluation queries are selected on"
    if leaked:
        in_graph = f"held-out triples are facts of the graph they are asked over: {leaked}. Looking them up is enough."
    if trained:
        trained_on = f"training triples come back as queries: {trained}. Scores on them measure memory."
    if overlap.valid_in_test:
        selected_on += (
            f"; {overlap.valid_in_test:,} triples are in the inference side's valid and in its test"
        )
    severity: Severity = "warning" if evaluation.selected_on else "note" if overlap.valid_in_test else "ok"
    leaked_examples = _as_text(example for part in parts for example in part.leaked_examples)
    trained_examples = _as_text(example for part in asked for example in part.trained_examples)
    return [
        _finding("leakage", "warning" if leaked else "ok", in_graph, leaked_examples),
        _finding("trained_on", "warning" if trained else "ok", trained_on, trained_examples),
        _finding("selected_on", severity, f"{selected_on}."),
    ]


def _shortcuts(part: QueryStatistics) -> list[Finding]:
    findings = []
    for key, count, way, hint in (
        ("direct_edges", part.direct, "head to tail", "a model must not be trained to ignore such edges"),
        ("reverse_pairs", part.reverse, "tail to head", "turning edges round is a baseline to report"),
    ):
        severity = _graded(share(count, part.queries), *EASY)
        reading = f"{_out_of(count, part.queries)} evaluation queries have an edge from {way}"
        findings.append(_finding(key, severity, f"{reading}{'' if severity == 'ok' else f': {hint}'}."))
    return findings


def _twins(twins: Sequence[RelationTwin], part: QueryStatistics) -> list[Finding]:
    findings = []
    for key, found, given, what in (
        (
            "inverse_relations",
            [twin for twin in twins if twin.kind != "duplicate"],
            part.by_inverse,
            "relations or pairs of relations are symmetric or inverse; turning one edge round",
        ),
        (
            "duplicate_relations",
            [twin for twin in twins if twin.kind == "duplicate"],
            part.by_duplicate,
            "pairs of relations hold between (nearly) the same entities; copying one edge",
        ),
    ):
        names = list(dict.fromkeys(map(str, found)))
        reading = f"{len(names):,} {what} gives {_out_of(given, part.queries)} evaluation answers away."
        severity = _graded(share(given, part.queries), *TWINS)
        findings.append(_finding(key, "note" if names and severity == "ok" else severity, reading, names))
    return findings


def _reach(part: QueryStatistics) -> Finding:
    if not part.queries:
        return _finding("reach", "warning", "there is nothing to evaluate on.")
    sampled = f" (of {part.sample:,} sampled ones)" if part.sample < part.queries else ""
    reading = (
        f"{part.within[2]:.1%} of the evaluation answers lie within 3 hops of the head, {part.within[5]:.1%} within "
        f"6{sampled}, {part.connected:.1%} at any distance: the ceiling of a model with as many layers. "
        f"{_out_of(part.without_edge, part.queries)} queries name an entity without an edge."
    )
    return _finding("reach", _graded(1 - part.within[5], *OUT_OF_REACH), reading)


def _finding(key: str, severity: Severity, reading: str, examples: Iterable[str] = ()) -> Finding:
    return Finding(key, severity, reading, tuple(examples)[:EXAMPLES])


def _graded(value: float, note: float, warning: float) -> Severity:
    """How severe a share is; 0 is always ok."""
    return "ok" if not value else "warning" if value >= warning else "note" if value >= note else "ok"


def share(count: int, total: int) -> float:
    """The part that count is of total; 0 out of 0 reads 0."""
    return count / total if total else 0.0


def _out_of(count: int, total: int) -> str:
    """As in: 3 of 492 (0.6%)."""
    return f"{count:,} of {total:,} ({share(count, total):.1%})"


def _each_part(parts: Sequence[QueryStatistics], field: str) -> str:
    """As in: selection 3 of 492 (0.6%), inference test 1 of 205 (0.5%). Parts without any are left out."""
    counts = [(part, getattr(part, field)) for part in parts]
    return ", ".join(f"{part.name} {_out_of(count, part.queries)}" for part, count in counts if count)


def _as_text(triples: Iterable[Triple]) -> list[str]:
    return [f"({', '.join(shortened(x, 120) for x in triple)})" for triple in dict.fromkeys(triples)]
