"""S4: bodies that are too large, too deep or packed are refused before they are held."""

from __future__ import annotations

import functools
import gzip
import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from serve.served import Running

LIMIT = 2**20
MEMORY = 64 * 2**20
"""Bytes that all of it together may take."""
POST = "POST /predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


def send_all(one: socket.socket, parts: Iterator[bytes]) -> int:
    """How many bytes could be sent before the server hung up."""
    sent = 0
    try:
        for part in parts:
            one.sendall(part)
            sent += len(part)
    except OSError:
        pass
    return sent


def answer_of(one: socket.socket) -> tuple[int, bytes]:
    """(status, body); everything until the server closes."""
    received = b""
    try:
        while part := one.recv(65536):
            received += part
    except OSError:
        assert received, "the connection was reset before an answer arrived"
    head, _, body = received.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def ask(server: Running, head: str, parts: Iterator[bytes]) -> tuple[int, bytes, int]:
    with server.connect() as one:
        one.sendall((head + "\r\n").encode())
        sent = send_all(one, parts)
        return *answer_of(one), sent


def memory(server: Running) -> int:
    """The most bytes that the server ever held."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return 1024 * int(found.group(1))


@pytest.fixture
def steady(server: Running) -> Iterator[Running]:
    """The server, which afterwards holds hardly more than before and still answers."""
    if not Path("/proc/self/status").exists():
        pytest.skip("memory is read from /proc, which this system does not have")
    server.get("/predict?head=Belarus&relation=currency")
    before = memory(server)
    yield server
    assert memory(server) - before < MEMORY
    assert server.get("/health") == (200, {"status": "ok"})


def blocks(count: int, size: int = 2**16) -> Iterator[bytes]:
    return (b"x" * size for _ in range(count))


def chunks(count: int, size: int = 2**16) -> Iterator[bytes]:
    return (b"%x\r\n%s\r\n" % (size, b"x" * size) for _ in range(count))


def test_a_declared_length_over_the_limit_is_refused_before_a_byte_of_it(steady: Running) -> None:
    with steady.connect() as one:
        one.sendall(f"{POST}Content-Length: {200 * LIMIT}\r\n\r\n".encode())
        status, body = answer_of(one)  # nothing of the body was sent
    assert status == 413
    assert b"larger than 1,048,576 bytes" in body


def test_the_refusal_arrives_even_while_the_body_is_being_sent(steady: Running) -> None:
    status, _, sent = ask(steady, f"{POST}Content-Length: {200 * LIMIT}\r\n", blocks(200 * 16))
    assert status == 413
    assert sent < 200 * LIMIT  # hung up before the end


def test_chunks_are_counted(steady: Running) -> None:
    status, body, sent = ask(steady, f"{POST}Transfer-Encoding: chunked\r\n", chunks(200 * 16))
    assert status == 413
    assert b"larger than" in body
    assert sent < 200 * LIMIT


def test_get_with_a_body_is_no_way_round(steady: Running) -> None:
    head = f"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {50 * LIMIT}\r\n"
    assert ask(steady, head, blocks(50 * 16))[0] == 413


def test_a_client_that_waits_for_100_is_spared_the_body(steady: Running) -> None:
    with steady.connect() as one:
        one.sendall(f"{POST}Expect: 100-continue\r\nContent-Length: {2 * LIMIT}\r\n\r\n".encode())
        status, _ = answer_of(one)
    assert status == 413


@pytest.mark.parametrize("opening", [b"[", b'{"head":', b'{"candidates":[['])
def test_deep_json_is_refused(steady: Running, opening: bytes) -> None:
    body = opening * (LIMIT // len(opening) - 10)
    head = f"{POST}Connection: close\r\nContent-Length: {len(body)}\r\n"
    status, answer, _ = ask(steady, head, iter([body]))
    assert status in (400, 422)
    assert "error" in json.loads(answer)
    assert len(answer) < 2_000


def test_deep_json_that_is_complete_is_refused(steady: Running) -> None:
    body = b'{"head":' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    status, answer, _ = ask(
        steady, f"{POST}Connection: close\r\nContent-Length: {len(body)}\r\n", iter([body])
    )
    assert status in (400, 422)
    assert len(answer) < 2_000


@functools.cache
def bomb() -> bytes:
    """200 MiB in some 200 KiB."""
    packed = gzip.compress(b" " * (200 * LIMIT), 6)
    assert len(packed) < LIMIT
    return packed


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "gzip, gzip"])
def test_a_packed_body_is_refused_unopened(steady: Running, encoding: str) -> None:
    head = f"{POST}Content-Encoding: {encoding}\r\nContent-Length: {len(bomb())}\r\n"
    status, body, _ = ask(steady, head, iter([bomb()]))
    assert status == 400
    assert b"Content-Encoding" in body


def test_a_body_at_the_limit_is_read(steady: Running) -> None:
    body = b'{"head": "Belarus", "relation": "currency", "k": 1}'.ljust(LIMIT)
    head = f"{POST}Connection: close\r\nContent-Length: {len(body)}\r\n"
    status, answer, _ = ask(steady, head, iter([body]))
    assert status == 200
    assert len(json.loads(answer)["answers"]) == 1


@pytest.mark.parametrize(
    "head",
    [
        "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + "x" * 200_000 + "\r\n",
        "GET /" + "x" * 200_000 + " HTTP/1.1\r\nHost: 127.0.0.1\r\n",
        "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: elsewhere\r\n",
        "GET /health HTTP/1.1\r\n",
        "POST /predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n",
        "POST /predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -5\r\n",
        f"POST /predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {'9' * 30}\r\n",
        "nonsense",
        "\x16\x03\x01\x02\x00\x01",
    ],
    ids=lambda head: head[:40],
)
def test_what_is_no_request_is_refused(steady: Running, head: str) -> None:
    status, body, _ = ask(steady, head, iter([b"\r\n"]))
    assert 400 <= status < 500
    assert "error" in json.loads(body)
