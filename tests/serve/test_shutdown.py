"""S9: SIGTERM with 200 questions in flight: all are answered, and the exit code is 0."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from pathlib import Path

import pytest

from serve.served import Running, running
from support import amount

IN_FLIGHT = 200
ASK = b"GET /predict?head=Belarus&relation=currency&k=3 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
EXPLAIN = b"GET /explain?head=Belarus&relation=currency&tail=Euro HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


async def answer_of(reader: asyncio.StreamReader) -> tuple[int, bool, dict[str, object]]:
    """(status, whether the server says that it closes, body) of one response."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split()[0])
    body = json.loads(await reader.readexactly(length))
    return int(head.split()[1]), b"connection: close" in head.lower(), body


async def stop_under_load(server: Running) -> list[tuple[int, bool, dict[str, object]]]:
    """Open 200 connections, send a question on each, and stop the server in the same moment."""
    streams = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(IN_FLIGHT)]
    for number, (_, writer) in enumerate(streams):
        writer.write(EXPLAIN if number % 20 == 0 else ASK)
    server.process.send_signal(signal.SIGTERM)
    found = await asyncio.gather(*(answer_of(reader) for reader, _ in streams))
    for reader, writer in streams:
        assert await reader.read() == b""  # then it hangs up
        writer.close()
    return list(found)


def check_all_answered(found: list[tuple[int, bool, dict[str, object]]]) -> None:
    assert [status for status, _, _ in found] == [200] * IN_FLIGHT
    assert all("answers" in body or "paths" in body for _, _, body in found)


def test_everything_in_flight_is_answered_and_the_exit_code_is_0(world_run: Path) -> None:
    with running(["world", "--run", str(world_run)]) as server:
        check_all_answered(asyncio.run(stop_under_load(server)))
        assert server.process.wait(60) == 0
    assert "Traceback" not in "".join(server.said)


@pytest.mark.soak
def test_and_so_it_is_every_time(world_run: Path) -> None:
    rounds = amount(4, 50)
    again = str(Path(__file__).with_name("serve_again.py"))
    with running([str(world_run), str(rounds)], command=[again]) as server:
        for number in range(1, rounds + 1):
            server.wait_for_address(number)
            check_all_answered(asyncio.run(stop_under_load(server)))
        assert server.process.wait(60) == 0
    assert "Traceback" not in "".join(server.said)


def test_what_comes_while_the_door_closes_is_answered_too(world_run: Path) -> None:
    with running(["world", "--run", str(world_run), "--drain-seconds", "2"]) as server:
        assert server.get("/ready") == (200, {"status": "ready"})
        server.process.send_signal(signal.SIGINT)  # Ctrl-C is an orderly end, too
        until = time.monotonic() + 1.5
        while (found := server.get("/ready"))[0] == 200 and time.monotonic() < until:
            time.sleep(0.02)
        assert found == (503, {"status": "closing"})
        assert server.get("/predict?head=Belarus&relation=currency")[0] == 200
        assert server.get("/health")[0] == 200
        assert server.process.wait(60) == 0
        with pytest.raises(OSError, match="refused"):
            server.connect()
    assert "Traceback" not in "".join(server.said)
