"""Between HTTP and the models: resolves names, queues questions, waits for answers until their deadline."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import Any

from contextpool.predict.answers import Question, Selection
from contextpool.predict.asking import Asking, Choice, Ids
from contextpool.predict.check import Checking, checked_claims
from contextpool.serve import schemas
from contextpool.serve.batching import BusyError, Job, TooLateError, WorkQueue
from contextpool.serve.metrics import Metrics
from contextpool.serve.problems import Item, UnknownNamesError
from contextpool.serve.registry import Engine, Registry, Snapshot
from contextpool.serve.settings import ServeSettings
from contextpool.serve.uploads import read_upload
from contextpool.serve.views import PoolQuestion, example_rows, graph_row, pooled_view

Questions = tuple[Asking, Sequence[Ids], Selection]
Slow = Callable[[], Any]
SECONDS_FOR_SUGGESTIONS = 1.0


class Service:
    """What the routes call. Questions for entities are batched; everything slower has a queue of its own."""

    def __init__(self, registry: Registry, settings: ServeSettings) -> None:
        self.registry, self.settings = registry, settings
        self.draining = False
        self.metrics = Metrics(self)
        self.questions: WorkQueue[Questions] = WorkQueue(
            "questions",
            lambda jobs: answer_together(jobs, settings.batch_size),
            capacity=settings.queue_size,
            batch_size=settings.batch_size,
            on_batch=self.metrics.batches.observe,
        )
        self.slow: WorkQueue[Slow] = WorkQueue("slow", do_each, capacity=settings.slow_queue_size)
        self.suggesting: WorkQueue[Slow] = WorkQueue("suggesting", do_each, capacity=settings.slow_queue_size)

    @property
    def snapshot(self) -> Snapshot:
        return self.registry.snapshot

    @property
    def is_ready(self) -> bool:
        return not self.draining and self.questions.is_alive and self.slow.is_alive

    def close(self) -> None:
        """Finish what waits, and stop."""
        for queue in (self.questions, self.slow, self.suggesting):
            queue.close(self.settings.deadline)

    # questions

    async def predict(
        self, engine: Engine, questions: Sequence[Question], selection: Selection, deadline: float
    ) -> list[dict[str, Any]]:
        """The answers to questions of any kind with the same options, in their order."""
        asking = engine.asking
        resolver = asking.resolver()
        where = (lambda number: "") if len(questions) == 1 else (lambda number: f"question {number}")
        ids = [resolver.question(one, where(number)) for number, one in enumerate(questions, start=1)]
        resolver.selection(selection)
        UnknownNamesError.check(resolver)
        for_entities = [one for one in ids if one[1] >= 0]
        waiting: list[Future[Any]] = []
        if for_entities:
            job: Job[Questions] = Job((asking, for_entities, selection), deadline, len(for_entities), asking)
            waiting.append(self.questions.submit(job))
        for one in ids:
            if one[1] < 0:
                waiting.append(self.slow.submit(Job(_relations(asking, one, selection), deadline)))
        found = await self._all(waiting, deadline)
        answers = iter(found[0] if for_entities else ())
        of_relations = iter(found[1:] if for_entities else found)
        return [
            {**next(answers if one[1] >= 0 else of_relations).to_dict(), "question": question.to_dict()}
            for question, one in zip(questions, ids, strict=True)
        ]

    async def explain(self, engine: Engine, asked: schemas.ExplainQuery, deadline: float) -> dict[str, Any]:
        resolver = engine.asking.resolver()
        ids = (
            resolver.entity(asked.head, "head"),
            resolver.relation(asked.relation, "relation"),
            resolver.entity(asked.tail, "tail"),
        )
        UnknownNamesError.check(resolver)
        return await self._slowly(  # type: ignore[no-any-return]
            lambda: engine.asking.explain(ids, asked.asked, asked.paths).to_dict(), deadline
        )

    async def check(self, engine: Engine, asked: schemas.CheckBody, deadline: float) -> dict[str, Any]:
        resolver = engine.asking.resolver()
        for number, one in enumerate(asked.claims, start=1):
            where = f"claim {number}"
            (
                resolver.entity(one.head, where),
                resolver.relation(one.relation, where),
                resolver.entity(one.tail, where),
            )
        UnknownNamesError.check(resolver)
        claims = [(one.head, one.relation, one.tail) for one in asked.claims]

        def work() -> dict[str, Any]:
            asking = engine.asking
            checking = Checking(asking.predictor, asking.graph, asking.names)
            found = checked_claims(checking, claims, evidence=asked.evidence)
            return {"fitted_on": found.fitted_on, "claims": [one.to_dict() for one in found]}

        return await self._slowly(work, deadline)  # type: ignore[no-any-return]

    async def pool(self, engine: Engine, asked: schemas.PoolQuery, deadline: float) -> dict[str, Any]:
        resolver = engine.asking.resolver()
        question = PoolQuestion(
            resolver.entity(asked.head, "head"),
            resolver.relation(asked.relation, "relation"),
            -1 if asked.tail is None else resolver.entity(asked.tail, "tail"),
            asked.min_precision,
            asked.min_recall,
            asked.hops,
            tuple(resolver.entity(label, "focus") for label in asked.focus),
            asked.limit,
        )
        UnknownNamesError.check(resolver)
        return await self._slowly(lambda: pooled_view(engine.asking, question), deadline)  # type: ignore[no-any-return]

    async def examples(self, engine: Engine, deadline: float) -> list[dict[str, Any]]:
        """A few questions to begin with."""
        return await self._slowly(lambda: example_rows(engine), deadline)  # type: ignore[no-any-return]

    async def add_graph(self, file_name: str, content: bytes, options: dict[str, str]) -> dict[str, Any]:
        """Serve the graph in a file that was sent; nothing of it is written anywhere."""

        def work() -> dict[str, Any]:
            name, graph, remarks = read_upload(file_name, content, options)
            added = self.registry.add(name, graph)
            told = [{"message": one.message, "options": one.options} for one in remarks]
            return {"graph": graph_row(added, self.snapshot), "remarks": told}

        return await _beside(work)  # type: ignore[no-any-return]

    async def suggestions(self, error: UnknownNamesError) -> list[Item]:
        """The unknown names with their closest matches, as many as there is time for, in a queue of their own."""
        deadline = time.monotonic() + min(SECONDS_FOR_SUGGESTIONS, self.settings.deadline)
        try:
            job: Job[Slow] = Job(lambda: error.items(deadline), deadline)
            return (await self._all([self.suggesting.submit(job)], deadline))[0]  # type: ignore[no-any-return]
        except (BusyError, TooLateError):
            return error.items()

    async def reload(self, model: str | None, graph: str | None) -> Snapshot:
        """Swap in what the sources hold now."""
        return await _beside(lambda: self.registry.reload(model, graph))  # type: ignore[no-any-return]

    # waiting

    async def _slowly(self, work: Slow, deadline: float) -> Any:
        (found,) = await self._all([self.slow.submit(Job(work, deadline))], deadline)
        return found

    async def _all(self, waiting: Sequence[Future[Any]], deadline: float) -> list[Any]:
        """All results, or an error by the deadline; whoever has not begun by then is never begun."""
        try:
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                return [await asyncio.wrap_future(one) for one in waiting]
        except TimeoutError:
            told = f"there was no answer within {self.settings.deadline:g} seconds; ask again later."
            raise TooLateError(told, max(self.questions.retry_after, self.slow.retry_after)) from None
        finally:
            for one in waiting:
                one.cancel()


async def _beside(work: Slow) -> Any:
    """Not in a queue, since answers go on meanwhile.

    In a thread of its own that nobody waits for at the end: a disk that does not answer must not hold it up.
    """
    done: Future[Any] = Future()

    def run() -> None:
        with contextlib.suppress(InvalidStateError):  # whoever asked may have gone meanwhile
            try:
                done.set_result(work())
            except Exception as error:
                done.set_exception(error)

    threading.Thread(target=run, name="loading", daemon=True).start()
    return await asyncio.wrap_future(done)


def answer_together(jobs: Sequence[Job[Questions]], batch_size: int) -> None:
    """Jobs of one model on one graph: all their questions, `batch_size` at a time.

    A selection that leaves no candidate is the error of its job and of no other.
    """
    asking = jobs[0].work[0]
    choices: dict[Selection, Choice] = {}
    asked, usable = [], []
    for job in jobs:
        _, questions, selection = job.work
        try:
            choice = choices.get(selection) or choices.setdefault(selection, asking.choose(selection))
        except Exception as error:  # told to whoever asked
            job.fail(error)
        else:
            asked += [(ids, choice) for ids in questions]
            usable.append(job)
    parts = (asked[start : start + batch_size] for start in range(0, len(asked), batch_size))
    found = (answers for part in parts for answers in asking.answer(part))
    for job in usable:
        job.finish([next(found) for _ in job.work[1]])


def do_each(jobs: Sequence[Job[Slow]]) -> None:
    for job in jobs:
        job.finish(job.work())


def _relations(asking: Asking, ids: Ids, selection: Selection) -> Slow:
    choice = asking.choose(Selection(selection.k, selection.known))
    return lambda: asking.answer([(ids, choice)])[0]
