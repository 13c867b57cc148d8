"""What a run was made of: its facts, as one checksum, and the machine."""

from __future__ import annotations

import hashlib
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

from contextpool.processes import current
from contextpool.triples.dataset import Dataset
from contextpool.triples.store import Triples


def fingerprint(dataset: Dataset) -> str:
    """sha256 over every fact that training reads, by label: the same for the same facts in any order."""
    return facts_fingerprint(dataset.training_graph, dataset.training_queries, dataset.validation_queries)


def facts_fingerprint(*parts: Triples) -> str:
    """sha256 over the facts of some parts, by label."""
    digest = hashlib.sha256()
    for part in parts:
        for triple in part:
            digest.update("\t".join(triple).encode() + b"\n")
        digest.update(b"\n")
    return digest.hexdigest()


def facts_sha256(facts: Triples) -> str:
    """sha256 over the facts as sorted lines of head TAB relation TAB tail: what `LC_ALL=C sort -u | sha256sum` says."""
    digest = hashlib.sha256()
    for line in sorted("\t".join(triple).encode() + b"\n" for triple in facts):
        digest.update(line)
    return digest.hexdigest()


def machine(device: torch.device | str) -> dict[str, Any]:
    """What a run depended on besides its recipe."""
    kind = torch.device(device)
    name = (
        torch.cuda.get_device_name(kind)
        if kind.type == "cuda"
        else platform.processor() or platform.machine()
    )
    return {
        "device": kind.type,
        "device_name": name,
        "threads": torch.get_num_threads(),
        "processes": current().size,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "commit": _commit(),
    }


def _commit() -> str | None:
    """The commit of the checkout the package runs from; None for an installed one."""
    folder = Path(__file__).resolve().parents[2]
    if not (folder / ".git").exists():
        return None
    try:
        found = subprocess.run(
            ["git", "-C", str(folder), "rev-parse", "HEAD"], capture_output=True, text=True, check=False
        )
    except OSError:  # a checkout on a machine without git
        return None
    return found.stdout.strip() or None
