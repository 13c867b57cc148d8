"""Questions, answers, and the selection of answers that are wanted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from contextpool.errors import ConfigError

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
    """Calibrated chance of being true; None where the run has no calibration."""
    known: bool
    """Whether the graph already holds it."""
    name: str | None = None
    """Its name, where names were given."""

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
    """Chance of being the one, given that some relation the graph lacks leads from head to tail."""
    known: bool
    name: str | None = None

    @property
    def label(self) -> str:
        return self.relation

    def to_dict(self) -> dict[str, Any]:
        """A JSON object; `name` is left out where there is none."""
        return _to_dict("relation", self)


AnyAnswer = Answer | RelationAnswer


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
            raise ConfigError(f"k is {self.k!r}; it has to be a whole number.")
        if not 1 <= self.k <= MOST_ANSWERS:
            raise ConfigError(
                f"k is {self.k}; ask for at least one answer and for {MOST_ANSWERS:,} at the most."
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


def _to_dict(key: str, answer: AnyAnswer) -> dict[str, Any]:
    named = {} if answer.name is None else {"name": answer.name}
    plain = {"score": answer.score, "probability": answer.probability, "known": answer.known}
    return {key: answer.label, **named, **plain}
