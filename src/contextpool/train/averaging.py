"""The weights of the last few epochs, and their average."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import torch
from torch import Tensor, nn

Weights = dict[str, Tensor]


class LastWeights:
    """Those of the last `count` epochs, oldest first; 0 keeps none."""

    def __init__(self, count: int) -> None:
        self._kept: deque[Weights] = deque(maxlen=count)

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, model: nn.Module) -> None:
        """A copy of the model's weights as they are now."""
        if self._kept.maxlen:
            self._kept.append({name: value.detach().clone() for name, value in model.state_dict().items()})

    def average(self) -> Weights:
        """The mean of the weights, summed in float64; what is no fraction is taken from the last epoch."""
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

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """From what a checkpoint holds behind `recent.`."""
        self._kept.clear()
        numbered: dict[int, Weights] = {}
        for key, value in tensors.items():
            number, name = key.split(".", 1)
            numbered.setdefault(int(number), {})[name] = value
        self._kept.extend(numbered[number] for number in sorted(numbered))
