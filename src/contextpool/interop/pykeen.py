"""To and from PyKEEN: triples, datasets, and the results of an evaluation under PyKEEN's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, overload

import numpy as np
import torch

from contextpool.errors import DataError, MissingExtraError
from contextpool.evaluate.report import EvaluationReport
from contextpool.graph.graph import Graph
from contextpool.triples.dataset import Dataset
from contextpool.triples.store import Triples, numbered_labels, triples_by_number

try:
    from pykeen.datasets import Dataset as PyKEENDataset
    from pykeen.datasets import EagerDataset
    from pykeen.datasets.inductive import EagerInductiveDataset, InductiveDataset
    from pykeen.triples import CoreTriplesFactory, TriplesFactory
except ImportError:
    raise MissingExtraError("pykeen", "pykeen", "contextpool.interop.pykeen") from None

if TYPE_CHECKING:
    from pykeen.evaluation import RankBasedMetricResults


@overload
def from_pykeen(source: CoreTriplesFactory, *, name: str = ...) -> Triples: ...
@overload
def from_pykeen(
    source: PyKEENDataset | InductiveDataset, *, validation: CoreTriplesFactory | None = ..., name: str = ...
) -> Dataset: ...
def from_pykeen(
    source: CoreTriplesFactory | PyKEENDataset | InductiveDataset,
    *,
    validation: CoreTriplesFactory | None = None,
    name: str = "pykeen",
) -> Triples | Dataset:
    """A factory as `Triples`, a dataset as `Dataset`, by label.

    The facts are the factory's `mapped_triples`; that it may also make inverse triples (`create_inverse_triples`) is a
    matter of PyKEEN's models and leaves no trace here, where every fact can be walked both ways. A factory without
    labels gets numbers that sort as its ids do.

    An inductive dataset of PyKEEN has no selection queries on its training graph: name them as `validation`, whose
    entities are those of the training graph.
    """
    if isinstance(source, CoreTriplesFactory):
        return _triples_of(source)
    if isinstance(source, PyKEENDataset):
        return _transductive(source, name)
    if isinstance(source, InductiveDataset):
        return _inductive(source, validation, name)
    raise DataError(
        f"from_pykeen got a {type(source).__name__}; give it a TriplesFactory, Dataset or InductiveDataset of PyKEEN."
    )


def _transductive(source: PyKEENDataset, name: str) -> Dataset:
    if source.validation is None:
        raise DataError(
            f"{name}: the PyKEEN dataset has no validation triples to select on. Split some off its training."
        )
    parts = {key: _triples_of(getattr(source, key)) for key in ("training", "validation", "testing")}
    return Dataset.from_one_graph(
        name, train=parts["training"], valid=parts["validation"], test=parts["testing"]
    )


def _inductive(source: InductiveDataset, validation: CoreTriplesFactory | None, name: str) -> Dataset:
    if validation is None or source.inductive_validation is None:
        missing = "inductive_validation" if validation is not None else "validation="
        raise DataError(
            f"{name}: there are no triples for {missing}. Selection needs queries on the training graph (validation=), "
            "and the inference graph its own valid and test."
        )
    return Dataset.from_two_graphs(
        name,
        train=_triples_of(source.transductive_training),
        validation=_triples_of(validation),
        inference_graph=_triples_of(source.inductive_inference),
        inference_valid=_triples_of(source.inductive_validation),
        inference_test=_triples_of(source.inductive_testing),
    )


def _triples_of(factory: CoreTriplesFactory) -> Triples:
    """Duplicates collapse; entities and relations without a triple stay."""
    count = int(factory.real_num_relations)
    if isinstance(factory, TriplesFactory):
        names = _by_id(factory.entity_to_id, factory.num_entities, "entity")
        kinds = _by_id(factory.relation_to_id, count, "relation")
    else:
        names, kinds = numbered_labels("e", factory.num_entities), numbered_labels("r", count)
    rows = factory.mapped_triples.cpu().numpy().astype(np.int64).reshape(-1, 3)
    return triples_by_number(rows, names, kinds)


def _by_id(ids: Mapping[str, int], count: int, kind: str) -> list[str]:
    """[count] labels by id; every id has to have exactly one."""
    labels = {number: label for label, number in ids.items()}
    if sorted(labels) != list(range(count)) or len(ids) != count:
        raise DataError(
            f"PyKEEN has {len(ids):,} {kind} labels for {count:,} ids; each id needs just one. Make the factory anew "
            "from its labeled triples."
        )
    return [labels[number] for number in range(count)]


@overload
def to_pykeen(source: Triples | Graph, *, create_inverse_triples: bool = ...) -> TriplesFactory: ...
@overload
def to_pykeen(source: Dataset, *, create_inverse_triples: bool = ...) -> PyKEENDataset | InductiveDataset: ...
def to_pykeen(
    source: Triples | Graph | Dataset, *, create_inverse_triples: bool = False
) -> TriplesFactory | PyKEENDataset | InductiveDataset:
    """Triples or a graph as a `TriplesFactory`, a dataset as PyKEEN's `EagerDataset` or `EagerInductiveDataset`.

    Ids stay: entity and relation numbers are the same on both sides. A transductive dataset gives its training graph
    (facts and train together), valid and test. Of an inductive one PyKEEN keeps the training graph, the inference
    graph and its valid and test; further queries on the training graph have no place there.
    """
    if isinstance(source, Dataset):
        return _dataset_to_pykeen(source, create_inverse_triples)
    return _factory(source.as_triples() if isinstance(source, Graph) else source, create_inverse_triples)


def _dataset_to_pykeen(source: Dataset, create_inverse_triples: bool) -> PyKEENDataset | InductiveDataset:
    if source.inductive:
        graphs = [
            _factory(part, create_inverse_triples) for part in (source.training_graph, source.inference_graph)
        ]
        asked = [
            None if part is None else _factory(part, False)
            for part in (source.inference_test, source.inference_valid)
        ]
        return EagerInductiveDataset(*graphs, *asked, create_inverse_triples=create_inverse_triples)
    training = _factory(source.inference_graph, create_inverse_triples)
    return EagerDataset(
        training, _factory(source.inference_test, False), _factory(source.validation_queries, False)
    )


def _factory(triples: Triples, create_inverse_triples: bool) -> TriplesFactory:
    return TriplesFactory(
        mapped_triples=torch.from_numpy(triples.ids.astype(np.int64)),
        entity_to_id=dict(triples.entities.index),
        relation_to_id=dict(triples.relations.index),
        create_inverse_triples=create_inverse_triples,
    )


def metrics_to_pykeen(report: EvaluationReport) -> dict[str, float]:
    """Every metric under PyKEEN's key, `side.rank_type.metric`: "both.realistic.inverse_harmonic_mean_rank" and so on.

    The figures are PyKEEN's own to the last digits (tests/evaluate/test_pykeen.py compares them).
    """
    return report.pykeen_keys()


def results_to_pykeen(report: EvaluationReport) -> RankBasedMetricResults:
    """The same as the object that PyKEEN's evaluator returns, for what takes one of those (`to_df`, trackers)."""
    from pykeen.evaluation import RankBasedMetricResults

    named = {
        RankBasedMetricResults.key_from_string(key): value for key, value in report.pykeen_keys().items()
    }
    return RankBasedMetricResults(data=named)


__all__ = ["from_pykeen", "metrics_to_pykeen", "results_to_pykeen", "to_pykeen"]
