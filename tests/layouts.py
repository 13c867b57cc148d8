"""The small dataset folders of the layout tests: one tiny graph, and a second one for inductive settings."""

from __future__ import annotations

from pathlib import Path

from contextpool.triples.dataset import Dataset
from contextpool.triples.store import Triple

TRAIN: list[Triple] = [("ann", "knows", "bob"), ("bob", "likes", "cid"), ("cid", "knows", "ann")]
VALID: list[Triple] = [("ann", "likes", "cid")]
TEST: list[Triple] = [("cid", "knows", "dan")]
FACTS: list[Triple] = [("ann", "helps", "cid")]
AWAY: dict[str, list[Triple]] = {
    "train": [("x", "knows", "y")],
    "valid": [("y", "knows", "z")],
    "test": [("z", "likes", "x")],
}


def lay(folder: Path, **files: list[Triple]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for stem, rows in files.items():
        put(folder / f"{stem}.txt", ["\t".join(row) for row in rows])
    return folder


def put(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())


def flat(folder: Path) -> Path:
    return lay(folder, train=TRAIN, valid=VALID, test=TEST)


def pair(parent: Path, name: str = "tiny") -> Path:
    lay(parent / f"{name}_ind", **AWAY)
    return flat(parent / name)


def ilpc(folder: Path, graph: str = "inference") -> Path:
    queries = {"inference_validation": AWAY["valid"], "inference_test": AWAY["test"]}
    return lay(folder, train=TRAIN, **{graph: AWAY["train"]}, **queries)


def openke(folder: Path) -> Path:
    """TRAIN, VALID and TEST in numbers, with bob = 0, ann = 1, dan = 2, cid = 3 and likes = 0, knows = 1."""
    put(folder / "entity2id.txt", ["4", "bob\t0", "ann\t1", "cid\t3", "dan\t2"])
    put(folder / "relation2id.txt", ["2", "likes\t0", "knows\t1"])
    put(folder / "train2id.txt", ["3", "1 0 1", "0\t3\t0", "3 1 1"])
    put(folder / "valid2id.txt", ["1", "1 3 0"])
    put(folder / "test2id.txt", ["1", "3 2 1"])
    return folder


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def parts_of(dataset: Dataset) -> dict[str, set[Triple] | None]:
    names = ("training_graph", "training_queries", "validation_queries", "facts", "train", "training_valid")
    names += ("inference_graph", "inference_valid", "inference_test")
    parts = {name: getattr(dataset, name) for name in names}
    return {name: None if part is None else set(part) for name, part in parts.items()}
