"""`intervals`: every running job is an aligned interval on its pool's line of GPUs (CP-SAT only).

Budgets stay linear rows; room is a no-overlap constraint on intervals whose start is a multiple of their
power-of-two length. No buddy rows are used, so agreement with `mckp` tests the buddy theorem. Pools that are
no blocks, or have nodes that sleep, have the rows of `mckp`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from wattsched.formulations.model import Model, Starts
from wattsched.formulations.program import Intervals, Line, ProgramBuilder
from wattsched.formulations.sizing.columns import Choices, choices
from wattsched.formulations.sizing.cutting import add_room_rows
from wattsched.formulations.sizing.data import options_of
from wattsched.formulations.sizing.decisions import Places, place
from wattsched.formulations.sizing.jobs import RoundJobs
from wattsched.formulations.sizing.mckp import add_limits, assemble, cuttings_of, room_of
from wattsched.formulations.sizing.sleeping import parts_of
from wattsched.formulations.timer import Timer
from wattsched.instances.sizing.decision import Decision
from wattsched.topology.arrays import BoolArray


def build(known: RoundJobs, objective: str, timer: Timer | None = None) -> Model[Decision]:
    """Build the interval formulation; parameters and errors as for `mckp.build`."""
    columns = choices(options_of(known), objective)
    options = columns.options
    rows = ProgramBuilder()
    rooms, pool, taken = room_of(columns)
    # Which nodes of a pool are awake is a matter of rows, too.
    others = [room for room in rooms if room.pool.capacity != "blocks" or len(room.sleeping)]
    add_room_rows(rows, others, pool, taken)
    add_limits(rows, columns.budgets)
    program = assemble(columns, rows, cuttings_of(columns), parts_of(options.of, objective))
    extra = program.n_columns - len(columns)
    in_blocks = columns.needs_room & ~np.isin(pool, [room.number for room in others])
    line = np.where(in_blocks, pool, -1)
    intervals = Intervals(
        lines=tuple(Line(room.pool.name, room.pool.blocks, np.flatnonzero(~room.free)) for room in rooms),
        line=np.concatenate([line, np.full(extra, -1)]),
        size=np.concatenate([columns.block, np.zeros(extra, dtype=np.int64)]),
    )
    return Model(
        program=replace(program, intervals=intervals),
        decode=lambda x, starts: place(
            options,
            columns.chosen(x),
            _places(columns, in_blocks, x, starts),
            [room.number for room in others],
        ),
        options=len(options),
        dropped=columns.dropped,
    )


def _places(columns: Choices, in_blocks: BoolArray, x: np.ndarray, starts: Starts) -> Places:
    """GPUs of the jobs in blocks that a point runs, from where their intervals start."""
    picked = np.flatnonzero((x[: len(columns)] > 0.5) & in_blocks)
    picked = picked[np.argsort(columns.job[picked], kind="stable")]
    start = np.array([starts[c] for c in picked.tolist()], dtype=np.int64)
    return Places.first_of(columns.job[picked], start, columns.options.gpus[columns.index[picked]])
