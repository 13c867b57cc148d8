"""What the page shows: the models and graphs there are, and the query-specific graph under any thresholds.

Which facts of that graph (Algorithm 2) are shown does not depend on the thresholds, so that a picture stays where it
is while they move: those of the entity asked about, those between entities shown, and a few more of each entity in
focus. What the thresholds decide is which of them are walked, and at which hop first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from contextpool.context.config import ViewConfig
from contextpool.context.neighbors import ContextNeighbors, MaskSelector, RelationSelector
from contextpool.context.relevance import neighborhood_precision, neighborhood_recall
from contextpool.explain.explainer import facts_of, forward_edges, pool_one, statistics_of
from contextpool.graph.mapped import MappedGraph
from contextpool.pool.expand import PooledBatch
from contextpool.predict.asking import Asking
from contextpool.serve.registry import Engine, LoadedGraph, LoadedModel, Snapshot

FACTS_OF_THE_HEAD = 36
FACTS_OF_A_FOCUS = 5


@dataclass(frozen=True)
class PoolQuestion:
    """A question for a pooled graph, by id."""

    head: int
    relation: int
    tail: int
    """-1 for none; where the graph holds the fact it is hidden, as for an explanation."""
    min_precision: float
    min_recall: float
    hops: int
    focus: tuple[int, ...]
    """Entities that the picture shows anyway."""
    limit: int
    """Facts to show at the most."""


def pooled_view(asking: Asking, question: PoolQuestion) -> dict[str, Any]:
    """Counts by hop, the facts to show with the hop at which they are first walked, and the context."""
    return _View(asking, question).to_dict()


class _View:
    def __init__(self, asking: Asking, question: PoolQuestion) -> None:
        self.question, self.graph = question, asking.graph
        asked = (question.head, question.relation, question.tail)
        found = None if question.tail < 0 else self.graph.find_edge(*asked)
        self.hidden = -1 if found is None else found
        builder = asking.builder
        self.counts = (builder.statistics or statistics_of(self.graph)).counts
        policy = "exclude" if builder.context is None else builder.context.self_policy
        self.neighbors = ContextNeighbors(self.counts, question.min_precision, question.min_recall, policy)

    def to_dict(self) -> dict[str, Any]:
        everything = MaskSelector.everything(self.graph.relation_vocabulary)
        kept, reached = (self._walk(selector).hops for selector in (self.neighbors, everything))
        first: dict[int, int] = {}  # by forward edge, the hop at which a fact is first walked, either way
        for hop, edges in enumerate(kept, start=1):
            for edge in forward_edges(self.graph, edges.edge.long()).tolist():
                first.setdefault(edge, hop)
        facts = [(self.graph.edge_label(edge), first.get(edge)) for edge in self._shown()]
        return {
            "hops": [
                {"hop": hop, "kept": len(one), "reached": len(other)}
                for hop, (one, other) in enumerate(zip(kept, reached, strict=True), start=1)
            ],
            "facts": [
                {"head": head, "relation": relation, "tail": tail, "hop": hop}
                for (head, relation, tail), hop in facts
            ],
            "context": self._context(),
        }

    def _walk(self, selector: RelationSelector) -> PooledBatch:
        asked = self.question
        return pool_one(self.graph, selector, asked.head, asked.relation, asked.hops, self.hidden)

    def _shown(self) -> list[int]:
        """Forward edges of the facts to show, the most important first."""
        head, focus = self.question.head, self.question.focus
        around = self._some_of(head, FACTS_OF_THE_HEAD)
        around += [edge for entity in focus for edge in self._some_of(entity, FACTS_OF_A_FOCUS)]
        ends = torch.cat([self.graph.edge_head[around], self.graph.edge_tail[around]]).tolist()
        between = self._between(sorted({*focus, head}), {*ends, *focus})
        return list(dict.fromkeys([*between, *around]))[: self.question.limit]

    def _some_of(self, entity: int, most: int) -> list[int]:
        """Up to `most` facts of an entity: one of each relation, then a second of each, and so on."""
        start, end = int(self.graph.row_start[entity]), int(self.graph.row_start[entity + 1])
        turns: list[tuple[int, int]] = []
        seen: dict[int, int] = {}
        for edge, relation in enumerate(self.graph.edge_relation[start:end].tolist(), start=start):
            turns.append((seen.get(relation, 0), edge))
            seen[relation] = seen.get(relation, 0) + 1
        return [self._forward(edge) for _, edge in sorted(turns) if not self._is_hidden(edge)][:most]

    def _between(self, entities: Iterable[int], shown: set[int]) -> Iterator[int]:
        """Facts that lead from one of the entities to one that is shown."""
        for entity in entities:
            start, end = int(self.graph.row_start[entity]), int(self.graph.row_start[entity + 1])
            for edge, other in enumerate(self.graph.edge_tail[start:end].tolist(), start=start):
                if other in shown and not self._is_hidden(edge):
                    yield self._forward(edge)

    def _forward(self, edge: int) -> int:
        """The edge of the same fact that is walked in its own direction."""
        onwards = int(self.graph.edge_relation[edge]) < self.graph.num_relations
        return edge if onwards else int(self.graph.edge_inverse[edge])

    def _is_hidden(self, edge: int) -> bool:
        return self.hidden >= 0 and self._forward(edge) == self._forward(self.hidden)

    def _context(self) -> list[dict[str, Any]]:
        """Every relation that occurs together with the one asked for: by precision, then recall, then label."""
        asked = self.question.relation
        precision = neighborhood_precision(self.counts)[asked]
        recall = neighborhood_recall(self.counts)[asked]
        labels = self.graph.relation_vocabulary.directed
        facts = facts_of(self.graph, self.question.head, asked, self.hidden)
        rows = [
            {
                "relation": label,
                "precision": float(precision[place]),
                "recall": float(recall[place]),
                "facts": int(facts[place]),
                "kept": bool(self.neighbors.mask[asked, place]),
            }
            for place, label in enumerate(labels)
            if precision[place] > 0
        ]
        return sorted(rows, key=lambda row: (-row["precision"], -row["recall"], row["relation"]))


def model_row(model: LoadedModel) -> dict[str, Any]:
    """A model with the thresholds and hops that it pools with, or the defaults where it does not pool."""
    context = model.predictor.context
    view = context.views[0] if context is not None and context.views else ViewConfig()
    return {
        "name": model.name,
        "fingerprint": model.fingerprint,
        "kind": type(model.predictor.model).__name__,
        "relations": None if model.predictor.relations is None else model.predictor.relations.num_relations,
        "calibrated": model.predictor.calibration is not None,
        "min_precision": view.min_precision,
        "min_recall": view.min_recall,
        "hops": 3 if context is None else context.hops,
        "pools": context is not None and bool(context.views),
        "loaded_at": model.loaded_at,
    }


def graph_row(graph: LoadedGraph, snapshot: Snapshot) -> dict[str, Any]:
    fitting = [name for name in snapshot.models if isinstance(snapshot.engines[name, graph.name], Engine)]
    return {
        "name": graph.name,
        "entities": graph.graph.num_entities,
        "relations": graph.graph.num_relations,
        "facts": graph.graph.num_triples,
        "models": fitting,
    }


def example_rows(engine: Engine) -> list[dict[str, Any]]:
    """The examples of an engine, with names where there are some."""
    graph, names = engine.asking.graph, engine.asking.names
    directed = engine.asking.predictor.relations_for(graph).directed
    return [
        {
            "head": graph.entities[entity],
            "relation": directed[relation],
            "head_name": names.name(graph.entities[entity]),
            "relation_name": names.name(directed[relation]),
        }
        for entity, relation in engine.examples
    ]


def relation_rows(engine: Engine) -> list[dict[str, Any]]:
    """The forward relations of the model by label; each can also be asked as `r^-1`."""
    graph = engine.asking.graph
    if isinstance(graph, MappedGraph):
        facts = graph.triples_of_relation
    else:
        counted = torch.bincount(graph.edge_relation.long(), minlength=2 * graph.num_relations).tolist()
        facts = dict(zip(graph.relations, counted, strict=False))
    return [
        {"relation": label, **_name(engine.asking.names.name(label)), "facts": facts[label]}
        for label in graph.relations
    ]


def entity_rows(graph: LoadedGraph, prefix: str, limit: int) -> tuple[list[dict[str, Any]], bool]:
    """Entities that match, each with its number of facts; and whether there are more."""
    labels, more = graph.completions.starting_with(prefix, limit)
    start, index, names = graph.graph.row_start, graph.graph.entity_vocabulary.index, graph.names
    rows = [
        {
            "entity": label,
            **_name(names.name(label)),
            "facts": int(start[index[label] + 1] - start[index[label]]),
        }
        for label in labels
    ]
    return rows, more


def names_in(engine: Engine, view: dict[str, Any]) -> dict[str, str]:
    """The known names of the labels that occur in a pooled graph."""
    labels = {one[place] for one in view["facts"] for place in ("head", "relation", "tail")}
    labels |= {row["relation"] for row in view["context"]}
    named = {label: engine.asking.names.name(label) for label in sorted(labels)}
    return {label: name for label, name in named.items() if name is not None}


def _name(name: str | None) -> dict[str, str]:
    return {} if name is None else {"name": name}
