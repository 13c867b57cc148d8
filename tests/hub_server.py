"""As much of the Hub as fetching a model asks for, on the loopback interface."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class HubServer(ThreadingHTTPServer):
    """One model, `repository`, whose branch main and tag v1 are one commit with the files of a folder."""

    daemon_threads = True

    def __init__(self, repository: str, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repository = repository
        self.files = {entry.name: entry.read_bytes() for entry in sorted(folder.iterdir())}
        self.asked: list[str] = []


class _Handler(BaseHTTPRequestHandler):
    server: HubServer

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, with_body: bool) -> None:
        path = unquote(urlsplit(self.path).path)
        self.server.asked.append(f"{self.command} {path}")
        api, files = f"/api/models/{self.server.repository}/", f"/{self.server.repository}/resolve/"
        if path.startswith(api):
            self._describe(*path.removeprefix(api).split("/", 1))
        elif path.startswith(files):
            revision, name = path.removeprefix(files).split("/", 1)
            self._file(revision, name, with_body)
        else:
            self._refuse("RepoNotFound")

    def _describe(self, what: str, revision: str) -> None:
        if revision not in ("main", "v1", COMMIT):
            self._refuse("RevisionNotFound")
        elif what == "revision":
            siblings = [{"rfilename": name} for name in self.server.files]
            self._json({"id": self.server.repository, "sha": COMMIT, "siblings": siblings, "tags": []})
        else:  # tree
            self._json(
                [
                    {"type": "file", "path": name, "size": len(body), "oid": hashlib.sha1(body).hexdigest()}
                    for name, body in self.server.files.items()
                ]
            )

    def _file(self, revision: str, name: str, with_body: bool) -> None:
        body = self.server.files.get(name)
        if body is None or revision not in ("main", "v1", COMMIT):
            self._refuse("EntryNotFound")
            return
        self._send(
            200, body, {"ETag": f'"{hashlib.sha1(body).hexdigest()}"', "X-Repo-Commit": COMMIT}, with_body
        )

    def _json(self, value: object) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"}, True)

    def _refuse(self, code: str) -> None:
        self._send(404, b"{}", {"X-Error-Code": code, "Content-Type": "application/json"}, True)

    def _send(self, status: int, body: bytes, headers: dict[str, str], with_body: bool) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@contextmanager
def serving(repository: str, folder: Path) -> Iterator[tuple[HubServer, str]]:
    """The server and its address."""
    server = HubServer(repository, folder)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
