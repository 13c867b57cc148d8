"""What several test modules share: benchmark data or a skip that says so, random graphs, test amounts, scripts."""

from __future__ import annotations

import importlib.util
import itertools
import os
import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from contextpool.context.config import PRESETS, ContextConfig
from contextpool.triples.filters import KnownAnswers

Triple = tuple[str, str, str]

SOAK = os.environ.get("CONTEXTPOOL_SOAK") == "1"


def amount(in_ci: int, in_soak: int) -> int:
    """How many random cases: the CI amount, or the long one under `make soak`."""
    return in_soak if SOAK else in_ci


def context_with(**uses: Any) -> ContextConfig:
    """The paper's context, changed: what is not named is not used, but for its two views."""
    return replace(PRESETS["paper"], **uses)


def combinations(*values: Sequence[Any], whole: bool = SOAK) -> list[tuple[Any, ...]]:
    """The product of the values of several parameters; in CI a part of it, in which any two values of two
    parameters still meet.
    """
    product = list(itertools.product(*map(enumerate, values)))
    places = list(itertools.combinations(range(len(values)), 2))
    pairs = [{(here, one[here][0], there, one[there][0]) for here, there in places} for one in product]
    missing, chosen = set[Any]().union(*pairs), []
    while missing and not whole:
        chosen.append(max(range(len(product)), key=lambda number: len(pairs[number] & missing)))
        missing -= pairs[chosen[-1]]
    return [tuple(value for _, value in product[number]) for number in chosen or range(len(product))]


def script_module(name: str) -> ModuleType:
    """A file of scripts/ as a module."""
    path = Path(__file__).resolve().parents[1] / "scripts" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"scripts_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def benchmark_folder() -> Path:
    """The folder of benchmark graphs, or a skip that says why."""
    named = os.environ.get("CONTEXTPOOL_DATA")
    candidates = [Path(named)] if named else [Path(__file__).resolve().parents[2] / "shared" / "data"]
    for folder in candidates:
        if (folder / "grail").is_dir():
            return folder
    pytest.skip(
        f"no benchmark graphs in {candidates[0]}; set CONTEXTPOOL_DATA or run `contextpool data fetch`"
    )


def random_triples(
    seed: int, *, most_entities: int = 8, most_relations: int = 4, most: int = 24
) -> list[Triple]:
    """A small random multigraph with duplicates, self loops and parallel relations; never empty."""
    rng = random.Random(seed)
    entities = [f"e{number}" for number in range(rng.randint(1, most_entities))]
    relations = [f"r{number}" for number in range(rng.randint(1, most_relations))]
    count = rng.randint(1, most)
    triples = [(rng.choice(entities), rng.choice(relations), rng.choice(entities)) for _ in range(count)]
    return triples + rng.choices(triples, k=rng.randint(0, 4))


def relation_sets_of(triples: list[Triple]) -> dict[str, set[str]]:
    """NR_e as plain sets of labels, inverses included: the oracle behind everything that counts entities."""
    has: dict[str, set[str]] = {}
    for head, relation, tail in triples:
        has.setdefault(head, set()).add(relation)
        has.setdefault(tail, set()).add(relation + "^-1")
    return has


def known_tails(known: KnownAnswers, head: int, relation: int) -> list[int]:
    """The known answers to (head, relation, ?), ascending."""
    _, tails = known.answers_to(np.array([head]), np.array([relation]), np.array([True]))
    return [int(tail) for tail in tails]
