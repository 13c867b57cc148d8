"""AuditReport: counts and findings as data, as text and as a picture."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from contextpool.errors import shortened
from contextpool.triples.audit.files import RawFile
from contextpool.triples.audit.findings import SEVERITIES, Finding, Severity, worst_of
from contextpool.triples.audit.graphs import GraphStatistics, RelationTwin, Spread
from contextpool.triples.audit.queries import MOST_HOPS, OverlapStatistics, QueryStatistics, share

SCHEMA = 1
TOP_RELATIONS = 10
TOP_TWINS = 10
HOPS_SHOWN = (1, 2, 3, 6)
TEXT_WIDTH = 110
EXAMPLES_SHOWN = 3
CELL_WIDTH = 61


@dataclass(frozen=True)
class Section:
    """One table of the report, ready to print: every cell is text."""

    key: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    text_columns: int = 1
    """The first so many columns are words and stand left; the others are numbers and stand right."""


@dataclass(frozen=True)
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
    skipped: int
    kept_share: float
    findings: tuple[Finding, ...]

    @property
    def worst(self) -> Severity:
        """The severity of the worst finding."""
        return worst_of(self.findings)

    @property
    def setting(self) -> str:
        """In words."""
        if self.inductive is None:
            return "one graph"
        return "inductive" if self.inductive else "transductive"

    @property
    def sections(self) -> tuple[Section, ...]:
        """The report as tables; those without a row are left out."""
        tables = [
            _findings_section(self.findings),
            _graphs_section(self.graphs),
            _held_out_section(self.held_out),
            *([_overlap_section(self.overlap)] if self.overlap and self.inductive else []),
            *(_frequency_section(graph) for graph in self.graphs),
            *(_twins_section(graph, bool(self.held_out)) for graph in self.graphs),
            _files_section(self.raw_files),
        ]
        return tuple(section for section in tables if section.rows)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain lists, dicts, strings and numbers: what `json.dumps` takes as it is."""
        content = {"schema": SCHEMA, "setting": self.setting, "worst": self.worst, **asdict(self)}
        plain = _plain(content)
        assert isinstance(plain, dict)
        return plain

    def to_text(self) -> str:
        """The report as aligned plain text: findings, worst first, then the tables."""
        head = f"Audit of {shortened(self.name)} ({self.setting}): worst finding {self.worst}"
        tables = [_table_text(section) for section in self.sections if section.key != "findings"]
        return "\n\n".join([head, _findings_text(self.findings), *tables]) + "\n"

    def save_plot(self, path: str | Path) -> None:
        """Draw degrees, relation frequency, relation sets and reach as .png or .svg; needs matplotlib."""
        from contextpool.triples.audit.plot import save_plot

        save_plot(self, Path(path))


