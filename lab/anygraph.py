"""One model for any graph: pre-training over a mixture of graphs, asked about a family of graphs that was left out.

    python -m lab.anygraph train --leave-out nell --steps 800 --set batch=16 --queries 300
    python -m lab.anygraph train --leave-out nell --set weights=binary --set heads=gate,walk
    python -m lab.anygraph plain --leave-out nell       walk mass times candidate relevance, nothing trained
    python -m lab.anygraph ask --run RUN --leave-out nell --queries 800         runs, their weights averaged; anygraph-1

The training is the product's (`contextpool train RECIPE`, contextpool.pretraining); here are the families to leave out,
ablations, and the asking. docs/lab/anygraph.md has what came out. Evaluation asks valid.txt and test.txt over train.txt
of the *training* sides of GraIL's benchmarks. Their inference graphs and the pool's graphs in HELD_BACK are never read.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, get_type_hints

import torch
from torch import Tensor

from contextpool.errors import ConfigError, DataError
from contextpool.evaluate.ranks import rank_answers, scored_answers
from contextpool.graph.graph import Graph
from contextpool.graph.relations import DirectedQueries
from contextpool.interop.hub import SHIPPED
from contextpool.models.anygraph import AnyGraph
from contextpool.pool.batch import BatchBuilder, QueryBatch
from contextpool.pretraining import Mixture, Pretraining
from contextpool.provenance import facts_sha256, machine
from contextpool.recipe import MIXTURE, Recipe
from contextpool.stored import load
from contextpool.train.config import MixedGraph, MixtureConfig, TrainConfig
from contextpool.train.queries import TrainingQueries
from contextpool.train.run_folder import RunFolder
from contextpool.triples.catalog import data_folders
from contextpool.triples.dataset import joined
from contextpool.triples.filters import KnownAnswers
from contextpool.triples.reader import read_triples
from contextpool.triples.store import Triples
from lab.anygraph_model import Settings, builder_of, new_model

FAMILIES = {"freebase": "fb237", "wordnet": "WN18RR", "nell": "nell"}
"""Families whose training sides are asked when they are left out: the beginning of the names of their graphs."""
FAMILY_OF = {
    "fb237": "Freebase", "WN18RR": "WordNet", "nell": "NELL", "codex": "Wikidata", "wikitopics": "Wikidata",
    "pediatypes-db2wd": "Wikidata", "pediatypes": "DBpedia", "kinships": "small", "nations": "small", "umls": "small",
}  # fmt: skip
"""The family of a graph, by the beginning of its name; the longest that fits."""
HELD_BACK = ("umls", "wikitopics-loc")
"""Graphs of the pool that choices are not made on."""
DEFAULT = (
    "WN18RR_v1", "WN18RR_v2", "fb237_v1", "fb237_v2", "nell_v1", "nell_v2", "codex-s", "kinships", "nations",
    "pediatypes-db2wd", "pediatypes-db2yg", "wikitopics-edu", "wikitopics-health", "wikitopics-sci",
)  # fmt: skip
EVALUATION_BATCH = 16
TOLD_EVERY = 100
"""Steps between two lines about the loss, and between two checkpoints."""


def family_of(name: str) -> str:
    """Of grail/NAME or pool/NAME, /msg or not. The two graphs of pediatypes-db2wd are of two families."""
    short = name.partition("/")[2] or name
    if short.startswith("pediatypes-db2wd") and not short.endswith("/msg"):
        return "DBpedia"
    fitting = [start for start in FAMILY_OF if short.startswith(start)]
    return FAMILY_OF[max(fitting, key=len)] if fitting else short


Score = Callable[[QueryBatch], Tensor]
"""batch -> scores [B, N]"""


class Task:
    """One graph, and what makes batches over it as the settings want them."""

    def __init__(self, facts: Triples, settings: Settings, device: torch.device) -> None:
        self.graph = Graph.from_triples(facts).to(device)
        self.builder = builder_of(self.graph, settings)
        self.queries = TrainingQueries.of(facts, self.graph, KnownAnswers.of(facts)).to(device)

    def batch(self, head: Tensor, relation: Tensor, hidden_edge: Tensor) -> QueryBatch:
        """A batch for queries [B], each without its hidden edge; -1 hides nothing."""
        return self.builder.build(head, relation, hidden_edge)


class LabPretraining(Pretraining):
    """The product's, with what an ablation changes: heads of the model, weights in the batches."""

    def __init__(
        self, settings: Settings, mixture: Mixture, steps: int, seed: int, device: torch.device
    ) -> None:
        self.settings = settings
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = new_model(settings)
        super().__init__(recipe_of(settings, mixture, steps), mixture, seed, device, model)

    def builder(self, graph: Graph) -> BatchBuilder:
        return builder_of(graph, self.settings)


