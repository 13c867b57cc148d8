"""IRIs by short names, such that two IRIs never share one."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from contextpool.errors import ConfigError

_PREFIX_NAME = re.compile(r"[^\W\d_][\w.-]*|")


class Shortener:
    """`namespace + rest` becomes `prefix:rest`, by the longest namespace that fits.

    A prefix names one namespace and holds no colon, so short names differ where their IRIs do. What is left is an IRI
    that is spelled like another one's short name (`ex:a` beside `http://ex.org/a`): then the full IRI is kept. Of
    several prefixes for one namespace the first in sorted order is taken.
    """

    def __init__(self, prefixes: Mapping[str, str]) -> None:
        by_namespace: dict[str, str] = {}
        for name in sorted(prefixes, reverse=True):
            by_namespace[prefixes[name]] = name
        by_namespace.pop("", None)
        self._by_namespace = by_namespace
        self._lengths = sorted({len(namespace) for namespace in by_namespace}, reverse=True)

    def short(self, iri: str) -> str:
        """The short name, or the IRI itself where no namespace fits. O(distinct lengths of namespaces)."""
        for length in self._lengths:
            name = self._by_namespace.get(iri[:length])
            if name is not None and len(iri) >= length:
                return f"{name}:{iri[length:]}"
        return iri

    def labels(self, iris: Collection[str]) -> dict[str, str]:
        """The label of each IRI; no two are equal."""
        taken = frozenset(iris)
        labels = {}
        for iri in iris:
            short = self.short(iri)
            labels[iri] = iri if short in taken else short
        return labels


def checked_prefixes(given: Any, text: str) -> dict[str, str]:
    """Prefixes that the caller gives: names without a colon, and IRIs."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ConfigError(f"{text}: prefixes is {given!r}; it is a mapping of names to IRIs.")
    for name, namespace in given.items():
        if not isinstance(name, str) or not _PREFIX_NAME.fullmatch(name):
            raise ConfigError(
                f"{text}: prefix {name!r} is no name: letters, digits, '.', '-' and '_', a letter first."
            )
        if not isinstance(namespace, str) or ":" not in namespace:
            raise ConfigError(
                f"{text}: prefix {name!r} stands for {namespace!r}, which is no IRI, such as http://ex.org/."
            )
    return dict(given)


def merged(declared: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Declared and given prefixes. A given one wins: over a declared one of its name, and for its namespace."""
    namespaces = set(given.values())
    kept: Iterable[tuple[str, str]] = (
        (name, namespace)
        for name, namespace in declared.items()
        if name not in given and namespace not in namespaces
    )
    return {**dict(kept), **given}
