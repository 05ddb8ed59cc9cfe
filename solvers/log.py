"""Output of solvers while they run, passed on line by line to a callback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Say = Callable[[str], None]
_reader: ContextVar[Say | None] = ContextVar("reader", default=None)


@contextmanager
def read_by(say: Say | None) -> Iterator[None]:
    """Let somebody read what solvers say in this block; None for nobody."""
    before = _reader.set(say)
    try:
        yield
    finally:
        _reader.reset(before)


def log() -> Say | None:
    """Return what takes a library's output, in any pieces and from any thread; None where nobody reads it."""
    say, rest = _reader.get(), ""
    if say is None:
        return None
    read = say

    def take(text: str) -> None:
        nonlocal rest
        *lines, rest = f"{rest}{text}".split("\n")
        for line in lines:
            read(line.rstrip())

    return take
