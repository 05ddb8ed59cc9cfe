"""Ways of others to solve a Program: linopy, SCIP, POP's random partition, the bare LP bound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np
from scipy.sparse import csc_array, csr_array, vstack

from wattsched.formulations.program import Block, Program
from wattsched.formulations.timer import Timer
from wattsched.solvers import highs
from wattsched.solvers.lp import solve_lp
from wattsched.solvers.registry import get
from wattsched.solvers.solution import Limits, Solution, Termination, conclude, infeasible, unsupported
from wattsched.topology.arrays import FloatArray, IntArray

Solve = Callable[[Program, Limits], Solution]

TOLERANCE = 1e-6
"""Violation that the solvers' own tolerances allow."""


def lp(program: Program, limits: Limits) -> Solution:
    """Bound of the LP relaxation, by HiGHS; no decision."""
    relaxed = solve_lp(program, limits)
    return replace(relaxed, x=None, objective=None)


def linopy_highs(program: Program, limits: Limits) -> Solution:
    """Write linopy's expressions, one per row and one per group, and have HiGHS solve them."""
    import linopy
    import pandas as pd

    if program.n_columns > program.n_choices:
        return unsupported("only choice columns are written")
    model = linopy.Model()
    index = pd.RangeIndex(program.n_columns, name="column")
    x = model.add_variables(binary=True, coords=[index], name="x")
    group = pd.Series(_group(program), index=index, name="group")
    model.add_constraints((1 * x).groupby(group).sum() == 1, name="one")
    rows = csr_array(program.matrix)
    for i in range(program.n_rows):
        span = slice(rows.indptr[i], rows.indptr[i + 1])
        used = pd.Index(rows.indices[span], name="column")
        use = pd.Series(rows.data[span], index=used)
        total = (x.sel(column=used) * use.to_xarray()).sum()
        if np.isfinite(program.row_upper[i]):
            model.add_constraints(total <= program.row_upper[i], name=f"upper{i}")
        if np.isfinite(program.row_lower[i]):
            model.add_constraints(total >= program.row_lower[i], name=f"lower{i}")
    model.add_objective((x * pd.Series(program.cost, index=index).to_xarray()).sum())
    options: dict[str, Any] = {"mip_rel_gap": limits.gap, "threads": limits.threads, "output_flag": False}
    if limits.time_s is not None:
        options["time_limit"] = limits.time_s
    status, _ = model.solve("highs", io_api="direct", progress=False, **options)
    info = model.solver_model.getInfo()
    values = None
    if info.primal_solution_status == 2:
        values = np.asarray(model.solver_model.getSolution().col_value)[: program.n_columns]
    # HiGHS states 0 as long as it knows no bound.
    known = values is not None or info.mip_dual_bound != 0.0
    bound = float(info.mip_dual_bound) + program.offset if known else -np.inf
    return _stated(program, limits, values, bound, status != "ok" or not _closed(info.mip_gap, limits), "")


def scip(program: Program, limits: Limits) -> Solution:
    """SCIP through PySCIPOpt; what building its model takes comes off the time limit."""
    import pyscipopt

    timer = Timer(limits.time_s)
    model = pyscipopt.Model()
    model.hideOutput()
    columns = zip(program.cost, program.lower, program.upper, program.integer, strict=True)
    x = [
        model.addVar(obj=cost, lb=_finite(low), ub=_finite(high), vtype="I" if whole else "C")
        for cost, low, high, whole in columns
    ]
    matrix, low, high = with_group_rows(program)
    for i in range(matrix.shape[0]):
        span = slice(matrix.indptr[i], matrix.indptr[i + 1])
        entries = zip(matrix.indices[span].tolist(), matrix.data[span].tolist(), strict=True)
        total = pyscipopt.quicksum(a * x[j] for j, a in entries)
        model.addCons(pyscipopt.scip.ExprCons(total, _finite(low[i]), _finite(high[i])))
    model.addObjoffset(program.offset)  # the gap is relative to the whole cost
    model.setParam("limits/gap", limits.gap)
    model.setParam("randomization/randomseedshift", limits.seed)
    model.setParam("lp/threads", limits.threads)
    left_s = timer.remaining_s()
    if left_s is not None:
        model.setParam("limits/time", left_s)
    model.optimize()
    status = model.getStatus()
    if status == "infeasible":
        return infeasible()
    values = None
    if model.getNSols():
        best = model.getBestSol()
        values = np.array([model.getSolVal(best, v) for v in x])
    bound = model.getDualbound()
    if model.isInfinity(abs(bound)):
        bound = -np.inf
    return _stated(program, limits, values, bound, status == "timelimit", "")


