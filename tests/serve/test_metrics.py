"""/metrics in the text format of Prometheus."""

from __future__ import annotations

import re

from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from contextpool.serve.app import create_app
from contextpool.serve.registry import Registry
from serve.served import BASE, service_of

LINE = re.compile(r'^[a-z_]+(\{[a-z_]+="(\\.|[^"\\])*"(,[a-z_]+="(\\.|[^"\\])*")*\})? -?[0-9.e+-]+$')
NAMES = {
    "contextpool_requests",
    "contextpool_request_seconds",
    "contextpool_batch_questions",
    "contextpool_reloads",
    "contextpool_connections_dropped",
    "contextpool_connections",
    "contextpool_queue_questions",
    "contextpool_model_info",
    "contextpool_model_loaded_seconds",
    "contextpool_ready",
    "process_start_time_seconds",
    "process_max_resident_memory_bytes",
}


def test_every_line_is_a_comment_or_a_sample(registry: Registry) -> None:
    with service_of(registry) as service:
        asked = TestClient(create_app(service), base_url=BASE)
        asked.get("/predict", params={"head": "Belarus", "relation": "currency"})
        service.metrics.reloads.labels('b"\\\n').inc(2.5)
        text = asked.get("/metrics").text
    assert text.endswith("\n")
    for line in text.splitlines():
        assert line.startswith(("# HELP ", "# TYPE ")) or LINE.match(line), line
    assert 'contextpool_reloads_total{outcome="b\\"\\\\\\n"} 2.5' in text
    assert {family.name for family in text_string_to_metric_families(text)} == NAMES


def test_services_count_for_themselves(registry: Registry) -> None:
    with service_of(registry) as one, service_of(registry) as other:
        one.metrics.reloads.labels("done").inc()
        assert b'contextpool_reloads_total{outcome="done"} 1.0' in one.metrics.text()
        assert b"outcome=" not in other.metrics.text()
