"""Make the model folder that the package ships from trained weights; several checkpoints are averaged.

    python -m lab.ship CHECKPOINT [CHECKPOINT ...] [--figures FIGURES.json] [--output FOLDER]

A checkpoint is a run folder of `contextpool train RECIPE`, or what earlier trainings of `lab.anygraph` wrote.
FIGURES.json is all that the card says beyond what the model is; every key may be missing:

    {"trained_on": ["grail/fb237_v1", ...],       names under the data folder: facts and sha256 are looked up
     "terms": {"grail/fb237_v1": "CC BY 2.5"},    what the sources say about passing weights on
     "training": {"steps": 12000, "seconds": 5400, "seeds": [0, 1, 2], "device": "..."},
     "tables": [{"title": "...", "text": "...", "columns": ["graph", "MRR"], "rows": [["nell_v1", 0.8]]}],
     "bad_at": ["..."]}
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from contextpool.errors import ConfigError
from contextpool.experiment import load
from contextpool.interop.hub import SHIPPED, local_folder
from contextpool.models.anygraph import AnyGraph
from contextpool.provenance import facts_sha256
from contextpool.recipe import MIXTURE, Recipe
from contextpool.train.run_folder import Results, RunFolder
from contextpool.triples.catalog import data_folders
from lab.anygraph import averaged, facts_of
from lab.anygraph_model import Settings

FILES = ("config.json", "metrics.json", "model.safetensors", "README.md")


def read_checkpoint(path: Path) -> tuple[Recipe, dict[str, Tensor]]:
    """What the model is, and its weights."""
    if path.is_dir():
        run = RunFolder.open(path)
        recipe = Recipe.from_dict(run.config["recipe"])
        return recipe, run.load_tensors("model.safetensors")[0]
    stored = torch.load(path, weights_only=True)
    settings = Settings(**{key: stored["settings"][key] for key in asdict(Settings())})
    return Recipe(MIXTURE, AnyGraph.name, asdict(settings.model), settings.context), stored["model"]


def graph_rows(data: Path | None, figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Name, facts and sha256 over them of each graph that was trained on, and what its terms say."""
    rows = []
    for name in figures.get("trained_on", ()):
        if data is None:
            raise ConfigError("there is no data folder to look up the graphs of trained_on in; see --data.")
        facts = facts_of(data, name)
        terms = figures.get("terms", {}).get(name, "")
        rows.append({"name": name, "facts": len(facts), "sha256": facts_sha256(facts), "terms": terms})
    return rows


def card(name: str, recipe: Recipe, num_weights: int, figures: Mapping[str, Any]) -> str:
    """README.md: what the model is, then what the figures say."""
    parts = [
        f"# {name}\n\n"
        f"A contextpool model for any graph, {num_weights:,} weights: it answers (head, relation, ?) and "
        "(?, relation, tail) about any relation of any graph, with nothing to train. No weight belongs to a relation, "
        "an entity or a graph: what a relation is to the one asked about is computed from precision and recall.\n\n"
        '```python\nimport contextpool as cp\n\npredictor = cp.load()  # or cp.load("'
        + name
        + '") to pin it\n'
        'predictor.predict(cp.read_graph("new.tsv"), head="...", relation="...")\n```\n',
        f"## Training\n\n{_list(figures.get('training', {}))}",
    ]
    if rows := figures.get("graphs"):
        parts.append(
            "## Graphs\n\n"
            + _table(
                ("graph", "facts", "sha256 of the sorted facts", "terms"),
                [[row[key] for key in ("name", "facts", "sha256", "terms")] for row in rows],
            )
        )
    for one in figures.get("tables", ()):
        text = f"{one['text']}\n\n" if one.get("text") else ""
        parts.append(f"## {one['title']}\n\n{text}{_table(one['columns'], one['rows'])}")
    if not figures.get("tables"):
        parts.append("## Figures\n\nProvisional weights: no figures yet.\n")
    if bad := figures.get("bad_at"):
        parts.append("## What it is bad at\n\n" + "".join(f"- {line}\n" for line in bad))
    return "\n".join(parts)


def _list(values: Mapping[str, Any]) -> str:
    return "".join(f"- {key}: {value}\n" for key, value in values.items()) or "Not written down.\n"


def _table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join("| " + " | ".join(map(str, line)) + " |\n" for line in lines)


def ship(checkpoints: Sequence[Path], figures: Mapping[str, Any], output: Path) -> None:
    """Write the folder; what was there of it is replaced."""
    read = [read_checkpoint(path) for path in checkpoints]
    recipe = read[0][0]
    if any(other != recipe for other, _ in read[1:]):
        raise ConfigError("the checkpoints are of different models, so their weights cannot be averaged.")
    weights = averaged([weights for _, weights in read])
    AnyGraph(0, recipe.model_config(), recipe.context).load_state_dict(weights)
    config = {"recipe": recipe.to_dict(), "seed": 0, "machine": {}, "dataset_sha256": ""}
    metrics = {
        "valid_mrr": None,
        "calibration": {"calibration": None, "reason": "it is fitted on the graph at hand"},
    }
    with tempfile.TemporaryDirectory() as folder, RunFolder.create(Path(folder) / "run", config) as run:
        size = sum(weight.numel() for weight in weights.values())
        told = card(output.name, recipe, size, figures)
        run.write_results(Results(weights, recipe.model, {**metrics, "figures": figures}, told))
        load(run.path)
        output.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            shutil.copyfile(run.path / name, output / name)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoints", nargs="+", type=Path)
    parser.add_argument("--figures", type=Path, help="what the card says, as JSON")
    parser.add_argument("--data", type=Path, help="holds grail/ and pool/")
    parser.add_argument("--output", type=Path, default=local_folder(SHIPPED))
    options = parser.parse_args()
    figures: dict[str, Any] = (
        {} if options.figures is None else json.loads(options.figures.read_text("utf-8"))
    )
    data = options.data or next((one for one in data_folders() if (one / "grail").is_dir()), None)
    figures["graphs"] = graph_rows(data, figures)
    ship(options.checkpoints, figures, options.output)
    print(f"{options.output}: {sum(file.stat().st_size for file in options.output.iterdir()):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
