"""Write the shipped recipes: 24 benchmark settings x {nbfnet, redgnn} x {plain, context}, baselines, and `world`.

    python scripts/build_recipes.py [--check]

One place to change a family's settings; the TOML files are what `contextpool train` reads. RED-GNN's
settings per split are the published ones, but for the loss's scale and the queries (docs/recipes.md). Recipes that a
search found are taken as they are from results/recipes/ (docs/bench.md).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from lab.recipe_file import to_toml  # noqa: E402

FOLDER = ROOT / "src" / "contextpool" / "recipes"
TUNED = ROOT / "results" / "recipes"
"""What `contextpool tune --write-recipe` found; a file here takes the place of the one of its name."""
FAMILIES = ("WN18RR", "fb237", "nell")
VERSIONS = ("v1", "v2", "v3", "v4")

# lr, weight decay, decay per epoch, width, attention, dropout, activation, layers, batch
REDGNN: dict[str, tuple[float, float, float, int, int, float, str, int, int]] = {
    "WN18RR_v1": (0.005, 0.0002, 0.991, 64, 5, 0.21, "idd", 5, 100),
    "WN18RR_v2": (0.0016, 0.0004, 0.994, 48, 3, 0.02, "relu", 5, 20),
    "WN18RR_v3": (0.0014, 0.000034, 0.991, 64, 5, 0.28, "tanh", 5, 20),
    "WN18RR_v4": (0.006, 0.000132, 0.991, 32, 5, 0.11, "relu", 5, 10),
    "fb237_v1": (0.0092, 0.0003, 0.994, 32, 5, 0.23, "relu", 3, 20),
    "fb237_v2": (0.0077, 0.0002, 0.993, 48, 5, 0.3, "relu", 3, 10),
    "fb237_v3": (0.0006, 0.000023, 0.994, 48, 3, 0.27, "relu", 3, 20),
    "fb237_v4": (0.0052, 0.000018, 0.999, 48, 5, 0.07, "idd", 5, 20),
    "nell_v1": (0.0021, 0.000189, 0.9937, 48, 5, 0.246, "relu", 5, 10),
    "nell_v2": (0.0075, 0.000066, 0.9996, 48, 5, 0.288, "relu", 3, 100),
    "nell_v3": (0.0008, 0.0004, 0.995, 16, 3, 0.06, "relu", 3, 10),
    "nell_v4": (0.0005, 0.000398, 1.0, 16, 5, 0.147, "tanh", 5, 20),
}
"""RED-GNN's published inductive settings."""


CHOSEN: dict[tuple[str, str], tuple[dict[str, Any], dict[str, Any]]] = {
    ("grail/nell_v1", "redgnn"): ({"layers": 3, "dropout": 0.1}, {"epochs": 5}),
}
"""Changes to the model and to the training that had the highest validation MRR of what was tried (docs/recipes.md)."""


NBFNET_EPOCHS: dict[str, dict[str, tuple[int, int, int, int]]] = {
    "grail": {"WN18RR": (10, 6, 5, 8), "fb237": (6, 5, 4, 3), "nell": (3, 3, 3, 3)},
    "grail_transductive": {"WN18RR": (10, 8, 6, 10), "fb237": (10, 8, 6, 5), "nell": (6, 6, 6, 6)},
}
"""v1 .. v4: fewer where an epoch has more steps; in the transductive settings a third of the facts are queries."""


WALKED: dict[str, dict[str, Any]] = {
    "model": {"exclude_head": True},
    "train": {"average_last": 3, "edge_dropout": 0.2},
    "context": {"arrive_walk": True},
}
"""The best of 24 changes to nbfnet+cp in every family but nell, where it was second."""

MORE: dict[str, dict[str, Any]] = {"train": {"edge_dropout": 0.4}, "context": {"arrive_features": True}}
"""The best on top of that, where it was not more layers."""

