"""What there is, as rows: models, graphs, relations, entities, and the names of labels."""

from __future__ import annotations

from typing import Any

import torch

from contextpool.pool.batch import ViewConfig
from contextpool.predict.names import NO_NAMES
from contextpool.serve.engine import Engine, LoadedGraph, LoadedModel
from contextpool.serve.registry import Snapshot


def model_row(model: LoadedModel) -> dict[str, Any]:
    """With the thresholds and hops that it pools with, or the usual ones where it does not."""
    context = model.predictor.context
    view = context.views[0] if context is not None and context.views else ViewConfig()
    return {
        "name": model.name,
        "fingerprint": model.fingerprint,
        "kind": type(model.predictor.model).__name__,
        "relations": model.predictor.relations.num_relations,
        "calibrated": model.predictor.calibration is not None,
        "min_precision": view.min_precision,
        "min_recall": view.min_recall,
        "hops": 3 if context is None else context.hops,
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


def relation_rows(engine: Engine) -> list[dict[str, Any]]:
    """The forward relations of the model by label; each can also be asked as `r^-1`."""
    graph = engine.prepared
    facts = torch.bincount(graph.edge_relation.long(), minlength=2 * graph.num_relations).tolist()
    return [
        {"relation": label, **_name(engine.names.name(label)), "facts": facts[place]}
        for place, label in enumerate(graph.relations)
    ]


def entity_rows(graph: LoadedGraph, prefix: str, limit: int) -> tuple[list[dict[str, Any]], bool]:
    """With how many facts each has a part in."""
    labels, more = graph.completions.starting_with(prefix, limit)
    start, index, names = graph.graph.row_start, graph.graph.entity_vocabulary.index, graph.names or NO_NAMES
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
    """What people call the labels that occur in a pooled graph, as far as known."""
    labels = {one[place] for one in view["facts"] for place in ("head", "relation", "tail")}
    labels |= {row["relation"] for row in view["context"]}
    named = {label: engine.names.name(label) for label in sorted(labels)}
    return {label: name for label, name in named.items() if name is not None}


def _name(name: str | None) -> dict[str, str]:
    return {} if name is None else {"name": name}
