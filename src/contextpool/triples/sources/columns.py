"""Which three columns of a table are head, relation and tail: by name, by position, or by a name people use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from contextpool.errors import ConfigError, DataError, unknown_name_message
from contextpool.triples.sources.address import Address

CUSTOMARY = (
    ("head", "relation", "tail"),
    ("h", "r", "t"),
    ("subject", "predicate", "object"),
    ("s", "p", "o"),
    ("source", "relation", "target"),
)
"""Names that are recognised without being told, as whole sets."""


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


def chosen_columns(address: Address, names: Sequence[str]) -> tuple[int, int, int]:
    """The positions of head, relation and tail among the columns of a table."""
    asked = asked_columns(address)
    if asked is None:
        return _customary(address, names)
    head, relation, tail = (_position(address, which, names) for which in asked)
    return head, relation, tail


def _position(address: Address, which: str | int, names: Sequence[str]) -> int:
    if isinstance(which, int):
        if not 0 <= which < len(names):
            raise DataError(f"{address.text}: there is no column {which}; {_has(names)}, counted from 0.")
        return which
    found = [position for position, name in enumerate(names) if name == which]
    if len(found) > 1:
        raise DataError(
            f"{address.text}: {len(found)} columns are called {which!r}. Choose by position, counted from 0: "
            f"columns={found[0]},..."
        )
    if not found:
        raise DataError(f"{address.text}: {unknown_name_message('column', which, names, _has(names) + '.')}")
    return found[0]


def _customary(address: Address, names: Sequence[str]) -> tuple[int, int, int]:
    matching = [wanted for wanted in CUSTOMARY if all(list(names).count(name) == 1 for name in wanted)]
    if len(matching) != 1:
        why = "several sets of names fit" if matching else "none are called head, relation, tail"
        raise DataError(
            f"{address.text}: which columns are head, relation and tail? {_has(names)}, and {why}. "
            "Name them in this order: columns=who,how,whom, or by position: columns=0,1,2."
        )
    head, relation, tail = (list(names).index(name) for name in matching[0])
    return head, relation, tail


def _has(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:12])) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
    return (
        f"the table has {len(names)} columns ({shown})"
        if len(names) != 1
        else f"the table has one column ({shown})"
    )
