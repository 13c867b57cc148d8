"""Answers over HTTP: a JSON API with OpenAPI, metrics, and a page to look at; needs the extra `serve`."""

from contextpool.serve.settings import ServeSettings
from contextpool.serve.sources import GraphSource, ModelSource

__all__ = ["GraphSource", "ModelSource", "ServeSettings"]
