"""What a user writes, every call of the public surface once: read by mypy --strict, never run."""

from typing import reveal_type

import contextpool as cp
from contextpool.errors import ContextPoolError

dataset = cp.load_dataset("world")
reveal_type(dataset)  # contextpool.triples.dataset.Dataset
reveal_type(dataset.audit().findings)  # tuple[contextpool.triples.audit_report.Finding, ...]
graph = cp.Graph.from_triples([("a", "r", "b")])
reveal_type(cp.read_graph("new.tsv"))  # contextpool.graph.graph.Graph
reveal_type(graph.num_triples)  # int
reveal_type(graph.entities)  # tuple[str, ...]

context = cp.mine_context(graph, min_precision=0.1, min_recall=0.0)
reveal_type(context.precision("r", "q"))  # float
reveal_type(context.neighbors("r"))  # list[str]
families = cp.mine_families(graph, measure="precision", threshold=0.1, sizes=range(1, 6))
reveal_type(len(families["r"]))  # int
pooled = cp.pool(graph, context, head="a", relation="r", hops=3, hide=[("a", "r", "b")])
reveal_type(pooled.hops)  # list[set[tuple[str, str, str]]]

predictor = cp.train(dataset, model="redgnn", context=True, seed=0, output="runs/x")
reveal_type(predictor)  # contextpool.predict.predictor.Predictor
reveal_type(cp.load("runs/x"))  # contextpool.predict.predictor.Predictor
answers = predictor.predict(graph, head="a", relation="r", k=10)
reveal_type(answers[0].score)  # float
reveal_type(answers[0].probability)  # float | None
why = predictor.explain(graph, head="a", relation="r", tail="b")
reveal_type(why)  # contextpool.explain.evidence.Explanation
reveal_type(why.paths[0].weight)  # float
report = cp.evaluate(predictor, dataset)
reveal_type(report.mrr)  # float
reveal_type(report.hits[1])  # float
reveal_type(cp.split(graph, inductive=True, seed=0))  # contextpool.triples.dataset.Dataset
reveal_type(cp.__version__)  # str


def asked(question: cp.Question) -> str | None:
    """Names of the surface are types, too."""
    try:
        return question.head
    except ContextPoolError:
        return None
