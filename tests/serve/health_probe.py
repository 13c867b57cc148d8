"""Asks /health on new connections until its standard input ends; prints how many seconds each answer took.

A process of its own, so that what it measures is the server and not the test beside it.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time

REQUEST = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"


def ask(port: int) -> float:
    began = time.perf_counter()
    with socket.create_connection(("127.0.0.1", port), timeout=30) as one:
        one.sendall(REQUEST)
        answer = b"".join(iter(lambda: one.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 200"), answer
    return time.perf_counter() - began


def main() -> None:
    taken = []
    while not select.select([sys.stdin], [], [], 0.02)[0]:
        taken.append(ask(int(sys.argv[1])))
    print(json.dumps(taken))


if __name__ == "__main__":
    main()
