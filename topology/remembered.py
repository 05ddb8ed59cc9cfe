"""What is found of an object once and kept as long as the object is."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")


def remembered(function: Callable[[T], R]) -> Callable[[T], R]:
    """Let a function of a frozen model look at each object once; a copy is another object."""
    found: dict[int, Any] = {}

    @wraps(function)
    def look(thing: T) -> R:
        key = id(thing)
        if key not in found:
            found[key] = function(thing)
            weakref.finalize(thing, found.pop, key, None)
        known: R = found[key]
        return known

    return look