def _plain(value: Any) -> Any:
    """Tuples as lists, so that what is read back from JSON is equal."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _worst_first(findings: Sequence[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: -SEVERITIES.index(finding.severity))


def _reading_with_examples(finding: Finding) -> str:
    if not finding.examples:
        return finding.reading
    return f"{finding.reading} E.g. {'; '.join(finding.examples[:EXAMPLES_SHOWN])}"


def _findings_section(findings: Sequence[Finding]) -> Section:
    rows = tuple((one.severity, one.key, _reading_with_examples(one)) for one in _worst_first(findings))
    return Section("findings", "Findings", ("severity", "finding", "reading"), rows, text_columns=3)


def _findings_text(findings: Sequence[Finding]) -> str:
    width = max((len(finding.key) for finding in findings), default=0)
    blocks = []
    for finding in _worst_first(findings):
        head = f"{finding.severity:<8} {finding.key:<{width}}  "
        reading = _reading_with_examples(finding)
        blocks.append(
            textwrap.fill(
                reading,
                TEXT_WIDTH,
                initial_indent=head,
                subsequent_indent=" " * len(head),
                break_long_words=False,
                break_on_hyphens=False,
            )
        )
    return "\n".join(blocks)


def _table_text(section: Section) -> str:
    table = [section.columns, *section.rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(section.columns))]
    lines = [section.title, "-" * len(section.title)]
    for row in table:
        cells = [
            cell.ljust(width) if column < section.text_columns else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _by_column(
    key: str, title: str, items: Sequence[Any], measures: Sequence[tuple[str, Callable[[Any], str]]]
) -> Section:
    """A table with one column per item and one row per measure."""
    rows = tuple((label, *(measure(item) for item in items)) for label, measure in measures) if items else ()
    return Section(key, title, ("", *(item.name for item in items)), rows)


def _graphs_section(graphs: Sequence[GraphStatistics]) -> Section:
    measures: list[tuple[str, Callable[[GraphStatistics], str]]] = [
        ("triples", lambda graph: f"{graph.triples:,}"),
        ("entities", lambda graph: f"{graph.entities:,}"),
        ("  without an edge", lambda graph: f"{graph.isolated:,}"),
        ("relations with a fact", lambda graph: f"{graph.relations:,}"),
        ("  rare ones", lambda graph: f"{len(graph.rare_relations):,}"),
        ("linked pairs", lambda graph: f"{graph.linked_pairs:,}"),
        ("  by several relations", lambda graph: f"{graph.parallel_pairs:,}"),
        ("self loops", lambda graph: f"{graph.self_loops:,}"),
        ("connected components", lambda graph: f"{graph.components:,}"),
        ("  entities in the largest", lambda graph: f"{graph.largest_component:,}"),
        ("degree: min / median / mean / p95 / max", lambda graph: _spread(graph.degree)),
        ("distinct relation sets", lambda graph: f"{graph.relation_sets:,}"),
        ("  size: min / median / mean / p95 / max", lambda graph: _spread(graph.relation_set_size)),
    ]
    return _by_column("graphs", "Graphs", graphs, measures)


def _spread(spread: Spread) -> str:
    numbers = (spread.min, spread.median, spread.mean, spread.p95, spread.max)
    return " / ".join(f"{number:,.1f}".removesuffix(".0") for number in numbers)


def _held_out_section(parts: Sequence[QueryStatistics]) -> Section:
    counts: list[tuple[str, Callable[[QueryStatistics], int]]] = [
        ("in the graph (leaked)", lambda part: part.in_graph),
        ("trained on", lambda part: part.trained_on),
        ("selected on", lambda part: part.selected_on),
        ("edge head to tail", lambda part: part.direct),
        ("edge tail to head", lambda part: part.reverse),
        ("  by the same relation", lambda part: part.reverse_same),
        ("  by an inverse twin", lambda part: part.by_inverse),
        ("edge by a duplicate twin", lambda part: part.by_duplicate),
        ("relation without training fact", lambda part: part.unseen_relation),
        ("  nor training query", lambda part: part.untrained_relation),
        ("head or tail without edge", lambda part: part.without_edge),
    ]
    measures: list[tuple[str, Callable[[QueryStatistics], str]]] = [
        ("asked over", lambda part: part.graph),
        ("triples", lambda part: f"{part.queries:,}"),
        *((label, _with_share(count)) for label, count in counts),
        ("looked at for reach", lambda part: f"{part.sample:,}"),
        *((f"  within {hop} hop{'s' if hop > 1 else ''}", _reach_at(hop)) for hop in HOPS_SHOWN),
        ("connected at all", lambda part: f"{part.connected:.1%}"),
    ]
    return _by_column("held_out", "Held-out triples", parts, measures)


def _with_share(count: Callable[[QueryStatistics], int]) -> Callable[[QueryStatistics], str]:
    return lambda part: f"{count(part):,} ({share(count(part), part.queries):.1%})"


def _reach_at(hop: int) -> Callable[[QueryStatistics], str]:
    assert 1 <= hop <= MOST_HOPS
    return lambda part: f"{part.within[hop - 1]:.1%}"


def _overlap_section(overlap: OverlapStatistics) -> Section:
    rows = (
        ("entities in both graphs", f"{overlap.shared_entities:,}"),
        ("  of the inference graph's", f"{overlap.share_of_inference:.2%}"),
        ("facts in both graphs", f"{overlap.shared_facts:,}"),
        ("triples in inference valid and test", f"{overlap.valid_in_test:,}"),
        ("inference relations without training fact", f"{len(overlap.new_relations):,}"),
        ("  inference facts that use them", f"{overlap.new_relation_facts:,}"),
    )
    return Section("overlap", "Overlap of the two sides", ("", "count"), rows)


def _frequency_section(graph: GraphStatistics) -> Section:
    shown = graph.relation_frequency[:TOP_RELATIONS]
    rows = tuple((_cell(label), f"{count:,}", f"{share(count, graph.triples):.1%}") for label, count in shown)
    title = f"Most frequent relations, {graph.name} ({len(shown)} of {graph.relations:,})"
    return Section(f"frequency of {graph.name}", title, ("relation", "facts", "share"), rows)


def _twins_section(graph: GraphStatistics, has_queries: bool) -> Section:
    rows = tuple(_twin_row(twin) for twin in graph.twins[:TOP_TWINS])
    shown = f"{len(rows)} of {len(graph.twins):,}"
    where = f"{graph.name} with its held-out triples" if has_queries else graph.name
    title = f"Relations that mirror each other, {where} ({shown})"
    columns = ("kind", "relation", "other", "pairs", "share", "of other")
    return Section(f"twins of {graph.name}", title, columns, rows, text_columns=3)


def _twin_row(twin: RelationTwin) -> tuple[str, ...]:
    names = (twin.kind, _cell(twin.relation), "itself" if twin.kind == "symmetric" else _cell(twin.other))
    return (*names, f"{twin.matched:,}", f"{twin.share:.1%}", f"{twin.share_of_other:.1%}")


def _cell(label: str) -> str:
    """A label as it fits a table: quoted; a long one keeps its start and its end, which tells it apart."""
    quoted = repr(label)
    half = (CELL_WIDTH - 1) // 2
    return quoted if len(quoted) <= CELL_WIDTH else f"{quoted[:half]}…{quoted[-half:]}"


def _files_section(files: Sequence[RawFile]) -> Section:
    rows = tuple(
        (file.path, f"{file.triples:,}", f"{file.duplicates:,}", f"{file.repeated_elsewhere:,}")
        for file in files
    )
    return Section("files", "Raw files", ("file", "triples", "repeated lines", "also in another file"), rows)
