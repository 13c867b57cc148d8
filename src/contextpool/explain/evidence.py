"""An explanation as plain values that JSON can hold, and as a few lines of text."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, Literal

from contextpool.errors import MissingExtraError
from contextpool.notebook import html_text
from contextpool.triples.labels import INVERSE_SUFFIX
from contextpool.triples.store import Triple

if TYPE_CHECKING:
    from torch_geometric.explain import Explanation as PyGExplanation

    from contextpool.graph.graph import Graph

Method = Literal["gradient", "removal"]
SHOWN = 5
"""Relations that the text lists of the context and of what was dropped."""


@dataclass(frozen=True)
class Path:
    """A walk from the entity that the question names to the answer."""

    edges: tuple[Triple, ...]
    """(from, relation, to) in the order they are walked; a fact walked backwards is `r^-1`."""
    weight: float
    """Share of the strength of all paths that are listed, in [0, 1]."""
    strength: float
    """What the path adds to the score: as much as its weakest edge does."""
    drop: float
    """How much the score falls when the edges of the path are taken out of the graph."""

    @property
    def pattern(self) -> tuple[str, ...]:
        """The relations alone: what another entity has to be reached by to have the same evidence."""
        return tuple(relation for _, relation, _ in self.edges)


@dataclass(frozen=True)
class ContextRelation:
    """A relation that is logically relevant to the one asked for (Definitions 5, 6)."""

    relation: str
    precision: float
    """The share of entities with this relation that also have the relation asked for."""
    recall: float
    """The share of entities with the relation asked for that also have this one."""
    facts: int
    """How many facts of it the entity has that the question names."""
    gate: float | None = None
    """What the model multiplies its messages with; None where it has no gate."""


@dataclass(frozen=True)
class DroppedRelation:
    """Facts of a relation within reach of the model that the pooled graph does not hold."""

    relation: str
    dropped: int
    kept: int


@dataclass(frozen=True)
class CandidateRelevance:
    """How much the answer looks like something that the relation points to."""

    relevance: float
    """In [0, 1]."""
    relation: str | None
    """The relation of the answer that says so most; None where it has none that does."""


@dataclass(frozen=True)
class Rival:
    """The best other answer that the graph does not hold."""

    entity: str
    score: float
    probability: float | None
    margin: float
    """The answer's score less the rival's; negative where the rival comes first."""
    lacks: tuple[tuple[str, ...], ...]
    """Patterns of the answer's paths that do not lead to the rival."""
    shares: tuple[tuple[str, ...], ...]
    """Patterns that lead to both."""


@dataclass(frozen=True, repr=False)
class Explanation:
    """Why an entity answers a question."""

    head: str
    relation: str
    tail: str
    asked: Literal["tail", "head"]
    """Which of the two is the answer."""
    score: float
    probability: float | None
    """That this fact holds; None without a calibration."""
    rank: float
    """Among the answers that the graph does not hold; ties share their mean rank."""
    candidates: int
    known: bool
    """Whether the graph holds the fact; if so, everything here is as if it did not."""
    method: Method
    """How the strength of edges was found: integrated gradients, or by taking them out one by one."""
    paths: tuple[Path, ...]
    score_without: float
    """The score when the edges of all these paths are taken out of the graph."""
    context: tuple[ContextRelation, ...]
    """Relations kept for the relation asked for, most precise first."""
    dropped: tuple[DroppedRelation, ...]
    """What pooling leaves out, most facts first."""
    pooled: bool
    """Whether the model itself walks the pooled graph; if not, it is that of min_precision 0.1, for comparison."""
    candidate: CandidateRelevance
    rival: Rival | None
    """None where there is no other candidate."""
    share: float | None = None
    """That it is the one, if there is one more answer than the graph holds."""
    names: dict[str, str] = field(default_factory=dict)
    """The known names of the labels that occur here."""

    @property
    def answer(self) -> str:
        return self.tail if self.asked == "tail" else self.head

    @property
    def given(self) -> str:
        """The entity that the question names, where all paths start."""
        return self.head if self.asked == "tail" else self.tail

    @property
    def question(self) -> str:
        """Such as (Belarus, currency, ?), by name."""
        head, relation, tail = (self.shown(label) for label in (self.head, self.relation, self.tail))
        return f"({head}, {relation}, ?)" if self.asked == "tail" else f"(?, {relation}, {tail})"

    def shown(self, label: str) -> str:
        """The name of a label, or the label itself where it has none; `r^-1` is named after `r`."""
        bare = label.removesuffix(INVERSE_SUFFIX)
        return self.names.get(label) or self.names.get(bare, bare) + label[len(bare) :]

    def to_dict(self) -> dict[str, Any]:
        """A JSON object."""
        values = asdict(self)
        values["paths"] = [
            {**asdict(path), "edges": [list(edge) for edge in path.edges]} for path in self.paths
        ]
        plain: dict[str, Any] = json.loads(json.dumps({"answer": self.answer, **values}, allow_nan=False))
        return plain

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=2, allow_nan=False)

    def text(self) -> str:
        """For people: a few lines without markup."""
        return "\n".join(_lines(self))

    def __repr__(self) -> str:
        return f"<Explanation of {self.question} {self.shown(self.answer)}: {_standing(self)}, {len(self.paths)} paths>"

    def _repr_html_(self) -> str:
        """The drawing, where the extra `plot` is there, above the text."""
        from contextpool.explain.picture import rendered

        try:
            image = b64encode(rendered(self, "svg")).decode()
            drawing = f'<img style="max-width:100%" src="data:image/svg+xml;base64,{image}">'
        except MissingExtraError:
            drawing = ""
        return f"<div>{drawing}{html_text(self.text())}</div>"

    def to_pyg(self, graph: Graph, *, inverse: Literal["offset", "none"] = "offset") -> PyGExplanation:
        """As `torch_geometric.explain.Explanation`, a mask over the edges of `graph.to_pyg()`. Extra: `pyg`."""
        from contextpool.interop.pyg import explanation_to_pyg

        return explanation_to_pyg(self, graph, inverse=inverse)

    def figure(self) -> Any:
        """The paths as a matplotlib Figure; needs the extra `plot`."""
        from contextpool.explain.picture import draw

        return draw(self)

    def save(self, path: str | FilePath) -> None:
        """Write the picture whole or not at all; .svg or .png by suffix."""
        from contextpool.explain.picture import save

        save(self, FilePath(path))


