"""Aligned intervals on lines of GPUs, as CP-SAT's optional intervals without overlap."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from wattsched.formulations.program import IntArray, Line, Program
from wattsched.solvers.matrix import group_of_choice


@dataclass(frozen=True)
class Occupation:
    """Columns of one group that need an interval of one size on one line; at most one is chosen.

    Attributes
    ----------
    place : CP-SAT variable
        The start of the interval, in multiples of its size.
    """

    columns: list[int]
    size: int
    place: Any


def free_places(line: Line, size: int) -> IntArray:
    """Multiples of `size` where an interval of that length fits: in a block, away from busy positions."""
    begin, end = line.blocks[:, 0], line.blocks[:, 0] + line.blocks[:, 1]
    first, last = -(-begin // size), end // size
    places = [np.arange(low, high) for low, high in zip(first, last, strict=True) if low < high]
    if not places:
        return np.zeros(0, dtype=np.int64)
    return np.setdiff1d(np.concatenate(places), line.busy // size).astype(np.int64)


def occupy(model: cp_model.CpModel, variables: list[Any], program: Program) -> list[Occupation]:
    """Add the no-overlap constraints of ``program.intervals`` to a model.

    Busy positions and the ends of blocks are left out of the starts' domains, so they need no intervals.
    """
    intervals = program.intervals
    assert intervals is not None
    group = group_of_choice(program)
    members: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for column in np.flatnonzero(intervals.line[: program.n_choices] >= 0).tolist():
        key = (int(intervals.line[column]), int(group[column]), int(intervals.size[column]))
        members[key].append(column)
    occupations = []
    by_line: dict[int, list[Any]] = defaultdict(list)
    uses: dict[int, list[tuple[Any, int]]] = defaultdict(list)
    domains: dict[tuple[int, int], IntArray] = {}
    for (line, _, size), columns in sorted(members.items()):
        if (line, size) not in domains:
            domains[line, size] = free_places(intervals.lines[line], size)
        places = domains[line, size]
        chosen = [variables[column] for column in columns]
        if len(places) == 0:
            model.add(cp_model.LinearExpr.sum(chosen) == 0)
            continue
        present = chosen[0]
        if len(chosen) > 1:
            present = model.new_bool_var("")
            model.add(cp_model.LinearExpr.sum(chosen) == present)
        place = model.new_int_var_from_domain(cp_model.Domain.from_values(places.tolist()), "")
        by_line[line].append(model.new_optional_fixed_size_interval_var(place * size, size, present, ""))
        uses[line].append((present, size))
        occupations.append(Occupation(columns, size, place))
    for line, parts in by_line.items():
        model.add_no_overlap(parts)
        # Implied, but it gives the linear relaxation a bound.
        present, sizes = zip(*uses[line], strict=True)
        room = len(free_places(intervals.lines[line], 1))
        model.add_linear_constraint(cp_model.LinearExpr.weighted_sum(present, sizes), 0, room)
    return occupations
