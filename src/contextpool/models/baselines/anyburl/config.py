"""Settings of AnyBURL."""

from __future__ import annotations

from dataclasses import dataclass

from contextpool.errors import ConfigError
from contextpool.models.rules import MAX_LENGTH


@dataclass(frozen=True)
class AnyBURLConfig:
    """Settings of AnyBURL; the defaults are those of its published program where it has them."""

    length: int = 3
    """Atoms in the body of a cyclic rule, at the most."""
    constants: bool = True
    """Learn rules with constants, too; they say nothing about a graph of other entities."""
    constant_length: int = 1
    """Atoms in the body of a rule with constants, at the most."""
    seconds: float = 30.0
    """How long to learn; 0 for no limit. Rounds are not broken off, so it may take a little longer."""
    paths: int = 0
    """How many paths to sample; 0 for no limit. With this limit alone, a seed gives the same rules every time."""
    snapshots: tuple[int, ...] = ()
    """Seconds after which the rules found so far are evaluated on the selection queries, besides at the end."""
    round_paths: int = 50_000
    """Paths between two looks at the clock and at what kinds of rules are worth it."""
    min_support: int = 2
    """True predictions that a rule needs."""
    min_confidence: float = 0.001
    """Confidence that a rule needs."""
    pessimism: float = 5.0
    """False predictions that every rule is charged beforehand."""
    open_weight: float = 0.1
    """Factor of the confidence of rules with a constant whose body ends anywhere."""
    empty_weight: float = 0.01
    """Factor of the confidence of rules without a body."""
    predictions: int = 5_000
    """Predictions after which counting a rule stops."""
    steps: int = 200_000
    """Edges after which counting a rule stops."""

    def __post_init__(self) -> None:
        for key in ("length", "constant_length"):
            if not 1 <= getattr(self, key) <= MAX_LENGTH:
                raise ConfigError(f"model.{key} is {getattr(self, key)}; it lies in 1 to {MAX_LENGTH}.")
        for key in ("round_paths", "min_support", "predictions", "steps"):
            if getattr(self, key) < 1:
                raise ConfigError(f"model.{key} is {getattr(self, key)}; it is at least 1.")
        for key in ("seconds", "paths", "pessimism"):
            if not getattr(self, key) >= 0:
                raise ConfigError(f"model.{key} is {getattr(self, key)}; it cannot be negative.")
        for key in ("min_confidence", "open_weight", "empty_weight"):
            if not 0 <= getattr(self, key) <= 1:
                raise ConfigError(f"model.{key} is {getattr(self, key)}; it has to lie in [0, 1].")
        if not (self.seconds or self.paths):
            raise ConfigError("model.seconds and model.paths are both 0; learning has to end some time.")
        if any(at < 1 for at in self.snapshots) or list(self.snapshots) != sorted(set(self.snapshots)):
            raise ConfigError(f"model.snapshots is {self.snapshots}; it is ascending seconds, 1 or more.")

    @property
    def longest(self) -> int:
        return max(self.length, self.constant_length) if self.constants else self.length
