from __future__ import annotations

from dataclasses import replace

from audit_worlds import INFERENCE, TRAIN, finding, inductive, transductive
from contextpool.triples.audit import audit_dataset, audit_triples
from contextpool.triples.dataset import Dataset
from contextpool.triples.store import Triples


def test_a_clean_world_has_no_leak_and_no_overlap() -> None:
    report = audit_dataset(inductive())
    assert [one.key for one in report.findings if one.severity != "ok"] == []
    assert [one.key for one in report.findings] == [
        "entity_overlap",
        "fact_overlap",
        "leakage",
        "trained_on",
        "selected_on",
        "direct_edges",
        "reverse_pairs",
        "inverse_relations",
        "duplicate_relations",
        "reach",
        "skipped",
    ]
    assert [part.name for part in report.held_out] == [
        "training valid",
        "selection",
        "inference valid",
        "inference test",
        "evaluation",
    ]
    assert [part.queries for part in report.held_out] == [1, 1, 1, 1, 2]


def test_a_held_out_triple_in_its_graph_is_a_leak() -> None:
    report = audit_dataset(inductive(inference_test=[("p", "likes", "q"), ("p", "likes", "t")]))
    leak = finding(report, "leakage")
    assert leak.severity == "warning"
    assert "inference test 1 of 2 (50.0%)" in leak.reading
    assert leak.examples == ("('p', 'likes', 'q')",)
    assert report.held_out[-1].in_graph == 1
    assert report.worst == "warning"


def test_training_valid_in_the_training_graph_is_a_leak_too() -> None:
    report = audit_dataset(inductive(training_valid=[("a", "likes", "b")]))
    assert "training valid 1 of 1" in finding(report, "leakage").reading
    assert finding(report, "trained_on").severity == "ok"  # it is there to be trained on


def test_entities_in_both_graphs() -> None:
    shared = [*INFERENCE, ("u", "likes", "a")]
    report = audit_dataset(inductive(inference_graph=shared))
    assert report.overlap is not None
    assert (report.overlap.shared_entities, report.overlap.share_of_inference) == (1, 1 / 6)
    overlap = finding(report, "entity_overlap")
    assert (overlap.severity, overlap.examples) == ("warning", ("'a'",))


def test_few_shared_entities_are_a_note() -> None:
    many = [(f"x{number:03}", "likes", f"x{number + 1:03}") for number in range(150)]
    report = audit_dataset(inductive(inference_graph=[*INFERENCE, *many, ("u", "likes", "a")]))
    assert finding(report, "entity_overlap").severity == "note"


def test_an_entity_that_only_queries_know_is_not_shared_by_the_graphs() -> None:
    report = audit_dataset(inductive(inference_test=[("p", "likes", "a")]))
    assert report.overlap is not None
    assert report.overlap.shared_entities == 0


def test_inference_queries_that_were_trained_on() -> None:
    report = audit_dataset(
        inductive(inference_test=[("a", "likes", "b"), ("a", "knows", "c"), ("p", "likes", "t")])
    )
    again = finding(report, "trained_on")
    assert again.severity == "warning"
    assert "inference test 2 of 3" in again.reading
    assert "('a', 'likes', 'b')" in again.examples


def test_facts_of_both_graphs_and_queries_of_two_parts() -> None:
    report = audit_dataset(
        inductive(inference_graph=[*INFERENCE, TRAIN[0]], inference_test=[("p", "knows", "s")])
    )
    assert report.overlap is not None
    assert (report.overlap.shared_facts, report.overlap.valid_in_test) == (1, 1)
    assert finding(report, "fact_overlap").severity == "note"
    assert finding(report, "selected_on").severity == "note"


def test_evaluation_on_what_was_selected_on() -> None:
    report = audit_dataset(
        transductive(TRAIN, [("a", "likes", "c")], [("a", "likes", "c"), ("a", "likes", "d")])
    )
    assert "1 of 2" in finding(report, "selected_on").reading
    assert finding(report, "selected_on").severity == "warning"


def test_direct_and_reverse_pairs_keep_their_direction() -> None:
    queries = [("p", "knows", "q"), ("s", "likes", "q"), ("q", "likes", "p"), ("p", "likes", "u")]
    evaluation = audit_dataset(inductive(inference_valid=[], inference_test=queries)).held_out[-1]
    assert evaluation.direct == 1  # p likes q
    assert evaluation.reverse == 2  # q knows s, p likes q


def test_inverse_twin_relations() -> None:
    pairs = [(f"x{number}", f"y{number}") for number in range(5)]
    parent = [(x, "parent", y) for x, y in pairs]
    child = [(y, "child", x) for x, y in pairs]
    dataset = transductive([*parent, *child[:4], ("x0", "other", "y1")], [("x1", "other", "y2")], child[4:])
    report = audit_dataset(dataset)
    (twin,) = report.graphs[0].twins
    assert (twin.kind, twin.relation, twin.other, twin.matched) == ("inverse", "child", "parent", 5)
    assert (twin.share, twin.share_of_other) == (1, 1)
    assert report.held_out[-1].by_inverse == 1
    assert finding(report, "inverse_relations").severity == "warning"
    assert finding(report, "inverse_relations").examples == ("'child' ~ inverse of 'parent'",)


