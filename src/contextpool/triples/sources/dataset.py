"""A dataset from one graph, wherever that graph comes from: the address says how it is split."""

from __future__ import annotations

from contextpool.errors import ConfigError
from contextpool.triples.dataset import Dataset
from contextpool.triples.sources import Address, Tell, read_source
from contextpool.triples.sources.address import choice
from contextpool.triples.split import split_triples


def source_dataset(address: Address, tell: Tell | None = None) -> Dataset:
    """The graph of an address, split by its `split` (inductive or transductive) and `seed` (0)."""
    graph, _ = address.without_split()
    inductive = choice(address, "split", "inductive", ("inductive", "transductive")) == "inductive"
    triples = read_source(graph, tell=tell)
    dataset = split_triples(triples, inductive=inductive, seed=_seed(address), name=address.text)
    if tell is not None:
        tell(_told(dataset, len(triples)))
    return dataset


def _seed(address: Address) -> int:
    value = str(address.options.get("seed", 0))
    if not value.isdecimal():
        raise ConfigError(f"{address.text}: seed is {value!r}; it is a whole number, 0 or larger.")
    return int(value)


def _told(dataset: Dataset, count: int) -> str:
    if not dataset.inductive:
        return f"one graph of {count:,} facts: {len(dataset.inference_test):,} held out for test"
    return (
        f"one graph of {count:,} facts, split in two that share no entity: {dataset.kept_share:.0%} of the facts lie "
        "in one of them, the others run between them and are left out (?split=transductive holds out facts instead)"
    )
