"""Equal scores end at the label, whoever else is asked about in the same batch."""

from __future__ import annotations

import random

import contextpool as cp

FACTS = [
    *((f"x{k}", "s", "b") for k in range(30)),
    *(("a", "r", f"x{k}") for k in range(3)),
    ("c", "r", "d"),
    ("c", "r", "e"),
]


def test_who_else_is_in_the_batch_does_not_change_the_order_of_ties() -> None:
    graph, predictor, rng = cp.Graph.from_triples(FACTS), cp.load(), random.Random(23)
    alone = [(one.entity, one.score) for one in predictor.predict(graph, "c", "r", k=40, known=True)]
    scores = [score for _, score in alone]
    assert len(set(scores)) < len(scores)  # there are ties
    assert alone == sorted(alone, key=lambda one: (-one[1], one[0]))
    for _ in range(8):
        others = [(rng.choice(graph.entities), rng.choice("rs")) for _ in range(rng.randrange(1, 40))]
        place = rng.randrange(len(others) + 1)
        batch = predictor.predict_batch(
            graph, [*others[:place], ("c", "r"), *others[place:]], k=40, known=True
        )
        assert [one.entity for one in list(batch)[place]] == [entity for entity, _ in alone]
