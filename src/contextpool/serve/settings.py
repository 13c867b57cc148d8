"""Settings of a server: where it listens, who may ask, how much and for how long."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass

from contextpool.errors import ConfigError, setting, shortened

MOST_ANSWERS = 1_000
"""k of one question."""
MOST_QUESTIONS = 256
"""Questions of one request."""
MOST_CLAIMS = 64
MOST_EVIDENCE = 8
"""Claims of one request, and how many of them get evidence."""
MOST_CANDIDATES = 10_000
MOST_HAVING = 16
MOST_PATHS = 20
MOST_HOPS = 5
MOST_FOCUS = 64
MOST_COMPLETIONS = 100
LONGEST_LABEL = 10_000
"""Characters."""
MOST_ADDED = 4
"""Graphs that came in while serving; a further one takes the place of the oldest."""
LEAST_TOKEN = 16
"""Characters; a shorter token can be guessed."""
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
WILDCARDS = ("", "0.0.0.0", "::")


@dataclass(frozen=True)
class ServeSettings:
    """All limits have defaults that suit a small machine; times are in seconds."""

    host: str = "127.0.0.1"
    port: int = 8000
    """0 takes a free one."""
    token: str | None = None
    """Requests have to carry it as `Authorization: Bearer`; None for no token."""
    allow_hosts: tuple[str, ...] = ()
    """Names under which the server may be asked, besides loopback ones and its own address."""
    batch_size: int = 64
    """Questions that are scored together."""
    queue_size: int = 1024
    """Questions that may wait; further ones are answered 503."""
    slow_queue_size: int = 64
    """Explanations, pooled graphs and relation questions that may wait."""
    deadline: float = 10.0
    """From the arrival of a request to its answer; later ones are answered 504."""
    max_body: int = 2**20
    """Bytes of a request's body; more is answered 413."""
    max_upload: int = 8 * 2**20
    """Bytes of a file that somebody sends to be asked; 0 takes none."""
    receive_seconds: float = 5.0
    """For a whole request to arrive, from its first byte on, or from the connection on."""
    send_seconds: float = 10.0
    """For a client to take what was sent."""
    keep_alive: float = 5.0
    """How long a connection may rest between two requests."""
    max_connections: int = 4096
    """Beyond it, whoever has been silent for longest is disconnected."""
    drain_seconds: float = 0.5
    """After SIGTERM: how long new requests are still taken, before the door closes."""
    access_log: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"{setting('port')} is {self.port}; it has to lie in 0 to 65535.")
        for key in ("batch_size", "slow_queue_size", "max_body", "max_connections"):
            if getattr(self, key) < 1:
                raise ConfigError(f"{setting(key)} is {getattr(self, key)}; it has to be at least 1.")
        for key in ("deadline", "receive_seconds", "send_seconds", "keep_alive"):
            if not 0 < getattr(self, key) <= 3600:
                raise ConfigError(
                    f"{setting(key)} is {getattr(self, key)}; it has to lie above 0, up to 3600 seconds."
                )
        if self.max_upload < 0:
            raise ConfigError(f"{setting('max_upload')} is {self.max_upload}; it has to be at least 0.")
        if not 0 <= self.drain_seconds <= 600:
            raise ConfigError(
                f"{setting('drain_seconds')} is {self.drain_seconds}; it has to lie in 0 to 600 seconds."
            )
        if self.queue_size < MOST_QUESTIONS:
            raise ConfigError(
                f"{setting('queue_size')} is {self.queue_size}; one request may bring {MOST_QUESTIONS} questions, so "
                "take at least as many."
            )
        self._check_token()
        self._refuse_an_open_door()

    def _check_token(self) -> None:
        if self.token is None:
            return
        if len(self.token) < LEAST_TOKEN or not (self.token.isascii() and self.token.isprintable()):
            raise ConfigError(
                f"{setting('token')}: {len(self.token)} characters; take at least {LEAST_TOKEN} printable ASCII ones, "
                "such as from: python -c 'import secrets; print(secrets.token_urlsafe(32))'"
            )
        if " " in self.token:
            raise ConfigError("token: it holds a space, which a header cannot carry; take one without.")

    def _refuse_an_open_door(self) -> None:
        if self.token is None and not is_loopback(self.host):
            raise ConfigError(
                f"host {shortened(self.host)} can be reached from other machines, and no token is set. Set one "
                f"({setting('token_file', 'FILE')}, or the variable CONTEXTPOOL_TOKEN), or stay on 127.0.0.1."
            )

    @property
    def takes_files(self) -> bool:
        """Whether files may be sent: by who has the token, or by this machine alone where there is none."""
        own_machine = is_loopback(self.host) and not self.allow_hosts
        return self.max_upload > 0 and (self.token is not None or own_machine)

    @property
    def host_names(self) -> frozenset[str]:
        """What a Host header may say, without the port."""
        own = () if self.host in WILDCARDS else (self.host,)
        return frozenset(bare_host(name) for name in (*LOOPBACK_NAMES, *own, *self.allow_hosts))


def is_loopback(host: str) -> bool:
    """Whether an address, or every address of a name, stays on this machine."""
    if host in WILDCARDS:
        return False
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise ConfigError(f"host {shortened(host)} is no address of this machine. Try 127.0.0.1.") from None
    return all(ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback for *_, address in found)


def bare_host(value: str) -> str:
    """The host of a Host header: lower case, without port, brackets and a last dot."""
    text = value.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    name = text.rpartition(":")[0] if text.count(":") == 1 else text
    return name.rstrip(".")
