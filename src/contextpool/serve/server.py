"""Runs the application: uvicorn with the deadlines that it lacks, reloads on SIGHUP, and an orderly end on SIGTERM.

Stock uvicorn waits for ever: for headers, for a body, for a client that does not read its answer. Here

- a whole request has to arrive within `receive_seconds` of its first byte (the first request of a connection: of the
  connection), or it is answered 408 and cut;
- what was sent has to be taken within `send_seconds`;
- a refused body is not read, only drained for a moment, so that the refusal arrives before the connection breaks;
- beyond `max_connections` whoever has been silent for longest makes room, so idle connections cannot shut others out.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from contextpool.errors import ConfigError, ContextPoolError
from contextpool.serve.app import create_app
from contextpool.serve.guard import LONGEST_HEADERS
from contextpool.serve.metrics import Metrics
from contextpool.serve.registry import Registry
from contextpool.serve.service import Service
from contextpool.serve.settings import ServeSettings

logger = logging.getLogger("contextpool.serve")
SWITCH_SECONDS = 0.001
"""How long one thread keeps the interpreter while another waits: short, so that answering delays no request."""
FILES_BESIDE_CONNECTIONS = 64
TURNS_TO_READ = 6
"""Turns of the loop from a connection's being accepted to its first bytes' being read, and some."""
LINGER_SECONDS = 2.0
"""How long the rest of a refused request is drained, at the most."""
REASONS = {400: b"Bad Request", 408: b"Request Timeout", 503: b"Service Unavailable"}


def serve(registry: Registry, settings: ServeSettings, on_start: Callable[[str], None]) -> None:
    """Serve until a signal says stop; `on_start` gets the address once it is listened at."""
    files = _raise_file_limit(settings.max_connections + FILES_BESIDE_CONNECTIONS)
    settings = replace(settings, max_connections=max(1, files - FILES_BESIDE_CONNECTIONS))
    listener = listen(settings)
    service = Service(registry, settings)
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        server = Server(service)
        on_start(address_of(listener, settings.host))
        server.run(sockets=[listener])
    finally:
        sys.setswitchinterval(before)
        service.close()
        listener.close()


class Server(uvicorn.Server):
    """uvicorn's, but a signal ends it in order and with exit code 0."""

    def __init__(self, service: Service) -> None:
        self.service = service
        settings = service.settings
        config = GuardedConfig(
            create_app(service),
            settings,
            service.metrics,
            lifespan="off",
            ws="none",
            log_level="info" if settings.access_log else "warning",
            access_log=settings.access_log,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=settings.keep_alive,
            timeout_graceful_shutdown=int(settings.deadline + settings.send_seconds) + 1,
            h11_max_incomplete_event_size=LONGEST_HEADERS,
        )
        super().__init__(config)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if threading.current_thread() is threading.main_thread():
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGHUP, lambda: loop.create_task(self._reload()))

    async def _reload(self) -> None:
        """All models and graphs again; what cannot be loaded stays as it was."""
        try:
            await self.service.reload(None, None)
            self.service.metrics.reloads.labels("done").inc()
            logger.warning("reloaded")
        except Exception as error:
            self.service.metrics.reloads.labels("failed").inc()
            unexpected = not isinstance(error, ContextPoolError | OSError)
            logger.error("nothing was replaced: %s", error, exc_info=error if unexpected else None)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """First say so (/ready, Connection: close) and still take what is on its way; then close the door."""
        self.service.draining = True
        await asyncio.sleep(self.service.settings.drain_seconds)
        await self._take_what_is_there()
        await super().shutdown(sockets)

    async def _take_what_is_there(self) -> None:
        """Until nothing comes any more: on a crowded machine, the kernel may hold connections that nobody accepted yet
        and requests that nobody read, which closing would reset.
        """
        config = cast(GuardedConfig, self.config)
        until = time.monotonic() + self.service.settings.deadline
        seen = -1
        while seen != config.arrivals and time.monotonic() < until:
            seen = config.arrivals
            for _ in range(TURNS_TO_READ):
                await asyncio.sleep(0)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Unlike uvicorn's, does not raise the signal again after an orderly end."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {one: signal.signal(one, self.handle_exit) for one in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)


