r"""Dantzig-Wolfe decomposition by blocks: plans of racks as columns, and branching on what jobs do.

The master's integrality gap (`plans`) is far below that of the program's LP relaxation, as no rack takes a
part of a job (Savelsbergh 1997, "A branch-and-price algorithm for the generalized assignment problem").
Decisions come from diving: plans that the master takes most of are fixed, and others are generated for what
is left; then from freeing the plans of a few blocks of the best decision. Nodes split a group between the
columns of one block, or a single one, and all its others. The tree and its prices are the proof.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

import numpy as np

from wattsched.formulations.timer import Timer
from wattsched.formulations.tolerances import FRACTIONAL
from wattsched.solvers.blocks import Blocks
from wattsched.solvers.effort import spend
from wattsched.solvers.plans import Master, MasterPrices, Optimum, Plan, Subproblem
from wattsched.solvers.proof import Choices, Node, Tree
from wattsched.solvers.tree import MOST_NODES
from wattsched.topology.arrays import FloatArray, IntArray

# Share of the time in which the search ends: the proof is verified in the rest.
_SEARCHING = 0.9
# Share of the time for the root before the first dive.
_ROOT_SHARE = 0.25
# Rounds of new plans after each step of a dive, and how far prices of groups may go there.
_ROUNDS, _AROUND = 5, 1.0
# Of so many nodes one is dived from.
_DIVE_EVERY = 5
# Plans that are taken so much are fixed together, and of the others one of so many that are left.
_NEARLY, _FIXED = 0.9, 12
# Share of the time that is left for a dive.
_DIVE_SHARE = 0.7
# Blocks whose plans are freed together, and how often before the first node if its prices are not the best.
_FREED, _BETTERED = 3, 8
# Splits that are compared, and the least that a side counts for, of what there is to gain.
_CANDIDATES = 5
_LEAST_GAIN = 1e-3


class Search(Protocol):
    """A search holds what is known of a program, and how good it is to be (`incumbent.Incumbent`)."""

    x: FloatArray | None
    objective: float
    timer: Timer

    def offer(self, x: FloatArray | None) -> None:
        """Take a point if it is feasible and better."""

    def raise_bound(self, proven: float) -> None:
        """Take a bound on all points better than the best one."""

    def bound_asked(self) -> float:
        """Bound that closes the gap of the best point; infinite without one."""


@dataclass(order=True)
class _Open:
    """A node to be split: its number in the tree, its case, best prices and the master's optimum there."""

    bound: float
    number: int
    case: Subproblem = field(compare=False)
    prices: MasterPrices = field(compare=False)
    optimum: Optimum = field(compare=False)


