"""What is refused, and how, when there is too much to do, or when something breaks inside."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from starlette.testclient import TestClient

from contextpool.predict.answers import Selection
from contextpool.predict.asking import Asking
from contextpool.serve.app import create_app
from contextpool.serve.batching import Job, WorkQueue
from contextpool.serve.registry import Registry
from contextpool.serve.service import Service
from serve.served import BASE, service_of

ASK = "/predict?head=Belarus&relation=currency"
EXPLAIN = "/explain?head=Belarus&relation=currency&tail=Euro"


class Stuck:
    """A model that does not answer before it is let go."""

    def __init__(self) -> None:
        self.gate, self.entered = threading.Event(), threading.Event()

    def choose(self, selection: Any) -> Any:
        return selection

    def answer(self, asked: Any) -> list[Any]:
        self.entered.set()
        assert self.gate.wait(60)
        return [[] for _ in asked]


@contextmanager
def stuck(service: Service) -> Iterator[Stuck]:
    """The queues of questions and of slow work are busy with something that does not end."""
    engine = Stuck()
    forever = time.monotonic() + 60
    service.questions.submit(Job((engine, [None], Selection()), forever, group=engine))  # type: ignore[arg-type]
    service.slow.submit(Job(lambda: engine.gate.wait(60), forever))
    assert engine.entered.wait(30)
    try:
        yield engine
    finally:
        engine.gate.set()


def fill(queue: WorkQueue[Any], capacity: int, gate: threading.Event) -> None:
    """One job is at work until the gate opens, and so many wait."""
    entered = threading.Event()
    jobs = [Job(lambda: (entered.set(), gate.wait(60)), time.monotonic() + 60) for _ in range(capacity + 1)]
    if not len(queue):
        queue.submit(jobs[0])
        assert entered.wait(30)
        for job in jobs[1:]:
            queue.submit(job)


def client(service: Service) -> TestClient:
    return TestClient(create_app(service), base_url=BASE)


def check_refused(answer: Any, status: int, words: str) -> None:
    assert answer.status_code == status
    assert words in answer.json()["error"]["message"]
    assert int(answer.headers["retry-after"]) >= 1


def test_a_deadline_that_passes_is_504(registry: Registry) -> None:
    with service_of(registry, deadline=0.2) as service, stuck(service):
        for path in (ASK, EXPLAIN, "/pool?head=Belarus&relation=currency"):
            check_refused(client(service).get(path), 504, "no answer within 0.2 seconds")
        assert client(service).get("/health").status_code == 200


def test_a_full_queue_is_503_and_later_there_is_room(registry: Registry) -> None:
    with service_of(registry, queue_size=256, slow_queue_size=2) as service:
        asked = client(service)
        with ThreadPoolExecutor(8) as pool, stuck(service) as engine:
            body = {"questions": [{"head": "Belarus", "relation": "currency"}] * 256, "k": 1}
            waiting = [pool.submit(asked.post, "/predict/batch", json=body)]
            waiting += [pool.submit(asked.get, EXPLAIN) for _ in range(2)]
            while len(service.questions) < 256 or len(service.slow) < 2:
                time.sleep(0.01)
            check_refused(asked.get(ASK), 503, "256 questions wait already")
            check_refused(asked.get(EXPLAIN), 503, "2 questions wait already")
            for meant in (
                ["Belarus"],
                [],
            ):  # looked for in a queue of its own; where that is full, still named
                unknown = asked.get("/predict?head=Belarrus&relation=currency")
                assert unknown.status_code == 404
                assert unknown.json()["error"]["items"][0]["closest"] == meant
                fill(service.suggesting, 2, engine.gate)
            assert asked.get("/health").status_code == 200
            assert 'contextpool_queue_questions{lane="questions"} 256' in asked.get("/metrics").text
        assert [one.result(60).status_code for one in waiting] == [200] * 3
        assert asked.get(ASK).status_code == 200


@pytest.mark.parametrize(("batch_size", "together"), [(128, [128]), (48, [48, 48, 32])])
def test_so_many_questions_are_scored_together_as_the_settings_say(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, batch_size: int, together: list[int]
) -> None:
    sizes: list[int] = []
    answer = Asking.answer

    def counted(self: Asking, asked: Any) -> Any:
        sizes.append(len(asked))
        return answer(self, asked)

    monkeypatch.setattr(Asking, "answer", counted)
    with service_of(registry, batch_size=batch_size) as service:
        body = {"questions": [{"head": "Belarus", "relation": "currency"}] * 128, "k": 1}
        found = client(service).post("/predict/batch", json=body).json()["results"]
    assert len(found) == 128
    assert sizes == together


def test_what_nobody_waits_for_any_more_is_not_begun(registry: Registry) -> None:
    with service_of(registry, deadline=0.2) as service:
        with stuck(service):
            assert client(service).get(ASK).status_code == 504
        while len(service.questions):
            time.sleep(0.01)
        assert (
            b"contextpool_batch_questions_sum 1.0" in service.metrics.text()
        )  # the stuck one alone was handled


def test_an_error_inside_is_500_without_a_word_of_it(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(self: Asking, asked: Any) -> Any:
        raise RuntimeError("secret /path/to/something")

    with service_of(registry) as service:
        monkeypatch.setattr(Asking, "answer", broken)
        with caplog.at_level(logging.ERROR, "contextpool.serve"):
            answer = client(service).get(ASK)
        assert answer.status_code == 500
        assert "secret" not in answer.text
        assert "Traceback" not in answer.text
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "secret" in caplog.text  # the log has it
        monkeypatch.undo()
        assert client(service).get(ASK).status_code == 200  # and the queue lives on
        assert 'status="500"} 1' in client(service).get("/metrics").text


def test_after_closing_questions_are_refused(registry: Registry) -> None:
    with service_of(registry) as service:
        asked = client(service)
        service.close()
        check_refused(asked.get(ASK), 503, "shutting down")
        assert asked.get("/ready").status_code == 503
        assert asked.get("/health").status_code == 200
