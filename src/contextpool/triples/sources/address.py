"""Where a graph comes from, in one line of text: a file, or a query to a database.

    PLACE                          facts.tsv   ontology.ttl.gz   edges.parquet
    PLACE?key=value&key=value      edges.csv?columns=who,how,whom&delimiter=;
    KIND:PLACE?query=TEXT          sqlite:shop.db?query=SELECT h, r, t FROM facts

`query` comes last and is taken as it stands, with every `&`, `=` and `?` that follows. The value of any other key
may hold `%26` for `&` and `%25` for `%`. A file whose name holds a `?` is found under its whole name first.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from contextpool.errors import ConfigError, DataError, closest, shortened

COMPRESSED = (".gz", ".zst")
SUFFIXES = {
    ".tsv": "tsv", ".txt": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl", ".ndjson": "jsonl",
    ".parquet": "parquet", ".pq": "parquet",
    ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow", ".arrows": "arrow",
    ".npy": "npy",
    ".nt": "ntriples", ".ttl": "turtle", ".nq": "nquads", ".trig": "trig", ".rdf": "rdfxml", ".owl": "rdfxml",
}  # fmt: skip
"""The kind of a file by how its name ends, before .gz or .zst."""
RDF_KINDS = frozenset({"ntriples", "turtle", "nquads", "trig", "rdfxml", "sparql"})
FILE_KINDS = frozenset(SUFFIXES.values())
SCHEMES = {
    "sqlite": "sqlite", "duckdb": "duckdb",
    "postgres": "postgres", "postgresql": "postgres",
    "sparql+http": "sparql", "sparql+https": "sparql",
    **{f"{name}{tail}": "neo4j" for name in ("neo4j", "bolt") for tail in ("", "+s", "+ssc")},
}  # fmt: skip
"""The kind of a database by what stands before the first colon."""
SERVERS = {"postgres": "PGPASSWORD", "neo4j": "NEO4J_PASSWORD", "sparql": "SPARQL_PASSWORD"}
"""The kinds that are asked over a network, and where each finds its password."""
SPLIT_KEYS = frozenset({"split", "seed"})
"""How a dataset is made of the graph; the readers do not see these."""

_SCHEME = re.compile(r"([a-z][a-z0-9+]*):(.*)", re.DOTALL)


@dataclass(frozen=True)
class Address:
    """A source, taken apart. `text` is what messages call it."""

    kind: str
    place: str
    options: dict[str, Any] = field(default_factory=dict)
    text: str = ""

    @property
    def path(self) -> Path:
        return Path(self.place).expanduser()

    @property
    def shown(self) -> str:
        """Where a query goes, for messages: without the query."""
        return self.place if self.place.startswith(self.kind) else f"{self.kind}:{self.place}"

    @property
    def is_there(self) -> bool:
        """Whether the file exists; a database is taken at its word."""
        return self.kind not in FILE_KINDS or _is_file(self.place)

    @property
    def name(self) -> str:
        """Short, for a title: what the file or the database is called."""
        if self.kind == "sparql":
            return urlsplit(self.place).hostname or self.kind
        stem = re.split(r"[/@\\]", self.place.rstrip("/"))[-1]
        return stem.split(".")[0] or self.kind

    def with_options(self, more: Mapping[str, Any]) -> Address:
        """Options given beside the text; one given in both is an error."""
        twice = sorted(set(self.options) & set(more))
        if twice:
            raise ConfigError(
                f"{self.text}: {twice[0]!r} is in the address and given beside it. Say it once."
            )
        return replace(self, options={**self.options, **more})

    def without_split(self) -> tuple[Address, dict[str, Any]]:
        """The graph alone, and how to split it: {} where the address does not say."""
        split = {key: value for key, value in self.options.items() if key in SPLIT_KEYS}
        rest = {key: value for key, value in self.options.items() if key not in SPLIT_KEYS}
        return replace(self, options=rest), split


def find_address(text: str | Path) -> Address | None:
    """The source that the text names, or None where it has to be a dataset's name or folder."""
    if _is_file(text):
        return _file(str(text), {}, str(text))
    if is_folder(text):
        return None
    scheme = _SCHEME.fullmatch(str(text))
    if scheme and scheme[1] in SCHEMES:
        return _database(scheme[1], scheme[2], str(text))
    place, mark, options = str(text).partition("?")
    if file_kind(place) or (mark and _is_file(place)):
        return _file(place, _parsed(options, str(text)), str(text))
    return None


def _is_file(text: str | Path) -> bool:
    return _answers(Path.is_file, text)


def is_folder(text: str | Path) -> bool:
    """Whether a folder of this name is there."""
    return _answers(Path.is_dir, text)


def _answers(question: Callable[[Path], bool], text: str | Path) -> bool:
    """What a question to the file system says; a query is no name, and may be longer than one can be."""
    try:
        return question(Path(text).expanduser())
    except (OSError, ValueError, RuntimeError):
        return False


def parse_address(text: str | Path) -> Address:
    """As `find_address`, for what can be nothing but a source."""
    return find_address(text) or Address("tsv", str(text), {}, str(text))


def file_kind(place: str) -> str | None:
    """The kind of a file by how its name ends; None where that tells nothing."""
    suffixes = Path(place).suffixes
    if suffixes and suffixes[-1] in COMPRESSED:
        suffixes.pop()
    return SUFFIXES.get(suffixes[-1].lower()) if suffixes else None


