"""What goes into a checkpoint comes out of it, as the same bytes every time, and nothing is ever unpickled."""

from __future__ import annotations

import ast
import string
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file

import contextpool
from contextpool.errors import CheckpointError
from contextpool.train import checkpoint
from contextpool.train.checkpoint import load_tensors, save_tensors

DTYPES = list(checkpoint._DTYPES.values())


def bits(tensor: torch.Tensor) -> tuple[torch.dtype, tuple[int, ...], bytes]:
    """All there is to a tensor, so that NaN equals NaN and -0.0 differs from 0.0."""
    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    return tensor.dtype, tuple(tensor.shape), flat.numpy().tobytes()


def tensor_of(dtype: torch.dtype, shape: tuple[int, ...], seed: int = 0) -> torch.Tensor:
    """Random bytes seen as this type; 0 and 1 for truth values."""
    size = torch.empty(shape, dtype=dtype).numel() * dtype.itemsize
    most = 2 if dtype == torch.bool else 256
    raw = torch.randint(0, most, (size,), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)
    return raw.view(dtype).reshape(shape)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**127), 2**127)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(string.printable), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8).filter(
    lambda name: name != "__metadata__"
)
TENSORS = st.builds(
    tensor_of,
    st.sampled_from(DTYPES),
    st.lists(st.integers(0, 4), max_size=4).map(tuple),
    st.integers(0, 99),
)


@given(
    tensors=st.dictionaries(NAMES, TENSORS, max_size=5), meta=st.dictionaries(st.text(string.printable), JSON)
)
def test_round_trip(
    tmp_path_factory: pytest.TempPathFactory, tensors: dict[str, torch.Tensor], meta: dict[str, Any]
):
    path = tmp_path_factory.mktemp("round") / "trip.safetensors"
    save_tensors(path, tensors, meta)
    loaded, loaded_meta = load_tensors(path)
    assert {name: bits(tensor) for name, tensor in loaded.items()} == {n: bits(t) for n, t in tensors.items()}
    assert loaded_meta == meta
    others = load_file(path)  # anybody's safetensors reads the same
    assert {name: bits(tensor) for name, tensor in others.items()} == {n: bits(t) for n, t in tensors.items()}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1,), (3, 5)], ids=str)
def test_every_type_and_odd_shape(dtype: torch.dtype, shape: tuple[int, ...], tmp_path: Path):
    tensor = tensor_of(dtype, shape, seed=7)
    save_tensors(tmp_path / "t", {"t": tensor}, {})
    assert bits(load_tensors(tmp_path / "t")[0]["t"]) == bits(tensor)


def test_equal_content_gives_equal_bytes_in_any_order(tmp_path: Path):
    a, b = torch.arange(6).reshape(2, 3), torch.randn(5).half()
    save_tensors(tmp_path / "one", {"a": a, "b": b}, {"x": 1, "y": [2]})
    save_tensors(tmp_path / "two", {"b": b.clone(), "a": a.T.contiguous().T}, {"y": (2,), "x": 1})
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_different_content_gives_different_digests(tmp_path: Path):
    digests = set()
    for value, meta in [(1.0, {}), (2.0, {}), (1.0, {"x": 1}), (-0.0, {}), (0.0, {})]:
        save_tensors(tmp_path / "t", {"t": torch.tensor(value)}, meta)
        with safe_open(tmp_path / "t", "pt") as opened:
            digests.add(opened.metadata()["contextpool_sha256"])
    assert len(digests) == 5


def test_memory_layout_and_gradients_leave_no_trace(tmp_path: Path):
    base = torch.arange(24.0).reshape(4, 6)
    tensors = {
        "transposed": base.T,
        "strided": base[::2, 1::3],
        "expanded": torch.tensor([1.0]).expand(3),
        "parameter": torch.nn.Parameter(base),
        "negative view": torch.view_as_complex(torch.ones(2, 2)).conj().imag,
        "same memory": base,
    }
    save_tensors(tmp_path / "t", tensors, {})
    loaded, _ = load_tensors(tmp_path / "t")
    for name, tensor in tensors.items():
        assert torch.equal(loaded[name], tensor), name
    loaded["parameter"].zero_()  # what is loaded is writable and shares nothing
    assert torch.equal(loaded["same memory"], base)


