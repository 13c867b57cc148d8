"""S6: who may ask: loopback by default, tokens, Host, CORS, what browsers are told; and reloading."""

from __future__ import annotations

import hmac
import http.client
import json
import os
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from contextpool.cli.inputs import load_graph
from contextpool.cli.serve import graph_sources
from contextpool.errors import ConfigError, DataError
from contextpool.graph.graph import Graph
from contextpool.serve import GraphSource, ModelSource, ServeSettings, rehearsal
from contextpool.serve.registry import Registry
from contextpool.serve.server import Server, address_of, listen
from contextpool.serve.settings import bare_host
from serve.served import TOKEN, client_of, fetch, in_thread, service_of, world_graph

BEARER = {"authorization": f"Bearer {TOKEN}"}
CLOSED = ["/predict?head=Belarus&relation=currency", "/models", "/relations", "/entities?prefix=a", "/metrics",
          "/openapi.json", "/explain?head=Belarus&relation=currency&tail=Euro", "/nowhere",
          "/pool?head=Belarus&relation=currency"]  # fmt: skip
OPEN = ["/", "/health", "/ready", "/static/app.css"]


@pytest.fixture(scope="module")
def client(registry: Registry) -> Iterator[TestClient]:
    with client_of(registry, token=TOKEN) as one:
        yield one


# where it listens


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.168.1.7", "8.8.8.8", "10.0.0.1", "fe80::1"])
def test_other_addresses_need_a_token(host: str) -> None:
    with pytest.raises(ConfigError, match="no token is set"):
        ServeSettings(host=host)
    assert ServeSettings(host=host, token=TOKEN).host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.8.9.10"])
def test_loopback_needs_none(host: str) -> None:
    assert ServeSettings(host=host).token is None


def test_the_default_is_loopback() -> None:
    assert ServeSettings().host == "127.0.0.1"


@pytest.mark.parametrize(
    "token", ["", "short", "x" * 15, "with a space in the middle", "ümlaut-ümlaut-ümlaut", "a\n" * 10]
)
def test_a_token_that_can_be_guessed_or_not_be_sent_is_refused(token: str) -> None:
    with pytest.raises(ConfigError, match="token"):
        ServeSettings(token=token)


# tokens


@pytest.mark.parametrize("path", CLOSED)
def test_without_the_token_nothing_is_told(client: TestClient, path: str) -> None:
    wrong = [TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "", "\xff"]
    for headers in ({}, *({"authorization": f"Bearer {one}"} for one in wrong), {"authorization": TOKEN},
                    {"authorization": f"Basic {TOKEN}"}, {"cookie": f"token={TOKEN}"}):  # fmt: skip
        encoded = {name: value.encode("latin-1") for name, value in headers.items()}
        answer = client.get(path, headers=encoded)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert "Belarus" not in answer.text
        assert TOKEN not in answer.text
    assert client.get(path, headers=BEARER).status_code == (404 if path == "/nowhere" else 200)


@pytest.mark.parametrize("path", OPEN)
def test_the_page_and_health_need_no_token_and_tell_nothing(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 200
    assert "Belarus" not in answer.text.replace("e.g. Belarus", "")
    assert TOKEN not in answer.text


def test_tokens_are_compared_in_constant_time(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []

    def spy(one: bytes, other: bytes) -> bool:
        compared.append(other)
        return original(one, other)

    original = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", spy)
    with client_of(registry, token=TOKEN) as client:
        assert client.get("/models", headers={"authorization": "Bearer wrong"}).status_code == 401
        assert client.get("/models", headers={"authorization": "Wrong " + TOKEN}).status_code == 401
        assert client.get("/models", headers=BEARER).status_code == 200
    assert compared == [TOKEN.encode()] * 3


SPELLINGS = ["/static/../models", "/static/%2e%2e/models", "/static/..%2fmodels", "/health/../models", "//models",
             "/./models", "/models/", "/MODELS", "/models%00", "http://x/models", "/static/models"]  # fmt: skip


def test_no_way_round_the_token_by_another_spelling(registry: Registry) -> None:
    with in_thread(registry, token=TOKEN) as url:
        for path in SPELLINGS:
            connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)
            connection.request("GET", path)
            answer = connection.getresponse()
            assert answer.status in (400, 401, 404)
            assert b"fingerprint" not in answer.read()
            connection.close()


# browsers


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "evil.example:8000",
        "",
        "localhost@evil",
        "[::2]",
        "127.0.0.2",
    ],
)
def test_another_name_for_this_machine_is_refused(registry: Registry, host: str) -> None:
    with client_of(registry) as client:
        answer = client.get("/predict?head=Belarus&relation=currency", headers={"host": host})
        assert answer.status_code == 400
        assert "Belarus" not in answer.text
        assert "--allow-host" in answer.text


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:80", "[::1]", "localhost.", "graphs.example:443"],
)
def test_own_names_are_answered(registry: Registry, host: str) -> None:
    with client_of(registry, allow_hosts=("graphs.example",)) as client:
        assert client.get("/health", headers={"host": host}).status_code == 200


