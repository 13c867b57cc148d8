"""The newest few of what was made, each made once, whichever thread asks first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

Made = TypeVar("Made")


class _Place(Generic[Made]):
    """Where one thing is made: whoever comes while it is being made waits here, and nobody else does."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.made: list[Made] = []


class Newest(Generic[Made]):
    """A cache that several threads may read. What failed to be made is tried again by the next who asks."""

    def __init__(self, size: int) -> None:
        self._size, self._lock = size, Lock()
        self._places: OrderedDict[Hashable, _Place[Made]] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """What was made for the key, now or earlier."""
        place = self._place(key)
        with place.lock:
            if not place.made:
                place.made.append(make())
            return place.made[0]

    def _place(self, key: Hashable) -> _Place[Made]:
        with self._lock:
            place = self._places.pop(key, None) or _Place()
            self._places[key] = place
            while len(self._places) > self._size:
                self._places.popitem(last=False)
            return place
