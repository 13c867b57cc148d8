"""Settings of a training run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from contextpool.errors import ConfigError
from contextpool.train.loss import Loss


@dataclass(frozen=True)
class TrainConfig:
    """How a model is trained."""

    epochs: int = 20
    """How often every training query is asked, at the most."""
    batch_size: int = 64
    """Queries a step."""
    lr: float = 5e-3
    """Highest learning rate."""
    weight_decay: float = 1e-4
    """AdamW's decay; with optimizer = "adam" the L2 penalty of the published codes."""
    optimizer: Literal["adamw", "adam"] = "adamw"
    schedule: Literal["cosine", "exponential"] = "cosine"
    """How the learning rate falls after the warm-up."""
    decay: float = 0.99
    """Factor per epoch of the exponential schedule."""
    warmup_steps: int = 100
    """Steps over which the learning rate grows from zero."""
    clip_norm: float = 1.0
    """Largest norm of the gradient; 0 for no limit."""
    loss: Loss = "softmax"
    """softmax over all entities, or self-adversarial bce."""
    mask_known: bool = True
    """Whether other known answers of a query are left out of the softmax; false is how RED-GNN was published."""
    negatives: int = 32
    """Negatives a query, for bce."""
    patience: int = 5
    """Epochs without a better validation MRR after which training stops; 0 for never."""
    valid_facts: int = 0
    """Validate and calibrate on so many of the validation facts, the same ones every time; 0 for all."""
    edge_dropout: float | None = None
    """Share of the facts that each query of each step does not see; by default .2 with gate, arrive or walk mass, else
    none.
    """
    average_last: int = 0
    """Average the weights of so many last epochs in the end, and keep the average where validation finds it no worse
    than the best epoch; 0 for no average.
    """
    queries: Literal["all", "train", "valid"] = "all"
    """Which training queries: every edge, or the published choices."""
    micro_batches: int = 1
    """Into how many parts a batch is split, to be computed one after the other or by several processes; there is at
    least one for each process. The result has the same bytes for any number of processes.
    """
    checkpoint_steps: int = 500
    """Steps between checkpoints within an epoch; every epoch ends with one."""

    def __post_init__(self) -> None:
        for key, lowest in (
            ("epochs", 1),
            ("batch_size", 1),
            ("negatives", 1),
            ("micro_batches", 1),
            ("checkpoint_steps", 1),
        ):
            if getattr(self, key) < lowest:
                raise ConfigError(f"train.{key} is {getattr(self, key)}; it is at least {lowest}.")
        for key in ("lr", "decay"):
            if not getattr(self, key) > 0:
                raise ConfigError(f"train.{key} is {getattr(self, key)}; it has to be positive.")
        for key in ("weight_decay", "warmup_steps", "clip_norm", "patience", "average_last", "valid_facts"):
            if getattr(self, key) < 0:
                raise ConfigError(f"train.{key} is {getattr(self, key)}; it cannot be negative.")
        if self.edge_dropout is not None and not 0 <= self.edge_dropout < 1:
            raise ConfigError(f"train.edge_dropout is {self.edge_dropout}; it has to lie in [0, 1).")
        choices = {
            "optimizer": ("adamw", "adam"),
            "schedule": ("cosine", "exponential"),
            "loss": ("softmax", "bce"),
            "queries": ("all", "train", "valid"),
        }
        for key, allowed in choices.items():
            if getattr(self, key) not in allowed:
                raise ConfigError(
                    f"train.{key} is {getattr(self, key)!r}; it is one of {', '.join(allowed)}."
                )
