"""What a package index says, as triples.

| field | fact |
|---|---|
| Depends, Pre-Depends, Recommends, Suggests, ... | (package, `depends`, package) ... |
| the same with alternatives, `a | b` | (package, `depends-any`, a), (package, `depends-any`, b): one is needed |
| Section, Priority, Architecture, Multi-Arch | (package, `section`, `section:games`) ... |
| Source | (package, `source`, `source:glibc`); a package without the field is its own source |
| Maintainer | (package, `maintainer`, `maintainer:Debian Games Team`), without the address |
| Tag | (package, `tag:role`, `role::program`): one relation for each facet of debtags |

Versions, architectures (`libc6:any`, `[amd64]`) and build profiles are left out. A package's name holds no colon, so no
other entity can be mistaken for one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from deb822 import Stanza

from contextpool.errors import shortened
from contextpool.triples.store import Triple

RELATIONSHIPS = (
    "depends", "pre-depends", "recommends", "suggests", "enhances", "provides", "conflicts", "breaks", "replaces",
)  # fmt: skip
KINDS = ("section", "priority", "architecture", "multi-arch")
ANY = "-any"
"""What the relation of alternatives ends in."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._-]*")
_TERM = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9+._-]*)(:[a-z0-9-]+)?\s*"  # libc6:any
    r"(\([^()]*\))?\s*"  # (>= 2.36)
    r"(\[[^\[\]]*\])?\s*"  # [amd64 i386]
    r"(<[^<>]*>\s*)*"  # <!nocheck>
)
_TAG = re.compile(r"(?P<facet>[a-z0-9.+-]+)::(?P<value>[^\s{},:][^\s{},]*)")
_BRACED = re.compile(r"([^\s{},]+::)?\{([^{}]*)\}")


def package_of(stanza: Stanza) -> str:
    """The name that a stanza is about."""
    name = stanza.get("package")
    if not name:
        raise stanza.error("package", "the stanza has no field Package, so nobody knows what it is about.")
    if not _NAME.fullmatch(name):
        raise stanza.error("package", f"{shortened(name)} is no name of a package.")
    return name


def facts_of(stanza: Stanza) -> Iterator[Triple]:
    """Every fact about the stanza's package; a field that cannot be read is an error at its line."""
    package = package_of(stanza)
    for relation in RELATIONSHIPS:
        for alternatives in parse_relationship(stanza, relation):
            label = relation if len(alternatives) == 1 else relation + ANY
            for other in alternatives:
                yield package, label, other
    for field in KINDS:
        if value := stanza.get(field):
            yield package, field, f"{field}:{value}"
    yield package, "source", f"source:{_source(stanza) or package}"
    if maintainer := _person(stanza.get("maintainer")):
        yield package, "maintainer", f"maintainer:{maintainer}"
    for facet, tag in parse_tags(stanza):
        yield package, f"tag:{facet}", tag


def parse_relationship(stanza: Stanza, field: str) -> Iterator[list[str]]:
    """`a (>= 1), b | c:any [amd64]` as [["a"], ["b", "c"]]; distinct names, in the order of the field."""
    for group in stanza.get(field).split(","):
        if not group.strip():  # an empty field, a trailing comma
            continue
        names = []
        for alternative in group.split("|"):
            found = _TERM.fullmatch(alternative.strip())
            if found is None:
                raise stanza.error(
                    field, f"{field}: {shortened(alternative.strip())} is no package with a version."
                )
            names.append(found["name"])
        yield list(dict.fromkeys(names))


def _source(stanza: Stanza) -> str:
    """`glibc (2.36-9)` is built from glibc."""
    text = stanza.get("source")
    if not text:
        return ""
    found = _TERM.fullmatch(text)
    if found is None:
        raise stanza.error("source", f"source: {shortened(text)} is no name of a package.")
    return found["name"]


def _person(text: str) -> str:
    """`Ada Lovelace <ada@example.org>` without the address; an address alone stays."""
    name = re.sub(r"\s*<[^<>]*>", "", text).strip().strip('"')
    return re.sub(r"\s+", " ", name or text.strip("<> "))


def parse_tags(stanza: Stanza) -> Iterator[tuple[str, str]]:
    """`role::program, use::{editing,viewing}` as (facet, tag): role::program, use::editing, use::viewing."""
    text = _BRACED.sub(_spread, stanza.get("tag"))
    for tag in text.split(","):
        if not tag.strip():
            continue
        found = _TAG.fullmatch(tag.strip())
        if found is None:
            raise stanza.error("tag", f"tag: {shortened(tag.strip())} is no tag such as role::program.")
        yield found["facet"], found[0]


def _spread(found: re.Match[str]) -> str:
    return ",".join(f"{found[1] or ''}{part.strip()}" for part in found[2].split(","))
