"""Dataset folders, recognised by looking into them and read as a Dataset; `openke` reads numbered files.

| layout | files |
|---|---|
| openke | train2id valid2id test2id entity2id relation2id: one graph in numbers |
| ilpc | train, inference (or inference_graph), inference_validation, inference_test: two graphs |
| msg | train, valid, msg, test: a training graph, the inference graph msg with its test; valid is of either one |
| redgnn | facts, train, valid, test: one graph, its training triples divided into facts to walk on and train to ask |
| grail | a folder X beside X_ind, each with train, valid and test (Teru et al. 2020): two graphs |
| flat | train, valid and test of one graph |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from contextpool.errors import ConfigError, DataError, TripleFileError, shortened
from contextpool.triples.dataset import Dataset
from contextpool.triples.files import numbered_lines
from contextpool.triples.formats.openke import load_openke
from contextpool.triples.formats.parts import (
    Admission,
    Folder,
    OnUnknown,
    Part,
    listing,
    named_folder,
    one_graph,
    read_part,
    two_graphs,
)
from contextpool.triples.split import hold_out
from contextpool.triples.store import Triples

INFERENCE_SUFFIX = "_ind"
SELECTION_SHARE = 0.1
"""The share of an ILPC folder's train.txt that is held out for selection where there is no test.txt."""
_SELECTION_SEED = 0


def _load_flat(folder: Folder, name: str | None, on_unknown: OnUnknown) -> Dataset:
    why = (
        "A flat folder holds train.txt, valid.txt and test.txt; `contextpool data split` makes them from one "
        "file of triples."
    )
    train, valid, test = (read_part(folder.need(stem, why)) for stem in ("train", "valid", "test"))
    return one_graph(name or folder.path.name, on_unknown, train, valid, test)


_GRAIL_WHY = "A GraIL pair is a folder X and X_ind beside it, each with train.txt, valid.txt and test.txt."


def pair_at(folder: Folder) -> tuple[Path, Path] | None:
    """(X, X_ind) where the folder is one of them, or holds exactly one such pair; otherwise None."""
    if not folder.has("train"):
        return _pair_inside(folder.path)
    path = named_folder(folder.path)
    second = path.with_name(path.name + INFERENCE_SUFFIX)
    if second.is_dir():
        return path, second
    first = path.with_name(path.name.removesuffix(INFERENCE_SUFFIX) or path.name)
    return (first, path) if first != path and first.is_dir() else None


def _pair_inside(parent: Path) -> tuple[Path, Path] | None:
    seconds = [path for path in sorted(parent.glob(f"*{INFERENCE_SUFFIX}")) if path.is_dir()]
    named = [path for path in seconds if path.name != INFERENCE_SUFFIX]
    pairs = [(path.with_name(path.name.removesuffix(INFERENCE_SUFFIX)), path) for path in named]
    pairs = [(first, second) for first, second in pairs if first.is_dir()]
    if len(pairs) > 1:
        names = ", ".join(first.name for first, _ in pairs[:12])
        raise DataError(f"{parent}: {len(pairs)} GraIL pairs are there ({names}). Name one: {pairs[0][0]}")
    return pairs[0] if pairs else None


def _load_grail(folder: Folder, name: str | None, on_unknown: OnUnknown) -> Dataset:
    """Roles as in `Dataset`: X/valid is trained on beside X/train, X/test selects, X_ind is evaluated on.

    X/valid.txt may be empty: then the training graph asks all training queries itself.
    """
    pair = pair_at(folder)
    if pair is None:
        raise DataError(f"{folder.path}: there is no folder pair. {_GRAIL_WHY}")
    home, away = Folder.at(pair[0]), Folder.at(pair[1])
    train, valid, test = (
        read_part(home.need(stem, _GRAIL_WHY), allow_empty=stem == "valid")
        for stem in ("train", "valid", "test")
    )
    inference = [read_part(away.need(stem, _GRAIL_WHY)) for stem in ("train", "valid", "test")]
    admission = Admission(on_unknown, train, valid)
    beside = valid.triples if len(valid.triples) else None
    selection = admission.admit(test)
    return two_graphs(name or pair[0].name, admission, train.triples, beside, selection, inference)


_ILPC_WHY = "An ILPC folder holds train.txt, inference.txt, inference_validation.txt and inference_test.txt."


