"""What is minimised: a softmax over all entities, or self-adversarial binary cross entropy."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from contextpool.pool._backend import has_triton
from contextpool.train.queries import TrainingQueries

Loss = Literal["softmax", "bce"]
MASKED = -1e9
"""The score of a known other answer: out of the competition, and finite."""


def without_known(scores: Tensor, batch: TrainingQueries) -> Tensor:
    """Scores [B, N] with the other known answers out of the competition."""
    if scores.device.type == "cuda" and has_triton():
        from contextpool.kernels.known import known_mask  # loaded where it is needed

        known = batch.known
        mask = known_mask(known.begin, known.end, known.entity, batch.answer, scores.size(1))
        return scores.masked_fill(mask, MASKED)
    rows, entities = (index.to(scores.device) for index in batch.other_answers())
    return scores.index_put((rows, entities), scores.new_tensor(MASKED))


def softmax_loss(scores: Tensor, batch: TrainingQueries) -> Tensor:
    """Mean over the batch of -log softmax of the answer among all entities that are not known answers."""
    return functional.cross_entropy(without_known(scores, batch), batch.answer.to(scores.device))


def adversarial_loss(
    scores: Tensor, batch: TrainingQueries, *, negatives: int, temperature: float, generator: torch.Generator
) -> Tensor:
    """Binary cross entropy of the answer against sampled negatives, harder ones weighing more (Sun et al. 2019).

    The loss is a mean over queries of [B] numbers; nothing of shape [B, B] is ever formed. A query that every
    entity is known to answer has no negatives.
    """
    answer = batch.answer.to(scores.device)
    rows, entities = (index.to(scores.device) for index in batch.other_answers())
    allowed = torch.ones(scores.shape, dtype=torch.bool, device=scores.device).scatter(
        1, answer[:, None], False
    )
    allowed[rows, entities] = False  # [B, N]
    any_allowed = allowed.any(dim=1)  # [B]
    chances = (allowed | ~any_allowed[:, None]).float().cpu()
    drawn = torch.multinomial(chances, negatives, replacement=True, generator=generator).to(scores.device)
    negative = scores.gather(1, drawn)  # [B, negatives]
    weight = torch.softmax(negative.detach() / temperature, dim=1)
    positive_loss = functional.softplus(-scores.gather(1, answer[:, None]).squeeze(1))  # [B]
    negative_loss = (weight * functional.softplus(negative)).sum(dim=1) * any_allowed  # [B]
    return (positive_loss + negative_loss).mean() / 2
