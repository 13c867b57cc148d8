"""Mutants of bytes, of JSON and of text; the same ones for the same seed."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from typing import Any

ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3000, 10**9, 10**30, -(2**63), 0.5, -0.5, 1e308, "", "x", "../x", "/etc/passwd",
    "\0", "é" * 100, "A" * 10_000, [], {}, [None], [[]], {"": None}, ["a", "a"], list(range(100)),
    {"a": {"b": {"c": {}}}},
)  # fmt: skip
"""What may stand in the place of any value."""


def mutated_bytes(content: bytes, rng: random.Random) -> bytes:
    """Flipped bits, changed, cut, doubled or inserted stretches: one to four of them."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        rng.choice(_BYTE_CHANGES)(data, rng)
    return bytes(data)


def _place(data: bytearray, rng: random.Random) -> int:
    """Anywhere, more often near the beginning, where headers are."""
    length = max(1, len(data))
    return rng.randrange(length if rng.random() < 0.6 else min(length, 512))


def _flip(data: bytearray, rng: random.Random) -> None:
    if data:
        data[_place(data, rng)] ^= 1 << rng.randrange(8)


def _set(data: bytearray, rng: random.Random) -> None:
    if data:
        data[_place(data, rng)] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))


def _set_word(data: bytearray, rng: random.Random) -> None:
    size, place = rng.choice((2, 4, 8)), _place(data, rng)
    highest = 1 << (8 * size - 1)
    number = rng.choice((0, 1, 2 * highest - 1, highest, highest - 1, min(1 << 20, highest)))
    data[place : place + size] = number.to_bytes(size, "little")


def _cut(data: bytearray, rng: random.Random) -> None:
    del data[_place(data, rng) :]


def _remove(data: bytearray, rng: random.Random) -> None:
    place = _place(data, rng)
    del data[place : place + rng.choice((1, 2, 8, 64, 1000))]


def _repeat(data: bytearray, rng: random.Random) -> None:
    place = _place(data, rng)
    piece = bytes(data[place : place + rng.choice((1, 8, 64, 1000))])
    data[place:place] = piece * rng.choice((1, 2, 50))


def _insert(data: bytearray, rng: random.Random) -> None:
    place = _place(data, rng)
    data[place:place] = rng.choice((b"\0", b"\n", b"\t", b"\xff\xfe", b"\r\n", b" ", b'"', rng.randbytes(9)))


_BYTE_CHANGES: tuple[Callable[[bytearray, random.Random], None], ...] = (
    _flip, _flip, _flip, _set, _set_word, _cut, _remove, _repeat, _insert,
)  # fmt: skip


def mutated_json(value: Any, rng: random.Random) -> Any:
    """The same value with one to three places changed: replaced, removed, added, doubled, swapped or moved."""
    changed = copy.deepcopy(value)
    for _ in range(rng.choice((1, 1, 2, 3))):
        changed = _change_json(changed, rng)
    return changed


def _change_json(value: Any, rng: random.Random) -> Any:
    places = list(_places(value))
    if not places or rng.random() < 0.05:
        return copy.deepcopy(rng.choice(ODD_VALUES))
    container, key = rng.choice(places)
    action = rng.choice(("replace", "replace", "replace", "near", "remove", "add", "swap", "wrap"))
    if action == "remove":
        del container[key]
    elif action == "near":
        container[key] = _near(container[key], rng)
    elif action == "add":
        new = copy.deepcopy(rng.choice(ODD_VALUES))
        if isinstance(container, dict):
            container[rng.choice(("x", "", "name", "path", "dataset", f"{key}2"))] = new
        else:
            container.insert(key, new)
    elif action == "swap":
        other, place = rng.choice(places)
        first, second = copy.deepcopy(container[key]), copy.deepcopy(other[place])
        container[key], other[place] = second, first
    elif action == "wrap":
        container[key] = rng.choice(([container[key]], {"x": container[key]}, json.dumps(container[key])))
    else:
        container[key] = copy.deepcopy(rng.choice(ODD_VALUES))
    return value


def _near(value: Any, rng: random.Random) -> Any:
    """A value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return rng.choice((value + 1, value - 1, -value, value * 1000, value * 0.5))
    if isinstance(value, str):
        return rng.choice((value + "x", value[:-1], value.upper(), value[::-1], value + "\x1b[31m"))
    if isinstance(value, list):
        return rng.sample(value, len(value))
    return value


def _places(value: Any) -> list[tuple[Any, Any]]:
    """(container, key) of every value below this one."""
    found: list[tuple[Any, Any]] = []
    below = [value] if isinstance(value, dict | list) else []
    while below:
        container = below.pop()
        keys = container.keys() if isinstance(container, dict) else range(len(container))
        for key in keys:
            found.append((container, key))
            if isinstance(container[key], dict | list):
                below.append(container[key])
    return found