def listen(settings: ServeSettings) -> socket.socket:
    """The socket, or an error that names the address."""
    wanted = (settings.host or None, settings.port)
    with contextlib.ExitStack() as undo:
        try:
            found = socket.getaddrinfo(*wanted, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            family, kind, protocol, _, address = found[0]
            listener = undo.enter_context(socket.socket(family, kind, protocol))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(2048)
            listener.setblocking(False)
        except OSError as error:
            raise ConfigError(
                f"cannot listen at {settings.host}:{settings.port} ({error.strerror or error}). "
                "Choose another --port; 0 takes a free one."
            ) from error
        undo.pop_all()
    return listener


def address_of(listener: socket.socket, host: str) -> str:
    port = listener.getsockname()[1]
    shown = "127.0.0.1" if host in ("", "0.0.0.0") else "::1" if host == "::" else host
    return f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"


def _raise_file_limit(wanted: int) -> int:
    """Allow as many open files as connections may need, as far as the system lets us; returns how many of them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    except (OSError, ValueError):
        return soft
    return allowed


class GuardedConfig(uvicorn.Config):
    """uvicorn's settings with ours beside them, and who waits for whom."""

    def __init__(self, app: Any, settings: ServeSettings, metrics: Metrics, **options: Any) -> None:
        super().__init__(app, http=GuardedProtocol, **options)
        self.limits, self.metrics = settings, metrics
        self.silent: dict[GuardedProtocol, None] = {}
        """Connections without a complete request, in the order in which they fell silent."""
        self.arrivals = 0
        """Connections and pieces of requests so far."""


class GuardedProtocol(H11Protocol):
    """One connection."""

    config: GuardedConfig

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._receiving: asyncio.TimerHandle | None = None
        self._sending: asyncio.TimerHandle | None = None
        self._closing: ClosingTransport | None = None

    # asyncio calls these

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._closing = ClosingTransport(transport, self)
        super().connection_made(cast(asyncio.Transport, self._closing))
        self.config.arrivals += 1
        self.config.metrics.connections.set(len(self.connections))
        if len(self.connections) > self.config.limits.max_connections and not self._make_room():
            self.config.metrics.dropped.labels("too_many").inc()
            self.refuse(503, "too many connections; try again later.")
            return
        self.config.silent[self] = None
        self._expect_request()

    def data_received(self, data: bytes) -> None:
        assert self._closing is not None
        self.config.arrivals += 1
        if self._closing.drains(len(data)):
            return
        if self._receiving is None and not self._is_answering:
            self._expect_request()  # the first byte of another request on a connection that rested
        super().data_received(data)
        self._look_again()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Whoever has asked may close their side and still read the answer; half a request has none."""
        if not self._is_answering and not self.transport.is_closing() and self._has_begun:
            self.refuse(400, "the request ends before it is complete.")
        self._forget()
        return self._is_answering

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        for timer in (self._sending, self._closing.timer if self._closing else None):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)
        self.config.metrics.connections.set(len(self.connections))

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._sending is None:
            self._sending = self.loop.call_later(self.config.limits.send_seconds, self._cut, "did_not_read")

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None

    # uvicorn calls these

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look_again()

    def send_400_response(self, msg: str) -> None:
        """Answer a request that h11 cannot read, or that is too long for it."""
        self.refuse(400, "this is no HTTP request that can be read here, or its headers are too long.")

    # deadlines

    @property
    def _is_answering(self) -> bool:
        """Whether a complete request waits for its response."""
        return self.conn.their_state in (h11.DONE, h11.MUST_CLOSE) and self.conn.our_state not in (
            h11.DONE, h11.MUST_CLOSE, h11.CLOSED, h11.ERROR, h11.IDLE,
        )  # fmt: skip

    @property
    def _has_begun(self) -> bool:
        """Whether a part of a request is there."""
        return self.conn.their_state is h11.SEND_BODY or bool(self.conn.trailing_data[0])

    def _look_again(self) -> None:
        """After bytes came or a response went: which deadline holds now?"""
        if self.transport.is_closing() or self._is_answering:
            self._forget()
        else:
            self.config.silent.setdefault(self, None)
            if self._has_begun and self._receiving is None:
                self._unset_keepalive_if_required()  # it does not rest any more
                self._expect_request()
            elif not self._has_begun and self.conn.their_state is h11.IDLE and self.cycle is not None:
                self._stop_expecting()  # it rests; uvicorn's keep-alive ends that

    def _expect_request(self) -> None:
        self._receiving = self.loop.call_later(self.config.limits.receive_seconds, self._too_slow)

    def _stop_expecting(self) -> None:
        if self._receiving is not None:
            self._receiving.cancel()
            self._receiving = None

    def _forget(self) -> None:
        self._stop_expecting()
        self.config.silent.pop(self, None)

    def _too_slow(self) -> None:
        self.config.metrics.dropped.labels("too_slow").inc()
        seconds = self.config.limits.receive_seconds
        self.refuse(408, f"the request did not arrive within {seconds:g} seconds.")

    def _make_room(self) -> bool:
        """Cut whoever has been silent for longest; False where everybody is being answered."""
        oldest = next(iter(self.config.silent), None)
        if oldest is None:
            return False
        oldest._cut("made_room")
        return True

    def _cut(self, reason: str) -> None:
        self.config.metrics.dropped.labels(reason).inc()
        self._forget()
        self.connections.discard(self)
        if self._closing is not None:
            self._closing.abort()

    def refuse(self, status: int, message: str) -> None:
        """Answer without the application, where nothing was answered yet, and close."""
        self._forget()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = json.dumps({"error": {"code": "refused", "message": message, "items": []}}).encode()
            headers = [
                (b"content-type", b"application/json"),
                (b"content-length", str(len(body)).encode()),
                (b"connection", b"close"),
            ]
            start = h11.Response(status_code=status, headers=headers, reason=REASONS[status])
            for event in (start, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # the application waits for a body that will not come
            self.cycle.message_event.set()
        self.transport.close()


class ClosingTransport:
    """A transport whose close() ends: it drains what a client still sends for a moment, then it cuts.

    Closed with bytes unread, a connection is reset, and the client may lose the answer that says why.
    """

    def __init__(self, transport: asyncio.Transport, protocol: GuardedProtocol) -> None:
        self._transport, self._protocol = transport, protocol
        self._drained: int | None = None
        self.timer: asyncio.TimerHandle | None = None

    def __getattr__(self, name: str) -> Any:
        """Everything else is the transport's."""
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self._drained is not None or self._transport.is_closing()

    def close(self) -> None:
        if self.is_closing():
            return
        limits = self._protocol.config.limits
        if self._protocol.conn.their_state in (h11.DONE, h11.MUST_CLOSE, h11.CLOSED, h11.IDLE):
            self._transport.close()
            self.timer = self._protocol.loop.call_later(limits.send_seconds, self._transport.abort)
            return
        self._drained = 0
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._transport.resume_reading()
        self.timer = self._protocol.loop.call_later(LINGER_SECONDS, self._transport.abort)

    def abort(self) -> None:
        self._transport.abort()

    def drains(self, size: int) -> bool:
        """Whether these bytes are thrown away, since the connection is being closed."""
        if self._drained is None:
            return False
        self._drained += size
        if self._drained > 16 * self._protocol.config.limits.max_body:
            self._transport.abort()
        return True
