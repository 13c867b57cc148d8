"""A real SPARQL server (oxigraph, from PyPI) behind a proxy that is as busy, slow and broken as servers can be."""

from __future__ import annotations

import email.utils
import json
import socket
import subprocess
import sysconfig
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

import contextpool as cp
from command_line import run
from contextpool.errors import ConfigError, DataError, FetchError, MissingExtraError, OfflineError
from contextpool.triples.reader import read_triples
from contextpool.triples.sources import sparql

pytest.importorskip("pyoxigraph", reason="the rdf extra is not installed")
EX = "http://example.org/"
LINKS = [(f"n{k}", ("likes", "knows")[k % 2], f"n{k * 7 % 23}") for k in range(23)]
FACTS = {tuple(f"ex:{name}" for name in link) for link in LINKS}
PREFIX = f"prefix=ex:{EX}"
QUERY = f"PREFIX ex: <{EX}>  # ours\nSELECT ?a (?b AS ?how) ?c WHERE {{ ?a ?b ?c FILTER(isIRI(?c)) }}"


class Proxy(ThreadingHTTPServer):
    """Hands queries on, but for what `mishaps` says first: a status with headers, "cut", "short" or None."""

    def __init__(self, server: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.server, self.mishaps, self.seen = server, [], []  # type: ignore[var-annotated]
        self.cap: int | None = None

    @property
    def address(self) -> str:
        return f"sparql+http://127.0.0.1:{self.server_port}/query"


class _Handler(BaseHTTPRequestHandler):
    server: Proxy

    def do_GET(self) -> None:
        self._answer(parse_qs(urlsplit(self.path).query))

    def do_POST(self) -> None:
        self._answer(parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode()))

    def _answer(self, fields: dict[str, list[str]]) -> None:
        self.server.seen.append((self.command, fields, dict(self.headers)))
        mishap = self.server.mishaps.pop(0) if self.server.mishaps else None
        if isinstance(mishap, tuple):
            self._send(mishap[0], b"not \x1b[31mnow", mishap[1])
            return
        request = urllib.request.Request(self.server.server, data=fields["query"][0].encode())
        request.add_header("Content-Type", "application/sparql-query")
        request.add_header("Accept", self.headers["Accept"])
        try:
            with urllib.request.urlopen(request) as response:
                body, status = response.read(), 200
        except urllib.error.HTTPError as error:
            with error:
                body, status = error.read(), error.code
        if self.server.cap is not None and status == 200:  # gives fewer rows than it is asked for
            answer = json.loads(body)
            answer["results"]["bindings"] = answer["results"]["bindings"][: self.server.cap]
            body = json.dumps(answer).encode()
        self._send(status, body, {"X-SQL-State": "S1TAT"} if mishap == "short" else {}, cut=mishap == "cut")

    def _send(self, status: int, body: bytes, headers: dict[str, str], cut: bool = False) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if cut else body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def oxigraph() -> Iterator[str]:
    """The address of a server that holds LINKS and a few facts about literals and blank nodes."""
    program = Path(sysconfig.get_path("scripts")) / "oxigraph"
    if not program.is_file():
        pytest.skip("no oxigraph server on this machine (pip install oxigraph)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [program, "serve", "--bind", f"127.0.0.1:{port}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        url = process.stdout.readline().split()[-1]  # type: ignore[union-attr]
        lines = [f"<{EX}{h}> <{EX}{r}> <{EX}{t}> ." for h, r, t in LINKS]
        lines += [f'<{EX}n{k}> <{EX}name> "name {k}"@en .' for k in range(3)]
        lines += [f"_:b0 <{EX}likes> <{EX}n0> ."]
        request = urllib.request.Request(f"{url}/store?default", "\n".join(lines).encode(), method="POST")
        request.add_header("Content-Type", "application/n-triples")
        urllib.request.urlopen(request).close()
        yield f"{url}/query"
    finally:
        process.terminate()
        process.communicate()


@pytest.fixture
def proxy(oxigraph: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    monkeypatch.setenv("CONTEXTPOOL_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sparql, "_sleep", pauses.append)
    pauses.clear()
    with Proxy(oxigraph) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield made
        made.shutdown()


pauses: list[float] = []


def offsets(proxy: Proxy) -> list[int]:
    return [int(fields["query"][0].rsplit(None, 1)[1]) for _, fields, _ in proxy.seen]


def test_all_facts_or_those_of_a_query_page_by_page(proxy: Proxy):
    told: list[str] = []
    assert set(read_triples(f"{proxy.address}?{PREFIX}", tell=told.append)) == FACTS
    assert len(proxy.seen) == 2  # a page, and that there is no other
    assert told == ["left out 1 facts that name a blank node (blank=keep keeps them); 23 stay"]
    proxy.seen.clear()
    pauses.clear()
    assert set(cp.read_graph(f"{proxy.address}?page=10&delay=0.5&{PREFIX}&query={QUERY}").triples) >= FACTS
    assert offsets(proxy) == [0, 10, 20, 24]
    assert pauses == [0.5] * 3
    _, _, headers = proxy.seen[0]
    assert headers["User-Agent"].startswith(f"contextpool/{cp.__version__}")
    assert headers["Accept"] == "application/sparql-results+json"


def test_the_command_line_reads_it(
    proxy: Proxy, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    source = f"{proxy.address}?delay=0&page=7&{PREFIX}"
    ran = run(["data", "convert", source, str(tmp_path / "facts.tsv")], capsys, monkeypatch)
    assert (ran.code, set(read_triples(tmp_path / "facts.tsv"))) == (0, FACTS), ran.err
    proxy.mishaps = [(503, {"Retry-After": "3600"})]
    ran = run(["mine", source], capsys, monkeypatch)
    assert (ran.code, len(ran.err.splitlines())) == (1, 1)
    assert "type the same again in 3,600 seconds" in ran.err


def test_a_server_that_gives_fewer_rows_than_asked_for_loses_none(proxy: Proxy):
    proxy.cap = 4
    assert set(read_triples(f"{proxy.address}?page=20&{PREFIX}")) == FACTS
    assert offsets(proxy) == [0, 4, 8, 12, 16, 20, 24]


def test_a_busy_server_is_left_alone_as_long_as_it_says(proxy: Proxy):
    later = email.utils.formatdate(time.time() + 100, usegmt=True)
    proxy.mishaps = [
        (429, {"Retry-After": "7"}),
        (503, {}),
        (503, {"Retry-After": later}),
        "cut",
        None,
        "short",
    ]
    assert set(read_triples(f"{proxy.address}?delay=0&{PREFIX}")) == FACTS
    assert pauses[:2] == [7.0, 2.0]
    assert 60 < pauses[2] <= 100
    assert pauses[3:] == [8.0, 0.0, 1.0]


def test_redirections_are_followed_but_never_to_less_safety(proxy: Proxy):
    proxy.mishaps = [(302, {"Location": f"http://127.0.0.1:{proxy.server_port}/elsewhere?query=x"})]
    with pytest.raises(DataError, match="400"):  # the query of the new place is no query
        read_triples(proxy.address)
    assert [fields["query"][0][:6] for _, fields, _ in proxy.seen] == ["SELECT", "x"]
    request = urllib.request.Request("https://example.org/query")
    with pytest.raises(urllib.error.HTTPError, match="which is not https"):
        sparql._SameSafety().redirect_request(request, None, 302, "", None, "http://example.org/query")


def test_a_reading_that_broke_off_goes_on_where_it_was(proxy: Proxy, tmp_path: Path):
    source = f"{proxy.address}?page=5&{PREFIX}"
    proxy.mishaps = [None, None, *[(500, {})] * sparql.ATTEMPTS]
    with pytest.raises(FetchError, match=r"500 .*The 10 rows so far are kept.*smaller page=.*5"):
        read_triples(source)
    proxy.seen.clear()
    told: list[str] = []
    assert set(read_triples(source, tell=told.append)) == FACTS
    assert offsets(proxy) == [10, 15, 20, 24]
    assert told[0] == "10 rows were read before the last try broke off; asking for the rest"
    assert not list((tmp_path / "cache" / "sparql").iterdir())  # nothing stays of a whole answer
    proxy.seen.clear()
    assert set(read_triples(source)) == FACTS
    assert offsets(proxy)[0] == 0


def test_old_pages_and_those_of_another_query_are_not_used(proxy: Proxy, monkeypatch: pytest.MonkeyPatch):
    proxy.mishaps = [None, (400, {})]
    with pytest.raises(DataError, match="400"):
        read_triples(f"{proxy.address}?page=5")
    proxy.seen.clear()
    assert len(read_triples(f"{proxy.address}?page=5&limit=12")) == 11  # one of the rows names a blank node
    assert offsets(proxy) == [0, 5, 10]
    assert "LIMIT 2 OFFSET 10" in proxy.seen[-1][1]["query"][0]
    monkeypatch.setattr(sparql, "KEPT_S", -10.0)
    proxy.seen.clear()
    read_triples(f"{proxy.address}?page=5")
    assert offsets(proxy)[0] == 0


def test_literals_blank_nodes_and_long_queries(proxy: Proxy):
    kept = set(read_triples(f"{proxy.address}?literals=keep&blank=keep&{PREFIX}"))
    assert ("ex:n0", "ex:name", '"name 0"@en') in kept
    assert len(kept) == 27
    names = f"SELECT ?name ('is called' AS ?how) ?x WHERE {{ ?x <{EX}name> ?name }}"
    assert ("name 1", "is called", "ex:n1") in set(
        read_triples(f"{proxy.address}?literals=text&{PREFIX}&query={names}")
    )
    with pytest.raises(DataError, match=r"is no IRI.*literals=text"):
        read_triples(f"{proxy.address}?literals=keep&query={names}")
    proxy.seen.clear()
    assert set(read_triples(f"{proxy.address}?{PREFIX}&query={QUERY} # {'x' * 3000}")) == FACTS
    assert {method for method, _, _ in proxy.seen} == {"POST"}


def test_a_user_a_graph_and_an_agent_are_sent(proxy: Proxy, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SPARQL_PASSWORD", "secret")
    monkeypatch.setenv("CONTEXTPOOL_USER_AGENT", "me@example.org")
    read_triples(f"{proxy.address.replace('//', '//ann@')}?graph={EX}g&order=no")
    _, fields, headers = proxy.seen[0]
    assert headers["Authorization"] == "Basic YW5uOnNlY3JldA=="
    assert headers["User-Agent"] == "me@example.org"
    assert fields["default-graph-uri"] == [f"{EX}g"]
    assert "ORDER BY" not in fields["query"][0]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("query=SELECT ?a ?b WHERE { ?a ?b ?c }", r"gives 2 variables \(a, b\)"),
        ("query=SELECT * WHERE { ?a ?b ?c }", "none by name"),
        ("query=CONSTRUCT { ?a ?b ?c } WHERE { ?a ?b ?c }", "has to be one SELECT"),
        ("query=SELECT ?a ?b ?c WHERE { ?a ?b }", "the server says 400 Bad Request.*The query was: SELECT"),
        ("query=SELECT ?a ?b ?c WHERE { ?a ?b ?d OPTIONAL { ?d <x:y> ?c } }", r"row 1 of the query: \?c is unbound"),
        ("query=SELECT ?a ?b ?c WHERE { ?a ?b ?c FILTER(false) }", "no rows"),
        ("page=0", "page is '0'"),
        ("pages=5", "Did you mean page"),
        ("delay=soon", "delay is 'soon'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(proxy: Proxy, options: str, said: str):
    with pytest.raises((DataError, ConfigError), match=said):
        read_triples(f"{proxy.address}?{options}")


def test_what_is_no_endpoint(proxy: Proxy, monkeypatch: pytest.MonkeyPatch):
    proxy.mishaps = [(200, {"Content-Type": "text/html"})]
    with pytest.raises(DataError, match=r"no SPARQL result in JSON.*not.*now"):
        read_triples(proxy.address)
    proxy.mishaps = [(401, {})]
    with pytest.raises(DataError, match=r"401.*not \[31mnow.*SPARQL_PASSWORD"):
        read_triples(proxy.address)
    with pytest.raises(FetchError, match=r"does not answer.*Connection refused"):
        read_triples("sparql+http://127.0.0.1:1/query")
    for wrong, said in (
        ("sparql+http:///query", "which server"),
        ("sparql+https://a:b@h/q", "SPARQL_PASSWORD"),
    ):
        with pytest.raises(ConfigError, match=said):
            read_triples(wrong)
    monkeypatch.setattr(sparql, "MOST_ROWS", 10)
    with pytest.raises(DataError, match=r"more than 10 rows.*limit=ROWS"):
        read_triples(proxy.address)
    monkeypatch.setattr(sparql, "MOST_BYTES", 100)
    with pytest.raises(DataError, match="a page is larger"):
        read_triples(f"{proxy.address}?order=no")
    monkeypatch.setenv("CONTEXTPOOL_OFFLINE", "1")
    with pytest.raises(OfflineError):
        read_triples(f"{proxy.address}?order=no")
    monkeypatch.setitem(__import__("sys").modules, "pyoxigraph", None)
    with pytest.raises(MissingExtraError, match=r"contextpool\[rdf\]"):
        read_triples(proxy.address)
