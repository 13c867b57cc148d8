"""A run as others can take it: model card, weights, counts, JSON and checksums in one folder.

The layout is that of a run (`cp.load` opens it) and what huggingface_hub uploads as it stands: a README.md with
YAML front matter, safetensors, JSON. Checkpoints, log and lock stay behind; they are of no use to anybody else.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from contextpool.context.config import ContextConfig
from contextpool.errors import ConfigError, ContextPoolError, shortened
from contextpool.evaluate.report import EvaluationReport
from contextpool.experiment import evaluate, fingerprint, load, machine
from contextpool.interop.hub import (
    CARD,
    CHECKSUMS,
    EVALUATION,
    REPOSITORY,
    RUN_FILES,
    differing_files,
    local_folder,
)
from contextpool.predict import Predictor
from contextpool.recipe import Recipe
from contextpool.train.files import durable_file, flush_folder, reason
from contextpool.train.run_folder import RunFolder
from contextpool.triples.catalog import load_dataset
from contextpool.triples.dataset import Dataset, Protocol

UNSTATED_LICENSE = "unknown"
GIT_ATTRIBUTES = ".gitattributes"
LARGE_FILES = "*.safetensors filter=lfs diff=lfs merge=lfs -text\n"
"""The .gitattributes of a Hub repository: which files git LFS holds."""


def export(
    run: str | Path,
    output: str | Path,
    *,
    license: str = UNSTATED_LICENSE,
    evaluated: bool = True,
    dataset: Dataset | None = None,
    protocol: Protocol = "P1",
    device: torch.device | str = "cpu",
    overwrite: bool = False,
    hub: str | None = None,
) -> Path:
    """Write a finished run to a new folder. Every file is checked first; nothing of the run is changed.

    With `evaluated` the card holds the metrics on the run's dataset, where it is found and holds the same
    facts as in training; where not, the card says why. `license` is an identifier such as "mit" or "cc-by-4.0".
    `hub` is the repository ("user/name") that the folder is for: its card says how to load it from there
    (`cp.load("hf://user/name")`), and a .gitattributes comes along. Uploading is left to huggingface_hub.
    """
    run, output = local_folder(run), Path(output)
    if not license or not all(letter.isalnum() or letter in "-._" for letter in license):
        raise ConfigError(
            f"license is {shortened(license)}; use an identifier such as mit, apache-2.0 or other."
        )
    if hub is not None and not REPOSITORY.fullmatch(hub):
        raise ConfigError(f"hub is {shortened(hub)}; it is the name of a repository, user/name.")
    predictor = load(run, device=device)  # reads and checks everything
    opened = RunFolder.open(run)
    _make_room(output, overwrite)
    result = _evaluated(opened, predictor, dataset, protocol, device) if evaluated else None
    files = {name: (run / name).read_bytes() for name in RUN_FILES if (run / name).is_file()}
    if result is not None:
        files[EVALUATION] = _json_bytes(result.to_dict())
    files[CARD] = model_card(opened, result, license, hub).encode("utf-8")
    _write_all(output, files, {} if hub is None else {GIT_ATTRIBUTES: LARGE_FILES.encode("ascii")})
    load(output)  # what was written is what was meant
    return output


def verify(folder: str | Path) -> list[str]:
    """The names of files that differ from SHA256SUMS or are missing; empty for an intact export."""
    return differing_files(Path(folder))


def _make_room(output: Path, overwrite: bool) -> None:
    """An empty or new folder, or an earlier export that may be replaced."""
    if output.exists() and not output.is_dir():
        raise ConfigError(f"output {output} is a file. Choose another folder.")
    present = sorted(entry.name for entry in output.iterdir()) if output.exists() else []
    own = {*RUN_FILES, CARD, EVALUATION, CHECKSUMS, GIT_ATTRIBUTES}
    foreign = [name for name in present if name not in own]
    if foreign or (present and CHECKSUMS not in present):
        raise ConfigError(
            f"output {output} holds other files, such as {shortened((foreign or present)[0])}. Choose another folder."
        )
    if present and not overwrite:
        raise ConfigError(f"output {output} holds an export. Choose another folder, or overwrite it.")
    try:
        for name in present:
            (output / name).unlink()
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"output {output} cannot be made ({reason(error)}). Choose another folder."
        ) from error


def _write_all(output: Path, files: dict[str, bytes], beside: dict[str, bytes]) -> None:
    """The checksums last: a folder without them is no export. Those of `beside` are not of the run."""
    sums = "".join(f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files))
    for name, content in [*beside.items(), *sorted(files.items()), (CHECKSUMS, sums.encode("ascii"))]:
        with durable_file(output / name) as stream:
            stream.write(content)
    flush_folder(output)


def _json_bytes(value: Any) -> bytes:
    return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _evaluated(
    run: RunFolder,
    predictor: Predictor,
    dataset: Dataset | None,
    protocol: Protocol,
    device: torch.device | str,
) -> Evaluated:
    name = Recipe.from_dict(run.config["recipe"]).dataset
    try:
        data = dataset or load_dataset(name)
    except ContextPoolError as error:
        return Evaluated(None, protocol, machine(device), f"the dataset is not here: {error}")
    if fingerprint(data) != run.config["dataset_sha256"]:
        return Evaluated(None, protocol, machine(device), f"{name} does not hold the facts of the training")
    return Evaluated(evaluate(predictor, data, protocol=protocol), protocol, machine(device))


@dataclass(frozen=True, eq=False)
class Evaluated:
    """An evaluation with what it depended on, or the reason why there is none."""

    report: EvaluationReport | None
    protocol: Protocol
    machine: dict[str, Any]
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As evaluation.json holds it."""
        metrics = None if self.report is None else self.report.to_dict()
        return {"protocol": self.protocol, "machine": self.machine, "reason": self.reason, "metrics": metrics}


