"""Zero-shot figures: the family of a graph, where half of a link was seen, a table that marks what is not clean."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from contextpool.triples.store import Triples
from lab.zeroshot import (
    ANSWERS,
    HALF_LINKS,
    PAGERANK_STEPS,
    RESTART,
    answer_places,
    begins,
    family_of,
    half_links,
    mean_of_clean,
    pagerank_scorer,
    slices,
    table,
)


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("grail/fb237_v1", "Freebase"),
        ("pool/wikitopics-art/msg", "Wikidata"),
        ("pool/pediatypes-db2wd", "DBpedia"),
        ("pool/pediatypes-db2wd/msg", "Wikidata"),
        ("pool/pediatypes-en2de/msg", "DBpedia"),
        ("pool/nations", "small"),
    ],
)
def test_a_graph_is_of_the_family_that_its_name_says(name: str, family: str) -> None:
    assert family_of(name) == family


def slow_half_link(facts: list[tuple[str, str, str]], head: str, relation: str, tail: str) -> tuple[str, str]:
    """Of the tail query and of the head query."""
    as_head = any((h, r) == (head, relation) for h, r, _ in facts)
    as_tail = any((r, t) == (relation, tail) for _, r, t in facts)
    named = {(True, True): 0, (True, False): 1, (False, True): 2, (False, False): 3}
    return HALF_LINKS[named[as_tail, as_head]], HALF_LINKS[named[as_head, as_tail]]


@pytest.mark.parametrize("seed", range(20))
def test_half_links_are_those_that_looking_at_each_fact_finds(seed: int) -> None:
    draw = np.random.default_rng(seed)
    every = {(f"e{h}", f"r{r}", f"e{t}") for h, r, t in draw.integers([6, 3, 6], size=(24, 3)).tolist()}
    facts = sorted(every)[::2]
    whole = Triples.from_labels(sorted(every))
    graph, queries = (
        whole.select(np.arange(len(whole)) % 2 == 0),
        whole.select(np.arange(len(whole)) % 2 == 1),
    )
    facts = list(graph)
    found = [HALF_LINKS[place] for place in half_links(graph, queries)]
    expected = [slow_half_link(facts, *triple) for triple in queries]
    assert found == [tail for tail, _ in expected] + [head for _, head in expected]


@pytest.mark.parametrize("seed", range(20))
def test_answers_that_never_change_are_those_that_looking_at_each_fact_finds(seed: int) -> None:
    draw = np.random.default_rng(seed)
    every = {(f"e{h}", f"r{r}", f"e{t}") for h, r, t in draw.integers([6, 5, 3], size=(14, 3)).tolist()}
    whole = Triples.from_labels(sorted(every))
    even = np.arange(len(whole)) % 2 == 0
    graph, queries = whole.select(even), whole.select(~even)
    tails = [{t for _, r, t in every if r == relation} for _, relation, _ in queries]
    heads = [{h for h, r, _ in every if r == relation} for _, relation, _ in queries]
    found = [ANSWERS[place] for place in answer_places(graph, queries)]
    assert found == [ANSWERS[len(answers) > 1] for answers in tails + heads]


@pytest.mark.parametrize("seed", range(5))
def test_pagerank_is_that_of_walking_step_by_step(seed: int) -> None:
    draw = np.random.default_rng(seed)
    every = {(f"e{h}", f"r{r}", f"e{t}") for h, r, t in draw.integers([6, 2, 6], size=(12, 3)).tolist()}
    facts = Triples.from_labels(sorted(every))
    size = len(facts.entities)
    edges = [(h, t) for h, _, t in facts.ids.tolist()]
    edges += [(t, h) for h, t in edges]
    for head in range(size):
        mass = {head: 1.0}
        for _ in range(PAGERANK_STEPS):
            new = {entity: RESTART * (entity == head) for entity in range(size)}
            for start, end in edges:
                leaving = sum(other == start for other, _ in edges)
                new[end] += (1 - RESTART) * mass.get(start, 0.0) / leaving
            mass = new
        expected = [-1.0 if entity == head else mass.get(entity, 0.0) for entity in range(size)]
        found = pagerank_scorer(facts)(torch.tensor([head]), torch.tensor([0]))
        assert found[0].tolist() == pytest.approx(expected)


def test_a_folder_of_graphs_is_not_the_beginning_of_another() -> None:
    wanted = [begins("grail/nell_v1", start) for start in ("grail", "grail/", "grail/nell")]
    assert wanted == [True, True, True]
    assert not begins("grail_transductive/nell_v1", "grail")
    assert not begins("grail/fb237_v1", "grail/nell")


def test_figures_of_a_family_that_was_trained_on_are_marked() -> None:
    lines = [
        {"model": model, "graph": "grail/nell_v1", "clean": model == "ours", "P2 pessimistic": {"mrr": 0.75}}
        for model in ("ours", "all")
    ]
    assert table(lines).splitlines()[-1] == "| grail/nell_v1 | .750 | .750* |"


def line(model: str, graph: str, clean: bool, mrr: float, **buckets: dict[str, float]) -> dict[str, object]:
    return {
        "model": model, "graph": graph, "family": "NELL", "clean": clean, "P2 pessimistic": {"mrr": mrr},
        "by_support": buckets,
    }  # fmt: skip


LINES = [
    line("ours", "grail/nell_v1", True, 0.75, few={"sum": 1.0, "count": 4}),
    line("ours", "grail/nell_v2", True, 0.25, few={"sum": 2.0, "count": 2}, many={"sum": 1.0, "count": 2}),
    line("all", "grail/nell_v1", False, 0.99, few={"sum": 4.0, "count": 4}),
    line("walk", "grail/nell_v1", True, 0.5, few={"sum": 0.0, "count": 4}),
    line("walk", "grail/nell_v2", True, 0.25),
    line("walk", "grail/nell_v3", True, 0.0),
]


def test_the_mean_takes_clean_lines_and_the_walk_over_their_graphs() -> None:
    assert mean_of_clean(LINES) == "mean of 2 graphs, 2 clean lines: 0.5000, walk 0.3750"


def test_a_slice_is_the_mean_over_all_ranks_of_clean_lines() -> None:
    rows = slices(LINES, "by_support", ("few", "some", "many")).splitlines()
    assert rows[0] == "| | NELL: ranks | MRR |"
    assert rows[2:] == ["| few | 6 | .500 |", "| many | 2 | .500 |"]
