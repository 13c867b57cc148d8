"""One graph made into a Dataset: held-out queries, or two halves that share no entity."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from contextpool.errors import ConfigError, DataError
from contextpool.triples.dataset import Dataset, joined, used_only
from contextpool.triples.reader import Tell, read_triples
from contextpool.triples.sources.address import Address, choice, retyped
from contextpool.triples.store import Ids, Triples

if TYPE_CHECKING:  # half of all commands read a graph and split none
    import scipy.sparse as sp

Mask = npt.NDArray[np.bool_]
Order = npt.NDArray[np.intp]
_Numbers = npt.NDArray[np.number[Any]]

SPLITS = ("facts", "entities", "transductive", "inductive")
"""What `split` of an address may be: held-out facts of one graph, or two that share no entity; then the old words."""
RESTARTS = 4
"""Regions grown from different sources; the one with the fewest triples across its border is taken."""
ROUNDS = 40
"""Times a region may be redrawn around its entities' neighbours; it rarely needs half of them."""
SLACK = 1 / 3
"""How far the region may miss the wanted share of the graph, relative to it, for a shorter border."""
STAY = 0.5
"""What an entity's present side counts for, beside the share of its neighbours inside."""
ATTEMPTS = 5
"""Times another region is drawn where one leaves a half that cannot be split."""


def split_triples(
    triples: Triples,
    *,
    inductive: bool,
    seed: int,
    valid: float = 0.1,
    test: float = 0.1,
    inference_share: float = 0.3,
    fewer: bool = False,
    name: str = "split",
) -> Dataset:
    """Hold out queries from one graph. The same seed gives the same split, whatever the order of the input.

    Transductive: `valid` and `test` are shares of the triples, chosen so that every entity and relation
    stays in the training graph. Inductive (pseudo-inductive): the entities fall into two disjoint regions,
    of which the smaller, with about `inference_share` of the edge ends, becomes the inference graph; triples
    between the regions are dropped (`Dataset.kept_share` says how many stay), and so are inference triples
    of relations that training does not have. Each half then holds out `valid` and `test` as GraIL does. Where
    a half is left with too few triples, another region is tried, `ATTEMPTS` times. With `fewer` a transductive split of
    a sparse graph holds out what can be, where that is less than the shares.
    """
    _check_shares(valid=valid, test=test, inference_share=inference_share)
    rng = _generator(seed)
    triples = used_only(triples)
    if len(triples) < 3:
        raise DataError(
            f"{name}: the graph holds {len(triples)} triples, and a split needs 3 at least, one each for "
            "graph, valid and test. Give a larger graph."
        )
    if inductive:
        for left in reversed(range(ATTEMPTS)):
            try:
                dataset = _two_graphs(triples, inference_share, valid, test, rng, name)
                return replace(dataset, whole=triples, split_seed=seed)
            except DataError:
                if not left:
                    raise
    held = held_out(triples, valid, test, rng, f"{name}: the graph", fewer=fewer)
    dataset = Dataset.from_one_graph(name, train=held.graph, valid=held.valid, test=held.test)
    return replace(dataset, whole=triples, split_seed=seed)


def source_dataset(address: Address, tell: Tell | None = None) -> Dataset:
    """The graph of an address, split by its `split` (facts or entities) and `seed` (0)."""
    graph, _ = address.without_split()
    inductive = choice(address, "split", "facts", tuple(SPLITS)) in ("entities", "inductive")
    triples = read_triples(graph, tell=tell)
    dataset = split_triples(triples, inductive=inductive, seed=_seed(address), fewer=True, name=address.text)
    if tell is not None:
        tell(split_told(dataset, address))
    return dataset


def _seed(address: Address) -> int:
    value = str(address.options.get("seed", 0))
    if not value.isdecimal():
        raise ConfigError(f"{address.text}: seed is {value!r}; it is a whole number, 0 or larger.")
    return int(value)


def split_told(dataset: Dataset, address: Address) -> str:
    """What a split of one graph leaves to learn from, why it was split this way, and what to type for the other."""
    assert dataset.whole is not None, "it was split from one graph"
    whole, learned = dataset.whole, used_only(joined([dataset.training_graph, dataset.training_queries]))
    kept = f"{len(learned.relations):,} of {len(whole.relations):,} relations, {len(learned):,} of {len(whole):,} facts"
    chosen, asked = len(dataset.validation_queries), len(dataset.evaluation_queries())
    if not dataset.inductive:
        return (
            f"left to learn from: {kept}. {chosen:,} are held out to select a model and {asked:,} to evaluate it; they "
            "are about the same entities, for questions about this graph. "
            f"For questions about graphs of new entities, type {retyped(address, split='entities')}"
        )
    between = len(whole) - round(dataset.kept_share * len(whole))
    return (
        f"left to learn from: {kept}. The graph is split in two that share no entity, so that the evaluation "
        f"({asked:,} facts of the other half) is about entities never seen; {between:,} facts run between the halves "
        f"or lost their relation, and {chosen:,} select a model. "
        f"For questions about this graph itself, type {retyped(address, split='facts')}"
    )


