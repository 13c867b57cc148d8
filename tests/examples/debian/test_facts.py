"""Fields of a package as facts: versions and architectures stripped, alternatives told apart, tags by facet."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpool.errors import TripleFileError
from debian_example import deb822, facts

Stanza = deb822.Stanza
facts_of, parse_relationship, parse_tags = facts.facts_of, facts.parse_relationship, facts.parse_tags


def stanza(**fields: str) -> Stanza:
    named = {name.replace("_", "-"): value for name, value in fields.items()}
    return Stanza(Path("Packages"), 1, named, {name: number for number, name in enumerate(named, start=1)})


def test_all_facts_of_a_package():
    vim = stanza(
        package="vim",
        source="vim-src (9.0)",
        depends="libc6 (>= 2.36), vim-common (= 2:9.0), libgpm2 | libgpm3",
        pre_depends="dpkg:any",
        provides="editor",
        section="editors",
        priority="optional",
        architecture="amd64",
        multi_arch="foreign",
        maintainer="Debian Vim  Team <team@example.org>",
        tag="role::program, use::{editing,viewing}",
        homepage="https://www.example.org",
    )
    assert set(facts_of(vim)) == {
        ("vim", "depends", "libc6"),
        ("vim", "depends", "vim-common"),
        ("vim", "depends-any", "libgpm2"),
        ("vim", "depends-any", "libgpm3"),
        ("vim", "pre-depends", "dpkg"),
        ("vim", "provides", "editor"),
        ("vim", "section", "section:editors"),
        ("vim", "priority", "priority:optional"),
        ("vim", "architecture", "architecture:amd64"),
        ("vim", "multi-arch", "multi-arch:foreign"),
        ("vim", "source", "source:vim-src"),
        ("vim", "maintainer", "maintainer:Debian Vim Team"),
        ("vim", "tag:role", "role::program"),
        ("vim", "tag:use", "use::editing"),
        ("vim", "tag:use", "use::viewing"),
    }


def test_a_package_without_a_source_is_its_own():
    assert list(facts_of(stanza(package="a"))) == [("a", "source", "source:a")]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("a", [["a"]]),
        ("a (>= 1:2.0-3~rc1), b", [["a"], ["b"]]),
        ("a | b (<< 2) | c", [["a", "b", "c"]]),
        ("a:any (>= 3) [amd64 !i386] <!nocheck> <stage1>", [["a"]]),
        ("a,\nb |\nc,", [["a"], ["b", "c"]]),
        ("libstdc++6, g++-12, 0ad.data", [["libstdc++6"], ["g++-12"], ["0ad.data"]]),
        ("a | a (= 1)", [["a"]]),
        ("a(>=1)", [["a"]]),
        ("", []),
    ],
)
def test_relationships(text: str, meant: list[list[str]]):
    assert list(parse_relationship(stanza(package="x", depends=text), "depends")) == meant


@pytest.mark.parametrize("text", ["a b", "a (>= 1", "a |", "| a", "-a", "a [amd64", "(>= 1)", "a; b"])
def test_a_relationship_that_cannot_be_read_is_named_by_its_line(text: str):
    with pytest.raises(TripleFileError, match=r"depends: .* is no package") as refused:
        list(facts_of(stanza(package="x", version="1", depends=text)))
    assert refused.value.line == 3


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"version": "1"}, "no field Package"),
        ({"package": "a b"}, "'a b' is no name of a package"),
        ({"package": "a", "source": "(1)"}, "source: "),
        ({"package": "a", "tag": "program"}, "is no tag such as role::program"),
    ],
)
def test_other_fields_that_cannot_be_read(fields: dict[str, str], said: str):
    with pytest.raises(TripleFileError, match=said):
        list(facts_of(stanza(**fields)))


def test_people_without_a_name_keep_their_address():
    assert ("a", "maintainer", "maintainer:x@example.org") in facts_of(
        stanza(package="a", maintainer="<x@example.org>")
    )


_PACKAGES = st.from_regex(r"[a-z0-9][a-z0-9+.-]{0,6}", fullmatch=True)
_DRESSES = st.sampled_from(
    ["{}", "{}:any", "{} (>= 1.2-3)", "{} [amd64]", "{}:native (<< 2) [!arm64] <!nocheck>"]
)
_GROUPS = st.lists(st.lists(_PACKAGES, min_size=1, max_size=3, unique=True), max_size=5)


@given(_GROUPS, _DRESSES, st.sampled_from([", ", ",", ",\n"]), st.sampled_from([" | ", "|", " |\n"]))
def test_whatever_surrounds_them_names_come_out(groups: list[list[str]], dress: str, comma: str, bar: str):
    text = comma.join(bar.join(dress.format(name) for name in group) for group in groups)
    assert list(parse_relationship(stanza(package="x", depends=text), "depends")) == groups


def test_tags_of_several_lines():
    text = "role::program,\nimplemented-in::{c, c++}, works-with::text"
    assert list(parse_tags(stanza(package="x", tag=text))) == [
        ("role", "role::program"),
        ("implemented-in", "implemented-in::c"),
        ("implemented-in", "implemented-in::c++"),
        ("works-with", "works-with::text"),
    ]
