"""Answers over HTTP: a JSON API with OpenAPI, metrics, and a page to look at; needs the extra `serve`."""

from contextpool.serve.registry import GraphSource, ModelSource
from contextpool.serve.settings import ServeSettings

__all__ = ["GraphSource", "ModelSource", "ServeSettings"]