def _file(place: str, options: dict[str, Any], text: str) -> Address:
    """A file's kind by its suffix, or by `format`; the strict tab-separated one where neither tells."""
    named = options.pop("format", None)
    return Address(_named_kind(named, text) if named else file_kind(place) or "tsv", place, options, text)


def _named_kind(name: str, text: str) -> str:
    if name not in FILE_KINDS:
        raise ConfigError(f"{text}: format is {name!r}; it is one of {', '.join(sorted(FILE_KINDS))}.")
    return name


def _database(scheme: str, rest: str, text: str) -> Address:
    place, _, options = rest.partition("?")
    if SCHEMES[scheme] in SERVERS:
        _refuse_password(scheme, place)
        place = f"{scheme}:{place}" if place.startswith("//") else place
    return Address(SCHEMES[scheme], place, _parsed(options, text), text)


def _refuse_password(scheme: str, place: str) -> None:
    """An address ends up in run folders and model cards."""
    if re.search(r"//[^/@]*:[^/@]*@", place) or re.search(r"\bpassword\s*=", place, re.IGNORECASE):
        variable = SERVERS[SCHEMES[scheme]]
        raise ConfigError(
            f"{scheme}: the address holds a password, and addresses are written into run folders. Take it out, "
            f"and set the environment variable {variable}."
        )


def _parsed(options: str, text: str) -> dict[str, Any]:
    """`a=1&b=2&query=everything else` as a dictionary; `prefix=` may be repeated and becomes `prefixes`."""
    found: dict[str, Any] = {}
    while options:
        if options.startswith("query="):
            _put(found, "query", options.removeprefix("query="), text)
            break
        pair, _, options = options.partition("&")
        key, sign, value = pair.partition("=")
        if not sign or not key:
            raise ConfigError(f"{text}: {shortened(pair)} is no option; write key=value, joined by &.")
        _put(found, key, unquote(value), text)
    return found


def _put(found: dict[str, Any], key: str, value: str, text: str) -> None:
    if key == "prefix":
        name, sign, namespace = value.partition(":")
        if not sign or not namespace:
            raise ConfigError(
                f"{text}: prefix is {value!r}; write prefix=NAME:IRI, such as prefix=ex:http://ex.org/."
            )
        found.setdefault("prefixes", {})[name] = namespace
    elif key in found:
        raise ConfigError(f"{text}: {key} is given twice. Say it once.")
    else:
        found[key] = value


def retyped(address: Address, kind: str | None = None, **changes: Any) -> str:
    """What to type for the same source read otherwise, in quotes for a shell and for Python alike."""
    if address.kind == "object":
        return ", ".join(f"{key}={value!r}" for key, value in changes.items())
    changed = replace(address, kind=kind or address.kind, options={**address.options, **changes})
    return shlex.quote(address_text(changed))


def address_text(address: Address) -> str:
    """The line of text that names this source."""
    options, kind = dict(address.options), address.kind
    if kind in FILE_KINDS and kind != (file_kind(address.place) or "tsv"):
        options = {"format": kind, **options}
    query = options.pop("query", None)
    pairs = [f"{key}={_written(value)}" for key, value in options.items() if key != "prefixes"]
    pairs += [f"prefix={name}:{iri}" for name, iri in options.get("prefixes", {}).items()]
    pairs += [f"query={query}"] if query is not None else []
    place = address.place if kind in FILE_KINDS or "://" in address.place else f"{kind}:{address.place}"
    return f"{place}?{'&'.join(pairs)}" if pairs else place


def _written(value: Any) -> str:
    """The value of an option as it stands in an address."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return text.replace("%", "%25").replace("&", "%26")


def check_options(address: Address, known: tuple[str, ...]) -> None:
    """Refuse an option that the reader of this kind does not have."""
    for key in address.options:
        if key not in known:
            near = closest(key, known, limit=1)
            hint = f"Did you mean {near[0]}?" if near else f"It takes {', '.join(known) or 'none'}."
            raise ConfigError(f"{address.text}: {key!r} is not an option of {address.kind}. {hint}")


def with_options(text: str, more: Mapping[str, Any]) -> str:
    """The text of an address with more options."""
    return address_text(parse_address(text).with_options(more))


def choice(address: Address, key: str, default: str, allowed: tuple[str, ...]) -> str:
    """One of a few words."""
    value = address.options.get(key, default)
    if value not in allowed:
        raise ConfigError(f"{address.text}: {key} is {value!r}; it is {' or '.join(allowed)}.")
    return str(value)


def yes_or_no(address: Address, key: str, default: bool) -> bool:
    """`yes`, `no`, or a bool from Python."""
    value = address.options.get(key, default)
    if isinstance(value, bool):
        return value
    if value not in ("yes", "no"):
        raise ConfigError(f"{address.text}: {key} is {value!r}; it is yes or no.")
    return bool(value == "yes")


def need_file(address: Address) -> Path:
    """The file, or an error that says that there is none."""
    if address.path.is_dir():
        raise DataError(f"{address.place}: this is a folder; name one of its files.")
    if not address.path.is_file():
        raise DataError(f"{address.place}: there is no such file.")
    return address.path
