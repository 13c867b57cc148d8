"""The optimizer, its learning rate, its state as checkpoints hold it, and averages of the last weights."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from contextpool.train.config import TrainConfig

Weights = dict[str, Tensor]


def learning_rate(config: TrainConfig, step: int, steps_per_epoch: int, total_steps: int) -> float:
    """The rate of step 0, 1, ...: a linear warm-up, then the schedule. A function of the step alone."""
    warm = min(1.0, (step + 1) / max(1, config.warmup_steps))
    if config.schedule == "exponential":
        return config.lr * warm * config.decay ** (step // steps_per_epoch)
    return config.lr * warm * 0.5 * (1 + math.cos(math.pi * step / max(1, total_steps)))


def new_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """AdamW or Adam; on CUDA fused, and as a recorded step needs it."""
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    parameters = list(model.parameters())
    if not parameters or not parameters[0].is_cuda:
        return kind(parameters, lr=config.lr, weight_decay=config.weight_decay)
    rate = torch.tensor(config.lr, device=parameters[0].device)  # a tensor: a recorded step reads it
    return kind(parameters, lr=rate, weight_decay=config.weight_decay, fused=True, capturable=True)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of every group, in place, so that a recorded step reads it."""
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
    """From what a checkpoint holds behind `optimizer.`; a ValueError where it is another model's."""
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        number, _, name = key.partition(".")
        place = int(number)
        if place not in range(len(parameters)) or name not in ("step", "exp_avg", "exp_avg_sq"):
            raise ValueError(f"the optimizer has no {key!r}")
        if value.shape != (torch.Size() if name == "step" else parameters[place].shape):
            raise ValueError(f"the optimizer's {key!r} has another shape")
        state.setdefault(place, {})[name] = value.cpu() if name == "step" else value
    if any(len(entry) != 3 for entry in state.values()):
        raise ValueError("the optimizer's state is not whole")
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


class LastWeights:
    """The weights of the last `count` epochs, oldest first; 0 keeps none."""

    def __init__(self, count: int) -> None:
        self._kept: deque[Weights] = deque(maxlen=count)

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, model: nn.Module) -> None:
        """A copy of the model's weights as they are now."""
        if self._kept.maxlen:
            self._kept.append({name: value.detach().clone() for name, value in model.state_dict().items()})

    def average(self) -> Weights:
        """The mean of the weights, summed in float64; integers and truth values are the last epoch's."""
        last = self._kept[-1]
        return {
            name: self._mean(name).to(value.dtype) if value.is_floating_point() else value
            for name, value in last.items()
        }

    def _mean(self, name: str) -> Tensor:
        return torch.stack([weights[name].double() for weights in self._kept]).mean(dim=0)

    def tensors(self) -> Weights:
        """As a checkpoint holds them: `recent.<number>.<name>`."""
        return {
            f"recent.{number}.{name}": value
            for number, weights in enumerate(self._kept)
            for name, value in weights.items()
        }

    def load(self, tensors: Mapping[str, Tensor], model: nn.Module) -> None:
        """From what a checkpoint holds behind `recent.`; a ValueError where it is another model's."""
        self._kept.clear()
        numbered: dict[int, Weights] = {}
        for key, value in tensors.items():
            number, _, name = key.partition(".")
            numbered.setdefault(int(number), {})[name] = value
        expected = {name: value.shape for name, value in model.state_dict().items()}
        for weights in numbered.values():
            if {name: value.shape for name, value in weights.items()} != expected:
                raise ValueError("the weights of earlier epochs have other names or shapes")
        self._kept.extend(numbered[number] for number in sorted(numbered))
