"""Do explanations on the half of the world that was not trained on tell what the model does? For docs/explain.md.

    python -m lab.world_explanations [--run RUN] [--seed 0] [--facts 668]

Every held-out fact is explained; the edges of its first path are taken out, and as many random ones instead.
"""

from __future__ import annotations

import argparse

import numpy as np

from contextpool.graph.graph import Graph
from contextpool.triples.catalog import load_dataset
from lab.faithful import faithfulness
from lab.world_hits import trained


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", help="a run folder, such as runs/demo")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--facts", type=int, default=668)
    options = parser.parse_args()
    predictor, data = trained(options.run, options.seed), load_dataset("world")
    graph, _ = predictor.prepared(Graph.from_triples(data.inference_graph))
    facts = [
        (graph.entity_id(head), graph.relation_id(relation), graph.entity_id(tail))
        for head, relation, tail in list(data.evaluation_queries("P1"))[: options.facts]
    ]
    found = faithfulness(predictor.model, predictor.builder(graph), facts)
    print(f"{len(facts)} held-out facts, {len(found.path)} of them reached by a path")
    for name, values in (("first path", found.path), ("random edges", found.chance)):
        print(
            f"without the {name}: the score falls by {values.mean():.2f} on average, "
            f"{np.median(values):.2f} in the median"
        )
    share = found.wins / len(found.path)
    print(
        f"the path costs more in {found.wins} ({share:.1%}), less in {found.losses}; sign test p = {found.p_value:.1e}"
    )


if __name__ == "__main__":
    main()