def test_bare_hosts() -> None:
    assert [bare_host(one) for one in ("A.b:80", "[::1]:80", "::1", "x.", " y ")] == [
        "a.b",
        "::1",
        "::1",
        "x",
        "y",
    ]


def test_other_origins_get_no_permission(registry: Registry) -> None:
    origin = {"origin": "https://evil.example"}
    asks = {
        **origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": "content-type",
    }
    with client_of(registry) as client:
        posted = client.post("/predict", json={"head": "Belarus", "relation": "currency"}, headers=origin)
        answers = [client.get("/models", headers=origin), client.options("/predict", headers=asks), posted]
    for answer in answers:
        assert not [name for name in answer.headers if name.startswith("access-control-")]
    assert answers[1].status_code == 405


@pytest.mark.parametrize("path", [*OPEN, "/models", "/nowhere", "/predict?head=nobody&relation=x"])
def test_every_response_says_what_a_browser_may_do_with_it(client: TestClient, path: str) -> None:
    headers = client.get(path, headers=BEARER).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy.replace("https", "http")  # no other origin is allowed anything
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "server" not in headers
    if not path.startswith("/static") and path != "/":
        assert headers["cache-control"] == "no-store"


NASTY = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</script><svg onload=alert(1)>",
    "{{7*7}}",
]


def test_labels_that_are_markup_stay_json(world_run: Path) -> None:
    from contextpool.graph.graph import Graph

    facts = [(one, "borders", other) for one in NASTY for other in NASTY if one != other]
    registry = Registry([ModelSource("m", world_run)], [GraphSource("g", lambda: Graph.from_triples(facts))])
    with client_of(registry) as client:
        for label in NASTY:
            for path in (
                "/predict?relation=borders&known=true&head=",
                "/entities?prefix=",
                "/predict?relation=x&head=",
            ):
                answer = client.get(path + label.replace("&", "%26"))
                assert answer.headers["content-type"] == "application/json"
                assert answer.headers["x-content-type-options"] == "nosniff"
                json.loads(answer.text)


# reloading


def test_reloading_needs_a_token_to_exist(registry: Registry) -> None:
    with client_of(registry) as client:
        answer = client.post("/admin/reload", json={})
        assert answer.status_code == 403
        assert "--token-file" in answer.json()["error"]["message"]


def test_a_model_is_swapped_and_what_cannot_be_loaded_changes_nothing(
    world_run: Path, walk_run: Path, tmp_path: Path
) -> None:
    link = tmp_path / "current"
    link.symlink_to(world_run)
    registry = Registry(
        [ModelSource("m", link), ModelSource("other", walk_run)], [GraphSource("world", world_graph)]
    )
    old = registry.snapshot.engine("m", "world")
    kept = registry.snapshot.engine("other", "world")
    with client_of(registry, token=TOKEN) as client:
        assert client.post("/admin/reload", json={}).status_code == 401

        def answered_by() -> str:
            asked = {"head": "Belarus", "relation": "currency", "model": "m"}
            return str(client.get("/predict", params=asked, headers=BEARER).json()["model"]["fingerprint"])

        first = answered_by()
        link.unlink()
        link.symlink_to(walk_run)
        assert answered_by() == first  # nothing happens by itself
        answer = client.post("/admin/reload", json={"model": "m"}, headers=BEARER)
        assert answer.status_code == 200
        second = answered_by()
        assert second != first
        assert {one["fingerprint"] for one in answer.json()["models"] if one["name"] == "m"} == {second}
        assert registry.snapshot.engine("other", "world") is kept
        link.unlink()
        link.symlink_to(tmp_path / "nowhere")
        answer = client.post("/admin/reload", json={"model": "m"}, headers=BEARER)
        assert answer.status_code == 409
        assert "nothing was replaced" in answer.json()["error"]["message"]
        assert answered_by() == second
        for body, status in (({"model": "mm"}, 404), ({"graph": "x"}, 404), ({"path": "/etc"}, 422)):
            assert client.post("/admin/reload", json=body, headers=BEARER).status_code == status
        metrics = client.get("/metrics", headers=BEARER).text
        assert 'contextpool_reloads_total{outcome="done"} 1' in metrics
        assert 'contextpool_reloads_total{outcome="failed"} 1' in metrics
    assert old.model.fingerprint == first  # whoever holds it is still answered by it


