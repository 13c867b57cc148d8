"""The metrics of a service, kept and written by prometheus_client."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from contextpool.serve.service import Service

Sample = tuple[tuple[str, ...], float]
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
prometheus_client.disable_created_metrics()


class Metrics:
    """Counters of one service; what can be looked up is looked up when it is asked for."""

    def __init__(self, service: Service) -> None:
        self._registry = here = CollectorRegistry()
        asked = ("route", "method", "status")
        self.requests = Counter(
            "contextpool_requests_total", "Requests by route, method and status.", asked, registry=here
        )
        self.seconds = Histogram(
            "contextpool_request_seconds", "From arrival to the last byte.", ("route",), registry=here, buckets=SECONDS
        )  # fmt: skip
        self.batches = Histogram(
            "contextpool_batch_questions", "Questions that were scored together.", registry=here, buckets=SIZES
        )  # fmt: skip
        self.reloads = Counter(
            "contextpool_reloads_total", "Reloads by outcome.", ("outcome",), registry=here
        )
        self.dropped = Counter(
            "contextpool_connections_dropped_total", "Connections that were cut, by reason.", ("reason",), registry=here
        )  # fmt: skip
        self.connections = Gauge("contextpool_connections", "Connections that are open.", registry=here)
        here.register(_State(service))

    def text(self) -> bytes:
        return prometheus_client.generate_latest(self._registry)


class _State(Collector):
    """Queues, models and the process as they are at the moment."""

    def __init__(self, service: Service) -> None:
        self._service, self._began = service, time.time()

    def describe(self) -> Iterator[Metric]:
        """Nothing before it is asked for: the service is still being made."""
        yield from ()

    def collect(self) -> Iterator[Metric]:
        """One family after the other."""
        service, models = self._service, self._service.snapshot.models.values()
        queues = [((queue.name,), len(queue)) for queue in (service.questions, service.slow)]
        yield _gauge("contextpool_queue_questions", "Questions that wait, by queue.", ("lane",), queues)
        known = [((one.name, one.fingerprint), 1) for one in models]
        yield _gauge("contextpool_model_info", "Models that are served.", ("model", "fingerprint"), known)
        loaded = [((one.name,), one.loaded_at) for one in models]
        told = "When a model was loaded, since 1970."
        yield _gauge("contextpool_model_loaded_seconds", told, ("model",), loaded)
        yield _gauge("contextpool_ready", "1 where questions are taken.", (), [((), service.is_ready)])
        yield _gauge("process_start_time_seconds", "Since 1970.", (), [((), self._began)])
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
            1 if sys.platform == "darwin" else 1024
        )
        yield _gauge("process_max_resident_memory_bytes", "The most held so far.", (), [((), memory)])


def _gauge(name: str, told: str, labels: Sequence[str], samples: Iterable[Sample]) -> Metric:
    family = GaugeMetricFamily(name, told, labels=labels)
    for values, number in samples:
        family.add_metric(values, float(number))
    return family
