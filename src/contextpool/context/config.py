"""The settings of context: which views are walked, and where relevance is used."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

from contextpool.context.neighbors import SelfPolicy
from contextpool.errors import ConfigError

RelevanceControl = Literal["none", "shuffled"]
Algorithm = Literal["neighbors", "families-precision", "families-recall"]


@dataclass(frozen=True)
class ViewConfig:
    """One context view: which relations a pooled stream may walk."""

    min_precision: float = 0.1
    """Precision a neighbor has to exceed."""
    min_recall: float = 0.0
    """Recall a neighbor has to exceed."""
    algorithm: Algorithm = "neighbors"
    """Algorithm 3 ("neighbors", both thresholds at once) or Algorithm 1 by one measure. Algorithm 1 is trained only
    where no training query is a fact of the graph, as with train.queries = "train".
    """
    sizes: tuple[int, ...] = (1, 2, 3, 4, 5)
    """Sizes of the relation sets of Algorithm 1."""

    def __post_init__(self) -> None:
        if self.algorithm not in ("neighbors", "families-precision", "families-recall"):
            raise ConfigError(
                f"context.views.algorithm is {self.algorithm!r}; see ViewConfig for the choices."
            )
        for key in ("min_precision", "min_recall"):
            if not 0 <= getattr(self, key) < 1:
                raise ConfigError(f"context.views.{key} is {getattr(self, key)}; it has to lie in [0, 1).")


@dataclass(frozen=True)
class ContextConfig:
    """How context is used: walk (pooled streams), gate (soft message weights), arrive (candidate relevance).

    The defaults are what has been shown to help: gate, and arrive with features and walk mass. `PRESETS` has
    the paper's form.
    """

    views: tuple[ViewConfig, ...] = ()
    """One pooled stream each."""
    hops: int = 3
    """How far the pooled graph reaches."""
    self_policy: SelfPolicy = "exclude"
    """Whether a relation may be its own neighbor."""
    gate: bool = True
    """Weigh messages by the relevance of their relation to the query relation."""
    arrive: bool = True
    """Score candidates by how much they look like something the query relation points to."""
    arrive_features: bool = True
    """With arrive: also by seven features of each candidate, through a small network."""
    arrive_walk: bool = True
    """Also score candidates by how often a random walk from the head visits them."""
    relevance_control: RelevanceControl = "none"
    """A control for gate and arrive: "shuffled" gives every neighbor the relevance of another one."""
    control_seed: int = 0
    """The seed of the shuffled control."""

    def __post_init__(self) -> None:
        if self.hops < 1:
            raise ConfigError(f"context.hops is {self.hops}; a walk has at least one hop.")
        if self.relevance_control not in get_args(RelevanceControl):
            raise ConfigError(
                f"context.relevance_control is {self.relevance_control!r}; it is one of "
                f"{', '.join(get_args(RelevanceControl))}."
            )

    @property
    def num_views(self) -> int:
        return len(self.views)

    def described(self) -> str:
        """What is used of it, in words."""
        used = {
            f"{self.num_views} pooled views": self.num_views > 0,
            "gated messages": self.gate,
            "candidate relevance": self.arrive,
            "candidate features": self.arrive and self.arrive_features,
            "walk mass": self.arrive_walk,
        }
        return ", ".join(name for name, is_used in used.items() if is_used) or "counted, not used"

    @property
    def has_families(self) -> bool:
        """Whether a view is one of Algorithm 1."""
        return any(view.algorithm != "neighbors" for view in self.views)

    def check_training(self, num_own_facts: int, where: str) -> None:
        """Refuse Algorithm 1 where training queries are facts of the graph that the families are mined on.

        A query's own fact would count in its families, and which of them it falls into would tell the answer.
        """
        if num_own_facts and self.has_families:
            raise ConfigError(
                f"{where}: context.views has a view of Algorithm 1 (families), and {num_own_facts:,} training queries "
                "are facts of the training graph. Each would be counted in the families that it is answered with, "
                "which gives its answer away. Train on queries that are no facts of the graph "
                '(train.queries = "train" where the dataset has facts.txt and train.txt, or "valid"), or use '
                'algorithm = "neighbors" (Algorithm 3), which is corrected for the hidden fact.'
            )

    @property
    def default_edge_dropout(self) -> float:
        """The default of train.edge_dropout: relevance and walk mass help more where some facts are unseen."""
        return 0.2 if self.gate or self.arrive or self.arrive_walk else 0.0


NO_CONTEXT = ContextConfig(gate=False, arrive=False, arrive_features=False, arrive_walk=False)
"""Nothing of context is used."""
PRESETS = {
    "default": ContextConfig(),
    "paper": replace(
        NO_CONTEXT, views=(ViewConfig(min_precision=0.1), ViewConfig(min_precision=0.0, min_recall=0.1))
    ),
}
"""By name. The paper's form has pooled streams alone, one by precision and one by recall."""
