"""A run as others can take it: model card, weights, counts, JSON and checksums in one folder.

The layout is that of a run (`cp.load` opens it) and what huggingface_hub uploads as it stands: a README.md with
YAML front matter, safetensors, JSON. Checkpoints, log and lock stay behind; they are of no use to anybody else.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from contextpool.errors import CheckpointWriteError, ConfigError, ContextPoolError, shortened
from contextpool.evaluate.references import better_untrained, evaluation_figures, untrained
from contextpool.experiment import compare_with_references, fingerprint, load, machine
from contextpool.interop.hub import (
    CARD,
    CHECKSUMS,
    EVALUATION,
    MAX_FILE_BYTES,
    REPOSITORY,
    RUN_FILES,
    differing_files,
    is_packaged,
    local_folder,
)
from contextpool.models.registry import model_class
from contextpool.predict import Predictor
from contextpool.recipe import MIXTURE, Recipe
from contextpool.stored import METRICS, stored_recipe
from contextpool.train.files import durable_file, flush_folder, is_there, read_bytes, reason
from contextpool.train.run_folder import RunFolder
from contextpool.triples.catalog import is_named, load_dataset
from contextpool.triples.dataset import Dataset, Protocol

UNSTATED_LICENSE = "unknown"
MAX_CARD_BYTES = 1 << 20
GIT_ATTRIBUTES = ".gitattributes"
LARGE_FILES = "*.safetensors filter=lfs diff=lfs merge=lfs -text\n"
"""The .gitattributes of a Hub repository: which files git LFS holds."""


def export(
    run: str | Path,
    output: str | Path,
    *,
    license: str = UNSTATED_LICENSE,
    evaluated: bool = True,
    dataset: Dataset | str | None = None,
    protocol: Protocol = "P1",
    device: torch.device | str = "cpu",
    overwrite: bool = False,
    hub: str | None = None,
) -> Path:
    """Write a finished run to a new folder. Every file is checked first; nothing of the run is changed.

    The folder is made beside its place and moved there when it is whole: an earlier export stays until then.

    With `evaluated` the card holds the metrics on the run's dataset, given or in the catalog, where it holds the
    same facts as in training; where not, the card says why. `license` is an identifier such as "mit" or "cc-by-4.0".
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
    _check_room(run, output, overwrite)
    predictor = load(run, device=device)  # reads and checks everything
    opened = RunFolder.open(run)
    opened.check_manifest(opened.load_tensors("model.safetensors")[1], every=True)
    result = _evaluated(opened, predictor, dataset, protocol, device) if evaluated else None
    files = {name: read_bytes(run / name, MAX_FILE_BYTES) for name in RUN_FILES if is_there(run / name)}
    if result is not None:
        files[EVALUATION] = _json_bytes(result.to_dict())
    files[CARD] = model_card(opened, result, license, hub).encode("utf-8")
    with _new_folder(output.resolve()) as made:
        _write_all(made, files, {} if hub is None else {GIT_ATTRIBUTES: LARGE_FILES.encode("ascii")})
        load(made)  # what was written is what was meant
    return output


def verify(folder: str | Path) -> list[str]:
    """The names of files that differ from SHA256SUMS or are missing; empty for an intact export."""
    return differing_files(Path(folder))


OWN_FILES = {*RUN_FILES, CARD, EVALUATION, CHECKSUMS, GIT_ATTRIBUTES}


def _check_room(run: Path, output: Path, overwrite: bool) -> None:
    """An empty or new folder, or an earlier export that may be replaced; never the run, or around or inside of it."""
    here, there = run.resolve(), output.resolve()
    if here == there or here in there.parents or there in here.parents:
        raise ConfigError(
            f"output {output} is, holds or lies in the run {run} itself. Choose another folder."
        )
    if output.exists() and not output.is_dir():
        raise ConfigError(f"output {output} is a file. Choose another folder.")
    present = sorted(entry.name for entry in output.iterdir()) if output.exists() else []
    foreign = [name for name in present if name not in OWN_FILES]
    if foreign or (present and CHECKSUMS not in present):
        raise ConfigError(
            f"output {output} holds other files, such as {shortened((foreign or present)[0])}. Choose another folder."
        )
    if present and not overwrite:
        raise ConfigError(f"output {output} holds an export. Choose another folder, or overwrite it.")


