"""Ask a model about graphs whose family it was not trained on: the inference sides of GraIL, the pool's `msg` graphs.

    python -m lab.zeroshot RUN --graphs grail/nell --out results/anygraph/zeroshot.jsonl
    python -m lab.zeroshot RUN --fine-tune --graphs grail/nell --out results/anygraph/fine-tuned.jsonl
    python -m lab.zeroshot walk --graphs grail pool     walk mass times candidate relevance, nothing trained
    python -m lab.zeroshot pagerank --graphs grail      personalised PageRank, which does not look at relations
    python -m lab.zeroshot table results/anygraph/zeroshot.jsonl results/untrained/lines.jsonl
                                                        MRR, and by half-links, answers, distance, support

RUN is a run folder, a checkpoint of `lab.anygraph`, or `shipped`. Figures of a graph whose family is in `--trained-on`
are marked as not clean. `--fine-tune` first trains on from the run on the training side of each GraIL split, as
`contextpool train grail/nell_v1 --from RUN` does, and its own validation says when to stop. P1 asks valid and test, P2
test alone; both are given with realistic and with pessimistic ties.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from contextpool.context.config import NO_CONTEXT
from contextpool.context.counts import Statistics
from contextpool.evaluate.ranks import Scorer
from contextpool.evaluate.report import EvaluationReport, evaluate_scorer
from contextpool.experiment import evaluate, load, machine, train
from contextpool.graph.graph import Graph
from contextpool.models.walk import Walk
from contextpool.predict import Predictor
from contextpool.train.run_folder import RunFolder
from contextpool.triples.catalog import data_folders, load_dataset
from contextpool.triples.dataset import Dataset
from contextpool.triples.store import Triples
from lab.anygraph import HELD_BACK, family_of, read_part
from lab.measure import DISTANCES, SUPPORTS, distance_places, sums_by_bucket, support_places
from lab.ship import ship

HALF_LINKS = ("answer and asked", "answer only", "asked only", "neither")
"""Where the relation is already seen: at the answer in its place, at the entity that is asked about in its own."""
UNTRAINED = ("walk", "pagerank")
ANSWERS = ("always the same", "several")
"""How many different answers the relation has in the direction asked, in the graph and in what is asked."""
RESTART = 0.15
"""How likely PageRank's walk begins anew in each step."""
PAGERANK_STEPS = 50
"""The share of a walk that is longer is .85 ** 50 = .0003."""


@dataclass(frozen=True, eq=False)
class Asked:
    """A graph and what is asked of it."""

    name: str
    dataset: Dataset
    """`dataset.inference_graph` is walked on; P1 and P2 are its own."""

    @classmethod
    def read(cls, data: Path, name: str) -> Asked:
        """grail/nell_v1 is its inference graph, pool/NAME its `msg` graph, or `train` where there is no other."""
        if name.startswith("grail"):
            return cls(name, load_dataset(name))
        first = "msg" if any((data / name).glob("msg.txt*")) else "train"
        parts = read_part(data / name, first), read_part(data / name, "test")
        return cls(name, Dataset.of_queries(*parts, parts[1], name))


def half_links(graph: Triples, queries: Triples) -> np.ndarray[Any, np.dtype[np.int64]]:
    """[2T] place in `HALF_LINKS`: tail queries, then head queries."""
    relations = len(graph.relations)
    head, relation, tail = (graph.ids[:, column].astype(np.int64) for column in range(3))
    has_as_head, has_as_tail = np.unique(head * relations + relation), np.unique(tail * relations + relation)
    first, kind, last = (queries.ids[:, column].astype(np.int64) for column in range(3))
    head_seen = np.isin(first * relations + kind, has_as_head)  # [T]
    tail_seen = np.isin(last * relations + kind, has_as_tail)
    answer = np.concatenate([tail_seen, head_seen])
    asked = np.concatenate([head_seen, tail_seen])
    places: np.ndarray[Any, np.dtype[np.int64]] = 2 * (~answer).astype(np.int64) + (~asked)
    return places


def answer_places(graph: Triples, queries: Triples) -> np.ndarray[Any, np.dtype[np.int64]]:
    """[2T] place in `ANSWERS`: tail queries, then head queries."""
    facts = np.concatenate([graph.ids, queries.ids]).astype(np.int64)
    relations, asked = len(graph.relations), queries.ids[:, 1]
    places = []
    for column in (2, 0):
        answers = np.unique(facts[:, column] * relations + facts[:, 1])  # each (answer, relation) once
        places.append(np.bincount(answers % relations, minlength=relations)[asked] > 1)
    return np.concatenate(places).astype(np.int64)