def hold_out(triples: Triples, count: int, rng: np.random.Generator) -> Mask:
    """[T] up to `count` triples, chosen at random, such that every entity and relation still occurs in the
    rest. Fewer than `count` where no further one can go. O(T) time.
    """
    head, relation, tail = (triples.ids[:, column] for column in range(3))
    loops = head == tail  # counted once: one triple, however often it names the entity
    entity_count = np.bincount(head, minlength=len(triples.entities))
    entity_count += np.bincount(tail[~loops], minlength=len(triples.entities))
    relation_count = np.bincount(relation, minlength=len(triples.relations))
    order = rng.permutation(len(triples))
    return _greedy(triples.ids, order, count, entity_count.tolist(), relation_count.tolist())


def _greedy(ids: Ids, order: Order, count: int, entities: list[int], relations: list[int]) -> Mask:
    """Take triples in the given order while the counts of what they name stay above zero."""
    taken = np.zeros(len(ids), dtype=bool)
    left = count
    for position in order.tolist():
        if left == 0:
            break
        head, relation, tail = ids[position].tolist()
        if entities[head] > 1 and entities[tail] > 1 and relations[relation] > 1:
            taken[position] = True
            left -= 1
            relations[relation] -= 1
            for entity in {head, tail}:
                entities[entity] -= 1
    return taken


@dataclass(frozen=True)
class HeldOut:
    """A graph and the queries taken out of it."""

    graph: Triples
    valid: Triples
    test: Triples


def held_out(
    triples: Triples, valid: float, test: float, rng: np.random.Generator, what: str, *, fewer: bool = False
) -> HeldOut:
    """Two shares of the triples at random, such that every entity and relation stays; `what` names it in an error.

    With `fewer` as many as can be, where that is less.
    """
    num_valid, num_test = (max(1, round(share * len(triples))) for share in (valid, test))
    taken = np.flatnonzero(hold_out(triples, num_valid + num_test, rng))
    if fewer and 2 <= len(taken) < num_valid + num_test:
        num_valid, num_test = len(taken) // 2, len(taken) - len(taken) // 2
    if len(taken) < num_valid + num_test:
        raise DataError(
            f"{what} is too small or too sparse to split: {num_valid:,} + {num_test:,} of its "
            f"{len(triples):,} triples should be held out for valid and test, but only {len(taken):,} can be "
            "while every entity and relation keeps a triple. Lower the shares, give a denser graph, or ask it without "
            "training (contextpool ask GRAPH)."
        )
    taken = rng.permutation(taken)
    is_valid, is_test = (_mask(part, len(triples)) for part in (taken[:num_valid], taken[num_valid:]))
    return HeldOut(triples.select(~is_valid & ~is_test), triples.select(is_valid), triples.select(is_test))


def _mask(positions: Order, length: int) -> Mask:
    mask = np.zeros(length, dtype=bool)
    mask[positions] = True
    return mask


def _two_graphs(
    triples: Triples, share: float, valid: float, test: float, rng: np.random.Generator, name: str
) -> Dataset:
    region = grow_region(triples, share, rng)
    head_in, tail_in = region[triples.ids[:, 0]], region[triples.ids[:, 2]]
    training, inference = triples.select(~head_in & ~tail_in), triples.select(head_in & tail_in)
    shared_relation = np.isin(inference.ids[:, 1], training.ids[:, 1])
    training, inference = used_only(training), used_only(inference.select(shared_relation))
    for half, what in ((training, "training"), (inference, "inference")):
        if len(half) < 3:
            raise DataError(
                f"{name}: the graph is too small to split in two: of its {len(triples):,} triples the {what} "
                f"half keeps {len(half)} with relations that both halves have, and a half needs 3, one each for "
                "graph, valid and test. Split it with inductive=False, or give a larger graph."
            )
    at_home = held_out(training, valid, test, rng, f"{name}: the training half")
    away = held_out(inference, valid, test, rng, f"{name}: the inference half")
    return two_sided(name, at_home, away, kept_share=(len(training) + len(inference)) / len(triples))


def two_sided(name: str, home: HeldOut, away: HeldOut, *, kept_share: float = 1.0) -> Dataset:
    """A dataset that is trained and selected at home and evaluated away; the test of home selects."""
    return Dataset.from_two_graphs(
        name,
        train=home.graph,
        training_valid=home.valid,
        validation=home.test,
        inference_graph=away.graph,
        inference_valid=away.valid,
        inference_test=away.test,
        kept_share=kept_share,
    )


