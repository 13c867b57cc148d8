"""The site: no warning, links that lead somewhere, nothing loaded from elsewhere, everything public named."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import contextpool as cp
from conftest import REPOSITORY
from docs.built_site import PageContent, broken, build, is_elsewhere, read_pages

for package in ("mkdocs", "material", "mkdocstrings"):
    pytest.importorskip(package, reason="the docs extra is not installed")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = build(REPOSITORY / "mkdocs.yml", folder)
    told = built.stdout + built.stderr
    assert built.returncode == 0, told
    assert "WARNING" not in told
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, PageContent]:
    return read_pages(site)


def test_every_page_of_the_documentation_is_there(site: Path) -> None:
    for page in (REPOSITORY / "docs").rglob("*.md"):
        built = page.relative_to(REPOSITORY / "docs").with_suffix(".html")
        assert (site / built.parent / built.name.replace("README", "index")).is_file()


def test_links_and_their_anchors_lead_somewhere(pages: dict[Path, PageContent]) -> None:
    assert len(pages) > 30
    assert broken(pages) == []


def test_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[Path, PageContent]) -> None:
    assert [address for page in pages.values() for address in page.loaded if is_elsewhere(address)] == []
    for style in site.rglob("*.css"):
        assert re.findall(r"(?:url\(|@import\s+)[\"']?(?:https?:)?//", style.read_text("utf-8")) == []


def test_files_of_the_repository_come_along(site: Path) -> None:
    slurm = "examples/slurm.sbatch"
    assert (site / "repository" / slurm).read_bytes() == (REPOSITORY / slurm).read_bytes()
    assert (site / "repository/src/contextpool/triples/world/PROVENANCE.html").is_file()


# the reference

PINNED = {
    "Graph": "from_triples num_entities num_relations num_triples entities relations triples from_pyg to_pyg",
    "Dataset": "audit",
    "ContextNeighbors": "precision recall neighbors",
    "PooledGraph": "hops triples",
    "Predictor": "predict predict_heads predict_relations predict_batch explain",
    "Explanation": "paths context text to_json to_dict save",
    "EvaluationReport": "mrr hits ranks realistic optimistic pessimistic per_relation",
    "Answer": "entity score probability known",
}


def reference(site: Path) -> str:
    return (site / "reference.html").read_text("utf-8")


def test_every_public_name_has_an_entry(site: Path) -> None:
    """By the place where it is defined."""
    for name in set(cp.__all__) - {"__version__"}:
        thing = inspect.unwrap(getattr(cp, name))
        if inspect.ismodule(thing):  # a package that can be called
            assert re.search(rf'id="contextpool\.[\w.]+\.{name}"', reference(site)), name
        else:
            assert f'id="{thing.__module__}.{thing.__qualname__}"' in reference(site), name


@pytest.mark.parametrize("owner", PINNED)
def test_what_is_pinned_of_a_class_has_an_entry(owner: str, site: Path) -> None:
    told = set(re.findall(rf'id="contextpool\.[\w.]+\.{owner}\.(\w+)"', reference(site)))
    assert set(PINNED[owner].split()) <= told


# the checks can fail

SMALL = """INHERIT: {repository}/mkdocs.yml
hooks: ["{repository}/scripts/docs_hooks.py"]
docs_dir: pages
nav: [index.md]
plugins: []
"""


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[fine](#here)\n\n## Here\n", ""),
        ("[no page](missing.md)\n", "missing.md"),
        ("[no anchor](#nowhere)\n", "#nowhere"),
        ("[no file](../examples/missing.py)\n", "../examples/missing.py"),
        ("![no picture](images/missing.svg)\n", "images/missing.svg"),
    ],
)
def test_a_link_that_leads_nowhere_is_refused_by_the_build(text: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "index.md").write_text(f"# A page\n\n{text}")
    (tmp_path / "mkdocs.yml").write_text(SMALL.format(repository=REPOSITORY))
    built = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert (built.returncode == 0) == (problem == "")
    assert problem in built.stderr


def test_a_page_that_leads_nowhere_is_seen(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<a href="b.html#x"><a href="b.html#y"><a href="c.html"><img src="d.svg">'
    )
    (tmp_path / "b.html").write_text('<h2 id="x"><a href="#x"><a href="https://example.org/c.html">')
    assert broken(read_pages(tmp_path)) == ["a.html: b.html#y", "a.html: c.html", "a.html: d.svg"]
