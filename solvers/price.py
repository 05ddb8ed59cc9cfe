r"""`price`: row prices first, then small MIPs over the columns that the prices leave in question.

1. Prices :math:`y` that nearly maximise the Lagrangian bound :math:`L(y)` (`dual`).
2. A point near the optimum of the LP relaxation (`core`), which often closes gaps of 1e-4.
3. Otherwise a *kernel*: the columns whose reduced cost is least above the least of their group. HiGHS solves
   it with all other columns at zero; a small one is often enough.
4. A decision along the efficient frontiers under these prices (`greedy`), bettered by a few groups at a time
   where there are many rows (neighbourhoods, in `kernels`), and larger kernels.
5. Reduced-cost fixing: with an incumbent of cost :math:`U`, a column whose reduced cost is more than
   :math:`U - L(y)` above its group's least is in no better decision. Once few columns are left, branch and
   bound over the choice groups closes the gap. Every node has an LP relaxation of its own (`kernels`), and
   columns that its prices fix.
   A round of many jobs has a small integrality gap unless a few of its jobs are lumpy: one such job, half
   running and half waiting, distorts the price of what it uses for all the others. Deciding the lumpy jobs
   first, largest difference of priced use first, leaves nodes whose prices are right. As long as that raises
   the bound, nothing else is done; then decisions are looked for, in the `core`, by `greedy` and in a kernel.
   Jobs that all save the same per use have no such job: of them the number that runs is decided first.
6. Racks with limits of their own, and few rows between them, are decided as wholes instead (`decomposition`).

Small programs are left to HiGHS, and those with jobs that share GPUs to `sizes`.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Literal

import numpy as np

from wattsched.formulations.program import Program
from wattsched.formulations.timer import Timer
from wattsched.formulations.tolerances import FRACTIONAL
from wattsched.solvers import core, greedy, highs, sizes, thresholds
from wattsched.solvers.blocks import Blocks
from wattsched.solvers.bottleneck import bottleneck_of
from wattsched.solvers.branching import halves
from wattsched.solvers.decomposition import Decomposition
from wattsched.solvers.dual import dual_prices
from wattsched.solvers.effort import spend
from wattsched.solvers.incumbent import Incumbent
from wattsched.solvers.kernels import Kernel, cheapest, fitting, improved, kernel, relaxed
from wattsched.solvers.proof import Tree
from wattsched.solvers.rows import linked_choices, with_row
from wattsched.solvers.sizes import Merged
from wattsched.solvers.solution import (
    Limits,
    Solution,
    Start,
    announce,
    infeasible,
)
from wattsched.topology.arrays import BoolArray, FloatArray

Step = Literal["glance", "grow", "finish"]

SMALL = 1_000
"""Up to this many columns HiGHS alone is faster than prices."""
LINKED = 20_000
"""That limit where choices are linked, as by sets, or integer columns are in no group, as in placement."""
KERNELS = (300, 3_000, 10_000, 30_000)
"""Columns besides each group's cheapest in the kernels, one after the other."""
FEW_COLUMNS = 2_000
"""HiGHS solves the rest without branching before, once fixing leaves at most this many columns."""
# Kernels stop growing once fixing leaves at most this many columns.
_MOST_COLUMNS = 30_000
# HiGHS's gap on a kernel, as a share of the gap asked for: a kernel's own bound is above the program's,
# so an answer that is good enough for the kernel need not be for the program.
_KERNEL_GAP = 0.1
_NODES = 30
# HiGHS's nodes on a kernel, its least gap on the first one, and the size of those of branching.
_KERNEL_NODES = 100
_FIRST_GAP = 1e-5
_NODE_KERNEL = 300
# Share of the time left for a kernel that does not hold all open columns.
_KERNEL_SHARE = 0.4
# Share of the time left for neighbourhoods.
_NEIGHBOURHOODS_SHARE = 0.8
# The same before blocks, where there are so many groups that the LP relaxation's gap may be small enough.
_BEFORE_BLOCKS, _MANY_GROUPS = 0.2, 250
# A node is searched for decisions only if its split raises the bound by less than this share of the gap.
_RAISED = 0.02
# Tolerance of the dual, as a share of the gap asked for, and its limits: rough prices mislead the kernels.
_DUAL_SHARE = 0.1
_DUAL_TOLERANCE = (1e-9, 1e-6)