def test_a_reload_of_something_damaged_replaces_nothing(world_run: Path, tmp_path: Path) -> None:
    run, facts = tmp_path / "run", tmp_path / "facts.tsv"
    shutil.copytree(world_run, run)
    facts.write_text("".join("\t".join(triple) + "\n" for triple in world_graph().triples))
    graph = GraphSource("facts", partial(load_graph, str(facts), "inference"), place=str(facts))
    registry = Registry([ModelSource("m", run)], [graph])
    before = registry.snapshot

    def refused() -> str:
        answer = client.post("/admin/reload", json={}, headers=BEARER)
        assert answer.status_code == 409
        assert registry.snapshot is before
        return str(answer.json()["error"]["message"])

    with client_of(registry, token=TOKEN) as client:
        whole = (run / "metrics.json").read_text()
        for content in ("{}", "[]", '{"calibration": 1}', "1", whole.replace("temperature", "x")):
            (run / "metrics.json").write_text(content)
            assert "metrics.json" in refused() or "calibration" in refused()
        (run / "metrics.json").write_text(whole)
        facts.unlink()
        os.mkfifo(facts)
        assert "pipe or a device" in refused()


def test_a_reload_that_ends_a_process_does_not_end_the_server(
    world_run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A process of its own loads model and graph first; here one that is ended as damaged files could end it."""
    facts = tmp_path / "facts.tsv"
    facts.write_text("".join("\t".join(triple) + "\n" for triple in world_graph().triples))
    registry = Registry([ModelSource("m", world_run)], graph_sources([f"g={facts}"], []))
    before = registry.snapshot
    dies = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    with client_of(registry, token=TOKEN) as client:
        monkeypatch.setattr(rehearsal, "COMMAND", (sys.executable, "-c", dies))
        for body, place in (({"model": "m"}, world_run.name), ({"graph": "g"}, "facts.tsv")):
            answer = client.post("/admin/reload", json=body, headers=BEARER)
            assert answer.status_code == 409
            told = answer.json()["error"]["message"]
            assert place in told
            assert "ended the process that tried it first" in told
            assert registry.snapshot is before
        monkeypatch.undo()
        assert client.post("/admin/reload", json={"graph": "g"}, headers=BEARER).status_code == 200
        asked = {"head": "Belarus", "relation": "currency"}
        assert client.get("/predict", params=asked, headers=BEARER).status_code == 200


def with_its_loading(does: str) -> tuple[str, ...]:
    """The command of a rehearsal, whose two ways to load do this instead, where `place` is what they are given."""
    code = (
        "import os, signal, time\nimport contextpool.experiment, contextpool.predict.inputs\n"
        f"def instead(place, **options):\n    {does}\n"
        "contextpool.experiment.load = contextpool.predict.inputs.as_graph = instead\n"
        "from contextpool.serve.rehearsal import main\nmain()"
    )
    return (sys.executable, "-c", code)


def test_a_rehearsal_loads_what_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ends its process while it loads that very place is an error; any other failure is not told here."""
    for kind in ("model", "graph"):
        dies = "os.kill(os.getpid(), signal.SIGSEGV) if place == 'this place' else None"
        monkeypatch.setattr(rehearsal, "COMMAND", with_its_loading(dies))
        with pytest.raises(DataError, match="this place: loading it ended the process"):
            rehearsal.rehearse(kind, "this place")  # type: ignore[arg-type]
        monkeypatch.setattr(rehearsal, "COMMAND", with_its_loading("raise ValueError(place)"))
        rehearsal.rehearse(kind, "this place")  # type: ignore[arg-type]


def test_a_rehearsal_ends_when_the_server_has_gone() -> None:
    left = subprocess.Popen([*with_its_loading("time.sleep(600)"), "graph", "x"], stdin=subprocess.PIPE)
    assert left.stdin is not None
    left.stdin.close()
    assert left.wait(60) == 0


def test_a_reload_that_never_ends_does_not_hold_up_the_end(world_run: Path) -> None:
    """As from a disk that does not answer."""
    hangs, for_ever = threading.Event(), threading.Event()

    def read() -> Graph:
        if hangs.is_set():
            for_ever.wait()
        return world_graph()

    registry = Registry([ModelSource("m", world_run)], [GraphSource("world", read)])
    settings = {"port": 0, "drain_seconds": 0.0, "token": TOKEN, "deadline": 0.5, "send_seconds": 0.5}
    with service_of(registry, **settings) as service:
        listener = listen(service.settings)
        server = Server(service)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        address = address_of(listener, service.settings.host)
        request = urllib.request.Request(
            f"{address}/admin/reload", b"{}", {"content-type": "application/json", **BEARER}
        )
        hangs.set()
        asking = threading.Thread(target=suppressed_fetch, args=(request,), daemon=True)
        asking.start()
        until = time.monotonic() + 60
        while not any(one.name == "loading" for one in threading.enumerate()):
            assert time.monotonic() < until
            time.sleep(0.01)
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive()
        listener.close()
    for_ever.set()


def suppressed_fetch(request: urllib.request.Request) -> None:
    with suppress(OSError, http.client.HTTPException):
        fetch(request)
