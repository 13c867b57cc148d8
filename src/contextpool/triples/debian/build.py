"""The package index as a dataset: train on some packages, ask about packages that training has never seen."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from contextpool.errors import ConfigError, DataError, UnknownNameError
from contextpool.triples.dataset import Dataset
from contextpool.triples.debian.deb822 import read_stanzas
from contextpool.triples.debian.facts import facts_of, package_of
from contextpool.triples.split import held_out, two_sided
from contextpool.triples.store import Triple, Triples

APT_LISTS = Path("/var/lib/apt/lists")
_SUFFIXES = ("", ".lz4", ".gz", ".xz", ".zst")
_HEX = "0123456789abcdef"


@dataclass(frozen=True)
class Index:
    """The facts of one or more Packages files, by package."""

    facts: dict[str, list[Triple]]
    sections: dict[str, str]

    @property
    def num_facts(self) -> int:
        return sum(map(len, self.facts.values()))

    def of_sections(self, wanted: Collection[str]) -> Index:
        """Only packages of these sections; none wanted means all."""
        if not wanted:
            return self
        known = set(self.sections.values())
        for section in wanted:
            if section not in known:
                raise UnknownNameError("section", section, sorted(known))
        kept = {name for name, section in self.sections.items() if section in wanted}
        return Index({name: facts for name, facts in self.facts.items() if name in kept}, self.sections)

    def without(self, relations: Collection[str]) -> Index:
        """The facts of all other relations; one that no fact has is an error."""
        known = {relation for facts in self.facts.values() for _, relation, _ in facts}
        for relation in relations:
            if relation not in known:
                raise UnknownNameError("relation", relation, sorted(known))
        kept = {
            name: [fact for fact in facts if fact[1] not in relations] for name, facts in self.facts.items()
        }
        return Index(kept, self.sections)


@dataclass(frozen=True)
class Built:
    """A dataset and how it came about."""

    dataset: Dataset
    seen: int
    unseen: int
    facts: int
    """Of all packages that were considered, seen or not."""
    dropped: int
    """Facts about seen packages that name an unseen one: training must not meet it."""
    skipped: int
    """Facts about unseen packages whose relation training does not have."""


def apt_lists(folder: Path = APT_LISTS) -> list[Path]:
    """The Packages files that apt keeps on this machine."""
    found = [
        path
        for path in sorted(folder.glob("*_Packages*"))
        if any(path.name.endswith(f"_Packages{suffix}") for suffix in _SUFFIXES)
    ]
    if not found:
        raise DataError(
            f"{folder}: apt keeps no lists of packages here. Run `apt-get update` on a Debian or Ubuntu machine, or "
            "name a Packages file with --packages FILE."
        )
    return found


def read_index(paths: Sequence[str | Path]) -> Index:
    """All facts of Packages files; a package that several name has the facts of each."""
    facts: dict[str, dict[Triple, None]] = {}
    sections: dict[str, str] = {}
    for path in paths:
        for stanza in read_stanzas(path):
            name = package_of(stanza)
            facts.setdefault(name, {}).update(dict.fromkeys(facts_of(stanza)))
            sections.setdefault(name, stanza.get("section"))
    if not facts:
        raise DataError(
            f"{paths[0]}: the file holds no packages. Expected stanzas that begin with 'Package: ...'."
        )
    return Index({name: list(found) for name, found in facts.items()}, sections)


def hashed(name: str) -> str:
    """The first letter of the sha256 of a name: one of sixteen, the same everywhere and for ever."""
    return hashlib.sha256(name.encode()).hexdigest()[0]


def build_dataset(
    index: Index,
    later: Index | None = None,
    *,
    hold_out: str = "0",
    sections: Collection[str] = (),
    valid: float = 0.1,
    test: float = 0.1,
    seed: int = 0,
    name: str = "debian",
) -> Built:
    """Training: the facts of `index`. Inference: those about packages that it does not have.

    With `later`, the index of another release, these are its new packages; without, the packages of `index` whose
    name's sha256 begins with a letter of `hold_out`, which training then never meets, neither as head nor as tail.
    The inference graph holds the facts about unseen packages and nothing else. Each side holds out `valid` and `test`.
    """
    chosen = index.of_sections(sections)
    if later is None:
        _check_letters(hold_out)
        unseen = {package: facts for package, facts in chosen.facts.items() if hashed(package) in hold_out}
    else:
        newer = later.of_sections(sections).facts
        unseen = {package: facts for package, facts in newer.items() if package not in index.facts}
    seen = [package for package in chosen.facts if package not in unseen]
    training, dropped = _training_facts(chosen, seen, unseen)
    relations = {relation for _, relation, _ in training}
    asked = [fact for facts in unseen.values() for fact in facts]
    known = [fact for fact in asked if fact[1] in relations]
    _check_sides(training, known, name)
    dataset = _split(training, known, valid, test, seed, name)
    total = chosen.num_facts + (0 if later is None else len(asked))
    return Built(dataset, len(seen), len(unseen), total, dropped, len(asked) - len(known))


def _training_facts(index: Index, seen: list[str], unseen: Collection[str]) -> tuple[list[Triple], int]:
    facts = [fact for package in seen for fact in index.facts[package]]
    kept = [fact for fact in facts if fact[2] not in unseen]
    return kept, len(facts) - len(kept)


def _check_letters(letters: str) -> None:
    if not letters or set(letters) - set(_HEX) or len(set(letters)) != len(letters) or len(letters) > 15:
        raise ConfigError(
            f"hold_out is {letters!r}; it is one or more of the letters {_HEX}, each once and not all of them: a "
            "sixteenth of the packages each."
        )


def _check_sides(training: list[Triple], inference: list[Triple], name: str) -> None:
    for facts, what in ((training, "seen"), (inference, "unseen")):
        if len(facts) < 3:
            raise DataError(
                f"{name}: {len(facts)} facts are about {what} packages, and a side needs 3 at least, one each for "
                "graph, valid and test. Take more sections, other letters, or another file."
            )


def _split(
    training: list[Triple], inference: list[Triple], valid: float, test: float, seed: int, name: str
) -> Dataset:
    rng = np.random.default_rng(seed)
    home = held_out(Triples.from_labels(training), valid, test, rng, f"{name}: the training side")
    away = held_out(Triples.from_labels(inference), valid, test, rng, f"{name}: the side of unseen packages")
    return two_sided(name, home, away)
