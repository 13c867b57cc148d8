"""What the functions on CUDA do with tensors and streams around their kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor


def needs_gradients(inputs: Sequence[Tensor | None]) -> bool:
    """Whether a backward pass may come; inside of a function torch says so even where gradients are off."""
    return torch.is_grad_enabled() and any(one is not None and one.requires_grad for one in inputs)


def contiguous(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.contiguous()


def like_inputs(gradients: Sequence[Tensor | None], inputs: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Gradients in the types of what they are of."""
    return [
        None if result is None or given is None else result.to(given.dtype)
        for result, given in zip(gradients, inputs[: len(gradients)], strict=True)
    ]


def stack_of(tensors: Sequence[Tensor]) -> Tensor:
    """`torch.stack`, for tensors with gradients; one alone is not copied."""
    return tensors[0][None] if len(tensors) == 1 else torch.stack(list(tensors))


def stacked(tensors: Sequence[Tensor]) -> Tensor:
    """`torch.stack`; no copy where the tensors lie one after the other already, as those of the kernels here do."""
    first = tensors[0]
    if _follow_one_another(tensors):
        return first.as_strided((len(tensors), *first.shape), (first.numel(), *first.stride()))
    return torch.stack(list(tensors))


def _follow_one_another(tensors: Sequence[Tensor]) -> bool:
    first = tensors[0]
    size, storage = first.numel() * first.element_size(), first.untyped_storage().data_ptr()
    return all(
        one.is_contiguous()
        and one.dtype == first.dtype
        and one.shape == first.shape
        and one.data_ptr() == first.data_ptr() + number * size
        and one.untyped_storage().data_ptr() == storage
        for number, one in enumerate(tensors)
    )


@contextmanager
def aside(
    device: torch.device, needed: bool = True, *, first: bool = False
) -> Iterator[AbstractContextManager[Any]]:
    """A block with a second stream for some of its launches: they start with the block, and all are done after it.

    `first`: their programs go before those of other streams. One such block may stand in one that is not.
    """
    if not needed or device.type != "cuda":
        yield nullcontext()
        return
    main = torch.cuda.current_stream(device)
    side = _side_stream(device, main.cuda_stream, -1 if first else 0)
    side.wait_stream(main)
    try:
        yield torch.cuda.stream(side)
    finally:
        main.wait_stream(side)


@lru_cache(maxsize=32)
def _side_stream(device: torch.device, of: int, priority: int) -> torch.cuda.Stream:
    """A second stream for each stream `of`: one shared by several might be recording for another."""
    return torch.cuda.Stream(device, priority=priority)
