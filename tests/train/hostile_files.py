"""Files that want to break whoever loads them as a checkpoint, and the words their refusal has to contain.

Those made by `signed` carry a right checksum: a forger can compute it too.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import pickle
import socket
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save as foreign_save

ZEROS = b"0" * 64
START = b'{"__metadata__":{"contextpool_sha256":"' + ZEROS + b'"'
OWN = START + b',"contextpool_format":"1","contextpool_meta":"{}"}'
GOOD = b',"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'

NOT_OURS = "not a checkpoint of contextpool"
NOT_WRITTEN = "not as contextpool writes it"


def signed(header: bytes, data: bytes = b"", *, padded: bool = True) -> bytes:
    """A file with this header, in which the digest is set right."""
    header += b" " * (-len(header) % 8 if padded else 0)
    content = len(header).to_bytes(8, "little") + header + data
    digest = hashlib.sha256(content).hexdigest().encode()
    return content.replace(ZEROS, digest, 1)


def one_tensor(dtype: str, shape: str, offsets: str, data: bytes = b"\0" * 4) -> bytes:
    entry = f',"a":{{"dtype":{dtype},"shape":{shape},"data_offsets":{offsets}}}}}'
    return signed(OWN + entry.encode(), data)


class _Runs:
    """Unpickled, it makes a file; nobody must."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch '{self.marker}'",)