def line_of(asked: Asked, report: EvaluationReport) -> dict[str, Any]:
    """All figures of one graph."""
    data, queries = asked.dataset, report.queries
    second = report.restricted_to(data.evaluation_queries("P2"))
    both = {"P1": report, "P2": second}
    return {
        "graph": asked.name,
        "family": family_of(asked.name if asked.name.startswith("grail/") else f"{asked.name}/msg"),
        "facts": len(data.inference_graph),
        "ranks": report.num_queries,
        "seconds": round(report.seconds or 0.0, 1),
        **{
            f"{protocol} {ties}": {
                key: round(value, 4)
                for key, value in one.under(ties).to_dict().items()
                if key in ("mrr", "hits@1", "hits@10")
            }
            for protocol, one in both.items()
            for ties in ("realistic", "pessimistic")
        },
        "by_half_link": sums_by_bucket(report, half_links(data.inference_graph, queries), HALF_LINKS),
        "by_answers": sums_by_bucket(report, answer_places(data.inference_graph, queries), ANSWERS),
        "by_distance": sums_by_bucket(
            report, np.tile(distance_places(data.inference_graph, queries), 2), DISTANCES
        ),
        "by_support": sums_by_bucket(
            report, np.tile(support_places(data.inference_graph, queries), 2), SUPPORTS
        ),
    }


def walk_predictor(dataset: Dataset) -> Predictor:
    """The walk with candidate relevance, with counts of the graph that is asked about alone."""
    graph = Graph.from_triples(dataset.inference_graph)
    context = replace(NO_CONTEXT, arrive=True)
    model = Walk(graph.num_relations, None, context)
    return Predictor(model, graph.relation_vocabulary, context, Statistics.of(graph), use_statistics="train")


def pagerank_scorer(facts: Triples) -> Scorer:
    """A walk that takes any edge, of either direction, alike, and goes back to the entity asked about at times.

    The relation plays no part; the entity itself comes last.
    """
    size = len(facts.entities)
    head, tail = facts.ids[:, 0].astype(np.int64), facts.ids[:, 2].astype(np.int64)
    start, end = np.concatenate([head, tail]), np.concatenate([tail, head])
    leaving = np.bincount(start, minlength=size).clip(min=1)
    step = scipy.sparse.csr_array((1 / leaving[start], (end, start)), shape=(size, size))

    def score(query_head: Tensor, query_relation: Tensor) -> Tensor:
        query = np.arange(len(query_head))
        begin = np.zeros((size, len(query)))
        begin[query_head.numpy(), query] = 1.0
        mass = begin
        for _ in range(PAGERANK_STEPS):
            mass = RESTART * begin + (1 - RESTART) * (step @ mass)
        mass[query_head.numpy(), query] = -1.0
        return torch.from_numpy(mass.T)

    return score


def names_in(data: Path, wanted: Iterable[str]) -> Iterator[str]:
    """Graphs whose name begins with one of those wanted; never one that is held back, unless it is named in full."""
    grail = sorted(f"grail/{path.name.removesuffix('_ind')}" for path in (data / "grail").glob("*_ind"))
    grail += sorted(f"grail_transductive/{path.name}" for path in (data / "grail_transductive").glob("*_v?"))
    pool = sorted(f"pool/{path.name}" for path in (data / "pool").glob("*") if path.is_dir())
    for name in grail + pool:
        if any(
            name == one or (begins(name, one) and name.partition("/")[2] not in HELD_BACK) for one in wanted
        ):
            yield name


def begins(name: str, start: str) -> bool:
    """grail/nell_v1 with grail, grail/ and grail/nell; grail_transductive/nell_v1 with none of them."""
    folder, _, short = start.partition("/")
    return name.startswith(f"{folder}/{short}")


def predictor_of(run: str, device: str) -> Predictor:
    """Of a run folder, of a checkpoint, or the one of the package."""
    if run == "shipped" or Path(run).is_dir():
        return load(None if run == "shipped" else run, device=device)
    with tempfile.TemporaryDirectory() as folder:
        ship([Path(run)], {}, Path(folder) / "run")
        return load(Path(folder) / "run", device=device)