def solve(
    program: Program,
    limits: Limits,
    start: Start | None = None,
    target: float = np.inf,
    steps: Sequence[Step] = ("glance", "grow", "finish"),
) -> Solution:
    """Solve by prices, kernels, reduced-cost fixing and branching; see the module's text.

    The solution's prices prove `Program.lagrangian_bound`; its bound may be better, by branching.

    Parameters
    ----------
    target : float
        Points that cost more are of no use: once it is proven that there are no others, nothing else is done.
    steps : sequence of str
        Done one after the other: ``glance`` near the LP relaxation's optimum and in the first kernel,
        ``grow`` to larger kernels, and ``finish`` by branching.
    """
    if (bottleneck := bottleneck_of(program)) is not None:
        return thresholds.solve(bottleneck, limits, start)
    # Linked choices, or other integers, are more to decide than a column of every group.
    if (merged := Merged.of(program)) is not None:
        return sizes.solve(program, merged, limits, start)
    linked = linked_choices(program).any() or program.integer[program.n_choices :].any()
    if program.n_columns <= (LINKED if linked else SMALL):
        return highs.solve(program, limits, start)
    timer = Timer(limits.time_s)
    start = start or Start()
    search = _Search(program, limits, timer, target)
    search.offer(start.x)
    least, most = _DUAL_TOLERANCE
    tolerance = min(max(_DUAL_SHARE * limits.gap, least), most)
    prices, bound = dual_prices(program, timer.remaining_s(), tolerance, start.prices, search.bound_asked())
    if bound == np.inf:
        return infeasible(prices, "the LP relaxation is infeasible")
    search.take_prices(prices, bound)
    announce(bound, prices, search.x, None if search.x is None else search.objective, at_root=True)
    for step in steps:
        getattr(search, step)()
    return search.conclude()


