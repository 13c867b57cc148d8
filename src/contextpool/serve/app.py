"""The application: its addresses, what they take and give. OpenAPI at /openapi.json, the page at /."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from dataclasses import dataclass
from importlib.resources import files
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp

from contextpool import __version__
from contextpool.errors import ContextPoolError
from contextpool.predict.answers import Selection
from contextpool.serve import schemas
from contextpool.serve.guard import Guard
from contextpool.serve.metrics import CONTENT_TYPE
from contextpool.serve.problems import (
    Item,
    UnknownNamesError,
    logger,
    of_error,
    of_http,
    of_validation,
    problem,
)
from contextpool.serve.registry import Engine, SwapUnderWayError
from contextpool.serve.service import Service
from contextpool.serve.uploads import UnreadableError
from contextpool.serve.views import entity_rows, graph_row, model_row, names_in, relation_rows

ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.ProblemAnswer, "description": told}
    for status, told in {
        400: "The request cannot be read.",
        401: "The token is missing or wrong.",
        404: "A name is unknown; the message says which, and what is closest.",
        413: "The body is too large.",
        422: "A value is not as described.",
        431: "Address and headers are too long.",
        503: "Too many questions wait; see Retry-After.",
        504: "The deadline has passed; see Retry-After.",
    }.items()
}
PROBLEM = {"schema": {"$ref": "#/components/schemas/ProblemAnswer"}}
DESCRIPTION = "Answers about a knowledge graph, ranked, with probabilities and the evidence for each."
PAGES = {"index.html": "/", "docs.html": "/docs"}
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
router = APIRouter(responses=ERRORS)
metered = APIRouter()
open_to_all = APIRouter()
bearer = HTTPBearer(auto_error=False, description="Checked before anything else; see Guard.")


class Json(JSONResponse):
    """JSON without validation by a response model: all values were made here."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8")


def _service(request: Request) -> Service:
    return request.app.state.service  # type: ignore[no-any-return]


def _chosen(request: Request, asked: Any) -> tuple[Service, Engine]:
    """The service, and the model and the graph that a request names."""
    service = _service(request)
    return service, service.snapshot.engine(asked.model, asked.graph)


def _about(engine: Engine) -> dict[str, Any]:
    return {"model": engine.model.reference, "graph": engine.graph.name}


@router.get(
    "/predict", response_model=schemas.PredictAnswer, summary="The best answers to (head, relation, ?)"
)
async def predict_one(request: Request, asked: Annotated[schemas.PredictQuery, Query()]) -> Response:
    """`r^-1` as relation asks for heads. For candidates and relation questions use POST."""
    service, engine = _chosen(request, asked)
    selection = Selection(asked.k, asked.known)
    (found,) = await service.predict(engine, [asked.question()], selection, request.state.deadline)
    return Json({**_about(engine), **found})


@router.post("/predict", response_model=schemas.PredictAnswer, summary="The best answers to one question")
async def predict(request: Request, asked: Annotated[schemas.PredictBody, Body()]) -> Response:
    """Give two of head, relation and tail; the third is asked for."""
    service, engine = _chosen(request, asked)
    (found,) = await service.predict(engine, [asked.question()], _selection(asked), request.state.deadline)
    return Json({**_about(engine), **found})


@router.post(
    "/predict/batch", response_model=schemas.BatchAnswer, summary="The best answers to several questions"
)
async def predict_batch(request: Request, asked: Annotated[schemas.BatchBody, Body()]) -> Response:
    """All with the same options. Nothing is answered unless every name is known."""
    service, engine = _chosen(request, asked)
    questions = [one.question() for one in asked.questions]
    found = await service.predict(engine, questions, _selection(asked), request.state.deadline)
    return Json({**_about(engine), "results": found})


def _selection(asked: schemas.OptionsBody) -> Selection:
    return Selection.of(asked.k, asked.known, asked.candidates, asked.having)


@router.get("/explain", response_model=schemas.ExplainAnswer, summary="Why an answer is one")
async def explain(request: Request, asked: Annotated[schemas.ExplainQuery, Query()]) -> Response:
    """The paths that carried it, the context, what pooling drops, the closest rival."""
    service, engine = _chosen(request, asked)
    found = await service.explain(engine, asked, request.state.deadline)
    return Json({**_about(engine), **found})


@router.post("/check", response_model=schemas.CheckAnswer, summary="How plausible facts are")
async def check(request: Request, asked: Annotated[schemas.CheckBody, Body()]) -> Response:
    """A claim that the graph holds is hidden from itself first. Nothing is checked unless every name is known."""
    service, engine = _chosen(request, asked)
    found = await service.check(engine, asked, request.state.deadline)
    return Json({**_about(engine), **found})


