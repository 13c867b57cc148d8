"""A built site as a reader's browser sees it: what each page offers as anchors, links to, and loads."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"script": "src", "img": "src", "iframe": "src", "link": "href", "source": "src", "object": "data"}


def build(config: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """What `make docs` runs, into another folder."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(config)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(
        [*command, "--site-dir", str(folder)], capture_output=True, text=True, env=environment, check=False
    )


@dataclass
class PageContent(HTMLParser):
    """The ids of a page, its links, and what a browser loads with it."""

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if LOADED.get(tag) in given:
            self.loaded.append(given[LOADED[tag]])


def read_pages(site: Path) -> dict[Path, PageContent]:
    """Every page but the one for addresses that do not exist, which knows no place of its own."""
    pages = {path: PageContent() for path in sorted(site.rglob("*.html")) if path.name != "404.html"}
    for path, page in pages.items():
        page.feed(path.read_text("utf-8"))
    return pages


def is_elsewhere(address: str) -> bool:
    """Whether an address leads out of the site; an empty host with a scheme (data:) does not."""
    return bool(urlsplit(address).netloc)


def broken(pages: dict[Path, PageContent]) -> list[str]:
    """Every address of the site's own that leads nowhere: no such file, or no such anchor in it."""
    found = []
    for path, page in pages.items():
        for address in (*page.links, *page.loaded):
            if not is_elsewhere(address) and not _leads_somewhere(address, path, pages):
                found.append(f"{path.name}: {address}")
    return found


def _leads_somewhere(address: str, path: Path, pages: dict[Path, PageContent]) -> bool:
    parts = urlsplit(address)
    if parts.scheme:  # data:, mailto:
        return True
    target = Path(os.path.normpath(path.parent / unquote(parts.path))) if parts.path else path
    if not target.is_file():
        return False
    anchor = unquote(parts.fragment)
    return not anchor or target not in pages or anchor in pages[target].ids
