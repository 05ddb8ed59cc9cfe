"""Large neighbourhood search: a few groups at a time are decided anew, by a MIP over their cheapest columns.

What a point costs above the bound is what its columns' reduced costs are above the least of their groups, and
what it leaves of priced rows; groups whose columns cost more are decided anew more often (Shaw, "Using
constraint programming and local search methods to solve vehicle routing problems", 1998). How many it are
follows from how hard the last MIP was.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from wattsched.formulations.program import Program
from wattsched.formulations.timer import Timer
from wattsched.solvers.kernels import kernel
from wattsched.solvers.points import feasible
from wattsched.solvers.rows import group_of_choice
from wattsched.solvers.solution import Limits
from wattsched.topology.arrays import FloatArray, IntArray

# Groups at first, the same as a share of all, and the columns of each.
_GROUPS, _SHARE, _COLUMNS = 20, 0.01, 30
# From one neighbourhood to the next.
_GROWTH = 1.2
_PATIENCE = 5
# Of HiGHS, and what it may leave of what a point lacks.
_NODES, _LEFT = 100, 0.5
# Neighbourhoods in a row without a better point, after which nothing more is expected.
_FAILURES = 30
# Share of the largest excess with which groups without any are chosen.
_FLOOR = 1e-3


def improve(
    program: Program, prices: FloatArray, x: FloatArray, target: float, timer: Timer
) -> Iterator[FloatArray]:
    """Better and better points, until one costs at most `target` or none is found any more.

    Parameters
    ----------
    prices : float array, shape (n_rows,)
    x : float array, shape (n_columns,)
        A feasible point.
    """
    above, group = program.above_least(prices), group_of_choice(program)
    rank, rng = _ranks(above, group, program.group_start), np.random.default_rng(0)
    size = max(float(_GROUPS), _SHARE * program.n_groups)
    cost, failures = program.objective(x), 0
    while cost > target and failures < _FAILURES and not timer.over():
        taken = x[: program.n_choices] > 0.5
        anew = np.zeros(program.n_groups, dtype=bool)
        anew[_excessive(above[taken], int(size), rng)] = True
        part = kernel(program, taken | (anew[group] & (rank < _COLUMNS)))
        answer = part.by_highs(Limits(0.0, timer.remaining_s(), nodes=_NODES), x, target, part=True)
        failures += 1
        if answer.x is not None and feasible(program, answer.x):
            found = program.objective(answer.x)
            if found < cost:
                x, cost, failures = answer.x, found, 0
                yield x
        if cost - answer.bound > _LEFT * (cost - target):
            size = max(1.0, size / _GROWTH)
        elif failures and failures % _PATIENCE == 0:
            size = min(program.n_groups, size * _GROWTH)


def _ranks(above: FloatArray, group: IntArray, group_start: IntArray) -> IntArray:
    """Rank of every column in its group, the cheapest first."""
    ranks = np.empty(len(above), dtype=np.int64)
    ranks[np.lexsort((above, group))] = np.arange(len(above)) - group_start[group]
    return ranks


def _excessive(excess: FloatArray, most: int, rng: np.random.Generator) -> IntArray:
    """Groups at random, the likelier the more their columns are above the least."""
    weight = excess + (_FLOOR * float(excess.max()) or 1.0)
    return rng.choice(len(excess), min(most, len(excess)), replace=False, p=weight / weight.sum())
