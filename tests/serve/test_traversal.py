"""S5: strings that climb out of a folder, in every field: no file is opened, whatever they say."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import random
import signal
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import contextpool
from serve.served import TOKEN, Running, running
from support import amount

SECRET = "nobody-may-read-this"
FIELDS = ("head", "relation", "tail", "model", "graph")
CODE = tuple(
    {sys.prefix, sys.base_prefix, sysconfig.get_path("stdlib"), str(Path(contextpool.__file__).parent)}
)


def climbing(target: Path, count: int) -> list[str]:
    """Ways to write another folder, to a secret file and to well-known ones."""
    steps = ["../", "..\\", "..%2f", "..%5c", "%2e%2e/", "%2e%2e%2f", "..%252f", "....//", "..;/", "%c0%ae%c0%ae/",
             "\u2025/", "..\u2215", "./../", "//../", "..%00/"]  # fmt: skip
    goals = [str(target), str(target)[1:], "etc/passwd", "proc/self/environ", "config.json", "model.safetensors",
             "contextpool/errors.py", "windows/win.ini", "con", "~/.ssh/id_rsa"]  # fmt: skip
    prefixes = ["", "/", "file://", "world/", "demo/", "runs/demo/", "\\\\host\\share\\"]
    suffixes = ["", "\0", "%00", ".tsv", "\0.tsv", "/.", "?", "#", "::$DATA"]
    depths = [1, 2, 5, 12]
    every = [
        prefix + step * depth + goal + suffix
        for prefix, step, depth, goal, suffix in itertools.product(prefixes, steps, depths, goals, suffixes)
    ]
    return [*random.Random(0).sample(every, count - 2), str(target), f"file://{target}"]


def requests(text: str) -> Iterator[tuple[str, str, str | None]]:
    """(method, address, body) with the string in every place that takes one."""
    plain = {"head": "Belarus", "relation": "currency", "tail": "Euro"}
    for field in FIELDS:
        asked = {**plain, field: text}
        query = "&".join(f"{key}={quote(value, safe='')}" for key, value in asked.items())
        yield "GET", f"/explain?{query}", None
        yield "POST", "/check", json.dumps({"claims": [asked]})
    yield "POST", "/predict", json.dumps({"head": "Belarus", "relation": "currency", "candidates": [text]})
    yield "POST", "/predict", json.dumps({"head": "Belarus", "relation": "currency", "having": [text]})
    yield "POST", "/predict/batch", json.dumps({"questions": [{"head": text, "relation": text}]})
    yield "POST", f"/graphs?name={quote(text, safe='')}&options={quote(text, safe='')}", "a\tb\tc\n"
    yield "POST", "/admin/reload", json.dumps({"model": text})
    yield "POST", "/admin/reload", json.dumps({"graph": text})
    yield "GET", f"/pool?head=Belarus&relation=currency&focus={quote(text, safe='')}", None
    yield "GET", f"/entities?prefix={quote(text, safe='')}", None
    yield "GET", f"/relations?graph={quote(text, safe='')}&model={quote(text, safe='')}", None
    for start in ("/", "/static/", "/static/../", "/explain/"):
        yield "GET", start + quote(text, safe="/%.\\;:~"), None


def send(
    connection: http.client.HTTPConnection, method: str, address: str, body: str | None
) -> tuple[int, str]:
    headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
    connection.request(method, address, body, headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def warm_up(connection: http.client.HTTPConnection) -> None:
    """Whatever is loaded with the first request of a kind is loaded now."""
    for text in ("Belarus", "Nowhere", "x" * 20_000):
        for method, address, body in requests(text):
            send(connection, method, address, body)
    send(connection, "GET", "/metrics", None)
    send(connection, "GET", "/", None)


def arm(server: Running, log: Path) -> None:
    server.process.send_signal(signal.SIGUSR1)
    until = time.monotonic() + 30
    while "armed" not in log.read_text() and time.monotonic() < until:
        server.get("/health")


def test_no_file_is_opened_whatever_a_request_says(world_run: Path, tmp_path: Path) -> None:
    secret, log = tmp_path / "secret.txt", tmp_path / "log"
    secret.write_text(SECRET)
    with running([str(log), str(world_run)], command=[str(Path(__file__).with_name("audited.py"))]) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        warm_up(connection)
        arm(server, log)
        count = 0
        for text in climbing(secret, amount(150, 5000)):
            places = list(requests(text))
            for method, address, body in places if count < 500 else random.Random(count).sample(places, 4):
                status, answer = send(connection, method, address, body)
                assert 200 <= status < 500, (text, answer)
                assert status != 200 or address.startswith(("/entities", "/static", "/?", "/#", "/ "))
                assert SECRET not in answer
                assert "root:" not in answer
                count += 1
        assert count >= 500
        assert opened(log) == []
        status, _ = send(connection, "POST", "/admin/reload", json.dumps({"model": "demo"}))
        assert status == 200
        # what a reload reads is written down, and lies in the model's folder; a process of its own has read it first
        read = [one for one in opened(log) if one != os.devnull]
        assert str(world_run / "model.safetensors") in read
        assert [one for one in read if not Path(one).is_relative_to(world_run)] == []
        connection.close()
        assert server.stop() == 0


def opened(log: Path) -> list[str]:
    """What was opened, listed or started since it was armed, the interpreter's own code aside."""
    armed, *touched = log.read_text().splitlines()
    assert armed == "armed"
    paths = [line.split("\t")[1] for line in touched]
    return [
        path for path in paths if not path.startswith(CODE) and not path.isdigit()
    ]  # a number is open already
