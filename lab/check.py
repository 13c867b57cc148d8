"""Does `check` find errors, and are probabilities without training honest? Prints tables, appends lines.

    python -m lab.check planted world codex-s --plantings 5 --clean 600 --fit 300
    python -m lab.check calibration grail/nell_v1 grail/nell_v2 --model no-nell.pt --queries 200

`planted`: 1 % of a graph's facts get another tail of their relation. All of these and a sample of the others are
checked, each hidden from itself; a sampled fact counts as many times as facts it stands for. Beside `check`, rules of
its own numbers, and the walk x relevance scorer (models/walk.py) by the same rules. `calibration`: expected calibration
error of shares over held-out facts of the graph, plain, fitted on 100 facts of the graph and on 2,000.

A graph is `world`, a dataset of the catalog for its training graph (held out are its other facts, but for those of an
inference graph), or pool/NAME. A model is a run folder or a checkpoint of `lab.anygraph`, by default the packaged one.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

from contextpool.context.config import ContextConfig
from contextpool.context.counts import Statistics
from contextpool.evaluate.claims import READ, Standing, fit_weights, standing_of, swapped_ends
from contextpool.evaluate.own_facts import Rows, questions_at_once
from contextpool.experiment import load
from contextpool.graph.graph import Graph
from contextpool.models.anygraph import AnyGraph
from contextpool.models.walk import Walk
from contextpool.pool.batch import BatchBuilder
from contextpool.predict import Predictor
from contextpool.predict.fitted import PLAIN
from contextpool.triples.catalog import data_folders, load_dataset
from contextpool.triples.dataset import joined
from contextpool.triples.filters import KnownAnswers
from contextpool.triples.reader import read_triples
from contextpool.triples.store import Triples
from lab.reliability import reliability
from lab.ship import read_checkpoint

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
SHARE = 0.01
WALK = ContextConfig(views=(), gate=False, arrive=True, arrive_features=False, arrive_walk=False)


def facts_of(name: str) -> tuple[Triples, Triples | None]:
    """The facts of a graph, and others that were held out of it; None where there are none."""
    if name == "world":
        world = load_dataset(name)
        return world.inference_graph, _numbered(world.evaluation_queries(), world.inference_graph)
    if name.startswith("pool/"):
        folder = next(one / name for one in data_folders() if (one / name).is_dir())
        facts = read_triples(folder / "train.txt.gz")
        return facts, _numbered(read_triples(folder / "valid.txt.gz"), facts)
    data = load_dataset(name)
    held_out = joined([data.training_queries, data.validation_queries])
    return data.training_graph, _numbered(held_out, data.training_graph, without=True)


def _numbered(queries: Triples, facts: Triples, without: bool = False) -> Triples:
    """The queries by the vocabularies of the facts, those that they do not know left out."""
    known = set(facts) if without else set()
    rows = [
        (facts.entities.index[h], facts.relations.index[r], facts.entities.index[t])
        for h, r, t in queries
        if h in facts.entities.index and t in facts.entities.index and r in facts.relations.index
        and (h, r, t) not in known
    ]  # fmt: skip
    return Triples(facts.entities, facts.relations, np.array(sorted(rows), dtype=np.int32))


def model_of(path: Path | None) -> Predictor:
    """The model in the package, a run, or a checkpoint of `lab.anygraph`."""
    if path is None or path.is_dir():
        return load(path)
    recipe, weights = read_checkpoint(path)
    model = AnyGraph(0, recipe.model_config(), recipe.context)
    model.load_state_dict(weights)
    return Predictor(model, None, recipe.context, None)


# planted errors


def planted(facts: Triples, seed: int) -> tuple[Graph, Rows, Flags]:
    """A graph of which 1 % of the facts have a tail from elsewhere in their relation, its facts, and which they are."""
    graph, rng = Graph.from_triples(facts), np.random.default_rng(seed)
    order = rng.permutation(len(facts))[: round(2 * SHARE * len(facts)) + 10]
    place, swapped = swapped_ends(graph, facts.ids[order], rng, share_of_tails=1.0)
    place, swapped = order[place][: round(SHARE * len(facts))], swapped[: round(SHARE * len(facts))]
    ids = facts.ids.copy()
    ids[place] = swapped
    wrong = {tuple(row) for row in swapped.tolist()}
    changed = Graph.from_triples(Triples(facts.entities, facts.relations, np.unique(ids, axis=0)))
    rows = changed.as_triples().ids
    return changed, rows, np.array([tuple(row) in wrong for row in rows.tolist()])


def area(support: Floats, wrong: Flags) -> float:
    """Chance that a planted error has less support than another fact; ties count half."""
    ranks, errors = rankdata(-support), int(wrong.sum())
    return float((ranks[wrong].sum() - errors * (errors + 1) / 2) / (errors * (len(wrong) - errors)))


def precision(support: Floats, wrong: Flags, weight: Floats) -> float:
    """Share of errors among the least supported 1 % of all facts; ties as if in random order."""
    order = np.lexsort((weight, support))
    support, wrong, weight = support[order], wrong[order], weight[order]
    room, found = SHARE * weight.sum(), 0.0
    for value in np.unique(support):
        tied = support == value
        taken = min(1.0, max(0.0, room) / weight[tied].sum())
        found += taken * (weight * wrong)[tied].sum()
        room -= weight[tied].sum()
        if room <= 0:
            break
    return float(found / (SHARE * weight.sum()))


def rules(standing: Standing, name: str) -> dict[str, Floats]:
    """Support by rules without a fit: margin and share of both ways, and the mean reciprocal rank."""
    margin, share = standing.read[..., READ.index("margin")], standing.read[..., READ.index("share")]
    found = {f"{name}: reciprocal rank": (1 / standing.rank).mean(axis=0)}
    found |= {
        f"{name}: margin, better way": margin.max(axis=0),
        f"{name}: margin, worse way": margin.min(axis=0),
    }
    return found | {f"{name}: share, worse way": share.min(axis=0)}


def walk_rules(standing: Standing) -> dict[str, Floats]:
    """The same of walk mass times relevance, whose margins are of logarithms."""
    margin = standing.read[..., READ.index("walk")]
    found = {"walk: reciprocal rank": (1 / standing.rank).mean(axis=0)}
    return found | {
        "walk: margin, better way": margin.max(axis=0),
        "walk: margin, worse way": margin.min(axis=0),
    }


def one_planting(
    predictor: Predictor, facts: Triples, seed: int, options: argparse.Namespace
) -> dict[str, Any]:
    """Area and precision of every rule."""
    graph, rows, wrong = planted(facts, seed)
    rng = np.random.default_rng(seed + 1000)
    others = rng.permutation(np.flatnonzero(~wrong))[: options.clean or None]
    place = np.sort(np.append(np.flatnonzero(wrong), others))
    weight = np.where(wrong[place], 1.0, (~wrong).sum() / len(others))
    began = time.perf_counter()
    size, builder = questions_at_once(graph), predictor.builder(graph)
    standing = standing_of(predictor.model, builder, rows[place], size)
    seconds = (time.perf_counter() - began) / len(place)
    fit_on = rows[rng.permutation(len(rows))[: options.fit]]
    kept, swapped = swapped_ends(graph, fit_on, rng)
    own = standing_of(predictor.model, builder, fit_on[kept], size)
    other = standing_of(predictor.model, builder, swapped, size, instead_of=fit_on[kept])
    support = {"check": fit_weights(own.features, other.features).probability(standing.features)}
    support |= rules(standing, "model")
    walk = Walk(graph.num_relations, None, WALK)
    walker = BatchBuilder(graph, walk.num_layers, WALK, Statistics.of(graph))
    support |= walk_rules(standing_of(walk, walker, rows[place], size))
    figures = {
        rule: [area(values, wrong[place]), precision(values, wrong[place], weight)]
        for rule, values in support.items()
    }
    return {
        "seed": seed,
        "errors": int(wrong.sum()),
        "checked": len(place),
        "seconds": seconds,
        "rules": figures,
    }


def run_planted(options: argparse.Namespace) -> None:
    predictor = model_of(options.model)
    for name in options.graphs:
        facts, _ = facts_of(name)
        found = []
        for seed in range(options.plantings):
            found.append(one_planting(predictor, facts, seed, options))
            log(
                options,
                {"what": "planted", "graph": name, "model": str(options.model or "package"), **found[-1]},
            )
        print(f"\n{name}: {len(facts):,} facts, {found[0]['errors']} planted, {found[0]['checked']:,} checked, "
              f"{1000 * np.mean([one['seconds'] for one in found]):.0f} ms each\n")  # fmt: skip
        print("| rule | area under the curve | precision among the least 1 % |\n|---|---:|---:|")
        for rule in found[0]["rules"]:
            values = np.array([one["rules"][rule] for one in found])
            mean, spread = values.mean(axis=0), values.std(axis=0, ddof=1) if len(values) > 1 else (0, 0)
            print(
                f"| {rule} | {mean[0]:.3f} ± {spread[0]:.3f} | {mean[1]:.3f} ± {spread[1]:.3f} |", flush=True
            )


# calibration


def run_calibration(options: argparse.Namespace) -> None:
    predictor = model_of(options.model)
    print(
        f"| graph | facts | questions | plain | 100 facts | {options.facts:,} facts |\n|---|---:|---:|---:|---:|---:|"
    )
    for name in options.graphs:
        facts, held_out = facts_of(name)
        assert held_out is not None, f"{name} has no facts held out"
        graph = Graph.from_triples(facts)
        queries = held_out.sample(options.queries)
        known, scorer = KnownAnswers.of(facts, held_out), predictor.scorer(graph)
        errors: dict[str, Any] = {}
        for facts_asked in (0, 100, options.facts):
            fit = predictor.fits.calibration(graph, facts_asked) if facts_asked else PLAIN
            found = reliability(scorer, queries, known, fit, batch_size=questions_at_once(graph))
            errors[str(facts_asked)] = [found.error, fit.facts, fit.temperature]
        line = {"graph": name, "facts": len(facts), "questions": 2 * len(queries), "errors": errors}
        log(options, {"what": "calibration", "model": str(options.model or "package"), **line})
        cells = " | ".join(f"{error:.4f} ({fitted:,})" for error, fitted, _ in errors.values())
        print(f"| {name} | {len(facts):,} | {2 * len(queries):,} | {cells} |", flush=True)


def log(options: argparse.Namespace, line: dict[str, Any]) -> None:
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        with options.out.open("a") as stream:
            stream.write(json.dumps(line) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("planted", "calibration"))
    parser.add_argument("graphs", nargs="+")
    parser.add_argument("--model", type=Path, help="a run folder, or a checkpoint of lab.anygraph")
    parser.add_argument("--plantings", type=int, default=5)
    parser.add_argument("--clean", type=int, default=600, help="other facts that are checked; 0 for all")
    parser.add_argument("--fit", type=int, default=300, help="facts that `check` is fitted on")
    parser.add_argument("--queries", type=int, default=200, help="held-out facts, asked both ways")
    parser.add_argument("--facts", type=int, default=2000, help="of the larger calibration")
    parser.add_argument("--out", type=Path, help="a file that lines are appended to")
    options = parser.parse_args()
    (run_planted if options.what == "planted" else run_calibration)(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
