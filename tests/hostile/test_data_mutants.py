"""Mutants of data files and recipes: triples that can be written again, or one clear error; and bombs by name."""

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
    "facts.rdf": XML.encode() % _lines('<rdf:Description rdf:about="&ex;{h}"><e:{r}>{t}</e:{r}></rdf:Description>'),
    "recipe.toml": RECIPE.encode(),
}  # fmt: skip


def call(place: Path, source: Path) -> Outcome:
    """Read it, and write what it holds; a recipe is read as far as its first mistake, of which one is made."""
    (place / "made" / "out.tsv").unlink(missing_ok=True)
    if source.suffix == ".toml":
        return fork_server().run(
            ["train", source, "--set", "train.epochs=0", "--output", place / "made" / "run"],
            target=place / "made",
            cwd=place,
        )
    keep = "?literals=keep" if source.suffix in (".nt", ".nq", ".ttl", ".trig", ".rdf", ".owl") else ""
    return fork_server().run(
        ["data", "convert", f"{source}{keep}", place / "made" / "out.tsv"],
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


# what was found, by name


def _nested() -> bytes:
    inner = "".join(f'<!ENTITY a{k} "{f"&a{k - 1};" * 10}">' for k in range(1, 8))
    return f'<!DOCTYPE rdf:RDF [<!ENTITY a0 "{"x" * 50}">{inner}]>'.encode()


def _zst(block: bytes, times: int) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as packed:
        for _ in range(times):
            packed.write(block)
    return sink.getvalue().to_pybytes()


LONG = b"x" * (1 << 20)
LONG_LABEL = pa.table({"h": ["w " * 50_000], "r": ["r"], "t": ["b"]})
BOMBS: dict[str, tuple[Callable[[], bytes], str]] = {
    "nested.rdf": (lambda: _nested() + XML.encode() % b"", "declares an entity"),
    "late.rdf": (lambda: b" " * 70_000 + _nested(), "declares an entity"),
    "deep.rdf": (lambda: (XML % ("<e:a><e:b>" * 100_000)).encode(), "within one another"),
    "open.ttl": (lambda: b"<http://a> <http://b> " + b"[ <http://b>\n" * 200_000, "without a whole fact"),
    "quoted.ttl": (lambda: b"<<\n" * 1_000_000, "without a whole fact"),
    "literal.ttl": (lambda: b'<http://a> <http://b> """' + b"x x x\n" * 1_000_000, "without a whole fact"),
    "line.tsv.zst": (lambda: _zst(LONG, 1500), f"longer than {MAX_LINE:,} bytes"),
    "line.csv.zst": (lambda: _zst(LONG, 1500), f"longer than {MAX_LINE:,} bytes"),
    "line.jsonl.zst": (lambda: _zst(LONG, 1500), f"longer than {MAX_LINE:,} bytes"),
    "line.nt.zst": (lambda: _zst(LONG, 1500), "without a whole fact"),
    "rows.tsv.zst": (lambda: _zst(b"a\tr\tb\n" * 150_000, FREE_BYTES // 900_000 + 20), "unpacks to more than"),
    "rows.tsv.gz": (lambda: gzip.compress(b"a\tr\tb\n" * (FREE_BYTES // 6 + 99)), "unpacks to more than"),
    "wide.csv": (lambda: b"abc," * 1_000_000 + b"\n", f"longer than {MAX_LINE:,} bytes"),
    "label.tsv": (lambda: b"a\tr\tb\n" + b"w " * 50_000 + b"\tr\tb\n", f"{MAX_LABEL:,} are the most"),
    "label.csv": (lambda: b"a,r,b\n" + b"w " * 50_000 + b",r,b\n", f"{MAX_LABEL:,} are the most"),
    "label.arrow": (lambda: _ipc(LONG_LABEL, pa.ipc.new_file), "are the most"),
    "head.npy": (lambda: FILES["facts.npy"].replace(b" " * 9, b"': False(", 1), "not a readable"),
    "deep.jsonl": (lambda: b"[" * 500_000 + b"\n", "this is not JSON"),
    "deep.toml": (lambda: b"a = " + b"[" * 100_000, "not valid TOML"),
    "whole.toml": (lambda: b"seed = " + b"9" * 100_000, "not valid TOML"),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_what_unfolds_or_never_ends_is_refused_early(name: str, place: Path) -> None:
    content, said = BOMBS[name]
    (place / name).write_bytes(content())
    outcome = call(place, place / name)
    assert problem_of(outcome) == "", outcome.err
    assert (outcome.code, said in outcome.err) == (2, True), outcome.err[:500]
    assert len(outcome.err) < 2000


@pytest.mark.parametrize("name", ["file.arrow", "stream.arrow", "coded.arrow", "plain.parquet"])
def test_every_bit_of_an_offset_or_a_label_may_be_wrong(name: str, place: Path) -> None:
    """28 of 60 such files ended the process."""
    tally = Tally(f"bits of {name}")
    for seed in range(amount(12, 200)):
        rng, data = random.Random(f"bit {name} {seed}"), bytearray(FILES[name])
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        (place / name).write_bytes(data)
        tally.add(f"bit {seed}", call(place, place / name))
    tally.check()


def test_namespaces_may_be_entities_as_owl_files_have_them(place: Path) -> None:
    (place / "facts.owl").write_bytes(FILES["facts.rdf"])
    outcome = call(place, place / "facts.owl")
    assert outcome.code == 0, outcome.err


def test_a_label_of_many_words_takes_little_where_names_are_completed() -> None:
    from contextpool.graph.graph import Graph
    from contextpool.predict import Names
    from contextpool.serve.registry import Completions

    label = "w " * (MAX_LABEL // 2 - 1) + "w"
    completions = Completions(Graph.from_triples([(label, "r", "b")]), Names({}))
    assert sum(len(text) for text, _ in completions._later) < 10_000
    assert completions.starting_with("W w", 5)[0] == [label]
