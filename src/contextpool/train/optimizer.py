"""The optimizer, its learning rate, and its state as checkpoints hold it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from contextpool.models.base import LinkPredictor
from contextpool.train.config import TrainConfig


def learning_rate(config: TrainConfig, step: int, steps_per_epoch: int) -> float:
    """The rate of step 0, 1, ...: a linear warm-up, then the schedule. A function of the step alone."""
    warm = min(1.0, (step + 1) / max(1, config.warmup_steps))
    if config.schedule == "exponential":
        return config.lr * warm * config.decay ** (step // steps_per_epoch)
    share = step / max(1, config.epochs * steps_per_epoch)
    return config.lr * warm * 0.5 * (1 + math.cos(math.pi * share))


def new_optimizer(model: LinkPredictor, config: TrainConfig) -> torch.optim.Optimizer:
    """AdamW or Adam; on CUDA fused, and as a recorded step needs it."""
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    parameters = list(model.parameters())
    if not parameters or not parameters[0].is_cuda:
        return kind(parameters, lr=config.lr, weight_decay=config.weight_decay)
    rate = torch.tensor(config.lr, device=parameters[0].device)  # a tensor: a recorded step reads it
    return kind(parameters, lr=rate, weight_decay=config.weight_decay, fused=True, capturable=True)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Of every group, in the place that a recorded step reads."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """As a checkpoint holds them: `optimizer.<parameter>.<name>`."""
    state = optimizer.state_dict()["state"]
    return {
        f"optimizer.{number}.{name}": value
        for number, entry in state.items()
        for name, value in entry.items()
    }


def load_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """From what a checkpoint holds behind `optimizer.`."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        number, name = key.split(".", 1)
        state.setdefault(int(number), {})[name] = value.cpu() if name == "step" else value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
