"""What every model is: a module that takes a batch of queries and gives scores for every entity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, ClassVar, Self

from torch import Tensor, nn

from contextpool.context.config import ContextConfig
from contextpool.context.counts import Statistics
from contextpool.errors import ConfigError, spoken
from contextpool.graph.graph import Graph
from contextpool.graph.relations import RelationVocabulary
from contextpool.models.streams import ContextStreams
from contextpool.pool.batch import BatchBuilder, QueryBatch


@dataclass(frozen=True)
class Learning:
    """How far `LinkPredictor.learn` has come."""

    done: float
    """Share of what it was given, in [0, 1]."""
    seconds_left: float
    """At the most."""
    figures: Mapping[str, int]
    """What was found so far, such as the number of rules; the same for the same seed."""


class LinkPredictor(nn.Module):
    """(queries with their propagation and context) -> scores [B, N]. Knows relations, never entities."""

    name: ClassVar[str]
    config_class: ClassVar[type]
    """A frozen dataclass of the model's own settings."""
    sized_by_weights: ClassVar[bool] = False
    """Whether stored weights may have other shapes than those of a new model, as rules do, of which there may be any
    number.
    """
    takes_context: ClassVar[bool] = True
    """Whether the model can be built with context."""
    any_relation: ClassVar[bool] = False
    """Whether it answers about relations that it was not trained on: no weight belongs to one."""
    keeps_relations: ClassVar[bool] = True
    """Whether a run keeps the relations of its training graph, and their counts."""
    own_context: ClassVar[ContextConfig | None] = None
    """The context of a model that takes this one and no other."""
    num_layers: int
    settings: Any

    def __init__(self, num_relations: int, config: Any = None, context: ContextConfig | None = None) -> None:
        """`num_relations` is R, `config` an instance of `config_class`; without context it is the plain model."""
        super().__init__()
        self.check_context(context)
        self.num_relations = num_relations
        self.settings = config if config is not None else self.config_class()

    @classmethod
    def check_context(cls, context: ContextConfig | None) -> None:
        """Refuse context where the model takes none."""
        if context is not None and not cls.takes_context:
            raise ConfigError(
                f"context: {cls.name} takes none. Leave it out ({spoken('context=False', '--plain')})."
            )

    @classmethod
    def for_graph(cls, graph: Graph, config: Any = None, context: ContextConfig | None = None) -> Self:
        """A new model for a training graph; override where it needs more of the graph than its relations."""
        return cls(graph.num_relations, config, context)

    def learn(self, graph: Graph, seed: int = 0) -> Iterator[Learning]:
        """Learn from the training graph without gradients, as rule learners do; most models learn nothing this way.

        Says how far it is as it goes; at the last word the model answers with all it found. All randomness comes from
        the seed.
        """
        yield from ()

    def rules_text(self, relations: RelationVocabulary) -> Iterator[str]:
        """The rules that the model goes by, one a line, for people to read; most models have none."""
        yield from ()

    def forward(self, batch: QueryBatch) -> Tensor:
        """Scores [B, N], finite, higher is better."""
        raise NotImplementedError

    def scores_of(self, batch: QueryBatch, candidates: Tensor) -> Tensor:
        """Scores [B, C] of the entities [B, C] alone, as in `forward`; override where the others cost something."""
        scores: Tensor = self(batch)
        return scores.gather(1, candidates)

    def gates(self, batch: QueryBatch) -> Tensor | None:
        """[B, 2R] what messages are multiplied with, by the relation they travel along; None without gate."""
        context = getattr(self, "context", None)
        return context.gate_table(batch) if isinstance(context, ContextStreams) else None

    @property
    def reads_relations(self) -> bool:
        """Whether batches have to hold the relevance of all relations to one another (`relation_graph`)."""
        return False

    @property
    def reads_pairs(self) -> bool:
        """Whether batches have to hold what pairs of entities say of relations (`pairs`)."""
        return False

    def builder(
        self, graph: Graph, context: ContextConfig | None, statistics: Statistics | None
    ) -> BatchBuilder:
        """What makes batches over a graph that hold what the model reads, and no more."""
        related, pairs = self.reads_relations, self.reads_pairs
        return BatchBuilder(graph, self.num_layers, context, statistics, relation_graph=related, pairs=pairs)

    def allow_reflexive(self, relation: Tensor) -> None:
        """Called with the directed relations [K] of training queries that lead back to their head; most ignore it."""

    @property
    def takes_padding(self) -> bool:
        """Whether batches may have room for more nodes than there are (`LaunchPlan`)."""
        return False

    def config(self) -> dict[str, Any]:
        """What to build the same model from, as JSON can hold it."""
        return asdict(self.settings)


def scatter_scores(batch: QueryBatch, node_score: Tensor, unreached: Tensor) -> Tensor:
    """[B, N] from scores of the reached nodes [M]; the entities a query did not reach tie at `unreached` [B]."""
    walk = batch.propagation
    scores = unreached[:, None].expand(-1, walk.num_entities)
    place = walk.node_query * walk.num_entities + walk.node_entity
    return scores.reshape(-1).scatter(0, place, node_score).view(walk.num_queries, walk.num_entities)


def padded(state: Tensor, num_rows: int) -> Tensor:
    """The state with rows of zeros for the nodes that are reached only now."""
    return state if len(state) == num_rows else nn.functional.pad(state, (0, 0, 0, num_rows - len(state)))


def where_real(values: Tensor, is_real: Tensor | None) -> Tensor:
    """Values [M, D] of nodes, zero for those that are only room (`Hop.is_target`)."""
    return values if is_real is None else values.masked_fill(~is_real, 0.0)


def multi_layer_perceptron(sizes: list[int]) -> nn.Sequential:
    """Linear layers of these sizes with ReLU between them."""
    layers: list[nn.Module] = []
    for number, (size_in, size_out) in enumerate(pairwise(sizes)):
        layers += [nn.ReLU()] * (number > 0) + [nn.Linear(size_in, size_out)]
    return nn.Sequential(*layers)
