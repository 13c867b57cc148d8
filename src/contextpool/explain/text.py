"""An explanation as a few lines of plain text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from contextpool.triples.labels import INVERSE_SUFFIX

if TYPE_CHECKING:
    from contextpool.explain.evidence import Explanation, Path, Rival

SHOWN = 5
"""Relations that are listed of the context and of what was dropped."""


def as_text(explanation: Explanation) -> str:
    return "\n".join(_lines(explanation))


def _lines(explanation: Explanation) -> Iterator[str]:
    yield f"{explanation.question}  {explanation.shown(explanation.answer)}: {_standing(explanation)}"
    if explanation.known:
        yield "The graph holds this fact; it was hidden, so that it is no evidence for itself."
    yield _because(explanation)
    for path in explanation.paths:
        yield f"  {path.weight:4.0%}  {walked(explanation, path)}"
    yield from notes(explanation)


def notes(explanation: Explanation) -> Iterator[str]:
    """What is said beside the paths: one line each about context, pooling and the rival."""
    yield _note("context", _context(explanation))
    yield _note("pooling", _dropped(explanation))
    if explanation.rival is not None:
        yield _note("rival", [_rival(explanation, explanation.rival)])


def _standing(explanation: Explanation) -> str:
    chance = "" if explanation.probability is None else f", probability {explanation.probability:.0%}"
    return f"rank {explanation.rank:g} of {explanation.candidates:,}{chance}, score {explanation.score:.2f}"


def _because(explanation: Explanation) -> str:
    if not explanation.paths:
        return f"no path within the model's reach leads from {explanation.shown(explanation.given)} to it"
    return f"because (without these paths the score is {explanation.score_without:.2f})"


def walked(explanation: Explanation, path: Path) -> str:
    """Such as: Belarus <-located_in- Minsk -pays_in-> Belarusian Ruble."""
    steps = [explanation.shown(path.edges[0][0])]
    for _, relation, to in path.edges:
        steps += [arrow(explanation.shown(relation)), explanation.shown(to)]
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
    chance = "" if rival.probability is None else f" (probability {rival.probability:.0%})"
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
