"""The text format of Prometheus."""

from __future__ import annotations

import re

from contextpool.serve.metrics import Counter, Gauge, Histogram, as_text

LINE = re.compile(r'^[a-z_]+(\{[a-z_]+="(\\.|[^"\\])*"(,[a-z_]+="(\\.|[^"\\])*")*\})? -?[0-9.e+-]+$')


def test_every_line_is_a_comment_or_a_sample() -> None:
    counter = Counter("asked_total", "Questions.", ("who", "what"))
    counter.add("a", 'b"\\\n')
    counter.add("a", "c", amount=2.5)
    gauge = Gauge("waiting", "Now.", ("lane",), lambda: [(("x",), 3), (("y",), 0.5)])
    histogram = Histogram("seconds", "Time.", ("route",), bounds=(0.1, 1.0))
    for number in (0.05, 0.1, 0.5, 7):
        histogram.observe(number, "/")
    text = as_text([counter, gauge, histogram])
    assert text.endswith("\n")
    for line in text.splitlines():
        assert line.startswith(("# HELP ", "# TYPE ")) or LINE.match(line), line
    assert 'asked_total{who="a",what="b\\"\\\\\\n"} 1' in text
    assert 'asked_total{who="a",what="c"} 2.5' in text
    assert 'waiting{lane="x"} 3' in text
    assert "# TYPE seconds histogram" in text


def test_buckets_hold_what_is_at_most_their_bound() -> None:
    histogram = Histogram("seconds", "Time.", bounds=(0.1, 1.0))
    for number in (0.05, 0.1, 0.5, 7):
        histogram.observe(number)
    assert list(histogram.samples()) == [
        'seconds_bucket{le="0.1"} 2',
        'seconds_bucket{le="1"} 3',
        'seconds_bucket{le="+Inf"} 4',
        "seconds_sum 7.65",
        "seconds_count 4",
    ]
