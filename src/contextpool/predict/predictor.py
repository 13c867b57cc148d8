"""Predictor: a trained model with its context and calibration; labels in and out, on any graph."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from torch import Tensor

from contextpool.context.config import ContextConfig
from contextpool.context.counts import Cooccurrence, Statistics, count_cooccurrence
from contextpool.context.more import MoreAnswers
from contextpool.errors import ConfigError, WrongNamesError, setting, spoken, unknown_name_message
from contextpool.evaluate.calibration import Calibration
from contextpool.evaluate.ranks import Scorer
from contextpool.explain import Explanation
from contextpool.graph.graph import Graph
from contextpool.graph.mapped import MappedGraph
from contextpool.graph.relations import RelationVocabulary
from contextpool.models.base import LinkPredictor
from contextpool.pool.batch import BatchBuilder
from contextpool.predict.answers import Answer, Answers, Question, RelationAnswer, Selection, UnknownRelations
from contextpool.predict.asking import Asking
from contextpool.predict.fitted import FACTS_ON_DEMAND, Fits, facts_at_first
from contextpool.predict.frontier import DEFAULT_CAP, Frontier
from contextpool.predict.inputs import GraphLike, Graphs, Newest
from contextpool.predict.names import NO_NAMES, Names
from contextpool.triples.labels import Vocabulary

if TYPE_CHECKING:
    from contextpool.predict.check import Verdicts
    from contextpool.predict.complete import Progress
    from contextpool.predict.links import Links
    from contextpool.predict.workers import Workers


class Predictor:
    """Answers questions on graphs it has never seen. Safe to read from several threads."""

    evaluation: Mapping[str, Any] | None = None
    """Metrics of the model, and of scorers that need no training, on what was held out; None where it was not asked."""
    fitted_on: str | None = None
    """Checksum of the facts that it was fitted on after its evaluation, where it was."""

    def __init__(
        self,
        model: LinkPredictor,
        relations: RelationVocabulary | None,
        context: ContextConfig | None,
        statistics: Statistics | None,
        calibration: Calibration | None = None,
        *,
        use_statistics: Literal["sum", "train"] = "sum",
        device: torch.device | str = "cpu",
    ) -> None:
        """`relations` are those that the model knows, None for one that takes any (`LinkPredictor.any_relation`)."""
        if use_statistics not in ("sum", "train"):
            raise ConfigError(f"statistics is {use_statistics!r}; it is 'sum' or 'train'.")
        self.model = model.to(device).eval()
        self.relations, self.context, self.statistics = relations, context, statistics
        self.calibration, self.use_statistics = calibration, use_statistics
        self.device = torch.device(device)
        self.fits = Fits(self)
        self._graphs = Graphs()
        self._prepared: Newest[tuple[Graph, int]] = Newest()
        self._builders: Newest[BatchBuilder] = Newest()
        self._more: Newest[MoreAnswers] = Newest()
        self._frontiers: Newest[Frontier] = Newest()

    def __reduce__(self) -> tuple[Any, ...]:
        """What another process is sent: the model and its numbers, nothing that was made of graphs."""
        given = self.model, self.relations, self.context, self.statistics, self.calibration
        return partial(Predictor, use_statistics=self.use_statistics, device=self.device), given

    def __repr__(self) -> str:
        knows = "any relation" if self.relations is None else f"{self.relations.num_relations:,} relations"
        weights = sum(parameter.numel() for parameter in self.model.parameters())
        return f"<Predictor: {self.model.name}, {weights:,} weights, {knows}, {self.device}>"

    # a graph, made ready

    def relations_for(self, graph: Graph) -> RelationVocabulary:
        """The relations that can be asked about on a graph: the model's own, or for a model of any the graph's."""
        return (
            graph.relation_vocabulary if self.relations is None or self.model.any_relation else self.relations
        )

    def prepared(self, graph: GraphLike, *, on_unknown: UnknownRelations = "error") -> tuple[Graph, int]:
        """The graph numbered by the model's relations, and how many facts of unknown relations were left out.

        `graph` is anything that holds one, here and below: `predict.inputs` lists what.
        """
        if on_unknown not in ("error", "skip"):
            raise ConfigError(f"{setting('on_unknown')} is {on_unknown!r}; it is 'error' or 'skip'.")
        read = self._graphs.get(graph)
        return self._prepared.get((read, on_unknown), lambda: self._prepare(read, on_unknown))

    def _prepare(self, graph: Graph, on_unknown: UnknownRelations) -> tuple[Graph, int]:
        if self.relations is None:
            return (graph if isinstance(graph, MappedGraph) else graph.to(self.device)), 0
        unknown = [label for label in graph.relations if label not in self.relations.index]
        if self.model.any_relation:
            return self._with_its_relations(graph, unknown), 0
        left_out = 0
        if unknown and on_unknown == "error":
            raise _unknown_relations(unknown, self.relations)
        if isinstance(graph, MappedGraph):
            return graph, sum(graph.triples_of_relation[label] for label in unknown)
        if unknown:
            smaller = graph.without_relations(unknown)
            left_out = graph.num_triples - smaller.num_triples
            known = [label for label in graph.relations if label in self.relations.index]
            graph = _keeping(smaller, known)
        if graph.relation_vocabulary != self.relations:
            graph = graph.with_relations(self.relations)
        return graph.to(self.device), left_out

    def _with_its_relations(self, graph: Graph, unknown: list[str]) -> Graph:
        """The graph numbered by its own relations and by those of the training graph, whose counts are read, too."""
        assert self.relations is not None
        if isinstance(graph, MappedGraph):
            return graph
        known = RelationVocabulary(tuple(sorted([*self.relations.forward, *unknown])))
        return (graph if graph.relation_vocabulary == known else graph.with_relations(known)).to(self.device)

    def builder(self, graph: Graph) -> BatchBuilder:
        """What makes batches over a prepared graph; built once a graph."""
        return self._builders.get(
            graph, lambda: self.model.builder(graph, self.context, self.statistics_for(graph))
        )

    def frontier(self, graph: Graph, cap: int | None) -> Frontier | None:
        """Capped walks over a prepared graph, made once for each graph and cap; None where every entity is ranked.

        A `cap` of 0 is for all edges. Without any, a graph in memory is ranked whole, a mapped one walked with
        `DEFAULT_CAP`.
        """
        if cap is None and isinstance(graph, MappedGraph):
            cap = DEFAULT_CAP
        if cap is None or (cap == 0 and not isinstance(graph, MappedGraph)):
            return None
        return self._frontiers.get((graph, cap), lambda: Frontier(self, graph, cap))

    def statistics_for(self, graph: Graph) -> Statistics | None:
        """The counts to pool with on a prepared graph; None for a model that reads none."""
        if self.relations is None:
            return Statistics.of(graph)
        if self.statistics is None:
            return None
        own = self.statistics.over(graph.relation_vocabulary) if self.model.any_relation else self.statistics
        return own + Statistics.of(graph) if self.use_statistics == "sum" else own

    def more_answers(self, graph: Graph) -> MoreAnswers:
        """How likely a question has an answer that a prepared graph lacks; counted once a graph."""
        return self._more.get(graph, lambda: MoreAnswers(graph, self.counts_with(graph)))

    def counts_with(self, graph: Graph) -> Cooccurrence:
        """Of a prepared graph, and of the training graph where the run has brought its counts."""
        own = count_cooccurrence(graph)
        if self.relations is None or self.statistics is None:
            return own
        return self.statistics.over(own.relations).counts + own

    def scorer(self, graph: Graph) -> Scorer:
        """(heads [B], relations [B]) -> scores [B, N] over a prepared graph."""
        builder = self.builder(graph)

        def score(query_head: Tensor, query_relation: Tensor) -> Tensor:
            with torch.no_grad():
                return self.model(builder.build(query_head, query_relation))  # type: ignore[no-any-return]

        return score

    def calibration_for(self, graph: GraphLike, *, cap: int | None = None) -> Calibration | None:
        """What makes probabilities of scores on a graph; with `cap` as for `predict`.

        The run's own. A model that takes any relation has none: it is fitted on up to 100 facts of the graph, each
        hidden from itself, when it is first asked for, or on more by `calibrate`; `Calibration.facts` says on how many.
        """
        return self.calibrate(graph, None, cap=cap)

    def calibrate(
        self,
        graph: GraphLike,
        facts: int | None = FACTS_ON_DEMAND,
        *,
        cap: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Calibration | None:
        """Fit the calibration on so many facts of the graph; it is kept, here and in the cache folder.

        Where questions are walked (with `cap`, and on a mapped graph), on 100 at the most.
        """
        if self.relations is not None:
            return self.calibration
        prepared, _ = self.prepared(graph)
        frontier = self.frontier(prepared, cap)
        count = facts_at_first(prepared, frontier) if facts is None else facts
        return self.fits.calibration(prepared, count, frontier, progress)

    @cached_property
    def fingerprint(self) -> str:
        """sha256 over everything that answers depend on: weights, relations, context, counts, calibration."""
        digest = hashlib.sha256()
        plain = {
            "model": [type(self.model).__name__, asdict(self.model.settings)],
            "relations": None if self.relations is None else self.relations.forward,
            "context": None if self.context is None else asdict(self.context),
            "calibration": None if self.calibration is None else self.calibration.to_dict(),
            "statistics": self.use_statistics,
        }
        digest.update(json.dumps(plain, sort_keys=True).encode())
        tensors = dict(self.model.state_dict())
        if self.statistics is not None:
            tensors |= self.statistics.to_tensors()[0]
        for name, tensor in sorted(tensors.items()):
            digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    # questions

    def asking(
        self,
        graph: GraphLike,
        names: Names | None = None,
        *,
        on_unknown: UnknownRelations = "error",
        cap: int | None = None,
        batch_size: int = 64,
    ) -> Asking:
        """What resolves, scores and ranks questions over a graph: by capped walks with `cap`, and on a mapped graph."""
        prepared, _ = self.prepared(graph, on_unknown=on_unknown)
        return Asking(self, prepared, names or NO_NAMES, self.frontier(prepared, cap), batch_size)

    def predict(
        self,
        graph: GraphLike,
        head: str,
        relation: str,
        k: int = 10,
        *,
        known: bool = False,
        candidates: Iterable[str] | None = None,
        having: str | Iterable[str] | None = None,
        names: Names | None = None,
        on_unknown: UnknownRelations = "error",
        cap: int | None = None,
    ) -> Answers[Answer]:
        """The k best answers to (head, relation, ?); `r^-1` asks for heads. Known ones only with `known`.

        Answers are taken from `candidates`, and from entities that have all relations of `having`, where
        given. With `names`, every label may be given by its name too. With `cap`, a walk keeps so many edges a hop,
        and answers are what it reaches: for graphs on which a whole walk is too much. A mapped graph is walked in any
        case, with a cap of 10,000 unless another is given; 0 is for all edges.
        """
        asking = self.asking(graph, names, on_unknown=on_unknown, cap=cap)
        selection = Selection.of(k, known, candidates, having)
        return cast("Answers[Answer]", next(asking.stream([Question(head, relation, None)], selection)))

    def predict_heads(
        self,
        graph: GraphLike,
        relation: str,
        tail: str,
        k: int = 10,
        *,
        known: bool = False,
        candidates: Iterable[str] | None = None,
        having: str | Iterable[str] | None = None,
        names: Names | None = None,
        on_unknown: UnknownRelations = "error",
        cap: int | None = None,
    ) -> Answers[Answer]:
        """The k best heads of (?, relation, tail); otherwise as `predict`."""
        asking = self.asking(graph, names, on_unknown=on_unknown, cap=cap)
        selection = Selection.of(k, known, candidates, having)
        return cast("Answers[Answer]", next(asking.stream([Question(None, relation, tail)], selection)))

    def predict_relations(
        self,
        graph: GraphLike,
        head: str,
        tail: str,
        k: int = 10,
        *,
        known: bool = False,
        names: Names | None = None,
        on_unknown: UnknownRelations = "error",
        batch_size: int = 64,
    ) -> Answers[RelationAnswer]:
        """The k best relations of (head, ?, tail); `RelationAnswer` says what their score is."""
        asking = self.asking(graph, names, on_unknown=on_unknown, batch_size=batch_size)
        found = next(asking.stream([Question(head, None, tail)], Selection(k, known)))
        return cast("Answers[RelationAnswer]", found)

    def predict_batch(
        self,
        graph: GraphLike,
        queries: Sequence[tuple[str, str] | Question],
        k: int = 10,
        *,
        known: bool = False,
        candidates: Iterable[str] | None = None,
        having: str | Iterable[str] | None = None,
        names: Names | None = None,
        batch_size: int = 64,
        on_unknown: UnknownRelations = "error",
        cap: int | None = None,
    ) -> list[Answers[Answer]]:
        """The answers to many questions over one graph: (head, relation) pairs, or `Question`s of any kind.

        Nothing is answered unless every name is known; whatever is not is told at once. The answers to a
        question that asks for a relation are `RelationAnswer`s.
        """
        questions = [query if isinstance(query, Question) else Question(*query, None) for query in queries]
        asking = self.asking(graph, names, on_unknown=on_unknown, cap=cap, batch_size=batch_size)
        asking.resolve(questions, "question")
        found = asking.stream(questions, Selection.of(k, known, candidates, having))
        return cast("list[Answers[Answer]]", list(found))

    def explain(
        self,
        graph: GraphLike,
        head: str,
        relation: str,
        tail: str,
        *,
        asked: Literal["tail", "head"] = "tail",
        paths: int = 5,
        names: Names | None = None,
        on_unknown: UnknownRelations = "error",
        cap: int | None = None,
    ) -> Explanation:
        """Why `tail` answers (head, relation, ?), or with asked="head" why `head` answers (?, relation, tail).

        With `cap`, and on a mapped graph, by a walk as for `predict`.
        """
        asking = self.asking(graph, names, on_unknown=on_unknown, cap=cap)
        resolver = asking.resolver()
        ids = resolver.entity(head), resolver.relation(relation), resolver.entity(tail)
        resolver.check()
        return asking.explain(ids, asked, paths)

    def check(
        self,
        graph: GraphLike,
        triples: Iterable[Sequence[str]] | None = None,
        *,
        top: int | None = None,
        evidence: int = 10,
        names: Names | None = None,
        on_unknown: UnknownRelations = "error",
        progress: Callable[[str, int, int], None] | None = None,
    ) -> Verdicts:
        """How plausible claims (head, relation, tail) are; without any, the graph's own facts, least supported first.

        What the graph holds is hidden from itself, statistics included. `top` keeps the least plausible so many,
        sorted; the `evidence` least plausible get a path and what speaks against them. With `on_unknown="skip"` a claim
        with an unknown name gets a verdict that says so. `progress` is called with (stage, done, in all).
        """
        from contextpool.predict.check import Checking, checked_claims  # loaded where it is needed

        prepared, _ = self.prepared(graph, on_unknown=on_unknown)
        return checked_claims(
            Checking(self, prepared, names),
            triples,
            top=top,
            evidence=evidence,
            skip=on_unknown == "skip",
            progress=progress,
        )

    def complete(
        self,
        graph: GraphLike,
        output: str | Path | None = None,
        *,
        min_probability: float | None = None,
        top: int | None = None,
        paths: bool = False,
        relations: Iterable[str] | None = None,
        entities: Iterable[str] | None = None,
        max_questions: int | None = None,
        k: int = 10,
        names: Names | None = None,
        on_unknown: UnknownRelations = "error",
        cap: int | None = None,
        workers: Workers | int | None = 1,
        overwrite: bool = False,
        progress: Progress | None = None,
    ) -> Links:
        """The links that a graph seems to lack, as a table, or into a file: .parquet, .csv, .tsv or .nt by its suffix.

        Questions (head, relation, ?) that are likely to have an answer which the graph lacks are asked, those of these
        `relations` (`r^-1` asks for heads) and `entities` where given, at most `max_questions`. Links of at least
        `min_probability` are kept (0.5, and any with `top`), up to k of a question, and of all of them the likeliest
        `top`; with `paths`, each has its best path as text. A file that another call with the same arguments has begun
        is gone on with.

        `workers` is how many processes work, None for as many as cores, or `predict.workers.Workers` for Ray. A script
        that starts several has to guard its own start: `if __name__ == "__main__":`.
        """
        from contextpool.predict.complete import CompletionSettings, complete
        from contextpool.predict.workers import Workers

        settings = CompletionSettings(
            min_probability,
            top,
            _listed(relations, "relations"),
            _listed(entities, "entities"),
            max_questions,
            k,
            paths,
            on_unknown,
            cap,
        )
        prepared, _ = self.prepared(graph, on_unknown=on_unknown)
        who = workers if isinstance(workers, Workers) else Workers(workers)
        path = None if output is None else Path(output)
        return complete(self, prepared, path, settings, names, who, overwrite=overwrite, progress=progress)


def _listed(labels: Iterable[str] | None, what: str) -> tuple[str, ...] | None:
    if isinstance(labels, str):
        raise ConfigError(f"{what} is one string; give a list of labels.")
    return None if labels is None else tuple(labels)


def _unknown_relations(labels: list[str], known: RelationVocabulary) -> WrongNamesError:
    told = [
        ("relation", label, unknown_name_message("relation", label, known.forward)) for label in labels[:10]
    ]
    told += [("relation", label, "") for label in labels[10:]]
    hint = (
        "The graph uses them and the model was not trained on them: ask the model that takes any relation "
        f"({spoken('cp.load()', 'leave out --run')}), rename them, or leave their facts out"
    )
    return WrongNamesError(told, f"{hint} ({setting('on_unknown', 'skip')}).")


def _keeping(graph: Graph, relations: list[str]) -> Graph:
    return Graph.from_triples(
        graph.as_triples().with_vocabularies(
            graph.entity_vocabulary, Vocabulary(tuple(relations), "relation")
        )
    )
