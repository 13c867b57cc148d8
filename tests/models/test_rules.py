"""Rules as text: what is written comes back, whatever the labels are; what is no path rule is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpool.errors import DataError
from contextpool.graph.relations import RelationVocabulary
from contextpool.models.rules import Rule, parse_rule

RELATIONS = RelationVocabulary(("born in", "r", "s"))
BORN, R, S = range(3)

labels = st.one_of(
    st.sampled_from(["X", "Y", "A", "r", "a,b", "f(x)", '"', "\\", "<=", "é", "two words", " ", "a<=b"]),
    st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=1, max_size=6),
)


@given(st.data())
def test_a_rule_comes_back_from_its_text(data: st.DataObject) -> None:
    names = data.draw(st.lists(labels, min_size=1, max_size=4, unique=True))
    relations = RelationVocabulary(tuple(sorted(names)))
    directed = st.integers(0, relations.num_directed - 1)
    constant = data.draw(st.none() | labels)
    body = tuple(data.draw(st.lists(directed, min_size=constant is None, max_size=5)))
    end = data.draw(st.none() | labels) if constant is not None and body else None
    head = data.draw(st.integers(0, relations.num_relations - 1)) if constant is None else data.draw(directed)
    rule = Rule(head, body, 0.5, constant, end, 8, 4)
    again = parse_rule(rule.text(relations), relations, confidence=0.5, predicted=8, support=4)
    assert again == rule


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (Rule(R, (S, S + 3), 1.0), "r(X,Y) <= s(X,A), s(Y,A)"),
        (Rule(R, (BORN,), 1.0), 'r(X,Y) <= "born in"(X,Y)'),
        (Rule(R, (S,), 1.0, "london", "rome"), "r(X,london) <= s(X,rome)"),
        (Rule(R + 3, (S,), 1.0, "london"), "r(london,X) <= s(X,A)"),
        (Rule(R, (), 1.0, "A"), 'r(X,"A") <='),
    ],
)
def test_rules_read_as_people_write_them(rule: Rule, text: str) -> None:
    assert rule.text(RELATIONS) == text


def test_a_rule_may_be_written_in_any_order_and_with_any_variables() -> None:
    ordered = parse_rule("r(X,Y) <= s(X,A), r(A,B), s(Y,B)", RELATIONS)
    assert parse_rule(" r( P , Q )<=s(Q,C),s(P,D) , r(D,C) ", RELATIONS) == ordered


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("r(X,Y)", "has no '<=' after its head"),
        ("r(X Y) <= s(X,Y)", "cannot be read at"),
        ("r(X,Y) <= s(X,Y", "cannot be read at"),
        ("r(X,Y) <= s(X,A) r(A,Y)", "separated by commas"),
        ("r(a,b) <= s(X,Y)", "one place of the head has to be a variable"),
        ("r(X,Y) <= s(A,B)", "not one walk that starts at X"),
        ("r(X,Y) <= s(X,A), r(X,Y)", "not one walk"),
        ("r(X,Y) <= s(X,a), r(a,Y)", "not one walk"),
        ("r(X,Y) <= s(X,A), r(A,X)", "not one walk"),
        ("r(X,Y) <= s(X,X)", "comes to X twice"),
        ("r(X,Y) <= s(X,A)", "does not lead to Y"),
        ("r(X,Y) <=", "does not lead to Y"),
        ('r(X,Y) <= "s\\q"(X,Y)', "a quoted label is not JSON"),
        ("r(X,Y) <= " + ", ".join(["s(X,A)"] * 9), "at most 8 atoms"),
    ],
)
def test_what_is_no_path_rule_is_refused_with_its_place(text: str, says: str) -> None:
    with pytest.raises(DataError, match=f"rules.txt:7: .*{says}"):
        parse_rule(text, RELATIONS, where="rules.txt:7")
