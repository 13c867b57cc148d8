"""Rules as text: as people write them, and no label can be taken for anything else."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpool.graph.relations import RelationVocabulary
from contextpool.models.rules import Rule

RELATIONS = RelationVocabulary(("born in", "r", "s"))
BORN, R, S = range(3)
LABEL = r'"(?:[^"\\]|\\.)*"|[^\s"(),]+'
ATOM = re.compile(rf"({LABEL})\(({LABEL}),({LABEL})\)")

labels = st.one_of(
    st.sampled_from(["X", "Y", "A", "r", "a,b", "f(x)", '"', "\\", "<=", "é", "two words", " ", "a<=b"]),
    st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=1, max_size=6),
)


def plain(text: str) -> str:
    return str(json.loads(text)) if text.startswith('"') else text


@given(st.data())
def test_labels_can_be_read_from_a_rule_s_text(data: st.DataObject) -> None:
    names = data.draw(st.lists(labels, min_size=1, max_size=4, unique=True))
    relations = RelationVocabulary(tuple(sorted(names)))
    directed = st.integers(0, relations.num_directed - 1)
    body = tuple(data.draw(st.lists(directed, min_size=1, max_size=5)))
    head = data.draw(st.integers(0, relations.num_relations - 1))
    atoms = ATOM.findall(Rule(head, body, 0.5, 8, 4).text(relations))
    assert [plain(atom[0]) for atom in atoms] == [
        relations.forward[relation % relations.num_relations] for relation in (head, *body)
    ]
    assert all(re.fullmatch("[A-Z]", term) for atom in atoms for term in atom[1:])


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (Rule(R, (S, S + 3), 1.0), "r(X,Y) <= s(X,A), s(Y,A)"),
        (Rule(R, (BORN,), 1.0), 'r(X,Y) <= "born in"(X,Y)'),
        (Rule(R + 3, (S,), 1.0), "r(Y,X) <= s(X,Y)"),
    ],
)
def test_rules_read_as_people_write_them(rule: Rule, text: str) -> None:
    assert rule.text(RELATIONS) == text