def _lines(explanation: Explanation) -> Iterator[str]:
    yield f"{explanation.question}  {explanation.shown(explanation.answer)}: {_standing(explanation)}"
    if explanation.known:
        yield "The graph holds this fact; it was hidden, so that it is no evidence for itself."
    yield _because(explanation)
    for path in explanation.paths:
        yield f"  {path.weight:4.0%}  {walked(explanation, path)}"
    yield from notes(explanation)


def notes(explanation: Explanation) -> Iterator[str]:
    """The notes below the paths: one line each about context, pooling and the rival."""
    yield _note("context", _context(explanation))
    yield _note("pooling", _dropped(explanation))
    if explanation.rival is not None:
        yield _note("rival", [_rival(explanation, explanation.rival)])


def percent(value: float) -> str:
    """In whole percent; what is not nothing never reads as 0%."""
    return "<1%" if 0 < value < 0.005 else f"{value:.0%}"


def _standing(explanation: Explanation) -> str:
    chance = "" if explanation.probability is None else f", probability {percent(explanation.probability)}"
    return f"rank {explanation.rank:g} of {explanation.candidates:,}{chance}, score {explanation.score:.2f}"


def _because(explanation: Explanation) -> str:
    if not explanation.paths:
        return f"no path within the model's reach leads from {explanation.shown(explanation.given)} to it"
    return f"because (without these paths the score is {explanation.score_without:.2f})"


def walked(explanation: Explanation, path: Path) -> str:
    """Such as: Belarus <-located_in- Minsk -pays_in-> Belarusian Ruble."""
    return walk_text(path.edges, explanation.shown)


def walk_text(edges: Sequence[Triple], shown: Callable[[str], str]) -> str:
    """A walk along edges, by the names of labels."""
    steps = [shown(edges[0][0])]
    for _, relation, to in edges:
        steps += [arrow(shown(relation)), shown(to)]
    return " ".join(steps)


def arrow(relation: str) -> str:
    """A relation as it is walked: forwards, or backwards for `r^-1`."""
    bare = relation.removesuffix(INVERSE_SUFFIX)
    return f"-{bare}->" if bare == relation else f"<-{bare}-"


def _context(explanation: Explanation) -> list[str]:
    listed = [
        f"{explanation.shown(one.relation)} (precision {one.precision:.2f}, recall {one.recall:.2f})"
        for one in explanation.context[:SHOWN]
    ]
    return [*listed, *_more(len(explanation.context))] or ["no relation is relevant to the one asked for"]


def _dropped(explanation: Explanation) -> list[str]:
    listed = [
        f"{explanation.shown(one.relation)} ({one.dropped:,} of {one.dropped + one.kept:,} facts)"
        for one in explanation.dropped[:SHOWN]
    ]
    start = "drops " if explanation.pooled else "is not used by this model; it would drop "
    return [start + "; ".join([*listed, *_more(len(explanation.dropped))] or ["nothing"])]


def _more(count: int) -> list[str]:
    return [f"{count - SHOWN} more"] if count > SHOWN else []


def _rival(explanation: Explanation, rival: Rival) -> str:
    chance = "" if rival.probability is None else f" (probability {percent(rival.probability)})"
    where = "ahead" if rival.margin < 0 else "behind"
    start = f"{explanation.shown(rival.entity)}{chance}, {where} by {abs(rival.margin):.2f}"
    if rival.lacks:
        return f"{start}; no way there by {_patterns(explanation, rival.lacks)}"
    return f"{start}; all of these patterns lead there too" if rival.shares else start


def _patterns(explanation: Explanation, patterns: Sequence[Sequence[str]]) -> str:
    shown = [" ".join(arrow(explanation.shown(relation)) for relation in pattern) for pattern in patterns]
    return " or ".join(shown)


def _note(title: str, items: Iterable[str]) -> str:
    return f"{title:8} {'; '.join(items)}"
