"""What /metrics tells about a service."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from contextpool.serve.metrics import SIZES, Counter, Gauge, Histogram, Labels, as_text

if TYPE_CHECKING:
    from contextpool.serve.service import Service

Samples = Iterable[tuple[Labels, float]]


class Measures:
    """Counted while serving, or looked up when asked."""

    def __init__(self, service: Service) -> None:
        self._service, self._began = service, time.time()
        self.requests = Counter(
            "contextpool_requests_total",
            "Requests by route, method and status.",
            ("route", "method", "status"),
        )
        self.seconds = Histogram("contextpool_request_seconds", "From arrival to the last byte.", ("route",))
        self.batches = Histogram(
            "contextpool_batch_questions", "Questions that were scored together.", bounds=SIZES
        )
        self.reloads = Counter("contextpool_reloads_total", "Reloads by outcome.", ("outcome",))
        self.connections = 0
        self.dropped = Counter(
            "contextpool_connections_dropped_total", "Connections that were cut, by reason.", ("reason",)
        )

    def text(self) -> str:
        gauges = (
            Gauge("contextpool_queue_questions", "Questions that wait, by lane.", ("lane",), self._queues),
            Gauge(
                "contextpool_model_info", "Models that are served.", ("model", "fingerprint"), self._models
            ),
            Gauge(
                "contextpool_model_loaded_seconds",
                "When a model was loaded, since 1970.",
                ("model",),
                self._loaded,
            ),
            Gauge(
                "contextpool_connections", "Connections that are open.", (), lambda: [((), self.connections)]
            ),
            Gauge("contextpool_ready", "1 where questions are taken.", (), self._ready),
            Gauge("process_start_time_seconds", "Since 1970.", (), lambda: [((), self._began)]),
            Gauge("process_max_resident_memory_bytes", "The most held so far.", (), _memory),
        )
        counted = (self.requests, self.seconds, self.batches, self.reloads, self.dropped)
        return as_text([*counted, *gauges])

    def _queues(self) -> Samples:
        return [((lane.name,), len(lane)) for lane in (self._service.questions, self._service.slow)]

    def _models(self) -> Samples:
        return [((one.name, one.fingerprint), 1) for one in self._service.snapshot.models.values()]

    def _loaded(self) -> Samples:
        return [((one.name,), one.loaded_at) for one in self._service.snapshot.models.values()]

    def _ready(self) -> Samples:
        return [((), int(self._service.is_ready))]


def _memory() -> Samples:
    unit = 1 if sys.platform == "darwin" else 1024
    return [((), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)]
