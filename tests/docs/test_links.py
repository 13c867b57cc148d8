"""Links between files as they lie in the repository, where no site is built: each leads to what is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from conftest import REPOSITORY

PAGES = sorted(
    [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md"), *(REPOSITORY / "src").rglob("*.md")]
)
_FENCE = re.compile(r"^```.*?^```[ \t]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def links(page: Path) -> list[str]:
    """Relative addresses outside code, without their anchors, which the build of the site checks."""
    prose = re.sub(r"`[^`\n]*`", "", _FENCE.sub("", page.read_text("utf-8")))
    found = (address.partition("#")[0] for address in _LINK.findall(prose))
    return [address for address in found if address and "://" not in address]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_lead_somewhere(page: Path) -> None:
    assert [address for address in links(page) if not (page.parent / address).exists()] == []


def test_links_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("[a](b.md#c) ![d](e.svg) `[f](g)` [h](https://example.org) [i](#j)\n```\n[k](l)\n```\n")
    assert links(page) == ["b.md", "e.svg"]


@pytest.mark.parametrize("folder", ["docs", "docs/decisions", "docs/lab"])
def test_the_index_of_a_folder_names_every_page(folder: str) -> None:
    named = set(links(REPOSITORY / folder / "README.md"))
    assert {page.name for page in (REPOSITORY / folder).glob("*.md")} - {"README.md"} <= named


def test_the_readme_leads_to_the_main_pages() -> None:
    main = (
        "quickstart",
        "method",
        "own-data",
        "ask",
        "explain",
        "serve",
        "models",
        "scale",
        "pyg",
        "glossary",
        "lab/README",
    )
    assert {f"docs/{name}.md" for name in main} <= set(links(REPOSITORY / "README.md"))
