"""How plausible claims are: given ones, or the facts of the graph itself, each hidden from itself.

A claim is asked for its tail and for its head. Where it stands becomes a probability by a fit on the graph at hand
(`evaluate.claims`): that of a claim which is as likely to be a fact as a fact with one end swapped. Evidence is looked
for only where it is shown. About 250 bytes a claim are held, whatever the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from contextpool.errors import ConfigError, DataError, spoken
from contextpool.evaluate.claims import standing_of
from contextpool.evaluate.own_facts import Rows, questions_at_once
from contextpool.explain.against import lacking, told_against
from contextpool.explain.evidence import walked
from contextpool.explain.explainer import explain_answer, statistics_of
from contextpool.graph.graph import Graph
from contextpool.graph.mapped import MappedGraph
from contextpool.graph.relations import inverse
from contextpool.notebook import frame_of, html_table
from contextpool.predict.answers import percent
from contextpool.predict.fitted import FACTS_ON_DEMAND, facts_at_first
from contextpool.predict.names import NO_NAMES, Names, Resolver
from contextpool.triples.store import Triple

if TYPE_CHECKING:
    from contextpool.predict.predictor import Predictor

Progress = Callable[[str, int, int], None]
"""Called with (stage, done, in all)."""
SHOWN_EVIDENCE = 10
COLUMNS = (
    "head",
    "relation",
    "tail",
    "probability",
    "tail_rank",
    "head_rank",
    "known",
    "evidence",
    "against",
    "error",
)


@dataclass(frozen=True)
class Verdict:
    """How plausible one claim is."""

    head: str
    relation: str
    tail: str
    probability: float | None
    """That it is a fact, if it is as likely to be one as to be a fact with one end swapped. None for an error."""
    tail_rank: float | None
    """Of the tail among the answers to (head, relation, ?) that the graph does not hold; ties share their mean rank."""
    head_rank: float | None
    """Of the head among the answers to (?, relation, tail)."""
    known: bool
    """Whether the graph holds it; if so, everything here is as if it did not."""
    evidence: str | None = None
    """The strongest path from head to tail; None where there is none, or none was looked for."""
    against: tuple[str, ...] = ()
    """What speaks against it, in words; empty where nothing was looked for."""
    error: str | None = None
    """Why nothing can be said, such as an unknown name."""

    def to_dict(self) -> dict[str, Any]:
        """A JSON object; an error is left out where there is none."""
        values = {**asdict(self), "against": list(self.against)}
        return values if self.error is not None else {key: values[key] for key in values if key != "error"}


def probability_in_words() -> str:
    """What the probability of a claim is, and that the one of an answer is another one."""
    ask = spoken("predict", "ask")
    asked = f"{ask} picks from all candidates and gives another number."
    return f"Probability: if claims were as often true as false; {asked}"


class Verdicts(list[Verdict]):
    """A list, and how many facts of the graph its probabilities rest on."""

    def __init__(self, verdicts: Iterable[Verdict], fitted_on: int, checked: int) -> None:
        super().__init__(verdicts)
        self.fitted_on, self.checked = fitted_on, checked

    def to_frame(self) -> Any:
        """A pandas DataFrame, a row a claim; needs pandas."""
        return frame_of(rows_of(self), COLUMNS)

    def __repr__(self) -> str:
        told = [f"({one.head}, {one.relation}, {one.tail}) {percent(one.probability)}" for one in self[:3]]
        more = [f"{len(self) - 3:,} more"] if len(self) > 3 else []
        return f"<{len(self):,} of {self.checked:,} claims checked: {', '.join([*told, *more])}>"

    def _repr_html_(self) -> str:
        rows = ([row[column] for column in COLUMNS] for row in rows_of(self))
        below = f"{probability_in_words()} It rests on {self.fitted_on:,} facts of the graph."
        return html_table(COLUMNS, rows, below=below)


@dataclass(frozen=True, eq=False)
class Checked:
    """Claims as numbers: rows of a table that are made into words when they are wanted."""

    rows: Rows
    """[n, 3] by the graph's ids; the relation in [0, R)."""
    rank: npt.NDArray[np.float64]
    """[2, n] of the tails, of the heads."""
    probability: npt.NDArray[np.float64]
    """[n]"""
    known: npt.NDArray[np.bool_]
    """[n] whether the graph holds it."""
    fitted_on: int

    def least_supported(self) -> npt.NDArray[np.int64]:
        """[n] places, the least plausible claim first; ties in the order of the claims."""
        return np.argsort(self.probability, kind="stable")