def _zip_with_pickle(marker: Path) -> bytes:
    """The shape of what torch.save writes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(_Runs(marker)))
        archive.writestr("archive/version", "3\n")
    return buffer.getvalue()


def _zip_bomb() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(6 * 10**7))
    return buffer.getvalue()


def _object_array(marker: Path) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.array([_Runs(marker)], dtype=object))
    return buffer.getvalue()


def contents(marker: Path) -> dict[str, tuple[bytes, str]]:
    """What plain files may hold, and words of the refusal."""
    return {**_other_formats(marker), **_broken_headers(), **_forged_tensors(), **_forged_metadata()}


def _other_formats(marker: Path) -> dict[str, tuple[bytes, str]]:
    return {
        "pickle": (pickle.dumps(_Runs(marker)), NOT_OURS),
        "old pickle": (pickle.dumps(_Runs(marker), protocol=0), NOT_OURS),
        "torch archive": (_zip_with_pickle(marker), NOT_OURS),
        "zip bomb": (_zip_bomb(), NOT_OURS),
        "gzip bomb": (gzip.compress(bytes(6 * 10**7)), NOT_OURS),
        "array of objects": (_object_array(marker), NOT_OURS),
        "somebody else's safetensors": (foreign_save({"a": torch.ones(3)}, {"sha256": "no"}), NOT_OURS),
        "pickle after our start": (signed(START) + pickle.dumps(_Runs(marker)), "damaged"),
        "text": (b"These are not the weights you are looking for.\n" * 10, NOT_OURS),
        "empty": (b"", NOT_OURS),
        "seven bytes": (b"\1" * 7, NOT_OURS),
        "zeros": (bytes(4096), NOT_OURS),
        "all ones": (b"\xff" * 4096, NOT_OURS),
    }


def _broken_headers() -> dict[str, tuple[bytes, str]]:
    good = signed(OWN + GOOD, b"\0" * 4)
    deep = START + b',"x":' + b"[" * 250_000 + b"]" * 250_000 + b"}}"
    wide = START + b',"x":[' + b"[]," * 170_000 + b"[]]}}"
    many = b"".join(
        b',"%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}' % number for number in range(9_000)
    )
    return {
        "header longer than anything": (b"\xff" * 8 + good[8:], "longer than it can be"),
        "header of 2^63 bytes": ((1 << 63).to_bytes(8, "little") + good[8:], "longer than it can be"),
        "header past the end": ((len(good)).to_bytes(8, "little") + good[8:], "longer than it can be"),
        "header of no bytes": (bytes(8) + good[8:], "header is cut short"),
        "header ends inside the digest": ((60).to_bytes(8, "little") + good[8:], "header is cut short"),
        "header over the limit": (signed(START + b" " * (1 << 20) + b"}}"), "longer than it can be"),
        "deep": (signed(deep), "nested too deeply"),
        "wide": (signed(wide), "format"),
        "many tensors in another order": (signed(OWN + many + b"}"), NOT_WRITTEN),
        "not JSON": (signed(START + b"}, what?}"), "not JSON"),
        "not UTF-8": (signed(START + b',"\xff\xfe":"\x80"}}'), "not JSON"),
        "half a surrogate": (
            signed(OWN + b',"\\ud800":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}'),
            "type",
        ),
        "number of 500,000 digits": (signed(START + b',"x":' + b"9" * 500_000 + b"}}"), "not JSON"),
        "number too large for a float": (signed(START + b',"x":1e999}}'), "not JSON"),
        "two documents": (signed(OWN + b"}{}"), "not JSON"),
        "extra blanks": (signed(OWN + b" " + GOOD, b"\0" * 4), NOT_WRITTEN),
        "no padding": (signed(OWN + GOOD.replace(b"a", b"abc", 1), b"\0" * 4, padded=False), NOT_WRITTEN),
    }


def _forged_tensors() -> dict[str, tuple[bytes, str]]:
    two = b',"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":%s}}'
    twice = GOOD[:-1] + GOOD
    numbers = json.dumps([1] * 100_000)
    return {
        "offsets overlap": (signed(OWN + two % b"[0,4]", bytes(8)), NOT_WRITTEN),
        "offsets leave a hole": (signed(OWN + two % b"[8,12]", bytes(12)), NOT_WRITTEN),
        "offsets past the end": (one_tensor('"F32"', "[1]", "[0,400]"), NOT_WRITTEN),
        "offsets backwards": (one_tensor('"F32"', "[1]", "[4,0]"), NOT_WRITTEN),
        "offsets negative": (one_tensor('"F32"', "[1]", "[-4,0]"), NOT_WRITTEN),
        "offsets of 2^64": (one_tensor('"F32"', "[1]", f"[{2**64},{2**64 + 4}]"), NOT_WRITTEN),
        "offsets missing": (signed(OWN + b',"a":{"dtype":"F32","shape":[1]}}', bytes(4)), NOT_WRITTEN),
        "a tensor twice": (signed(OWN + twice, bytes(4)), "key occurs twice"),
        "shape overflows": (one_tensor('"F32"', f"[{2**62},{2**62}]", "[0,4]"), "impossible shape"),
        "shape overflows to the right size": (
            one_tensor('"F32"', f"[{2**32},{2**32},1]", "[0,0]"),
            "impossible shape",
        ),
        "shape overflows before a zero": (
            one_tensor('"F32"', f"[{2**62},{2**62},0]", "[0,0]", b""),
            "impossible shape",
        ),
        "shape of a terabyte": (one_tensor('"U8"', f"[{2**40}]", f"[0,{2**40}]"), "length is not the one"),
        "shape negative": (one_tensor('"F32"', "[-1]", "[0,4]"), "impossible shape"),
        "shape twice negative": (one_tensor('"F32"', "[-1,-1]", "[0,4]"), "impossible shape"),
        "shape of floats": (one_tensor('"F32"', "[1.0]", "[0,4]"), "impossible shape"),
        "shape of truth values": (one_tensor('"F32"', "[true]", "[0,4]"), "impossible shape"),
        "shape of text": (one_tensor('"F32"', '"1"', "[0,4]"), "impossible shape"),
        "shape of 100,000 dimensions": (one_tensor('"F32"', numbers, "[0,4]"), "impossible shape"),
        "type unknown": (one_tensor('"F128"', "[1]", "[0,4]"), "no type"),
        "type of Python": (one_tensor('"__import__"', "[1]", "[0,4]"), "no type"),
        "type a list": (one_tensor('["F32"]', "[1]", "[0,4]"), "no type"),
        "type null": (one_tensor("null", "[1]", "[0,4]"), "no type"),
        "entry a number": (signed(OWN + b',"a":7}'), "no type"),
        "truth value of 2": (one_tensor('"BOOL"', "[4]", "[0,4]", b"\0\1\2\0"), "truth values"),
        "bytes after the end": (signed(OWN + GOOD, bytes(5)), "length is not the one"),
        "fields it never has": (
            signed(OWN + b',"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"run":"me"}}', bytes(4)),
            NOT_WRITTEN,
        ),
    }


def _forged_metadata() -> dict[str, tuple[bytes, str]]:
    def with_meta(text: str, extra: bytes = b"") -> bytes:
        meta = json.dumps(text).encode()
        return signed(START + b',"contextpool_format":"1","contextpool_meta":' + meta + extra + b"}}")

    return {
        "metadata twice": (signed(OWN + b',"__metadata__":{}}'), "key occurs twice"),
        "metadata extra": (with_meta("{}", b',"x":"y"'), NOT_WRITTEN),
        "format of the future": (signed(START + b',"contextpool_format":"2"}}'), "format '2'"),
        "format a list": (signed(START + b',"contextpool_format":["1"]}}'), "format"),
        "meta missing": (signed(START + b',"contextpool_format":"1"}}'), "meta is not as"),
        "meta a number": (
            signed(START + b',"contextpool_format":"1","contextpool_meta":1}}'),
            "meta is not as",
        ),
        "meta not JSON": (with_meta("__import__('os')"), "not JSON"),
        "meta a list": (with_meta("[]"), "meta is not as"),
        "meta with NaN": (with_meta('{"a":NaN}'), "not JSON"),
        "meta deep": (with_meta('{"a":' + "[" * 200_000 + "]" * 200_000 + "}"), "nested too deeply"),
        "meta deep enough to parse": (with_meta('{"a":' + "[" * 60 + "]" * 60 + "}"), "nested more than 50"),
        "meta wide": (with_meta('{"a":[' + "[]," * 160_000 + "[]]} "), "meta is not as"),
        "meta with a key twice": (with_meta('{"a":1,"a":2}'), "key occurs twice"),
        "meta in another order": (with_meta('{"b":1,"a":2}'), "meta is not as"),
    }


def strange_paths(folder: Path) -> dict[str, tuple[str, str]]:
    """Things that are not plain files of sensible size, and words of the refusal."""
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe")
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "nowhere").symlink_to(folder / "missing")
    (folder / "to zeros").symlink_to("/dev/zero")
    _sparse(folder / "terabyte", 1 << 40, b"")
    _sparse(folder / "gigabyte", 1 << 30, signed(OWN + GOOD, bytes(4)))
    _make_socket(folder / "socket")
    return {
        "folder": (str(folder / "folder"), "is a folder"),
        "pipe": (str(folder / "pipe"), "pipe or a device"),
        "symbolic loop": (str(folder / "loop"), "cannot be opened"),
        "dangling link": (str(folder / "nowhere"), "no such file"),
        "endless zeros": ("/dev/zero", "pipe or a device"),
        "endless zeros behind a link": (str(folder / "to zeros"), "pipe or a device"),
        "terminal": ("/dev/tty", ""),
        "file of the kernel": ("/proc/self/maps", NOT_OURS),
        "sparse terabyte": (str(folder / "terabyte"), "more than the"),
        "sparse gigabyte behind a good header": (str(folder / "gigabyte"), "length is not the one"),
        "socket": (str(folder / "socket"), "cannot be opened"),
        "name with NUL": (str(folder / "a\0b"), "cannot be opened"),
        "name too long": (str(folder / ("x" * 5000)), "cannot be opened"),
        "name of two lines": (str(folder / "a\nb"), "no such file"),
        "missing": (str(folder / "missing"), "no such file"),
        "below a file": (str(folder / "terabyte" / "x"), "cannot be opened"),
    }


def too_large_for_memory(path: Path) -> None:
    """A right file of 100 MB of zeros, next to nothing on disk."""
    size = 10**8
    entry = f',"a":{{"dtype":"U8","shape":[{size}],"data_offsets":[0,{size}]}}}}'
    start = signed(OWN + entry.encode(), bytes(size))[:-size]
    _sparse(path, len(start) + size, start)


def _sparse(path: Path, size: int, start: bytes) -> None:
    with path.open("wb") as stream:
        stream.write(start)
        stream.truncate(size)


def _make_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the address of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)
