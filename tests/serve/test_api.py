"""The addresses: answers are those of the predictor, and bad questions are 4xx that name the item (I4)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from starlette.testclient import TestClient

from contextpool.graph.graph import Graph
from contextpool.predict import Names, Predictor, Question
from contextpool.serve import GraphSource, ModelSource
from contextpool.serve.registry import Registry
from serve.served import client_of

BELARUS = {"head": "Belarus", "relation": "currency"}


@pytest.fixture(scope="module")
def client(registry: Registry) -> Iterator[TestClient]:
    with client_of(registry) as one:
        yield one


def same(found: list[dict[str, object]], expected: list[dict[str, object]]) -> None:
    """Labels alike and in the same order, figures up to the last bits of a batch."""
    assert [{**one, "score": 0, "probability": 0} for one in found] == [
        {**one, "score": 0, "probability": 0} for one in expected
    ]
    for key in ("score", "probability"):
        assert [one[key] for one in found] == pytest.approx([one[key] for one in expected], abs=1e-4)


# answers


def test_get_and_post_answer_as_the_predictor_does(
    client: TestClient, world_predictor: Predictor, new_world: Graph
) -> None:
    expected = [one.to_dict() for one in world_predictor.predict(new_world, k=3, known=True, **BELARUS)]
    asked = {**BELARUS, "k": 3, "known": True}
    got, posted = client.get("/predict", params=asked), client.post("/predict", json=asked)
    for answer in (got, posted):
        assert answer.status_code == 200
        body = answer.json()
        assert body["model"] == {"name": "demo", "fingerprint": world_predictor.fingerprint[:16]}
        assert body["graph"] == "world"
        assert body["question"] == {**BELARUS, "tail": None}
        same(body["answers"], expected)


def test_heads_and_relations_are_asked_by_leaving_them_out(
    client: TestClient, world_predictor: Predictor, new_world: Graph
) -> None:
    heads = client.post("/predict", json={"relation": "currency", "tail": "Euro", "k": 4}).json()
    expected = world_predictor.predict_heads(new_world, "currency", "Euro", k=4)
    same(heads["answers"], [one.to_dict() for one in expected])
    relations = client.post("/predict", json={"head": "Minsk", "tail": "Belarus", "k": 2}).json()
    best = world_predictor.predict_relations(new_world, "Minsk", "Belarus", k=2)
    same(relations["answers"], [one.to_dict() for one in best])


def test_candidates_are_restricted(client: TestClient) -> None:
    listed = client.post("/predict", json={**BELARUS, "candidates": ["Euro", "Russian Ruble"]}).json()
    assert {one["entity"] for one in listed["answers"]} == {"Euro", "Russian Ruble"}
    capitals = client.post(
        "/predict", json={"head": "Minsk", "relation": "near", "having": ["capital^-1"]}
    ).json()
    assert "Vilnius" in {one["entity"] for one in capitals["answers"]}


def test_several_questions_of_all_kinds_in_one_request(
    client: TestClient, world_predictor: Predictor, new_world: Graph
) -> None:
    questions = [
        Question("Belarus", "currency", None),
        Question("Minsk", None, "Belarus"),
        Question(None, "currency", "Euro"),
        Question("Austria", "borders", None),
    ]
    body = {"questions": [one.to_dict() for one in questions], "k": 3}
    answer = client.post("/predict/batch", json=body).json()
    expected = world_predictor.predict_batch(new_world, questions, k=3)
    assert [one["question"] for one in answer["results"]] == [one.to_dict() for one in questions]
    for found, wanted in zip(answer["results"], expected, strict=True):
        same(found["answers"], [one.to_dict() for one in wanted])


def test_questions_asked_at_once_with_different_options_get_their_own_answers(
    client: TestClient, world_predictor: Predictor, new_world: Graph
) -> None:
    heads = [label for label in new_world.entities if label.startswith("A")][:40]
    asked = [
        {"head": head, "relation": "located_in^-1", "k": 1 + place % 4, "known": place % 2 == 0}
        for place, head in enumerate(heads)
    ]
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda one: client.post("/predict", json=one).json(), asked))
    for one, answer in zip(asked, found, strict=True):
        whole = world_predictor.predict(new_world, **{**one, "k": 10**6})  # type: ignore[arg-type]
        expected = {wanted.entity: wanted for wanted in whole}
        scores = [got["score"] for got in answer["answers"]]
        assert scores == pytest.approx([wanted.score for wanted in whole[: one["k"]]], abs=1e-4)  # type: ignore[misc]
        assert scores == pytest.approx([expected[got["entity"]].score for got in answer["answers"]], abs=1e-4)
        assert all(got["known"] == expected[got["entity"]].known for got in answer["answers"])


def test_claims_are_checked_as_by_the_predictor(
    client: TestClient, world_predictor: Predictor, new_world: Graph
) -> None:
    claims = [("Belarus", "largest_city", "Minsk"), ("Belarus", "largest_city", "Tokyo")]
    body = {"claims": [dict(zip(("head", "relation", "tail"), claim, strict=True)) for claim in claims]}
    answer = client.post("/check", json=body).json()
    expected = world_predictor.check(new_world, claims, evidence=1)
    assert answer["fitted_on"] == expected.fitted_on > 0
    fact, wrong = answer["claims"]
    assert (fact["known"], wrong["known"]) == (True, False)
    assert wrong["probability"] == pytest.approx(expected[1].probability, abs=1e-3)
    assert wrong["probability"] < fact["probability"]
    assert wrong["against"]
    assert not fact["against"]  # evidence for the least plausible one alone
    unknown = client.post("/check", json={"claims": [{**body["claims"][0], "head": "Belarrus"}]})
    assert unknown.status_code == 404
    assert "Belarus" in unknown.text
    assert client.post("/check", json={"claims": []}).status_code == 422


def test_answers_say_how_many_facts_they_rest_on(client: TestClient) -> None:
    found = client.post("/predict", json={"head": "Belarus", "relation": "currency"}).json()
    assert found["calibrated_on"] > 0


def test_an_explanation_is_the_predictors(
    client: TestClient, world_predictor: Predictor, new_world: Graph
) -> None:
    asked = {**BELARUS, "tail": "Belarusian Ruble", "paths": 3}
    expected = world_predictor.explain(new_world, **BELARUS, tail="Belarusian Ruble", paths=3).to_dict()
    body = client.get("/explain", params=asked).json()
    assert body.pop("model")["name"] == "demo"
    assert body.pop("graph") == "world"
    assert [path["edges"] for path in body["paths"]] == [path["edges"] for path in expected["paths"]]
    assert body["score"] == pytest.approx(expected["score"], abs=1e-4)
    assert set(body) == set(expected)
    head = client.get("/explain", params={**asked, "asked": "head"}).json()
    assert head["answer"] == "Belarus"


def test_models_and_graphs_are_chosen_by_name(client: TestClient, registry: Registry) -> None:
    listed = client.get("/models").json()
    assert [one["name"] for one in listed["models"]] == ["demo", "walk"]
    assert listed["graphs"][0]["models"] == ["demo", "walk"]
    walk = client.get("/predict", params={**BELARUS, "model": "walk"}).json()
    assert walk["model"] == {
        "name": "walk",
        "fingerprint": registry.snapshot.models["walk"].fingerprint,
    }
    assert walk["answers"] != client.get("/predict", params=BELARUS).json()["answers"]


def test_relations_and_entities_are_listed(client: TestClient, new_world: Graph) -> None:
    relations = client.get("/relations").json()["relations"]
    assert [one["relation"] for one in relations] == list(new_world.relations)
    assert sum(one["facts"] for one in relations) == new_world.num_triples
    found = client.get("/entities", params={"prefix": "bela", "limit": 5}).json()
    assert [one["entity"] for one in found["entities"]] == ["Belarus", "Belarusian Ruble", "Kuala Belait"]
    assert not found["more"]
    everything = client.get("/entities", params={"limit": 7}).json()
    assert len(everything["entities"]) == 7
    assert everything["more"]


def test_metrics_are_text_that_counts(client: TestClient) -> None:
    client.get("/predict", params=BELARUS)
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert 'contextpool_requests_total{method="GET",route="/predict",status="200"}' in answer.text
    assert "contextpool_batch_questions_count" in answer.text
    assert 'contextpool_model_info{fingerprint="' in answer.text
    before = answer.text
    assert client.get("/no/such/address").status_code == 404
    assert 'method="GET",route="other",status="404"' in client.get("/metrics").text
    assert "/no/such/address" not in before


def test_health_and_ready(client: TestClient) -> None:
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/ready").json() == {"status": "ready"}


# I4: bad questions

LONG = "x" * 10**6
BAD_BODIES = [
    ({**BELARUS, "head": "Belarrus"}, 404, "entity 'Belarrus' is unknown (689 known, closest 'Belarus')"),
    ({**BELARUS, "relation": "curency"}, 404, "closest 'currency'"),
    ({"head": "Belarrus", "relation": "curency"}, 404, "2 names cannot be used"),
    ({**BELARUS, "head": ""}, 422, "head is ''"),
    ({**BELARUS, "relation": ""}, 422, "relation is ''"),
    ({**BELARUS, "head": LONG}, 422, "1,000,000 characters"),
    ({**BELARUS, "relation": LONG}, 422, "1,000,000 characters"),
    ({**BELARUS, "head": "y" * 9_000}, 404, "9,000 characters"),
    ({**BELARUS, "head": "\u001b[31m\n"}, 404, "is unknown"),
    ({**BELARUS, "head": "\ud800"}, 422, "head is '\\ud800'"),
    ({**BELARUS, "k": 0}, 422, "k is 0"),
    ({**BELARUS, "k": -1}, 422, "k is -1"),
    ({**BELARUS, "k": 10**9}, 422, "k is 1000000000"),
    ({**BELARUS, "k": 10**400}, 422, "k is 1000000"),
    ({**BELARUS, "k": 2.5}, 422, "k is 2.5"),
    ({**BELARUS, "k": "10"}, 422, "k is '10'"),
    ({**BELARUS, "k": True}, 422, "k is True"),
    ({**BELARUS, "k": float("nan")}, 422, "k is nan"),
    ({**BELARUS, "known": "yes"}, 422, "known is 'yes'"),
    ({**BELARUS, "wished": 1}, 422, "wished is 1"),
    ({}, 422, "gives nothing"),
    ({"head": "Belarus"}, 422, "gives head"),
    ({**BELARUS, "tail": "Euro"}, 422, "gives head and relation and tail"),
    ({**BELARUS, "head": ["Belarus"]}, 422, "head is a list of 1"),
    ({**BELARUS, "head": None}, 422, "gives relation"),
    ({**BELARUS, "candidates": ["Eurro", "Dollarr", "Euro"]}, 404, "candidates: entity 'Eurro' is unknown"),
    ({**BELARUS, "candidates": []}, 422, "candidates is a list of 0"),
    ({**BELARUS, "candidates": ["Euro"] * 10_001}, 422, "candidates is a list of 10,001"),
    ({**BELARUS, "having": ["kapital"]}, 404, "having: relation 'kapital' is unknown"),
    ({**BELARUS, "having": ["capital"] * 17}, 422, "having is a list of 17"),
    ({**BELARUS, "having": ["capital", "observes"]}, 422, "no candidate is left"),
    ({**BELARUS, "model": "dmo"}, 404, "model 'dmo' is unknown (2 known, closest 'demo')"),
    ({**BELARUS, "graph": "wrld"}, 404, "graph 'wrld' is unknown (1 known, closest 'world')"),
    ({**BELARUS, "model": "../../etc/passwd"}, 404, "is unknown"),
    ([], 422, "Input should be"),
    ("text", 422, "Input should be"),
    (None, 422, "Input should be"),
]  # fmt: skip


def check_problem(answer: object, status: int, words: str) -> None:
    assert answer.status_code == status, answer.text  # type: ignore[attr-defined]
    error = answer.json()["error"]  # type: ignore[attr-defined]
    assert words in error["message"]
    assert len(answer.content) < 8_000  # type: ignore[attr-defined]
    assert "Traceback" not in answer.text  # type: ignore[attr-defined]


@pytest.mark.parametrize(("body", "status", "words"), BAD_BODIES, ids=lambda one: str(one)[:40])
def test_a_bad_question_is_4xx_and_named(client: TestClient, body: object, status: int, words: str) -> None:
    content = json.dumps(body)
    answer = client.post("/predict", content=content, headers={"content-type": "application/json"})
    check_problem(answer, status, words)


@pytest.mark.parametrize(("body", "status", "words"), BAD_BODIES[:12], ids=lambda one: str(one)[:40])
def test_and_so_it_is_among_others(
    client: TestClient, body: dict[str, object], status: int, words: str
) -> None:
    options = {key: value for key, value in body.items() if key not in ("head", "relation", "tail")}
    places = {key: value for key, value in body.items() if key not in options}
    content = json.dumps({"questions": [BELARUS, places], **options})
    answer = client.post("/predict/batch", content=content, headers={"content-type": "application/json"})
    check_problem(answer, status, words)
    in_the_second = {"questions.1.head", "questions.1.relation", "question 2"}
    if "k" not in body:
        assert {one["where"] for one in answer.json()["error"]["items"]} <= in_the_second


BAD_ADDRESSES = [
    ("/predict", 422, "head: Field required"),
    ("/predict?head=Belarus&relation=currency&k=0", 422, "k is '0'"),
    ("/predict?head=Belarus&relation=currency&k=-1", 422, "k is '-1'"),
    ("/predict?head=Belarus&relation=currency&k=1000000000", 422, "k is '1000000000'"),
    ("/predict?head=Belarus&relation=currency&k=many", 422, "k is 'many'"),
    ("/predict?head=&relation=currency", 422, "head is ''"),
    ("/predict?head=Belarus&relation=curency", 404, "closest 'currency'"),
    ("/predict?head=%ff%fe&relation=currency", 404, "is unknown"),
    ("/predict?head=Belarus&relation=currency&wished=1", 422, "wished is '1'"),
    ("/explain?head=x&relation=y&tail=z", 404, "3 names cannot be used"),
    ("/explain?head=Belarus&relation=currency&tail=Euroo", 404, "tail: entity 'Euroo' is unknown"),
    ("/explain?head=Belarus&relation=currency&tail=Euro&paths=0", 422, "paths is '0'"),
    ("/explain?head=Belarus&relation=currency&tail=Euro&paths=21", 422, "paths is '21'"),
    ("/explain?head=Belarus&relation=currency&tail=Euro&asked=both", 422, "asked is 'both'"),
    ("/pool?head=Belarus&relation=currency&min_precision=1", 422, "min_precision is '1'"),
    ("/pool?head=Belarus&relation=currency&min_precision=nan", 422, "min_precision is 'nan'"),
    ("/pool?head=Belarus&relation=currency&min_recall=-0.1", 422, "min_recall is '-0.1'"),
    ("/pool?head=Belarus&relation=currency&hops=99", 422, "hops is '99'"),
    ("/pool?head=Belarus&relation=currency&focus=Nowhere", 404, "focus: entity 'Nowhere' is unknown"),
    ("/entities?limit=0", 422, "limit is '0'"),
    ("/entities?graph=wrld", 404, "closest 'world'"),
    ("/relations?model=dmo", 404, "closest 'demo'"),
    ("/nowhere", 404, "no such address"),
    ("/static/../app.py", 404, "no such address"),
]  # fmt: skip


@pytest.mark.parametrize(("address", "status", "words"), BAD_ADDRESSES)
def test_a_bad_address_is_4xx_and_named(client: TestClient, address: str, status: int, words: str) -> None:
    check_problem(client.get(address), status, words)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"{'head': 1}", b'{"head": "a"} {}', b"[" * 100_000,
                                     b'{"k": ' + b"9" * 5000 + b"}"])  # fmt: skip
def test_what_is_no_json_is_4xx(client: TestClient, content: bytes) -> None:
    answer = client.post("/predict", content=content, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422)
    assert answer.json()["error"]["message"]


def test_a_form_is_not_taken_for_json(client: TestClient) -> None:
    content = json.dumps(BELARUS)
    for kind in ("text/plain", "application/x-www-form-urlencoded"):  # what a foreign page can send unasked
        answer = client.post("/predict", content=content, headers={"content-type": kind})
        assert answer.status_code == 422


def test_a_method_that_is_not_taken_names_those_that_are(client: TestClient) -> None:
    answer = client.put("/predict", json=BELARUS)
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET, POST"
    assert client.options("/models").status_code == 405


# names, and graphs that do not fit


def test_names_go_in_and_out(world_run, new_world: Graph) -> None:
    names = Names(
        {"Belarus": "Беларусь", "Euro": "money", "Belarusian Ruble": "money", "currency": "pays with"}
    )
    source = GraphSource("world", lambda: new_world, lambda: names)
    with client_of(Registry([ModelSource("demo", world_run)], [source])) as client:
        found = client.get("/predict", params={"head": "Беларусь", "relation": "pays with", "k": 1}).json()
        assert found["answers"][0]["name"] == "money"
        assert client.get("/entities", params={"prefix": "бел"}).json()["entities"][0] == {
            "entity": "Belarus", "name": "Беларусь", "facts": 17,
        }  # fmt: skip
        doubtful = client.get("/explain", params={**BELARUS, "tail": "money"})
        check_problem(doubtful, 404, "may mean 'Belarusian Ruble', 'Euro'")
        view = client.get("/pool", params=BELARUS).json()
        assert view["names"]["Belarus"] == "Беларусь"


def test_a_graph_that_a_model_does_not_know_is_told(world_run, new_world: Graph) -> None:
    strange = Graph.from_triples([("a", "borders", "b"), ("b", "likes", "c")])
    graphs = [GraphSource("world", lambda: new_world), GraphSource("strange", lambda: strange)]
    with pytest.raises(ValueError, match="graph 'strange' fits no model: relation 'likes' is unknown"):
        Registry([ModelSource("demo", world_run)], graphs)
    registry = Registry([ModelSource("demo", world_run)], graphs, on_unknown="skip")
    assert registry.remarks() == ["model demo leaves out 1 facts of graph strange: unknown relations"]
    with client_of(registry) as client:
        found = client.get("/predict", params={"head": "a", "relation": "borders", "graph": "strange"})
        assert {one["entity"] for one in found.json()["answers"]} == {"a", "c"}