@router.get(
    "/pool", response_model=schemas.PoolAnswer, summary="The query-specific graph under other thresholds"
)
async def pool(request: Request, asked: Annotated[schemas.PoolQuery, Query()]) -> Response:
    """Facts around the head with the hop at which pooling first walks them, and the context of the relation."""
    service, engine = _chosen(request, asked)
    found = await service.pool(engine, asked, request.state.deadline)
    asked_for = {"head": asked.head, "relation": asked.relation, "tail": asked.tail}
    thresholds = {"min_precision": asked.min_precision, "min_recall": asked.min_recall}
    return Json(
        {**_about(engine), "question": asked_for, **thresholds, **found, "names": names_in(engine, found)}
    )


@router.get("/relations", response_model=schemas.RelationsAnswer, summary="The relations of a model")
async def relations(request: Request, asked: Annotated[schemas.RelationsQuery, Query()]) -> Response:
    """With how many facts of each the graph holds."""
    _, engine = _chosen(request, asked)
    return Json({**_about(engine), "relations": relation_rows(engine)})


@router.get("/entities", response_model=schemas.EntitiesAnswer, summary="Entities whose name starts so")
async def entities(request: Request, asked: Annotated[schemas.EntitiesQuery, Query()]) -> Response:
    """Those that start with the prefix first, then those with such a word; case and accents do not matter."""
    graph = _service(request).snapshot.graph(asked.graph)
    rows, more = entity_rows(graph, asked.prefix, asked.limit)
    return Json({"graph": graph.name, "entities": rows, "more": more})


@router.get("/examples", response_model=schemas.ExamplesAnswer, summary="Questions to begin with")
async def examples(request: Request, asked: Annotated[schemas.RelationsQuery, Query()]) -> Response:
    """Three that the graph has no answer to and the model probably has, or fewer."""
    service, engine = _chosen(request, asked)
    return Json({**_about(engine), "examples": await service.examples(engine, request.state.deadline)})


@router.post(
    "/graphs",
    response_model=schemas.FileAnswer,
    summary="Ask a file of your own",
    responses={
        403: ERRORS[401],
        409: {"model": schemas.ProblemAnswer, "description": "Another graph is being read."},
        415: {"model": schemas.ProblemAnswer, "description": "It has to be application/octet-stream."},
    },
)
async def add_graph(
    request: Request,
    asked: Annotated[schemas.FileQuery, Query()],
    file: Annotated[bytes, Body(media_type="application/octet-stream")],
) -> Response:
    """The body is the file. It is served until the server ends, or until further ones take its place."""
    service = _service(request)
    if not service.settings.takes_files:
        return problem(403, "files are taken on loopback or with a token only, and not with --max-upload 0.")
    if request.headers.get("content-type") != "application/octet-stream":  # no other site's form can send it
        return problem(415, "Content-Type has to be application/octet-stream.")
    pairs = (pair.partition("=") for pair in filter(None, asked.options.split("&")))
    options = {key: value for key, _, value in pairs}
    try:
        return Json(await service.add_graph(asked.name, file, options))
    except UnreadableError as error:
        instead = () if error.remark.options is None else (error.remark.options,)
        return problem(422, str(error), [Item("file", "file", asked.name, str(error), instead)])


@router.get("/models", response_model=schemas.ModelsAnswer, summary="What is served")
async def models(request: Request) -> Response:
    """Models and graphs by name; the first of each is meant where a request names none."""
    service = _service(request)
    snapshot, settings = service.snapshot, service.settings
    listed = [model_row(one) for one in snapshot.models.values()]
    graphs = [graph_row(one, snapshot) for one in snapshot.graphs.values()]
    most = settings.max_upload if settings.takes_files else 0
    return Json({"models": listed, "graphs": graphs, "max_upload": most})


@router.post(
    "/admin/reload",
    response_model=schemas.ReloadAnswer,
    summary="Load a model or a graph again",
    responses={
        403: ERRORS[401],
        409: {"model": schemas.ProblemAnswer, "description": "Nothing was replaced."},
    },
)
async def reload(request: Request, asked: Annotated[schemas.ReloadBody, Body()]) -> Response:
    """From where it was loaded first. Requests under way finish on the old one; a failure leaves it in place."""
    service = _service(request)
    if service.settings.token is None:
        return problem(403, "reloading needs a token: start the server with --token-file.")
    snapshot = service.snapshot
    for name, choose in ((asked.model, snapshot.model), (asked.graph, snapshot.graph)):
        if name is not None:
            choose(name)  # an unknown name is told before anything is loaded
    try:
        loaded = await service.reload(asked.model, asked.graph)
    except SwapUnderWayError:
        raise
    except Exception as error:
        service.metrics.reloads.labels("failed").inc()
        is_told = isinstance(error, ContextPoolError | OSError)
        if not is_told:
            logger.error("a reload failed", exc_info=error)
        return problem(
            409, f"nothing was replaced: {error if is_told else 'the log of the server says why.'}"
        )
    service.metrics.reloads.labels("done").inc()
    return Json({"models": [one.reference for one in loaded.models.values()], "graphs": list(loaded.graphs)})


