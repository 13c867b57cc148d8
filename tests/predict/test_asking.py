"""Every kind of question, restricted and named, by a model whose scores one can do by hand."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from contextpool.errors import ConfigError, DataError, UnknownNameError, WrongNamesError
from contextpool.evaluate.calibration import Calibration
from contextpool.graph.graph import Graph
from contextpool.models.walk import Walk, WalkConfig
from contextpool.pool.batch import QueryBatch
from contextpool.predict import Answer, Names, Predictor, Question, RelationAnswer
from learning_worlds import one_thread as one_thread

FACTS = [
    ("ann", "likes", "bob"), ("bob", "likes", "cid"), ("cid", "knows", "ann"),
    ("dora", "knows", "bob"), ("ann", "knows", "dora"),
]  # fmt: skip
GRAPH = Graph.from_triples(FACTS)
NAMES = Names({"ann": "Anna", "bob": "Robert", "cid": "Robert", "likes": "is fond of"})
SHARP = Calibration(1.0, (0.0, 1.0), (0.0, 1.0))


class Table(Walk):
    """Scores from a table [2R, N], whoever asks."""

    table: Tensor

    def forward(self, batch: QueryBatch) -> Tensor:
        return self.table[batch.query_relation]


def predictor(calibration: Calibration | None = SHARP) -> Predictor:
    model = Table(GRAPH.num_relations, WalkConfig(1))
    model.table = torch.arange(16.0).view(4, 4)[[2, 0, 3, 1]] / 4
    return Predictor(model, GRAPH.relation_vocabulary, None, None, calibration)


def labels(answers: list[Answer]) -> list[str]:
    return [answer.entity for answer in answers]


def test_candidates_are_restricted_by_list_and_by_relation() -> None:
    asking = predictor()
    assert labels(asking.predict(GRAPH, "ann", "likes")) == ["dora", "cid", "ann"]
    assert labels(asking.predict(GRAPH, "ann", "likes", candidates=["ann", "cid"])) == ["cid", "ann"]
    assert labels(asking.predict(GRAPH, "ann", "likes", having="likes^-1")) == ["cid"]
    assert labels(asking.predict(GRAPH, "ann", "likes", having=["likes^-1"], known=True)) == ["cid", "bob"]
    assert labels(asking.predict_heads(GRAPH, "likes", "bob", candidates=["ann", "dora"], known=True)) == [
        "dora",
        "ann",
    ]


def test_showing_fewer_candidates_makes_none_of_them_truer() -> None:
    asking = predictor()
    everyone = {answer.entity: answer for answer in asking.predict(GRAPH, "ann", "likes")}
    for answer in asking.predict(GRAPH, "ann", "likes", candidates=["ann", "cid"]):
        assert answer == everyone[answer.entity]


def test_names_go_in_and_out() -> None:
    found = predictor().predict(GRAPH, "Anna", "is fond of", k=3, names=NAMES)
    assert [(answer.entity, answer.name) for answer in found] == [
        ("dora", None),
        ("cid", "Robert"),
        ("ann", "Anna"),
    ]
    by_id = predictor().predict(GRAPH, "ann", "likes", k=3, names=NAMES)
    assert by_id == found
    relations = predictor().predict_relations(GRAPH, "Anna", "dora", names=NAMES, k=1)
    assert relations[0].name == "is fond of"
    with pytest.raises(UnknownNameError, match="'Robert' may mean 'bob', 'cid'"):
        predictor().predict(GRAPH, "Robert", "likes", names=NAMES)
    with pytest.raises(UnknownNameError, match="'Anna' is unknown"):
        predictor().predict(GRAPH, "Anna", "likes")


def test_a_relation_is_likely_where_both_ends_fit() -> None:
    asking = predictor()
    found = asking.predict_relations(GRAPH, "bob", "ann", k=5)
    table = asking.model.table.double()  # type: ignore[operator]
    expected = {}
    for number, relation in enumerate(GRAPH.relations):
        scores = []
        for row, entity, answer in ((number, "bob", "ann"), (number + 2, "ann", "bob")):
            label = GRAPH.relation_vocabulary.directed[row]
            facts = set(GRAPH.edge_labels(torch.arange(GRAPH.num_edges)))
            new = [e for e in GRAPH.entities if (entity, label, e) not in facts or e == answer]
            shares = torch.softmax(table[row][[GRAPH.entity_id(e) for e in new]], 0)
            scores.append(float(shares[new.index(answer)].log()))
        expected[relation] = sum(scores)
    assert {answer.relation: answer.score for answer in found} == pytest.approx(expected)
    total = sum(torch.tensor(list(expected.values())).exp())
    for answer in found:
        assert answer.share == pytest.approx(float(torch.tensor(answer.score).exp() / total), abs=1e-6)
        tails = {one.entity: one.probability for one in asking.predict(GRAPH, "bob", answer.relation, k=99)}
        assert answer.probability == pytest.approx(tails["ann"])
    assert sum(answer.share or 0 for answer in found) == pytest.approx(1)
    assert found == sorted(found, key=lambda answer: -answer.score)


def test_known_relations_are_left_out_or_marked() -> None:
    asking = predictor()
    assert [answer.relation for answer in asking.predict_relations(GRAPH, "ann", "bob")] == ["knows"]
    both = asking.predict_relations(GRAPH, "ann", "bob", known=True)
    assert {answer.relation: (answer.known, answer.share) for answer in both} == {
        "likes": (True, None), "knows": (False, 1.0),
    }  # fmt: skip
    assert [answer.probability for answer in both if answer.known] == [1.0]
    assert (both.known.count, both.known.first) == (1, ("likes",))
    assert all(isinstance(answer, RelationAnswer) for answer in both)


def test_without_a_calibration_there_are_no_probabilities() -> None:
    asking = predictor(None)
    assert all(answer.probability is None for answer in asking.predict(GRAPH, "ann", "likes"))
    assert all(answer.probability is None for answer in asking.predict_relations(GRAPH, "bob", "ann"))


def test_questions_of_all_kinds_are_answered_together_like_each_alone() -> None:
    asking = predictor()
    questions = [
        Question("ann", "likes", None), Question("ann", None, "cid"), Question(None, "knows", "bob"),
        Question("cid", "knows^-1", None), Question("dora", None, "ann"),
    ]  # fmt: skip
    alone = [
        asking.predict(GRAPH, "ann", "likes", k=2),
        asking.predict_relations(GRAPH, "ann", "cid", k=2),
        asking.predict_heads(GRAPH, "knows", "bob", k=2),
        asking.predict(GRAPH, "cid", "knows^-1", k=2),
        asking.predict_relations(GRAPH, "dora", "ann", k=2),
    ]
    for size in (1, 2, 64):
        assert asking.predict_batch(GRAPH, questions, 2, batch_size=size) == alone
    with pytest.raises(ConfigError, match="batch_size is 0"):
        asking.predict_batch(GRAPH, questions, 2, batch_size=0)


def test_a_batch_names_every_unknown_name_and_answers_nothing() -> None:
    asking = predictor()
    queries = [("ann", "likes"), ("anne", "likes"), ("bob", "like"), Question("x" * 300, None, "bob")]
    with pytest.raises(WrongNamesError) as caught:
        asking.predict_batch(GRAPH, queries)
    message = str(caught.value)
    for words in (
        "3 names",
        "question 2: entity 'anne'",
        "'ann'",
        "question 3: relation 'like'",
        "question 4",
    ):
        assert words in message


@pytest.mark.parametrize(
    "bad", [{"on_unknown": "maybe"}, {"k": 0}, {"k": -1}, {"k": 10**9}, {"candidates": []}]
)
def test_bad_options_are_refused_by_name(bad: dict[str, object]) -> None:
    with pytest.raises((ConfigError, DataError), match=next(iter(bad))):
        predictor().predict(GRAPH, "ann", "likes", **bad)  # type: ignore[arg-type]


def test_an_iterable_of_queries_is_streamed() -> None:
    from contextpool.predict.answers import Selection

    taken = []

    def questions():  # type: ignore[no-untyped-def]
        for entity in GRAPH.entities:
            taken.append(entity)
            yield Question(entity, "likes", None)

    found = predictor().asking(GRAPH, batch_size=2).stream(questions(), Selection(2))
    next(found)
    assert taken == ["ann", "bob"]
    assert len(list(found)) == 3


def test_threads_get_what_one_gets() -> None:
    asking = predictor()
    expected = asking.predict_relations(GRAPH, "bob", "ann")
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: asking.predict_relations(GRAPH, "bob", "ann"), range(16)))
    assert found == [expected] * 16


def test_the_fingerprint_follows_everything_that_answers_depend_on() -> None:
    first, same = predictor(), predictor()
    assert first.fingerprint == same.fingerprint
    assert predictor(None).fingerprint != first.fingerprint
    renamed = Predictor(first.model, type(GRAPH.relation_vocabulary)(("hates", "knows")), None, None, SHARP)
    assert renamed.fingerprint != first.fingerprint