def recipe_of(settings: Settings, mixture: Mixture, steps: int) -> Recipe:
    """As `contextpool train` takes it."""
    train = TrainConfig(
        batch_size=settings.batch,
        lr=settings.lr,
        weight_decay=settings.weight_decay,
        warmup_steps=50,
        clip_norm=settings.clip,
        checkpoint_steps=TOLD_EVERY,
    )
    dropout = (settings.drop_low, settings.drop_high)
    mixed = MixtureConfig(
        mixture.graphs, power=settings.power, steps=steps, work=settings.work, edge_dropout=dropout
    )
    return Recipe(MIXTURE, AnyGraph.name, asdict(settings.model), settings.context, train, mixed)


def walk_and_relevance(batch: QueryBatch) -> Tensor:
    """[B, N] what needs no training: the mass of a random walk times how much a candidate looks like an answer."""
    assert batch.candidate_mass is not None
    assert batch.candidate_relevance is not None
    return (batch.candidate_mass + 1e-6) * batch.candidate_relevance


def evaluate(score: Score, task: Task, queries: Triples, known: KnownAnswers) -> dict[str, float]:
    """Filtered ranks with realistic ties, both directions; `queries` are numbered as the facts of the task are."""

    def scorer(head: Tensor, relation: Tensor) -> Tensor:
        return score(task.batch(head, relation, torch.full_like(head, -1)))

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


def facts_of(data: Path, name: str) -> Triples:
    """Of a graph as `graph_names` names it."""
    return (
        read_part((data / name).parent, "msg") if name.endswith("/msg") else read_part(data / name, "train")
    )


def graph_names(data: Path, mixture: Iterable[str], left_out: Iterable[str]) -> list[str]:
    """grail/NAME or pool/NAME of the graphs to train on, sorted; "all" for every one that may be.

    The second graph of a pair in the pool is NAME/msg; "all" has those of pediatypes, and not codex-m, which is slow.
    """
    mixture = list(mixture)
    every = [path for kind in ("grail", "pool") for path in (data / kind).glob("*") if path.is_dir()]
    allowed = [path for path in every if path.name not in HELD_BACK and not path.name.endswith("_ind")]
    allowed += [path / "msg" for path in allowed if any(path.glob("msg.txt*"))]
    everything = [path for path in allowed if path.name != "codex-m"]
    everything = [path for path in everything if path.name != "msg" or "pediatypes" in path.parent.name]
    names = {path: str(path.relative_to(data)) for path in allowed}
    wanted = set(mixture) if mixture != ["all"] else {names[path].partition("/")[2] for path in everything}
    if missing := wanted - {name.partition("/")[2] for name in names.values()}:
        raise DataError(f"{data}: no graph to train on is called {', '.join(sorted(missing))}.")
    used = [name for name in names.values() if name.partition("/")[2] in wanted]
    return sorted(name for name in used if not any(belongs(name, one) for one in left_out))


def belongs(name: str, left_out: str) -> bool:
    """Whether a graph is of a family, in lower case, or its name begins so (wikitopics-art)."""
    return family_of(name).lower() == left_out or name.partition("/")[2].startswith(left_out)


