"""Accuracy and cost of every model side by side, from results/*.jsonl into docs/models.md.

python scripts/models_table.py [--check]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from statistics import fmean

from marked_page import between_marks

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from contextpool.bench.cells import SHIPPED, make_cell  # noqa: E402
from contextpool.bench.markdown import MISSING, figure, mean_and_deviation, table  # noqa: E402
from contextpool.bench.models import shipped_variants  # noqa: E402
from contextpool.bench.published import columns, systems  # noqa: E402
from contextpool.bench.results import Group, Results, read_results  # noqa: E402

PAGE = ROOT / "docs" / "models.md"
SPLITS = ("WN18RR_v1", "fb237_v1", "fb237_v2", "nell_v1", "nell_v2")
MODELS = {
    "nbfnet": "NBFNet",
    "nbfnet+cp": "NBFNet+CP",
    "redgnn": "RED-GNN",
    "redgnn+cp": "RED-GNN+CP",
    "neural_lp": "Neural LP",
    "drum": "DRUM",
    "anyburl": "AnyBURL",
    "compgcn": "CompGCN",
    "grail": "GRAIL",
}
"""Ours -> the row of the paper's Table 2."""


def as_shipped(results: Results, dataset: str, model: str) -> Group | None:
    """What `--model` gives today: the lines of the shipped recipe, or of the one that validation prefers."""
    cell = make_cell(dataset, model, SHIPPED, 0, variants=shipped_variants(), changes={})
    found = [group for group in results.of(dataset, model) if group.recipe == cell.key.recipe]
    return found[0] if found else results.chosen(dataset, model)


def accuracy(results: Results) -> str:
    """MRR of each model on five splits, the published figure in brackets."""
    rows = []
    for model, published in MODELS.items():
        theirs = dict(zip(columns(), systems("inductive", "mrr")[published], strict=True))
        groups = {split: as_shipped(results, f"grail/{split}", model) for split in SPLITS}
        shown = [f"{mean_and_deviation(groups[split], 'mrr')} ({figure(theirs[split])})" for split in SPLITS]
        rows.append([f"`{model}`", *shown])
    return table(["MRR (published)", *SPLITS], rows)


def cost(results: Results) -> str:
    """What training and asking cost on fb237_v1."""
    heading = ["on fb237_v1", "weights", "training, s", "questions a second", "machine"]
    return table(heading, [_cost_of(model, as_shipped(results, "grail/fb237_v1", model)) for model in MODELS])


def _cost_of(model: str, group: Group | None) -> list[str]:
    if group is None:
        return [f"`{model}`", *[MISSING] * 4]
    line = group.lines[0]
    rate = fmean(float(line["queries_per_second"]) for line in group.lines)
    trained = fmean(group.values("train_seconds"))
    return [f"`{model}`", f"{line['parameters']:,}", f"{trained:,.0f}", f"{rate:,.0f}", str(line["device"])]


def page(text: str, results: Results) -> str:
    """The page with both tables made again."""
    for name, made in (("accuracy", accuracy(results)), ("cost", cost(results))):
        text = between_marks(text, name, made)
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the page instead of writing it")
    check = parser.parse_args().check
    text = PAGE.read_text("utf-8")
    made = page(text, read_results(ROOT / "results"))
    if check:
        sys.exit(
            0 if made == text else "docs/models.md is not what the lines say; run scripts/models_table.py"
        )
    PAGE.write_text(made, "utf-8")


if __name__ == "__main__":
    main()
