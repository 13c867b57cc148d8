"""A SPARQL endpoint's answer as triples: asked for page by page, politely, and gone on with where it broke off.

    sparql+https://HOST/PATH?query=SELECT ?head ?relation ?tail WHERE { ... }

Pages are cut by ORDER BY, LIMIT and OFFSET around the query, until one is empty: a server may give fewer rows than it
was asked for. Each lies in the cache until the whole answer is there, so that the same line, typed again after a
failure, asks only for the rest. Terms become labels as in RDF files (`sources.rdf`).
"""

from __future__ import annotations

import base64
import contextlib
import email.utils
import hashlib
import http.client
import json
import os
import re
import shutil
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote, urlencode, urlsplit, urlunsplit

import pyarrow as pa

from contextpool.errors import ConfigError, DataError, FetchError, OfflineError, printable, shortened
from contextpool.triples.files import atomic_file
from contextpool.triples.sources.address import Address, check_options, yes_or_no
from contextpool.triples.sources.rdf import OPTIONS, RdfOptions, Terms, oxigraph_package, term_batches

Tell = Callable[[str], None]
ALL_FACTS = "SELECT ?head ?relation ?tail WHERE { ?head ?relation ?tail }"
FACTS_WITHOUT_LITERALS = (
    "SELECT ?head ?relation ?tail WHERE { ?head ?relation ?tail FILTER(!isLiteral(?tail)) }"
)
PASSWORD_VARIABLE = "SPARQL_PASSWORD"
AGENT_VARIABLE = "CONTEXTPOOL_USER_AGENT"
MOST_ROWS = 10_000_000
"""Rows that are read without a `limit`; the facts are held in memory."""
MOST_BYTES = 1 << 28
"""Bytes of a page."""
LONGEST_WAIT_S = 300.0
"""A server that wants us away for longer is asked again another time."""
KEPT_S = 24 * 3600.0
"""Pages of a reading that broke off are of use for so long."""
ATTEMPTS = 5
_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})
_TOLD_EVERY_S = 30.0
_GET_CHARACTERS = 2000
_PROLOGUE = re.compile(r"(?:\s+|#[^\n]*\n|PREFIX\s+[^\s:]*:\s*<[^>]*>|BASE\s+<[^>]*>)*", re.IGNORECASE)
_sleep = time.sleep


@dataclass(frozen=True)
class _Question:
    """What is asked of whom, and how hard."""

    url: str
    """Without a user."""
    user: str | None
    prologue: str
    body: str
    variables: tuple[str, ...]
    page: int
    delay_s: float
    timeout_s: float
    limit: int | None
    order: bool
    graph: str | None

    @classmethod
    def of(cls, address: Address) -> _Question:
        default = FACTS_WITHOUT_LITERALS if address.options.get("literals", "drop") == "drop" else ALL_FACTS
        query = str(address.options.get("query") or default).strip()
        prologue = cast("re.Match[str]", _PROLOGUE.match(query))[0]
        body = query[len(prologue) :]
        parts = urlsplit(address.place.removeprefix("sparql+"))
        if not parts.hostname:
            raise ConfigError(
                f"{address.text}: which server? Write sparql+https://HOST/PATH?query={ALL_FACTS}"
            )
        url = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
        return cls(
            url,
            unquote(parts.username) if parts.username else None,
            prologue,
            body,
            _variables(body, address),
            page=int(_number(address, "page", 10_000, least=1)),
            delay_s=_number(address, "delay", 1.0, least=0),
            timeout_s=_number(address, "timeout", 60.0, least=0.001),
            limit=int(_number(address, "limit", 0, least=1)) if "limit" in address.options else None,
            order=yes_or_no(address, "order", True),
            graph=address.options.get("graph"),
        )

    @property
    def key(self) -> str:
        """Names the pages on disk: whatever changes the answer changes it."""
        asked = (self.url, self.user, self.prologue, self.body, self.order, self.graph, self.limit)
        return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:24]

    def text(self, offset: int) -> str:
        """The query for the page that starts at a row."""
        names = " ".join(f"?{name}" for name in self.variables)
        rows = self.page if self.limit is None else min(self.page, self.limit - offset)
        order = f"ORDER BY {names}\n" if self.order else ""
        return f"{self.prologue}SELECT {names} WHERE {{ {{\n{self.body}\n}} }}\n{order}LIMIT {rows} OFFSET {offset}"