def evaluation(score: Score, options: argparse.Namespace, settings: Settings) -> dict[str, Any]:
    """Over the training sides of those of FAMILIES that were left out."""
    figures = {}
    families = [FAMILIES[one] for one in options.leave_out if one in FAMILIES]
    for name in (f"{family}_v{version}" for family in families for version in (1, 2, 3, 4)):
        folder = options.data / "grail" / name
        facts = read_part(folder, "train")
        queries = joined(
            [read_part(folder, stem).within(facts.entities, facts.relations) for stem in ("valid", "test")]
        )
        task = Task(facts, settings, torch.device(options.device))
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
    names = graph_names(options.data, options.mixture, options.leave_out)
    facts = tuple(facts_of(options.data, name) for name in names)
    mixture = Mixture(tuple(map(MixedGraph, names)), facts, tuple(facts_sha256(one) for one in facts))
    training = LabPretraining(settings, mixture, options.steps, options.seed, torch.device(options.device))
    size = sum(weight.numel() for weight in training.model.parameters())
    log(options, {"event": "start", "trained_on": names, "parameters": size})

    def tell(event: dict[str, Any]) -> None:
        step = min(options.steps, event["epoch"] * TOLD_EVERY)
        told = {key: round(event[key], 4) for key in ("loss", "seconds")}
        log(options, {"event": "steps", "step": step, **told})

    began = time.perf_counter()
    with opened(options, training) as run:
        training.fit(run, on_event=tell)
    seconds = time.perf_counter() - began
    result = {"steps": options.steps, "seconds": round(seconds, 1)}
    figures = evaluation(training.model.eval(), options, settings)
    told = {"device": options.device, "settings": asdict(settings)}
    log(options, {"event": "result", **result, **figures, **told})


def asked(options: argparse.Namespace, settings: Settings) -> dict[str, Any]:
    """Figures of trained models whose weights are averaged; several of one lineage may be, others mean nothing."""
    models = [load(str(run)).model for run in options.run or [SHIPPED]]
    weights = averaged([model.state_dict() for model in models])
    models[0].load_state_dict(weights)
    with torch.no_grad():
        return evaluation(models[0].eval(), options, settings)


def averaged(checkpoints: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of each weight."""
    names = checkpoints[0].keys()
    return {
        name: torch.stack([one[name].double() for one in checkpoints]).mean(dim=0).float() for name in names
    }


def opened(options: argparse.Namespace, training: LabPretraining) -> AbstractContextManager[RunFolder | None]:
    """The run folder, where one is wanted: a new one, or the one to go on with."""
    if not options.run:
        return nullcontext()
    if len(options.run) > 1:
        raise ConfigError("train has one --run.")
    folder = options.run[0]
    if (folder / "config.json").is_file():
        return RunFolder.open(folder, writing=True)
    config = {
        "recipe": training.recipe.to_dict(),
        "seed": options.seed,
        "machine": machine(options.device),
        "dataset_sha256": training.mixture.sha256,
        "graphs": training.mixture.described(),
        "settings": asdict(training.settings),
    }
    return RunFolder.create(folder, config)


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
    parser.add_argument("what", choices=("train", "plain", "ask"))
    parser.add_argument(
        "--data", type=Path, help="holds grail/ and pool/; default: where the benchmarks are found"
    )
    parser.add_argument(
        "--leave-out", nargs="*", default=["nell"], help="families in lower case, or beginnings of names"
    )
    parser.add_argument("--mixture", nargs="+", default=DEFAULT, help="names of graphs, or all")
    parser.add_argument("--set", action="append", default=[], help="key=value of Settings")
    parser.add_argument("--name", default="default", help="of the setting, in the lines")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--queries", type=int, default=300, help="triples asked of each graph")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, help="a file that lines are appended to")
    parser.add_argument(
        "--run", type=Path, action="append", default=[], help="a run folder, gone on with where there is one"
    )
    options = parser.parse_args()
    settings = settings_of(options.set)
    if options.data is None:
        options.data = next(
            (folder for folder in data_folders() if (folder / "grail").is_dir()), Path("data")
        )
    if options.what == "train":
        train(options, settings)
    elif options.what == "ask":
        log(
            options, {"event": "asked", "runs": [run.name for run in options.run], **asked(options, settings)}
        )
    else:
        log(options, {"event": "plain", **evaluation(walk_and_relevance, options, settings)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
