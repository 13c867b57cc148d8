"""Around the whole application: who may ask, how much may be sent, what every response says to a browser."""

from __future__ import annotations

import hmac
import time
from collections.abc import Iterable

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from contextpool.errors import shortened
from contextpool.serve.problems import of_error, problem
from contextpool.serve.service import Service
from contextpool.serve.settings import bare_host

OPEN_PATHS = frozenset({"/", "/docs", "/health", "/ready"})
"""Need no token, nor does the page's own content below /static/: none of it tells anything about a graph."""
FILES = "/graphs"
"""Takes a graph's file as its body."""
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", CONTENT_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)
LONGEST_HEADERS = 2**16
"""Bytes of a request's line and headers; an address may hold some long labels."""
NO_STORE = (b"cache-control", b"no-store")
Headers = dict[bytes, bytes]


class GoneError(Exception):
    """The client left, or took too long, before its request was complete."""


class Guard:
    """An ASGI application that lets through what is allowed, and answers the rest itself."""

    def __init__(self, app: ASGIApp, service: Service, routes: Iterable[str]) -> None:
        self._app, self._service = app, service
        self._routes = frozenset(routes)
        self._hosts = service.settings.host_names
        self._token = service.settings.token
        settings = service.settings
        self._max_body, self._of_files = (
            settings.max_body,
            settings.max_upload if settings.takes_files else settings.max_body,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request; whatever is raised below becomes an answer."""
        if scope["type"] != "http":
            return
        answering = Answering(self._service, scope, send)
        scope.setdefault("state", {})["deadline"] = time.monotonic() + self._service.settings.deadline
        try:
            headers = dict(scope["headers"])  # of repeated ones the last; Host cannot be repeated
            refusal = _unreadable(scope, headers) or self._refusal(scope["path"], headers)
            if refusal is None:
                body = await self._body(headers, receive, self._limit(scope["path"]))
                refusal = self._too_large(scope["path"]) if body is None else None
            if refusal is not None:
                await refusal(scope, receive, answering.send)
            else:
                await self._app(scope, _replayed(body or b"", receive), answering.send)
        except GoneError:
            return
        except Exception as error:  # nothing may end as a traceback
            if not answering.status:
                await of_error(error)(scope, receive, answering.send)
        finally:
            self._count(scope, answering)

    def _refusal(self, path: str, headers: Headers) -> JSONResponse | None:
        host = headers.get(b"host", b"").decode("latin-1")
        if bare_host(host) not in self._hosts:
            told = f"Host {shortened(host)} is not one that this server answers to; see --allow-host."
            return problem(400, told, headers=CLOSE)
        if not self._may_ask(path, headers.get(b"authorization", b"")):
            told = "this needs a token: send it as Authorization: Bearer TOKEN."
            return problem(401, told, headers={"WWW-Authenticate": "Bearer", **CLOSE})
        encoding = headers.get(b"content-encoding", b"identity").decode("latin-1")
        if encoding.strip().lower() not in ("identity", ""):
            told = f"Content-Encoding {shortened(encoding)}: bodies are not unpacked here; send plain JSON."
            return problem(400, told, headers=CLOSE)
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length[:20]) > self._limit(path):
            return self._too_large(path)
        return None

    def _may_ask(self, path: str, authorization: bytes) -> bool:
        if self._token is None or path in OPEN_PATHS or path.startswith("/static/"):
            return True
        kind, _, given = authorization.partition(b" ")
        # compared in a time that does not depend on how much of it is right
        return hmac.compare_digest(given.strip(), self._token.encode()) and kind.lower() == b"bearer"

    def _limit(self, path: str) -> int:
        """Bytes of a body."""
        return self._of_files if path == FILES else self._max_body

    def _too_large(self, path: str) -> JSONResponse:
        instead = (
            "serve the file by its name: contextpool serve FILE."
            if path == FILES
            else "send fewer questions at a time."
        )
        told = f"the body is larger than {self._limit(path):,} bytes; {instead}"
        return problem(413, told, headers=CLOSE)

    async def _body(self, headers: Headers, receive: Receive, most: int) -> bytes | None:
        """The whole body, or None as soon as it is too large; never more than the limit is held."""
        parts, size = [], 0
        more = b"content-length" in headers or b"transfer-encoding" in headers
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise GoneError
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > most:
                return None
            more = message.get("more_body", False)
        return b"".join(parts)

    def _count(self, scope: Scope, answering: Answering) -> None:
        route = scope["path"] if scope["path"] in self._routes else "other"
        method = scope["method"] if scope["method"] in ("GET", "POST", "HEAD", "OPTIONS") else "other"
        metrics = self._service.metrics
        metrics.requests.labels(route, method, str(answering.status or "gone")).inc()
        metrics.seconds.labels(route).observe(time.perf_counter() - answering.began)


def _unreadable(scope: Scope, headers: Headers) -> JSONResponse | None:
    """Requests that a proxy may end elsewhere than we do, and headers past the limit however fast they come."""
    if b"content-length" in headers and b"transfer-encoding" in headers:
        told = "a request has a Content-Length or a Transfer-Encoding, not both."
        return problem(400, told, headers=CLOSE)
    size = len(scope["raw_path"]) + len(scope["query_string"])
    size += sum(len(name) + len(value) + 4 for name, value in scope["headers"])
    if size > LONGEST_HEADERS:
        told = f"address and headers are {size:,} bytes; {LONGEST_HEADERS:,} are the most."
        return problem(431, told, headers=CLOSE)
    return None


CLOSE = {"Connection": "close"}
"""After a refusal the rest of the request is not read."""


class Answering:
    """Sends what the application sends, with the headers that every response has."""

    def __init__(self, service: Service, scope: Scope, send: Send) -> None:
        self._service, self._scope, self._send = service, scope, send
        self.began, self.status = time.perf_counter(), 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            given = [pair for pair in message.get("headers", []) if pair[0] != b"server"]
            message = {**message, "headers": [*given, *self._added({name for name, _ in given})]}
        await self._send(message)

    def _added(self, given: set[bytes]) -> list[tuple[bytes, bytes]]:
        added = [pair for pair in HEADERS if pair[0] not in given]
        if b"cache-control" not in given:
            added.append(NO_STORE)
        if self._service.draining and b"connection" not in given:
            added.append((b"connection", b"close"))
        return added


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body that was read already, then whatever comes."""
    sent = False

    async def again() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
