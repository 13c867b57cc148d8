"""A damaged or hostile file is refused as such: never loaded, never executed, never anything but one line (C4, C5)."""

from __future__ import annotations

import random
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from contextpool.errors import CheckpointError
from contextpool.train.checkpoint import load_tensors, save_tensors
from support import amount
from train.hostile_files import GOOD, OWN, contents, signed, strange_paths, too_large_for_memory
from train.sandbox import MEMORY_LIMIT, sandbox

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="limits and /proc as on Linux")


@pytest.fixture(scope="module")
def small() -> bytes:
    """A complete small checkpoint: 5 tensors, all kinds of meta."""
    return _content(
        {"a": torch.arange(7.0), "b": torch.arange(4), "c": torch.tensor([True, False])}, {"s": [1, "x"]}
    )


def _content(tensors: dict[str, torch.Tensor], meta: dict[str, object]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        save_tensors(Path(folder) / "t", tensors, meta)
        return (Path(folder) / "t").read_bytes()


def refused(path: Path, content: bytes) -> str:
    """The one line with which this content is refused."""
    path.unlink(missing_ok=True)  # some file systems flush a file that is emptied and written again
    path.write_bytes(content)
    with pytest.raises(CheckpointError) as caught:
        load_tensors(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    assert len(message) < 600
    return message


def test_truncation_at_every_byte_of_a_small_file(small: bytes, tmp_path: Path):
    for length in range(len(small)):
        refused(tmp_path / "t", small[:length])


def test_truncation_at_steps_of_4_kib(tmp_path: Path):
    content = _content({"w": torch.randn(300_000), "r": torch.arange(1000)}, {"step": 5})
    for length in range(0, len(content), 4096):
        assert length < 600 or "damaged" in refused(tmp_path / "t", content[:length])


def test_growth_is_refused(small: bytes, tmp_path: Path):
    for extra in (b"\0", b"\n", b" " * 8, small, bytes(4096)):
        assert "length is not the one" in refused(tmp_path / "t", small + extra)
        refused(tmp_path / "t", extra + small)


def test_every_bit_flip_of_a_small_file(small: bytes, tmp_path: Path):
    for position in range(len(small)):
        flipped = bytearray(small)
        flipped[position] ^= 1 << (position % 8)
        refused(tmp_path / "t", bytes(flipped))


def test_random_byte_flips(small: bytes, tmp_path: Path):
    rng = random.Random(0)
    for mutant in _flips(small, rng, amount(10_000, 100_000)):
        refused(tmp_path / "t", mutant)


def _flips(content: bytes, rng: random.Random, count: int) -> Iterator[bytes]:
    for _ in range(count):
        mutant = bytearray(content)
        for _ in range(rng.choice((1, 1, 1, 2, 8))):
            mutant[rng.randrange(len(mutant))] ^= rng.randrange(1, 256)
        if mutant != content:
            yield bytes(mutant)


def test_random_cuts_insertions_and_swaps(small: bytes, tmp_path: Path):
    rng = random.Random(1)
    for _ in range(amount(1_000, 20_000)):
        first, second, third = sorted(rng.randrange(len(small) + 1) for _ in range(3))
        mutants = (
            small[:first] + small[second:],
            small[:second] + small[first:],
            small[:first] + small[second:third] + small[first:second] + small[third:],
        )
        for mutant in mutants:
            if mutant != small:
                refused(tmp_path / "t", mutant)


def test_the_data_of_one_checkpoint_under_the_header_of_another(tmp_path: Path):
    one, two = (_content({"w": torch.full((100,), value)}, {}) for value in (1.0, 2.0))
    assert len(one) == len(two)
    assert "do not match its checksum" in refused(tmp_path / "t", one[:-400] + two[-400:])


def test_a_file_that_shrinks_while_it_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "t"
    save_tensors(path, {"w": torch.ones(10_000)}, {})

    def shrink(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        path.write_bytes(path.read_bytes()[:-5_000])
        return torch.zeros(shape, dtype=dtype)

    monkeypatch.setattr(torch, "empty", shrink)
    with pytest.raises(CheckpointError, match="changed while it was read"):
        load_tensors(path)


# hostile files, each in its own process with one second of processor time and 50 MB of memory


@needs_linux
def test_hostile_files_are_refused_without_running_anything(tmp_path: Path):
    marker = tmp_path / "executed"
    cases: dict[str, tuple[str, str]] = strange_paths(tmp_path)
    for number, (name, (content, words)) in enumerate(contents(marker).items()):
        path = tmp_path / f"hostile {number}"
        path.write_bytes(content)
        cases[name] = (str(path), words)
    assert len(cases) >= 25
    found = sandbox().run("refusals", paths=[path for path, _ in cases.values()])
    for (name, (_, words)), outcome in zip(cases.items(), found, strict=True):
        assert outcome["signal"] == 0, f"{name}: killed by signal {outcome['signal']}"
        (told,) = outcome["told"]
        assert told.get("outcome") == "refused", f"{name}: {told}"
        assert words in told["message"], f"{name}: {told}"
        assert "\n" not in told["message"], name
        assert len(told["message"]) < 6_000, name
        assert told["suspicious"] == [], name
        assert told["memory"] < MEMORY_LIMIT, f"{name}: {told['memory']:,} bytes"
    assert not marker.exists()


@needs_linux
def test_a_right_file_that_does_not_fit_is_refused_in_one_line(tmp_path: Path):
    too_large_for_memory(tmp_path / "t")
    (outcome,) = sandbox().run("refusals", paths=[str(tmp_path / "t")])
    (told,) = outcome["told"]
    assert told["outcome"] == "refused"
    assert "tensor 'a' takes 100,000,000 bytes, for which there is no memory" in told["message"]
    assert load_tensors(tmp_path / "t")[0]["a"].numel() == 10**8


@needs_linux
def test_the_limits_and_the_watch_are_real(tmp_path: Path):
    """The controls of the test above: what is good loads there too, and a forger's checksum is right."""
    (tmp_path / "t").write_bytes(signed(OWN + GOOD, b"\0\0\x80\x3f"))
    assert load_tensors(tmp_path / "t")[0]["a"].tolist() == [1.0]
    (outcome,) = sandbox().run("refusals", paths=[str(tmp_path / "t")])
    assert outcome["told"][0]["outcome"] == "loaded"
    memory, address_space, time, command = sandbox().run("limits_hold")
    assert memory["told"][0]["memory"] >= MEMORY_LIMIT * 7 // 10
    assert address_space["told"][0]["outcome"] == "MemoryError"
    assert time == {"told": [], "signal": signal.SIGXCPU}
    assert command["told"][0]["suspicious"] == ["os.system"]
