"""Between HTTP and the models: resolves names, queues questions, waits for answers until their deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any

from contextpool.predict import Question
from contextpool.predict.answers import AnyAnswer, Selection
from contextpool.predict.names import Resolver
from contextpool.serve import schemas
from contextpool.serve.engine import Engine, EntityQuestion, LoadedModel
from contextpool.serve.lanes import BusyError, Lane, Ticket, TooLateError, give_back, give_up
from contextpool.serve.metrics import Metrics
from contextpool.serve.pooling import PoolQuestion, pooled_view
from contextpool.serve.problems import Item, UnknownNamesError
from contextpool.serve.registry import Registry, Snapshot
from contextpool.serve.settings import ServeSettings

Questions = tuple[Engine, Sequence[EntityQuestion]]
Slow = Callable[[], Any]
SECONDS_FOR_SUGGESTIONS = 1.0


class Service:
    """What the routes call. Questions for entities share a lane and are batched; everything slower has its own."""

    def __init__(self, registry: Registry, settings: ServeSettings) -> None:
        self.registry, self.settings = registry, settings
        self.draining = False
        self.metrics = Metrics(self)
        self.questions: Lane[Questions] = Lane(
            "questions",
            lambda tickets: answer_together(tickets, settings.batch_size),
            capacity=settings.queue_size,
            batch_size=settings.batch_size,
            on_batch=self.metrics.batches.observe,
        )
        self.slow: Lane[Slow] = Lane("slow", do_each, capacity=settings.slow_queue_size)

    @property
    def snapshot(self) -> Snapshot:
        return self.registry.snapshot

    @property
    def is_ready(self) -> bool:
        return not self.draining and self.questions.is_alive and self.slow.is_alive

    def close(self) -> None:
        """Finish what waits, and stop."""
        for lane in (self.questions, self.slow):
            lane.close(self.settings.deadline)

    # questions

    async def predict(
        self, engine: Engine, questions: Sequence[Question], selection: Selection, deadline: float
    ) -> list[dict[str, Any]]:
        """The answers to questions of any kind with the same options, in their order."""
        resolver = engine.resolver()
        where = (lambda number: "") if len(questions) == 1 else (lambda number: f"question {number}")
        ids = [engine.resolve(one, resolver, where(number)) for number, one in enumerate(questions, start=1)]
        self._resolve_options(selection, resolver)
        self._check(engine, resolver)
        for_entities = [EntityQuestion(engine.entity_query(one), selection) for one in ids if one[1] >= 0]
        waiting: list[Future[Any]] = []
        if for_entities:
            ticket: Ticket[Questions] = Ticket((engine, for_entities), deadline, len(for_entities), engine)
            waiting.append(self.questions.submit(ticket))
        for head, relation, tail in ids:
            if relation < 0:
                job = _between(engine, head, tail, selection)
                waiting.append(self.slow.submit(Ticket(job, deadline)))
        found = await self._all(waiting, deadline)
        return list(_in_order(questions, ids, found, bool(for_entities)))

    def _resolve_options(self, selection: Selection, resolver: Resolver) -> None:
        for label in selection.candidates or ():
            resolver.entity(label, "candidates")
        for label in selection.having:
            resolver.relation(label, "having")

    def _check(self, engine: Engine, resolver: Resolver) -> None:
        if resolver.problems:
            raise UnknownNamesError(engine, resolver.problems)

    async def explain(self, engine: Engine, asked: schemas.ExplainQuery, deadline: float) -> dict[str, Any]:
        resolver = engine.resolver()
        ids = (
            resolver.entity(asked.head, "head"),
            resolver.relation(asked.relation, "relation"),
            resolver.entity(asked.tail, "tail"),
        )
        self._check(engine, resolver)
        return await self._slowly(lambda: engine.explain(ids, asked.asked, asked.paths).to_dict(), deadline)  # type: ignore[no-any-return]

    async def pool(self, engine: Engine, asked: schemas.PoolQuery, deadline: float) -> dict[str, Any]:
        resolver = engine.resolver()
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
        self._check(engine, resolver)
        return await self._slowly(lambda: pooled_view(engine, question), deadline)  # type: ignore[no-any-return]

    async def suggestions(self, error: UnknownNamesError) -> list[Item]:
        """What unknown names may have meant; without that where the slow lane has no time for it."""
        try:
            deadline = time.monotonic() + min(SECONDS_FOR_SUGGESTIONS, self.settings.deadline)
            return await self._slowly(lambda: error.items(suggest=True), deadline)  # type: ignore[no-any-return]
        except (BusyError, TooLateError):
            return error.items(suggest=False)

    async def reload(self, model: str | None, graph: str | None) -> Snapshot:
        """Swap in what the sources hold now; not in a lane, since answers go on meanwhile."""
        return await asyncio.to_thread(self.registry.reload, model, graph)

    # waiting

    async def _slowly(self, job: Slow, deadline: float) -> Any:
        (found,) = await self._all([self.slow.submit(Ticket(job, deadline))], deadline)
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


def answer_together(tickets: Sequence[Ticket[Questions]], batch_size: int) -> None:
    """Tickets of one engine: all their questions, `batch_size` of them at a time."""
    engine = tickets[0].work[0]
    questions = [question for ticket in tickets for question in ticket.work[1]]
    found = iter(_in_parts(engine, questions, batch_size))
    for ticket in tickets:
        own = [next(found) for _ in ticket.work[1]]
        wrong = next((one for one in own if isinstance(one, Exception)), None)
        if wrong is None:
            give_back(ticket, own)
        else:
            give_up(ticket, wrong)


def _in_parts(engine: Engine, questions: Sequence[EntityQuestion], size: int) -> Iterable[Any]:
    for start in range(0, len(questions), size):
        yield from engine.answer(questions[start : start + size])


def do_each(tickets: Sequence[Ticket[Slow]]) -> None:
    for ticket in tickets:
        give_back(ticket, ticket.work())


def _between(engine: Engine, head: int, tail: int, selection: Selection) -> Slow:
    return lambda: engine.relations_between(head, tail, selection)


def _in_order(
    questions: Sequence[Question],
    ids: Sequence[tuple[int, int, int]],
    found: Sequence[Any],
    has_entities: bool,
) -> Iterable[dict[str, Any]]:
    """Each question beside its answers: those for entities came together, those for relations one by one."""
    of_entities = iter(found[0] if has_entities else ())
    of_relations = iter(found[1:] if has_entities else found)
    for question, (_, relation, _) in zip(questions, ids, strict=True):
        answers: list[AnyAnswer] = next(of_entities if relation >= 0 else of_relations)
        yield {"question": question.to_dict(), "answers": [one.to_dict() for one in answers]}


def model_ref(model: LoadedModel) -> dict[str, str]:
    return {"name": model.name, "fingerprint": model.fingerprint}
