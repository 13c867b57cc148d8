"""Named datasets: their files and sha256, what to count in them, where they lie and where to get them.

`catalog.json` beside this file holds the checksums and counts; `scripts/build_catalog.py` writes it from the
files on disk. The benchmarks are not shipped (their licences do not allow it); `world` is.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from contextpool.errors import ChecksumError, ConfigError, DataError, UnknownNameError, printable, shortened
from contextpool.triples.dataset import Dataset, used_only
from contextpool.triples.formats import OnUnknown, load_folder
from contextpool.triples.reader import Tell, read_triples
from contextpool.triples.sources.address import Address, find_address
from contextpool.triples.split import source_dataset
from contextpool.triples.store import Triples

GRAIL_NAMES = tuple(
    f"{family}_v{version}" for family in ("WN18RR", "fb237", "nell") for version in range(1, 5)
)
FULL_NAMES = ("FB15K237", "NELL-995", "WN18RR")
SPLITS = ("train", "valid", "test")

_GRAIL_URL = "https://raw.githubusercontent.com/kkteru/grail/master/data"
_OPENKE_URLS = (
    "https://raw.githubusercontent.com/thunlp/OpenKE/OpenKE-PyTorch/benchmarks",
    "https://raw.githubusercontent.com/thunlp/OpenKE/master/benchmarks",
)
_TRANSDUCTIVE_URL = (
    "https://raw.githubusercontent.com/IJCAI2024AnonymousSubmission/Context-Pooling/"
    "fe68ba719193cf35118664559b90da79064e1121/transductive/data/new"
)

_ORIGINS = {
    "grail": "GraIL's inductive benchmarks (Teru, Denis, Hamilton, ICML 2020), github.com/kkteru/grail",
    "grail_transductive": (
        "the training graphs of GraIL's benchmarks, split for Context Pooling (Su, Wang, Miao, KDD 2025): "
        "valid.txt and test.txt from github.com/kkteru/grail, facts.txt and train.txt from the paper's code "
        "as first published, github.com/IJCAI2024AnonymousSubmission/Context-Pooling; its final release is "
        "github.com/ZhixiangSu/Context-Pooling (DOI 10.5281/zenodo.15502768), in folders not known to us"
    ),
    "full": "the full graph as numbered by OpenKE, github.com/thunlp/OpenKE",
    "world": "embedded; src/contextpool/triples/world/PROVENANCE.md says from what it was made",
}


@dataclass(frozen=True)
class GraphCounts:
    """What one graph of a setting holds: distinct labels over all its files, distinct triples per file."""

    entities: int
    relations: int
    train: int
    valid: int
    test: int
    facts: int = 0
    """Only in a transductive split that ships facts.txt."""

    @property
    def triples(self) -> int:
        return self.facts + self.train + self.valid + self.test


@dataclass(frozen=True)
class CatalogFile:
    """One file of a dataset, known by its bytes."""

    path: str
    """Below a data folder, with forward slashes: grail/fb237_v1/train.txt."""
    sha256: str
    size: int
    urls: tuple[str, ...]
    """Where it is published, tried in this order; the checksum decides, not the address."""


@dataclass(frozen=True)
class CatalogEntry:
    """One named dataset."""

    name: str
    inductive: bool
    origin: str
    files: tuple[CatalogFile, ...] = ()
    """Empty for the embedded graph."""
    training: GraphCounts | None = None
    """Expected counts; None for the embedded graph."""
    inference: GraphCounts | None = None
    """Expected counts of the second graph; None where the setting is transductive or embedded."""

    @property
    def embedded(self) -> bool:
        return not self.files


def benchmark_names() -> tuple[str, ...]:
    """All names of the catalog but the embedded `world`, in the order in which they are listed."""
    grail = [f"{kind}/{name}" for kind in ("grail", "grail_transductive") for name in GRAIL_NAMES]
    return (*grail, *(f"full/{name}" for name in FULL_NAMES))


def file_paths(name: str) -> tuple[str, ...]:
    """The files of a benchmark, relative to a data folder. A transductive split borrows valid and test."""
    kind, short = name.split("/")
    if kind == "grail":
        return tuple(f"grail/{short}{side}/{split}.txt" for side in ("", "_ind") for split in SPLITS)
    if kind == "grail_transductive":
        borrowed = (f"grail/{short}/valid.txt", f"grail/{short}/test.txt")
        return (*borrowed, f"{name}/facts.txt", f"{name}/train.txt")
    return tuple(f"{name}/{part}2id.txt" for part in ("entity", "relation", *SPLITS))


def _urls(path: str) -> tuple[str, ...]:
    kind, rest = path.split("/", 1)
    bases = {"grail": (_GRAIL_URL,), "grail_transductive": (_TRANSDUCTIVE_URL,), "full": _OPENKE_URLS}[kind]
    return tuple(f"{base}/{rest}" for base in bases)


@cache
def entries() -> tuple[CatalogEntry, ...]:
    """Every named dataset, the embedded one first."""
    stored = json.loads(resources.files("contextpool.triples").joinpath("catalog.json").read_text("utf-8"))
    world = CatalogEntry("world", inductive=True, origin=_ORIGINS["world"])
    return (world, *(_entry(name, stored["files"], stored["counts"][name]) for name in benchmark_names()))


def _entry(
    name: str, files: dict[str, dict[str, str | int]], counts: dict[str, dict[str, int]]
) -> CatalogEntry:
    kind = name.split("/")[0]
    inference = counts.get("inference")
    return CatalogEntry(
        name,
        inductive=kind == "grail",
        origin=_ORIGINS[kind],
        files=tuple(
            CatalogFile(path, str(files[path]["sha256"]), int(files[path]["size"]), _urls(path))
            for path in file_paths(name)
        ),
        training=GraphCounts(**counts["training"]),
        inference=GraphCounts(**inference) if inference else None,
    )


def find(name: str) -> CatalogEntry:
    """The entry of that name; an unknown one is an error that names the closest."""
    for entry in entries():
        if entry.name == name:
            return entry
    hint = "`contextpool data ls` lists them; a folder of your own is given by its path."
    raise UnknownNameError("dataset", name, [entry.name for entry in entries()], hint)


def cache_folder() -> Path:
    """Where downloads go: CONTEXTPOOL_HOME, else the user's cache folder of this platform."""
    home = os.environ.get("CONTEXTPOOL_HOME")
    if home:
        return Path(home).expanduser()
    try:
        import platformdirs
    except ImportError:
        return Path.home() / ".cache" / "contextpool"
    return Path(platformdirs.user_cache_dir("contextpool", appauthor=False))


