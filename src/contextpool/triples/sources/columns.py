"""Three columns of labels as checked batches, and which columns of a table they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, product
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from contextpool.errors import ConfigError, DataError, shortened, unknown_name_message
from contextpool.triples.labels import MAX_LABEL, ROLES, problem_in_role
from contextpool.triples.sources.address import Address, retyped, yes_or_no

BATCH_ROWS = 1 << 16
CUSTOMARY = (
    ("h", "r", "t"),
    ("s", "p", "o"),
    *product(
        ("head", "subject", "source", "from"),
        ("relation", "predicate", "type"),
        ("tail", "object", "target", "to"),
    ),
)
"""Names that are recognised without being told, as whole sets, in any case and with any space around them."""
DELIMITERS = {"\t": "tab", ",": ",", ";": ";", "|": "|", " ": "space"}
"""What lines may be separated by, and how an address spells it."""
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
        batch = row_batch(rows)
    except (TypeError, UnicodeEncodeError):
        raise _first_error(rows, first, refuse) from None
    check_labels(batch, first, refuse)
    return batch


def row_batch(rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    """Rows that are known to be triples as one batch of strings."""
    columns = zip(*rows, strict=True) if rows else ((), (), ())
    texts = [pa.array(map(_text, values), pa.string()) for values in columns]
    return pa.RecordBatch.from_arrays(texts, names=list(ROLES))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return str(int(value))
    raise TypeError


def row_problem(row: Sequence[Any]) -> str | None:
    """What is wrong with a row of three values, or None where they are labels."""
    for role, value in zip(ROLES, row, strict=True):
        try:
            problem = problem_in_role(label := _text(value), role)
        except TypeError:
            what = f"is {repr(value)[:80]}, a {type(value).__name__}"
            what = "is missing (null)" if value is None else what
            return f"the {role} {what}; labels are text or whole numbers."
        if problem:
            return f"the {role} {shortened(label)} {problem}."
    return None


def _first_error(rows: Sequence[Sequence[Any]], first: int, refuse: Refuse) -> DataError:
    for number, row in enumerate(rows, start=first):
        problem = row_problem(row)
        if problem:
            return refuse(number, problem)
    raise AssertionError("rows were refused as a whole but each of them is fine")


def check_labels(batch: pa.RecordBatch, first: int, refuse: Refuse) -> None:
    """Refuse the first row of strings with a label that no triple file could hold."""
    suspect = np.zeros(batch.num_rows, dtype=bool)
    for role, column in zip(ROLES, batch.columns, strict=True):
        pattern = rf"{_SUSPECT}|\^-1$" if role == "relation" else _SUSPECT
        found = pc.or_(
            pc.match_substring_regex(column, pattern), pc.greater(pc.binary_length(column), MAX_LABEL)
        )
        suspect |= found.to_numpy(zero_copy_only=False)
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
    matching = customary_columns(names)
    if len(matching) != 1:
        how = f"Name them in this order, such as columns={_three(names)}, or by position: columns=0,1,2."
        raise refuse(f"{_which_columns(names)} {how}")
    return matching[0]


def customary_columns(names: Sequence[str]) -> list[tuple[int, ...]]:
    """The positions of each set of customary names among the columns."""
    plain = [name.strip().casefold() for name in names]
    found = [wanted for wanted in CUSTOMARY if all(plain.count(name) == 1 for name in wanted)]
    return [tuple(plain.index(name) for name in wanted) for wanted in found]


def text_columns(
    address: Address, top: Sequence[str], refuse: Callable[[str], DataError]
) -> tuple[bool, Any]:
    """(whether the first line of a text file holds names, the positions of head, relation and tail).

    It holds names where `header` or names in `columns` say so, or where they are the customary ones: a first line
    of which nobody knows is a fact, so that none is lost.
    """
    asked = asked_columns(address)
    named = asked is not None and any(isinstance(which, str) for which in asked)
    header = yes_or_no(address, "header", named or bool(customary_columns(top)))
    names = list(top) if header else [f"column {number}" for number in range(len(top))]
    if asked is not None or len(customary_columns(names)) == 1:
        return header, chosen_columns(address, names, refuse)
    if len(top) != 3:
        by_name = retyped(address, header="yes", columns=_three(top))
        by_position = retyped(address, header="no", columns="0,1,2")
        how = f"Choose three: {by_name} where the first line holds names, {by_position} where it is a fact"
        raise refuse(f"{_which_columns(top)} {how}")
    return header, (0, 1, 2)


def _which_columns(names: Sequence[str]) -> str:
    why = "several sets of names fit" if customary_columns(names) else "none are called head, relation, tail"
    return f"which columns are head, relation and tail? {_has(names)}, and {why}."


def _three(names: Sequence[str]) -> str:
    """Three of the columns as `columns` takes them."""
    fit = [name for name in names if name and "," not in name and not name.isdecimal()]
    return ",".join(fit[:3] if len(fit) >= 3 else ("0", "1", "2"))


def likely_delimiter(lines: Sequence[str], unlike: str) -> str | None:
    """What separates some lines into three columns or more, each into as many; None where nothing does."""
    for delimiter in DELIMITERS:
        counts = {line.count(delimiter) for line in lines}
        if (
            delimiter != unlike
            and len(counts) == 1
            and (2 in counts or (delimiter != " " and min(counts) > 2))
        ):
            return delimiter
    return None


def other_delimiter(address: Address, lines: Sequence[str], unlike: str) -> str:
    """What to type where the lines look separated by something else than expected; "" where they do not."""
    found = likely_delimiter(lines, unlike)
    if found is None:
        return ""
    changes = {} if found == "," else {"delimiter": DELIMITERS[found]}
    if lines[0].count(found) > 2 and "columns" not in address.options:
        changes["columns"] = "0,1,2"
    how = retyped(address, kind="csv", **changes)
    return f" The lines look separated by {DELIMITERS[found]!r}; if so, type {how}"


def some_delimiter(address: Address, lines: Sequence[str], unlike: str) -> str:
    """What to do where the lines are not separated as expected, nor by anything into equally many columns."""
    often = (sign for sign in DELIMITERS if sign != unlike and all(line.count(sign) > 1 for line in lines))
    found = next(often, None)
    if found is None:
        how = retyped(address, kind="csv", delimiter=";")
        return f"If something else separates the columns, such as ';', type {how}"
    name, wanted = DELIMITERS[found], DELIMITERS.get(unlike, unlike)
    how = retyped(address, kind="csv", delimiter=name)
    return (
        f"The lines hold {name!r} at least twice each: it may separate the columns, but labels seem to hold it, too. "
        f"Separate the columns by {wanted!r}, or put such labels in quotes and type {how}"
    )


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
