"""Small random programs, and the truth about them by enumeration."""

import dataclasses
import itertools
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import ArrayLike
from scipy.optimize import linprog
from scipy.sparse import csc_array, vstack

from wattsched.formulations.program import Block, Program
from wattsched.solvers.rows import with_choice_rows
from wattsched.topology.arrays import FloatArray

KINDS = ("<=", "<=", "<=", ">=", "range", "=")


@st.composite
def small_programs(draw: st.DrawFn) -> Program:
    """Groups of 1-5 columns under 1-4 rows of all kinds, at times with a free column."""
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    n, m = sum(sizes), draw(st.integers(1, 4))
    cost = np.array(draw(st.lists(st.integers(-20, 50), min_size=n, max_size=n)), dtype=float)
    uses = st.lists(st.integers(0, 9), min_size=n, max_size=n)
    matrix = np.array([draw(uses) for _ in range(m)], dtype=float)
    units = np.array([draw(st.sampled_from([1.0, 0.1, 350.7])) for _ in range(m)])
    lower, upper = np.full(m, -np.inf), np.full(m, np.inf)
    start = np.concatenate([[0], np.cumsum(sizes)])
    for row in range(m):
        anchor = sum(matrix[row, start[k] + draw(st.integers(0, size - 1))] for k, size in enumerate(sizes))
        kind = draw(st.sampled_from(KINDS))
        room = draw(st.integers(0, 3))
        if kind in ("<=", "range", "="):
            upper[row] = anchor + (0 if kind == "=" else room)
        if kind in (">=", "range", "="):
            lower[row] = anchor - (0 if kind == "=" else room)
    program = program_of(
        cost * draw(st.sampled_from([1.0, 0.01, 1234.5])),
        matrix * units[:, None],
        upper * units,
        start,
        row_lower=lower * units,
        rows=(Block("budget", m),),
        offset=float(draw(st.integers(-5, 5))),
        sense=draw(st.sampled_from(["min", "max"])),
    )
    free = draw(st.sampled_from(["none", "none", "bottleneck", "worst", "continuous", "integer"]))
    if free in ("bottleneck", "worst"):
        values = np.array(draw(st.lists(st.integers(0, 30), min_size=n, max_size=n)), dtype=float)
        return worst_of(program, values * 0.7, alone=free == "worst")
    if free == "none":
        return program
    # It buys some of the first row's budget.
    bought = -np.eye(1, program.n_rows)[0]
    return with_column(program, 3.0, 3.0, integer=free == "integer", uses=bought)


def relaxed_cost(program: Program, added: FloatArray) -> float:
    """Least cost of the relaxation with more of its limits, infinite without a point."""
    rows = with_choice_rows(program)
    more = np.append(added, np.zeros(rows.n_rows - len(added)))
    above, below = np.isfinite(rows.row_upper), np.isfinite(rows.row_lower)
    found = linprog(
        rows.cost,
        A_ub=vstack([rows.matrix[above], -rows.matrix[below]]),
        b_ub=np.concatenate([(rows.row_upper + more)[above], -(rows.row_lower + more)[below]]),
        bounds=np.column_stack([rows.lower, rows.upper]),
        method="highs-ds",
    )
    return float(found.fun) if found.status == 0 else np.inf


def worst_of(program: Program, values: FloatArray, *, alone: bool = False) -> Program:
    """Add a column t with t >= value of every group's choice, and its cost; alone nothing else costs."""
    k, n = program.n_groups, program.n_choices
    limits = np.zeros((k, n + 1))
    limits[np.repeat(np.arange(k), np.diff(program.group_start)), np.arange(n)] = -values
    limits[:, n] = 1.0
    wide = np.hstack([program.matrix.toarray(), np.zeros((program.n_rows, 1))])
    return dataclasses.replace(
        program,
        cost=np.append(program.cost * (0.0 if alone else 1e-3), 1.0),
        matrix=csc_array(np.vstack([wide, limits])),
        row_lower=np.concatenate([program.row_lower, np.zeros(k)]),
        row_upper=np.concatenate([program.row_upper, np.full(k, np.inf)]),
        lower=np.append(program.lower, 0.0),
        upper=np.append(program.upper, np.inf),
        integer=np.append(program.integer, False),
        rows=(*program.rows, Block("longest", k)),
        columns=(*program.columns, Block("t", 1)),
        bottleneck=n,
    )


