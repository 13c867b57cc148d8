"""Strict JSON: what is written reads back as the same value, here and in any other JSON reader."""

from __future__ import annotations

import json
import math
from typing import Any

from contextpool.errors import CheckpointError, shortened

MOST_LEVELS = 50  # far below what the parser's recursion can take, so what was written can always be read
MOST_BITS = 4096  # random number generators keep integers of 128 bits; Python parses up to some 14,000
_ANY_PLAIN = "text, finite numbers, true, false, null, lists, and dictionaries with text as keys"


def compact_json(value: Any, where: str) -> str:
    """One line of ASCII, keys sorted. Tuples become lists; whatever JSON cannot hold is refused by place."""
    _check_plain(value, where, MOST_LEVELS)
    return json.dumps(value, sort_keys=True, allow_nan=False, separators=(",", ":"))


def readable_json(value: Any, where: str) -> str:
    """The same, indented and with the letters of every script as they are."""
    _check_plain(value, where, MOST_LEVELS)
    return json.dumps(value, sort_keys=True, allow_nan=False, indent=2, ensure_ascii=False) + "\n"


def parse_json(data: bytes | str, where: str) -> Any:
    """The value, or a CheckpointError: not UTF-8, not JSON, a key twice, NaN, a thousand levels, huge numbers."""
    try:
        text = data.decode("utf-8") if isinstance(data, bytes) else data
        return json.loads(
            text, object_pairs_hook=_without_duplicates, parse_float=_finite, parse_constant=_finite
        )
    except RecursionError:
        raise CheckpointError(f"{where}: the JSON is nested too deeply. It is damaged; use a copy.") from None
    except ValueError as error:  # includes JSONDecodeError and UnicodeDecodeError
        why = shortened(str(error), 160)
        raise CheckpointError(f"{where}: this is not JSON ({why}). It is damaged; use a copy.") from None


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        raise ValueError("a key occurs twice")
    return result


def _finite(spelling: str) -> float:
    number = float(spelling)
    if not math.isfinite(number):
        raise ValueError(f"{shortened(spelling)} is no finite number")
    return number


def _check_plain(value: Any, where: str, levels: int) -> None:
    problem = _problem_of(value, levels)
    if problem:
        raise CheckpointError(f"{where} {problem}. It can hold {_ANY_PLAIN}.")
    if isinstance(value, dict):
        for key, item in value.items():
            _check_plain(item, f"{where}[{shortened(key)}]", levels - 1)
    elif isinstance(value, list | tuple):
        for position, item in enumerate(value):
            _check_plain(item, f"{where}[{position}]", levels - 1)


def _problem_of(value: Any, levels: int) -> str:
    """What keeps this one value, its parts aside, from being JSON; empty if nothing does."""
    if levels < 0:
        return f"is nested more than {MOST_LEVELS} levels deep"
    if isinstance(value, dict):
        odd = [key for key in value if not isinstance(key, str) or not is_text(key)]
        return f"has the key {shortened(str(odd[0]))}, which is not text" if odd else ""
    if isinstance(value, str):
        return "" if is_text(value) else "holds half of a surrogate pair"
    if isinstance(value, float):
        return "" if math.isfinite(value) else f"is {value}"
    if isinstance(value, int):
        return "" if value.bit_length() <= MOST_BITS else f"is a number of more than {MOST_BITS:,} bits"
    return "" if value is None or isinstance(value, list | tuple) else f"is a {type(value).__name__}"


def is_text(value: str) -> bool:
    """Whether UTF-8 can hold it: halves of surrogate pairs cannot be written, nor read by others."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
