"""The page's own files, read once at the start: no request names a file, so none can name another."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files

MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True)
class StaticFile:
    """What is sent for one address."""

    content: bytes
    media_type: str

    @property
    def etag(self) -> str:
        return f'"{hashlib.sha256(self.content).hexdigest()[:16]}"'


def static_files() -> dict[str, StaticFile]:
    """By address: the page at /, everything else below /static/."""
    found: dict[str, StaticFile] = {}
    for file in sorted(files("contextpool.serve").joinpath("static").iterdir(), key=lambda one: one.name):
        suffix = file.name[file.name.rfind(".") :]
        if suffix in MEDIA_TYPES:
            path = "/" if file.name == "index.html" else f"/static/{file.name}"
            found[path] = StaticFile(file.read_bytes(), MEDIA_TYPES[suffix])
    return found
