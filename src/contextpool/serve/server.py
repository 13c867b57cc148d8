"""Runs the application: listens, reloads on SIGHUP, and on SIGTERM answers everything that is under way."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import cast

import uvicorn

from contextpool.errors import ConfigError, ContextPoolError
from contextpool.serve.app import create_app
from contextpool.serve.protocol import GuardedConfig
from contextpool.serve.registry import Registry
from contextpool.serve.service import Service
from contextpool.serve.settings import ServeSettings

logger = logging.getLogger("contextpool.serve")
SWITCH_SECONDS = 0.001
"""How long one thread keeps the interpreter while another waits: short, so that answering delays no request."""
FILES_BESIDE_CONNECTIONS = 64
LONGEST_HEADERS = 2**16
"""Bytes of a request's line and headers; an address may hold some long labels."""
TURNS_TO_READ = 6
"""Turns of the loop from a connection's being accepted to its first bytes' being read, and some."""


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
        except (ContextPoolError, OSError) as error:
            self.service.metrics.reloads.labels("failed").inc()
            logger.error("nothing was replaced: %s", error)

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
