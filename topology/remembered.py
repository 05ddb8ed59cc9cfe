"""What is found of an object once and kept as long as the object is."""

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
        # What another object left may still be there: a thread that is given up forgets nothing in its end.
        if known is None or known[0]() is not thing:
            gone = weakref.ref(thing, partial(_forget, found, key))
            known = found[key] = gone, function(thing)
        return known[1]

    return look


class Last(Generic[R]):
    """The last answer to a question about an object, for when it is asked in the same words again."""

    def __init__(self) -> None:
        self._of: Callable[[Any], list[tuple[Any, R]]] = remembered(lambda thing: [])

    def answer(self, thing: Any, words: Any, found: Callable[[], R]) -> R:
        """What was found last of the thing if the words were the same, else what is found now."""
        last = self._of(thing)
        known = last[0] if last else None
        if known is None or known[0] != words:
            known = words, found()
            last[:] = [known]
        return known[1]


def _forget(found: dict[int, tuple[weakref.ref[Any], R]], key: int, gone: weakref.ref[Any]) -> None:
    """Forget what was found of an object, unless its place is another one's by now."""
    if (known := found.get(key)) is not None and known[0] is gone:
        found.pop(key, None)
