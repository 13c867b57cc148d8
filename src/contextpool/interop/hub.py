"""Runs by address, `hf://user/name[@revision]`: fetched through huggingface_hub, checked, then read from its cache.

The repository holds what `contextpool export --hub user/name` writes. The cache, the token and offline mode
(`HF_HOME`, `HF_TOKEN`, `HF_HUB_OFFLINE`) are huggingface_hub's own.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from contextpool.errors import (
    CheckpointError,
    ChecksumError,
    ConfigError,
    FetchError,
    MissingExtraError,
    OfflineError,
    shortened,
)

CARD, EVALUATION, CHECKSUMS = "README.md", "evaluation.json", "SHA256SUMS"
RUN_FILES = (
    "config.json", "metrics.json", "relations.json", "model.safetensors", "context.safetensors", "rules.txt",
)  # fmt: skip
"""The files of a run that others need; only some models have rules.txt."""
REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
_ADDRESS = re.compile(
    rf"hf:/{{1,2}}(?P<repository>{REPOSITORY.pattern})(?:@(?P<revision>[^\s@]+))?", re.ASCII
)


def is_address(path: str | Path) -> bool:
    """Whether this names a repository; a `Path` made of an address has lost a slash and still counts."""
    return str(path).startswith("hf:/")


def local_folder(path: str | Path) -> Path:
    """The folder itself, or that of an address's files on this machine, fetched where they are not here yet."""
    return fetch_run(str(path)) if is_address(path) else Path(path)


def fetch_run(address: str) -> Path:
    """The files of a repository, each compared with SHA256SUMS. Nothing is fetched that is here already."""
    found = _ADDRESS.fullmatch(address)
    if found is None:
        raise ConfigError(
            f"{shortened(address)} is no address of a run; write hf://user/name or hf://user/name@revision."
        )
    repository, revision = found["repository"], found["revision"]
    folder = Path(_snapshot(repository, revision))
    if not (folder / "config.json").is_file():
        raise CheckpointError(
            f"hf://{repository}: there is no config.json, so this is not a run of contextpool. Is the name right?"
        )
    wrong = differing_files(folder) if (folder / CHECKSUMS).is_file() else []
    if wrong:
        raise ChecksumError(
            f"hf://{repository}: {', '.join(wrong)} differ from {CHECKSUMS} of the repository (in {folder}). "
            "Remove the files there and load again; if it stays so, the upload is damaged: tell its author."
        )
    return folder


def _snapshot(repository: str, revision: str | None) -> str:
    """The folder where huggingface_hub put the files; its errors are raised as ours."""
    try:
        import huggingface_hub as hub
        from huggingface_hub import errors
    except ImportError:
        raise MissingExtraError("huggingface_hub", "hub", f"loading hf://{repository}") from None
    named = f"hf://{repository}" + (f"@{revision}" if revision else "")
    try:
        folder: str = hub.snapshot_download(
            repository,
            revision=revision,
            allow_patterns=[*RUN_FILES, CARD, EVALUATION, CHECKSUMS],
            library_name="contextpool",
        )
        return folder
    except errors.GatedRepoError as error:
        raise FetchError(
            f"{named}: its owner has to let you in first. Ask on its page, then log in."
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise FetchError(
            f"{named}: there is no such model, or it is private. Check the name, or log in."
        ) from error
    except errors.RevisionNotFoundError as error:
        raise FetchError(
            f"{named}: the model has no such revision. Name a branch, a tag or a commit."
        ) from error
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled) as error:
        raise OfflineError(
            f"{named} is not in the cache, and the Hub cannot be reached or is not to be asked (HF_HUB_OFFLINE). "
            "Load it once with a network; from then on it works without."
        ) from error
    except Exception as error:  # whatever its HTTP library raises
        raise FetchError(
            f"{named} cannot be fetched ({shortened(str(error), 300)}). Try again later."
        ) from error


def differing_files(folder: Path) -> list[str]:
    """The names of files that differ from SHA256SUMS or are missing; empty for an intact export."""
    try:
        lines = (folder / CHECKSUMS).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(
            f"{folder / CHECKSUMS}: cannot be read ({shortened(str(error))}). Is this an export?"
        ) from None
    named = [line.partition("  ")[::2] for line in lines]
    return [name for digest, name in named if _digest_of(folder / Path(name).name) != digest]


def _digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
