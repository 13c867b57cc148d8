"""The processes that train or evaluate together, and what they say to one another. Alone, all of it is free.

Started by `torchrun`, by a batch system that sets the same variables, or by `--nproc`. Every process holds the graph
and the model; what is shared out is queries. The first process writes and tells; the others compute along. What they
send is numbers and JSON: nothing that comes over a connection is unpickled.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor

from contextpool.errors import ConfigError, ContextPoolError, LostProcessError, PeerFailedError

Result = TypeVar("Result")
STORE_VARIABLE = "CONTEXTPOOL_STORE"
"""The file by which processes that `--nproc` started find one another; nobody else can read it."""
PATIENCE = timedelta(hours=2)
"""How long a process waits for the others. One that has died is noticed at once; this is for one that hangs."""


@dataclass(frozen=True)
class Processes:
    """Process `rank` of `size`; they meet in the same calls in the same order."""

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this is the one that writes files and tells how far it is."""
        return self.rank == 0

    @property
    def are_several(self) -> bool:
        return self.size > 1

    def bounds(self, count: int) -> tuple[int, int]:
        """Begin and end of this process's share of `count` things in a row: sizes differ by one, and may be zero."""
        return count * self.rank // self.size, count * (self.rank + 1) // self.size

    def turns(self, count: int) -> range:
        """Which of `count` things this process does where they are dealt out like cards."""
        return range(self.rank, count, self.size)

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all processes, the same bits in each; in place."""
        if self.are_several:
            with _in_touch(self):
                torch.distributed.all_reduce(tensor)
        return tensor

    def agreed(self, task: Callable[[], Result]) -> Result:
        """Do it in every process. Where it fails in one, it fails in all: one error, told by the first that has it."""
        if not self.are_several:
            return task()
        try:
            result, failure = task(), None
        except ContextPoolError as error:
            failure = error
        mine = None if failure is None else [str(failure), failure.exit_code]
        told = [json.loads(message) for message in self._gathered(json.dumps(mine).encode())]
        first = next((rank for rank, failed in enumerate(told) if failed is not None), None)
        if first is None:
            return result
        if first == self.rank and failure is not None:
            raise failure
        raise PeerFailedError(first, self.size, *(told[first] or ("", 1)))

    def on_first(self, task: Callable[[], Result]) -> Result | None:
        """Do it in the first process alone, None elsewhere; an error there is an error everywhere."""
        return self.agreed(lambda: task() if self.is_first else None)

    def from_first(self, task: Callable[[], Result]) -> Result:
        """What the first process finds, given to all: plain JSON."""
        found = self.on_first(task)
        if not self.are_several:
            return found  # type: ignore[return-value]
        return json.loads(self._sent(json.dumps(found).encode()))  # type: ignore[no-any-return]

    def tensors_from_first(
        self, task: Callable[[], tuple[dict[str, Tensor], dict[str, Any]] | None]
    ) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Tensors with plain JSON beside them, or None, given to all; on the CPU where there are several processes."""
        found = self.on_first(task)
        if not self.are_several:
            return found
        tensors, meta = ({}, None) if found is None else found
        rows = [
            [name, str(one.dtype).removeprefix("torch."), list(one.shape)] for name, one in tensors.items()
        ]
        rows, meta = json.loads(self._sent(json.dumps([rows, meta]).encode()))
        given: dict[str, Tensor] = {}
        for name, kind, shape in rows:
            own = tensors[name].cpu().contiguous() if self.is_first else _empty(kind, shape)
            with _in_touch(self):
                torch.distributed.broadcast(own.reshape(-1).view(torch.uint8), src=0)
            given[name] = own
        return None if meta is None else (given, meta)

    def _sent(self, message: bytes) -> bytes:
        """The first process's message, in all of them."""
        with _in_touch(self):
            size = torch.tensor([len(message)])
            torch.distributed.broadcast(size, src=0)
            data = _as_tensor(message) if self.is_first else torch.empty(int(size), dtype=torch.uint8)
            torch.distributed.broadcast(data, src=0)
        return data.numpy().tobytes()

    def _gathered(self, message: bytes) -> list[bytes]:
        """The messages of all, by rank."""
        with _in_touch(self):
            sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
            torch.distributed.all_gather(sizes, torch.tensor([len(message)]))
            longest = max(int(size) for size in sizes)
            parts = [torch.empty(longest, dtype=torch.uint8) for _ in range(self.size)]
            torch.distributed.all_gather(parts, _as_tensor(message.ljust(longest)))
        return [part.numpy().tobytes()[: int(size)] for part, size in zip(parts, sizes, strict=True)]