class _Search(Incumbent):
    """Steps that look for points among columns of little reduced cost, and raise the bound.

    Its `prices` prove the bound `priced`, and by them choice columns cost `_above` their group's least; `x`
    is the best point, and `bound` the best bound, so far.
    """

    def __init__(self, program: Program, limits: Limits, timer: Timer, target: float) -> None:
        super().__init__(program, limits, timer, target)
        self._program = program
        self._proof: Tree | None = None

    def take_prices(self, prices: FloatArray, bound: float) -> None:
        """Take prices, the bound that they prove, and the reduced costs."""
        super().take_prices(prices, bound)
        self._above = self._program.above_least(prices)

    def glance(self) -> None:
        """Look for a point near the LP relaxation's optimum, and in the first kernel."""
        if not self.done() and core.fits(self._program) and (lp := self._relax()) is not None:
            self.offer(core.search(self._program, lp, self.enough(self.bound)))
        if not self.done():
            # Very few columns are often enough, and cost next to nothing.
            size = max(KERNELS[0], self._program.n_groups // 10)
            self._improve(self._cheapest(size), nodes=_KERNEL_NODES, gap=_FIRST_GAP)

    def grow(self) -> None:
        """Improve the best point by blocks, or else by kernels until few columns are open."""
        if not self.done() and (blocks := Blocks.of(self._program)) is not None:
            self._branch_over(blocks)
            return
        first_kernel_failed = self.x is None
        if not self.done() and self._open_columns() > _MOST_COLUMNS:
            self.offer(greedy.ascend(self._program, self.prices, self.timer))
            if not core.fits(self._program):  # with few rows kernels are enough, and sooner
                self._search_neighbourhoods()
        for size in KERNELS if first_kernel_failed else KERNELS[1:]:
            if self.done() or self._open_columns() <= _MOST_COLUMNS:
                break
            self._improve(self._cheapest(size), nodes=_KERNEL_NODES)

    def _branch_over(self, blocks: Blocks) -> None:
        """Branch over the plans of blocks; the time that this leaves is for verifying its proof."""
        self.offer(greedy.ascend(self._program, self.prices, self.timer))
        if self._program.n_groups > _MANY_GROUPS:
            self._search_neighbourhoods(_BEFORE_BLOCKS)
        if not self.done():
            decomposition = Decomposition(blocks, self, self.prices)
            self._proof, self.cut = decomposition.run(), decomposition.timer.over()

    def done(self) -> bool:
        """True if nothing is left to do, as after branching over blocks."""
        return self._proof is not None or super().done()

    def conclude(self) -> Solution:
        """Solution as it stands, with the proof of a bound by blocks."""
        return replace(super().conclude(), proof=self._proof)

    def finish(self) -> None:
        """Branch, and solve what is open."""
        if not self.done() and (self._open_columns() > FEW_COLUMNS or core.fits(self._program)):
            rest = kernel(self._program, self._open())
            self.raise_bound(_Branching(self, rest).branch(self.bound, self.prices))
        if not self.done():
            self._improve(self._open())

    def _search_neighbourhoods(self, share: float = _NEIGHBOURHOODS_SHARE) -> None:
        """Better the best point by a few groups at a time, for a share of the time that is left."""
        if self.x is not None and not self.done():
            timer, target = self.timer.share(share), self.enough(self.bound)
            for x in improved(self._program, self.prices, self.x, target, timer):
                self.offer(x)

    def _relax(self) -> Solution | None:
        """Optimum of the LP relaxation, whose prices are taken; None where there was no time for it."""
        lp = relaxed(self._program, self.prices, self.timer)
        if lp.x is None or lp.prices is None:
            return None
        self.take_prices(lp.prices, lp.bound)
        return lp

    def _cheapest(self, size: int) -> BoolArray:
        """Every group's cheapest column, about `size` others, and those of the best point."""
        return self._with_best(cheapest(self._above, self._program.n_groups + size))

    def _open(self) -> BoolArray:
        """Mask of the columns that a better decision may use, and of those of the best one.

        Their margin is measured from the bound of the same prices (`priced`), which may be below `bound`.
        """
        return self._with_best(self._above <= self.margin(self.priced))

    def _open_columns(self) -> int:
        return int(np.count_nonzero(self._open())) - self._program.n_groups

    def _with_best(self, keep: BoolArray) -> BoolArray:
        return keep if self.x is None else keep | (self.x[: len(keep)] > 0.5)

    def _improve(self, keep: BoolArray, nodes: int | None = None, gap: float = 0.0) -> None:
        """Let HiGHS look for a better point among the columns of a mask, within a number of its nodes.

        If these include all open ones, its bound holds for the program, too.
        """
        complete = not np.any(self._open() & ~keep)
        gap = max(gap, self.limits.gap * (1.0 if complete else _KERNEL_GAP))
        timer = self.timer if complete else self.timer.share(_KERNEL_SHARE)
        limits = replace(self.limits, gap=gap, time_s=timer.remaining_s(), nodes=nodes)
        target = self.enough(self.bound)
        answer = kernel(self._program, keep).by_highs(limits, self.x, target, part=not complete)
        self.offer(answer.x)
        if complete and answer.termination.reason == "error":
            self.failure = answer.termination.detail
        elif complete:
            # An infeasible rest: nothing is better than the best point, or there is nothing at all.
            self.raise_bound(answer.bound)


class _Branching:
    """Best-first branch and bound over the columns of `_part`, for points that are better than the best one.

    `_nodes` is a heap of those to split, `_leaf_bound` the least bound of those that are not split further.
    """

    def __init__(self, search: _Search, part: Kernel) -> None:
        self._search = search
        self._part = part
        self._numbers = count()
        self._nodes: list[_Node] = []
        self._leaf_bound = np.inf

    def branch(self, bound: float, prices: FloatArray) -> float:
        """Split nodes until the gap is closed, time is up, or `_NODES` of them were split.

        The bound is the one that the prices prove of all columns. Returns a lower bound on the cost of every
        point that is better than all known ones; inf when none exists.
        """
        everything = np.ones(self._part.program.n_choices, dtype=bool)
        root = self._bounded(self._part.program, everything, bound, prices)
        for node in self._by_count(root) or [root]:
            self._push(node)
        for _ in range(_NODES):
            if not self._nodes or self._search.timer.over() or not self._worth(self._nodes[0].bound):
                break
            self._split(heapq.heappop(self._nodes))
        return min([self._leaf_bound, *(node.bound for node in self._nodes)])

    def _by_count(self, root: _Node) -> list[_Node]:
        """Return nodes with fewer and more groups that use any row; none where their number is whole.

        As many as fit may leave room for few columns, which the prices of costs do not tell: a third node.
        """
        program, lp = root.small.program, root.lp
        if lp.x is None or lp.prices is None:
            return []
        using = np.diff(program.matrix.indptr)[: program.n_choices] > 0
        number = float(lp.x[: program.n_choices][using].sum())
        if abs(number - np.round(number)) <= FRACTIONAL:
            return []
        counted, most = partial(with_row, self._part.program, using), np.floor(number)
        fits = root.keep & fitting(counted(most, most), self._search.timer)
        cases = [((-np.inf, most), root.keep), ((most + 1.0, np.inf), root.keep)]
        if np.count_nonzero(fits) - program.n_groups <= _NODE_KERNEL:
            cases[:1] = [((-np.inf, most - 1.0), root.keep), ((most, most), fits)]
        prices, groups = np.append(lp.prices, 0.0), program.group_start[:-1]
        return [
            self._bounded(counted(*limits), keep, root.bound, prices)
            for limits, keep in cases
            if np.logical_or.reduceat(keep, groups).all()
        ]

    def _worth(self, bound: float) -> bool:
        """True if a node of that bound may hold a point that is better by more than the gap."""
        best = self._search.objective
        better = not np.isfinite(best) or bound < best - self._search.limits.gap * abs(best)
        return better and bound <= self._search.target

    def _push(self, node: _Node) -> None:
        if node.bound < np.inf:
            heapq.heappush(self._nodes, node)

    def _bounded(self, program: Program, keep: BoolArray, bound: float, prices: FloatArray) -> _Node:
        """Build a node of some columns and solve its relaxation; bound and prices are those of its parent."""
        small = kernel(program, keep)
        lp = relaxed(small.program, prices, self._search.timer)
        return _Node(max(bound, lp.bound), next(self._numbers), program, keep, small, lp)

    def _split(self, node: _Node) -> None:
        """Replace a node by two halves; where the bound hardly rises, also look for decisions in it."""
        spend(nodes=1)
        small, lp = node.small, node.lp
        if lp.x is None or lp.prices is None:  # time ran out
            self._leaf_bound = min(self._leaf_bound, node.bound)
            return
        everything = np.ones(small.program.n_choices, dtype=bool)
        if (sides := next(halves(small.program, everything, lp.x, lp.prices), None)) is None:
            # The relaxation is a decision, and nothing in the node is better.
            self._offer(small, lp.x)
            self._leaf_bound = min(self._leaf_bound, node.bound)
            return
        # No better point uses these: reduced-cost fixing by the node's own prices.
        too_dear = small.program.above_least(lp.prices) > self._search.margin(lp.bound)
        children = []
        for excluded in reversed(sides):  # the first child has the cheaper columns
            keep = node.keep.copy()
            keep[small.columns[excluded]] = False
            keep[small.columns[: len(too_dear)][too_dear]] = False
            # A child in which some group has no column left is empty.
            if np.all(np.logical_or.reduceat(keep, self._part.program.group_start[:-1])):
                children.append(self._bounded(node.program, keep, node.bound, lp.prices))
        raised = min((child.bound for child in children), default=np.inf) - node.bound
        bound = node.bound
        if raised < _RAISED * self._search.limits.gap * abs(bound):
            bound = self._decide(small, lp, bound)
        for child in children:
            self._push(replace(child, bound=max(child.bound, bound)))

    def _offer(self, small: Kernel, x: FloatArray | None) -> None:
        self._search.offer(None if x is None else self._part.lift(small.lift(x)))

    def _decide(self, small: Kernel, lp: Solution, bound: float) -> float:
        """Offer decisions of a node: near its relaxation, by greed, and by a MIP over its cheapest columns.

        Returns the node's bound, raised to the MIP's if that has all columns of better points.
        """
        inner, search = small.program, self._search
        assert lp.prices is not None
        if core.fits(inner):
            self._offer(small, core.search(inner, lp, search.enough(bound)))
            if not self._worth(bound):
                return bound
        x = greedy.ascend(inner, lp.prices, search.timer)
        self._offer(small, x)
        if not self._worth(bound) or inner.n_groups == 0:
            return bound
        above = inner.above_least(lp.prices)
        keep = cheapest(above, inner.n_groups + _NODE_KERNEL)
        if x is not None:
            keep |= x[: len(keep)] > 0.5
        complete = not np.any((above <= search.margin(lp.bound)) & ~keep)
        gap = search.limits.gap
        limits = Limits(gap=gap, time_s=search.timer.remaining_s(), nodes=_KERNEL_NODES)
        answer = kernel(inner, keep).by_highs(limits, x, bound + gap * abs(bound), part=not complete)
        self._offer(small, answer.x)
        return max(bound, min(search.objective, answer.bound)) if complete else bound


@dataclass(order=True)
class _Node:
    """Node of the search: the columns it keeps, their kernel `small`, its LP relaxation and its bound."""

    bound: float
    number: int
    program: Program = field(compare=False)
    keep: BoolArray = field(compare=False)
    small: Kernel = field(compare=False)
    lp: Solution = field(compare=False)
