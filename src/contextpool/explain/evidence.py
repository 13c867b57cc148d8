"""What an explanation says, as plain values that JSON can hold."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, Literal

from contextpool.triples.labels import INVERSE_SUFFIX
from contextpool.triples.store import Triple

if TYPE_CHECKING:
    from torch_geometric.explain import Explanation as PyGExplanation

    from contextpool.graph.graph import Graph

Method = Literal["gradient", "removal"]


@dataclass(frozen=True)
class Path:
    """A walk from the entity that the question names to the answer."""

    edges: tuple[Triple, ...]
    """(from, relation, to) in the order they are walked; a fact walked backwards is `r^-1`."""
    weight: float
    """Share of the strength of all paths that are listed, in [0, 1]."""
    strength: float
    """What the path adds to the score: the smallest of what its edges add, as a chain is as strong as that."""
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
    """Of the entities having it, how many have the relation asked for."""
    recall: float
    """Of the entities having the relation asked for, how many have it."""
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


@dataclass(frozen=True)
class Explanation:
    """Why an entity answers a question."""

    head: str
    relation: str
    tail: str
    asked: Literal["tail", "head"]
    """Which of the two is the answer."""
    score: float
    probability: float | None
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
    names: dict[str, str] = field(default_factory=dict)
    """What people call the labels that occur here, as far as known."""

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
        """As JSON holds it."""
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
        from contextpool.explain.text import as_text

        return as_text(self)

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
