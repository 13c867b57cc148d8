"""JSON lines as triples: a line is an object with three of its keys chosen, or an array with three of its places.

    {"head": "Minsk", "relation": "capital of", "tail": "Belarus"}
    ["Minsk", "capital of", "Belarus"]

Values are text or whole numbers; a key that a line has twice is refused, because readers differ on which counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from contextpool.errors import DataError, TripleFileError, shortened
from contextpool.triples.files import chunks_of_lines, not_utf8
from contextpool.triples.sources.address import Address, check_options, need_file
from contextpool.triples.sources.columns import asked_columns, chosen_columns, row_batch, row_problem
from contextpool.triples.sources.reading import Reading


def jsonl_batches(address: Address, reading: Reading) -> Iterator[pa.RecordBatch]:
    """A file of JSON lines, plain, .gz or .zst; the first line tells which keys or places are taken."""
    check_options(address, ("columns", "bad_rows"))
    need_file(address)
    reading.first_line = 1
    bad, chosen, width, line, good = reading.bad, None, 0, 0, 0
    for chunk in chunks_of_lines(address.path):
        rows = []
        for raw in chunk.split(b"\n")[:-1]:
            line += 1
            raw = raw.removesuffix(b"\r")
            try:
                value = _parsed(raw)
                if chosen is None:
                    chosen, width = _chosen(address, value, line), len(value)
                    reading.columns = chosen
                rows.append(_row(value, chosen, width))
            except _BadLineError as error:
                bad.add(line, str(error), raw)
        good += len(rows)
        if bad.enough:
            break
        if rows and (bad.skip or not bad):
            yield row_batch(rows)
    bad.finish(good)


class _BadLineError(Exception):
    """What is wrong with a line."""


def _parsed(raw: bytes) -> Any:
    if not raw.strip():
        raise _BadLineError("the line is blank.")
    try:
        return json.loads(raw.decode("utf-8"), object_pairs_hook=_once)
    except UnicodeDecodeError as error:
        raise _BadLineError(not_utf8(raw, error)) from None
    except (ValueError, RecursionError) as error:  # numbers of more than 4,300 digits are a ValueError, too
        raise _BadLineError(f"this is not JSON ({error}).") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _BadLineError("a key is there twice.")
    return found


def _chosen(address: Address, value: Any, line: int) -> tuple[str | int, ...]:
    """The keys, or the places, of head, relation and tail, by the first line that is JSON."""

    def refuse(what: str) -> DataError:
        return TripleFileError(address.place, line, what)

    if isinstance(value, dict):
        names = list(value)
        return tuple(names[position] for position in chosen_columns(address, names, refuse))
    if not isinstance(value, list):
        raise _BadLineError(f"{shortened(repr(value))}; a line is an object or an array.")
    if asked_columns(address) is None and len(value) == 3:
        return (0, 1, 2)
    return chosen_columns(address, [f"place {number}" for number in range(len(value))], refuse)


def _row(value: Any, chosen: Sequence[Any], width: int) -> list[Any]:
    wanted = dict if isinstance(chosen[0], str) else list
    if not isinstance(value, wanted):
        raise _BadLineError(
            f"the line is not an {'array' if wanted is list else 'object'}, as the first one is."
        )
    if wanted is list and len(value) != width:
        raise _BadLineError(f"{len(value)} values instead of {width}.")
    try:
        row = [value[which] for which in chosen]
    except (KeyError, IndexError) as error:
        raise _BadLineError(f"there is no {shortened(str(error.args[0]))}.") from None
    problem = row_problem(row)
    if problem:
        raise _BadLineError(problem)
    return row
