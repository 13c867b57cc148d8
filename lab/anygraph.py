"""One model for any graph: pre-training over a mixture of graphs, asked about a family of graphs that was left out.

    python -m lab.anygraph train --leave-out nell --steps 800 --set batch=16 --queries 300
    python -m lab.anygraph train --leave-out nell --set weights=binary --set heads=gate,walk
    python -m lab.anygraph plain --leave-out nell       walk mass times candidate relevance, nothing trained

No weight belongs to a relation or to an entity: what a relation is to the query relation is computed from precision and
recall (Definitions 5 and 6), so the model can be asked about any relation of any graph. An experiment, not a part of
the product; docs/lab/anygraph.md has what came out. Evaluation asks valid.txt and test.txt over train.txt of the
*training* sides of GraIL's benchmarks. Their inference graphs and the pool's graphs in HELD_BACK are never read.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import torch
from torch import Tensor, nn

from contextpool.context.counts import CountsOf, Statistics
from contextpool.errors import ConfigError, DataError
from contextpool.evaluate.ranks import rank_answers, scored_answers
from contextpool.graph.graph import Graph
from contextpool.graph.relations import DirectedQueries
from contextpool.kernels.backend import has_triton
from contextpool.pool.batch import BatchBuilder, QueryBatch
from contextpool.pool.hide import EdgeDropout
from contextpool.train.config import TrainConfig
from contextpool.train.graphed import GraphedStep
from contextpool.train.loop import arithmetic
from contextpool.train.loss import softmax_loss
from contextpool.train.optimizer import learning_rate, new_optimizer, set_rate
from contextpool.train.queries import TrainingQueries
from contextpool.triples.catalog import data_folders
from contextpool.triples.dataset import joined
from contextpool.triples.filters import KnownAnswers
from contextpool.triples.reader import read_triples
from contextpool.triples.store import Triples, distinct_rows, renumbering
from lab.anygraph_model import AnyGraph, Settings

FAMILIES = {"freebase": "fb237", "wordnet": "WN18RR", "nell": "nell"}
"""Families that can be left out: the beginning of the names of their graphs."""
HELD_BACK = ("umls", "wikitopics-loc")
"""Graphs of the pool that choices are not made on."""
MIXTURE = (
    "WN18RR_v1", "WN18RR_v2", "fb237_v1", "fb237_v2", "nell_v1", "nell_v2", "codex-s", "kinships", "nations",
    "pediatypes-db2wd", "pediatypes-db2yg", "wikitopics-edu", "wikitopics-health", "wikitopics-sci",
)  # fmt: skip
EVALUATION_BATCH = 16
TOLD_EVERY = 100
"""Steps between two lines about the loss."""

Score = Callable[[QueryBatch, Tensor], Tensor]
"""(batch, PNA's constant of its graph []) -> scores [B, N]"""


class Task:
    """One graph: what makes batches over it, and its facts as training queries."""

    def __init__(self, name: str, facts: Triples, settings: Settings, device: torch.device) -> None:
        self.name, self.settings = name, settings
        self.graph = Graph.from_triples(facts).to(device)
        statistics = Statistics.of(self.graph)
        self.builder = BatchBuilder(
            self.graph, settings.layers, settings.context, statistics, relation_graph=True
        )
        self.log_degree = (self.graph.row_start.diff().double() + 1).log().mean().clamp(min=1e-3).float()
        self.counts = CountsOf(self.graph, statistics.counts)
        drawn = torch.Generator().manual_seed(self.graph.num_relations)
        self.shuffle = torch.randperm(2 * self.graph.num_relations, generator=drawn).to(device)  # [2R]
        self.queries = TrainingQueries.of(facts, self.graph, KnownAnswers.of(facts)).to(device)
        self.recorded: GraphedStep | None = None

    def batch(
        self, head: Tensor, relation: Tensor, hidden_edge: Tensor, dropout: EdgeDropout | None = None
    ) -> QueryBatch:
        """A batch for queries [B], each without its hidden edge; -1 hides nothing."""
        batch = self.builder.build(head, relation, hidden_edge, dropout=dropout)
        return batch if self.settings.weights == "relevance" else self._weighted(batch, hidden_edge)

    def _weighted(self, batch: QueryBatch, hidden_edge: Tensor) -> QueryBatch:
        """The relation graph's weights as an ablation wants them."""
        kind, shared, own = self.settings.weights, batch.relation_precision, batch.own_relevance
        assert shared is not None  # [2R, 2R]
        assert own is not None  # [B, 4, 2R]
        if kind == "shuffled":  # every neighbor has the numbers of another one
            shared, own = shared[:, self.shuffle], own[:, :, self.shuffle]
        elif kind == "binary":
            shared, own = (shared > 0).float(), (own > 0).float()
        else:  # entities having both, on a logarithmic scale up to 1
            most = math.log1p(self.graph.num_entities)
            both = self.counts.for_queries(batch.query_relation, hidden_edge).both  # [B, 2, 2R]
            shared = torch.log1p(self.counts.both.float()) / most
            own = (torch.log1p(both.float()) / most).repeat_interleave(2, dim=1)
        return replace(batch, relation_precision=shared, own_relevance=own)


class Pretraining:
    """Steps over a mixture of graphs; the same on the CPU for the same seed. On CUDA a step is recorded per graph."""

    def __init__(self, settings: Settings, tasks: list[Task], seed: int, *, recorded: bool = True) -> None:
        self.settings, self.tasks = settings, tasks
        self.device = tasks[0].graph.device
        torch.manual_seed(seed)
        self.model = AnyGraph(settings).to(self.device)
        self.config = TrainConfig(
            epochs=1, lr=settings.lr, weight_decay=settings.weight_decay, warmup_steps=50, schedule="cosine"
        )
        self.optimizer = new_optimizer(self.model, self.config)
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self.host = np.random.default_rng(seed)
        share = np.array([task.graph.num_triples for task in tasks], dtype=float) ** settings.power
        self.share = share / share.sum()
        if recorded and self.device.type == "cuda" and has_triton():
            for task in tasks:
                task.recorded = self._recorder(task)

    def _recorder(self, task: Task) -> GraphedStep:
        def rehearse(asked: TrainingQueries, batch: QueryBatch) -> None:
            self._loss(task, asked, batch).backward()
            self.optimizer.zero_grad(set_to_none=True)

        return GraphedStep(lambda asked, batch: self._update(task, asked, batch), rehearse)

    def draw(self) -> tuple[Task, TrainingQueries, QueryBatch]:
        """A graph and training queries of it, each without its own fact and some of the others."""
        task = self.tasks[self.host.choice(len(self.tasks), p=self.share)]
        share = self.host.uniform(self.settings.drop_low, self.settings.drop_high)
        dropout = EdgeDropout(float(share), int(self.host.integers(2**62)))
        size = (self.settings.batch,)
        rows = torch.randint(len(task.queries), size, generator=self.generator, device=self.device)
        asked = task.queries.batch(rows)
        return task, asked, task.batch(asked.head, asked.relation, asked.hidden_edge, dropout)

    def step(self, task: Task, asked: TrainingQueries, batch: QueryBatch) -> Tensor:
        """Update the weights; the loss []."""
        done = None if task.recorded is None else task.recorded.step(asked, batch)
        return (done or self._update(task, asked, batch))[0].clone()  # the next replay writes over it

    def _update(self, task: Task, asked: TrainingQueries, batch: QueryBatch) -> tuple[Tensor, Tensor]:
        loss = self._loss(task, asked, batch)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip)
        self.optimizer.step()
        return loss.detach(), norm

    def _loss(self, task: Task, asked: TrainingQueries, batch: QueryBatch) -> Tensor:
        return softmax_loss(self.model(batch, task.log_degree).float(), asked)

    def run(self, steps: int, tell: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """So many steps, the rate falling to 0; says how it goes and what it took."""
        began, losses = time.perf_counter(), []
        with arithmetic(self.device):
            for done in range(steps):
                set_rate(self.optimizer, learning_rate(self.config, done, steps))
                losses.append(self.step(*self.draw()))
                if (done + 1) % TOLD_EVERY == 0:
                    loss, seconds = mean_of(losses[-TOLD_EVERY:]), time.perf_counter() - began
                    tell({"event": "steps", "step": done + 1, "loss": loss, "seconds": round(seconds, 1)})
        loss, seconds = mean_of(losses[-2 * TOLD_EVERY :]), time.perf_counter() - began
        pace = round(1000 * seconds / max(steps, 1), 2)
        return {"steps": steps, "seconds": round(seconds, 1), "ms_a_step": pace, "loss": loss}


def mean_of(losses: list[Tensor]) -> float:
    """Rounded; one that is not finite ends the training."""
    loss = float(torch.stack(losses).mean()) if losses else 0.0
    if not math.isfinite(loss):
        raise DataError(f"the loss is {loss}: training has diverged. Lower lr.")
    return round(loss, 4)


def walk_and_relevance(batch: QueryBatch, log_degree: Tensor) -> Tensor:
    """[B, N] what needs no training: the mass of a random walk times how much a candidate looks like an answer."""
    assert batch.candidate_mass is not None
    assert batch.candidate_relevance is not None
    return (batch.candidate_mass + 1e-6) * batch.candidate_relevance


def evaluate(score: Score, task: Task, queries: Triples, known: KnownAnswers) -> dict[str, float]:
    """Filtered ranks with realistic ties, both directions; `queries` are numbered as the facts of the task are."""

    def scorer(head: Tensor, relation: Tensor) -> Tensor:
        return score(task.batch(head, relation, torch.full_like(head, -1)), task.log_degree)

    asked, device = DirectedQueries.of(queries), task.graph.device
    found = [
        rank_answers(one.scores, one.answer, one.known_row, one.known_entity).realistic
        for one in scored_answers(scorer, asked, known, EVALUATION_BATCH, device)
    ]
    rank = torch.cat(found)
    hits = float((rank <= 10).double().mean())
    return {"mrr": round(float((1 / rank).mean()), 4), "h10": round(hits, 4), "ranks": len(rank)}


def read_part(folder: Path, stem: str) -> Triples:
    """The triples of train.txt, valid.txt or test.txt, compressed or not."""
    found = [path for suffix in (".txt", ".txt.gz") if (path := folder / f"{stem}{suffix}").is_file()]
    if not found:
        raise DataError(f"{folder}: there is no {stem}.txt or {stem}.txt.gz. See --data.")
    return read_triples(found[0])


def numbered_as(facts: Triples, queries: Triples) -> Triples:
    """The queries whose entities and relation are those of facts, with their numbers."""
    entity = renumbering(queries.entities, facts.entities)
    relation = renumbering(queries.relations, facts.relations)
    head, kind, tail = queries.ids.T
    ids = np.stack([entity[head], relation[kind], entity[tail]], axis=1)
    return Triples(facts.entities, facts.relations, distinct_rows(ids[(ids >= 0).all(axis=1)]))


def graph_names(data: Path, mixture: Iterable[str], left_out: Iterable[str]) -> list[str]:
    """grail/NAME or pool/NAME of the graphs to train on, sorted; "all" for every one that may be."""
    mixture = list(mixture)
    every = [path for kind in ("grail", "pool") for path in (data / kind).glob("*") if path.is_dir()]
    allowed = [path for path in every if path.name not in HELD_BACK and not path.name.endswith("_ind")]
    wanted = mixture if mixture != ["all"] else [path.name for path in allowed]
    if missing := set(wanted) - {path.name for path in allowed}:
        raise DataError(f"{data}: no graph to train on is called {', '.join(sorted(missing))}.")
    outside = tuple(FAMILIES[family] for family in left_out)
    chosen = (path for path in allowed if path.name in wanted and not path.name.startswith(outside))
    return sorted(f"{path.parent.name}/{path.name}" for path in chosen)


def evaluation(score: Score, options: argparse.Namespace, settings: Settings) -> dict[str, Any]:
    """Over the training sides of the families that were left out."""
    figures = {}
    for name in (
        f"{FAMILIES[family]}_v{version}" for family in options.leave_out for version in (1, 2, 3, 4)
    ):
        folder = options.data / "grail" / name
        facts = read_part(folder, "train")
        queries = joined([numbered_as(facts, read_part(folder, stem)) for stem in ("valid", "test")])
        task = Task(name, facts, settings, torch.device(options.device))
        known = KnownAnswers.of(facts, queries)
        figures[name] = evaluate(score, task, queries.sample(options.queries, seed=0), known)
    mean = sum(one["mrr"] for one in figures.values()) / max(len(figures), 1)
    return {"mean_mrr": round(mean, 4), "graphs": figures}


def log(options: argparse.Namespace, line: Mapping[str, Any]) -> None:
    """A line of JSON to the terminal, and to the file where there is one."""
    text = json.dumps({"name": options.name, "leave_out": options.leave_out, "seed": options.seed, **line})
    print(text, flush=True)
    if options.out is not None:
        with options.out.open("a", encoding="utf-8") as file:
            file.write(text + "\n")


def train(options: argparse.Namespace, settings: Settings) -> None:
    """Train, then ask the families that were left out."""
    names, device = (
        graph_names(options.data, options.mixture, options.leave_out),
        torch.device(options.device),
    )
    tasks = [Task(name, read_part(options.data / name, "train"), settings, device) for name in names]
    training = Pretraining(settings, tasks, options.seed, recorded=not options.eager)
    size = sum(weight.numel() for weight in training.model.parameters())
    log(options, {"event": "start", "trained_on": names, "parameters": size})
    result = training.run(options.steps, lambda line: log(options, line))
    if options.checkpoint is not None:
        torch.save({"settings": asdict(settings), "model": training.model.state_dict()}, options.checkpoint)
    figures = evaluation(training.model.eval(), options, settings)
    told = {"device": options.device, "settings": asdict(settings)}
    log(options, {"event": "result", **result, **figures, **told})


def settings_of(pairs: Iterable[str]) -> Settings:
    """From key=value, as --set takes them."""
    kinds = get_type_hints(Settings)
    given: dict[str, Any] = {}
    for pair in pairs:
        key, _, value = pair.partition("=")
        if key not in kinds:
            raise ConfigError(
                f"--set {pair}: the settings are {', '.join(one.name for one in fields(Settings))}."
            )
        given[key] = value.lower() == "true" if kinds[key] is bool else kinds[key](value)
    return Settings(**given)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("train", "plain"))
    parser.add_argument(
        "--data", type=Path, help="holds grail/ and pool/; default: where the benchmarks are found"
    )
    parser.add_argument("--leave-out", nargs="+", choices=list(FAMILIES), default=["nell"])
    parser.add_argument("--mixture", nargs="+", default=MIXTURE, help="names of graphs, or all")
    parser.add_argument("--set", action="append", default=[], help="key=value of Settings")
    parser.add_argument("--name", default="default", help="of the setting, in the lines")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--queries", type=int, default=300, help="triples asked of each graph")
    parser.add_argument("--eager", action="store_true", help="on CUDA: launch steps kernel by kernel")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, help="a file that lines are appended to")
    parser.add_argument("--checkpoint", type=Path)
    options = parser.parse_args()
    settings = settings_of(options.set)
    if options.data is None:
        options.data = next(
            (folder for folder in data_folders() if (folder / "grail").is_dir()), Path("data")
        )
    if options.what == "train":
        train(options, settings)
    else:
        log(options, {"event": "plain", **evaluation(walk_and_relevance, options, settings)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