def sparql_batches(address: Address, tell: Tell) -> Iterator[pa.RecordBatch]:
    """The facts that an endpoint gives; `tell` hears what was left out, and now and then how far it is."""
    check_options(address, (*OPTIONS[:-1], "query", "page", "delay", "timeout", "limit", "order"))
    question, options = _Question.of(address), RdfOptions.of_terms(address, blank="drop")
    oxigraph = oxigraph_package("asking a SPARQL endpoint")
    terms = Terms(options, oxigraph, address.place)
    folder, offset, told = _folder(question), 0, time.monotonic()
    for path in _kept(folder):
        offset += _add(terms, oxigraph, path.read_bytes(), question, offset, address)
    if offset:
        tell(f"{offset:,} rows were read before the last try broke off; asking for the rest")
    while offset != question.limit:
        if offset > MOST_ROWS and question.limit is None:
            many = f"more than {MOST_ROWS:,} rows. Ask for fewer with a narrower query=, or say limit=ROWS."
            raise DataError(f"{address.place}: {many}")
        body = _asked(question, offset)
        rows = _add(terms, oxigraph, body, question, offset, address)
        if not rows:
            break
        _keep(folder, offset, rows, body)
        offset += rows
        if time.monotonic() - told > _TOLD_EVERY_S:
            told = time.monotonic()
            tell(f"{offset:,} rows of {question.url} so far")
        _sleep(question.delay_s)
    yield from term_batches(terms, {}, options, address, tell)
    shutil.rmtree(folder, ignore_errors=True)


def _folder(question: _Question) -> Path:
    """Where the pages of an answer lie until it is whole."""
    from contextpool.triples.catalog import cache_folder

    return cache_folder() / "sparql" / question.key


def _kept(folder: Path) -> Iterator[Path]:
    """The pages that the last try left, without a gap and not too old."""
    offset = 0
    for path in sorted(folder.glob("*-*.json")):
        start, _, rows = path.stem.partition("-")
        if int(start) != offset or path.stat().st_mtime < time.time() - KEPT_S:
            return
        yield path
        offset += int(rows)


def _keep(folder: Path, offset: int, rows: int, body: bytes) -> None:
    """Remember a page, where there is room on disk."""
    with contextlib.suppress(OSError), atomic_file(folder / f"{offset:012d}-{rows}.json") as file:
        file.write(body)


def _add(terms: Terms, oxigraph: Any, body: bytes, question: _Question, offset: int, address: Address) -> int:
    """Add a page's facts; returns how many rows it has."""
    try:
        solutions = oxigraph.parse_query_results(body, format=oxigraph.QueryResultsFormat.JSON)
        rows = 0
        for solution in solutions:
            rows += 1
            fact = [solution[name] for name in question.variables]
            if None in fact:
                unbound = question.variables[fact.index(None)]
                raise DataError(
                    f"{address.place}: row {offset + rows:,} of the query: ?{unbound} is unbound. Leave such rows out, "
                    f"with FILTER(bound(?{unbound})) or without OPTIONAL."
                )
            terms.add_fact(*fact)
    except (SyntaxError, KeyError, TypeError) as error:
        start = shortened(body[:200].decode("utf-8", "replace"))
        raise DataError(
            f"{address.place}: the answer is no SPARQL result in JSON ({printable(str(error))}): {start}"
        ) from None
    return rows


def _variables(body: str, address: Address) -> tuple[str, ...]:
    """The three variables that a SELECT gives, in its order."""
    select = re.match(r"SELECT\s+(?:DISTINCT\s+|REDUCED\s+)?", body, re.IGNORECASE)
    if select is None:
        raise DataError(f"{address.place}: the query has to be one SELECT. It was: {body}")
    names: list[str] = []
    depth = 0
    for token in re.finditer(r"[?$](\w+)|[(){]|\b(?:WHERE|FROM)\b", body[select.end() :], re.IGNORECASE):
        if token[1] is None and depth == 0 and token[0] != "(":
            break
        depth += {"(": 1, ")": -1}.get(token[0], 0)
        if token[1] and depth:
            last = token[1]
        elif token[1]:
            names.append(token[1])
        elif token[0] == ")" and depth == 0:
            names.append(last)  # ( expression AS ?last )
    if len(names) != 3:
        raise DataError(
            f"{address.place}: the query gives {len(names)} variables ({', '.join(names) or 'none by name'}); name "
            "three: SELECT ?head ?relation ?tail."
        )
    return tuple(names)