def grow_region(triples: Triples, share: float, rng: np.random.Generator) -> Mask:
    """[E] a set of entities with about `share` of all edge ends, grown so that few triples cross its border.

    From a random source, outwards by hops (component after component), up to the share; then redrawn, round
    after round, as the entities with most of their neighbours inside. The best of `RESTARTS` by crossing
    triples over edge ends inside. O(RESTARTS * ROUNDS * (T + E log E)) time, O(T + E) memory.
    """
    neighbours = _neighbours(triples)
    ends = np.asarray(neighbours.sum(axis=1)).ravel()  # [E] edge ends of each entity
    best, best_border = np.zeros(len(ends), dtype=bool), np.inf
    for _ in range(RESTARTS):
        order, inside = _hop_order(neighbours, rng), np.zeros(len(ends), dtype=bool)
        for _ in range(ROUNDS):
            redrawn, border = _best_prefix(order, ends, triples.ids, share)
            if np.array_equal(redrawn, inside):
                break
            inside = redrawn
            if border < best_border:
                best, best_border = inside, border
            pull = (neighbours @ inside) / np.maximum(ends, 1) + STAY * inside  # [E]
            order = np.argsort(-pull, kind="stable")  # ties by id, which is by label
    return best


def _neighbours(triples: Triples) -> sp.csr_array:
    """[E, E] how many triples join two entities, either way round; self loops left out."""
    crossing = triples.ids[triples.ids[:, 0] != triples.ids[:, 2]]
    head, tail = crossing[:, 0], crossing[:, 2]
    ones = np.ones(2 * len(crossing))
    places = (np.concatenate([head, tail]), np.concatenate([tail, head]))
    import scipy.sparse

    return scipy.sparse.csr_array((ones, places), shape=(len(triples.entities), len(triples.entities)))


def _hop_order(neighbours: sp.csr_array, rng: np.random.Generator) -> Order:
    """[E] entities by component, then by hops from the component's source; chance decides the rest."""
    from scipy.sparse.csgraph import connected_components

    _, component = connected_components(neighbours, directed=False)
    chance = rng.permutation(len(component))  # [E] distinct
    by_chance = np.argsort(chance)
    _, first = np.unique(component[by_chance], return_index=True)
    sources = by_chance[first]  # [components] the entity of each that chance puts first
    return np.lexsort((chance, _hops_from(sources, neighbours), chance[sources][component]))


def _hops_from(sources: Order, neighbours: sp.csr_array) -> npt.NDArray[np.int64]:
    hops = np.full(neighbours.shape[0], -1, dtype=np.int64)
    hops[sources] = 0
    frontier, distance = _mask(sources, len(hops)), 0
    while frontier.any():
        distance += 1
        frontier = (neighbours @ frontier > 0) & (hops < 0)
        hops[frontier] = distance
    return hops


def _best_prefix(order: Order, ends: _Numbers, ids: Ids, share: float) -> tuple[Mask, float]:
    """The first entities of the order, about `share` of all edge ends: as many as make the border, that is
    crossing triples over edge ends inside, smallest. Returns the set [E] and its border.
    """
    inside_ends = np.cumsum(ends[order])  # [E] of each prefix
    low, high = (factor * share * inside_ends[-1] for factor in (1 - SLACK, 1 + SLACK))
    first = min(int(np.searchsorted(inside_ends, low)), len(order) - 1)
    last = max(int(np.searchsorted(inside_ends, high, side="right")), first + 1)
    border = _crossing(order, ids)[first:last] / np.maximum(inside_ends[first:last], 1)
    size = first + int(np.argmin(border)) + 1
    return _mask(order[:size], len(order)), float(border[size - first - 1])


def _crossing(order: Order, ids: Ids) -> npt.NDArray[np.int64]:
    """[E] for each prefix of the order, the triples with exactly one end in it."""
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    ends = np.sort(place[ids[:, [0, 2]]], axis=1)  # [T, 2] crossing from the first one's prefix on
    change = np.bincount(ends[:, 0], minlength=len(order)) - np.bincount(ends[:, 1], minlength=len(order))
    return np.cumsum(change)


def _check_shares(**shares: float) -> None:
    for key, share in shares.items():
        if not 0 < share < 1:
            raise ConfigError(f"{key} is {share}; it is a share and has to lie between 0 and 1.")
    if shares["valid"] + shares["test"] >= 1:
        raise ConfigError(
            f"valid + test is {shares['valid'] + shares['test']:g}; nothing would be left to learn from."
        )


def _generator(seed: int) -> np.random.Generator:
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ConfigError(f"seed is {seed!r}; it has to be an integer, 0 or larger.")
    return np.random.default_rng(seed)
