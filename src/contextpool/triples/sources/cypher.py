"""Neo4j, and whatever else speaks bolt: a Cypher query's three columns as triples.

    neo4j://USER@HOST:7687/DATABASE?query=MATCH (a)-[r]->(b) RETURN a.name, type(r), b.name

The password is read from NEO4J_PASSWORD. The query runs in a session for reading and is taken as it streams in.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from contextpool.errors import ConfigError, DataError, MissingExtraError
from contextpool.triples.sources.address import Address, check_options
from contextpool.triples.sources.sql import answer_batches, asked_query, check_width

PASSWORD_VARIABLE = "NEO4J_PASSWORD"
EXAMPLE = "MATCH (a)-[r]->(b) RETURN a.name, type(r), b.name"
_ADVICE = (
    "Return properties and types rather than nodes, such as a.name, type(r), b.name; coalesce() fills gaps."
)


def neo4j_batches(address: Address) -> Iterator[pa.RecordBatch]:
    """The rows of one Cypher query."""
    check_options(address, ("query",))
    query = asked_query(address, EXAMPLE)
    neo4j = _driver_package()
    server, user, database = _parts(address)
    password = os.environ.get(PASSWORD_VARIABLE, "")
    try:
        with (
            neo4j.GraphDatabase.driver(server, auth=(user, password) if user else None) as driver,
            driver.session(database=database, default_access_mode=neo4j.READ_ACCESS) as session,
        ):
            result = session.run(query)
            check_width(server, result.keys())
            yield from answer_batches(server, (record.values() for record in result), _ADVICE)
    except (neo4j.exceptions.Neo4jError, neo4j.exceptions.DriverError) as error:
        raise DataError(f"{server}: {_problem(neo4j, error, user)} The query was: {query}") from None


def _driver_package() -> Any:
    try:
        import neo4j
        import neo4j.exceptions
    except ImportError:
        raise MissingExtraError("neo4j", "neo4j", "asking Neo4j") from None
    return neo4j


def _parts(address: Address) -> tuple[str, str | None, str | None]:
    """(scheme://host:port, user, database) of an address."""
    parts = urlsplit(address.place)
    if not parts.hostname:
        raise ConfigError(
            f"{address.text}: which server? Write neo4j://USER@HOST:7687/DATABASE?query={EXAMPLE}"
        )
    user = unquote(parts.username) if parts.username else None
    server = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    return server, user, parts.path.strip("/") or None


def _problem(neo4j: Any, error: Exception, user: str | None) -> str:
    if isinstance(error, neo4j.exceptions.AuthError):
        who = f"the user {user!r}" if user else "a caller without a user (write neo4j://USER@HOST)"
        return f"the server refuses {who} ({error}). The password is read from {PASSWORD_VARIABLE}."
    if isinstance(error, neo4j.exceptions.ServiceUnavailable):
        return f"the server does not answer ({error}). Is it running, and is this its bolt port?"
    return f"the server says: {error}."