def data_folders() -> list[Path]:
    """Where datasets are looked for: in CONTEXTPOOL_DATA or, unset, in ../shared/data; then in the cache."""
    named = os.environ.get("CONTEXTPOOL_DATA")
    if not named:
        return list(dict.fromkeys([*_shared_folders(), cache_folder()]))
    folder = Path(named).expanduser()
    if not folder.is_dir():
        raise ConfigError(
            f"CONTEXTPOOL_DATA is {named!r}, which is not a folder. Set it to the folder that holds grail/, "
            "grail_transductive/ or full/, or unset it."
        )
    return list(dict.fromkeys([folder, cache_folder()]))


def _shared_folders() -> Iterable[Path]:
    """../shared/data of the working directory and, in a checkout, of the repository; where it exists."""
    roots = [Path.cwd()]
    repository = Path(__file__).resolve().parents[3]  # <repository>/src/contextpool/triples/catalog.py
    if (repository / "pyproject.toml").is_file():
        roots.append(repository)
    folders = (root.parent / "shared" / "data" for root in roots)
    return [folder for folder in folders if folder.is_dir()]


def locate(entry: CatalogEntry) -> Path | None:
    """The folder to load, in the first data folder that has every file of the entry; None where none has."""
    root = _root_of(entry)
    return None if root is None else root / entry.name


def _root_of(entry: CatalogEntry) -> Path | None:
    if entry.embedded:
        root = Path(str(resources.files("contextpool.triples"))) / "world"
        return root if (root / entry.name).is_dir() else None
    return next((folder for folder in data_folders() if not missing_files(entry, folder)), None)


def missing_files(entry: CatalogEntry, folder: Path) -> list[str]:
    """The entry's files that are not below this data folder."""
    return [file.path for file in entry.files if not (folder / file.path).is_file()]


def verify(entry: CatalogEntry) -> list[str]:
    """What is wrong with the entry's files on this machine, a line each; empty where all is well."""
    root = _root_of(entry)
    if root is None:
        return [not_here(entry)]
    return [problem for file in entry.files if (problem := file_problem(root, file))]


def file_problem(folder: Path, file: CatalogFile) -> str | None:
    """Why the file below this data folder is not the published one, or None where it is. O(bytes)."""
    path = folder / file.path
    size = path.stat().st_size
    if size != file.size:
        return f"{path}: {size:,} bytes instead of {file.size:,}"
    found = sha256_of(path)
    return None if found == file.sha256 else f"{path}: sha256 is {found} instead of {file.sha256}"