def test_every_tensor_starts_at_a_multiple_of_its_item_size(tmp_path: Path):
    tensors = {f"{number:02}": tensor_of(dtype, (3,)) for number, dtype in enumerate(DTYPES)}
    save_tensors(tmp_path / "t", tensors, {"odd": "x"})
    content = (tmp_path / "t").read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    for tensor in tensors.values():
        at = content.index(bits(tensor)[2], start)
        assert at % tensor.dtype.itemsize == 0


def test_generator_states_come_back(tmp_path: Path):
    generator = torch.Generator().manual_seed(3)
    torch.rand(10, generator=generator)
    save_tensors(tmp_path / "t", {"rng": generator.get_state()}, {})
    expected = torch.rand(5, generator=generator)
    restored = torch.Generator()
    restored.set_state(load_tensors(tmp_path / "t")[0]["rng"])
    assert torch.equal(torch.rand(5, generator=restored), expected)


def test_several_pieces_and_a_device(tmp_path: Path):
    tensor = torch.randn(700_001)  # 2.8 MB: three pieces
    save_tensors(tmp_path / "t", {"t": tensor}, {})
    assert torch.equal(load_tensors(tmp_path / "t", device=torch.device("cpu"))[0]["t"], tensor)
    assert load_tensors(tmp_path / "t", device="meta")[0]["t"].device.type == "meta"


def test_no_tensors_at_all(tmp_path: Path):
    save_tensors(tmp_path / "t", {}, {"epoch": 0})
    assert load_tensors(tmp_path / "t") == ({}, {"epoch": 0})


# refused when saving, before anything is written (C7: weights that are not finite)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_weights_that_are_not_finite_are_refused_by_name(value: float, dtype: torch.dtype, tmp_path: Path):
    path = tmp_path / "model.safetensors"
    save_tensors(path, {"good": torch.ones(2)}, {}, require_finite=True)
    before = path.read_bytes()
    bad = torch.tensor([1.0, value, 2.0, value], dtype=dtype)
    with pytest.raises(CheckpointError, match=r"2 of 4 values of tensor 'layer\.bad'") as caught:
        save_tensors(path, {"good": torch.ones(2), "layer.bad": bad}, {}, require_finite=True)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == before
    save_tensors(path, {"layer.bad": bad}, {})  # the state of an optimizer may hold it
    assert bits(load_tensors(path)[0]["layer.bad"]) == bits(bad)


def test_narrow_floats_that_are_not_finite_are_refused(tmp_path: Path):
    bad = torch.tensor([float("nan")]).to(torch.float8_e5m2)
    with pytest.raises(CheckpointError, match="1 of 1 values of tensor 'f8'"):
        save_tensors(tmp_path / "t", {"f8": bad}, {}, require_finite=True)
    save_tensors(tmp_path / "t", {"f8": bad.float().nan_to_num().to(bad.dtype)}, {}, require_finite=True)


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ({"t": torch.ones(2, dtype=torch.complex64)}, "tensor 't' (torch.complex64"),
        ({"t": torch.eye(2).to_sparse()}, "torch.sparse_coo"),
        ({"t": torch.ones(2, device="meta")}, "on meta"),
        ({"__metadata__": torch.ones(1)}, "cannot be called '__metadata__'"),
        ({"\ud800": torch.ones(1)}, "cannot be called"),
        ({7: torch.ones(1)}, "cannot be called 7"),
        ({"t": torch.ones([1] * 65)}, "65 dimensions"),
        ({"x" * 2_000_000: torch.ones(1)}, "names, shapes and meta take"),
    ],
)
def test_what_cannot_be_stored_is_refused_by_name(
    tensors: dict[Any, torch.Tensor], words: str, tmp_path: Path
):
    with pytest.raises(CheckpointError) as caught:
        save_tensors(tmp_path / "t", tensors, {})
    assert words in str(caught.value)
    assert len(str(caught.value)) < 500
    assert list(tmp_path.iterdir()) == []


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("meta", "words"),
    [
        ({"loss": float("nan")}, "meta['loss'] is nan"),
        ({"a": [1, {"b": float("-inf")}]}, "meta['a'][1]['b'] is -inf"),
        ({"a": {1: 2}}, "meta['a'] has the key '1', which is not text"),
        ({"a": {1, 2}}, "meta['a'] is a set"),
        ({"a": torch.ones(1)}, "meta['a'] is a Tensor"),
        ({"a": b"x"}, "meta['a'] is a bytes"),
        ({"a": "\udc80"}, "surrogate"),
        ({"a": 2**5000}, "4,096 bits"),
        ({"a": nested(60)}, "more than 50 levels"),
        ({"a": "x" * 2_000_000}, "names, shapes and meta take"),
    ],
)
def test_meta_that_is_not_plain_is_refused_by_place(meta: dict[str, Any], words: str, tmp_path: Path):
    with pytest.raises(CheckpointError) as caught:
        save_tensors(tmp_path / "t", {}, meta)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_meta_that_contains_itself_is_refused(tmp_path: Path):
    meta: dict[str, Any] = {}
    meta["me"] = meta
    with pytest.raises(CheckpointError, match="more than 50 levels"):
        save_tensors(tmp_path / "t", {}, meta)


