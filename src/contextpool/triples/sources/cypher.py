"""Neo4j, and whatever else speaks bolt: a Cypher query's three columns as triples.

    neo4j://USER@HOST:7687/DATABASE?query=MATCH (a)-[r]->(b) RETURN a.name, type(r), b.name

The password is read from NEO4J_PASSWORD. The query runs in a session for reading and is taken as it streams in.
"""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import unquote, urlsplit

from contextpool.errors import ConfigError, DataError, MissingExtraError
from contextpool.triples.sources.address import Address, check_options
from contextpool.triples.sources.collect import TripleCollector
from contextpool.triples.sources.sql import asked_query
from contextpool.triples.store import Triples

PASSWORD_VARIABLE = "NEO4J_PASSWORD"
EXAMPLE = "MATCH (a)-[r]->(b) RETURN a.name, type(r), b.name"
_ADVICE = (
    "Return properties and types rather than nodes, such as a.name, type(r), b.name; coalesce() fills gaps."
)


def read_neo4j(address: Address) -> Triples:
    """The rows of one Cypher query."""
    check_options(address, ("query",))
    query = asked_query(address, EXAMPLE)
    neo4j = _driver_package()
    server, user, database = _parts(address)
    password = os.environ.get(PASSWORD_VARIABLE, "")
    collector = TripleCollector(lambda row: f"{server}: row {row + 1:,} of the query", _ADVICE)
    try:
        with (
            neo4j.GraphDatabase.driver(server, auth=(user, password) if user else None) as driver,
            driver.session(database=database, default_access_mode=neo4j.READ_ACCESS) as session,
        ):
            result = session.run(query)
            _check_width(server, result.keys())
            collector.add_rows(record.values() for record in result)
    except (neo4j.exceptions.Neo4jError, neo4j.exceptions.DriverError) as error:
        raise DataError(f"{server}: {_problem(neo4j, error, user)} The query was: {query}") from None
    return collector.triples(f"{server}: the query gives no rows: {query}")


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


def _check_width(server: str, names: Any) -> None:
    if len(names) != 3:
        raise DataError(
            f"{server}: the query returns {len(names)} columns ({', '.join(names)}); it has to return three: head, "
            "relation and tail, in this order."
        )


def _problem(neo4j: Any, error: Exception, user: str | None) -> str:
    if isinstance(error, neo4j.exceptions.AuthError):
        who = f"the user {user!r}" if user else "a caller without a user (write neo4j://USER@HOST)"
        return f"the server refuses {who} ({error}). The password is read from {PASSWORD_VARIABLE}."
    if isinstance(error, neo4j.exceptions.ServiceUnavailable):
        return f"the server does not answer ({error}). Is it running, and is this its bolt port?"
    return f"the server says: {error}."