def sha256_of(path: Path) -> str:
    """The file's sha256 in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def load_dataset(
    name_or_folder: str | Path, *, on_unknown: OnUnknown = "error", tell: Tell | None = None
) -> Dataset:
    """A dataset by its catalog name, from a folder, or by splitting one graph (any source of `read_graph`).

    A name of the catalog wins over a folder of that spelling; write `./name` or pass a Path for the folder.
    Files of a named dataset are compared with their checksums, so that a name always means the same triples.
    `tell` hears how one graph was split and what its reader left out.
    """
    if not is_named(name_or_folder) and (address := find_address(name_or_folder)) is not None:
        return source_dataset(address, tell)
    folder = _as_folder(name_or_folder)
    if folder is not None:
        return load_folder(folder, on_unknown=on_unknown)
    entry = find(str(name_or_folder))
    located = locate(entry)
    if located is None:
        raise DataError(not_here(entry))
    problems = verify(entry)
    if problems:
        raise ChecksumError(
            f"dataset {entry.name!r}: {len(problems)} of {len(entry.files)} files are not the published ones: "
            f"{'; '.join(problems)}. Remove them and run `contextpool data fetch {entry.name}`, or load your own "
            f"version by its path: {located}."
        )
    return load_folder(located, name=entry.name, on_unknown=on_unknown)


def read_training_graph(name: str, *, for_run: str | Path | None = None) -> Triples:
    """The facts to train on that a name means, here or below a data folder.

    A name of the catalog or a folder stands for its training graph (a folder's train.txt, .tsv.gz, ...), FOLDER/msg for
    the file msg.txt, .tsv.gz, ... in it; a file or another source (`triples.reader`) for itself. A name that the folder
    `for_run` says is not trusted: it is looked for in the catalog and the data folders alone.
    """
    if is_named(name):
        return used_only(load_dataset(name).training_graph)
    if for_run is None and (address := find_address(name)) is not None and address.is_there:
        return read_triples(address)
    files = _below_data_folders(name) or (_files_called(Path(name).expanduser()) if for_run is None else [])
    if len(files) > 1:
        raise DataError(f"graph {name!r}: both {files[0]} and {files[1]} may be meant. Name the file.")
    if files:
        return read_triples(files[0])
    looked_in = ", ".join(str(folder) for folder in data_folders())
    if for_run is not None:
        raise DataError(
            f"{for_run} was trained on {shortened(name, 200)}, which is neither in the catalog nor in {looked_in}, "
            "and a run folder is not trusted to say what is opened. Give its recipe: contextpool resume "
            f"{for_run} RECIPE"
        )
    raise DataError(
        f"graph {name!r} is not on this machine: it is no name of the catalog, no file, and no folder with a "
        f"train.txt (.tsv, .csv, ... and .gz), here or in {looked_in}. Check the name, or set CONTEXTPOOL_DATA to the "
        "data folder."
    )


def graph_title(name: str) -> str:
    """What a run calls a graph: its name in the catalog or below a data folder, or else what its file is called."""
    return name if _below_data_folders(name) else dataset_title(name)


def _below_data_folders(name: str) -> list[Path]:
    """Its files in the first data folder that has some; nothing outside of it, whatever the name says."""
    for folder in data_folders():
        found = _files_called(folder / name)
        if found and all(file.resolve().is_relative_to(folder.resolve()) for file in found):
            return found
    return []


def _files_called(path: Path) -> list[Path]:
    """The file itself, or those of its name, for a folder those of train in it, with a suffix that the reader knows."""
    path = path / "train" if path.is_dir() else path
    if path.is_file():
        return [path]
    if not path.parent.is_dir():
        return []
    named = (file for file in path.parent.iterdir() if file.name.partition(".")[0] == path.name)
    return sorted(file for file in named if file.is_file() and find_address(file) is not None)


def refuse_unknown(name_or_folder: str) -> None:
    """Refuse what is neither a name of the catalog nor a folder or source, without reading anything."""
    if find_address(name_or_folder) is None and _as_folder(name_or_folder) is None:
        find(name_or_folder)


def _as_folder(name_or_folder: str | Path) -> Path | None:
    """The path that is meant, or None where a catalog name is."""
    path = Path(name_or_folder).expanduser()
    if isinstance(name_or_folder, Path) or path.is_absolute() or name_or_folder.startswith(("./", "../")):
        return path
    return path if not is_named(name_or_folder) and path.exists() else None


def is_named(text: str | Path) -> bool:
    """Whether this is a name of the catalog, which wins over a file or folder of that spelling."""
    return any(entry.name == text for entry in entries())


def dataset_title(text: str) -> str:
    """What a run calls its dataset: a name of the catalog, or what a file, folder or database is called.

    Never an address: a run folder travels, and should name no path, server or query.
    """
    if is_named(text):
        return text
    address = find_address(text)
    name = Path(text).expanduser().resolve().name if address is None else address.name
    return printable(name)[:100] or "unnamed"


def whole_graph(source: str | Path) -> Address | None:
    """The address of a graph that is not to be split; None for a dataset."""
    address = None if is_named(source) else find_address(source)
    return None if address is None or address.without_split()[1] else address


def not_here(entry: CatalogEntry) -> str:
    """What to tell who asks for a dataset that is not on this machine."""
    if entry.embedded:
        return f"dataset {entry.name!r} should be part of the package and is not. Install contextpool again."
    looked_in = "; ".join(f"{folder} ({_lack(entry, folder)})" for folder in data_folders())
    return (
        f"dataset {entry.name!r} is not on this machine. Looked in: {looked_in}. Get it with "
        f"`contextpool data fetch {entry.name}`, or set CONTEXTPOOL_DATA to a folder that holds {entry.name}."
    )


def _lack(entry: CatalogEntry, folder: Path) -> str:
    if not folder.is_dir():
        return "no such folder"
    first, *others = missing_files(entry, folder)
    return f"lacks {first}" + (f" and {len(others)} more" if others else "")
