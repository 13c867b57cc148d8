"""Three columns of labels as checked batches, and which columns of a table they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from contextpool.errors import ConfigError, DataError, shortened, unknown_name_message
from contextpool.triples.labels import ROLES, problem_in_role
from contextpool.triples.sources.address import Address

BATCH_ROWS = 1 << 16
CUSTOMARY = (
    ("head", "relation", "tail"),
    ("h", "r", "t"),
    ("subject", "predicate", "object"),
    ("s", "p", "o"),
    ("source", "relation", "target"),
)
"""Names that are recognised without being told, as whole sets."""
Refuse = Callable[[int, str], DataError]
"""From a row, counted from 0, and what is wrong with it, to the error that names its place."""
_SUSPECT = r"^$|[\t\n\r\x00]|^\x{FEFF}"
"""Labels that `label_problem` may refuse, for a vectorised look before the exact one."""


def row_batches(rows: Iterable[Sequence[Any]], refuse: Refuse) -> Iterator[pa.RecordBatch]:
    """Rows of three values, strings or integers, as batches of strings."""
    remaining, first = iter(rows), 0
    while some := list(islice(remaining, BATCH_ROWS)):
        yield batch_of_rows(some, first, refuse)
        first += len(some)


def batch_of_rows(rows: Sequence[Sequence[Any]], first: int, refuse: Refuse) -> pa.RecordBatch:
    """Rows as one batch of strings; `first` is the number of its first row."""
    try:
        columns = [pa.array(map(_text, values), pa.string()) for values in zip(*rows, strict=True)]
    except (TypeError, UnicodeEncodeError):
        raise _first_error(rows, first, refuse) from None
    batch = pa.RecordBatch.from_arrays(columns, names=list(ROLES))
    check_labels(batch, first, refuse)
    return batch


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return str(int(value))
    raise TypeError


def _first_error(rows: Sequence[Sequence[Any]], first: int, refuse: Refuse) -> DataError:
    for number, row in enumerate(rows, start=first):
        for role, value in zip(ROLES, row, strict=True):
            try:
                problem = problem_in_role(label := _text(value), role)
            except TypeError:
                what = f"is {repr(value)[:80]}, a {type(value).__name__}"
                what = "is missing (null)" if value is None else what
                return refuse(number, f"the {role} {what}; labels are text or whole numbers.")
            if problem:
                return refuse(number, f"the {role} {shortened(label)} {problem}.")
    raise AssertionError("rows were refused as a whole but each of them is fine")


def check_labels(batch: pa.RecordBatch, first: int, refuse: Refuse) -> None:
    """Refuse the first row of strings with a label that no triple file could hold."""
    suspect = np.zeros(batch.num_rows, dtype=bool)
    for role, column in zip(ROLES, batch.columns, strict=True):
        pattern = rf"{_SUSPECT}|\^-1$" if role == "relation" else _SUSPECT
        suspect |= pc.match_substring_regex(column, pattern).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(suspect)
    for row in rows.tolist():
        for role, column in zip(ROLES, batch.columns, strict=True):
            label = column[row].as_py()
            problem = problem_in_role(label, role)
            if problem:
                raise refuse(first + row, f"the {role} {shortened(label)} {problem}.")


def asked_columns(address: Address) -> tuple[str | int, ...] | None:
    """`columns` as names and positions (counted from 0); None where nothing was asked."""
    value: Any = address.options.get("columns")
    if value is None:
        return None
    parts = value.split(",") if isinstance(value, str) else list(value)
    if len(parts) != 3 or not all(isinstance(part, (str, int)) for part in parts):
        raise ConfigError(
            f"{address.text}: columns is {value!r}; name three, head, relation, tail in this order, "
            "such as columns=who,how,whom or columns=0,2,1."
        )
    return tuple(int(part) if isinstance(part, str) and part.isdecimal() else part for part in parts)


def chosen_columns(
    address: Address, names: Sequence[str], refuse: Callable[[str], DataError] | None = None
) -> tuple[int, ...]:
    """The positions of head, relation and tail among the columns of a table: as asked, or by a name people use."""
    refuse = refuse or (lambda what: DataError(f"{address.text}: {what}"))
    asked = asked_columns(address)
    if asked is not None:
        return tuple(_position(which, names, refuse) for which in asked)
    matching = [wanted for wanted in CUSTOMARY if all(list(names).count(name) == 1 for name in wanted)]
    if len(matching) != 1:
        why = "several sets of names fit" if matching else "none are called head, relation, tail"
        raise refuse(
            f"which columns are head, relation and tail? {_has(names)}, and {why}. "
            "Name them in this order: columns=who,how,whom, or by position: columns=0,1,2."
        )
    return tuple(list(names).index(name) for name in matching[0])


def _position(which: str | int, names: Sequence[str], refuse: Callable[[str], DataError]) -> int:
    if isinstance(which, int):
        if not 0 <= which < len(names):
            raise refuse(f"there is no column {which}; {_has(names)}, counted from 0.")
        return which
    found = [position for position, name in enumerate(names) if name == which]
    if len(found) > 1:
        raise refuse(
            f"{len(found)} columns are called {which!r}. Choose by position, counted from 0: columns={found[0]},..."
        )
    if not found:
        raise refuse(unknown_name_message("column", which, names, _has(names) + "."))
    return found[0]


def _has(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:12])) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
    return f"the table has {len(names)} column{'s' * (len(names) != 1)} ({shown})"
