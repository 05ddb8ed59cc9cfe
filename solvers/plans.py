r"""The master LP of a decomposition by blocks, and the bound of its prices.

With prices :math:`y` of the rows that link blocks and :math:`u` of the groups, reduced costs
:math:`r = c - A^T y - u` leave blocks and groups that do not interact:

.. math::
    L(u, y) = c_0 + \sum_i (y_i^+ r^l_i - y_i^- r^u_i) + \sum_k u_k
        + \sum_k \min(0, \min_{j\ \text{idle}} r_j) + \sum_b n_b \min_{p \in P_b} \sum_{j \in p} r_j

is a lower bound whatever the prices are. Plans are generated as columns of the master, whose prices are
smoothed with the best ones known (Wentges 1997, "Weighted Dantzig-Wolfe decomposition for linear
mixed-integer programming"; Pessoa et al. 2018, "Automation and combination of linear-programming based
stabilization techniques in column generation").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from scipy.sparse import csc_array

from wattsched.formulations.master import RestrictedMaster
from wattsched.formulations.timer import Timer
from wattsched.formulations.tolerances import FRACTIONAL
from wattsched.solvers.blocks import Blocks
from wattsched.solvers.rows import cost_range, group_of_choice
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray, offsets

# Weights of the best prices known against those of the master, one after the other until a plan is better.
_WEIGHTS = (0.5, 0.0)
# Of the bound, how far the master's optimum may be above it.
_CLOSE = 1e-5
# How far prices of groups may be from the best ones at first, in what a group costs on average, and by how
# much farther where nothing is better.
_NEAR, _WIDER = 0.005, 4.0
# So many times what decides everything they rise where there is no point at all.
_FARTHEST = 1e5
_ROUNDS = 1_000
# What a group costs that no plan takes, in all that the program's choices can save.
_DEAR = 2.0
# Reduced cost, in what a group costs on average, from which on a plan betters the master.
_BETTER = 1e-9


@dataclass(frozen=True)
class MasterPrices:
    """Prices of groups and linking rows, and the bound that they prove.

    Attributes
    ----------
    of_groups : float array, shape (n_groups,)
    of_rows : float array, shape (n_linking,)
    bound : float
    """

    of_groups: FloatArray
    of_rows: FloatArray
    bound: float = -np.inf

    def towards(self, other: MasterPrices, weight: float) -> MasterPrices:
        """Prices between these and others, of which `weight` is the share."""
        return MasterPrices(
            (1.0 - weight) * self.of_groups + weight * other.of_groups,
            (1.0 - weight) * self.of_rows + weight * other.of_rows,
        )


class Plan(NamedTuple):
    """Columns that a block takes together, as places in it."""

    block: int
    places: IntArray


class Subproblem(NamedTuple):
    """Part of a program: the columns that are left, and the plans that are taken, with how often."""

    keep: BoolArray
    taken: Mapping[int, int] = MappingProxyType({})


class Optimum(NamedTuple):
    """Optimum of the master: its cost and prices, and how often plans, and idle columns, are taken.

    `held` is how much of groups is lacking, or too much, where their prices are held back.
    """

    cost: float
    prices: MasterPrices
    of_blocks: FloatArray
    taken: FloatArray
    idle: FloatArray
    held: float


class Master:
    """The master LP over plans and idle columns, and the Lagrangian bound of prices.

    Its rows are groups, "exactly one", then blocks, "at most so many copies", then linking rows; its first
    columns stand for groups that nothing takes, the next ones for idle columns.
    """

    def __init__(self, blocks: Blocks) -> None:
        self.blocks, self.program = blocks, blocks.program
        program, linking = self.program, blocks.linking
        self.group = group_of_choice(program)
        self._linked = csc_array(program.matrix.tocsr()[linking])
        self._lower, self._upper = program.row_lower[linking], program.row_upper[linking]
        ends = [np.where(np.isfinite(limit), np.abs(limit), 0.0) for limit in (self._lower, self._upper)]
        self._size = np.maximum(np.max(ends, axis=0), 1.0)
        dear = _DEAR * cost_range(program)
        self._unit = dear / max(1, program.n_groups)
        self._lp = RestrictedMaster("plans", unit=self._unit)
        self._lp.add_rows(np.ones(program.n_groups), 1.0)
        self._lp.add_rows(-np.inf, np.array([float(block.copies) for block in blocks.blocks]))
        self._lp.add_rows(self._lower / self._size, self._upper / self._size)
        every = np.arange(program.n_groups)
        lacking = csc_array((np.ones(len(every)), (every, every)), (self._lp.n_rows, len(every)))
        self._dear = dear
        self._short = self._lp.add_columns(lacking, dear)
        self._over = self._lp.add_columns(-lacking, dear)
        alone = [np.array([column]) for column in blocks.idle.tolist()]
        self._idle = self._lp.add_columns(self._entries(alone), program.cost[blocks.idle])
        self._first = self._lp.n_columns
        self.plans: list[Plan] = []
        self._taken: list[IntArray] = []
        # The same in one array, and where each plan begins there.
        self._columns, self._begins = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        self._block_of = np.zeros(0, dtype=np.int64)
        self._known: dict[tuple[int, bytes], int] = {}
        # Of the rows of each block, as its search for plans bettered them last.
        self._of_rows = [np.full(len(block.uses), dear) for block in blocks.blocks]

    def _entries(self, taken: Sequence[IntArray], blocks: Sequence[int] | None = None) -> csc_array:
        """Entries of master columns that take these columns of the program, in these blocks."""
        program, n = self.program, len(taken)
        counts = [len(columns) for columns in taken]
        columns, of = np.concatenate([np.zeros(0, dtype=np.int64), *taken]), np.repeat(np.arange(n), counts)
        rows: list[IntArray] = [self.group[columns]]
        at, values = [of], [np.ones(len(of))]
        if blocks is not None:
            rows.append(program.n_groups + np.array(blocks, dtype=np.int64))
            at.append(np.arange(n))
            values.append(np.ones(n))
        choice = csc_array((np.ones(len(of)), (columns, of)), (program.n_columns, n))
        used = (self._linked @ choice).tocoo()
        rows.append(np.asarray(program.n_groups + len(self.blocks.blocks) + used.row, dtype=np.int64))
        at.append(np.asarray(used.col, dtype=np.int64))
        values.append(used.data / self._size[used.row])
        joined = np.concatenate(values), (np.concatenate(rows), np.concatenate(at))
        return csc_array(joined, (self._lp.n_rows, n))

    def columns_of(self, plan: Plan, copy: int = 0) -> IntArray:
        """Columns of the program that a plan takes in a copy of its block."""
        columns: IntArray = self.blocks.blocks[plan.block].columns[copy][plan.places]
        return columns

    def groups_of(self, number: int) -> IntArray:
        """Groups that the plan of a number decides."""
        return np.asarray(self.group[self._taken[number]])

    def add(self, plans: Sequence[Plan]) -> None:
        """Add the plans that are new."""
        new = list[Plan]()
        for plan in plans:
            if (key := (plan.block, plan.places.tobytes())) not in self._known:
                self._known[key] = len(self.plans) + len(new)
                new.append(plan)
        if new:
            taken = [self.columns_of(plan) for plan in new]
            costs = np.array([self.program.cost[columns].sum() for columns in taken])
            self._lp.add_columns(self._entries(taken, [plan.block for plan in new]), costs)
            self.plans += new
            self._taken += taken
            counts = [len(columns) for columns in self._taken]
            self._columns, self._begins = np.concatenate(self._taken), offsets(counts)[:-1]
            self._block_of = np.array([plan.block for plan in self.plans])

    def numbers(self, plans: Sequence[Plan]) -> list[int]:
        """Numbers of plans, which are added where they are new."""
        self.add(plans)
        return [self._known[plan.block, plan.places.tobytes()] for plan in plans]

    def reduced(self, prices: MasterPrices) -> FloatArray:
        """Reduced cost of every column at prices."""
        cost = self.program.cost
        if prices.of_rows.any():
            cost = cost - self._linked.T @ prices.of_rows
        return np.asarray(cost - prices.of_groups[self.group])

    def priced(
        self, prices: MasterPrices, case: Subproblem, *, exact: bool = True
    ) -> tuple[MasterPrices, list[Plan]]:
        """Prices with the bound that they prove of a case, and the cheapest plans there, or good ones."""
        y, reduced = prices.of_rows, np.where(case.keep, self.reduced(prices), np.inf)
        idle, of_idle = np.zeros(self.program.n_groups), self.blocks.idle
        np.minimum.at(idle, self.group[of_idle], reduced[of_idle])
        left = prices.of_groups + idle
        copies = [block.copies for block in self.blocks.blocks]
        up, down = y > 0.0, y < 0.0
        bound = self.program.offset + y[up] @ self._lower[up] + y[down] @ self._upper[down]
        for number, times in case.taken.items():
            columns = self._taken[number]
            copies[self.plans[number].block] -= times
            left[self.groups_of(number)] = 0.0
            bound += times * float(self.program.cost[columns].sum() - (y @ self._linked[:, columns]).sum())
        bound += left.sum()
        known, plans = self._cheapest_known(reduced), list[Plan]()
        for number, block in enumerate(self.blocks.blocks):
            if copies[number] == 0:
                continue
            of_block, of_rows = reduced[block.columns[0]], self._of_rows[number]
            least, places = block.cheapest(of_block, of_rows, known[number], exact=exact)
            bound += copies[number] * least
            if len(places):
                plans.append(Plan(number, places))
        return MasterPrices(prices.of_groups, y, float(bound)), plans

    def optimum(self, case: Subproblem, timer: Timer | None = None) -> Optimum | None:
        """Optimum over the plans of a case so far; None without time."""
        least = np.zeros(len(self.plans))
        least[list(case.taken)] = list(case.taken.values())
        most = np.where(self._within(case), np.inf, least)
        every = np.concatenate([self._idle, self._first + np.arange(len(least))])
        upper = np.concatenate([np.where(case.keep[self.blocks.idle], np.inf, 0.0), most])
        self._lp.change_bounds(every, np.append(np.zeros(len(self._idle)), least), upper)
        try:
            found = self._lp.solve(timer)
        except RuntimeError:
            return None
        groups, blocks = self.program.n_groups, len(self.blocks.blocks)
        of_groups, of_blocks, of_rows = np.split(found.prices, [groups, groups + blocks])
        y = of_rows / self._size  # the LP's tolerance may ask for limits that are infinite
        y = np.where(np.isfinite(np.where(y > 0.0, self._lower, self._upper)), y, 0.0)
        prices = MasterPrices(of_groups, y)
        cost, held = self.program.offset + found.cost, float(found.x[: 2 * groups].sum())
        return Optimum(cost, prices, of_blocks, found.x[self._first :], found.x[self._idle], held)

    def _hold(self, centre: FloatArray, width: float) -> None:
        """Hold prices of groups within a distance from a centre."""
        every = np.concatenate([self._short, self._over])
        self._lp.change_costs(every, np.concatenate([centre + width, width - centre]))

    def _cheapest_known(self, reduced: FloatArray) -> FloatArray:
        """Least reduced cost of the plans of every block so far, shape (n_blocks,)."""
        least = np.zeros(len(self.blocks.blocks))
        if self._taken:
            np.minimum.at(least, self._block_of, np.add.reduceat(reduced[self._columns], self._begins))
        return least

    def _within(self, case: Subproblem) -> BoolArray:
        """Mask of the plans that a case may take."""
        if not self._taken:
            return np.zeros(0, dtype=bool)
        within: BoolArray = np.logical_and.reduceat(case.keep[self._columns], self._begins)
        return within

    def relax(
        self,
        case: Subproblem,
        start: MasterPrices,
        enough: float,
        timer: Timer,
        rounds: int = _ROUNDS,
        near: float = _NEAR,
        *,
        exact: bool = True,
    ) -> tuple[MasterPrices, Optimum | None]:
        """Generate plans until the master's optimum of a case is near its bound, or that is `enough`.

        Prices of groups stay near the best ones as long as that raises the bound (Marsten, Hogan and
        Blankenship 1975, "The boxstep method for large-scale optimization"). Bounds and plans that
        need not be `exact` take a fraction of the time.

        Returns
        -------
        prices : MasterPrices
            The best ones.
        optimum : Optimum or None
            The master's last one; None where there was no time for one, or no need.
        """
        best, plans = self.priced(start, case, exact=exact)
        self.add(plans)
        optimum, width = None, near * self._unit
        for _ in range(rounds):
            if timer.over() or best.bound >= enough:
                break
            self._hold(best.of_groups, width)
            optimum = self.optimum(case, timer)
            if optimum is None:
                break
            better = optimum.cost - best.bound > _CLOSE * abs(best.bound)
            if better:
                best, better = self._separated(case, best, optimum, enough, exact=exact)
            if not better:
                if optimum.held <= FRACTIONAL or width > _FARTHEST * self._dear:
                    break
                width *= _WIDER
        return best, optimum

    def _separated(
        self, case: Subproblem, best: MasterPrices, optimum: Optimum, enough: float, *, exact: bool
    ) -> tuple[MasterPrices, bool]:
        """Add plans that better the master's optimum, at prices nearer and nearer to the master's.

        Returns the best prices, and whether there was such a plan, or the bound is `enough`.
        """
        reduced = self.reduced(optimum.prices)
        for weight in _WEIGHTS:
            found, plans = self.priced(optimum.prices.towards(best, weight), case, exact=exact)
            best = found if found.bound > best.bound else best
            self.add(plans)
            costs = [reduced[self.columns_of(p)].sum() - optimum.of_blocks[p.block] for p in plans]
            if min(costs, default=0.0) < -_BETTER * self._unit or best.bound >= enough:
                return best, True
        return best, False