def model_card(
    run: RunFolder, evaluated: Evaluated | None, license: str, repository: str | None = None
) -> str:
    """README.md: front matter that machines read, then what people ask; `repository` is where it is for."""
    recipe = Recipe.from_dict(run.config["recipe"])
    parts = (
        _front_matter(recipe, evaluated, license),
        f"# {recipe.model} on {recipe.dataset}\n\n{_summary(recipe, _has_rules(run))}\n",
        _use("." if repository is None else f"hf://{repository}"),
        _data(run, recipe),
        _metrics(run, evaluated),
        _limits(run, license),
    )
    return "\n".join(parts)


def _front_matter(recipe: Recipe, evaluated: Evaluated | None, license: str) -> str:
    """YAML by way of JSON, which is YAML: nothing in a name can break it."""
    title = f"{recipe.model} on {recipe.dataset}"
    lines = [
        "---",
        "library_name: contextpool",
        f"license: {json.dumps(license)}",
        "pipeline_tag: graph-ml",
        'tags: ["knowledge-graph", "link-prediction", "inductive", "graph-neural-network", "context-pooling"]',
    ]
    if evaluated is not None and evaluated.report is not None:
        result = {
            "task": {"type": "graph-ml", "name": "link prediction"},
            "dataset": {"type": recipe.dataset, "name": recipe.dataset},
            "metrics": [
                {
                    "type": name,
                    "name": f"{name}, {evaluated.protocol}, filtered, realistic ties",
                    "value": value,
                }
                for name, value in _figures(evaluated.report).items()
            ],
        }
        lines += ['metrics: ["mrr", "hits@1", "hits@3", "hits@10"]']
        lines += [f"model-index: {json.dumps([{'name': title, 'results': [result]}], ensure_ascii=False)}"]
    return "\n".join([*lines, "---", ""])


def _figures(report: EvaluationReport) -> dict[str, float]:
    hits = {f"hits@{k}": round(share, 4) for k, share in report.hits.items()}
    return {"mrr": round(report.mrr, 4), **hits}


def _has_rules(run: RunFolder) -> bool:
    return (run.path / "rules.txt").is_file()


def _summary(recipe: Recipe, has_rules: bool) -> str:
    context = recipe.context
    knows = "it knows relations, and entities only where a rule names one"
    knows = knows if has_rules else "the weights know relations, never entities"
    how = "without context" if context is None else f"with context ({', '.join(_uses(context))})"
    return (
        f"Answers (head, relation, ?), (?, relation, tail) and (head, ?, tail) on knowledge graphs whose entities it "
        f"has never seen, with a calibrated probability and the evidence for every answer. {recipe.model} {how}; "
        f"{knows}. Method: Context Pooling (Su, Wang, Miao, KDD 2025)."
    )


