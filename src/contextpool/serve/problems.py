"""Errors as JSON: a status, a code, a message that names the item, and what was probably meant. Never a traceback."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from contextpool.errors import ContextPoolError, InputError, UnknownNameError, closest, shortened
from contextpool.predict.names import Problem as NameProblem
from contextpool.predict.names import Resolver
from contextpool.serve.batching import BusyError, RetryError
from contextpool.serve.registry import SwapUnderWayError

logger = logging.getLogger("contextpool.serve")
MOST_TOLD = 10
"""Items of one error; the rest is counted."""
LONGEST_TO_SUGGEST = 60
"""Characters of a name that somebody may have mistyped; comparing takes their square."""
CODES = {
    400: "bad_request",
    401: "token_needed",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    409: "conflict",
    413: "too_large",
    422: "bad_value",
    431: "too_large",
    500: "internal",
    503: "busy",
    504: "too_late",
}


@dataclass(frozen=True)
class Item:
    """One thing that is wrong."""

    kind: str
    where: str
    name: str
    message: str
    closest: tuple[str, ...] = ()


class UnknownNamesError(ContextPoolError):
    """Names that could not be resolved; what they may have meant is looked for by whoever answers."""

    def __init__(self, resolver: Resolver) -> None:
        super().__init__("unknown names")
        self.resolver, self.problems = resolver, list(dict.fromkeys(resolver.problems))

    @classmethod
    def check(cls, resolver: Resolver) -> None:
        """Raise where something could not be resolved."""
        if resolver.problems:
            raise cls(resolver)

    def items(self, until: float = 0.0) -> list[Item]:
        """Each with the nearest known names, which takes a while on a large graph, as long as there is time left."""
        return [self._item(one, time.monotonic() < until) for one in self.problems[:MOST_TOLD]]

    def _item(self, problem: NameProblem, suggest: bool) -> Item:
        name, plain = shortened(problem.text), _cut(problem.text)
        if problem.ids:
            ids = ", ".join(shortened(label) for label in problem.ids[:MOST_TOLD])
            message = f"{problem.kind} {name} may mean {ids}. Use the id."
            return Item(problem.kind, problem.where, plain, message, problem.ids[:MOST_TOLD])
        known = self.resolver.known(problem.kind)
        near = (
            tuple(closest(problem.text, known)) if suggest and len(problem.text) <= LONGEST_TO_SUGGEST else ()
        )
        hint = f", closest {', '.join(repr(one) for one in near)}" if near else ""
        message = f"{problem.kind} {name} is unknown ({len(known):,} known{hint}). {self.resolver.other_kind(problem)}"
        message = message.rstrip()
        return Item(problem.kind, problem.where, plain, message, near)

    def response(self, items: Sequence[Item]) -> JSONResponse:
        count = len(self.problems)
        start = "" if count == 1 else f"{count:,} names cannot be used: "
        more = f" And {count - len(items):,} more." if count > len(items) else ""
        placed = " ".join(f"{one.where}: {one.message}" if one.where else one.message for one in items)
        return problem(404, start + placed + more, items, code="unknown_name")


def problem(
    status: int,
    message: str,
    items: Sequence[Item] = (),
    *,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """The body of every error."""
    told = {"code": code or CODES.get(status, "error"), "message": message}
    content = {"error": {**told, "items": [asdict(one) for one in items]}}
    return JSONResponse(content, status, headers=dict(headers or {}))


def of_error(error: Exception) -> JSONResponse:
    """Everything that we raise on purpose, and whatever else there is as a plain 500."""
    if isinstance(error, RetryError):
        status = 503 if isinstance(error, BusyError) else 504
        return problem(status, str(error), headers={"Retry-After": str(error.retry_after)})
    if isinstance(error, SwapUnderWayError):
        return problem(409, str(error), headers={"Retry-After": "1"})
    if isinstance(error, UnknownNameError):
        named = Item(error.kind, error.kind, _cut(error.name), str(error))
        return problem(404, str(error), [named], code="unknown_name")
    if isinstance(error, InputError):
        return problem(422, str(error))
    if isinstance(error, ContextPoolError):
        logger.error("answered 500: %s", error)
        return problem(500, str(error))
    logger.error("answered 500", exc_info=error)
    return problem(500, "something went wrong here, not in your request; the server's log says what.")


def of_validation(error: RequestValidationError) -> JSONResponse:
    """Fields that are not as the schema says, each with where it stands and what it holds."""
    found = list(error.errors())
    items = [_field(one) for one in found[:MOST_TOLD]]
    more = f" And {len(found) - MOST_TOLD:,} more." if len(found) > MOST_TOLD else ""
    is_no_json = any(one["type"] == "json_invalid" for one in found)
    return problem(400 if is_no_json else 422, " ".join(one.message for one in items) + more, items)


def _field(found: Mapping[str, Any]) -> Item:
    source, *places = (str(place) for place in found["loc"])
    where = shortened(".".join(places), 200)[1:-1] if places else source
    reason = str(found["msg"]).removeprefix("Value error, ").rstrip(".")
    if found["type"] in ("missing", "json_invalid", "value_error"):
        return Item("field", where, where, f"{where}: {reason}.")
    value = _told(found.get("input"))
    return Item("field", where, value, f"{where} is {value}: {reason}.")


def _cut(text: str, most: int = 80) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _told(value: Any) -> str:
    """A value as a message can hold it: never long, never a whole list."""
    if isinstance(value, str):
        return shortened(value)
    if isinstance(value, list | dict):
        return f"a {type(value).__name__} of {len(value):,}"
    return _cut(str(value))


def of_http(error: HTTPException) -> JSONResponse:
    """What the framework raises: no such address, no such method, a body that cannot be read."""
    told = {
        404: "there is no such address; /openapi.json lists those there are.",
        405: "this address does not take that method.",
    }
    message = told.get(error.status_code, str(error.detail))
    return problem(error.status_code, message, headers=error.headers)
