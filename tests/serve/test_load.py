"""S7: 64 connections at once, no error. S8: a model swapped under load; every answer is one model's."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import contextpool as cp
from conftest import REPOSITORY
from contextpool.graph.graph import Graph
from serve.served import TOKEN, Running, running
from support import amount

CLIENTS = 16
BEARER = f"Authorization: Bearer {TOKEN}\r\n"
HEADS = ("Belarus", "Austria", "Armenia", "Albania", "Poland")


def test_64_connections_get_no_error(server: Running, capsys: pytest.CaptureFixture[str]) -> None:
    call = [sys.executable, str(REPOSITORY / "benchmarks" / "serve.py"), "--url", server.url, "--json"]
    call += ["--connections", "64", "--seconds", str(amount(4, 60))]
    ran = subprocess.run(call, capture_output=True, text=True, check=False, timeout=600)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (found,) = json.loads(ran.stdout)
    with capsys.disabled():
        print(f"\nS7: {found['client']}, 64 connections, {found['answers']} answers, {found['errors']} errors, "
              f"{found['per_second']:.0f} a second, p99 {found['p99_ms']:.0f} ms, "
              f"{found['mean_batch']:.1f} questions a batch")  # fmt: skip
    assert found["errors"] == 0
    assert found["answers"] > 100
    assert found["mean_batch"] > 2  # they were answered together


async def ask_on(port: int, done: asyncio.Event, found: list[dict[str, object]]) -> None:
    """One connection that asks and asks, and takes no error."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    number = 0
    while not done.is_set():
        head, number = HEADS[number % len(HEADS)], number + 1
        path = f"/predict?head={head}&relation=currency&k=4"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{BEARER}\r\n".encode())
        start = await reader.readuntil(b"\r\n\r\n")
        body = await reader.readexactly(int(start.lower().partition(b"content-length:")[2].split()[0]))
        assert start.startswith(b"HTTP/1.1 200"), body
        found.append(json.loads(body))
    writer.close()


async def swap(
    server: Running, link: Path, runs: list[Path], seconds: float
) -> tuple[list[dict[str, object]], int]:
    """Clients ask while the link points at one run after another and is loaded again each time."""
    done, found, swaps = asyncio.Event(), list[dict[str, object]](), 0
    clients = [asyncio.create_task(ask_on(server.port, done, found)) for _ in range(CLIENTS)]
    ends = time.monotonic() + seconds
    while time.monotonic() < ends or swaps < 4:
        swaps += 1
        point(link, runs[swaps % len(runs)])
        status, answer = await asyncio.to_thread(
            server.post, "/admin/reload", {"model": "current"}, Authorization=f"Bearer {TOKEN}"
        )
        assert status == 200, answer
        before = len(found)
        while len(found) <= before + CLIENTS:  # each has one in flight, the rest are the new model's
            assert not any(client.done() for client in clients)
            await asyncio.sleep(0.01)
    done.set()
    await asyncio.gather(*clients)
    return found, swaps


def point(link: Path, run: Path) -> None:
    """Replace a link in one step."""
    new = link.with_suffix(".new")
    new.symlink_to(run)
    new.replace(link)


@pytest.fixture
def linked(world_run: Path, tmp_path: Path) -> Iterator[tuple[Running, Path]]:
    """A server for other machines, whose model is a link."""
    link, token = tmp_path / "current", tmp_path / "token"
    point(link, world_run)
    token.write_text(TOKEN + "\n")
    arguments = [
        "world",
        "--run",
        f"current={link}",
        "--host",
        "0.0.0.0",
        "--token-file",
        str(token),
    ]
    with running(arguments) as server:
        yield server, link


def check_hangup_reloads(server: Running, link: Path, run: Path) -> None:
    """SIGHUP does what /admin/reload does."""
    before = served_fingerprint(server)
    point(link, run)
    server.process.send_signal(signal.SIGHUP)
    until = time.monotonic() + 60
    while served_fingerprint(server) == before:
        assert time.monotonic() < until
        time.sleep(0.05)
    assert served_fingerprint(server) == cp.load(run).fingerprint[:16]


def served_fingerprint(server: Running) -> str:
    status, body = server.get("/models", Authorization=f"Bearer {TOKEN}")
    assert status == 200
    return str(body["models"][0]["fingerprint"])


def test_a_model_is_swapped_under_load(
    linked: tuple[Running, Path],
    world_run: Path,
    walk_run: Path,
    new_world: Graph,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server, link = linked
    found, swaps = asyncio.run(swap(server, link, [world_run, walk_run], amount(1, 60)))
    predictors = {one.fingerprint[:16]: one for one in (cp.load(world_run), cp.load(walk_run))}
    expected = {
        (fingerprint, head): [answer.score for answer in one.predict(new_world, head, "currency", k=4)]
        for fingerprint, one in predictors.items()
        for head in HEADS
    }
    seen = set()
    for body in found:
        fingerprint, head = body["model"]["fingerprint"], body["question"]["head"]  # type: ignore[index]
        seen.add(fingerprint)
        scores = [one["score"] for one in body["answers"]]  # type: ignore[attr-defined]
        assert scores == pytest.approx(expected[fingerprint, head], abs=1e-3)
    assert seen == set(predictors)
    with capsys.disabled():
        print(f"\nS8: {len(found)} answers over {swaps} swaps, each one model's, no failure")
    check_hangup_reloads(server, link, walk_run if swaps % 2 == 0 else world_run)
    assert server.get("/models")[0] == 401  # this one listens everywhere, so it asks everybody for the token
    assert server.stop() == 0
    assert "Traceback" not in "".join(server.said)
