"""config.json: what a run was asked for, and the schema version of its folder."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contextpool.errors import CheckpointError, shortened
from contextpool.train.files import is_folder, is_there, json_digest, read_json, readable_json, shown

CONFIG = "config.json"
RUN_FORMAT = "contextpool run"
"""What config.json says it belongs to, so that nobody else's is taken for one of ours."""

# By name, because the root package imports every stage for type checkers, and this stage may not know them.
_RELEASE = f"contextpool {importlib.import_module('contextpool').__version__}"

SCHEMA_VERSION = 4
"""1: settings that are gone since. 2: may hold the address of its dataset. 3: the weights carry a manifest.
4: settings of single models are gone.
"""
REMOVED: dict[str, dict[str, Any]] = {
    "model": {
        "message": "distmult",
        "aggregate": "pna",
        "dependent": True,
        "layer_norm": True,
        "short_cut": True,
        "relation_layers": 1,
    },
    "context": {
        "layered": False,
        "gate_bias": False,
        "shrinkage": 0.0,
        "control": "none",
        "leave_one_out": True,
    },
    "train": {"edge_dropout_by": "uniform", "precision": "fp32", "deterministic": False, "temperature": 0.5},
}
"""Settings that schema 1 had and schema 2 does not, by table, each with the only value that still means something."""
REMOVED_OF_MODELS: dict[str, dict[str, Any]] = {
    "anyburl": {
        "constants": False,
        "constant_length": 1,
        "open_weight": 0.1,
        "empty_weight": 0.01,
        "snapshots": [],
    },
    "compgcn": {"composition": "corr"},
}
"""The same for what single models had before schema 4."""
UNSAID: dict[str, dict[str, Any]] = {"anyburl": {"constants": True}}
"""What a run that did not name such a setting had, where that is not the value that is left."""
RENAMED = {"train": {"pieces": "micro_batches"}}


def _without_removed_settings(content: dict[str, Any]) -> dict[str, Any]:
    """Schema 1 to 2: settings that no result turned are gone; a run that turned one is refused by name."""
    for table, removed in REMOVED.items():
        values = _table(content, table)
        for old, new in RENAMED.get(table, {}).items():
            if old in values:
                values[new] = values.pop(old)
        _remove(values, removed, table)
    return content


def _without_settings_of_models(content: dict[str, Any]) -> dict[str, Any]:
    """Schema 3 to 4: the same, for settings of single models."""
    values = _table(content, "model")
    name = str(values.get("name"))
    for key, value in UNSAID.get(name, {}).items():
        values.setdefault(key, value)
    _remove(values, REMOVED_OF_MODELS.get(name, {}), "model")
    return content


def _table(content: dict[str, Any], name: str) -> dict[str, Any]:
    """A table of the run's recipe; an empty one where there is none."""
    config = content.get("config")
    recipe = config.get("recipe") if isinstance(config, dict) else None
    values = recipe.get(name) if isinstance(recipe, dict) else None
    return values if isinstance(values, dict) else {}


def _remove(values: dict[str, Any], removed: Mapping[str, Any], table: str) -> None:
    """Take removed settings away, and refuse one that has another value than the one that is left."""
    for key, left in removed.items():
        if values.pop(key, left) != left:
            raise CheckpointError(
                f"{CONFIG}: {table}.{key} was turned in this run, and {_RELEASE} no longer has that setting. "
                "Load the run with the release that wrote it, or train again."
            )


MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {
    1: _without_removed_settings,
    2: lambda content: content,  # an address that it holds is shown, never opened
    3: _without_settings_of_models,
}
"""From a schema version to the next: takes and returns the content of config.json."""


def config_text(config: Mapping[str, Any], path: Path) -> str:
    """What config.json will say, checked before anything is written."""
    content = {
        "format": RUN_FORMAT,
        "schema_version": SCHEMA_VERSION,
        "written_by": _RELEASE,
        "config": dict(config),
    }
    return readable_json(content, f"{shown(path / CONFIG)}: the config")


@dataclass(frozen=True)
class StoredConfig:
    """config.json as it was read."""

    config: dict[str, Any]
    """Of the current schema."""
    version: int
    """The schema that the file has."""
    digest: str
    """Over what was asked for (`json_digest`)."""


def read_config(path: Path) -> StoredConfig:
    """The config of a run; one of an older schema is migrated, or refused by name like a newer one."""
    if not is_folder(path):
        if is_there(path):
            raise CheckpointError(
                f"{shown(path)}: this is a file, and a run is the folder that training wrote. Check the path."
            )
        raise CheckpointError(f"{shown(path)}: there is no run folder of this name. Check the path.")
    if not is_there(path / CONFIG):
        raise CheckpointError(f"{shown(path)}: this is no run folder: it has no {CONFIG}. Check the path.")
    content = read_json(path / CONFIG)
    version = content.get("schema_version") if isinstance(content, dict) else None
    if type(version) is not int or abs(version) > 10**6 or content.get("format") != RUN_FORMAT:
        raise CheckpointError(
            f"{shown(path / CONFIG)}: this is not the config of a contextpool run. Check the path."
        )
    config = content.get("config")
    if not isinstance(config, dict):
        raise CheckpointError(
            f"{shown(path / CONFIG)}: the config is missing. The file is damaged; use a copy."
        )
    digest = json_digest(config, f"{shown(path / CONFIG)}: the config")
    return StoredConfig(_migrated(content, version, path)["config"], version, digest)


def _migrated(content: dict[str, Any], version: int, path: Path) -> dict[str, Any]:
    writer = shortened(str(content.get("written_by", "an unknown release")))
    if version > SCHEMA_VERSION:
        raise CheckpointError(
            f"{shown(path)}: the run folder has schema version {version}, written by {writer}; "
            f"{_RELEASE} knows versions up to {SCHEMA_VERSION}. Upgrade contextpool."
        )
    for step in range(version, SCHEMA_VERSION):
        if step not in MIGRATIONS:
            raise CheckpointError(
                f"{shown(path)}: the run folder has schema version {version}, written by {writer}, which "
                f"{_RELEASE} no longer reads (it needs {SCHEMA_VERSION}). Load it with that release, or train again."
            )
        content = MIGRATIONS[step](content)
    return content