@open_to_all.get("/health", response_model=schemas.Status, summary="Whether the server lives")
async def health() -> Response:
    return Json({"status": "ok"})


@open_to_all.get(
    "/ready",
    response_model=schemas.Status,
    summary="Whether questions are taken",
    responses={503: {"model": schemas.Status, "description": "It is shutting down."}},
)
async def ready(request: Request) -> Response:
    """503 while it is shutting down, so that others are asked instead."""
    is_ready = _service(request).is_ready
    return Json({"status": "ready" if is_ready else "closing"}, 200 if is_ready else 503)


@metered.get(
    "/metrics",
    response_class=PlainTextResponse,
    summary="Counts and times, for Prometheus",
    responses={401: {"description": ERRORS[401]["description"], "content": {"application/json": PROBLEM}}},
)
async def metrics(request: Request) -> Response:
    return Response(_service(request).metrics.text(), media_type=CONTENT_TYPE)


def create_app(service: Service) -> ASGIApp:
    """The whole application around a service, guarded."""
    app = FastAPI(
        title="contextpool",
        version=__version__,
        description=DESCRIPTION,
        docs_url=None,  # they would load scripts from elsewhere
        redoc_url=None,
    )
    app.state.service = service
    needed = [] if service.settings.token is None else [Depends(bearer)]
    app.include_router(router, dependencies=needed)
    app.include_router(metered, dependencies=needed)
    app.include_router(open_to_all)
    for path, file in static_files().items():
        app.add_route(path, _serving(file), methods=["GET"], include_in_schema=False)
    _handle_errors(app, service)
    return Guard(app, service, [*_methods(), *static_files(), "/openapi.json"])


@dataclass(frozen=True)
class StaticFile:
    """A file of the page."""

    content: bytes
    media_type: str

    @property
    def etag(self) -> str:
        return f'"{hashlib.sha256(self.content).hexdigest()[:16]}"'


def static_files() -> dict[str, StaticFile]:
    """Files by address: the page at /, everything else below /static/."""
    found: dict[str, StaticFile] = {}
    for file in sorted(files("contextpool.serve").joinpath("static").iterdir(), key=lambda one: one.name):
        suffix = file.name[file.name.rfind(".") :]
        if suffix in MEDIA_TYPES:
            path = PAGES.get(file.name, f"/static/{file.name}")
            found[path] = StaticFile(file.read_bytes(), MEDIA_TYPES[suffix])
    return found


def _methods() -> dict[str, set[str]]:
    """The methods of each address."""
    methods: dict[str, set[str]] = defaultdict(set)
    for route in (*router.routes, *metered.routes, *open_to_all.routes):
        if isinstance(route, APIRoute):
            methods[route.path] |= route.methods or set()
    return methods


def _serving(file: StaticFile) -> Any:
    async def serve(request: Request) -> Response:
        headers = {"ETag": file.etag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == file.etag:
            return Response(status_code=304, headers=headers)
        return Response(file.content, media_type=file.media_type, headers=headers)

    return serve


def _handle_errors(app: FastAPI, service: Service) -> None:
    methods = _methods()

    async def unknown_names(request: Request, error: UnknownNamesError) -> Response:
        return error.response(await service.suggestions(error))

    async def anything_else(request: Request, error: Exception) -> Response:
        return of_error(error)

    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return of_validation(error)

    async def http(request: Request, error: HTTPException) -> Response:
        answer = of_http(error)
        allowed = methods.get(request.url.path)
        if error.status_code == 405 and allowed:
            answer.headers["Allow"] = ", ".join(sorted(allowed))
        return answer

    app.add_exception_handler(UnknownNamesError, unknown_names)  # type: ignore[arg-type]
    for kind in (ContextPoolError, Exception):
        app.add_exception_handler(kind, anything_else)
    app.add_exception_handler(RequestValidationError, invalid)  # type: ignore[arg-type]
    app.add_exception_handler(HTTPException, http)  # type: ignore[arg-type]
