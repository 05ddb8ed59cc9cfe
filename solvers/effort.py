"""Solvers spend processor seconds and nodes of branch and bound, which are counted wherever they run.

Whoever wants to know calls solvers within `measured`. Trees and processes that a solver starts on the way add
what they spend by `spend`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass
class Effort:
    """Effort of solvers.

    Attributes
    ----------
    cpu_s : float
        Processor seconds, of all threads and of the processes that were started.
    nodes : int, optional
        Nodes of all trees that were searched, branches for CP-SAT; None where no solver counted any.
    """

    cpu_s: float = 0.0
    nodes: int | None = None


_effort: ContextVar[Effort | None] = ContextVar("effort", default=None)


@contextmanager
def measured() -> Iterator[Effort]:
    """Measure what solvers spend in this block."""
    effort, begin_s = Effort(), used_s()
    before = _effort.set(effort)
    try:
        yield effort
    finally:
        _effort.reset(before)
        effort.cpu_s = max(0.0, effort.cpu_s + used_s() - begin_s)


def spend(nodes: int | None = None, cpu_s: float = 0.0) -> None:
    """Add nodes, and seconds of a process that is not waited for, to what is measured here."""
    effort = _effort.get()
    if effort is not None:
        effort.cpu_s += cpu_s
        if nodes is not None:
            effort.nodes = (effort.nodes or 0) + nodes


def used_s() -> float:
    """Processor seconds of this process so far, and of those of its children that have ended."""
    return sum(os.times()[:4])