@contextmanager
def _new_folder(output: Path) -> Iterator[Path]:
    """A folder beside `output` that takes its name, and its place, once it is whole; the old one is removed last."""
    made, old = None, output.with_name(f".{output.name}.{os.getpid()}.old")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=output.parent, prefix=f".{output.name}.", suffix=".part"))
        made.chmod(0o755)
        yield made
        flush_folder(made)
        if output.exists():
            output.rename(old)
        made.rename(output)
        flush_folder(output.parent)
    except BaseException as error:
        if old.exists() and not output.exists():
            old.rename(output)
        if made is not None:
            _remove(made)
        if not isinstance(error, OSError):
            raise
        raise CheckpointWriteError(
            f"output {output} cannot be written ({reason(error)}). What was there before is untouched. Make room or "
            "choose another folder."
        ) from error
    _remove(old)


def _remove(folder: Path) -> None:
    """An export, or a part of one; anything else that it holds stays, and the folder with it."""
    with suppress(OSError):
        for entry in folder.iterdir():
            if entry.name in OWN_FILES or entry.name.endswith(".part"):
                entry.unlink()
        folder.rmdir()


def _write_all(output: Path, files: dict[str, bytes], beside: dict[str, bytes]) -> None:
    """The checksums last: a folder without them is no export. Those of `beside` are not of the run."""
    sums = "".join(f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files))
    for name, content in [*beside.items(), *sorted(files.items()), (CHECKSUMS, sums.encode("ascii"))]:
        with durable_file(output / name) as stream:
            stream.write(content)


def _json_bytes(value: Any) -> bytes:
    return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _evaluated(
    run: RunFolder,
    predictor: Predictor,
    dataset: Dataset | str | None,
    protocol: Protocol,
    device: torch.device | str,
) -> Evaluated:
    name, here = stored_recipe(run).dataset, run.config["machine"]
    stored = predictor.evaluation
    if stored is not None and protocol == "P1" and (predictor.fitted_on is not None or not is_named(name)):
        return Evaluated(stored, protocol, here)
    if dataset is None and not is_named(name):
        why = "the dataset is not in the catalog, and was not given (--dataset)"
        return Evaluated(None, protocol, machine(device), why)
    try:
        data = dataset if isinstance(dataset, Dataset) else load_dataset(dataset or name)
    except ContextPoolError as error:
        if dataset is not None:
            raise
        return Evaluated(None, protocol, machine(device), f"the dataset is not here: {error}")
    if fingerprint(data) != run.config["dataset_sha256"]:
        return Evaluated(None, protocol, machine(device), f"{name} does not hold the facts of the training")
    reports = compare_with_references(predictor, data, protocol=protocol)
    return Evaluated(evaluation_figures(reports), protocol, machine(device))


@dataclass(frozen=True, eq=False)
class Evaluated:
    """An evaluation with what it depended on, or the reason why there is none."""

    scorers: Mapping[str, Mapping[str, Any]] | None
    """The metrics of the model, and of what needs no training."""
    protocol: Protocol
    machine: dict[str, Any]
    reason: str = ""

    @property
    def metrics(self) -> Mapping[str, Any] | None:
        """The model's."""
        return None if self.scorers is None else self.scorers["model"]

    def to_dict(self) -> dict[str, Any]:
        """As evaluation.json holds it."""
        told = {"protocol": self.protocol, "machine": self.machine, "reason": self.reason}
        others = {name: found for name, found in (self.scorers or {}).items() if name != "model"}
        return {**told, "metrics": self.metrics, "untrained": others}