def _as_tensor(message: bytes) -> Tensor:
    return torch.frombuffer(bytearray(message), dtype=torch.uint8)


def _empty(kind: str, shape: list[int]) -> Tensor:
    dtype = getattr(torch, kind)
    assert isinstance(dtype, torch.dtype)
    return torch.empty(shape, dtype=dtype)


def current() -> Processes:
    """Those that this process was joined with; alone unless `joined`, or its caller, has set up a process group."""
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return Processes()
    return Processes(distributed.get_rank(), distributed.get_world_size())


def were_started() -> bool:
    """Whether torchrun, `--nproc` or a batch system has started this process as one of several, or as the only one."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


@contextmanager
def joined(device: str) -> Iterator[tuple[Processes, str]]:
    """With the others, by gloo on CPUs and NCCL on GPUs, as the variables of torchrun say; and this one's device."""
    if not were_started():
        yield Processes(), device
        return
    own = device_of(device, _variable("LOCAL_RANK", 0))
    rank, size = _variable("RANK", 0), _variable("WORLD_SIZE", 1)
    check_available()
    if own.startswith("cuda"):
        torch.cuda.set_device(own)
    try:
        store = os.environ.get(STORE_VARIABLE)
        torch.distributed.init_process_group(
            "cpu:gloo,cuda:nccl" if own.startswith("cuda") else "gloo",
            store=None if store is None else torch.distributed.FileStore(store, size),
            rank=rank,
            world_size=size,
            timeout=PATIENCE,
        )
    except (RuntimeError, ValueError) as error:
        raise LostProcessError(
            f"process {rank} of {size} cannot join the others at {os.environ.get('MASTER_ADDR', '?')}:"
            f"{os.environ.get('MASTER_PORT', '?')} ({_first_line(error)}). Start it with torchrun or --nproc, "
            "and let every machine reach that address."
        ) from error
    try:
        yield current(), own
    finally:
        torch.distributed.destroy_process_group()


def device_of(device: str, local_rank: int) -> str:
    """Each process of a machine has a GPU of its own; on the CPU they share it."""
    if torch.device(device).type != "cuda":
        return device
    there = torch.cuda.device_count()
    if local_rank >= there:
        raise ConfigError(
            f"process {local_rank} of this machine has no GPU: there are {there}, one for each process. "
            f"Start at most {there} here, or use --device cpu."
        )
    return f"cuda:{local_rank}"


def check_available() -> None:
    """Refuse a build of torch that cannot let processes talk."""
    if not torch.distributed.is_available():
        raise ConfigError(
            "several processes need torch.distributed, which this build of torch lacks. "
            "Install a build that has it, or train in one process."
        )


def _variable(name: str, otherwise: int) -> int:
    value = os.environ.get(name, str(otherwise))
    try:
        return int(value)
    except ValueError:
        raise ConfigError(
            f"the environment variable {name} is {value!r}; torchrun sets it to a number."
        ) from None


@contextmanager
def _in_touch(processes: Processes) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # what torch raises where a connection ends or nobody answers
        if isinstance(error, torch.cuda.OutOfMemoryError):
            raise
        raise LostProcessError(
            f"process {processes.rank} of {processes.size} lost touch with the others ({_first_line(error)}). "
            "Probably one of them has ended: look for its message above. What was saved is kept: "
            "go on with `contextpool resume`, with as many processes as you like."
        ) from error


def _first_line(error: Any) -> str:
    line: str = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return line[:200]
