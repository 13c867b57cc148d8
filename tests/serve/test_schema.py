"""S1: requests made from the OpenAPI description, valid and invalid ones, with every check of schemathesis."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from contextpool.serve.registry import Registry
from serve.served import TOKEN, Running, client_of
from support import amount

REJECTED = [400, 401, 403, 404, 405, 406, 409, 413, 415, 422, 428, 429, 431]
"""How a bad request may be refused; schemathesis itself does not count 413."""
PUBLIC = {"/health", "/ready"}


def test_nothing_breaks_and_everything_is_as_described(server: Running, tmp_path: Path) -> None:
    pytest.importorskip("schemathesis", reason="schemathesis is not installed")
    config = tmp_path / "schemathesis.toml"
    config.write_text(f"[checks.negative_data_rejection]\nexpected-statuses = {json.dumps(REJECTED)}\n")
    call = [
        str(Path(sys.executable).with_name("schemathesis")),
        *(
            "--config-file",
            str(config),
            "run",
            f"{server.url}/openapi.json",
            "--checks",
            "all",
            "--seed",
            "1",
        ),
        *("--exclude-path", "/graphs"),  # whose body is a file that no schema describes: test_files.py
        *("--phases", "examples,coverage,fuzzing", "--max-examples", str(amount(25, 1000)), "--no-color"),
    ]
    ran = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=7200)
    assert ran.returncode == 0, ran.stdout[-8000:] + ran.stderr[-2000:]
    assert "14 selected / 15 total" in ran.stdout
    assert "failed" not in ran.stdout
    status, metrics = server.get("/metrics")
    assert status == 200
    assert 'status="5' not in metrics


@pytest.fixture
def client(registry: Registry) -> TestClient:
    with client_of(registry, token=TOKEN) as one:
        yield one


def test_the_description_says_who_needs_a_token_and_what_errors_look_like(client: TestClient) -> None:
    described = client.get("/openapi.json", headers={"authorization": f"Bearer {TOKEN}"}).json()
    for path, operations in described["paths"].items():
        for operation in operations.values():
            assert bool(operation.get("security")) == (path not in PUBLIC), path
            for status, response in operation["responses"].items():
                if status.startswith("4"):
                    reference = response["content"]["application/json"]["schema"]["$ref"]
                    assert reference.endswith("/ProblemAnswer")
    assert described["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"