def model_card(
    run: RunFolder, evaluated: Evaluated | None, license: str, repository: str | None = None
) -> str:
    """README.md: front matter that machines read, then what people ask; `repository` is where it is for."""
    recipe = stored_recipe(run)
    if (
        recipe.dataset == MIXTURE and (run.path / CARD).is_file()
    ):  # its own card says more: graphs, terms, figures
        own = read_bytes(run.path / CARD, MAX_CARD_BYTES).decode("utf-8", "replace")
        return "\n".join([_front_matter(recipe, None, license), own, _limits(run, license)])
    parts = (
        _front_matter(recipe, evaluated, license),
        f"# {recipe.model} on {recipe.dataset}\n\n{_summary(recipe)}\n",
        _use("." if repository is None else f"hf://{repository}", _takes_any(recipe)),
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
    if evaluated is not None and evaluated.metrics is not None:
        result = {
            "task": {"type": "graph-ml", "name": "link prediction"},
            "dataset": {"type": recipe.dataset, "name": recipe.dataset},
            "metrics": [
                {
                    "type": name,
                    "name": f"{name}, {evaluated.protocol}, filtered, realistic ties",
                    "value": value,
                }
                for name, value in _figures(evaluated.metrics).items()
            ],
        }
        lines += ['metrics: ["mrr", "hits@1", "hits@3", "hits@10"]']
        lines += [f"model-index: {json.dumps([{'name': title, 'results': [result]}], ensure_ascii=False)}"]
    return "\n".join([*lines, "---", ""])


def _figures(metrics: Mapping[str, Any]) -> dict[str, float]:
    return {name: round(metrics[name], 4) for name in ("mrr", "hits@1", "hits@3", "hits@10")}


def _takes_any(recipe: Recipe) -> bool:
    """Whether the model answers about any relation, so that the run lists none."""
    return model_class(recipe.model).any_relation


def _summary(recipe: Recipe) -> str:
    context = recipe.context
    knows = "neither relations nor entities" if _takes_any(recipe) else "relations, never entities"
    how = "without context" if context is None else f"with context ({context.described()})"
    return (
        f"Answers (head, relation, ?), (?, relation, tail) and (head, ?, tail) on knowledge graphs whose entities it "
        f"has never seen, with a calibrated probability and the evidence for every answer. {recipe.model} {how}; "
        f"the weights know {knows}. Method: Context Pooling (Su, Wang, Miao, KDD 2025)."
    )


def _use(address: str, takes_any: bool) -> str:
    wanted = "" if takes_any else ", with the relations of relations.json"
    fitting = (
        "Any graph will do."
        if takes_any
        else "It asks for a graph that shares the relations below; the entities may all be new."
    )
    remark = "this folder" if address == "." else "needs: pip install 'contextpool[hub]'"
    return (
        "## Use\n\n"
        "```python\nimport contextpool as cp\n\n"
        f'predictor = cp.load("{address}")  # {remark}\n'
        f'graph = cp.read_graph("new.tsv")  # head TAB relation TAB tail{wanted}\n'
        'predictor.predict(graph, head="...", relation="...", k=10)\n'
        'predictor.explain(graph, head="...", relation="...", tail="...").text()\n```\n\n'
        "## Intended use\n\n"
        "Proposing facts that a graph lacks, for a person to check, and comparing methods. "
        f"{fitting} Not meant for deciding anything by itself.\n"
    )


def _data(run: RunFolder, recipe: Recipe) -> str:
    counts = "" if _takes_any(recipe) else ", the counts of the training graph in `context.safetensors`"
    counted = (
        ""
        if _takes_any(recipe)
        else f", {len(run.read_json('relations.json')):,} relations (`relations.json`)"
    )
    return (
        "## Data\n\n"
        f"- Trained on `{recipe.dataset}`{counted}. sha256 over every fact that "
        f"training read: `{run.config['dataset_sha256']}`.\n"
        f"- One training, seed {run.config['seed']}: another seed gives other figures.\n"
        "- Every training query is hidden from itself; the epoch was selected on validation queries of the training "
        "graph; no query of the evaluation was read before the evaluation.\n"
        f"- The settings are in `config.json`{counts}.\n"
    )


def _metrics(run: RunFolder, evaluated: Evaluated | None) -> str:
    stored = run.read_json("metrics.json", METRICS)
    trained = run.config["machine"]
    lines = [
        "## Metrics",
        "",
        "| what | MRR | Hits@1 | Hits@3 | Hits@10 | device | commit |",
        "|---|---|---|---|---|---|---|",
    ]
    if stored["valid_mrr"] is not None:
        lines.append(f"| validation, selection | {stored['valid_mrr']:.4f} | | | | {_place(trained)} |")
    scorers = None if evaluated is None else evaluated.scorers
    if evaluated is not None and scorers is not None:
        lines += _rows(evaluated, scorers)
    lines += ["", "Ranks are among all entities, filtered, in both directions; ties share their mean rank."]
    if scorers and (remark := better_untrained(scorers, is_packaged(run.path))):
        lines.append(f"**{remark}**")
    if stored.get("fitted_on"):
        lines.append(
            "After the evaluation the model was fitted on all facts, those held out for it included."
        )
    if evaluated is None:
        lines.append("The evaluation was not asked for.")
    elif evaluated.scorers is None:
        lines.append(f"Not evaluated: {evaluated.reason}")
    return "\n".join([*lines, _calibration(stored["calibration"]), ""])


def _rows(evaluated: Evaluated, scorers: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """The model's figures, then those of what needs no training, the best first."""
    for name, metrics in {"model": scorers["model"], **untrained(scorers)}.items():
        figures = " | ".join(f"{value:.4f}" for value in _figures(metrics).values())
        what = f"evaluation, {evaluated.protocol}, {metrics['num_queries']:,} queries"
        what = what if name == "model" else f"the same: {name}, not trained"
        yield f"| {what} | {figures} | {_place(evaluated.machine)} |"


def _place(found: dict[str, Any]) -> str:
    device, name, threads, version = (
        found.get(key, "?") for key in ("device", "device_name", "threads", "torch")
    )
    return (
        f"{device} ({name}, {threads} threads, torch {version}) | {(found.get('commit') or 'a release')[:12]}"
    )


def _calibration(stored: dict[str, Any]) -> str:
    if stored["calibration"] is None:
        return f"There are no probabilities: {stored.get('reason', 'the run does not say why')}."
    before, after = stored.get("error_before"), stored.get("error_after")
    if before is None or after is None:
        return "Probabilities are calibrated on selection queries."
    return (
        f"Probabilities are calibrated on {stored.get('num_queries', 0):,} selection queries: the expected calibration "
        f"error falls from {before:.3f} to {after:.3f} (on queries it was not fitted on)."
    )


def _limits(run: RunFolder, license: str) -> str:
    said = (
        "The licence of the weights was not stated; ask who made them."
        if license == UNSTATED_LICENSE
        else f"The weights: {license}."
    )
    known = (
        ""
        if _takes_any(stored_recipe(run))
        else "- It knows the relations of `relations.json` and no others; facts of others have to be left out.\n"
    )
    return (
        "## Limits and licence\n\n"
        f"{known}"
        "- An answer is plausible by the patterns of its training graph. It may be wrong, and what the graph says "
        "wrongly it repeats. Do not decide about people by it.\n"
        "- Probabilities hold for graphs like the one it was trained on, and for questions that have an answer.\n"
        f"- {said} What may be done with the training data is between you and its terms.\n"
        "- `SHA256SUMS` holds a checksum of every file (`sha256sum -c SHA256SUMS`); the safetensors check "
        "themselves too.\n"
    )
