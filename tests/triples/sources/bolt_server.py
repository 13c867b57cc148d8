"""A server that speaks bolt 5.0, as much of it as a query for reading needs, with answers written beforehand.

The wire protocol is real (handshake, chunked messages, PackStream, routing, records in portions), so the driver is the
one that users have; what Cypher means is not implemented: a query is looked up in a table of answers.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

MAGIC, VERSION = b"\x60\x60\xb0\x17", b"\x00\x00\x00\x05"  # 5.0: minor, then major, in the last two bytes
HELLO, GOODBYE, RESET, RUN, DISCARD, PULL, ROUTE = 0x01, 0x02, 0x0F, 0x10, 0x2F, 0x3F, 0x66
SUCCESS, RECORD, IGNORED, FAILURE = 0x70, 0x71, 0x7E, 0x7F


@dataclass(frozen=True)
class Structure:
    """A PackStream structure: a message, or a node (0x4E) among the values of a record."""

    tag: int
    fields: tuple[Any, ...]


def packed(value: Any) -> bytes:
    """PackStream, with one size of each kind."""
    if value is None:
        return b"\xc0"
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        return b"\xcb" + struct.pack(">q", value)
    if isinstance(value, float):
        return b"\xc1" + struct.pack(">d", value)
    if isinstance(value, str):
        return b"\xd2" + struct.pack(">I", len(value.encode())) + value.encode()
    if isinstance(value, list | tuple):
        return b"\xd6" + struct.pack(">I", len(value)) + b"".join(map(packed, value))
    if isinstance(value, dict):
        pairs = b"".join(packed(key) + packed(each) for key, each in value.items())
        return b"\xda" + struct.pack(">I", len(value)) + pairs
    return bytes([0xB0 + len(value.fields), value.tag]) + b"".join(map(packed, value.fields))


class Unpacker:
    """PackStream as the driver writes it."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, form: str) -> int:
        (value,) = struct.unpack(f">{form}", self.take(struct.calcsize(form)))
        return int(value)

    def value(self) -> Any:
        marker = self.take(1)[0]
        if marker < 0x80 or marker >= 0xF0:
            return marker if marker < 0x80 else marker - 0x100
        simple = {0xC0: None, 0xC2: False, 0xC3: True}
        if marker in simple:
            return simple[marker]
        if 0xC8 <= marker <= 0xCB:
            return self.number("bhiq"[marker - 0xC8])
        if marker == 0xC1:
            return struct.unpack(">d", self.take(8))[0]
        return self.sized(marker)

    def sized(self, marker: int) -> Any:
        bases = {0x80: "text", 0x90: "list", 0xA0: "map", 0xB0: "structure"}
        longer = {0xD0: "text", 0xD4: "list", 0xD8: "map"}
        if marker & 0xF0 in bases:
            kind, size = bases[marker & 0xF0], marker & 0x0F
        else:
            kind, size = longer[marker & 0xFC], self.number("BHI"[marker & 0x03])
        if kind == "text":
            return self.take(size).decode()
        if kind == "list":
            return [self.value() for _ in range(size)]
        if kind == "map":
            return {self.value(): self.value() for _ in range(size)}
        return Structure(self.take(1)[0], tuple(self.value() for _ in range(size)))


@dataclass
class Answer:
    """What a query gives: columns and rows, or a failure."""

    columns: list[str] = field(default_factory=list)
    rows: list[list[Any]] = field(default_factory=list)
    failure: tuple[str, str] | None = None


@dataclass
class BoltServer:
    """Answers by query; `asked` are the queries that came, each with what the driver said beside it."""

    answers: dict[str, Answer]
    password: str | None = None
    port: int = 0
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    pulls: int = 0

    @contextlib.contextmanager
    def running(self) -> Iterator[BoltServer]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port = listener.getsockname()[1]
            thread = threading.Thread(target=self._accept, args=(listener,), daemon=True)
            thread.start()
            yield self
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
        thread.join(timeout=10)

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError, EOFError):
            hello = _exactly(connection, 20)
            assert hello[:4] == MAGIC
            connection.sendall(VERSION)
            _Conversation(self, connection).go_on()


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise EOFError
        data += part
    return data


class _Conversation:
    """One connection: after a failure everything is ignored until RESET, as the protocol has it."""

    def __init__(self, server: BoltServer, connection: socket.socket) -> None:
        self.server, self.connection = server, connection
        self.left: list[list[Any]] = []
        self.failed = False

    def go_on(self) -> None:
        while True:
            message = Unpacker(self._receive()).value()
            if message.tag == GOODBYE:
                return
            if self.failed and message.tag != RESET:
                self._send(Structure(IGNORED, ()))
            else:
                self._answer(message)

    def _answer(self, message: Structure) -> None:
        if message.tag == HELLO:
            self._hello(message.fields[0])
        elif message.tag == RUN:
            self._run(message.fields[0], message.fields[2])
        elif message.tag in (PULL, DISCARD):
            self._pull(message.fields[0]["n"] if message.tag == PULL else 0)
        elif message.tag == ROUTE:
            self._success({"rt": self._routes(message)})
        else:
            self.failed, self.left = False, []
            self._success({})

    def _hello(self, said: dict[str, Any]) -> None:
        if self.server.password is not None and said.get("credentials") != self.server.password:
            self._fail("Neo.ClientError.Security.Unauthorized", "The client is unauthorized.")
        else:
            self._success({"server": "Neo4j/5.0.0", "connection_id": "bolt-1"})

    def _run(self, query: str, beside: dict[str, Any]) -> None:
        self.server.asked.append((query, beside))
        answer = self.server.answers.get(query)
        if answer is None or answer.failure:
            code, words = (answer and answer.failure) or (
                "Neo.ClientError.Statement.SyntaxError",
                "Invalid input",
            )
            self._fail(code, words)
        else:
            self.left = list(answer.rows)
            self._success({"fields": answer.columns, "t_first": 0})

    def _pull(self, count: int) -> None:
        self.server.pulls += 1
        portion, self.left = (self.left[:count], self.left[count:]) if count > 0 else (self.left, [])
        for row in portion:
            self._send(Structure(RECORD, (row,)))
        self._success({"has_more": True} if self.left else {"type": "r", "db": "neo4j", "t_last": 0})

    def _routes(self, message: Structure) -> dict[str, Any]:
        here = [f"127.0.0.1:{self.server.port}"]
        roles = [{"role": role, "addresses": here} for role in ("ROUTE", "READ", "WRITE")]
        return {"ttl": 300, "db": message.fields[2].get("db") or "neo4j", "servers": roles}

    def _success(self, metadata: dict[str, Any]) -> None:
        self._send(Structure(SUCCESS, (metadata,)))

    def _fail(self, code: str, words: str) -> None:
        self.failed = True
        self._send(Structure(FAILURE, ({"code": code, "message": words},)))

    def _send(self, message: Structure) -> None:
        data = packed(message)
        for start in range(0, len(data), 0xFFFF):
            part = data[start : start + 0xFFFF]
            self.connection.sendall(struct.pack(">H", len(part)) + part)
        self.connection.sendall(b"\0\0")

    def _receive(self) -> bytes:
        data = b""
        while True:
            (size,) = struct.unpack(">H", _exactly(self.connection, 2))
            if size:
                data += _exactly(self.connection, size)
            elif data:
                return data
