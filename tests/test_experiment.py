"""From a recipe to a run to a Predictor: the same bytes again, resumed or not, and nothing chosen on what is asked."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import contextpool as cp
from contextpool import experiment, training
from contextpool.errors import CheckpointError, ConfigError, UnknownNameError
from contextpool.graph.graph import Graph
from contextpool.predict import Predictor
from contextpool.recipe import Recipe
from contextpool.train.config import TrainConfig
from contextpool.train.progress import Progress
from contextpool.triples.dataset import Dataset
from contextpool.triples.store import Triples
from learning_worlds import CONTEXTS, every_query, families, family_dataset, run_contents
from learning_worlds import one_thread as one_thread
from models.own_model import Reach
from support import known_tails

QUICK = {"epochs": 2, "batch_size": 64, "warmup_steps": 2}
SETTINGS: dict[str, dict[str, Any]] = {
    "nbfnet": {"dim": 4, "layers": 2},
    "redgnn": {"dim": 4, "layers": 2, "attention_dim": 3},
    "walk": {"steps": 3},
}


def quick_train(
    dataset: Dataset | None = None, name: str = "nbfnet", context: Any = None, **options: Any
) -> Predictor:
    data = family_dataset() if dataset is None else dataset
    return experiment.train(data, name, context, **{"settings": SETTINGS[name], "train": QUICK, **options})


def all_scores(predictor: Predictor, graph: Graph) -> torch.Tensor:
    prepared, _ = predictor.prepared(graph)
    return predictor.scorer(prepared)(*every_query(prepared))


# a run folder is the predictor


@pytest.mark.parametrize("context", ["plain", "all", "views"])
@pytest.mark.parametrize("name", ["nbfnet", "redgnn", "walk"])
def test_a_loaded_run_scores_to_the_bit_like_the_one_that_was_trained(
    name: str, context: str, tmp_path: Path
) -> None:
    data = family_dataset(inductive=True)
    trained = quick_train(data, name, CONTEXTS[context], output=tmp_path / "run")
    loaded = cp.load(tmp_path / "run")
    graph = Graph.from_triples(data.inference_graph)
    assert torch.equal(all_scores(loaded, graph), all_scores(trained, graph))
    assert loaded.relations == trained.relations
    assert loaded.context == trained.context
    reports = [experiment.evaluate(predictor, data) for predictor in (trained, loaded)]
    assert np.array_equal(reports[0].ranks, reports[1].ranks)


def test_the_run_folder_holds_what_the_design_says_and_no_entity(tmp_path: Path) -> None:
    data = family_dataset()
    quick_train(data, "nbfnet", CONTEXTS["all"], seed=7, output=tmp_path / "run")
    names = (
        "config.json",
        "metrics.json",
        "model.safetensors",
        "context.safetensors",
        "relations.json",
        "README.md",
    )
    files = {name: (tmp_path / "run" / name).read_bytes() for name in names}
    assert json.loads(files["relations.json"]) == list(data.relations.labels)
    assert not any(entity.encode() in content for entity in ("f1.0", "f2.1.1") for content in files.values())
    config = json.loads(files["config.json"])["config"]
    assert config["seed"] == 7
    assert Recipe.from_dict(config["recipe"]).context == CONTEXTS["all"]
    assert {"device", "threads", "torch", "python"} <= set(config["machine"])
    metrics = json.loads(files["metrics.json"])
    assert metrics["epochs"] == len(metrics["history"]) == 2
    assert metrics["valid_mrr"] == max(entry["valid_mrr"] for entry in metrics["history"])
    assert b"validation MRR" in files["README.md"]


def test_probabilities_survive_the_run_folder(tmp_path: Path) -> None:
    data = family_dataset(count=40)
    trained = quick_train(data, output=tmp_path / "run", train={**QUICK, "epochs": 1, "batch_size": 256})
    assert trained.calibration is not None
    loaded = cp.load(tmp_path / "run")
    assert loaded.calibration == trained.calibration
    graph = Graph.from_triples(data.inference_graph)
    answers = loaded.predict(graph, "f1", "grandparent of", k=5)
    assert answers == trained.predict(graph, "f1", "grandparent of", k=5)
    assert all(answer.probability is not None and 0 <= answer.probability <= 1 for answer in answers)


def test_validation_asks_the_same_few_facts_every_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[tuple[str, str, str]]] = []
    evaluate = training.evaluate_scorer

    def noted(scorer: Any, queries: Any, *rest: Any, **options: Any) -> Any:
        asked.append(list(queries))
        return evaluate(scorer, queries, *rest, **options)

    monkeypatch.setattr(training, "evaluate_scorer", noted)
    data = family_dataset(count=40)
    quick_train(data, output=tmp_path / "run", train={**QUICK, "valid_facts": 5})
    few = list(data.validation_queries.sample(5))
    assert len(few) == 5 < len(data.validation_queries)
    assert asked == [few] * QUICK["epochs"]
    assert "selection: 5 queries" in (tmp_path / "run" / "README.md").read_text()


def test_few_selection_queries_give_no_probabilities_and_say_why(tmp_path: Path) -> None:
    trained = quick_train(output=tmp_path / "run")
    stored = json.loads((tmp_path / "run" / "metrics.json").read_text())["calibration"]
    assert stored["calibration"] is None
    assert "50 are needed" in stored["reason"]
    for predictor in (trained, cp.load(tmp_path / "run")):
        answer, *_ = predictor.predict(Graph.from_triples(families()), "f1", "parent of")
        assert answer.probability is None


def test_a_model_of_ones_own_is_trained_stored_and_loaded(tmp_path: Path) -> None:
    data = family_dataset()
    trained = experiment.train(data, Reach, output=tmp_path / "run", train=QUICK)
    loaded = cp.load(tmp_path / "run")
    assert type(loaded.model) is Reach
    graph = Graph.from_triples(data.inference_graph)
    assert torch.equal(all_scores(loaded, graph), all_scores(trained, graph))


def test_weights_that_do_not_fit_the_recipe_are_refused(tmp_path: Path) -> None:
    quick_train(output=tmp_path / "run")
    config = tmp_path / "run" / "config.json"
    config.write_text(config.read_text().replace('"dim": 4', '"dim": 6'))
    with pytest.raises(CheckpointError, match="the weights do not fit the recipe"):
        cp.load(tmp_path / "run")


# learning


@pytest.mark.parametrize("inductive", [False, True])
def test_training_beats_what_needs_none(inductive: bool) -> None:
    data = family_dataset(inductive)
    predictor = quick_train(
        data, context=CONTEXTS["all"], train={**QUICK, "epochs": 8, "lr": 0.01, "batch_size": 32}
    )
    reports = experiment.compare_with_references(predictor, data)
    assert set(reports) == {"model", "walk x relevance", "most frequent answer", "constant"}
    assert reports["model"].mrr > max(reports[name].mrr for name in ("most frequent answer", "constant"))
    entities = len(data.inference_entities)
    assert reports["constant"].mrr < 4 / entities


def test_the_walk_needs_no_training_and_its_recipe_can_be_run() -> None:
    data = family_dataset(inductive=True)
    walk = quick_train(data, "walk", CONTEXTS["arrive"])
    free = experiment.training_free(data)
    graph = Graph.from_triples(data.inference_graph)
    assert walk.model.num_layers != free.model.num_layers
    assert all_scores(free, graph).shape == all_scores(walk, graph).shape


def test_published_choices_of_queries_can_be_trained(tmp_path: Path) -> None:
    quick_train(family_dataset(inductive=True), train={**QUICK, "queries": "valid"}, output=tmp_path / "run")
    with pytest.raises(ConfigError, match="queries='train'"):
        quick_train(family_dataset(inductive=True), train={**QUICK, "queries": "train"})


# choice reads no inference query (rule 3)


@pytest.mark.parametrize("name", ["nbfnet", "redgnn"])
def test_other_inference_queries_leave_every_byte_of_a_run(name: str, tmp_path: Path) -> None:
    data = family_dataset(inductive=True)
    assert data.inference_valid is not None
    swapped = replace(data, inference_valid=data.inference_test, inference_test=data.inference_valid)
    nothing = np.zeros(len(data.inference_test), dtype=bool)
    silent = replace(data, inference_test=data.inference_test.select(nothing))
    runs = []
    for number, one in enumerate((data, swapped, silent)):
        quick_train(one, name, CONTEXTS["all"], output=tmp_path / str(number))
        runs.append(run_contents(tmp_path / str(number)))
    assert runs[0] == runs[1] == runs[2]


# the same seed, the same bytes (D1)


@pytest.mark.parametrize(("name", "context"), [("nbfnet", "plain"), ("nbfnet", "all"), ("redgnn", "views")])
def test_the_same_seed_writes_the_same_bytes_and_another_seed_others(
    name: str, context: str, tmp_path: Path
) -> None:
    runs = []
    for number, seed in enumerate((3, 3, 4)):
        torch.manual_seed(number)  # what others did to the global generator does not matter
        quick_train(name=name, context=CONTEXTS[context], seed=seed, output=tmp_path / str(number))
        runs.append(run_contents(tmp_path / str(number)))
    assert runs[0] == runs[1]
    assert runs[0]["model.safetensors"] != runs[2]["model.safetensors"]
    assert runs[0]["metrics.json"] != runs[2]["metrics.json"]


@pytest.mark.parametrize("name", ["nbfnet", "redgnn"])
def test_first_weights_come_from_the_seed_alone(name: str) -> None:
    recipe = Recipe("split", name, SETTINGS[name], CONTEXTS["all"])
    first, again, other = (
        experiment.Experiment(recipe, family_dataset(), seed, "cpu").model.state_dict() for seed in (5, 5, 6)
    )
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)
    state = torch.get_rng_state()
    experiment.Experiment(recipe, family_dataset(), 5, "cpu")
    assert torch.equal(torch.get_rng_state(), state)


def test_training_without_a_folder_gives_the_same_predictor(tmp_path: Path) -> None:
    graph = Graph.from_triples(families())
    stored = quick_train(context=CONTEXTS["all"], output=tmp_path / "run")
    assert torch.equal(all_scores(quick_train(context=CONTEXTS["all"]), graph), all_scores(stored, graph))


# evaluation


def without_relation(data: Dataset, relation: str) -> Dataset:
    """The same inference side, numbered without one of the relations."""

    def kept(part: Triples) -> Triples:
        return Triples.from_labels(triple for triple in part if triple[1] != relation)

    assert data.training_valid is not None
    assert data.inference_valid is not None
    return Dataset.from_two_graphs(
        "fewer",
        train=kept(data.training_graph),
        validation=kept(data.validation_queries),
        training_valid=kept(data.training_valid),
        inference_graph=kept(data.inference_graph),
        inference_valid=kept(data.inference_valid),
        inference_test=kept(data.inference_test),
    )


@pytest.mark.parametrize("context", ["plain", "all"])
def test_a_dataset_with_fewer_relations_is_asked_by_its_labels_not_by_its_numbers(context: str) -> None:
    """Relations are numbered by label within a dataset; the model numbers more of them."""
    data = family_dataset(inductive=True)
    predictor = quick_train(data, context=CONTEXTS[context])
    fewer = without_relation(data, "grandparent of")
    assert len(fewer.relations) == 2
    report = experiment.evaluate(predictor, fewer)
    prepared, _ = predictor.prepared(Graph.from_triples(fewer.inference_graph))
    score = predictor.scorer(prepared)
    for place, (head, relation, tail) in enumerate(report.queries):
        asked = torch.tensor([predictor.relations.id_of(relation)])
        scores = score(torch.tensor([prepared.entity_id(head)]), asked)[0]
        asked_ids = prepared.entity_id(head), fewer.relations.id_of(relation)
        known = known_tails(fewer.evaluation_filter, *asked_ids)
        own = scores[prepared.entity_id(tail)].item()
        others = [scores[e].item() for e in range(len(scores)) if e not in known]
        rank = 1 + sum(value > own for value in others) + sum(value == own for value in others) / 2
        assert report.ranks[place] == rank
    assert np.array_equal(experiment.compare_with_references(predictor, fewer)["model"].ranks, report.ranks)


def test_an_unknown_relation_cannot_be_evaluated() -> None:
    data = family_dataset(inductive=True)
    predictor = quick_train(without_relation(data, "grandparent of"))
    with pytest.raises(UnknownNameError, match="grandparent of"):
        experiment.evaluate(predictor, data)


def test_protocols_and_batch_sizes() -> None:
    data = family_dataset(inductive=True)
    predictor = quick_train(data, context=CONTEXTS["all"])
    both, test = (experiment.evaluate(predictor, data, protocol=protocol) for protocol in ("P1", "P2"))
    assert both.num_queries > test.num_queries == 2 * len(data.inference_test)
    assert np.array_equal(both.restricted_to(data.inference_test).ranks, test.ranks)
    for size in (1, 7):
        assert experiment.evaluate(predictor, data, batch_size=size).mrr == pytest.approx(both.mrr, abs=1e-4)


# refused before anything is written


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"train": {"epoch": 3}}, r"train\.epoch is not a setting\. Did you mean train\.epochs\?"),
        ({"train": {"lr": "x"}}, r"train\.lr is 'x'"),
        ({"settings": {"dimm": 3}}, r"model\.dimm is not a setting\. Did you mean model\.dim\?"),
        ({"settings": {"dim": 0}}, r"model\.dim is 0"),
        ({"context": {"hop": 1}}, r"context\.hop is not a setting"),
        ({"train": {"queries": "train"}}, "queries='train'"),
        ({"name": "nbfnot"}, "model 'nbfnot' is unknown"),
    ],
)
def test_wrong_settings_leave_no_run_folder_behind(
    options: dict[str, Any], says: str, tmp_path: Path
) -> None:
    name = options.pop("name", "nbfnet")
    data = family_dataset()
    given: dict[str, Any] = {"settings": {"dim": 4, "layers": 1}, "train": QUICK, **options}
    with pytest.raises((ConfigError, UnknownNameError), match=says):
        experiment.train(data, name, output=tmp_path / "run", **given)
    assert not (tmp_path / "run").exists()


def test_a_recipe_names_its_dataset(tmp_path: Path) -> None:
    recipe = Recipe("no such dataset", train=TrainConfig(epochs=1))
    with pytest.raises(UnknownNameError, match="no such dataset"):
        experiment.run_recipe(recipe, output=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_progress_reaches_whoever_trains() -> None:
    told: list[Progress] = []
    quick_train(progress=told.append)
    assert [progress.step for progress in told] == [1, 2, 3, 4, 5] * 2
