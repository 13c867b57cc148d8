"""A web server of the tests' own on the loopback interface, which misbehaves as told."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Server(ThreadingHTTPServer):
    """Serves `content` by path; each request takes the next of `misbehave` until there is none left."""

    def __init__(self, content: Mapping[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = dict(content)
        self.misbehave: list[Callable[[Handler, bytes], None]] = []
        self.honours_ranges = True
        self.asked: list[tuple[str, str | None]] = []  # (path, Range header) of each request

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is part of the tests; anything else is shown."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        path, asked_range = self.path.removeprefix("/"), self.headers.get("Range")
        self.server.asked.append((path, asked_range))
        body = self.server.content.get(path)
        if body is None:
            self.send_error(404)
        elif self.server.misbehave:
            self.server.misbehave.pop(0)(self, body)
        elif asked_range and self.server.honours_ranges:
            self.send_rest(body, int(asked_range.removeprefix("bytes=").removesuffix("-")))
        else:
            self.send(200, body)

    def send_rest(self, body: bytes, start: int) -> None:
        if start >= len(body):
            self.send_error(416)
        else:
            self.send(206, body[start:], f"bytes {start}-{len(body) - 1}/{len(body)}")

    def send(self, status: int, body: bytes, content_range: str | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if content_range:
            self.send_header("Content-Range", content_range)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Silent."""


def cut_after(sent: int) -> Callable[[Handler, bytes], None]:
    """Announce the whole body, send some bytes of it, close the connection."""

    def answer(handler: Handler, body: bytes) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body[:sent])
        handler.close_connection = True

    return answer


def status(code: int) -> Callable[[Handler, bytes], None]:
    return lambda handler, body: handler.send_error(code)


@contextmanager
def serving(content: Mapping[str, bytes]) -> Iterator[Server]:
    """A server that runs until the block ends."""
    with Server(content) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield running
        finally:
            running.shutdown()
            thread.join()