def test_a_symmetric_relation_is_found_although_its_halves_are_held_out() -> None:
    """Ten mirrored pairs, four reverse halves held out: the graph alone mirrors only 12 of 16."""
    pairs = [(f"x{number}", "near", f"y{number}") for number in range(10)]
    mirrored = [(tail, relation, head) for head, relation, tail in pairs]
    report = audit_dataset(transductive([*pairs, *mirrored[:6]], mirrored[6:8], mirrored[8:]))
    (twin,) = report.graphs[0].twins
    assert (twin.kind, twin.matched, twin.share) == ("symmetric", 20, 1)
    assert report.held_out[-1].by_inverse == 2


def test_four_fifths_is_no_twin_and_a_self_loop_is_no_mirror() -> None:
    forward = [(f"x{number}", "r", f"y{number}") for number in range(5)]
    backward = [(tail, "s", head) for head, _, tail in forward[:4]]
    loops = [("z", "loop", "z")]
    assert audit_triples(Triples.from_labels([*forward, *backward, *loops]), "toy").graphs[0].twins == ()


def test_duplicate_relations() -> None:
    pairs = [(f"x{number}", f"y{number}") for number in range(5)]
    both = [(x, relation, y) for x, y in pairs for relation in ("r", "s")]
    report = audit_dataset(transductive(both[:-1], [("x0", "r", "y1")], both[-1:]))
    assert [(twin.kind, twin.relation, twin.other) for twin in report.graphs[0].twins] == [
        ("duplicate", "r", "s")
    ]
    assert report.held_out[-1].by_duplicate == 1
    assert finding(report, "duplicate_relations").severity == "warning"


def test_query_entities_without_an_edge() -> None:
    report = audit_dataset(inductive(inference_test=[("p", "likes", "new"), ("p", "likes", "t")]))
    assert "1 of 3 (33.3%) queries name an entity without an edge" in finding(report, "reach").reading
    assert (report.graphs[1].isolated, report.held_out[-1].without_edge) == (1, 1)
    assert report.held_out[-1].connected == 2 / 3


def test_reach_by_hops() -> None:
    queries = [("p", "likes", "q"), ("p", "likes", "s"), ("u", "likes", "q"), ("p", "likes", "far")]
    evaluation = audit_dataset(inductive(inference_valid=[], inference_test=queries)).held_out[-1]
    assert evaluation.within == (0.25, 0.5, 0.75, 0.75, 0.75, 0.75)
    assert evaluation.sample == 4


def test_reach_beyond_six_hops_is_connected_but_not_reached() -> None:
    chain = [(f"n{number}", "next", f"n{number + 1}") for number in range(7)]
    report = audit_dataset(
        transductive(chain, [("n0", "next", "n3")], [("n0", "next", "n7"), ("n0", "next", "n6")])
    )
    assert report.held_out[-1].within == (0, 0, 0, 0, 0, 0.5)
    assert report.held_out[-1].connected == 1
    assert finding(report, "reach").severity == "warning"


def test_reach_of_many_queries_is_sampled_evenly_and_says_so() -> None:
    hub = [("hub", "has", f"n{number:04}") for number in range(2_500)]
    near = [(f"n{number:04}", "near", f"n{number + 1:04}") for number in range(1_200)]
    never = [(f"n{number:04}", "near", "alone") for number in range(1_200, 2_400)]
    train = [*hub, ("n0000", "near", "n2000")]
    report = audit_dataset(transductive(train, [("n0001", "near", "n0003")], [*near, *never]))
    evaluation = report.held_out[-1]
    assert (evaluation.queries, evaluation.sample) == (2_400, 2_000)
    assert evaluation.within == (0, 0.5, 0.5, 0.5, 0.5, 0.5)
    assert "of 2,000 sampled ones" in finding(report, "reach").reading


def test_transductive_is_one_graph_whose_overlap_is_expected() -> None:
    report = audit_dataset(transductive(TRAIN, [("a", "likes", "c")], [("a", "likes", "d")]))
    assert [graph.name for graph in report.graphs] == ["graph"]
    assert [part.name for part in report.held_out] == ["selection", "test"]
    assert finding(report, "entity_overlap").severity == "ok"
    assert "expected" in finding(report, "entity_overlap").reading


def test_training_on_facts_alone_is_a_smaller_graph() -> None:
    facts, train, valid, test = (
        Triples.from_labels(part)
        for part in (TRAIN[:2], TRAIN[2:], [("a", "likes", "c")], [("a", "likes", "e")])
    )
    dataset = Dataset.from_one_graph("toy", facts=facts, train=train, valid=valid, test=test)
    report = audit_dataset(dataset.with_queries("train"))
    assert [(graph.name, graph.triples) for graph in report.graphs] == [
        ("training graph", 2),
        ("inference graph", 4),
    ]


def test_what_loading_lost_is_reported() -> None:
    report = audit_dataset(replace(inductive(), skipped=3, kept_share=0.75))
    assert "3 triples" in finding(report, "skipped").reading
    assert finding(report, "skipped").severity == "warning"
    assert "75.0%" in finding(report, "kept_share").reading
