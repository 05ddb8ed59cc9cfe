"""`intervals`: every running job is an aligned interval on its pool's line of GPUs (CP-SAT only).

Budgets stay linear rows; room is a no-overlap constraint on intervals whose start is a multiple of their
power-of-two length. No buddy rows are used, so agreement with `mckp` tests the buddy theorem.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from wattsched.formulations.model import Model, Starts
from wattsched.formulations.program import Intervals, Line, ProgramBuilder
from wattsched.formulations.sizing.budgets import free_gpus
from wattsched.formulations.sizing.columns import Choices, choices
from wattsched.formulations.sizing.data import Options, expanded
from wattsched.formulations.sizing.decisions import Places, decide
from wattsched.formulations.sizing.jobs import RoundJobs
from wattsched.formulations.sizing.mckp import add_limits, assemble
from wattsched.formulations.timer import Timer
from wattsched.instances.sizing.decision import Decision


def build(known: RoundJobs | Options, objective: str, timer: Timer | None = None) -> Model[Decision]:
    """Build the interval formulation; parameters and errors as for `mckp.build`."""
    options = expanded(known)
    columns = choices(options, objective)
    rows = ProgramBuilder()
    add_limits(rows, columns.budgets)
    program = assemble(columns, rows)
    extra = program.n_columns - len(columns)
    line = np.where(columns.needs_room, columns.pool, -1)
    intervals = Intervals(
        lines=tuple(
            Line(pool.name, pool.blocks, np.flatnonzero(~free))
            for pool, free in zip(options.pools, free_gpus(options.of), strict=True)
        ),
        line=np.concatenate([line, np.full(extra, -1)]),
        size=np.concatenate([columns.block, np.zeros(extra, dtype=np.int64)]),
    )
    return Model(
        program=replace(program, intervals=intervals),
        decode=lambda x, starts: decide(options, columns.chosen(x), _places(columns, x, starts)),
        options=len(options),
        dropped=columns.dropped,
    )


def _places(columns: Choices, x: np.ndarray, starts: Starts) -> Places:
    picked = np.flatnonzero((x[: len(columns)] > 0.5) & columns.needs_room)
    picked = picked[np.argsort(columns.job[picked], kind="stable")]
    start = np.array([starts[c] for c in picked.tolist()], dtype=np.int64)
    return Places.first_of(columns.job[picked], start, columns.options.gpus[columns.index[picked]])
