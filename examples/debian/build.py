"""Debian's package index as a dataset: train on some packages, ask about packages that training has never seen.

    python examples/debian/build.py Packages.xz debian                               a sixteenth of them unseen
    python examples/debian/build.py Packages.xz debian --unseen trixie/Packages.xz   those new in trixie unseen
    python examples/debian/build.py debian                                           apt's own lists of this machine

`deb822.py` reads the files, `facts.py` makes triples of them; README.md goes on from here.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from deb822 import read_stanzas
from facts import facts_of, package_of

from contextpool.errors import ConfigError, ContextPoolError, DataError, UnknownNameError
from contextpool.triples.dataset import Dataset
from contextpool.triples.formats import write_dataset
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
            "name a Packages file before the target."
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Build as the command line says; returns the exit code: 0, or 2 for bad input."""
    options = _options(arguments)
    try:
        index = read_index(options.packages or apt_lists()).without(options.without)
        later = None if options.unseen is None else read_index([options.unseen]).without(options.without)
        built = build_dataset(
            index,
            later,
            hold_out=options.hold_out,
            sections=options.section,
            valid=options.valid,
            test=options.test,
            seed=options.seed,
            name=options.target.name,
        )
        write_dataset(built.dataset, options.target, layout="grail", overwrite=options.overwrite)
    except ContextPoolError as error:
        print(f"build.py: error: {error}", file=sys.stderr)
        return error.exit_code
    _tell(built, options.target)
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Debian's package index as a dataset of contextpool.")
    add = parser.add_argument
    add("packages", nargs="*", type=Path, help="Packages files (.gz, .xz, .lz4, .zst too); else apt's lists")
    add("target", type=Path, help="the folder to write")
    add("--unseen", type=Path, help="another release's Packages file: its new packages are asked about")
    add(
        "--hold-out",
        default="0",
        help="without --unseen: first letters of the names' sha256, a sixteenth each",
    )
    add("--section", action="append", default=[], help="only packages of this section; may be repeated")
    add("--without", action="append", default=[], help="leave this relation out; may be repeated")
    add("--valid", type=float, default=0.1, help="share of the facts held out as valid, on each side")
    add("--test", type=float, default=0.1, help="share of the facts held out as test, on each side")
    add("--seed", type=int, default=0, help="another seed holds out other facts")
    add("--overwrite", action="store_true", help="replace an existing target")
    return parser.parse_args(arguments)


def _tell(built: Built, target: Path) -> None:
    data = built.dataset
    print(f"{built.facts:,} facts, {len(data.relations)} relations")
    print(
        f"training: {built.seen:,} packages, {len(data.training_queries):,} facts to learn from, "
        f"{len(data.validation_queries):,} to select on"
    )
    asked = len(data.evaluation_queries("P1"))
    print(
        f"unseen: {built.unseen:,} packages, {len(data.inference_graph):,} facts given, {asked:,} asked about"
    )
    if built.dropped:
        print(f"left out {built.dropped:,} facts of training that name an unseen package")
    if built.skipped:
        print(f"left out {built.skipped:,} facts about unseen packages: training lacks their relations")
    print(f"wrote {target}; train on it with: contextpool train {target} --context")


if __name__ == "__main__":
    sys.exit(main())
