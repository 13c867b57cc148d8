"""The ranks that several processes found, put together."""

from __future__ import annotations

import torch

from contextpool.errors import DataError
from contextpool.evaluate.metrics import RankTable
from contextpool.processes import Processes


def gathered(own: RankTable, processes: Processes) -> RankTable:
    """The whole table in every process, from tables that are 0 where another process ranked.

    A rank plus zeros is that rank to the bit. Every place has to be filled by exactly one process: an answer is
    compared with one entity at least, itself, so an empty place is one without candidates.
    """
    if not processes.are_several:
        return own
    ranks = torch.from_numpy(own.optimistic), torch.from_numpy(own.pessimistic)
    candidates = torch.from_numpy(own.candidates)
    counts = torch.stack([candidates, (candidates > 0).long()])  # [2, Q]
    optimistic, pessimistic = processes.sum(torch.stack(ranks)).numpy()  # [Q]
    candidates, filled = processes.sum(counts)
    if not bool((filled == 1).all()):
        raise DataError(
            f"{int((filled != 1).sum()):,} of {len(filled):,} ranks were found by no process or by several: "
            "the processes were given different queries. Give all of them the same dataset and batch size."
        )
    return RankTable(optimistic, pessimistic, candidates.numpy())
