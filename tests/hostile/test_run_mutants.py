"""Mutants of run folders and exports: the same answer, or one clear error; never a crash, a hang, a file elsewhere."""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import contextpool as cp
from contextpool.interop.export import export
from contextpool.train.checkpoint import load_tensors, save_tensors
from contextpool.train.files import json_digest
from golden.make import HERE as GOLDEN
from hostile.harness import Outcome, Tally, fork_server
from hostile.mutants import mutated_bytes, mutated_json
from support import amount
from world_model import world_run as world_run

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits and /proc as on Linux")

SHARDS = 20
"""So that workers share the long amounts."""
SHIPPED = Path(cp.__file__).parent / "checkpoints" / cp.SHIPPED
Mutation = Callable[[Path, random.Random], None]


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph of some 150 facts of the world that nobody trained on."""
    graph = cp.Graph.from_triples(cp.load_dataset("world").inference_graph)
    path = tmp_path_factory.mktemp("facts") / "facts.tsv"
    chosen = [triple for triple in graph.triples if "Aalborg" in triple or "Denmark" in triple][:150]
    path.write_text("".join("\t".join(triple) + "\n" for triple in chosen), "utf-8")
    return path


@pytest.fixture(scope="module")
def seeds(world_run: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    """What is mutated: a trained run and the one in the package, and exports of both."""
    folder = tmp_path_factory.mktemp("seeds")
    trained = folder / "run"
    shutil.copytree(world_run, trained, ignore=shutil.ignore_patterns(".lock", "events.jsonl", "checkpoints"))
    runs = [trained, SHIPPED]
    exports = [export(run, folder / f"export {place}", evaluated=False) for place, run in enumerate(runs)]
    return {"run folders": runs, "exports": exports}


# what is done to a folder


def some_bytes(folder: Path, rng: random.Random) -> None:
    file = _file(folder, rng)
    file.write_bytes(mutated_bytes(file.read_bytes(), rng))


def some_json(folder: Path, rng: random.Random) -> None:
    file = _file(folder, rng, ".json")
    file.write_text(json.dumps(mutated_json(json.loads(file.read_text("utf-8")), rng)), "utf-8")


def another_file(folder: Path, rng: random.Random) -> None:
    """The file of another run in the place of one, or another file of the same run."""
    file = _file(folder, rng)
    others = [
        *(GOLDEN / "nbfnet_context").iterdir(),
        *(GOLDEN / "redgnn").iterdir(),
        *SHIPPED.iterdir(),
        *folder.iterdir(),
    ]
    shutil.copyfile(rng.choice([one for one in others if one != file]), file)


def no_file(folder: Path, rng: random.Random) -> None:
    """Nothing, a folder, a pipe, a link to somewhere, or a file of a terabyte in the place of one."""
    file = _file(folder, rng)
    file.unlink()
    what = rng.randrange(7)
    if what == 1:
        file.mkdir()
    elif what == 2:
        os.mkfifo(file)
    elif what == 3:
        file.symlink_to(
            rng.choice(("/dev/zero", "/dev/urandom", "/etc/passwd", "/proc/self/maps", str(file), "/nowhere"))
        )
    elif what == 4:
        with file.open("wb") as stream:
            stream.truncate(rng.choice((0, 10**6, 10**9, 10**12)))
    elif what == 5:
        file.write_bytes(rng.randbytes(1000))


def some_sums(folder: Path, rng: random.Random) -> None:
    """Lines of SHA256SUMS removed, doubled, swapped or changed; in a run, one that says something."""
    path = folder / "SHA256SUMS"
    lines = path.read_text().splitlines() if path.exists() else ["0" * 64 + "  config.json"]
    what = rng.randrange(4)
    if what == 0:
        lines.clear()
    elif what == 1:
        lines.append("0" * 64 + "  ../../x")
    elif what == 2:
        del lines[rng.randrange(len(lines))]
    else:
        place = rng.randrange(len(lines))
        lines[place] = mutated_bytes(lines[place].encode(), rng).decode("utf-8", "replace")
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")


def forged_json(folder: Path, rng: random.Random) -> None:
    """JSON that is changed, and a manifest that says so: a forger can write one."""
    some_json(folder, rng)
    _sign(folder)


def forged_tensors(folder: Path, rng: random.Random) -> None:
    """Tensors of other shapes, types and values under right checksums."""
    file = _file(folder, rng, ".safetensors")
    tensors, meta = load_tensors(file)
    for name in rng.sample(sorted(tensors), min(len(tensors), rng.randint(1, 3))):
        _change_tensor(tensors, name, rng)
    forged = mutated_json(meta, rng) if rng.random() < 0.1 else meta
    save_tensors(file, tensors, forged if isinstance(forged, dict) else meta)  # only a table can be written
    _sign(folder)


def _change_tensor(tensors: dict[str, torch.Tensor], name: str, rng: random.Random) -> None:
    tensor, what = tensors[name], rng.randrange(8)
    if what == 0:
        del tensors[name]
    elif what == 1:
        tensors[name] = tensor.reshape(-1)
    elif what == 2:
        tensors[name] = tensor.to(
            rng.choice((torch.float64, torch.float16, torch.int64, torch.bool, torch.uint8))
        )
    elif what == 3:
        tensors[name] = torch.full_like(tensor, rng.choice((0, 1, -1, 2**31 - 1)))
    elif what == 4 and tensor.is_floating_point():
        tensors[name] = torch.full_like(tensor, rng.choice((float("nan"), float("inf"), 1e38, -1e38)))
    elif what == 5:
        tensors[name] = tensor.repeat(2, *[1] * (tensor.dim() - 1)) if tensor.dim() else tensor.repeat(3)
    elif what == 6:
        tensors[name] = tensor[:0] if tensor.dim() else tensor
    else:
        tensors[f"{name}x"] = tensor


def _sign(folder: Path) -> None:
    """Make the manifest, and the sums of an export, right again."""
    try:
        weights, meta = load_tensors(folder / "model.safetensors")
        manifest = {}
        for name in meta.get("manifest", {}):
            if name.endswith(".json"):
                value = json.loads((folder / name).read_text("utf-8"))
                value = value.get("config") if name == "config.json" else value
                manifest[name] = json_digest(value, name)
            else:
                manifest[name] = (folder / name).read_bytes()[47:111].decode()
        save_tensors(folder / "model.safetensors", weights, {**meta, "manifest": manifest})
    except Exception:  # what cannot be signed stays as it is
        return
    if (folder / "SHA256SUMS").exists():
        (folder / "SHA256SUMS").unlink()


def _file(folder: Path, rng: random.Random, ending: str = "") -> Path:
    return rng.choice(sorted(file for file in folder.iterdir() if file.name.endswith(ending)))


SAME: tuple[Mutation, ...] = (some_bytes, some_bytes, some_json, some_json, another_file, no_file, some_sums)
"""After these the answer is the same, or there is none."""
FORGED: tuple[Mutation, ...] = (forged_json, forged_json, forged_tensors)
"""After these it is another run, and may say anything; but it does no harm."""


class Trial:
    """One folder at one place, mutated again and again."""

    def __init__(self, seed: Path, place: Path, facts: Path) -> None:
        self.seed, self.place, self.facts = seed, place, facts
        place.mkdir()
        self.expected = {}
        for verb in ("ask", "export"):
            self._renew()
            outcome = self.call(verb)
            assert outcome.code == 0, outcome.err
            self.expected[verb] = outcome.out if verb == "ask" else None

    def _renew(self) -> None:
        for name in ("run", "made"):
            shutil.rmtree(self.place / name, ignore_errors=True)
        (self.place / "made").mkdir()
        shutil.copytree(self.seed, self.place / "run")

    def call(self, verb: str) -> Outcome:
        run = self.place / "run"
        asked = [
            "ask",
            self.facts,
            "--head",
            "Aalborg",
            "--relation",
            "located_in",
            "--run",
            run,
            "--json",
            "--known",
        ]
        exported = ["export", run, self.place / "made" / "out", "--no-evaluate"]
        return fork_server().run(
            asked if verb == "ask" else exported, target=self.place / "made", cwd=self.place
        )

    def mutant(self, number: int) -> tuple[str, Outcome, str | None]:
        rng = random.Random(number)
        self._renew()
        mutations = rng.choice((SAME, SAME, SAME, FORGED))
        chosen = rng.choice(mutations)
        chosen(self.place / "run", rng)
        verb = rng.choice(("ask", "ask", "ask", "export"))
        outcome = self.call(verb)
        left = (
            {entry.name for entry in self.place.iterdir()},
            {entry.name for entry in (self.place / "made").iterdir()},
        )
        assert left in (({"run", "made"}, set()), ({"run", "made"}, {"out"})), (number, left)
        same = self.expected[verb] if mutations is SAME else None
        return f"{self.seed.name} {number} {chosen.__name__} {verb}", outcome, same


@pytest.mark.parametrize("shard", range(SHARDS if amount(0, 1) else 1))
@pytest.mark.parametrize("kind", ["run folders", "exports"])
def test_mutants_give_the_same_answer_or_one_clear_error(
    kind: str, shard: int, seeds: dict[str, list[Path]], facts: Path, tmp_path: Path
) -> None:
    tally, many = Tally(f"{kind}, shard {shard}"), amount(60, 10_000) // (SHARDS if amount(0, 1) else 1)
    trials = [Trial(seed, tmp_path / str(place), facts) for place, seed in enumerate(seeds[kind])]
    for number in range(shard * many, (shard + 1) * many):
        tally.add(*trials[number % len(trials)].mutant(number))
    tally.check()
