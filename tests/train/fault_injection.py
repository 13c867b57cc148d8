"""A writer whose n-th call of the system fails, or kills it; and things to write that say which save they are of."""

from __future__ import annotations

import contextlib
import io
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch

_COUNTED = ("open", "fsync", "chmod", "replace", "write", "ftruncate")


class Faults:
    """Counts a writer's calls of the system and does `action` instead of call number `at`."""

    def __init__(
        self, at: int = -1, action: Callable[[], Any] = lambda: None, short_writes: bool = False
    ) -> None:
        self.at = at
        self.action = action
        self.short_writes = short_writes
        self.steps: list[str] = []

    def step(self, name: str) -> None:
        self.steps.append(name)
        if len(self.steps) - 1 == self.at:
            self.action()

    def shortened(self, data: Any) -> Any:
        """All of it, or its first half as a disk may take it."""
        return data[: max(1, len(data) // 2)] if self.short_writes and len(data) else data

    @contextlib.contextmanager
    def injected(self) -> Iterator[Faults]:
        with contextlib.ExitStack() as stack:
            for name in _COUNTED:
                stack.enter_context(mock.patch.object(os, name, self._counting(name, getattr(os, name))))
            stack.enter_context(mock.patch.object(os, "fdopen", self._fdopen))
            yield self

    def _counting(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            self.step(name)
            if name == "write":
                arguments = (arguments[0], self.shortened(arguments[1]))
            return original(*arguments, **options)

        return counted

    def _fdopen(self, handle: int, mode: str = "r", **options: Any) -> Any:
        if mode != "wb":
            return open(handle, mode, **options)
        return io.BufferedWriter(_CountedFile(handle, self))


class _CountedFile(io.FileIO):
    def __init__(self, handle: int, faults: Faults) -> None:
        super().__init__(handle, "wb")
        self._faults = faults

    def write(self, data: Any) -> int:
        self._faults.step("write")
        return super().write(self._faults.shortened(data))


def fail_with(number: int) -> Callable[[], None]:
    def fail() -> None:
        raise OSError(number, os.strerror(number))

    return fail


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


# What is saved: every value says which save it belongs to


def numbered_tensors(number: int, values: int = 20_000) -> dict[str, torch.Tensor]:
    return {"weight": torch.full((values,), float(number)), "step": torch.tensor(number)}


def number_in(tensors: dict[str, torch.Tensor], meta: dict[str, Any]) -> int:
    """The number of the save; an error unless all values are of the same one."""
    number = meta["number"]
    if int(tensors["step"]) != number or not bool((tensors["weight"] == number).all()):
        raise ValueError("values of several saves in one checkpoint")
    return int(number)
