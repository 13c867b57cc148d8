"""Mutants of data files and of recipes: triples that can be written again, or one clear error; and the bombs by name."""

from __future__ import annotations

import gzip
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from contextpool.triples.files import FREE_BYTES, MAX_LINE
from contextpool.triples.labels import MAX_LABEL
from hostile.harness import Outcome, Tally, fork_server, problem_of
from hostile.mutants import mutated_bytes
from support import amount

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits and /proc as on Linux")

FACTS = [(f"e{k % 23}", f"r{k % 3}", f'é "{k // 2}"') for k in range(60)]
ARROWS = pa.table(dict(zip(("head", "relation", "tail"), map(list, zip(*FACTS, strict=True)), strict=True)))
CODED = pa.table({name: ARROWS[name].dictionary_encode() for name in ARROWS.column_names})
XML = """<?xml version="1.0"?><!DOCTYPE rdf:RDF [ <!ENTITY ex "http://e/" > ]>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:e="&ex;">
%s
</rdf:RDF>"""
RECIPE = """dataset = "world"
seed = 3
[model]
name = "nbfnet"
dim = 16
layers = 2
[context]
hops = 2
views = [{ min_precision = 0.1 }]
[train]
epochs = 1
lr = 5e-3
patience = 3
"""


def _ipc(table: pa.Table, new: Callable[..., pa.ipc.RecordBatchFileWriter], **options: str) -> bytes:
    sink = pa.BufferOutputStream()
    with new(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=25)
    return sink.getvalue().to_pybytes()


def _parquet(**options: str | bool) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(ARROWS, sink, **options)
    return sink.getvalue().to_pybytes()


def _npy() -> bytes:
    import io

    sink = io.BytesIO()
    np.save(sink, np.arange(60).reshape(20, 3))
    return sink.getvalue()


def _lines(form: str) -> bytes:
    return "".join(form.format(h=h, r=r, t=t.replace('"', "")) + "\n" for h, r, t in FACTS).encode()


TSV = "".join("\t".join(row) + "\n" for row in FACTS).encode()
NT = _lines('<http://e/{h}> <http://e/{r}> "{t}"@fr .')
FILES: dict[str, bytes] = {
    "facts.tsv": TSV,
    "facts.tsv.gz": gzip.compress(TSV, mtime=0),
    "facts.tsv.zst": pa.compress(TSV, codec="zstd", asbytes=True),
    "facts.csv": _lines('{h},{r},"{t}"'),
    "facts.jsonl": _lines('{{"head": "{h}", "relation": "{r}", "tail": "{t}"}}'),
    "arrays.jsonl": _lines('["{h}", "{r}", "{t}"]'),
    "file.arrow": _ipc(ARROWS, pa.ipc.new_file),
    "stream.arrow": _ipc(ARROWS, pa.ipc.new_stream),
    "coded.arrow": _ipc(CODED, pa.ipc.new_file),
    "packed.arrow": _ipc(CODED, pa.ipc.new_stream, compression="zstd"),
    "facts.parquet": _parquet(),
    "plain.parquet": _parquet(use_dictionary=False, compression="none"),
    "facts.npy": _npy(),
    "facts.nt": NT,
    "facts.nq": _lines("<http://e/{h}> <http://e/{r}> _:{h} <http://g/{r}> ."),
    "facts.ttl": b"@prefix e: <http://e/> .\n" + _lines("e:{h} e:{r} [ e:{r} ( e:{h} 7 ) ] ."),
    "facts.trig": b"@prefix e: <http://e/> .\ne:g {\n" + _lines("e:{h} e:{r} e:x .") + b"}\n",
    "facts.rdf": (XML % _lines('<rdf:Description rdf:about="&ex;{h}"><e:{r}>{t}</e:{r}></rdf:Description>').decode()).encode(),
    "recipe.toml": RECIPE.encode(),
}  # fmt: skip


def call(place: Path, source: Path) -> Outcome:
    """Read it, and write what it holds; a recipe is read as far as its first mistake, of which one is made."""
    if source.suffix == ".toml":
        return fork_server().run(
            ["train", source, "--set", "train.epochs=0", "--output", place / "made" / "run"],
            target=place / "made",
            cwd=place,
        )
    keep = "?literals=keep" if source.suffix in (".nt", ".nq", ".ttl", ".trig", ".rdf") else ""
    return fork_server().run(
        ["data", "convert", f"{source}{keep}", place / "made" / "out.tsv", "--overwrite"],
        target=place / "made",
        cwd=place,
    )


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "made").mkdir()
    return tmp_path


@pytest.mark.parametrize("name", FILES)
def test_mutants_of_a_file_are_read_or_refused_clearly(name: str, place: Path) -> None:
    tally, source = Tally(name), place / name
    source.write_bytes(FILES[name])
    first = call(place, source)
    if name != "recipe.toml":
        assert first.code == 0, first.err
    for seed in range(amount(6, 270)):
        rng = random.Random(f"{name} {seed}")
        source.write_bytes(mutated_bytes(FILES[name], rng))
        tally.add(f"{name} {seed}", call(place, source))
        assert {one.name for one in place.iterdir()} <= {name, "made", f"{name}.bad-rows.tsv"}, seed
        written = place / "made" / "out.tsv"
        if written.exists():
            again = fork_server().run(
                ["data", "convert", written, place / "made" / "again.tsv", "--overwrite"], target=place
            )
            assert problem_of(again) == "", (seed, again.err)
            assert again.code == 0, (seed, again.err)
            assert (place / "made" / "again.tsv").read_bytes() == written.read_bytes(), seed
            written.unlink()
    tally.check()
