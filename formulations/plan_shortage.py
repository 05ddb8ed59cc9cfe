"""What is short where the program of a problem with decisions of its own is infeasible, in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from wattsched.formulations.program import Program
from wattsched.solvers.infeasibility import Shortfall, shortfall

BUDGETS = {
    "completion_s": "average_completion_s",
    **{name: name for name in ("power_w", "energy_j", "carbon_g", "money")},
}
"""Field of the instance's budgets by row."""
POOLS = ("gpus", "nodes")
"""What rows of pools and units begin with."""
COUNTS = "pattern"
"""Columns that count units, and are bounded by how many there are."""


def sentences(program: Program) -> list[str]:
    """Which budgets, pools and jobs make a program infeasible; empty where that cannot be shown.

    A budget or a pool lacks at least what is said if no other limit is changed. What rows of one formulation
    alone stand for is not said.
    """
    return [words for short in shortfall(_unbounded(program), may_grow=_is_limit) for words in _said(short)]


def _unbounded(program: Program) -> Program:
    """The same program without the bounds of counts, which follow from rows that may grow."""
    blocks = program.columns
    counts = np.repeat([block.name == COUNTS for block in blocks], [block.size for block in blocks])
    return replace(program, upper=np.where(counts, np.inf, program.upper)) if counts.any() else program


def _is_limit(row: str) -> bool:
    return row in BUDGETS or row.partition(":")[0] in POOLS


def _said(short: Shortfall) -> Iterator[str]:
    kind, _, name = short.row.partition(":")
    if kind == "job" and short.alone:
        yield f"job '{name}' can neither run now nor wait"
    elif _is_limit(short.row):
        yield f"{BUDGETS.get(short.row, short.row)} is short by at least {short.at_least:.6g}"
