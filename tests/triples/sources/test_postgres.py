"""PostgreSQL itself, started by the test and asked through its ADBC driver: right, read only, or a named error."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import contextpool as cp
from command_line import run
from contextpool.errors import ConfigError, DataError
from contextpool.triples.reader import batches, read_triples

driver = pytest.importorskip("adbc_driver_postgresql.dbapi", reason="the postgres extra is not installed")
PROGRAMS = [*sorted(Path("/usr/lib/postgresql").glob("*/bin")), *map(Path, os.environ["PATH"].split(":"))]
"""Debian's place first: there the programs are not on the path."""
FACTS = [(f"e{n}", ("likes", "knows")[n % 2], str(n * 7 % 50)) for n in range(50)]
SELECT = "SELECT who, how, whom FROM facts -- all of them"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of a server with one table, a user `me` with a password, on a free port of loopback."""
    home = next((folder for folder in PROGRAMS if (folder / "initdb").is_file()), None)
    if home is None:
        pytest.skip("no PostgreSQL on this machine (Debian: apt-get install postgresql)")
    folder = Path(tempfile.mkdtemp(prefix="contextpool-postgres-"))
    (folder / "password").write_text("it's secret\n")
    (folder / "password").chmod(0o644)
    as_user = {"user": "postgres", "cwd": "/"} if os.getuid() == 0 else {"cwd": "/"}  # it refuses to be root
    if os.getuid() == 0:
        shutil.chown(folder, "postgres")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    control = [home / "pg_ctl", "-D", folder / "data", "-l", folder / "log"]
    settings = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c fsync=off"
    make = [home / "initdb", "-D", folder / "data", "-U", "me", f"--pwfile={folder}/password", "-E", "UTF8"]
    quiet = {"check": True, "stdout": subprocess.DEVNULL, **as_user}
    subprocess.run([*make, "--auth=scram-sha-256", "--locale=C", "--no-sync"], **quiet)  # type: ignore[call-overload]
    subprocess.run([*control, "-w", "-o", settings, "start"], **quiet)  # type: ignore[call-overload]
    patch = pytest.MonkeyPatch()
    patch.setenv("PGPASSWORD", "it's secret")
    try:
        address = f"postgresql://me@127.0.0.1:{port}/postgres"
        with driver.connect(address, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE TABLE facts (who text, how varchar(10), whom integer)")
            cursor.execute("CREATE SEQUENCE numbers")
            rows = ", ".join(f"('{head}', '{relation}', {tail})" for head, relation, tail in FACTS)
            cursor.execute(f"INSERT INTO facts VALUES {rows}")
        yield address
    finally:
        patch.undo()
        subprocess.run([*control, "-m", "immediate", "stop"], **quiet)  # type: ignore[call-overload]
        shutil.rmtree(folder)


def test_a_query_gives_its_facts(server: str):
    assert set(read_triples(f"{server}?query={SELECT}")) == set(FACTS)
    assert set(cp.read_graph(server, query=f"{SELECT}\n;").triples) == set(FACTS)
    host, port = server.split("@")[1].split("/")[0].split(":")
    by_keywords = f"postgres:host={host} port={port} user=me dbname=postgres?query={SELECT}"
    assert set(read_triples(by_keywords)) == set(FACTS)
    assert len(read_triples(f"{server}?query=WITH x AS ({SELECT}\n) SELECT * FROM x ORDER BY 1 LIMIT 7")) == 7
    many = "SELECT 'e' || n, 'r', n::bigint FROM generate_series(1, 100000) AS n"
    assert sum(batch.num_rows for batch in batches(f"{server}?query={many}")) == 100_000


def test_the_command_line_asks_it(
    server: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    source = f"{server}?query={SELECT}"
    ran = run(["mine", source, "--relation", "likes", "--json"], capsys, monkeypatch)
    assert json.loads(ran.out)["support"] == 25
    monkeypatch.setenv("PGPASSWORD", "another")
    ran = run(["mine", source, "--relation", "likes"], capsys, monkeypatch)
    assert ran.code == 2
    assert 'password authentication failed for user "me". The password is read from PGPASSWORD' in ran.err
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT who, whom FROM facts", r"2 columns \(who, whom\)"),
        ("SELECT who, how, whom FROM fact", r'PostgreSQL says: relation "fact" does not exist\. The query was: SELECT'),
        ("SELECT who, how, NULL FROM facts", r"row 0 \(from 0\): the tail is missing.*WHERE x IS NOT NULL"),
        ("SELECT who, how, 0.5::float FROM facts", "the tail column is double.*Cast it to text"),
        ("SELECT who, how, now() FROM facts", "the tail column is timestamp"),
        ("SELECT who, how || '^-1', whom FROM facts", "ends in"),
        ("SELECT who, how, whom FROM facts WHERE false", "gives no rows"),
        ("DELETE FROM facts", "PostgreSQL says: syntax error"),
        ("DELETE FROM facts RETURNING who, how, whom", "PostgreSQL says: syntax error"),
        ("WITH gone AS (DELETE FROM facts RETURNING *) SELECT * FROM gone", "PostgreSQL says: WITH clause"),
        ("COPY facts TO PROGRAM 'cat > {file}'", "PostgreSQL says: syntax error"),
        ("SELECT 1, 2, 3) AS x; COPY facts TO PROGRAM 'cat > {file}'; SELECT 1 FROM (SELECT 1", "multiple commands"),
        ("SELECT 'a', 'r', nextval('numbers')::text", "read-only transaction"),
    ],
)  # fmt: skip
def test_what_is_no_answer_or_writes_is_refused(server: str, query: str, said: str, tmp_path: Path):
    tmp_path.chmod(0o777)
    with pytest.raises(DataError, match=said):
        read_triples(f"{server}?query={query.format(file=tmp_path / 'x')}")
    assert not (tmp_path / "x").exists()
    assert len(read_triples(f"{server}?query={SELECT}")) == len(FACTS)


def test_servers_and_databases_that_are_not_there(server: str):
    with pytest.raises(DataError, match=r"Connection refused.*The query was"):
        read_triples(f"postgresql://me@127.0.0.1:1/postgres?query={SELECT}")
    with pytest.raises(DataError, match='database "nowhere" does not exist'):
        read_triples(f"{server.removesuffix('postgres')}nowhere?query={SELECT}")
    with pytest.raises(ConfigError, match="PGPASSWORD"):
        read_triples(f"postgresql://me:secret@127.0.0.1/x?query={SELECT}")
