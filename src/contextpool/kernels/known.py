"""Which entities are known answers: a mask [B, N] from compressed rows, without waiting for the device."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _mark_kernel(begin, end, entity, answer, mask, num_entities, BLOCK: tl.constexpr):
    """Marks the entities of row b's list other than its own answer."""
    row = tl.program_id(0).to(tl.int64)
    place = tl.load(begin + row)
    last = tl.load(end + row)
    own = tl.load(answer + row)
    while place < last:
        places = place + tl.arange(0, BLOCK)
        ok = places < last
        found = tl.load(entity + places, mask=ok, other=0).to(tl.int64)
        one = tl.zeros([BLOCK], dtype=tl.int8) + 1
        tl.store(mask + row * num_entities + found, one, mask=ok & (found != own))
        place += BLOCK


def known_mask(begin: Tensor, end: Tensor, entity: Tensor, answer: Tensor, num_entities: int) -> Tensor:
    """[B, N] true where entity[begin[b]:end[b]] names another entity than answer[b]."""
    mask = torch.zeros(len(begin), num_entities, dtype=torch.int8, device=begin.device)
    if len(begin):
        _mark_kernel[(len(begin),)](begin, end, entity, answer, mask, num_entities, BLOCK=256)
    return mask.view(torch.bool)
