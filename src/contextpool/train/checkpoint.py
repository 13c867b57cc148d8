"""Tensors and a little JSON in one file that is whole or absent, checks itself, and can run nothing.

A checkpoint is a safetensors file that anybody's safetensors opens. The format itself has no checksum (random
damage loads without an error about one time in seven), so the first entry of the header's `__metadata__` is the
SHA-256 of the whole file, computed with 64 zeros in its own place:

    8 bytes           length of the header, little-endian
    header            {"__metadata__":{"contextpool_sha256":"<64 hex digits>","contextpool_format":"1",
                      "contextpool_meta":"<JSON>"},"<name>":{"dtype":..,"shape":..,"data_offsets":..},..}
    data              the tensors' bytes: wide types first, then by name, without gaps

Equal tensors and meta give equal bytes. A reader trusts nothing in the header: it takes names, types and shapes
from it, builds the one header that the writer would have made of them, and refuses any other. So offsets that
overlap, sizes that overflow, keys that occur twice and whatever else a forger may think of need no case each.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from contextpool.errors import CheckpointError, shortened
from contextpool.train.files import compact_json, durable_file, is_text, parse_json, regular_file, shown

MAX_FILE_BYTES = 1 << 36
MAX_HEADER_BYTES = 1 << 19
"""Room for some five thousand tensors; parsing this much hostile JSON takes below 50 MB and a second."""

_FORMAT = "1"
_CHUNK_BYTES = 1 << 20
_MOST_DIMENSIONS = 64
_MOST_ELEMENTS = 1 << 60  # sizes up to here can be computed in 64 bits for every type
_LENGTH_BYTES = 8
_DIGEST_KEY = b'{"__metadata__":{"contextpool_sha256":"'
_DIGEST_START = _LENGTH_BYTES + len(_DIGEST_KEY)
_DIGEST_END = _DIGEST_START + 64
_NO_DIGEST = "0" * 64

_DTYPES: dict[str, torch.dtype] = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "U16": torch.uint16,
    "I16": torch.int16,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "U32": torch.uint32,
    "I32": torch.int32,
    "F32": torch.float32,
    "U64": torch.uint64,
    "I64": torch.int64,
    "F64": torch.float64,
}
_DTYPE_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


@dataclass(frozen=True)
class _Entry:
    """One tensor's line in the header."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def item_bytes(self) -> int:
        return _DTYPES[self.dtype].itemsize

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * self.item_bytes


Shapes = dict[str, tuple[torch.dtype, tuple[int, ...]]]
"""The type and the shape of each tensor of a file, as its header says."""


@dataclass(frozen=True)
class Stored:
    """What a file held."""

    tensors: dict[str, Tensor]
    meta: dict[str, Any]
    digest: str
    """The file's own checksum."""


def save_tensors(
    path: str | Path, tensors: Mapping[str, Tensor], meta: Mapping[str, Any], *, require_finite: bool = False
) -> str:
    """Write a checkpoint; returns its checksum. Once this returns it is on disk; until then what was there before is.

    Of any device and memory layout; each tensor is stored on its own, in row order. `meta` is plain JSON.
    `require_finite` refuses NaN and infinity, for weights; the state of an optimizer may do without.
    O(bytes) time; at most one tensor is copied at a time.
    """
    path = Path(path)
    where = shown(path)
    entries = _sorted_entries([_entry_of(name, tensor, where) for name, tensor in tensors.items()])
    if require_finite:
        _check_finite(tensors, where)
    header = _header(entries, compact_json(dict(meta), f"{where}: meta"))
    _check_sizes(header, entries, where)
    with durable_file(path) as stream:
        digest = hashlib.sha256()
        for piece in _pieces(header, entries, tensors):
            digest.update(piece)
            stream.write(piece)
        stream.seek(_DIGEST_START)
        stream.write(digest.hexdigest().encode())
    return digest.hexdigest()


