"""Mutants of HTTP over one server: each is answered by a status or its connection closed, and the server goes on."""

from __future__ import annotations

import json
import random
import re
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from golden.make import HERE as GOLDEN
from hostile.mutants import mutated_bytes, mutated_json
from serve.served import Running, running
from support import amount

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc as on Linux")

HOST = b"Host: 127.0.0.1\r\n"
BODIES = {
    "predict": {"head": "Aalborg", "relation": "near", "k": 3, "known": True},
    "predict/batch": {
        "questions": [{"head": "Aalborg", "relation": "near"}, {"head": "Aalborg", "tail": "Denmark"}]
    },
    "pool": {"head": "Aalborg", "relation": "near", "hops": 2},
    "check": {"claims": [{"head": "Aalborg", "relation": "near", "tail": "Denmark"}]},
}
ADDRESSES = (
    b"/",
    b"/health",
    b"/models",
    b"/entities?prefix=a&limit=5",
    b"/predict?head=Aalborg&relation=near",
    b"/explain?head=Aalborg&relation=near&tail=Gothenburg",
)
WITHIN = 60.0
"""Seconds for an answer of a server that shares the machine; it cuts whoever is slow after two."""


@pytest.fixture(scope="module")
def server() -> Running:
    with running(["world", "--run", str(GOLDEN / "nbfnet"), "--receive-seconds", "2"]) as one:
        yield one
        assert one.stop() == 0
        assert "Traceback" not in "".join(one.said), "".join(one.said)


def exchange(server: Running, data: bytes, half_closed: bool = False) -> bytes:
    """What comes back until the server closes or has answered and rests."""
    with server.connect(WITHIN) as connection:
        received = b""
        try:
            connection.sendall(data)
            if half_closed:
                connection.shutdown(socket.SHUT_WR)
            while more := connection.recv(1 << 16):
                received += more
                connection.settimeout(0.05 if is_whole(received) else WITHIN)
        except TimeoutError:
            assert is_whole(received), f"no answer within {WITHIN:g} s"
        except OSError:  # it was cut
            pass
        return received


def is_whole(answer: bytes) -> bool:
    head, end, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head.lower())
    return bool(end) and (length is None or len(body) >= int(length[1]))


def request(path: bytes, body: bytes | None = None, more: bytes = b"") -> bytes:
    if body is None:
        return b"GET " + path + b" HTTP/1.1\r\n" + HOST + more + b"\r\n"
    length = b"Content-Type: application/json\r\nContent-Length: %d\r\n" % len(body)
    return b"POST " + path + b" HTTP/1.1\r\n" + HOST + length + more + b"\r\n" + body


def mutant(rng: random.Random) -> bytes:
    path, value = rng.choice(sorted(BODIES.items()))
    if rng.random() < 0.5:
        return request(f"/{path}".encode(), json.dumps(mutated_json(value, rng)).encode())
    plain = (
        request(rng.choice(ADDRESSES))
        if rng.random() < 0.4
        else request(f"/{path}".encode(), json.dumps(value).encode())
    )
    return mutated_bytes(plain, rng)


def memory_of(pid: int) -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def test_mutants_of_requests_are_answered_and_the_server_goes_on(server: Running) -> None:
    statuses: Counter[str] = Counter()
    for seed in range(amount(60, 5000)):
        rng = random.Random(f"http {seed}")
        answer = exchange(server, mutant(rng), half_closed=rng.random() < 0.3)
        status = answer[9:12].decode("latin-1") or "closed"
        assert not status.startswith("5") or status in ("503", "504"), (seed, answer[:300])
        assert b"Traceback" not in answer, seed
        statuses[status] += 1
    assert server.get("/health")[0] == 200
    memory = memory_of(server.process.pid)
    print(f"\nHTTP: {statuses.total():,} mutants: {dict(statuses)}; {memory / 1e6:,.0f} MB")
    assert memory < 10**9


LONG = b"X: " + b"a" * 66_000 + b"\r\n"
SMUGGLED = b"0\r\n\r\n" + request(b"/models")


@pytest.mark.parametrize(
    ("data", "half_closed", "status"),
    [
        (request(b"/check", SMUGGLED, b"Transfer-Encoding: chunked\r\n"), False, b"400"),
        (request(b"/health", None, LONG), False, b"431"),
        (request(b"/health", None, b"".join(b"X%d: a\r\n" % k for k in range(9000))), False, b"431"),
        (request(b"/health"), True, b"200"),
        (request(b"/predict", b"{}")[:-1], True, b"400"),
        (b"GET /health HTTP/1.1\r\nHo", True, b"400"),
    ],
    ids=["both lengths", "long header", "many headers", "half-closed", "half a body", "half a header"],
)
def test_one_answer_and_an_end(server: Running, data: bytes, half_closed: bool, status: bytes) -> None:
    answer = exchange(server, data, half_closed)
    assert answer[9:12] == status
    assert answer.count(b"HTTP/1.1 ") == 1
    if status != b"200":
        assert b"connection: close" in answer.lower()


def test_who_resets_the_connection_leaves_no_traceback(server: Running) -> None:
    for _ in range(50):
        with server.connect() as connection:
            connection.sendall(request(b"/predict?head=Aalborg&relation=near"))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    assert server.get("/health")[0] == 200


def test_many_long_unknown_names_hold_up_nobody(server: Running) -> None:
    def cost(work: Callable[[], object]) -> float:
        stat = Path(f"/proc/{server.process.pid}/stat")
        before = sum(map(int, stat.read_text().rpartition(")")[2].split()[11:13]))
        work()
        return (sum(map(int, stat.read_text().rpartition(")")[2].split()[11:13])) - before) / 100

    names = [f"{k} {'x' * 180}" for k in range(256)]
    asked = {"questions": [{"head": name, "relation": "near"} for name in names]}
    assert cost(lambda: server.post("/predict/batch", asked)) < 1.0
    began = time.monotonic()
    assert server.get("/explain?head=Aalborg&relation=near&tail=Gothenburg")[0] == 200
    assert time.monotonic() - began < WITHIN
