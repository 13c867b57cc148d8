"""What the documentation links to outside docs/ comes along: pages as pages, other files as they are.

A page says `[slurm](../examples/slurm.sbatch)`, which is right where the repository is browsed. In the site that file
lies under `repository/`; here it is added and the link turned there. A link to a file that does not exist stays as it
is, and MkDocs refuses it.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

Change = Callable[[str], str]
HOME = "repository"
_LINK = re.compile(r"(\]\()([^)\s#:]+)")  # a relative address; its anchor is left alone
_FENCE = re.compile(r"^(```.*?^```)[ \t]*$", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add every file outside docs/ that a page links to, and those that such a page links to."""
    waiting = [file for file in files if file.is_documentation_page()]
    while waiting:
        page = waiting.pop()
        for target in linked_outside(page.content_string, page.src_uri, config):
            address = f"{HOME}/{target}"
            if files.get_file_from_path(address) is None:
                added = File.generated(config, address, abs_src_path=str(repository(config) / target))
                files.append(added)
                waiting += [added] if added.is_documentation_page() else []
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn the links of a page to where those files lie in the site."""
    folder = posixpath.dirname(page.file.src_uri)

    def turned(found: re.Match[str]) -> str:
        target = outside(found[2], page.file.src_uri, config)
        return found[0] if target is None else found[1] + posixpath.relpath(f"{HOME}/{target}", folder or ".")

    return outside_fences(markdown, lambda prose: _LINK.sub(turned, prose))


def linked_outside(markdown: str, source: str, config: MkDocsConfig) -> list[str]:
    """The files outside docs/ that a page links to, as paths in the repository."""
    prose = _FENCE.sub("", markdown)
    found = (outside(link, source, config) for _, link in _LINK.findall(prose))
    return sorted({target for target in found if target is not None})


def outside(link: str, source: str, config: MkDocsConfig) -> str | None:
    """Where in the repository a link of the page `source` leads, if that is a file outside docs/."""
    root, docs = repository(config), Path(config.docs_dir)
    home = root / posixpath.relpath(source, HOME) if source.startswith(f"{HOME}/") else docs / source
    target = Path(os.path.normpath(home.parent / link))
    if target.is_relative_to(docs) or not target.is_relative_to(root) or not target.is_file():
        return None
    return target.relative_to(root).as_posix()


def outside_fences(markdown: str, change: Change) -> str:
    """Apply `change` to everything that is not a fenced block."""
    parts = _FENCE.split(markdown)
    return "".join(part if number % 2 else change(part) for number, part in enumerate(parts))


def repository(config: MkDocsConfig) -> Path:
    return Path(config.config_file_path or "").resolve().parent
