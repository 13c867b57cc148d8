"""Settings of a training run."""

from __future__ import annotations

import fnmatch
import math
from dataclasses import dataclass
from typing import Literal

from contextpool.errors import ConfigError
from contextpool.train.loss import Loss


@dataclass(frozen=True)
class TrainConfig:
    """How a model is trained."""

    epochs: int = 20
    """How often every training query is asked, at the most."""
    epoch_steps: int = 0
    """Steps of an epoch, after which the model is validated; 0 for as many as ask every training query once."""
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
    test_facts: int = 0
    """Evaluate at the end on so many of the facts held out for that, the same ones every time; 0 for all."""
    refit: bool = False
    """Whether the selected model, once evaluated, is trained on with every fact of the one graph that was split."""
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

    def epoch_length(self, num_queries: int) -> int:
        """Steps of an epoch: those that ask every query once, or `epoch_steps` where that is fewer."""
        whole = math.ceil(num_queries / self.batch_size)
        return min(whole, self.epoch_steps) if self.epoch_steps else whole

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
        for key in (
            "weight_decay",
            "warmup_steps",
            "clip_norm",
            "patience",
            "average_last",
            "valid_facts",
            "test_facts",
            "epoch_steps",
        ):
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


@dataclass(frozen=True)
class MixedGraph:
    """One graph of a mixture."""

    name: str
    """A file, a folder whose train.txt is meant, or a name of the catalog."""
    share: float = 1.0
    """How much more often than by its size it is drawn."""

    def __post_init__(self) -> None:
        if not (self.share > 0 and math.isfinite(self.share)):
            raise ConfigError(f"mixture.graphs: the share of {self.name!r} is {self.share}; it is positive.")


@dataclass(frozen=True)
class MixtureConfig:
    """Graphs to train one model on, and how often each of them is asked how much."""

    graphs: tuple[MixedGraph, ...] = ()
    without: tuple[str, ...] = ()
    """Patterns of names of graphs to leave out, such as grail/nell_*."""
    power: float = 0.5
    """A step draws a graph with a probability ~ share * facts ** power."""
    steps: int = 8000
    work: int = 1_200_000
    """Edges walked in a step, about: larger graphs ask fewer queries. 0: always `train.batch_size` of them."""
    edge_dropout: tuple[float, float] = (0.0, 0.7)
    """Lowest and highest share of the facts that the queries of a step do not see; drawn anew for each step."""

    def __post_init__(self) -> None:
        for key, lowest in (("steps", 1), ("work", 0), ("power", 0)):
            if not getattr(self, key) >= lowest:
                raise ConfigError(f"mixture.{key} is {getattr(self, key)}; it is at least {lowest}.")
        low, high = self.edge_dropout
        if not 0 <= low <= high < 1:
            raise ConfigError(
                f"mixture.edge_dropout is {list(self.edge_dropout)}; it is the lowest and the highest share, in [0, 1)."
            )
        names = [graph.name for graph in self.graphs]
        if not names:
            raise ConfigError(
                'mixture.graphs is empty; list at least one: graphs = ["world", "my/graph.tsv"].'
            )
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ConfigError(f"mixture.graphs lists {twice[0]!r} twice. Give it a larger share instead.")
        for pattern in self.without:
            if not any(fnmatch.fnmatchcase(name, pattern) for name in names):
                raise ConfigError(
                    f"mixture.without is {pattern!r}, which none of mixture.graphs is called. Leave it out."
                )
        if not self.used:
            raise ConfigError("mixture.without leaves no graph to train on. Leave fewer out.")

    @property
    def used(self) -> tuple[MixedGraph, ...]:
        """The graphs that are not left out."""
        return tuple(
            graph
            for graph in self.graphs
            if not any(fnmatch.fnmatchcase(graph.name, pattern) for pattern in self.without)
        )
