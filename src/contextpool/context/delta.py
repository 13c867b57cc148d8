"""Statistics are sums over entities: a change of triples changes only the terms of the entities it touches.

Removing (h, r, t) takes r from NR_h only where h has no other triple of r, so the triples of the touched
entities have to be known: from the graph, or by one pass over its file (`mining.update`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from contextpool.context.cooccurrence import Cooccurrence
from contextpool.errors import DataError, shortened
from contextpool.graph.relations import RelationVocabulary, inverse_label
from contextpool.triples.labels import INVERSE_SUFFIX
from contextpool.triples.store import Triple

Labels = frozenset[str]


@dataclass(frozen=True)
class Change:
    """One entity's relation set, directed labels, before and after."""

    old: Labels
    new: Labels
    hermit: bool = False
    """Whether it was counted before although it had no triple (an isolated entity of a graph)."""

    @property
    def entities(self) -> int:
        """By how many the number of entities grows: an entity is there as long as it has a triple."""
        return int(bool(self.new)) - int(bool(self.old) or self.hermit)


def touched_entities(triples: Iterable[Triple]) -> set[str]:
    """The ends of all triples."""
    return {end for head, _, tail in triples for end in (head, tail)}


def entity_changes(
    touching: Iterable[Triple],
    added: Sequence[Triple],
    removed: Sequence[Triple],
    *,
    hermits: Labels = frozenset(),
    where_removed: Callable[[int], str] = lambda number: f"removed[{number}]",
) -> list[Change]:
    """What happens to each entity of the delta, given all triples that touch one. Costs their number.

    A triple added twice, or there already, changes nothing, as duplicates collapse everywhere; one removed that
    is not there, or that is added too, is an error.
    """
    before = set(touching)
    _check_removed(before, set(added), removed, where_removed)
    after = (before - set(removed)) | set(added)
    entities = touched_entities([*added, *removed])
    old, new = _relation_sets(before, entities), _relation_sets(after, entities)
    ordered = sorted(entities)
    return [Change(frozenset(old[e]), frozenset(new[e]), e in hermits) for e in ordered]


def _check_removed(
    before: set[Triple], added: set[Triple], removed: Sequence[Triple], where: Callable[[int], str]
) -> None:
    for number, triple in enumerate(removed):
        told = ", ".join(map(shortened, triple))
        if triple in added:
            raise DataError(f"{where(number)}: triple ({told}) is both added and removed. Decide for one.")
        if triple not in before:
            raise DataError(
                f"{where(number)}: triple ({told}) is to be removed but is not in the graph. "
                "Is it the graph that the statistics were mined from?"
            )


def _relation_sets(triples: Iterable[Triple], entities: set[str]) -> dict[str, set[str]]:
    """NR_e of the paper for some entities, as directed labels."""
    has: dict[str, set[str]] = {entity: set() for entity in entities}
    for head, relation, tail in triples:
        if head in has:
            has[head].add(relation)
        if tail in has:
            has[tail].add(relation + INVERSE_SUFFIX)
    return has


def updated_counts(counts: Cooccurrence, changes: Sequence[Change]) -> Cooccurrence:
    """The counts after the changes, exactly as if counted anew. O(R^2 + sum of |NR_e|^2 over the touched).

    A relation that loses its last triple leaves the vocabulary; one that nobody had before stays.
    """
    relations = widened(counts.relations, changes)
    both = np.zeros((relations.num_directed, relations.num_directed), dtype=np.int64)
    place = column_map(counts.relations, relations)
    both[np.ix_(place, place)] = counts.both
    for change in changes:
        for members, step in ((change.old, -1), (change.new, 1)):
            ids = [relations.index[label] for label in sorted(members)]
            both[np.ix_(ids, ids)] += step
    if len(both) and both.min() < 0:
        raise DataError(
            "the statistics do not hold what the graph holds: a count would fall below zero. "
            "Are they of this graph, before the change?"
        )
    kept = kept_relations(counts, relations, both.diagonal())
    columns = column_map(kept, relations)
    number = counts.num_entities + sum(change.entities for change in changes)
    return Cooccurrence(kept, np.ascontiguousarray(both[np.ix_(columns, columns)]), number)


def widened(relations: RelationVocabulary, changes: Sequence[Change]) -> RelationVocabulary:
    """The vocabulary with the relations that the changes bring."""
    met = {label for change in changes for label in change.old | change.new}
    forward = {inverse_label(label) if label.endswith(INVERSE_SUFFIX) else label for label in met}
    return RelationVocabulary(tuple(sorted(forward.union(relations.forward))))


def kept_relations(
    before: Cooccurrence, relations: RelationVocabulary, support: npt.NDArray[np.int64]
) -> RelationVocabulary:
    """Without those that lost their last triple."""
    unused = {
        label for label in before.relations.forward if before.support[before.relations.id_of(label)] == 0
    }
    return RelationVocabulary(
        tuple(label for label in relations.forward if support[relations.id_of(label)] > 0 or label in unused)
    )


def column_map(narrow: RelationVocabulary, wide: RelationVocabulary) -> npt.NDArray[np.int64]:
    """[2R of narrow] where each directed relation stands in `wide`, which holds them all."""
    return np.array([wide.index[label] for label in narrow.directed], dtype=np.int64)