class Checking:
    """A model on a prepared graph, asked how plausible claims are."""

    def __init__(self, predictor: Predictor, graph: Graph, names: Names | None = None) -> None:
        if isinstance(graph, MappedGraph):
            raise ConfigError(
                "check: this is a mapped graph, and a claim is compared with every entity of the whole graph. Check a "
                "file of the graph, or of a part of it."
            )
        self.predictor, self.graph, self.names = predictor, graph, names or NO_NAMES

    # claims

    @cached_property
    def own_facts(self) -> Rows:
        """[T, 3] every fact of the graph."""
        return self.graph.as_triples().ids

    def resolve(
        self, triples: Iterable[Sequence[str]], where: str = "claim", skip: bool = False
    ) -> tuple[Rows, list[str | None], list[Triple]]:
        """Claims [n, 3] by id, what is wrong with each, and their labels.

        An unknown name is an error that tells all of them, or with `skip` a row of -1 and its message. `r^-1` turns a
        claim round.
        """
        resolver = self._resolver()
        rows, errors, labels = [], [], []
        for number, triple in enumerate(triples, start=1):
            if isinstance(triple, str) or len(triple) != 3 or not all(isinstance(one, str) for one in triple):
                raise DataError(
                    f"{where} {number}: {triple!r} is not a (head, relation, tail) triple of labels."
                )
            head, relation, tail = triple
            before = len(resolver.problems)
            place = f"{where} {number}"
            ids = (
                resolver.entity(head, place),
                resolver.relation(relation, place),
                resolver.entity(tail, place),
            )
            problems = resolver.problems[before:]
            errors.append(
                " ".join(resolver.message(replace(one, where="")) for one in problems) if skip else None
            )
            rows.append(self._forward(*ids) if not problems else (-1, -1, -1))
            labels.append((head, relation, tail))
            if skip:
                resolver.problems.clear()
        resolver.check("To check the others: --on-unknown skip (on_unknown='skip')." if len(rows) > 1 else "")
        if not rows:
            raise DataError("check: there are no claims. Give (head, relation, tail) triples, or none at all for "
                            "the facts of the graph itself.")  # fmt: skip
        return np.array(rows, dtype=np.int64), [error or None for error in errors], labels

    def _resolver(self) -> Resolver:
        return Resolver(self.graph.entity_vocabulary, self.predictor.relations_for(self.graph), self.names)

    def _forward(self, head: int, relation: int, tail: int) -> tuple[int, int, int]:
        count = self.graph.num_relations
        return (head, relation, tail) if relation < count else (tail, inverse(relation, count), head)

    # verdicts

    def check(self, rows: Rows, progress: Progress | None = None) -> Checked:
        """Where claims [n, 3] stand, and how plausible that makes them; what is claimed twice is asked once."""
        every = rows is self.own_facts
        claims, place = (
            (rows, np.arange(len(rows))) if every else np.unique(rows, axis=0, return_inverse=True)
        )
        model, builder = self.predictor.model, self.predictor.builder(self.graph)
        size, count = questions_at_once(self.graph), max(facts_at_first(self.graph), len(claims))
        standing = standing_of(model, builder, claims, size, progress=_stage("checking", progress))
        features = standing.features
        fit = self.predictor.fits.plausibility(
            self.graph,
            min(FACTS_ON_DEMAND, count),
            features if every else None,
            _stage("calibrating", progress),
        )
        columns = (torch.from_numpy(np.ascontiguousarray(column)).long() for column in claims.T)
        known = (self.graph.find_edges(*columns) >= 0).cpu().numpy()
        rank, chance = standing.rank[:, place.ravel()], fit.probability(features)[place.ravel()]
        return Checked(rows, rank, chance, known[place.ravel()], fit.facts)

    def verdict(self, checked: Checked, place: int) -> Verdict:
        """One of the claims, in words."""
        head, relation, tail = checked.rows[place].tolist()
        return Verdict(
            self.graph.entities[head],
            self.graph.relations[relation],
            self.graph.entities[tail],
            float(checked.probability[place]),
            float(checked.rank[0, place]),
            float(checked.rank[1, place]),
            bool(checked.known[place]),
        )

    def with_evidence(self, verdict: Verdict) -> Verdict:
        """The same with the strongest path, and with what speaks against it."""
        graph, builder = self.graph, self.predictor.builder(self.graph)
        resolver = Resolver(graph.entity_vocabulary, self.predictor.relations_for(graph))
        claim = (
            resolver.entity(verdict.head), resolver.relation(verdict.relation), resolver.entity(verdict.tail)
        )  # fmt: skip
        tail, head = (
            explain_answer(
                self.predictor.model, builder, *claim, asked=asked, most_paths=1, shown=self.names.shown
            )
            for asked in ("tail", "head")
        )
        counts = (builder.statistics or statistics_of(graph)).counts
        lacks = lacking(graph, counts, claim, graph.find_edge(*claim))
        return replace(
            verdict,
            evidence=walked(tail, tail.paths[0]) if tail.paths else None,
            against=tuple(told_against((tail, head), lacks, self.names.shown)),
        )


