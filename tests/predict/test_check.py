"""How plausible claims are, in Python: order, ranks, what is hidden, what speaks for and against."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

import contextpool as cp
from contextpool.context.map_graph import map_graph
from contextpool.errors import ConfigError, DataError, WrongNamesError
from contextpool.graph.graph import Graph
from contextpool.graph.mapped import open_graph
from contextpool.predict import Names, Predictor
from contextpool.predict import check as module
from learning_worlds import families
from learning_worlds import one_thread as one_thread

WRONG = ("f3.0", "parent of", "f7.1.0")
FACTS = [*families(12), WRONG]


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    return cp.load()


@pytest.fixture(scope="module")
def graph() -> Graph:
    return Graph.from_triples(FACTS)


def test_the_graphs_own_facts_come_least_supported_first(predictor: Predictor, graph: Graph) -> None:
    found = predictor.check(graph, evidence=3)
    assert len(found) == found.checked == graph.num_triples
    chances = [one.probability for one in found]
    assert chances == sorted(chances)
    assert all(one.known for one in found)
    assert {(one.head, one.relation, one.tail) for one in found} == set(FACTS)
    suspects = [(one.head, one.relation, one.tail) for one in found[:5]]
    assert WRONG in suspects
    assert found.fitted_on > 100


def test_evidence_is_looked_for_where_it_is_shown(predictor: Predictor, graph: Graph) -> None:
    found = predictor.check(graph, top=4, evidence=2)
    assert len(found) == 4
    assert found.checked == graph.num_triples
    assert all(one.against for one in found[:2])
    assert not any(one.against or one.evidence for one in found[2:])


def test_ranks_are_those_of_the_evidence(predictor: Predictor) -> None:
    """On a graph without symmetries: of equal scores the last bit may differ, and with it who ties."""
    rng = random.Random(1)
    facts = {(f"e{rng.randrange(20)}", f"r{rng.randrange(4)}", f"e{rng.randrange(20)}") for _ in range(90)}
    graph, claims = Graph.from_triples(facts), [*sorted(facts)[:3], ("e1", "r0", "e2"), ("e3", "r1", "e3")]
    for claim, one in zip(claims, predictor.check(graph, claims, evidence=0), strict=True):
        assert (one.head, one.relation, one.tail) == claim
        assert one.known == (claim in graph.triples)
        assert one.tail_rank == predictor.explain(graph, *claim, asked="tail").rank
        assert one.head_rank == predictor.explain(graph, *claim, asked="head").rank


def test_a_fact_stands_as_on_the_graph_without_it(predictor: Predictor, graph: Graph) -> None:
    smaller = Graph.from_triples([one for one in FACTS if one != WRONG])
    (held,), (missing,) = (predictor.check(one, [WRONG], evidence=0) for one in (graph, smaller))
    assert (held.tail_rank, held.head_rank) == (missing.tail_rank, missing.head_rank)
    assert (held.known, missing.known) == (True, False)


def test_given_claims_keep_their_order_and_top_sorts_them(predictor: Predictor, graph: Graph) -> None:
    claims = [FACTS[0], WRONG, FACTS[0]]
    found = predictor.check(graph, claims, evidence=0)
    assert [one.tail for one in found] == [claim[2] for claim in claims]
    assert found[0] == found[2]
    assert predictor.check(graph, claims, top=1, evidence=0) == [min(found, key=lambda one: one.probability)]


def test_a_claim_may_be_walked_backwards(predictor: Predictor, graph: Graph) -> None:
    head, relation, tail = WRONG
    assert predictor.check(graph, [(tail, f"{relation}^-1", head)]) == predictor.check(graph, [WRONG])


def test_what_speaks_for_and_against(predictor: Predictor, graph: Graph) -> None:
    fact, wrong = predictor.check(graph, [("f0", "grandparent of", "f0.0.0"), WRONG])
    assert "-parent of->" in fact.evidence
    assert any("before f7.1.0" in told for told in wrong.against)
    (odd,) = predictor.check(graph, [("f0.0.0", "grandparent of", "f1.0.0")])
    assert "f0.0.0 has no parent of, as 100% with grandparent of do" in odd.against
    assert wrong.to_dict()["against"] == list(wrong.against)
    lone = predictor.check([*FACTS, ("island", "sibling of", "reef")], [("island", "sibling of", "f0")])[0]
    assert any("no way leads from island to f0" in told for told in lone.against)


def test_names_are_taken_and_shown(predictor: Predictor, graph: Graph) -> None:
    names = Names({"f3.0": "Ada", "f7.1.0": "Bob", "parent of": "mother of"})
    (one,) = predictor.check(graph, [("Ada", "mother of", "Bob")], names=names)
    assert (one.head, one.relation, one.tail) == WRONG
    assert any("(Ada, mother of, ?)" in told for told in one.against)


def test_unknown_names_are_told_at_once_or_in_their_row(predictor: Predictor, graph: Graph) -> None:
    claims = [("f0", "parent of", "f0.0"), ("nobody", "parent of", "f0.0"), ("f0", "parentof", "f0.1")]
    with pytest.raises(WrongNamesError, match=r"claim 2: entity 'nobody'(.|\n)*claim 3: relation 'parentof'"):
        predictor.check(graph, claims)
    found = predictor.check(graph, claims, on_unknown="skip", evidence=0)
    assert [one.error is None for one in found] == [True, False, False]
    assert found[1].probability is None
    assert "nobody" in found[1].error
    assert "error" not in found[0].to_dict()
    only = predictor.check(graph, claims[1:], on_unknown="skip")
    assert [one.probability for one in only] == [None, None]


@pytest.mark.parametrize("wrong", [[], ["abc"], [("a", "b")], [("a", "b", 3)]])
def test_what_is_no_claim_is_an_error(predictor: Predictor, graph: Graph, wrong: list) -> None:
    with pytest.raises(DataError, match=r"no claims|not a \(head, relation, tail\) triple"):
        predictor.check(graph, wrong)


def test_top_is_at_least_one(predictor: Predictor, graph: Graph) -> None:
    with pytest.raises(ConfigError, match="top is 0"):
        predictor.check(graph, top=0)


def test_a_mapped_graph_is_refused(predictor: Predictor, tmp_path: Path) -> None:
    (tmp_path / "facts.tsv").write_text("".join("\t".join(fact) + "\n" for fact in FACTS))
    map_graph([tmp_path / "facts.tsv"], tmp_path / "mapped")
    with pytest.raises(ConfigError, match="mapped graph"):
        predictor.check(open_graph(tmp_path / "mapped"))


def test_progress_is_told_by_stage(predictor: Predictor, graph: Graph) -> None:
    heard: list[tuple[str, int, int]] = []
    fresh = Graph.from_triples(FACTS[1:])
    predictor.check(fresh, evidence=2, progress=lambda *told: heard.append(told))
    stages = list(dict.fromkeys(stage for stage, _, _ in heard))
    assert stages == ["checking", "calibrating", "finding evidence"]
    for stage in stages:
        done = [count for name, count, _ in heard if name == stage]
        assert done == sorted(done)
        assert done[-1] == heard[max(place for place, one in enumerate(heard) if one[0] == stage)][2]


def test_a_graph_of_one_fact_gets_a_verdict(predictor: Predictor) -> None:
    (one,) = predictor.check([("a", "r", "b")])
    assert 0 < one.probability < 1
    assert np.isfinite(one.tail_rank)


def test_verdicts_as_a_frame(predictor: Predictor, graph: Graph) -> None:
    pytest.importorskip("pandas")
    found = predictor.check(graph, [FACTS[0], WRONG])
    frame = found.to_frame()
    assert list(frame["tail"]) == [FACTS[0][2], WRONG[2]]
    assert "as often true as false; predict picks from all candidates" in found._repr_html_()
    assert "rests on" in found._repr_html_()
    assert list(frame["probability"]) == [row["probability"] for row in module.rows_of(found)]


def test_verdicts_are_short_as_text(predictor: Predictor, graph: Graph) -> None:
    text = repr(predictor.check(graph, top=5, evidence=0))
    assert text.startswith(f"<5 of {graph.num_triples:,} claims checked: (")
    assert text.count("%") == 3
    assert text.endswith("2 more>")
