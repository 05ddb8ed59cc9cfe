"""The sizing program of a moment of a replay, straight from arrays.

It is the `mckp` formulation: one column per row that a job may take, waiting last, and one row per pool and
buddy level. Building an Instance and expanding it would give the same program, many times slower.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csc_array

from wattsched.formulations.program import Block, Program
from wattsched.replay.jobs.menus import WAITS, Selection
from wattsched.replay.jobs.policy import View
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray
from wattsched.topology.buddy import free_by_level


@dataclass(frozen=True)
class Columns:
    """What the jobs of a view may do, job by job, waiting last.

    Attributes
    ----------
    start : int array, shape (n_jobs + 1,)
    owner : int array, shape (n_columns,)
        Index of the job in the view.
    row : int array, shape (n_columns,)
        -1 for waiting.
    completion_s : float array, shape (n_columns,)
        Seconds to completion; for waiting `wait_s` plus the best completion from a standing start.
    """

    start: IntArray
    owner: IntArray
    row: IntArray
    completion_s: FloatArray

    @property
    def waits(self) -> BoolArray:
        """Which columns are waiting."""
        return np.asarray(self.row == WAITS)

    def only(self, keep: BoolArray) -> Columns:
        """Leave columns out; those of waiting stay."""
        keep = keep | self.waits
        start = np.append(0, np.cumsum(np.add.reduceat(keep, self.start[:-1], dtype=np.int64)))
        return Columns(start, self.owner[keep], self.row[keep], self.completion_s[keep])

    def chosen(self, x: FloatArray) -> IntArray:
        """Row of each job from a point of the program."""
        return self.row[np.flatnonzero(x[: len(self.row)] > 0.5)]


def columns_of(view: View, selection: Selection, wait_s: float) -> Columns:
    """Lay out what the jobs may do.

    Parameters
    ----------
    wait_s : float
        Seconds that a job loses that waits now.
    """
    menus = view.menus
    start, rows = selection.laid_out(view.kind)
    n = np.arange(len(view))
    ends = start[1:] + n
    row = np.full(start[-1] + len(view), WAITS, dtype=np.int64)
    runs = np.ones(len(row), dtype=bool)
    runs[ends] = False
    row[runs] = rows
    owner = np.repeat(n, np.diff(start) + 1)
    completion_s = np.empty(len(row))
    completion_s[runs] = view.completion_s(owner[runs], rows)
    fastest_s = view.remaining / np.maximum.reduceat(menus.rate[rows], start[:-1])
    completion_s[ends] = wait_s + fastest_s + np.where(view.ran, view.restart_s, 0.0)
    return Columns(np.append(0, ends + 1), owner, row, completion_s)


def program_of(view: View, columns: Columns, cost: FloatArray, most_w: float = np.inf) -> Program:
    """Choose one column of every job at least cost, so that all fit into the pools' blocks.

    Parameters
    ----------
    most_w : float
        Most that the cluster may draw; if finite, the last row says so of the draw above the idle one.
    """
    menus, row = view.menus, columns.row
    pool = np.where(columns.waits, -1, menus.pool[row])
    block = menus.block[row]
    members, uses, capacity, names = [], [], [], []
    for p, place in enumerate(view.trace.pools):
        free = free_by_level(place.blocks, place.available)
        for level, room in enumerate(free.tolist()):
            if level and room == free[level - 1]:
                continue
            inside = np.flatnonzero((pool == p) & (block >= 1 << level))
            members.append(inside)
            uses.append(block[inside].astype(float))
            capacity.append(float(room))
            names.append(Block(f"gpus:{place.name}" if not level else f"buddy:{place.name}:{1 << level}", 1))
    if view.allowance is not None and most_w < np.inf:
        members.append(np.flatnonzero(~columns.waits))
        uses.append(busy_w(view, row[members[-1]]))
        capacity.append(max(most_w - view.allowance.standing_w, 0.0))
        names.append(Block("power_w", 1))
    n = len(row)
    number = np.repeat(np.arange(len(members)), [len(inside) for inside in members])
    entries = (np.concatenate(uses), (number, np.concatenate(members)))
    return Program(
        cost=cost,
        matrix=csc_array(entries, shape=(len(members), n)),
        row_lower=np.full(len(members), -np.inf),
        row_upper=np.array(capacity),
        lower=np.zeros(n),
        upper=np.ones(n),
        integer=np.ones(n, dtype=bool),
        group_start=columns.start,
        rows=tuple(names),
        columns=(Block("option", n),),
        attributes=attributes_of(view, columns),
    )


def busy_w(view: View, rows: IntArray) -> FloatArray:
    """Draw of rows above that of their GPUs when idle."""
    return view.menus.power_w[rows] - view.trace.idle_w[rows]


def attributes_of(view: View, columns: Columns) -> dict[str, FloatArray]:
    """Quantities that published rules read: GPUs, seconds and joules to completion.

    A job that waits will take its least energy.
    """
    menus, waits = view.menus, columns.waits
    energy_j = np.where(waits, np.inf, menus.power_w[columns.row] * columns.completion_s)
    least = np.minimum.reduceat(energy_j, columns.start[:-1])
    return {
        "gpus": np.where(waits, 0, menus.gpus[columns.row]).astype(float),
        "completion_s": columns.completion_s,
        "energy_j": np.where(waits, least[columns.owner], energy_j),
    }
