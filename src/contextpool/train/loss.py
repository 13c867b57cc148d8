"""What is minimised: a softmax over all entities, or self-adversarial binary cross entropy."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from contextpool.kernels.backend import has_triton
from contextpool.train.queries import TrainingQueries

Loss = Literal["softmax", "bce"]
TEMPERATURE = 0.5
"""The temperature of the weights that self-adversarial sampling gives to negatives."""
MASKED = -1e9
"""The score of a known other answer: out of the competition, and finite."""


def without_known(scores: Tensor, batch: TrainingQueries) -> Tensor:
    """Scores [B, N] with the other known answers out of the competition."""
    if scores.device.type == "cuda" and has_triton():
        from contextpool.kernels.triton_heads import known_mask  # loaded where it is needed

        known = batch.known
        mask = known_mask(known.begin, known.end, known.entity, batch.answer, scores.size(1))
        return scores.masked_fill(mask, MASKED)
    rows, entities = (index.to(scores.device) for index in batch.other_answers())
    return scores.index_put((rows, entities), scores.new_tensor(MASKED))


def softmax_loss(scores: Tensor, batch: TrainingQueries, *, mask_known: bool = True) -> Tensor:
    """Mean over the batch of -log softmax of the answer among all entities that are not known answers.

    Without the mask the other answers compete, as in RED-GNN's published code.
    """
    competing = without_known(scores, batch) if mask_known else scores
    return functional.cross_entropy(competing, batch.answer.to(scores.device))


class Sampled(NamedTuple):
    """What binary cross entropy compares."""

    candidates: Tensor  # [B, 1 + negatives] the answer first
    has_negatives: Tensor
    """[B] False for a query that every entity is known to answer; its negatives mean nothing."""

    def select(self, rows: slice) -> Sampled:
        return Sampled(self.candidates[rows], self.has_negatives[rows])


def sample_candidates(
    batch: TrainingQueries, num_entities: int, *, negatives: int, generator: torch.Generator
) -> Sampled:
    """The answer of each query, and entities that are not known to answer it, drawn with replacement."""
    answer = batch.answer
    allowed = torch.ones(len(answer), num_entities, dtype=torch.bool, device=answer.device)
    allowed.scatter_(1, answer[:, None], False)
    allowed[batch.other_answers()] = False  # [B, N]
    any_allowed = allowed.any(dim=1)  # [B]
    chances = (allowed | ~any_allowed[:, None]).float().cpu()
    drawn = torch.multinomial(chances, negatives, replacement=True, generator=generator).to(answer.device)
    return Sampled(torch.cat([answer[:, None], drawn], dim=1), any_allowed)


def sampled_loss(scores: Tensor, sampled: Sampled) -> Tensor:
    """Binary cross entropy of the answer against the negatives, harder ones weighing more (Sun et al. 2019).

    Scores are those of the candidates [B, 1 + negatives]. The loss is a mean over queries of [B] numbers; nothing of
    shape [B, B] is ever formed.
    """
    positive, negative = scores[:, 0], scores[:, 1:]
    weight = torch.softmax(negative.detach() / TEMPERATURE, dim=1)
    negative_loss = (weight * functional.softplus(negative)).sum(dim=1) * sampled.has_negatives  # [B]
    return (functional.softplus(-positive) + negative_loss).mean() / 2