def _load_ilpc(folder: Folder, name: str | None, on_unknown: OnUnknown) -> Dataset:
    """ILPC has no queries to select on but the inference graph's, and selection reads none of those.

    So a tenth of train.txt is held out for it: always the same tenth, taken out of the training graph and
    the training queries alike, and such that no entity or relation is lost with it. Where the folder holds
    test.txt, that selects, and nothing is taken out; valid.txt beside it holds further training queries:
    the roles that the same names have in a GraIL training folder.
    """
    train = read_part(folder.need("train", _ILPC_WHY))
    paths = (folder.get("valid"), folder.get("test"))
    further, selecting = (None if path is None else read_part(path) for path in paths)
    if further and not selecting:
        raise DataError(
            f"{further.path}: there is no test.txt beside it, so that its role is unclear. In an ILPC folder "
            "test.txt holds queries to select on, and valid.txt further training queries; rename it."
        )
    if folder.has("inference", "inference_graph"):
        raise DataError(
            f"{folder.path}: inference.txt and inference_graph.txt are both there, and only one can be the "
            "inference graph. Remove the other."
        )
    admission = Admission(on_unknown, *filter(None, (train, further)))
    graph, selection = (
        (train.triples, admission.admit(selecting)) if selecting else _selection_held_out(train)
    )
    inference = (
        folder.get("inference_graph") or folder.need("inference", _ILPC_WHY),
        folder.need("inference_validation", _ILPC_WHY),
        folder.need("inference_test", _ILPC_WHY),
    )
    beside = further.triples if further else None
    parts = [read_part(path, allow_empty=path == inference[1]) for path in inference]
    return two_graphs(name or folder.path.name, admission, graph, beside, selection, parts)


def _selection_held_out(train: Part) -> tuple[Triples, Triples]:
    """The training graph without, and the queries with, the tenth that is held out."""
    wanted = max(1, round(SELECTION_SHARE * len(train.triples)))
    held = hold_out(train.triples, wanted, np.random.default_rng(_SELECTION_SEED))
    if not held.any():
        raise DataError(
            f"{train.path}: none of its {len(train.triples):,} triples can be held out to select on, because "
            "each is the only one of an entity or a relation. Put queries to select on into test.txt."
        )
    return train.triples.select(~held), train.triples.select(held)


_MSG_WHY = "A folder with msg.txt holds train.txt, valid.txt, msg.txt and test.txt."


def _load_msg(folder: Folder, name: str | None, on_unknown: OnUnknown) -> Dataset:
    """A training graph (train.txt), and an inference graph (msg.txt) with its test.txt.

    valid.txt belongs to one of them, told by its entities. Of the training graph, it selects, and the inference graph
    has no validation queries. Of the inference graph, as InGram has it, selection may not read it: a tenth of train.txt
    is held out for that, as in an ILPC folder. Relations that training lacks are common: `on_unknown`.
    """
    train, valid, msg, test = (
        read_part(folder.need(stem, _MSG_WHY)) for stem in ("train", "valid", "msg", "test")
    )
    admission, name = Admission(on_unknown, train), name or folder.path.name
    if _inside(valid, msg) > _inside(valid, train):
        training_graph, selection = _selection_held_out(train)
        return two_graphs(name, admission, training_graph, None, selection, [msg, valid, test])
    graph = admission.admit(msg)
    return Dataset.from_two_graphs(
        name,
        train=train.triples,
        validation=admission.admit(valid),
        inference_graph=graph,
        inference_valid=graph.select(np.zeros(len(graph), dtype=np.bool_)),
        inference_test=admission.admit(test),
        skipped=admission.skipped,
        more_relations=admission.more,
    )


def _inside(queries: Part, graph: Part) -> int:
    """How many of the queries have both ends in the graph."""
    known = np.array(
        [label in graph.triples.entities for label in queries.triples.entities.labels], dtype=bool
    )
    return int(known[queries.triples.ids[:, [0, 2]]].all(axis=1).sum())


_REDGNN_WHY = "A RED-GNN folder holds facts.txt, train.txt, valid.txt and test.txt."


def _load_redgnn(folder: Folder, name: str | None, on_unknown: OnUnknown) -> Dataset:
    """entities.txt and relations.txt, where they are there, have to list everything that the files use."""
    facts, train = (read_part(folder.need(stem, _REDGNN_WHY)) for stem in ("facts", "train"))
    home = _home_of_queries(folder)
    valid, test = (read_part(home.need(stem, _REDGNN_WHY)) for stem in ("valid", "test"))
    for stem, kind in (("entities", "entity"), ("relations", "relation")):
        path = folder.get(stem)
        if path is not None:
            _check_listed(path, kind, [facts, train, valid, test])
    return one_graph(name or named_folder(folder.path).name, on_unknown, train, valid, test, facts)


def _home_of_queries(folder: Folder) -> Folder:
    """Where valid and test are: here, or in `../../grail/<its name>`, whose train.txt is divided here."""
    if folder.has("valid") or folder.has("test"):
        return folder
    path = named_folder(folder.path)
    other = named_folder(path.parent).parent / "grail" / path.name
    if other.is_dir():
        return Folder.at(other)
    raise DataError(
        f"{folder.path}: valid.txt and test.txt are missing (found: {listing(folder.path)}), and there is no "
        f"folder {other} to take them from. {_REDGNN_WHY}"
    )


