"""Servers for the tests: one in this process to ask without sockets, and real ones that can be killed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import contextpool as cp
from contextpool.graph.graph import Graph

pytest.importorskip("fastapi", reason="the serve extra is not installed")
pytest.importorskip("uvicorn", reason="the serve extra is not installed")

from starlette.testclient import TestClient

from contextpool.serve import GraphSource, ModelSource, ServeSettings
from contextpool.serve.app import create_app
from contextpool.serve.registry import Registry
from contextpool.serve.server import Server, address_of, listen
from contextpool.serve.service import Service

SOURCES = str(Path(cp.__file__).resolve().parents[1])
BASE = "http://127.0.0.1"
TOKEN = "a-token-that-is-long-enough"
SECONDS_TO_START = 120


def world_graph() -> Graph:
    return Graph.from_triples(cp.load_dataset("world").inference_graph)


@pytest.fixture(scope="session")
def walk_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A second model, which needs no training."""
    run = tmp_path_factory.mktemp("walk") / "run"
    cp.train("world", "walk", {"views": [], "arrive": True}, output=run)
    return run


@pytest.fixture(scope="session")
def registry(world_run: Path, walk_run: Path) -> Registry:
    models = [ModelSource("demo", world_run), ModelSource("walk", walk_run)]
    return Registry(models, [GraphSource("world", world_graph)])


@contextlib.contextmanager
def service_of(registry: Registry, **settings: Any) -> Iterator[Service]:
    service = Service(registry, ServeSettings(**settings))
    try:
        yield service
    finally:
        service.close()


@contextlib.contextmanager
def client_of(registry: Registry, **settings: Any) -> Iterator[TestClient]:
    """Asks the application without a socket; what it raises would be raised here."""
    with service_of(registry, **settings) as service:
        yield TestClient(create_app(service), base_url=BASE)


@contextlib.contextmanager
def in_thread(registry: Registry, **settings: Any) -> Iterator[str]:
    """A real server in a thread of this process; gives its address."""
    with service_of(registry, **{"port": 0, "drain_seconds": 0.0, **settings}) as service:
        listener = listen(service.settings)
        server = Server(service)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield address_of(listener, service.settings.host)
        finally:
            server.should_exit = True
            thread.join(60)
            listener.close()


@dataclass
class Running:
    """A server in a process of its own."""

    process: subprocess.Popen[str]
    addresses: list[str] = field(default_factory=list)
    """Those it has listened at, one after another."""
    said: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return self.addresses[-1].rstrip("/")

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def get(self, path: str, **headers: str) -> tuple[int, Any]:
        """(status, JSON or text)"""
        return fetch(urllib.request.Request(self.url + path, headers=headers))

    def post(self, path: str, body: Any, **headers: str) -> tuple[int, Any]:
        data = json.dumps(body).encode()
        headers = {"content-type": "application/json", **headers}
        return fetch(urllib.request.Request(self.url + path, data=data, headers=headers))

    def connect(self, timeout: float = 30) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout)

    def wait_for_address(self, number: int = 1) -> None:
        """Until it listens, for the so manieth time where it is stopped and begins again."""
        until = time.monotonic() + SECONDS_TO_START
        while len(self.addresses) < number:
            if self.process.poll() is not None or time.monotonic() > until:
                time.sleep(0.2)
                raise AssertionError(f"the server did not start: {''.join(self.said)}")
            time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(how)
        return self.process.wait(60)


def fetch(request: urllib.request.Request) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            status, body = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            status, body = error.code, error.read()
    try:
        return status, json.loads(body)
    except ValueError:
        return status, body.decode()


@contextlib.contextmanager
def running(
    arguments: Sequence[str], command: Sequence[str] = ("-m", "contextpool", "serve"), **environment: str
) -> Iterator[Running]:
    """`contextpool serve` on a free port, until the block ends."""
    paths = os.pathsep.join([SOURCES, *filter(None, [os.environ.get("PYTHONPATH")])])
    own = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", **environment}
    port = ["--port", "0"] if "serve" in command else []
    call = [sys.executable, *command, *arguments, *port]
    process = subprocess.Popen(call, env=own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    server = Running(process)
    reader = threading.Thread(target=_listen_to, args=(server,), daemon=True)
    reader.start()
    try:
        server.wait_for_address()
        yield server
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(60)
        reader.join(60)
        assert process.stdout is not None
        process.stdout.close()


def _listen_to(server: Running) -> None:
    assert server.process.stdout is not None
    for line in server.process.stdout:
        server.said.append(line)
        found = re.search(r"serves at (http://\S+)", line)
        if found:
            server.addresses.append(found.group(1))


@pytest.fixture(scope="session")
def server(world_run: Path) -> Iterator[Running]:
    """One that several tests share; none of them may stop it. A short deadline for slow clients."""
    with running(["world", "--run", str(world_run), "--receive-seconds", "3"]) as one:
        yield one
        assert "Traceback" not in "".join(one.said)
        assert one.stop() == 0
