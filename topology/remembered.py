"""Caches of results per object, kept as long as the object lives."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


def remembered(function: Callable[[T], R]) -> Callable[[T], R]:
    """Keep a function's result for each object, a frozen model, while it lives; a copy is another one."""
    results: dict[int, tuple[weakref.ref[Any], R]] = {}

    @wraps(function)
    def look(obj: T) -> R:
        """Return the function's result for an object, which is computed once in its life."""
        key = id(obj)
        known = results.get(key)
        if known is None or known[0]() is not obj:  # the id may have been another object's
            # A call of C alone: what ends a thread, or the interpreter, cannot come between.
            gone = weakref.ref(obj, partial(results.pop, key))
            known = results[key] = gone, function(obj)
        return known[1]

    return look


class Last(Generic[R]):
    """The last answer to a question about an object, for when it is asked in the same words again."""

    def __init__(self) -> None:
        self._of: Callable[[Any], list[tuple[Any, R]]] = remembered(lambda obj: [])

    def answer(self, obj: Any, key: Any, compute: Callable[[], R]) -> R:
        """Return the last result for the object if it was computed for an equal `key`, else compute it."""
        last = self._of(obj)
        for known, result in last:
            if known == key:
                return result
        result = compute()
        last[:] = [(key, result)]
        return result
