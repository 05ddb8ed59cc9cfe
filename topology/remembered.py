"""Caches of results per object, kept as long as the object lives."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


def remembered(function: Callable[[T], R]) -> Callable[[T], R]:
    """Let a function of a frozen model look at each object once; a copy is another object."""
    found: dict[int, tuple[weakref.ref[Any], R]] = {}

    @wraps(function)
    def look(thing: T) -> R:
        key = id(thing)
        known = found.get(key)
        if known is None or known[0]() is not thing:
            # A call of C alone: what ends a thread, or the interpreter, cannot come between.
            gone = weakref.ref(thing, partial(found.pop, key))
            known = found[key] = gone, function(thing)
        return known[1]

    return look


class Last(Generic[R]):
    """The last answer to a question about an object, for when it is asked in the same words again."""

    def __init__(self) -> None:
        self._of: Callable[[Any], list[tuple[Any, R]]] = remembered(lambda thing: [])

    def answer(self, thing: Any, words: Any, found: Callable[[], R]) -> R:
        """Return the last result for the object if it was computed for equal `words`, else call `found`."""
        last = self._of(thing)
        known = last[0] if last else None
        if known is None or known[0] != words:
            known = words, found()
            last[:] = [known]
        return known[1]
