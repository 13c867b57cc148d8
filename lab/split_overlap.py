"""What the splits of a family share: how many of a split's queries are facts where another split's recipe was searched.

    python -m lab.split_overlap             a table; docs/lab/recipes.md says what follows from it

Searches read train.txt, valid.txt and test.txt of the training side. The names of entities are the same in all versions
of a family, so a query of one version's inference graph can be a fact of another's training graph.
"""

from __future__ import annotations

import sys
from pathlib import Path

from contextpool.triples.catalog import GRAIL_NAMES, find, locate
from contextpool.triples.reader import read_triples
from contextpool.triples.store import Triple
from lab.results import family_of_splits, read_searches, table

ROOT = Path(__file__).resolve().parents[1]
FILES = ("train.txt", "valid.txt", "test.txt")


def searched() -> list[str]:
    """Splits that recipes of NBFNet were searched on."""
    costs = read_searches(ROOT / "results" / "trials")
    return sorted({cost.dataset for cost in costs if cost.model.startswith("nbfnet")})


def triples_of(folder: Path, files: tuple[str, ...]) -> set[Triple]:
    return {triple for name in files for triple in read_triples(folder / name)}


def folder_of(dataset: str) -> Path:
    found = locate(find(dataset))
    if found is None:
        sys.exit(f"{dataset} is not on this machine: contextpool data fetch {dataset}")
    return found


def share(queries: set[Triple], known: set[Triple]) -> str:
    return f"{len(queries & known):,} of {len(queries):,} ({len(queries & known) / len(queries):.1%})"


def main() -> None:
    known = {other: triples_of(folder_of(other), FILES) for other in searched() if other.startswith("grail/")}
    rows = []
    for name in GRAIL_NAMES:
        dataset = f"grail/{name}"
        inference = folder_of(dataset).with_name(f"{name}_ind")
        queries = triples_of(inference, ("valid.txt", "test.txt"))
        for other, facts in known.items():
            if other != dataset and family_of_splits(other) == family_of_splits(dataset):
                rows.append([name, other, share(queries, facts)])
    print(table(["split", "searched on", "of its inference queries, facts there"], rows))


if __name__ == "__main__":
    main()
