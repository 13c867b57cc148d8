"""What every model is: a module that takes a batch of queries and gives scores for every entity."""

from __future__ import annotations

from dataclasses import asdict
from itertools import pairwise
from typing import Any, ClassVar, Self

from torch import Tensor, nn

from contextpool.graph.graph import Graph
from contextpool.pool.batch import ContextConfig, QueryBatch


class LinkPredictor(nn.Module):
    """(queries with their propagation and context) -> scores [B, N]. Knows relations, never entities."""

    name: ClassVar[str]
    config_class: ClassVar[type]
    """A frozen dataclass of the model's own settings."""
    num_layers: int
    settings: Any

    def __init__(self, num_relations: int, config: Any = None, context: ContextConfig | None = None) -> None:
        """`num_relations` is R, `config` an instance of `config_class`; without context it is the plain model."""
        super().__init__()
        self.num_relations = num_relations
        self.settings = config if config is not None else self.config_class()

    @classmethod
    def for_graph(cls, graph: Graph, config: Any = None, context: ContextConfig | None = None) -> Self:
        """A new model for a training graph; override where it needs more of the graph than its relations."""
        return cls(graph.num_relations, config, context)

    def forward(self, batch: QueryBatch) -> Tensor:
        """Scores [B, N], finite, higher is better."""
        raise NotImplementedError

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


def multi_layer_perceptron(sizes: list[int]) -> nn.Sequential:
    """Linear layers of these sizes with ReLU between them."""
    layers: list[nn.Module] = []
    for number, (size_in, size_out) in enumerate(pairwise(sizes)):
        layers += [nn.ReLU()] * (number > 0) + [nn.Linear(size_in, size_out)]
    return nn.Sequential(*layers)
