"""Completion of entity names: by the start of the label or name, then by the start of a later word in it."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator
from itertools import chain

from contextpool.graph.graph import Graph
from contextpool.predict import Names

_WORD_START = re.compile(r"(?<=[^\w])\w")
Starts = list[tuple[str, str]]
"""(folded text, label), sorted."""


def folded(text: str) -> str:
    """Without case and accents, as people type it."""
    parts = unicodedata.normalize("NFKD", text)
    return "".join(one for one in parts if not unicodedata.combining(one)).casefold()


class Completions:
    """Of the entities of one graph. O(N log N) to build, O(log N + limit) to ask."""

    def __init__(self, graph: Graph, names: Names) -> None:
        self._labels = graph.entities
        self._first: Starts = []
        self._later: Starts = []
        for label in graph.entities:
            for text in {folded(label), folded(names.shown(label))}:
                self._first.append((text, label))
                self._later += [(text[match.start() :], label) for match in _WORD_START.finditer(text)]
        self._first.sort()
        self._later.sort()

    def starting_with(self, prefix: str, limit: int) -> tuple[list[str], bool]:
        """Labels, those that start so before those with such a word; and whether there are more."""
        wanted = folded(prefix)
        found: dict[str, None] = {}
        for label in chain(_starting(self._first, wanted), _starting(self._later, wanted)):
            found[label] = None
            if len(found) > limit:
                break
        return list(found)[:limit], len(found) > limit


def _starting(starts: Starts, prefix: str) -> Iterator[str]:
    for place in range(bisect_left(starts, (prefix,)), len(starts)):
        text, label = starts[place]
        if not text.startswith(prefix):
            return
        yield label