@st.composite
def worst_values(draw: st.DrawFn) -> Program:
    """Programs whose objective is the worst value, with rows of all kinds, ties, and signs of either kind."""
    program = draw(small_programs().filter(lambda p: p.n_columns == p.n_choices))
    n = program.n_choices
    values = np.array(draw(st.lists(st.integers(0, 6), min_size=n, max_size=n)), dtype=float)
    program = worst_of(program, values * 0.3 - draw(st.sampled_from([0.0, 1.5])), alone=True)
    lower = draw(st.sampled_from([-100.0, 0.0, 0.6]))
    upper = draw(st.sampled_from([np.inf, 1.2, 100.0]))
    cost = np.append(np.zeros(n), draw(st.sampled_from([1.0, 0.01, 250.0])))
    ends = (np.append(program.lower[:n], lower), np.append(program.upper[:n], upper))
    return dataclasses.replace(program, cost=cost, lower=ends[0], upper=ends[1])


def with_column(
    program: Program,
    cost: float,
    upper: float = np.inf,
    *,
    integer: bool = False,
    uses: float | FloatArray = 0.0,
) -> Program:
    """Add a free column, and what it uses of every row."""
    column = np.broadcast_to(uses, program.n_rows)[:, None]
    return dataclasses.replace(
        program,
        cost=np.append(program.cost, cost),
        matrix=csc_array(np.hstack([program.matrix.toarray(), column])),
        lower=np.append(program.lower, 0.0),
        upper=np.append(program.upper, upper),
        integer=np.append(program.integer, integer),
        columns=(*program.columns, Block("free", 1)),
    )


def program_of(
    cost: ArrayLike, uses: ArrayLike, capacity: ArrayLike, start: ArrayLike, **fields: Any
) -> Program:
    """Program of choices, with <= rows only; other fields are as given."""
    cost, capacity = np.asarray(cost, dtype=float), np.asarray(capacity, dtype=float)
    n, m = len(cost), len(capacity)
    made = {
        "cost": cost,
        "matrix": csc_array(np.asarray(uses, dtype=float)),
        "row_lower": np.full(m, -np.inf),
        "row_upper": capacity,
        "lower": np.zeros(n),
        "upper": np.ones(n),
        "integer": np.ones(n, dtype=bool),
        "group_start": np.asarray(start, dtype=np.int64),
        "rows": (Block("row", m),),
        "columns": (Block("x", n),),
    }
    return Program(**{**made, **fields})


def points(program: Program) -> list[FloatArray]:
    """All feasible points, of a free column those that can be optimal."""
    found = []
    for choice in itertools.product(*(range(a, b) for a, b in itertools.pairwise(program.group_start))):
        x = np.zeros(program.n_columns)
        x[list(choice)] = 1.0
        for value in _free_values(program, x):
            x[program.n_choices :] = value
            if program.violation(x) <= 1e-9:
                found.append(x.copy())
    return found


def truth(program: Program) -> float | None:
    """Least cost over all choices, by enumeration; None when nothing is feasible."""
    return min(map(program.objective, points(program)), default=None)


def _free_values(program: Program, x: FloatArray) -> list[float]:
    """All values of the one free column that can be optimal: its bounds and where rows become tight."""
    if program.n_columns == program.n_choices:
        return [0.0]
    column = program.n_choices
    if program.integer[column]:
        return [float(v) for v in range(int(program.lower[column]), int(program.upper[column]) + 1)]
    a = program.matrix.toarray()[:, column]
    rest = program.matrix @ x
    values = [program.lower[column], program.upper[column]]
    for row in np.flatnonzero(a):
        values += [(end[row] - rest[row]) / a[row] for end in (program.row_lower, program.row_upper)]
    return [float(v) for v in values if np.isfinite(v)]


programs, bottlenecks = small_programs(), worst_values()


def knapsack(jobs: int, options: int, pools: int = 1, seed: int = 0) -> Program:
    """Jobs with a waiting column and GPU-frequency options under GPU, power and energy rows."""
    rng = np.random.default_rng(seed)
    work = rng.lognormal(8, 1.2, (jobs, 1))
    gpus = 2.0 ** rng.integers(0, 5, (jobs, options))
    frequency = rng.uniform(0.4, 1.0, (jobs, options))
    completion = work / (gpus**0.85 * (0.3 + 0.7 * frequency))
    power = gpus * (60 + 340 * frequency**2.5)
    completion[:, 0] = completion[:, 1:].min(axis=1) + 300 + work[:, 0]
    gpus[:, 0] = power[:, 0] = 0.0
    energy = power * completion
    energy[:, 0] = energy[:, 1:].min(axis=1)
    pool = rng.integers(0, pools, (jobs, options))
    rows = [np.where(pool == p, gpus, 0).ravel() for p in range(pools)] + [power.ravel(), energy.ravel()]
    caps = [float(jobs // pools)] * pools + [220.0 * jobs, 1.2 * energy.min(axis=1).sum()]
    return program_of(
        completion.ravel(),
        rows,
        caps,
        np.arange(0, jobs * options + 1, options),
        rows=(Block("gpus", pools), Block("power_w", 1), Block("energy_j", 1)),
        attributes={"gpus": gpus.ravel(), "completion_s": completion.ravel(), "energy_j": energy.ravel()},
    )