def _uses(context: ContextConfig) -> list[str]:
    used = {
        f"{context.num_views} pooled views": context.num_views > 0,
        "gated messages": context.gate,
        "candidate relevance": context.arrive,
    }
    return [name for name, is_used in used.items() if is_used] or ["counted, not used"]


def _use(address: str) -> str:
    remark = "this folder" if address == "." else "needs: pip install 'contextpool[hub]'"
    return (
        "## Use\n\n"
        "```python\nimport contextpool as cp\n\n"
        f'predictor = cp.load("{address}")  # {remark}\n'
        'graph = cp.read_graph("new.tsv")  # head TAB relation TAB tail, with the relations of relations.json\n'
        'predictor.predict(graph, head="...", relation="...", k=10)\n'
        'predictor.explain(graph, head="...", relation="...", tail="...").text()\n```\n\n'
        "## Intended use\n\n"
        "Proposing facts that a graph lacks, for a person to check, and comparing methods. It asks for a graph that "
        "shares the relations below; the entities may all be new. Not meant for deciding anything by itself.\n"
    )


def _data(run: RunFolder, recipe: Recipe) -> str:
    count = len(run.read_json("relations.json"))
    return (
        "## Data\n\n"
        f"- Trained on `{recipe.dataset}`, {count:,} relations (`relations.json`). sha256 over every fact that "
        f"training read: `{run.config['dataset_sha256']}`.\n"
        f"- One training, seed {run.config['seed']}: another seed gives other figures.\n"
        "- Every training query is hidden from itself; the epoch was selected on validation queries of the training "
        "graph; no query of the evaluation was read before the evaluation.\n"
        "- The settings are in `config.json`, the counts of the training graph in `context.safetensors`.\n"
    )


def _metrics(run: RunFolder, evaluated: Evaluated | None) -> str:
    stored = run.read_json("metrics.json")
    trained = run.config["machine"]
    lines = [
        "## Metrics",
        "",
        "| what | MRR | Hits@1 | Hits@3 | Hits@10 | device | commit |",
        "|---|---|---|---|---|---|---|",
    ]
    if stored["valid_mrr"] is not None:
        lines.append(f"| validation, selection | {stored['valid_mrr']:.4f} | | | | {_place(trained)} |")
    if evaluated is not None and evaluated.report is not None:
        figures = " | ".join(f"{value:.4f}" for value in _figures(evaluated.report).values())
        count = evaluated.report.num_queries
        where = _place(evaluated.machine)
        lines.append(f"| evaluation, {evaluated.protocol}, {count:,} queries | {figures} | {where} |")
    lines += ["", "Ranks are among all entities, filtered, in both directions; ties share their mean rank."]
    if evaluated is None:
        lines.append("The evaluation was not asked for.")
    elif evaluated.report is None:
        lines.append(f"Not evaluated: {evaluated.reason}")
    return "\n".join([*lines, _calibration(stored["calibration"]), ""])


def _place(found: dict[str, Any]) -> str:
    device = f"{found['device']} ({found['device_name']}, {found['threads']} threads, torch {found['torch']})"
    return f"{device} | {(found.get('commit') or 'a release')[:12]}"


def _calibration(stored: dict[str, Any]) -> str:
    if stored["calibration"] is None:
        return f"There are no probabilities: {stored['reason']}."
    return (
        f"Probabilities are calibrated on {stored['num_queries']:,} selection queries: the expected calibration error "
        f"falls from {stored['error_before']:.3f} to {stored['error_after']:.3f} (on queries it was not fitted on)."
    )


def _limits(run: RunFolder, license: str) -> str:
    said = (
        "The licence of the weights was not stated; ask who made them."
        if license == UNSTATED_LICENSE
        else f"The weights: {license}."
    )
    rules = (
        "- `rules.txt` is for reading; a rule that ends in a constant names an entity of the training graph.\n"
        if _has_rules(run)
        else ""
    )
    return (
        "## Limits and licence\n\n"
        "- It knows the relations of `relations.json` and no others; facts of other relations have to be left out.\n"
        "- An answer is plausible by the patterns of its training graph. It may be wrong, and what the graph says "
        "wrongly it repeats. Do not decide about people by it.\n"
        "- Probabilities hold for graphs like the one it was trained on, and for questions that have an answer.\n"
        f"{rules}- {said} What may be done with the training data is between you and its terms.\n"
        "- `SHA256SUMS` holds a checksum of every file (`sha256sum -c SHA256SUMS`); the safetensors check "
        "themselves too.\n"
    )
