"""A run as others can take it: model card, weights, counts, JSON and checksums in one folder.

The layout is that of a run (`cp.load` opens it) and what huggingface_hub uploads as it stands: a README.md with
YAML front matter, safetensors, JSON. Checkpoints, log and lock stay behind; they are of no use to anybody else.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch

from contextpool.errors import ConfigError, ContextPoolError, shortened
from contextpool.experiment import evaluate, fingerprint, load, machine
from contextpool.export.card import UNSTATED_LICENSE, Evaluated, model_card
from contextpool.hub import CARD, CHECKSUMS, EVALUATION, REPOSITORY, RUN_FILES, differing_files, local_folder
from contextpool.predict import Predictor
from contextpool.recipe import Recipe
from contextpool.train._files import durable_file, flush_folder, reason
from contextpool.train.run_folder import RunFolder
from contextpool.triples.catalog import load_dataset
from contextpool.triples.dataset import Dataset, Protocol

GIT_ATTRIBUTES = ".gitattributes"
LARGE_FILES = "*.safetensors filter=lfs diff=lfs merge=lfs -text\n"
"""What a repository of the Hub says about files that git itself should not hold."""


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
