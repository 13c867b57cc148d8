"""The paper's Table 3 (context neighbors on FB15k-237-V4) against exact counts.

docs/lab/case-study.md tells the story."""

from __future__ import annotations

import pytest

from contextpool.context.neighbors import ContextNeighbors, mine_context
from contextpool.graph.graph import Graph, read_graph
from support import benchmark_folder

AWARD_WINNER = "/award/award_category/winners./award/award_honor/award_winner"
LANGUAGE = "/film/film/language"
CONTAINS = "/location/location/contains"

# Neighbors the paper prints, with the place they take in our exact ranking by that measure.
BY_PRECISION = {
    AWARD_WINNER: {
        "/award/award_category/winners./award/award_honor/ceremony": 1,
        "/award/award_category/category_of": 2,
        "/award/award_nominee/award_nominations./award/award_nomination/award^-1": 3,
        "/award/award_winning_work/awards_won./award/award_honor/award^-1": 4,
    },
    LANGUAGE: {
        "/film/film/film_art_direction_by": 2,
        # Printed without ^-1; as a film is what gets nominated, only the inverse can leave it.
        "/award/award_nominee/award_nominations./award/award_nomination/nominated_for^-1": 33,
    },
    CONTAINS: {
        "/location/country/second_level_divisions": 5,
        "/location/location/partially_contains": 10,
        "/base/biblioness/bibs_location/country^-1": 12,
    },
}
BY_RECALL = {
    AWARD_WINNER: {
        "/award/award_category/winners./award/award_honor/ceremony": 2,
        "/award/award_category/nominees./award/award_nomination/nominated_for": 3,
        "/award/award_category/category_of": 5,
    },
    LANGUAGE: {
        "/film/film/genre": 1,
        "/film/actor/film./film/performance/film^-1": 2,
        "/film/film/estimated_budget./measurement_unit/dated_money_value/currency": 4,
        "/award/award_nominee/award_nominations./award/award_nomination/nominated_for^-1": 5,
        "/film/film/release_date_s./film/film_regional_release_date/film_release_region": 10,
    },
    CONTAINS: {
        "/people/person/places_lived./people/place_lived/location^-1": 2,
        "/location/location/contains^-1": 4,
        "/location/location/time_zones": 5,
        # The paper's list is "representative": by recall this one is far down (.079), by precision high (.688).
        "/film/film/country^-1": 33,
    },
}


@pytest.fixture(scope="module")
def context() -> ContextNeighbors:
    return mine_context(
        read_graph(benchmark_folder() / "grail" / "fb237_v4" / "train.txt"), min_precision=0.0
    )


@pytest.mark.parametrize(("measure", "printed"), [("precision", BY_PRECISION), ("recall", BY_RECALL)])
def test_neighbors_that_the_paper_prints_stand_where_we_say(context, measure, printed):
    for query, places in printed.items():
        ranking = [context.relations.directed[n] for n in context.ranked_neighbors(query, by=measure)]
        assert {neighbor: ranking.index(neighbor) + 1 for neighbor in places} == places


def test_award_winner_by_precision_is_exactly_the_papers_list(context):
    assert set(context.neighbors(AWARD_WINNER)[:4]) == set(BY_PRECISION[AWARD_WINNER])


def test_every_printed_neighbor_exceeds_the_default_threshold_of_its_measure(context):
    for query, places in BY_PRECISION.items():
        assert all(context.precision(query, neighbor) > 0.1 for neighbor in places)
    for query, places in BY_RECALL.items():
        below = [neighbor for neighbor in places if context.recall(query, neighbor) <= 0.1]
        assert below == (["/film/film/country^-1"] if query == CONTAINS else [])


def test_one_relation_per_pair_would_move_the_printed_neighbors_by_at_most_five_places(context):
    """What the published code loses does not explain where the paper's lists differ from ours."""
    raw = (benchmark_folder() / "grail" / "fb237_v4" / "train.txt").read_text("utf-8").splitlines()
    last = {(head, tail): relation for head, relation, tail in (line.split("\t") for line in raw)}
    graph = Graph.from_triples((head, relation, tail) for (head, tail), relation in last.items())
    assert graph.num_triples < len(raw)
    lossy = mine_context(graph, min_precision=0.0)
    moved = []
    for measure, printed in (("precision", BY_PRECISION), ("recall", BY_RECALL)):
        for query, places in printed.items():
            ranking = [lossy.relations.directed[n] for n in lossy.ranked_neighbors(query, by=measure)]
            moved += [abs(ranking.index(neighbor) + 1 - place) for neighbor, place in places.items()]
    assert max(moved) == 5