def fine_tuned(name: str, options: argparse.Namespace) -> tuple[Predictor, dict[str, Any]]:
    """The run trained on, on the training side of a split, and what its validation said."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "run"
        predictor = train(name, seed=options.seed, output=output, start=options.run, device=options.device)
        told = RunFolder.open(output).read_json("metrics.json")
    history = [round(epoch["valid_mrr"], 4) for epoch in told["history"]]
    return predictor, {"best_epoch": told["best_epoch"], "valid_mrr": history}


def trained_on(run: str) -> list[str]:
    """The graphs that a run folder says it was trained on."""
    if not Path(run).is_dir():
        return []
    rows = RunFolder.open(Path(run)).config.get("graphs", ())
    return [str(row["name"]) for row in rows]


def report_on(asked: Asked, options: argparse.Namespace) -> tuple[EvaluationReport, dict[str, Any]]:
    """How the answers rank, and what else a line has."""
    data, size = asked.dataset, 16 if options.device == "cpu" else 64
    if options.run == "pagerank":
        scorer = pagerank_scorer(data.inference_graph)
        return evaluate_scorer(scorer, data.evaluation_queries("P1"), data.evaluation_filter), {}
    if options.run == "walk":
        return evaluate(walk_predictor(data), data, batch_size=size), {}
    if options.fine_tune:
        predictor, more = fine_tuned(asked.name, options)
        return evaluate(predictor, data, batch_size=size), more
    return evaluate(predictor_of(options.run, options.device), data, batch_size=size), {}


def ask(options: argparse.Namespace) -> None:
    """A line for each graph, as soon as it is known."""
    if options.trained_on is None:
        options.trained_on = trained_on(options.run)
    for name in names_in(options.data, options.graphs):
        asked = Asked.read(options.data, name)
        began = time.perf_counter()
        report, more = report_on(asked, options)
        told = {"model": options.name or options.run, "seed": options.seed, "trained_on": options.trained_on}
        line = {**told, **more, **line_of(asked, report), "commit": machine("cpu")["commit"]}
        line["clean"] = line["family"] not in {family_of(one) for one in options.trained_on}
        line["total_seconds"] = round(time.perf_counter() - began, 1)
        print(
            json.dumps(
                {key: line[key] for key in ("model", "graph", "clean", "P1 realistic", "P2 pessimistic")}
            )
        )
        sys.stdout.flush()
        if options.out is not None:
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


def table(lines: Sequence[dict[str, Any]], key: str = "P2 pessimistic") -> str:
    """Graphs down, models across: MRR."""
    models = list(dict.fromkeys(line["model"] for line in lines))
    rows = ["| graph | " + " | ".join(models) + " |", "|---|" + "---:|" * len(models)]
    for graph in dict.fromkeys(line["graph"] for line in lines):
        cells = []
        for model in models:
            found = [line for line in lines if line["graph"] == graph and line["model"] == model]
            mark = "" if not found or found[-1]["clean"] else "*"
            cells.append(f"{found[-1][key]['mrr']:.3f}".lstrip("0") + mark if found else "")
        rows.append(f"| {graph} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def mean_of_clean(lines: Sequence[dict[str, Any]], key: str = "P2 pessimistic") -> str:
    """Over graphs, each by the model that was not trained on its family; and the walk over the same graphs."""
    clean = [line for line in lines if line["model"] not in UNTRAINED and line["clean"]]
    graphs = {line["graph"] for line in clean}
    walk = [line for line in lines if line["model"] == "walk" and line["graph"] in graphs]
    means = [float(np.mean([line[key]["mrr"] for line in one])) for one in (clean, walk) if one]
    return f"mean of {len(graphs)} graphs, {len(clean)} clean lines: " + ", walk ".join(
        f"{mean:.4f}" for mean in means
    )


def slices(lines: Sequence[dict[str, Any]], kind: str, buckets: Sequence[str]) -> str:
    """MRR (P1, realistic ties) of clean lines by family and bucket, each over all ranks of the family."""
    clean = [line for line in lines if line["model"] not in UNTRAINED and line["clean"]]
    families = list(dict.fromkeys(line["family"] for line in clean))
    rows = [
        "| | " + " | ".join(f"{one}: ranks | MRR" for one in families) + " |",
        "|---|" + "---:|---:|" * len(families),
    ]
    for bucket in buckets:
        cells = []
        for family in families:
            found = [
                line[kind][bucket] for line in clean if line["family"] == family and bucket in line[kind]
            ]
            ranks = sum(one["count"] for one in found)
            mrr = sum(one["sum"] for one in found) / ranks if ranks else 0.0
            cells += [f"{ranks:,}", f"{mrr:.3f}".lstrip("0")] if ranks else ["", ""]
        rows += [f"| {bucket} | " + " | ".join(cells) + " |"] if any(cells) else []
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", help="a run folder, a checkpoint, shipped, walk, pagerank; or table")
    parser.add_argument("lines", nargs="*", type=Path, help="of table: files that --out made")
    parser.add_argument(
        "--graphs", nargs="+", default=["grail"], help="beginnings of names, such as grail/nell"
    )
    parser.add_argument(
        "--data", type=Path, help="holds grail/ and pool/; default: where the benchmarks are found"
    )
    parser.add_argument(
        "--trained-on",
        nargs="*",
        help="graphs that the model was trained on, which decide what is clean; default: what a run says",
    )
    parser.add_argument("--name", help="of the model, in the lines")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--fine-tune", action="store_true", help="train on from RUN on each split before it is asked"
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, help="a file that lines are appended to")
    options = parser.parse_args()
    if options.run == "table":
        lines = [json.loads(line) for path in options.lines for line in path.read_text().splitlines()]
        for key in ("P1 realistic", "P2 pessimistic"):
            print(f"{key}\n\n{table(lines, key)}\n\n{mean_of_clean(lines, key)}\n")
        for kind, buckets in (
            ("by_half_link", HALF_LINKS),
            ("by_answers", ANSWERS),
            ("by_distance", DISTANCES),
            ("by_support", SUPPORTS),
        ):
            print(f"{kind}\n\n{slices(lines, kind, buckets)}\n")
        return 0
    if options.data is None:
        options.data = next(
            (folder for folder in data_folders() if (folder / "grail").is_dir()), Path("data")
        )
    ask(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
