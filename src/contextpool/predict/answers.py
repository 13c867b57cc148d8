"""Questions, answers, and the selection of answers that are wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from contextpool.errors import ConfigError, setting
from contextpool.notebook import frame_of, html_table

Asked = Literal["tail", "head", "relation"]
UnknownRelations = Literal["error", "skip"]
MOST_ANSWERS = 1_000_000
"""The most answers to one question."""
PLACES: tuple[Asked, ...] = ("head", "relation", "tail")


@dataclass(frozen=True)
class Question:
    """A fact with one place left open: (head, relation, ?), (?, relation, tail) or (head, ?, tail)."""

    head: str | None = None
    relation: str | None = None
    tail: str | None = None

    def __post_init__(self) -> None:
        given = [place for place in PLACES if getattr(self, place) is not None]
        for place in given:
            if not isinstance(getattr(self, place), str):
                kind = type(getattr(self, place)).__name__
                raise ConfigError(f"{place} is a value of type {kind}; labels are strings.")
        if len(given) != 2:
            named = " and ".join(given) if given else "nothing"
            raise ConfigError(
                f"a question gives two of head, relation and tail and asks for the third; this one gives {named}."
            )

    @property
    def asked(self) -> Asked:
        """The place that is open."""
        return next(place for place in PLACES if getattr(self, place) is None)

    def to_dict(self) -> dict[str, Any]:
        """A JSON object; the open place is null."""
        return {place: getattr(self, place) for place in PLACES}

    def __str__(self) -> str:
        return f"({', '.join('?' if getattr(self, place) is None else getattr(self, place) for place in PLACES)})"


@dataclass(frozen=True)
class Answer:
    """One candidate answer to a question."""

    entity: str
    score: float
    probability: float | None
    """That this fact holds; None where there is no calibration, 1 where the graph holds it."""
    known: bool
    """Whether the graph already holds it."""
    name: str | None = None
    """Its name, where names were given."""
    share: float | None = None
    """That it is the one, if there is one more answer than the graph holds: all candidates together have 1. None for
    what the graph holds.
    """

    @property
    def label(self) -> str:
        return self.entity

    def to_dict(self) -> dict[str, Any]:
        """A JSON object; `name` is left out where there is none."""
        return _to_dict("entity", self)


@dataclass(frozen=True)
class RelationAnswer:
    """One candidate relation between two entities."""

    relation: str
    score: float
    """log P(tail | head, relation) + log P(head | relation, tail), both over all new answers."""
    probability: float | None
    """That this fact holds, as (head, relation, ?) would say of the tail; None without a calibration."""
    known: bool
    name: str | None = None
    share: float | None = None
    """That it is the one, if some relation that the graph lacks leads from head to tail."""

    @property
    def label(self) -> str:
        return self.relation

    def to_dict(self) -> dict[str, Any]:
        """A JSON object; `name` is left out where there is none."""
        return _to_dict("relation", self)


AnyAnswer = Answer | RelationAnswer
Given = TypeVar("Given", bound=AnyAnswer)
BET = 0.2
"""The probability from which on an answer is worth a bet, and shown without being asked for."""
FIGURES = ("name", "score", "probability", "share", "known")
MOST_KNOWN = 20
"""How many answers that the graph holds are listed by name."""


@dataclass(frozen=True)
class Known:
    """What the graph already holds as answers to a question."""

    count: int
    first: tuple[str, ...]
    """The labels of the first `MOST_KNOWN` of them, sorted."""


NOTHING_KNOWN = Known(0, ())


class Answers(list[Given]):
    """The answers to one question, best first. A list, with what the graph already holds told apart."""

    def __init__(
        self,
        answers: Iterable[Given],
        question: Question,
        known: Known = NOTHING_KNOWN,
        shown: Callable[[str], str] = str,
        calibrated_on: int | None = None,
        considered: tuple[int, int] | None = None,
    ) -> None:
        """`shown` gives the name of a label; probabilities rest on `calibrated_on` facts, None where nobody knows.

        `considered` is how many entities were ranked, of how many: all, but for walks with a cap. None where relations
        were.
        """
        super().__init__(answers)
        self.question, self.known, self._shown = question, known, shown
        self.calibrated_on, self.considered = calibrated_on, considered

    @property
    def best(self) -> Given | None:
        """The first one that the graph does not hold, if it is worth a bet; None where it is not."""
        return self._new if self.bet() else None

    @property
    def _new(self) -> Given | None:
        return next((answer for answer in self if not answer.known), None)

    def bet(self, least: float = BET) -> bool | None:
        """Whether one of them is worth a bet: has at least this probability. None where there are no probabilities."""
        new = self._new
        if new is None:
            return False
        return None if new.probability is None else new.probability >= least

    def to_dict(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "question": self.question.to_dict(),
            **self.told(),
            "answers": [one.to_dict() for one in self],
        }

    def told(self) -> dict[str, Any]:
        """What there is to say beside the answers, as JSON."""
        known = {"known": list(self.known.first), "num_known": self.known.count}
        considered, of = self.considered or (None, None)
        told = {"calibrated_on": self.calibrated_on, "considered": considered, "num_entities": of}
        return {**known, "bet": self.bet(), **told}

    def to_frame(self) -> Any:
        """A pandas DataFrame, a row an answer; needs pandas (extra `frame`)."""
        rows = [
            {"rank": rank, "answer": one.label, **one.to_dict()} for rank, one in enumerate(self, start=1)
        ]
        return frame_of(rows, ("rank", "answer", *FIGURES))

    def __repr__(self) -> str:
        told = [f"{one.name or one.label} {percent(one.probability)}" for one in self[:3]]
        more = [f"{len(self) - 3} more"] if len(self) > 3 else []
        return f"<{len(self)} answers to {self.question}: {', '.join([*told, *more])}>"

    def _repr_html_(self) -> str:
        rows = [
            (rank, one.name or one.label, percent(one.probability), percent(one.share), one.score, one.known)
            for rank, one in enumerate(self, start=1)
        ]
        columns = ("", "answer", "probability", "share", "score", "known")
        return html_table(columns, rows, above="\n".join([str(self.question), *self.lines()]))

    def lines(self, least: float = BET) -> list[str]:
        """The same in words: what the graph holds, and whether there is an answer worth a bet."""
        told = []
        if self.known.count:
            names = ", ".join(map(self._shown, self.known.first))
            more = self.known.count - len(self.known.first)
            told.append(f"already in the graph: {names}" + (f" and {more:,} more" if more else ""))
        if self.considered is not None and self.considered[0] < self.considered[1]:
            told.append(f"considered {roughly(self.considered[0])} of {roughly(self.considered[1])} entities")
        new = self._new
        if new is None:
            told.append("no candidate that the graph does not hold")
        elif self.bet(least) is False:
            best = f"{new.name or new.label}, has a probability of {percent(new.probability)}"
            told.append(f"none that I would bet on: the best, {best}, and a bet takes {least:.0%}")
        return told


@dataclass(frozen=True)
class Selection:
    """Which answers are wanted."""

    k: int = 10
    known: bool = False
    """Also what the graph already holds, marked."""
    candidates: tuple[str, ...] | None = None
    """Only these entities; None for all."""
    having: tuple[str, ...] = ()
    """Only entities that have all of these relations."""

    def __post_init__(self) -> None:
        if isinstance(self.k, bool) or not isinstance(self.k, int):
            raise ConfigError(f"{setting('k')} is {self.k!r}; it has to be a whole number.")
        if not 1 <= self.k <= MOST_ANSWERS:
            raise ConfigError(
                f"{setting('k')} is {self.k}; ask for at least one answer and for {MOST_ANSWERS:,} at the most."
            )

    @classmethod
    def of(
        cls, k: int, known: bool, candidates: Iterable[str] | None, having: str | Iterable[str] | None
    ) -> Selection:
        """From what the public functions take: `having` is one relation or several."""
        if isinstance(candidates, str):
            raise ConfigError("candidates is one string; give a list of labels.")
        listed = (having,) if isinstance(having, str) else tuple(having or ())
        return cls(k, known, None if candidates is None else tuple(candidates), listed)


def roughly(count: int) -> str:
    """For people: 30,000; 1.2 million."""
    return f"{count:,}" if count < 1_000_000 else f"{count / 1_000_000:,.1f} million"


def percent(value: float | None) -> str:
    """For people: a dash for no number, and what is not nothing never reads as 0.0%."""
    if value is None:
        return "-"
    return "<0.1%" if 0 < value < 0.0005 else f"{value:.1%}"


def _to_dict(key: str, answer: AnyAnswer) -> dict[str, Any]:
    named = {} if answer.name is None else {"name": answer.name}
    plain = {
        "score": answer.score,
        "probability": answer.probability,
        "share": answer.share,
        "known": answer.known,
    }
    return {key: answer.label, **named, **plain}
