"""Where running solvers announce what they know so far, so that a killed one is not lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from wattsched.solvers.solution import Solution

Listener = Callable[[Solution], None]
_listeners: list[Listener] = []


def wanted() -> bool:
    """Whether anybody listens; building the announcement can be saved otherwise."""
    return bool(_listeners)


def announce(solution: Solution) -> None:
    """Tell the listeners about a better point, bound or prices; absent parts are unknown."""
    for listener in _listeners:
        listener(solution)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Receive the announcements of solvers that run in this block."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


@contextmanager
def muted() -> Iterator[None]:
    """Keep announcements in this block from the listeners: they are about another program."""
    kept = _listeners[:]
    _listeners.clear()
    try:
        yield
    finally:
        _listeners[:] = kept