def _number(address: Address, key: str, default: float, least: float) -> float:
    value = address.options.get(key, default)
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = least - 1
    if not least <= number <= 1e9:
        raise ConfigError(f"{address.text}: {key} is {value!r}; it is a number, {least:g} or larger.")
    return number


def _asked(question: _Question, offset: int) -> bytes:
    """One page from the server; what may pass is waited for, as long as the server says."""
    if os.environ.get("CONTEXTPOOL_OFFLINE", "0") not in ("", "0"):
        raise OfflineError(f"{question.url}: no network is wanted (CONTEXTPOOL_OFFLINE).")
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return _received(question, offset)
        except _BusyError as error:
            wait = max(error.wait_s, 2.0 ** (attempt - 1))
            if attempt == ATTEMPTS or wait > LONGEST_WAIT_S:
                raise FetchError(
                    f"{question.url}: {error} The {offset:,} rows so far are kept for a day: type the same again "
                    f"{'later' if wait <= LONGEST_WAIT_S else f'in {wait:,.0f} seconds'}, perhaps with a smaller page= "
                    f"(it is {question.page:,}) or a longer timeout=."
                ) from None
        _sleep(wait)
    raise AssertionError("the last attempt returns or raises")


class _BusyError(Exception):
    """What may pass, and how long the server wants to be left alone."""

    def __init__(self, what: str, wait_s: float = 0.0) -> None:
        super().__init__(what)
        self.wait_s = wait_s


class _SameSafety(urllib.request.HTTPRedirectHandler):
    """Redirections, but not from https to http."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if urlsplit(req.full_url).scheme == "https" != urlsplit(newurl).scheme:
            raise urllib.error.HTTPError(
                req.full_url, code, f"redirects to {newurl}, which is not https", headers, fp
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _received(question: _Question, offset: int) -> bytes:
    opener = urllib.request.build_opener(_SameSafety)
    try:
        with opener.open(_request(question, offset), timeout=question.timeout_s) as response:
            if response.headers.get("X-SQL-State"):  # Virtuoso: its time was up, and the rest is missing
                raise _BusyError("the server cut the answer short, because its time was up.")
            body = response.read(MOST_BYTES + 1)
            if (
                response.length and len(body) <= MOST_BYTES
            ):  # with a size to read, http.client does not complain
                raise _BusyError(f"the connection was cut after {len(body):,} bytes.")
    except urllib.error.HTTPError as error:
        with error:
            said = " ".join(error.read(2000).decode("utf-8", "replace").split())[:300]
        what = f"the server says {error.code} {printable(f'{error.reason}: {said}')}"
        if error.code in _BUSY:
            raise _BusyError(what, _retry_after(error.headers.get("Retry-After"))) from None
        how = f" The password is read from {PASSWORD_VARIABLE}." if error.code in (401, 403) else ""
        raise DataError(f"{question.url}: {what}.{how} The query was: {question.text(offset)}") from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or str(error) or type(error).__name__
        raise _BusyError(f"it does not answer ({reason}).") from None
    if len(body) > MOST_BYTES:
        raise DataError(
            f"{question.url}: a page is larger than {MOST_BYTES >> 20} MiB. Ask for a smaller page=."
        )
    return cast("bytes", body)


def _request(question: _Question, offset: int) -> urllib.request.Request:
    version = vars(sys.modules["contextpool"])["__version__"]  # importing it would import every stage
    agent = os.environ.get(AGENT_VARIABLE) or f"contextpool/{version} (reads a graph, page by page)"
    headers = {"User-Agent": agent, "Accept": "application/sparql-results+json"}
    fields = {"query": question.text(offset)} | (
        {"default-graph-uri": question.graph} if question.graph else {}
    )
    url = f"{question.url}?{urlencode(fields)}"
    if len(url) <= _GET_CHARACTERS:
        request = urllib.request.Request(url, headers=headers)
    else:
        request = urllib.request.Request(question.url, urlencode(fields).encode(), headers)
    if question.user is not None:
        secret = f"{question.user}:{os.environ.get(PASSWORD_VARIABLE, '')}".encode()
        request.add_unredirected_header("Authorization", f"Basic {base64.b64encode(secret).decode()}")
    return request


def _retry_after(value: str | None) -> float:
    """Seconds, from seconds or from a date."""
    if value is None:
        return 0.0
    if value.strip().isdecimal():
        return float(value)
    with contextlib.suppress(ValueError, TypeError):
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    return 0.0
