"""Roles: who trains, who selects, who is evaluated, and which answers each may know."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest

from contextpool.errors import ConfigError, DataError
from contextpool.triples.dataset import Dataset, joined, used_only
from contextpool.triples.filters import KnownAnswers
from contextpool.triples.store import Triple, Triples
from support import known_tails

TRAIN = [("ann", "knows", "bob"), ("bob", "likes", "cid")]
VALID = [("ann", "likes", "cid")]
TEST = [("cid", "knows", "dan")]


def of(triples: Iterable[Triple]) -> Triples:
    return Triples.from_labels(triples)


def inductive() -> Dataset:
    return Dataset.from_two_graphs(
        "pair",
        train=of(TRAIN),
        training_valid=of(VALID),
        validation=of(TEST),
        inference_graph=of([("x", "knows", "y")]),
        inference_valid=of([("y", "knows", "z")]),
        inference_test=of([("z", "likes", "x")]),
    )


def transductive(facts: list[Triple] | None = None) -> Dataset:
    return Dataset.from_one_graph(
        "one",
        train=of(TRAIN),
        valid=of(VALID),
        test=of(TEST),
        facts=None if facts is None else of(facts),
    )


def known(answers: KnownAnswers, of_part: Triples) -> set[Triple]:
    """The triples that a filter knows, as labels: asked one query at a time."""
    names, kinds = of_part.entities.labels, of_part.relations.labels
    return {
        (names[head], kinds[relation], names[tail])
        for head in range(len(names))
        for relation in range(len(kinds))
        for tail in known_tails(answers, head, relation)
    }


def test_inductive_roles():
    dataset = inductive()
    assert dataset.inductive
    assert set(dataset.training_graph) == set(TRAIN)
    assert set(dataset.training_queries) == {*TRAIN, *VALID}
    assert set(dataset.validation_queries) == set(TEST)
    assert set(dataset.inference_graph) == {("x", "knows", "y")}
    assert dataset.validation_graph is dataset.training_graph


def test_each_side_has_one_entity_vocabulary_and_both_have_the_relations_of_training():
    dataset = inductive()
    assert dataset.training_entities.labels == ("ann", "bob", "cid", "dan")
    assert dataset.inference_entities.labels == ("x", "y", "z")
    assert dataset.inference_graph.relations is dataset.training_graph.relations
    assert dataset.relations.labels == ("knows", "likes")


def test_transductive_roles_without_facts():
    dataset = transductive()
    assert not dataset.inductive
    assert dataset.inference_graph is dataset.training_graph is dataset.training_queries
    assert set(dataset.training_graph) == set(TRAIN)
    assert dataset.inference_valid is None
    assert dataset.inference_test.entities is dataset.training_entities
    assert "dan" in dataset.inference_entities  # of test alone: a candidate without an edge


def test_transductive_roles_with_facts():
    facts = [("ann", "knows", "eve")]
    dataset = transductive(facts)
    assert dataset.facts is not None
    assert set(dataset.facts) == set(facts)
    assert set(dataset.training_graph) == set(dataset.training_queries) == {*facts, *TRAIN}
    assert set(dataset.validation_queries) == set(VALID)


def test_a_relation_outside_of_training_is_refused():
    with pytest.raises(DataError, match=r"pair: relation 'hates' does not occur in training"):
        Dataset.from_two_graphs(
            "pair",
            train=of(TRAIN),
            validation=of(TEST),
            inference_graph=of([("x", "hates", "y")]),
            inference_valid=of([("x", "knows", "y")]),
            inference_test=of([("y", "knows", "x")]),
        )


def test_a_relation_that_training_only_lists_is_no_training_relation():
    wide = of([*TRAIN, ("a", "hates", "b")])
    listed = wide.select(wide.ids[:, 1] != wide.relations.id_of("hates"))
    with pytest.raises(DataError, match="'hates'"):
        Dataset.from_one_graph("one", train=listed, valid=of(VALID), test=of([("a", "hates", "b")]))


def test_parts_of_one_side_have_to_share_their_vocabularies():
    alone = of(TRAIN)
    with pytest.raises(DataError, match="share their vocabularies"):
        Dataset("apart", False, alone, of(TRAIN), alone, alone, None, alone)


def test_evaluation_queries_are_valid_and_test_or_test_alone():
    dataset = inductive()
    assert set(dataset.evaluation_queries("P1")) == {("y", "knows", "z"), ("z", "likes", "x")}
    assert set(dataset.evaluation_queries("P2")) == {("z", "likes", "x")}
    assert dataset.evaluation_queries("P1").entities is dataset.inference_entities


def test_evaluation_queries_of_a_transductive_setting_are_its_test_either_way():
    dataset = transductive()
    assert dataset.evaluation_queries("P1") is dataset.evaluation_queries("P2") is dataset.inference_test


def test_an_unknown_protocol_is_refused():
    with pytest.raises(ConfigError, match="'P3'"):
        inductive().evaluation_queries("P3")


def test_queries_valid_is_the_published_inductive_way():
    dataset = inductive().with_queries("valid")
    assert set(dataset.training_queries) == set(VALID)
    assert set(dataset.training_graph) == set(TRAIN)
    assert set(dataset.with_queries("all").training_queries) == {*TRAIN, *VALID}


def test_queries_train_is_the_published_transductive_way():
    facts = [("ann", "knows", "eve")]
    dataset = transductive(facts).with_queries("train")
    assert set(dataset.training_graph) == set(facts)
    assert set(dataset.training_queries) == set(TRAIN)
    assert set(dataset.inference_graph) == set(dataset.validation_graph) == {*facts, *TRAIN}
    assert set(dataset.with_queries("all").training_graph) == {*facts, *TRAIN}


@pytest.mark.parametrize(
    ("dataset", "queries", "why"),
    [
        (transductive(), "valid", "never trained on"),
        (transductive(), "train", "has no facts.txt"),
        (inductive(), "train", "is inductive"),
        (inductive(), "some", "'all', 'train' or 'valid'"),
    ],
)
def test_queries_that_a_setting_does_not_have_are_refused(dataset, queries, why):
    with pytest.raises(ConfigError, match=why):
        dataset.with_queries(queries)


def test_queries_valid_needs_a_valid_file_on_the_training_side():
    part = of([("x", "knows", "y")])
    dataset = Dataset.from_two_graphs(
        "bare",
        train=of(TRAIN),
        validation=of(TEST),
        inference_graph=part,
        inference_valid=part,
        inference_test=part,
    )
    with pytest.raises(ConfigError, match=r"bare has no valid\.txt"):
        dataset.with_queries("valid")
    assert set(dataset.with_queries("all").training_queries) == set(TRAIN)


def test_without_facts_joins_the_two():
    dataset = transductive([("ann", "knows", "eve")]).with_queries("train").without_facts()
    assert dataset.facts is None
    assert len(dataset.training_graph) == 3
    with pytest.raises(ConfigError, match=r"has no facts\.txt"):
        dataset.with_queries("train")


def test_the_training_filter_knows_training_triples_only():
    for dataset in (inductive(), inductive().with_queries("valid")):
        assert known(dataset.training_filter, dataset.training_graph) == {*TRAIN, *VALID}
    assert known(transductive().training_filter, transductive().training_graph) == set(TRAIN)


def test_the_validation_filter_knows_the_training_side_and_no_test_query():
    dataset = transductive()
    assert known(dataset.validation_filter, dataset.training_graph) == {*TRAIN, *VALID}
    assert known(inductive().validation_filter, inductive().training_graph) == {*TRAIN, *VALID, *TEST}


@pytest.mark.parametrize("queries", ["all", "train"])
def test_the_transductive_evaluation_filter_knows_all_files(queries):
    facts = [("ann", "knows", "eve")]
    dataset = transductive(facts).with_queries(queries)
    assert known(dataset.evaluation_filter, dataset.inference_graph) == {*facts, *TRAIN, *VALID, *TEST}


def test_the_inductive_evaluation_filter_knows_the_inference_side_only():
    dataset = inductive()
    everything = {("x", "knows", "y"), ("y", "knows", "z"), ("z", "likes", "x")}
    assert known(dataset.evaluation_filter, dataset.inference_graph) == everything
    assert dataset.evaluation_filter is dataset.evaluation_filter


def test_summary_counts_and_is_json():
    summary = json.loads(json.dumps(inductive().summary()))
    assert summary["relations"] == 2
    assert (summary["training_entities"], summary["inference_entities"]) == (4, 3)
    assert summary["triples"]["training_queries"] == 3
    assert summary["triples"]["facts"] is None
    assert transductive().summary()["triples"]["inference_valid"] is None


def test_joined_keeps_vocabularies_and_counts_what_two_parts_hold_once():
    dataset = inductive()
    both = joined([dataset.training_queries, dataset.training_graph])
    assert both.entities is dataset.training_entities
    assert len(both) == 3


def test_used_only_drops_labels_that_no_triple_names():
    whole = of([*TRAIN, ("zoe", "hates", "zoe")])
    part = used_only(whole.select(whole.ids[:, 1] != whole.relations.id_of("hates")))
    assert part.entities.labels == ("ann", "bob", "cid")
    assert part.relations.labels == ("knows", "likes")
    assert set(part) == set(TRAIN)


def test_audit_reports_on_the_dataset():
    report = inductive().audit()
    assert type(report).__name__ == "AuditReport"