def pop(k: int) -> Solve:
    """POP (Narayanan et al. 2021): jobs in k random parts, each with 1/k of every capacity, merged.

    The parts are solved one after the other, with equal shares of the time. The merged decision has no bound.
    """

    def solve(program: Program, limits: Limits) -> Solution:
        if program.n_columns > program.n_choices:
            return unsupported("a column that all parts share cannot be partitioned")
        clock = Timer(limits.time_s)
        part_of = np.random.default_rng(limits.seed).permutation(program.n_groups) % k
        x = np.zeros(program.n_columns)
        limit = None
        for part in range(k):
            columns = np.flatnonzero((part_of == part)[_group(program)])
            left = clock.remaining_s()
            share = replace(limits, time_s=None if left is None else left / (k - part))
            answer = highs.solve(_part(program, columns, part_of == part, k), share)
            if answer.x is None:
                why = answer.termination.detail or answer.termination.reason
                return Solution(Termination("no_solution", answer.termination.limit, f"part {part}: {why}"))
            limit = limit or answer.termination.limit
            x[columns] = answer.x
        return conclude(program, limits, x, -np.inf, limit=limit)

    return solve


PEERS: dict[str, Solve] = {
    "lp": lp,
    "linopy": linopy_highs,
    "scip": scip,
    "pop:4": pop(4),
    "pop:16": pop(16),
}
NEEDED = {"linopy": "linopy", "scip": "pyscipopt"}
"""Packages of peers that the extra ``bench`` installs."""


def missing(name: str) -> str:
    """Why a peer or a solver of the registry cannot be run here, empty when it can."""
    package = NEEDED.get(name)
    if package is not None and find_spec(package) is None:
        return f"{package} is not installed (pip install 'wattsched[bench]')"
    try:
        solver_of(name)
    except ValueError as error:
        return str(error)
    return ""


def with_group_rows(program: Program) -> tuple[csr_array, FloatArray, FloatArray]:
    """Rows of the program, then one "exactly one" per group."""
    group, n = _group(program), program.n_choices
    ones = csr_array((np.ones(n), (group, np.arange(n))), shape=(program.n_groups, program.n_columns))
    equal = np.ones(program.n_groups)
    return (
        csr_array(vstack([csr_array(program.matrix), ones], format="csr")),
        np.concatenate([program.row_lower, equal]),
        np.concatenate([program.row_upper, equal]),
    )


def _finite(bound: float) -> float | None:
    """Bound as SCIP takes it: None is none."""
    return bound if np.isfinite(bound) else None


def _group(program: Program) -> IntArray:
    return np.repeat(np.arange(program.n_groups), np.diff(program.group_start))


def _part(program: Program, columns: IntArray, groups: np.ndarray, k: int) -> Program:
    sizes = np.diff(program.group_start)[groups]
    return replace(
        program,
        cost=program.cost[columns],
        matrix=csc_array(program.matrix[:, columns]),
        row_lower=program.row_lower / k,
        row_upper=program.row_upper / k,
        lower=program.lower[columns],
        upper=program.upper[columns],
        integer=program.integer[columns],
        group_start=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        columns=(Block("column", len(columns)),),
        offset=0.0,
        attributes={},
    )


def _closed(gap: float, limits: Limits) -> bool:
    return bool(gap <= limits.gap * (1 + 1e-6))


def _stated(
    program: Program, limits: Limits, values: FloatArray | None, bound: float, stopped: bool, detail: str
) -> Solution:
    if values is not None and program.violation(program.rounded(values)) > TOLERANCE:
        return Solution(Termination("error", detail="the rounded answer violates the rows"), bound=bound)
    return conclude(program, limits, values, bound, limit="time" if stopped else None, detail=detail)


def solver_of(name: str) -> Solve:
    """Return a peer or a solver of the registry; a ValueError for unknown names."""
    return PEERS[name] if name in PEERS else get(name)