def load_tensors(
    path: str | Path, *, device: str | torch.device = "cpu"
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the meta of a checkpoint; see `read_checkpoint`."""
    stored = read_checkpoint(path, device=device)
    return stored.tensors, stored.meta


def read_checkpoint(
    path: str | Path, *, device: str | torch.device = "cpu", check: Callable[[Shapes], None] | None = None
) -> Stored:
    """What a checkpoint holds, or a CheckpointError for a file that is not exactly as written.

    Nothing is executed, and no memory is taken for tensors before all bytes have been checked. `check` is called with
    what the header says before any of the data is looked at, and may refuse.
    O(bytes) time, in two passes: check, then read.
    """
    where = shown(path)
    with regular_file(path, MAX_FILE_BYTES) as (stream, size):
        header = _read_header(stream, size, where)
        entries, meta = _parse_header(header, where)
        start = _LENGTH_BYTES + len(header)
        if start + sum(entry.num_bytes for entry in entries) != size:
            raise _damaged(where, "its length is not the one its header announces")
        if check is not None:
            check({entry.name: (_DTYPES[entry.dtype], entry.shape) for entry in entries})
        digest = _check_digest(stream, header, where)
        stream.seek(start)
        tensors = {entry.name: _read_tensor(stream, entry, where) for entry in entries}
    return Stored({name: tensors[name].to(device) for name in sorted(tensors)}, meta, digest)


def _damaged(where: str, what: str) -> CheckpointError:
    return CheckpointError(f"{where}: the checkpoint is damaged: {what}. Use another checkpoint or a copy.")


# The header, the same way for writer and reader.


def _sorted_entries(entries: list[_Entry]) -> list[_Entry]:
    """Wide types first, so that every tensor starts at a multiple of its item's size."""
    return sorted(entries, key=lambda entry: (-entry.item_bytes, entry.name))


def _header(entries: list[_Entry], meta_text: str) -> bytes:
    """The one header for these entries, without its digest, padded to a multiple of 8 bytes."""
    own = {"contextpool_sha256": _NO_DIGEST, "contextpool_format": _FORMAT, "contextpool_meta": meta_text}
    fields: dict[str, Any] = {"__metadata__": own}
    offset = 0
    for entry in entries:
        end = offset + entry.num_bytes
        fields[entry.name] = {"dtype": entry.dtype, "shape": entry.shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(fields, separators=(",", ":")).encode("ascii")
    return text + b" " * (-len(text) % 8)


# Writing


def _entry_of(name: str, tensor: Tensor, where: str) -> _Entry:
    label = shortened(name)
    if not _is_good_name(name):
        raise CheckpointError(f"{where}: a tensor cannot be called {label}. Rename it.")
    if not _can_be_stored(tensor):
        kind = f"{tensor.dtype}, {tensor.layout}, {tensor.dim()} dimensions, on {tensor.device}"
        raise CheckpointError(
            f"{where}: tensor {label} ({kind}) cannot be stored. "
            f"Convert it to a dense tensor of one of: {', '.join(_DTYPES)}."
        )
    return _Entry(name, _DTYPE_NAMES[tensor.dtype], tuple(tensor.shape))


def _can_be_stored(tensor: Tensor) -> bool:
    dense = tensor.layout == torch.strided and tensor.device.type != "meta"
    return dense and tensor.dtype in _DTYPE_NAMES and _is_possible_shape(list(tensor.shape))


def _is_good_name(name: Any) -> bool:
    """Whether every reader of safetensors takes this as a tensor's name."""
    return isinstance(name, str) and name != "__metadata__" and is_text(name)


def _check_finite(tensors: Mapping[str, Tensor], where: str) -> None:
    for name in sorted(tensors):
        tensor = tensors[name].detach()
        if not tensor.is_floating_point():
            continue
        bad = int((~torch.isfinite(tensor if tensor.dtype.itemsize > 1 else tensor.float())).sum())
        if bad:
            raise CheckpointError(
                f"{where}: not written, because {bad:,} of {tensor.numel():,} values of tensor "
                f"{shortened(name)} are not finite. Go back to the last good checkpoint."
            )


def _check_sizes(header: bytes, entries: list[_Entry], where: str) -> None:
    if len(header) > MAX_HEADER_BYTES:
        raise CheckpointError(
            f"{where}: names, shapes and meta take {len(header):,} bytes, more than {MAX_HEADER_BYTES:,}. "
            "Keep long lists in tensors or in the events."
        )
    data_bytes = sum(entry.num_bytes for entry in entries)
    if _LENGTH_BYTES + len(header) + data_bytes > MAX_FILE_BYTES:
        raise CheckpointError(
            f"{where}: the tensors take {data_bytes:,} bytes; a checkpoint holds {MAX_FILE_BYTES:,}. Store less."
        )


def _pieces(header: bytes, entries: list[_Entry], tensors: Mapping[str, Tensor]) -> Iterator[bytes]:
    """The file in order. Data is copied piece by piece, so what is hashed is what is written."""
    yield len(header).to_bytes(_LENGTH_BYTES, "little") + header
    for entry in entries:
        view = memoryview(_flat_bytes(tensors[entry.name].detach().cpu().resolve_neg().contiguous()))
        for start in range(0, len(view), _CHUNK_BYTES):
            yield bytes(view[start : start + _CHUNK_BYTES])


def _flat_bytes(tensor: Tensor) -> Any:
    """[num_bytes] uint8 array that shares the memory of a contiguous tensor."""
    return tensor.reshape(-1).view(torch.uint8).numpy()


# Reading


def _read_header(stream: BufferedReader, size: int, where: str) -> bytes:
    """The header with its digest, after checks that cost nothing."""
    start = stream.read(_DIGEST_END)
    if len(start) < _DIGEST_END or start[_LENGTH_BYTES:_DIGEST_START] != _DIGEST_KEY:
        raise CheckpointError(
            f"{where}: this is not a checkpoint of contextpool: it does not start with a safetensors header "
            "that carries our checksum. Check the path; if it is the right file, it is damaged."
        )
    length = int.from_bytes(start[:_LENGTH_BYTES], "little")
    if length > min(MAX_HEADER_BYTES, size - _LENGTH_BYTES):
        raise _damaged(where, "its header is longer than it can be")
    header = start[_LENGTH_BYTES:] + stream.read(max(0, length - (_DIGEST_END - _LENGTH_BYTES)))
    if len(header) != length:
        raise _damaged(where, "its header is cut short")
    return header


def _parse_header(header: bytes, where: str) -> tuple[list[_Entry], dict[str, Any]]:
    """Entries in the order of their data, and the meta; any header but the writer's own is refused."""
    fields = parse_json(header, where)
    own = fields.pop("__metadata__")  # it is there: the file starts with it
    if own.get("contextpool_format") != _FORMAT:
        raise CheckpointError(
            f"{where}: the checkpoint has format {shortened(str(own.get('contextpool_format')))}; this release "
            f"reads format {_FORMAT!r}. Use the release of contextpool that wrote it."
        )
    entries = _sorted_entries([_parse_entry(name, value, where) for name, value in fields.items()])
    meta_text = own.get("contextpool_meta")
    meta = parse_json(meta_text, f"{where}: meta") if isinstance(meta_text, str) else None
    if not isinstance(meta, dict) or compact_json(meta, f"{where}: meta") != meta_text:
        raise _damaged(where, "its meta is not as contextpool writes it")
    if _header(entries, meta_text) != _without_digest(header):
        raise _damaged(where, "its header is not as contextpool writes it")
    return entries, meta


def _parse_entry(name: str, value: Any, where: str) -> _Entry:
    label = shortened(name)
    dtype = value.get("dtype") if isinstance(value, dict) else None
    shape = value.get("shape") if isinstance(value, dict) else None
    if not isinstance(dtype, str) or dtype not in _DTYPES or not _is_good_name(name):
        raise _damaged(where, f"tensor {label} has no type that contextpool writes")
    if not isinstance(shape, list) or not _is_possible_shape(shape):
        raise _damaged(where, f"tensor {label} has an impossible shape")
    return _Entry(name, dtype, tuple(shape))


def _is_possible_shape(shape: list[Any]) -> bool:
    """Whether torch can hold a tensor of this shape: torch multiplies in 64 bits, zeros left out."""
    if len(shape) > _MOST_DIMENSIONS or not all(type(size) is int and size >= 0 for size in shape):
        return False
    return bool(math.prod(max(size, 1) for size in shape) <= _MOST_ELEMENTS)


def _without_digest(header: bytes) -> bytes:
    start, end = _DIGEST_START - _LENGTH_BYTES, _DIGEST_END - _LENGTH_BYTES
    return header[:start] + _NO_DIGEST.encode() + header[end:]


def _check_digest(stream: BufferedReader, header: bytes, where: str) -> str:
    """Hash the length, the header without its digest, and the rest of the file from where the stream stands."""
    digest = hashlib.sha256(len(header).to_bytes(_LENGTH_BYTES, "little") + _without_digest(header))
    while chunk := stream.read(_CHUNK_BYTES):
        digest.update(chunk)
    if header[_DIGEST_START - _LENGTH_BYTES : _DIGEST_END - _LENGTH_BYTES] != digest.hexdigest().encode():
        raise _damaged(where, "its bytes do not match its checksum")
    return digest.hexdigest()


def _read_tensor(stream: BufferedReader, entry: _Entry, where: str) -> Tensor:
    try:
        tensor = torch.empty(entry.shape, dtype=_DTYPES[entry.dtype])
    except (RuntimeError, MemoryError):
        raise CheckpointError(
            f"{where}: tensor {shortened(entry.name)} takes {entry.num_bytes:,} bytes, for which there is no "
            "memory. Close other programs, or use a larger machine."
        ) from None
    data = _flat_bytes(tensor)  # [num_bytes]
    if stream.readinto(data) != entry.num_bytes:
        raise _damaged(where, "it changed while it was read")
    if tensor.dtype == torch.bool and data.size and data.max() > 1:
        raise _damaged(where, f"tensor {shortened(entry.name)} holds truth values other than 0 and 1")
    return tensor
