"""Small random programs, and the truth about them by enumeration."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import strategies as st
from scipy.sparse import csc_array

from wattsched.formulations.program import Block, Program
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
    program = Program(
        cost=cost * draw(st.sampled_from([1.0, 0.01, 1234.5])),
        matrix=csc_array(matrix * units[:, None]),
        row_lower=lower * units,
        row_upper=upper * units,
        lower=np.zeros(n),
        upper=np.ones(n),
        integer=np.ones(n, dtype=bool),
        group_start=start,
        rows=(Block("budget", m),),
        columns=(Block("x", n),),
        offset=float(draw(st.integers(-5, 5))),
        sense=draw(st.sampled_from(["min", "max"])),
    )
    free = draw(st.sampled_from(["none", "none", "bottleneck", "worst", "continuous", "integer"]))
    if free in ("bottleneck", "worst"):
        values = np.array(draw(st.lists(st.integers(0, 30), min_size=n, max_size=n)), dtype=float)
        return with_bottleneck(program, values * 0.7, alone=free == "worst")
    if free == "none":
        return program
    return with_free_column(program, integer=free == "integer")


def with_bottleneck(program: Program, values: FloatArray, *, alone: bool = False) -> Program:
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
    program = with_bottleneck(program, values * 0.3 - draw(st.sampled_from([0.0, 1.5])), alone=True)
    lower = draw(st.sampled_from([-100.0, 0.0, 0.6]))
    upper = draw(st.sampled_from([np.inf, 1.2, 100.0]))
    cost = np.append(np.zeros(n), draw(st.sampled_from([1.0, 0.01, 250.0])))
    ends = (np.append(program.lower[:n], lower), np.append(program.upper[:n], upper))
    return dataclasses.replace(program, cost=cost, lower=ends[0], upper=ends[1])


def with_free_column(program: Program, *, integer: bool) -> Program:
    """Add a column that buys some of the first row's budget."""
    column = np.zeros((program.n_rows, 1))
    column[0] = -1.0
    return dataclasses.replace(
        program,
        cost=np.append(program.cost, 3.0),
        matrix=csc_array(np.hstack([program.matrix.toarray(), column])),
        lower=np.append(program.lower, 0.0),
        upper=np.append(program.upper, 3.0),
        integer=np.append(program.integer, integer),
        columns=(*program.columns, Block("bought", 1)),
    )


def optimum(program: Program) -> float | None:
    """Least cost over all choices, by enumeration; None when nothing is feasible."""
    start = program.group_start
    groups = [range(start[k], start[k + 1]) for k in range(program.n_groups)]
    best: float | None = None
    for choice in itertools.product(*groups):
        x = np.zeros(program.n_columns)
        x[list(choice)] = 1.0
        for value in _free_values(program, x):
            x[program.n_choices :] = value
            if program.violation(x) <= 1e-9 and (best is None or program.objective(x) < best):
                best = program.objective(x)
    return best


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


@pytest.fixture(scope="session")
def programs() -> st.SearchStrategy[Program]:
    """Strategy for small programs."""
    return small_programs()


@pytest.fixture(scope="session")
def bottlenecks() -> st.SearchStrategy[Program]:
    """Strategy for small programs whose objective is their bottleneck."""
    return worst_values()


@pytest.fixture(scope="session")
def worst_of() -> Callable[..., Program]:
    """Adds a bottleneck to a program."""
    return with_bottleneck


@pytest.fixture(scope="session")
def truth() -> Callable[[Program], float | None]:
    """Optimum by enumeration."""
    return optimum


@pytest.fixture(scope="session")
def knapsack() -> Callable[..., Program]:
    """Builds multiple-choice knapsacks of any size that look like scheduling rounds."""
    return scheduling_knapsack


def scheduling_knapsack(jobs: int, options: int, pools: int = 1, seed: int = 0) -> Program:
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
    n = jobs * options
    return Program(
        cost=completion.ravel(),
        matrix=csc_array(np.array(rows)),
        row_lower=np.full(len(caps), -np.inf),
        row_upper=np.array(caps),
        lower=np.zeros(n),
        upper=np.ones(n),
        integer=np.ones(n, dtype=bool),
        group_start=np.arange(0, n + 1, options),
        rows=(Block("gpus", pools), Block("power_w", 1), Block("energy_j", 1)),
        columns=(Block("x", n),),
        attributes={"gpus": gpus.ravel(), "completion_s": completion.ravel(), "energy_j": energy.ravel()},
    )