FOUND: dict[tuple[str, str, str], list[dict[str, dict[str, Any]]]] = {
    ("grail", "WN18RR", "nbfnet+cp"): [WALKED, {"model": {"layers": 8}}],
    ("grail", "fb237", "nbfnet+cp"): [WALKED, MORE],
    ("grail", "nell", "nbfnet+cp"): [WALKED, MORE],
    ("grail_transductive", "nell", "nbfnet+cp"): [WALKED],
    ("grail", "WN18RR", "nbfnet"): [{"model": {"relation_encoder": True}, "train": {"edge_dropout": 0.2}}],
    ("grail", "nell", "nbfnet"): [
        {"model": {"dim": 64, "exclude_head": True}, "train": {"average_last": 3, "edge_dropout": 0.2}}
    ],
    ("grail", "fb237", "nbfnet"): [
        {"model": {"dim": 64, "dropout": 0.2, "exclude_head": True}, "train": {"average_last": 3}}
    ],
    ("grail_transductive", "nell", "nbfnet"): [
        {"model": {"exclude_head": True, "dropout": 0.1}, "train": {"average_last": 3}}
    ],
}
"""What grids of changes found on the training side alone (scripts/tuning_table.py, docs/recipes.md)."""

BEFORE = {("grail/nell_v1", "nbfnet"), ("grail/nell_v1", "nbfnet+cp"), ("grail/WN18RR_v3", "nbfnet")}
"""Where the whole training, three seeds each, had a higher validation MRR without what was found on other versions."""


def searched(recipe: dict[str, Any], model: str) -> dict[str, Any]:
    """The recipe with what was found for its family and model, as it is where nothing was."""
    kind, _, name = recipe["dataset"].partition("/")
    result = {part: dict(value) if isinstance(value, dict) else value for part, value in recipe.items()}
    found = FOUND.get((kind, name.rsplit("_v", 1)[0], model), [])
    for change in [] if (recipe["dataset"], model) in BEFORE else found:
        for part, values in change.items():
            result[part] |= values
    return result


def nbfnet(dataset: str) -> dict[str, Any]:
    kind, _, name = dataset.partition("/")
    family, version = name.rsplit("_v", 1)
    epochs = NBFNET_EPOCHS[kind][family][int(version) - 1]
    return {
        "model": {"name": "nbfnet", "dim": 32, "layers": 3 if family == "nell" else 6},
        "train": {"epochs": epochs, "batch_size": 64, "lr": 0.005, "patience": 3},
    }


def redgnn_settings(name: str) -> dict[str, Any]:
    """The published architecture for a split."""
    _, _, _, dim, attention, dropout, activation, layers, _ = REDGNN[name]
    return {
        "dim": dim,
        "layers": layers,
        "attention_dim": attention,
        "activation": activation,
        "dropout": dropout,
    }


def redgnn(dataset: str) -> dict[str, Any]:
    """The published architecture; trained on every edge, hence in fewer, larger and warmed-up steps."""
    settings = redgnn_settings(dataset.rsplit("/", 1)[-1])
    train = {"epochs": 15, "batch_size": 64, "lr": 0.005, "patience": 4}
    model, training = CHOSEN.get((dataset, "redgnn"), ({}, {}))
    return {"model": {"name": "redgnn", **settings, **model}, "train": {**train, **training}}


def published_redgnn(name: str) -> dict[str, Any]:
    """The published way: queries are valid.txt alone, other answers compete, Adam with L2, a factor per epoch.

    The published loss is summed and broadcast, which multiplies it by the batch size; Adam ignores a factor of
    the loss but not of the loss relative to the L2 penalty, so the penalty is divided by what it was.
    """
    lr, penalty, decay, *_, batch = REDGNN[name]
    return {
        "dataset": f"grail/{name}",
        "model": {"name": "redgnn", **redgnn_settings(name)},
        "train": {
            "epochs": 50,
            "batch_size": batch,
            "lr": lr,
            "weight_decay": penalty / batch**2,
            "optimizer": "adam",
            "schedule": "exponential",
            "decay": decay,
            "warmup_steps": 0,
            "clip_norm": 0.0,
            "patience": 0,
            "queries": "valid",
            "mask_known": False,
        },
    }


def chains(name: str, dataset: str) -> dict[str, Any]:
    """Neural LP and DRUM: longer chains where answers are farther away."""
    return {
        "model": {"name": name, "layers": 4 if "WN18RR" in dataset else 3, "rank": 3},
        "train": {"epochs": 4 if "nell" in dataset else 10, "batch_size": 64, "lr": 0.005, "patience": 3},
    }