def _check_listed(path: Path, kind: str, parts: list[Part]) -> None:
    """Every label of the parts has to be in the list: one a line, alone or with its id after a tab."""
    listed: set[str] = set()
    for number, text in numbered_lines(path):
        label = text.split("\t")[0]
        if label in listed:
            what = f"{shortened(label)} is listed twice. Remove one of the lines."
            raise TripleFileError(path, number, what)
        listed.add(label)
    for part in parts:
        vocabulary = part.triples.entities if kind == "entity" else part.triples.relations
        missing = [label for label in vocabulary.labels if label not in listed]
        if missing:
            raise DataError(
                f"{path}: it does not list the {kind} {shortened(missing[0])} of {part.path} ({len(missing):,} "
                "missing). Complete the list, or remove it: it is only used for this check."
            )


@dataclass(frozen=True)
class Layout:
    """How to see and read one way of laying a dataset out in files; `write` has how to write it."""

    holds: str
    """The files that make it, for messages."""
    matches: Callable[[Folder], bool]
    load: Callable[[Folder, str | None, OnUnknown], Dataset]
    """(folder, name or None for the folder's own, on_unknown)"""


LAYOUTS = {
    "openke": Layout(
        "train2id.txt valid2id.txt test2id.txt entity2id.txt relation2id.txt",
        lambda folder: folder.has("train2id"),
        load_openke,
    ),
    "ilpc": Layout(
        "train.txt inference.txt (or inference_graph.txt) inference_validation.txt inference_test.txt",
        lambda folder: folder.has("inference") or folder.has("inference_graph"),
        _load_ilpc,
    ),
    "msg": Layout("train.txt valid.txt msg.txt test.txt", lambda folder: folder.has("msg"), _load_msg),
    "redgnn": Layout(
        "facts.txt train.txt valid.txt test.txt (the last two perhaps in ../../grail/<same name>)",
        lambda folder: folder.has("facts"),
        _load_redgnn,
    ),
    "grail": Layout(
        f"a folder X and X{INFERENCE_SUFFIX} beside it, each with train.txt valid.txt test.txt",
        lambda folder: pair_at(folder) is not None,
        _load_grail,
    ),
    "flat": Layout("train.txt valid.txt test.txt", lambda folder: folder.has("train"), _load_flat),
}
"""By name, the more special ones first: the first that matches a folder is its layout."""


def detect_layout(path: str | Path) -> str:
    """The name of the layout of a folder: 'openke', 'ilpc', 'msg', 'redgnn', 'grail' or 'flat'."""
    folder = _folder(path)
    found = [name for name, layout in LAYOUTS.items() if layout.matches(folder)]
    if not found:
        layouts = "; ".join(f"{name}: {layout.holds}" for name, layout in LAYOUTS.items())
        raise DataError(
            f"{folder.path}: no known layout (found: {listing(folder.path)}). The layouts are {layouts}. "
            "Each file may be .txt or .tsv, plain, .gz or .zst."
        )
    if found[0] == "openke" and len(found) > 1:
        raise DataError(
            f"{folder.path}: train2id.txt and train.txt are both there, so that the layout can be openke or "
            f"{found[1]}. Load it with layout='openke' or layout='{found[1]}', or remove one of them."
        )
    return found[0]


def load_folder(
    path: str | Path, name: str | None = None, *, on_unknown: OnUnknown = "error", layout: str | None = None
) -> Dataset:
    """Read a dataset folder, in whichever layout it is; `layout` overrides what looking finds.

    `name` is the folder's own by default. A relation that occurs outside of training only is an error that
    names its file and line; with on_unknown="skip" its triples are left out (`Dataset.skipped`), and with "keep" they
    stay, for a model that takes any relation.
    """
    if on_unknown not in ("error", "skip", "keep"):
        raise ConfigError(f"on_unknown is {on_unknown!r}; it is 'error', 'skip' or 'keep'.")
    chosen = check_layout(detect_layout(path) if layout is None else layout)
    return LAYOUTS[chosen].load(_folder(path), name, on_unknown)


def check_layout(name: str) -> str:
    """Refuse a name that no layout has."""
    if name not in LAYOUTS:
        raise ConfigError(f"layout is {name!r}; it is one of {', '.join(LAYOUTS)}.")
    return name


def _folder(path: str | Path) -> Folder:
    path = named_folder(path)
    if path.is_file():
        raise DataError(
            f"{path}: this is one file, not a dataset folder. Read it as a graph with "
            "contextpool.read_graph, or make a dataset of it with `contextpool data split`."
        )
    if not path.is_dir():
        raise DataError(f"{path}: there is no such folder.")
    return Folder.at(path)