def test_deepest_meta_that_is_written_can_be_read(tmp_path: Path):
    save_tensors(tmp_path / "t", {}, {"a": nested(48)})
    assert load_tensors(tmp_path / "t")[1] == {"a": nested(48)}


def test_more_bytes_than_will_be_read_are_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checkpoint, "MAX_FILE_BYTES", 1000)
    save_tensors(tmp_path / "small", {"t": torch.ones(10)}, {})
    with pytest.raises(CheckpointError, match="a checkpoint holds 1,000"):
        save_tensors(tmp_path / "large", {"t": torch.ones(250)}, {})
    assert not (tmp_path / "large").exists()


# no way to run code from a file (C5)

FORBIDDEN_MODULES = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}


def unpickling(source: str) -> list[str]:
    """What in this source could unpickle."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] in FORBIDDEN_MODULES]
        elif isinstance(node, ast.ImportFrom):
            names = {alias.name for alias in node.names}
            is_forbidden = (node.module or "").split(".")[0] in FORBIDDEN_MODULES
            found += [str(node.module)] * (is_forbidden or (node.module == "torch" and "load" in names))
        elif isinstance(node, ast.Attribute) and node.attr in {"load", "read_pickle", "to_pickle"}:
            base = ast.unparse(node.value)
            found += [f"{base}.{node.attr}"] * (base in {"torch", "torch.jit"} or "pickle" in node.attr)
        elif isinstance(node, ast.keyword) and node.arg in {"allow_pickle", "weights_only"}:
            found += [node.arg] * (ast.unparse(node.value) == str(node.arg == "allow_pickle"))
        elif isinstance(node, ast.Constant) and node.value in FORBIDDEN_MODULES:
            found.append(str(node.value))  # importlib.import_module("pickle")
    return found


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import os, pickle as p",
        "from pickle import loads",
        "import joblib.numpy_pickle",
        "from torch import load",
        "import torch\ntorch.load('x')",
        "f = torch.jit.load",
        "np.load('x', allow_pickle=True)",
        "load('x', weights_only=False)",
        "importlib.import_module('pickle')",
        "pd.read_pickle('x')",
    ],
)
def test_the_search_for_unpickling_finds_it(source: str):
    assert unpickling(source)


def test_the_search_for_unpickling_leaves_the_rest_alone():
    assert not unpickling("'''no pickle here'''\nimport json\njson.load(f)\nnp.load(f, allow_pickle=False)")


def test_nothing_in_the_package_unpickles():
    sources = sorted(Path(contextpool.__file__).parent.rglob("*.py"))
    assert len(sources) > 20
    assert {str(path): found for path in sources if (found := unpickling(path.read_text("utf-8")))} == {}
