"""Where claims stand, against plain Python on the graph without them; swapped ends; the fit."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import torch

from contextpool.context.counts import Statistics
from contextpool.errors import DataError
from contextpool.evaluate.claims import (
    CENTRE,
    PULL,
    PULL_OF_FEW,
    READ,
    SCALE,
    START,
    Plausibility,
    fit_plausibility,
    fit_weights,
    standing_of,
    swapped_ends,
)
from contextpool.graph.graph import Graph
from contextpool.models.nbfnet import mean_log_degree, set_mean_log_degree
from learning_worlds import ask, families, graph_over, new_model, random_graph, without_fact
from learning_worlds import one_thread as one_thread
from support import amount, context_with

CONTEXT = context_with(views=(), gate=True, arrive=True, arrive_features=True, arrive_walk=True)
FAMILIES = Graph.from_triples(families(6))


def on(graph: Graph, name: str = "anygraph"):
    model = new_model(name, graph, CONTEXT if name == "anygraph" else None, seed=1)
    statistics = Statistics.of(graph)
    return model, model.builder(graph, CONTEXT if name == "anygraph" else None, statistics)


def slow_standing(graph: Graph, claim: tuple[int, int, int], hidden: int | None, model) -> list[float]:
    """Margin, share and place of the tail, on a graph that never held the hidden edge."""
    smaller = graph if hidden is None else without_fact(graph, hidden)
    set_mean_log_degree(smaller, mean_log_degree(graph))
    builder = model.builder(smaller, CONTEXT, Statistics.of(smaller))
    head, relation, tail = claim
    scores = ask(model, builder, torch.tensor([head]), torch.tensor([relation]))[0].double()
    known = {
        other for other in range(graph.num_entities) if smaller.find_edge(head, relation, other) is not None
    }
    others = [entity for entity in range(graph.num_entities) if entity not in known | {tail}]
    own, rest = float(scores[tail]), scores[others]
    better, equal = int((rest > own).sum()), int((rest == own).sum())
    total = torch.logsumexp(scores[[*others, tail]], 0)
    margin = own - float(rest.max()) if others else 0.0
    return [margin, own - float(total), float(np.log(1 + better + equal / 2))]


@pytest.mark.parametrize("swap", [False, True])
def test_a_claim_stands_as_on_the_graph_without_it(swap: bool) -> None:
    """A swapped claim stands as if it were in the graph in the place of its fact: without either."""
    for seed in range(amount(3, 60)):
        graph = random_graph(seed + 20)
        model, builder = on(graph)
        facts = graph.as_triples().ids
        place, claims = swapped_ends(graph, facts, np.random.default_rng(seed)) if swap else (None, facts)
        facts = facts if place is None else facts[place]
        if not len(facts):
            continue
        standing = standing_of(model, builder, claims, 4, instead_of=facts if swap else None)
        for number, (head, relation, tail) in enumerate(claims.tolist()):
            edge = graph.find_edge(*facts[number].tolist())
            both = ((head, relation, tail), (tail, relation + graph.num_relations, head))
            for way, claim in enumerate(both):
                expected = slow_standing(graph, claim, edge, model)
                assert standing.read[way, number, :3] == pytest.approx(expected, abs=1e-4)
                assert np.log(standing.rank[way, number]) == pytest.approx(expected[2])


def test_a_model_that_reads_no_relevance_is_told_of_it() -> None:
    plain, rich = (
        standing_of(*on(FAMILIES, name), FAMILIES.as_triples().ids[:9], 4) for name in ("nbfnet", "anygraph")
    )
    walk = [READ.index("walk"), READ.index("relevance")]
    assert np.allclose(plain.read[..., walk], rich.read[..., walk], atol=1e-5)


def test_the_better_way_comes_first_and_a_low_place_is_the_better_one() -> None:
    standing = standing_of(*on(FAMILIES), FAMILIES.as_triples().ids, 16)
    better, worse = standing.features[:, :5], standing.features[:, 5:]
    assert (better >= worse).all()
    assert np.allclose(better[:, 2], -np.log(standing.rank.min(axis=0)))


def test_one_end_is_swapped_for_another_of_the_relation() -> None:
    facts = FAMILIES.as_triples().ids
    place, swapped = swapped_ends(FAMILIES, facts, np.random.default_rng(0))
    assert len(place) > len(facts) * 0.9
    heads, tails = ({tuple(row) for row in facts[:, [1, side]].tolist()} for side in (0, 2))
    for (head, relation, tail), claim in zip(facts[place].tolist(), swapped.tolist(), strict=True):
        assert claim[1] == relation
        assert (claim[0] == head) != (claim[2] == tail)
        assert (relation, claim[0]) in heads
        assert (relation, claim[2]) in tails
        assert claim[0] != claim[2]
        assert FAMILIES.find_edge(*claim) is None


def test_a_relation_with_a_single_tail_gives_no_swapped_tail() -> None:
    graph = Graph.from_triples([(f"e{number}", "is", "thing") for number in range(9)])
    facts = graph.as_triples().ids
    assert len(swapped_ends(graph, facts, np.random.default_rng(0), share_of_tails=1.0)[0]) == 0
    assert fit_plausibility(*on(graph), facts, 4) == Plausibility(tuple(START.tolist()))


def slow_weights(facts: np.ndarray, swapped: np.ndarray) -> list[float]:
    """The same minimum by another method."""
    scaled = np.clip((np.concatenate([facts, swapped]) - CENTRE) / SCALE, -3, 3)
    features = np.append(scaled, np.ones((800, 1)), axis=1)
    sign = np.append(np.ones(400), -np.ones(400))

    def loss(weights: np.ndarray) -> float:
        pulled = (np.append(np.full(10, PULL + PULL_OF_FEW / 400), 1e-3) * (weights - START) ** 2).sum() / 2
        return float(np.logaddexp(0, -sign * (features @ weights)).sum() + pulled)

    return scipy.optimize.minimize(loss, START, method="BFGS").x.tolist()


def test_a_fit_tells_facts_from_swapped_ones() -> None:
    rng = np.random.default_rng(0)
    facts, swapped = rng.normal(size=(400, 10)), rng.normal(size=(400, 10))
    facts[:, 3] += 9.0
    fit = fit_weights(facts, swapped)
    assert fit.facts == 400
    assert (fit.probability(facts) > 0.5).mean() > 0.75
    assert (fit.probability(swapped) > 0.5).mean() < 0.25
    assert abs(fit.probability(np.concatenate([facts, swapped])).mean() - 0.5) < 0.02  # even odds
    few = fit_weights(facts[:1], swapped[:1])
    assert np.abs(np.array(few.weights[:-1]) - START[:-1]).max() < 0.05
    assert fit.weights == pytest.approx(slow_weights(facts, swapped), abs=0.02)


def test_a_stored_fit_is_checked() -> None:
    fit = Plausibility(tuple(START.tolist()), 7)
    assert Plausibility.from_dict(fit.to_dict()) == fit
    for wrong in (
        {},
        {"weights": [1.0], "facts": 1},
        {"weights": ["x"] * 11, "facts": 1},
        {"weights": [float("nan")] * 11, "facts": 1},
    ):
        with pytest.raises(DataError, match="plausibility"):
            Plausibility.from_dict(wrong)


def test_features_of_a_lonely_claim_are_finite() -> None:
    graph = graph_over([("a", "r", "b")], ["a", "b"], ["r"])
    standing = standing_of(*on(graph), graph.as_triples().ids, 4)
    assert np.isfinite(standing.features).all()
