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
from contextpool.train.files import is_there, read_bytes, regular_file

CARD, EVALUATION, CHECKSUMS = "README.md", "evaluation.json", "SHA256SUMS"
RUN_FILES = (
    "config.json", "metrics.json", "relations.json", "model.safetensors", "context.safetensors", "rules.txt",
)  # fmt: skip
"""The files of a run that others need; only some models have rules.txt."""
SHIPPED = "anygraph-1"
"""The model that answers where no run is named."""
PACKAGED = (SHIPPED,)
"""Models that the package holds, by the names that pin them; a folder of such a name is reached by its whole path."""
_CHECKPOINTS = Path(__file__).parents[1] / "checkpoints"
MAX_FILE_BYTES = 1 << 36
REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
_ADDRESS = re.compile(
    rf"hf:/{{1,2}}(?P<repository>{REPOSITORY.pattern})(?:@(?P<revision>[^\s@]+))?", re.ASCII
)


def is_address(path: str | Path) -> bool:
    """Whether this names a repository; a `Path` made of an address has lost a slash and still counts."""
    return str(path).startswith("hf:/")


def local_folder(path: str | Path | None) -> Path:
    """The folder of a run: itself, that of a model in the package (None for the newest), or that of an address's
    files on this machine, fetched where they are not here yet.
    """
    if path is None or str(path) in PACKAGED:
        return _CHECKPOINTS / str(path or SHIPPED)
    return fetch_run(str(path)) if is_address(path) else Path(path)


def is_packaged(folder: Path | None) -> bool:
    """Whether a folder of `local_folder` is that of a model in the package; so is None, for the newest."""
    return folder is None or folder.resolve().parent == _CHECKPOINTS.resolve()


def fetch_run(address: str) -> Path:
    """The files of a repository. Nothing is fetched that is here already."""
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
    return folder


def check_sums(folder: Path) -> None:
    """Refuse an export of which a file that is loaded differs from SHA256SUMS, or is not in it; a card may change."""
    wrong = (
        [name for name in differing_files(folder) if name in RUN_FILES]
        if is_there(folder / CHECKSUMS)
        else []
    )
    if wrong:
        raise ChecksumError(
            f"{folder}: {', '.join(wrong)} differ from {CHECKSUMS}, or are not in it. Remove the files and get them "
            "again; if it stays so, the export or its upload is damaged: tell its author."
        )


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
    """The names of files that differ from SHA256SUMS, are missing, or are not in it; empty for an intact export."""
    text = read_bytes(folder / CHECKSUMS, limit=1 << 16).decode("utf-8", "replace")
    said = {name: digest for digest, _, name in (line.partition("  ") for line in text.splitlines())}
    own = [*RUN_FILES, CARD, EVALUATION]
    listed = [name for name in own if name in said or is_there(folder / name)]
    return sorted(name for name in listed if _digest_of(folder / name) != said.get(name)) + sorted(
        shortened(name) for name in said if name not in own
    )


def _digest_of(path: Path) -> str:
    if not is_there(path):
        return ""
    with regular_file(path, MAX_FILE_BYTES) as (stream, _):
        return hashlib.file_digest(stream, "sha256").hexdigest()