def checked_claims(
    checking: Checking,
    triples: Iterable[Sequence[str]] | None,
    *,
    top: int | None = None,
    evidence: int = SHOWN_EVIDENCE,
    skip: bool = False,
    progress: Progress | None = None,
) -> Verdicts:
    """Verdicts of claims in their order, or of the graph's own facts, the least supported first."""
    if top is not None and top < 1:
        raise ConfigError(f"top is {top}; ask for at least one.")
    errors: list[str | None] = []
    labels: list[Triple] = []
    if triples is None:
        rows = checking.own_facts
    else:
        rows, errors, labels = checking.resolve(triples, skip=skip)
    usable = np.array([place for place in range(len(rows)) if not (errors and errors[place])], dtype=np.int64)
    checked = (
        checking.check(rows if len(usable) == len(rows) else rows[usable], progress) if len(usable) else None
    )
    verdicts = _in_order(checking, checked, usable, errors, labels, top)
    best = np.argsort(
        [2.0 if one.probability is None else one.probability for one in verdicts], kind="stable"
    )
    told = [place for place in sorted(best[:evidence].tolist()) if verdicts[place].error is None]
    for done, place in enumerate(told, start=1):
        verdicts[place] = checking.with_evidence(verdicts[place])
        if progress is not None:
            progress("finding evidence", done, len(told))
    return Verdicts(verdicts, 0 if checked is None else checked.fitted_on, len(rows))


def _in_order(
    checking: Checking,
    checked: Checked | None,
    usable: npt.NDArray[np.int64],
    errors: Sequence[str | None],
    labels: Sequence[Triple],
    top: int | None,
) -> list[Verdict]:
    """Own facts, and whatever is cut to `top`, by probability; given claims in their order."""
    if checked is None:
        return [
            Verdict(*one, None, None, None, False, error=told)
            for one, told in zip(labels, errors, strict=True)
        ]
    if not labels or top is not None:
        return [checking.verdict(checked, place) for place in checked.least_supported()[:top].tolist()]
    place_of = dict(zip(usable.tolist(), range(len(usable)), strict=True))
    return [
        checking.verdict(checked, place_of[number])
        if number in place_of
        else Verdict(*labels[number], None, None, None, False, error=errors[number])
        for number in range(len(labels))
    ]


def _stage(name: str, progress: Progress | None) -> Callable[[int, int], None] | None:
    return None if progress is None else lambda done, total: progress(name, done, total)


def rows_of(verdicts: Iterable[Verdict]) -> Iterator[dict[str, Any]]:
    """Rows of a table, by column."""
    for one in verdicts:
        yield {**asdict(one), "against": "; ".join(one.against)}
