"""S3: clients that send their headers or bodies byte by byte are cut, and nobody else notices."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from contextpool.serve.registry import Registry
from serve.served import Running, in_thread
from support import SOAK, amount

CONNECTIONS = 900
SLOW_HEADERS = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
SLOW_BODY = (
    b"POST /predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b"Content-Length: 1000\r\n\r\n{"
)
CLOSED_BY = 10.0


async def drip(port: int, start: bytes, until: float) -> float:
    """Send a beginning, then a byte every half second; returns after how many seconds the server hung up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    began = time.monotonic()
    writer.write(start)
    try:
        while time.monotonic() < until:
            try:
                answer = await asyncio.wait_for(reader.read(65536), 0.5)
                if not answer:
                    return time.monotonic() - began
            except TimeoutError:
                writer.write(b"x")
    except ConnectionError:
        return time.monotonic() - began
    finally:
        writer.close()
    return float("inf")


@contextlib.contextmanager
def health_probe(port: int) -> Iterator[list[float]]:
    """Fills the list with the times of /health when the block ends."""
    call = [sys.executable, str(Path(__file__).with_name("health_probe.py")), str(port)]
    taken: list[float] = []
    with subprocess.Popen(call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield taken
        told, _ = process.communicate("stop\n", timeout=60)
        taken += json.loads(told)


async def attack(port: int, seconds: float) -> list[float]:
    """900 slow clients at all times, for so many seconds; half of them with slow headers."""
    ends = time.monotonic() + seconds
    closed: list[float] = []

    async def one(number: int) -> None:
        while True:
            start = SLOW_HEADERS if number % 2 else SLOW_BODY
            closed.append(await drip(port, start, time.monotonic() + 2 * CLOSED_BY))
            if time.monotonic() > ends:
                return

    await asyncio.gather(*(one(number) for number in range(CONNECTIONS)))
    return closed


def test_slow_clients_are_cut_and_health_is_answered_meanwhile(
    server: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    with health_probe(server.port) as health:
        closed = asyncio.run(attack(server.port, amount(0, 60)))
    assert len(closed) >= CONNECTIONS
    assert max(closed) < CLOSED_BY
    p99 = float(np.percentile(health, 99))
    with capsys.disabled():
        print(f"\nS3: {len(closed)} slow clients, the last cut after {max(closed):.1f} s; "
              f"/health p99 {1000 * p99:.1f} ms of {len(health)}")  # fmt: skip
    assert len(health) > 10
    assert p99 < (0.1 if SOAK else 1.0)  # the machine of a quick run does other things, too
    status, text = server.get("/metrics")
    assert status == 200
    assert 'contextpool_connections_dropped_total{reason="too_slow"}' in text


# connections that misbehave one by one

HEALTH = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@pytest.fixture(scope="module")
def impatient(registry: Registry) -> Iterator[int]:
    """The port of a server that waits half a second for everything."""
    limits = {"receive_seconds": 0.5, "send_seconds": 0.5, "keep_alive": 0.5, "max_connections": 12}
    with in_thread(registry, **limits) as url:
        yield int(url.rpartition(":")[2])


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def everything(one: socket.socket) -> bytes:
    """Until the server hangs up."""
    with contextlib.suppress(ConnectionError):
        return b"".join(iter(lambda: one.recv(65536), b""))
    return b""


def test_who_says_nothing_is_told_and_cut(impatient: int) -> None:
    with connect(impatient) as one:
        assert everything(one).startswith(b"HTTP/1.1 408")


def test_a_second_request_has_a_deadline_of_its_own(impatient: int) -> None:
    with connect(impatient) as one:
        one.sendall(HEALTH + HEALTH[:20])
        told = everything(one)
    assert told.count(b"HTTP/1.1 200") == 1
    assert told.count(b"HTTP/1.1 408") == 1


def test_a_connection_that_rests_is_closed_without_a_word(impatient: int) -> None:
    with connect(impatient) as one:
        one.sendall(HEALTH)
        told = everything(one)
    assert told.startswith(b"HTTP/1.1 200")
    assert told.count(b"HTTP/1.1") == 1


def test_requests_sent_at_once_are_answered_in_order(impatient: int) -> None:
    with connect(impatient) as one:
        one.sendall(HEALTH * 20 + b"GET /ready HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        told = everything(one)
    assert told.count(b"HTTP/1.1 200") == 21
    assert told.endswith(b'{"status":"ready"}')


def ask_on_and_on(one: socket.socket, asking: bytes) -> None:
    for _ in range(5000):
        one.sendall(asking)
        time.sleep(0.01)


def test_who_does_not_read_is_cut(impatient: int) -> None:
    with connect(impatient) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        asking = HEALTH.replace(b"/health", b"/openapi.json")
        with pytest.raises(ConnectionError):
            ask_on_and_on(one, asking * 20)


def test_who_is_silent_makes_room(impatient: int) -> None:
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(connect(impatient)) for _ in range(40)]
        with connect(impatient) as one:
            one.sendall(HEALTH)
            assert one.recv(65536).startswith(b"HTTP/1.1 200")
        assert everything(silent[0]) == b""  # the longest silent first