class Decomposition:
    """Branch and price over blocks for the best point and bound of a search, from prices of the rows.

    Its `timer` leaves a part of the search's time for verifying the proof.
    """

    def __init__(self, blocks: Blocks, search: Search, prices: FloatArray) -> None:
        self._blocks, self._search, self._master = blocks, search, Master(blocks)
        self.timer = search.timer.share(_SEARCHING)
        self._program = program = blocks.program
        reduced = program.cost - program.matrix.T @ prices
        least = np.minimum.reduceat(reduced, program.group_start[:-1])
        self._prices = MasterPrices(least, prices[blocks.linking])
        self._nodes, self._tree = list[_Open](), list[Node]()
        # The least bound of nodes that are not split any further.
        self._left = np.inf
        self._rng = np.random.default_rng(0)

    def run(self) -> Tree:
        """Branch until the gap is closed or time is up; returns the proof of the bound."""
        search, root = self._search, Subproblem(np.ones(self._program.n_columns, dtype=bool))
        timer = self.timer.share(_ROOT_SHARE)
        started, _ = self._master.relax(root, self._prices, search.bound_asked(), timer)
        self._prices, self._tree = started, [self._leaf(started)]
        search.raise_bound(started.bound)
        # Without the time for good prices there is none for the best plans, either; few of them are bettered.
        converged = not timer.over()
        self._dive(root, started, exact=converged)
        for _ in range(0 if converged else _BETTERED):
            self._free_some()
        self._open(0, root, started, started.bound)
        for number in count(1):
            search.raise_bound(self._bound())
            if not self._nodes or self.timer.over() or self._bound() >= search.bound_asked():
                break
            if len(self._tree) >= MOST_NODES:
                break
            node = heapq.heappop(self._nodes)
            self._prices = node.prices
            if number % _DIVE_EVERY == 0:
                self._dive(node.case, node.prices)
            self._free_some()
            if node.bound < search.bound_asked():
                self._split(node)
            else:
                self._left = min(self._left, node.bound)
        return Tree(self._tree, self._bound())

    def _bound(self) -> float:
        return min([self._left, *(node.bound for node in self._nodes[:1])])

    def _leaf(self, prices: MasterPrices) -> Node:
        of_rows = np.zeros(self._program.n_rows)
        of_rows[self._blocks.linking] = prices.of_rows
        return Node(of_rows, of_groups=prices.of_groups)

    def _open(self, number: int, case: Subproblem, prices: MasterPrices, bound: float) -> None:
        """Solve a node's relaxation, and keep the node if a point there may be better than the best one.

        Parameters
        ----------
        prices : MasterPrices
            With which the node is in the tree, and which prove `bound` of its parent.
        """
        spend(nodes=1)
        search = self._search
        found, optimum = self._master.relax(case, prices, search.bound_asked(), self.timer)
        if found.bound > bound:
            bound, self._tree[number] = found.bound, self._leaf(found)
        if bound >= search.bound_asked() or optimum is None:
            self._left = min(self._left, bound)
        else:
            heapq.heappush(self._nodes, _Open(bound, number, case, found, optimum))

    def _split(self, node: _Open) -> None:
        """Replace a node by two, in which a group takes some of its columns, or others."""
        best = max(self._splits(node), key=lambda split: split[0], default=None)
        if best is None:
            self._search.offer(self._point(node.optimum))
            self._left = min(self._left, node.bound)
            return
        _, columns, others = best
        above = self._tree[node.number]
        above.split = Choices(columns, others)
        above.inside, above.outside = len(self._tree), len(self._tree) + 1
        self._tree += [self._leaf(node.prices), self._leaf(node.prices)]
        for number, excluded in ((above.inside, others), (above.outside, columns)):
            keep = node.case.keep.copy()
            keep[excluded] = False
            self._open(number, node.case._replace(keep=keep), node.prices, node.bound)

    def _splits(self, node: _Open) -> Iterator[tuple[float, IntArray, IntArray]]:
        """Yield by how much splits raise the cost, and columns of a group that are left, inside and outside.

        What both sides raise is multiplied (Achterberg 2007, "Constraint Integer Programming"); it is that of
        the master over the plans so far.
        """
        keep, search = node.case.keep, self._search
        missing = min(search.bound_asked(), search.objective) - node.bound
        missing = missing if np.isfinite(missing) else abs(node.bound)
        for inside in self._candidates(node):
            group = self._master.group[inside[0]]
            first, end = self._program.group_start[group : group + 2]
            left = first + np.flatnonzero(keep[first:end])
            within = np.isin(left, inside)
            columns, others = left[within], left[~within]
            if not len(columns) or not len(others):
                continue
            raised = 1.0
            for excluded in (others, columns):
                side = keep.copy()
                side[excluded] = False
                found = self._master.optimum(node.case._replace(keep=side), self.timer)
                gain = missing if found is None else found.cost - node.bound
                raised *= float(np.clip(gain, _LEAST_GAIN * missing, missing))
            yield raised, columns, others

    def _candidates(self, node: _Open) -> list[IntArray]:
        """Columns of a group that take a part of it, in all copies of a block, the nearest to one half first.

        They are all of the group's in the block, or an idle one; single ones of blocks only where all groups
        are whole by block.
        """
        share, found = np.zeros(self._program.n_columns), list[tuple[float, IntArray]]()
        for taken, plan in zip(node.optimum.taken, self._master.plans, strict=False):
            share[self._master.columns_of(plan)] += taken
        near = np.minimum(node.optimum.idle, 1.0 - node.optimum.idle)
        idle = np.flatnonzero(near > FRACTIONAL).tolist()
        found += [(float(near[i]), self._blocks.idle[[i]]) for i in idle]
        for alone in (False, True):
            for block in self._blocks.blocks:
                part = np.arange(len(block.group)) if alone else block.group
                taken = np.bincount(part, share[block.columns[0]])
                near = np.minimum(taken, 1.0 - taken)
                found += [
                    (float(near[i]), block.columns[:, part == i].ravel())
                    for i in np.flatnonzero(near > FRACTIONAL).tolist()
                ]
            if found:
                break
        found.sort(key=lambda one: -one[0])
        return [columns for _, columns in found[:_CANDIDATES]]

    def _dive(self, case: Subproblem, prices: MasterPrices, *, exact: bool = True) -> None:
        """Fix plans that are nearly taken, and generate others for what is left, until all is decided.

        It ends early where nothing in the case seems better than the best point, or without time.
        """
        master, search, optimum = self._master, self._search, None
        left_s, began_s = self.timer.remaining_s(), self.timer.elapsed_s()
        for steps in count(1):
            prices, found = master.relax(case, prices, np.inf, self.timer, _ROUNDS, _AROUND, exact=exact)
            optimum = found or optimum
            most = 1.0 / _FIXED
            if left_s is not None:  # as many at a time as the steps to come allow
                step_s = (self.timer.elapsed_s() - began_s) / steps
                most = max(most, step_s / max(1e-9, _DIVE_SHARE * left_s - steps * step_s))
            if self.timer.over() or found is None or prices.bound >= search.objective:
                break
            if not (fixed := self._to_fix(case, found, min(1.0, most))):
                break
            case = self._with_plans(case, fixed)
        if optimum is not None:
            search.offer(self._point(optimum))

    def _to_fix(self, case: Subproblem, optimum: Optimum, share: float) -> dict[int, int]:
        """Numbers of plans that a dive fixes next, and how often; none where all are whole.

        Those that are nearly taken, or a share of the plans that are left, the most taken ones.
        """
        free, master = optimum.taken.copy(), self._master
        free[list(case.taken)] -= list(case.taken.values())
        left = np.array([block.copies for block in self._blocks.blocks])
        for number, times in case.taken.items():
            left[master.plans[number].block] -= times
        most, fixed, decided = 1 + int(share * left.sum()), dict[int, int](), set[int]()
        for number in np.argsort(-free, kind="stable").tolist():
            if free[number] <= FRACTIONAL or (free[number] < _NEARLY and len(fixed) >= most):
                break
            groups, of = set(master.groups_of(number).tolist()), master.plans[number].block
            times = min(int(left[of]), max(1, int(free[number] + FRACTIONAL)))
            if times and not groups & decided:
                fixed[number] = times
                decided |= groups
                left[of] -= times
        return fixed

    def _with_plans(self, case: Subproblem, plans: Mapping[int, int]) -> Subproblem:
        """Subproblem in which plans are taken, so often, too: nothing is left for their groups to decide."""
        taken, decided = dict(case.taken), np.zeros(self._program.n_groups, dtype=bool)
        for number, times in plans.items():
            taken[number] = taken.get(number, 0) + times
            decided[self._master.groups_of(number)] = True
        return case._replace(keep=case.keep & ~decided[self._master.group], taken=taken)

    def _free_some(self) -> None:
        """Free the plans of some blocks of the best point, and dive for others among what waits."""
        if (x := self._search.x) is None or self.timer.over():
            return
        plans = self._master.numbers(
            [
                Plan(number, places)
                for number, block in enumerate(self._blocks.blocks)
                for columns in block.columns
                if len(places := np.flatnonzero(x[columns] > 0.5))
            ]
        )
        kept = self._rng.permutation(plans)[_FREED:].tolist()
        taken = {number: kept.count(number) for number in sorted(set(kept))}
        everything = Subproblem(np.ones(self._program.n_columns, dtype=bool))
        self._dive(self._with_plans(everything, taken), self._prices)

    def _point(self, optimum: Optimum) -> FloatArray:
        """Point of the program from plans that are taken by more than a half; other groups are idle."""
        program, idle = self._program, self._blocks.idle
        x, copies = np.zeros(program.n_columns), np.zeros(len(self._blocks.blocks), dtype=np.int64)
        for taken, plan in zip(np.round(optimum.taken).tolist(), self._master.plans, strict=False):
            for _ in range(int(taken)):
                if copies[plan.block] < self._blocks.blocks[plan.block].copies:
                    x[self._master.columns_of(plan, copies[plan.block])] = 1.0
                    copies[plan.block] += 1
        waiting = idle[np.lexsort((program.cost[idle], -np.round(optimum.idle)))]
        groups, first = np.unique(self._master.group[waiting], return_index=True)
        lacking = np.add.reduceat(x, program.group_start[:-1])[groups] == 0.0
        x[waiting[first[lacking]]] = 1.0
        return x