def anyburl(name: str, dataset: str) -> dict[str, Any]:
    """Half a minute. An inductive setting has other entities, about which no rule with a constant says anything;
    bodies of four atoms had a higher validation MRR there than the published three (docs/lab/models.md).
    """
    inductive = dataset.startswith("grail/")
    return {
        "model": {"name": name, "length": 4 if inductive else 3, "constants": not inductive, "seconds": 30.0}
    }


def compgcn(name: str, dataset: str) -> dict[str, Any]:
    """Candidates farther away where answers are. With the head marked, as validation preferred, and on NELL with the
    symmetric normalization, which a half of nell_v2's training graph preferred (docs/lab/models.md).
    """
    hops = 5 if "WN18RR" in dataset else 3
    model = {"name": name, "dim": 64, "layers": hops, "hops": hops, "composition": "corr", "mark_head": True}
    if "nell" in dataset:
        model["normalization"] = "symmetric"
    return {
        "model": model,
        "train": {"epochs": 3 if "nell" in dataset else 10, "batch_size": 64, "lr": 0.005, "patience": 3},
    }


def grail(name: str, dataset: str) -> dict[str, Any]:
    """The published radius of three where neighbourhoods are small; a radius of two where they are not, which scores
    candidates within four hops, with an attention that is a quarter as wide (docs/lab/models.md).
    To rank is most of its
    cost: the larger graphs are validated on a sample.
    """
    hops, attention = (3, 32) if "WN18RR" in dataset else (2, 8)
    validated = {} if dataset.endswith("v1") else {"valid_facts": 100}
    return {
        "model": {"name": name, "hops": hops, "attention_dim": attention, "edge_dropout": 0.2},
        "train": {
            "epochs": 2, "batch_size": 32, "lr": 0.005, "patience": 3, "loss": "bce", "negatives": 8, **validated,
        },
    }  # fmt: skip


BASELINES = {
    "anyburl": anyburl,
    "compgcn": compgcn,
    "drum": chains,
    "grail": grail,
    "neural_lp": chains,
}
"""Models that the recipes have without context."""

CONTEXT: dict[str, Any] = {"hops": 3, "gate": True, "arrive": True, "views": []}
"""Without pooled streams: with them validation MRR was no higher, at twice the cost (docs/recipes.md)."""


def recipes() -> dict[str, dict[str, Any]]:
    """File name -> content."""
    datasets = [
        f"{kind}/{f}_{v}" for kind in ("grail", "grail_transductive") for f in FAMILIES for v in VERSIONS
    ]
    result: dict[str, dict[str, Any]] = {}
    for dataset in datasets:
        for name, build in (("nbfnet", nbfnet), ("redgnn", redgnn)):
            base = {"dataset": dataset, **build(dataset)}
            stem = f"{dataset.replace('/', '-')}.{name}"
            result[f"{stem}.toml"] = searched(base, name)
            result[f"{stem}+cp.toml"] = searched(base | {"context": CONTEXT}, f"{name}+cp")
        for name, baseline in BASELINES.items():
            stem = f"{dataset.replace('/', '-')}.{name}"
            result[f"{stem}.toml"] = {"dataset": dataset, **baseline(name, dataset)}
    for name in REDGNN:
        result[f"published-{name}.redgnn.toml"] = published_redgnn(name)
    world = {
        "dataset": "world",
        "model": {"name": "nbfnet", "dim": 16, "layers": 3},
        "train": {"epochs": 4, "batch_size": 64, "lr": 0.01, "patience": 0, "warmup_steps": 20},
    }
    result["world.nbfnet.toml"] = world
    result["world.nbfnet+cp.toml"] = world | {"context": CONTEXT}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="compare with the files instead of writing them")
    check = parser.parse_args().check
    wanted = {name: to_toml(values) for name, values in recipes().items()}
    wanted |= {path.name: path.read_text("utf-8") for path in TUNED.glob("*.toml")}
    if check:
        there = {path.name: path.read_text("utf-8") for path in FOLDER.glob("*.toml")}
        sys.exit(
            0 if there == wanted else "the recipes are not what this script writes; run it without --check"
        )
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.toml"):
        path.unlink()
    for name, text in wanted.items():
        (FOLDER / name).write_text(text, "utf-8")
    print(f"wrote {len(wanted)} recipes to {FOLDER}")


if __name__ == "__main__":
    main()
