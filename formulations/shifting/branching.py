"""Branch and price for small horizons: decisions whose optimality a certificate tree proves.

A node allows each job some of its schedules. Its LP proposes prices; the least cost of every job at these,
which the checker's dynamic program finds, bounds the node and has the schedules that the LP lacks (Barnhart,
Johnson, Nemhauser, Savelsbergh and Vance 1998, "Branch-and-price"). A node is a leaf where its bound reaches
the cost of the best decision. Others are split where the LP mixes schedules of a job: by when it ends, or by
what it runs in a slot; of some such splits the one that is best by the schedules known so far.

Where few schedules cost so little that a better decision could have them, a node is first split into
decisions of such schedules and all others, which the node's prices prove. From there on schedules are listed,
and neither priced nor generated (Baldacci, Christofides and Mingozzi 2008, "An exact algorithm for the
vehicle routing problem based on the set partitioning formulation with additional cuts").
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from wattsched.formulations.counts import Cases
from wattsched.formulations.shifting.column_generation import MasterSolution, ScheduleMaster
from wattsched.formulations.shifting.columns import (
    Prices,
    SchedulePool,
    Schedules,
    amounts,
    decision_of,
    fits,
    follow,
    is_valid,
    least_of_jobs,
    never_run,
    prices_of,
    schedules_of,
)
from wattsched.formulations.shifting.data import OBJECTIVES, PAUSE, Horizon
from wattsched.formulations.shifting.scenarios import Data, Scenarios
from wattsched.formulations.timer import Timer
from wattsched.formulations.tolerances import FRACTIONAL
from wattsched.instances.shifting.decision import ShiftingDecision
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray
from wattsched.verification.report import charges
from wattsched.verification.shifting.bound import PricedInstance, Prover, levels_of
from wattsched.verification.shifting.least_cost import Listed, Listing, TooManyError
from wattsched.verification.shifting.priced import allowed_by, is_on_side, listing_of, lists
from wattsched.verification.tree import Taken

MOST_CELLS = 30_000
"""Jobs by slots by options up to which horizons are small."""
MOST_NODES = 2_000
PER_JOB = 100
"""Schedules of a job to begin with."""
MOST_ROUNDS = 60
"""Rounds of column generation in a node."""
_CLOSED, _EARLY = 1e-7, 0.1
"""Gap between a node's LP and its bound, relative to the LP, or to what is missing, at which rounds end."""
_SMOOTHING = 0.5
_MOST_RAISES = 6
_EXCESS = 1e-3
"""Least excess of bounds over the dearest decision where there is none, relative to it."""
_LEAST_GAIN = 1e-6
"""Gain of a split, relative to the target, that counts at least."""
_BETWEEN = (0.45, 0.9)
"""Shares of the way between two ends at which to split.

On the outside earlier ends count as ends at the split: late ones help.
"""


class _Priced(NamedTuple):
    """Prices, least costs of all jobs at them, the bound these prove, and schedules that cost so much."""

    prices: Prices
    least: list[float]
    bound: float
    schedules: Schedules


@dataclass(order=True)
class _Node:
    """A node that is no leaf yet: what bounds it, and the splits that lead to it."""

    bound: float
    number: int
    priced: _Priced = field(compare=False)
    taken: tuple[Taken, ...] = field(compare=False, default=())

    def learn(self, priced: _Priced) -> bool:
        """Take prices that prove more; return whether they do."""
        better = priced.bound > self.bound
        if better:
            self.bound, self.priced = priced.bound, priced
        return better


def branch(
    horizon: Data,
    objective: str,
    decision: ShiftingDecision | None,
    gap: float,
    timer: Timer,
    columns: Schedules | None = None,
    prices: Mapping[str, float] | None = None,
    most: float = math.inf,
) -> Cases[ShiftingDecision] | None:
    """Prove that a decision is optimal, or find better ones and prove these.

    None for horizons that are too large, and for scenarios, whose certificate trees count.

    Parameters
    ----------
    decision : ShiftingDecision, optional
        A valid one; None to find one, or prove that there is none.
    gap : float
        Relative gap that is to be proven.
    columns : Schedules, optional
        Good ones, of each job the cheapest first.
    prices : mapping of str to float, optional
        Good ones, by row.
    most : float, optional
        Slots of jobs after whose pricing to stop: some thousands take a second.
    """
    if isinstance(horizon, Scenarios):
        return None
    known = None if decision is None else schedules_of(horizon, decision)
    cells = sum(len(horizon.options_of(job)) for job in range(horizon.n_jobs)) * horizon.slots
    if (known is None and decision is not None) or not horizon.n_jobs or cells > MOST_CELLS:
        return None
    search = _Branching(horizon, OBJECTIVES.index(objective), known, gap, timer, most)
    if columns is not None:
        search.begin_with(columns)
    try:
        return search.run(prices or {})
    except RuntimeError:  # an LP that HiGHS does not solve leaves nothing proven
        return None


class _Branching:
    """One search; its nodes and schedules grow.

    Attributes
    ----------
    offset : float
        What idle GPUs add to the objective; costs of the LP are without it.
    best, value, improved
        Best decision, its objective, infinite without one, and whether it is better than the one to begin
        with.
    nodes : list of dict
        Of the certificate's tree.
    listed : dict
        By number of a node split by a listing the listing, and its schedules' numbers in the pool.
    raised, priced_slots, most
        Raises of the LP's limits of prices; slots of jobs priced, and how many of them at most.
    ends_cost : bool
        Whether completion times count, or have a budget.
    """

    def __init__(
        self, horizon: Horizon, objective: int, known: Schedules | None, gap: float, timer: Timer, most: float
    ):
        self.horizon, self.objective, self.gap, self.timer = horizon, objective, gap, timer
        self.prover, self.offset = Prover(horizon.instance), float(horizon.idle_use[objective])
        idle = never_run(horizon, np.arange(horizon.n_jobs))
        self.best = idle if known is None else known
        self.value, self.improved = math.inf if known is None else self._value(known), False
        self.pool, self.master = SchedulePool(), ScheduleMaster(horizon, objective, self.best)
        for schedules in (self.best, idle):
            self.master.add(self.pool.add(schedules))
        self.nodes: list[dict[str, Any]] = [{}]
        self.listed: dict[int, tuple[Listing, IntArray]] = {}
        self.raised, self.priced_slots, self.most = 0, 0, most
        self.ends_cost = objective == 0 or 0 in horizon.limited

    def begin_with(self, columns: Schedules) -> None:
        """Take some schedules of every job."""
        rank = np.arange(len(columns)) - np.searchsorted(columns.job, columns.job)
        some = np.flatnonzero((rank < PER_JOB) & np.isfinite(columns.finish_s))
        self.master.add(self.pool.add(columns.take(some)))

    def _value(self, decision: Schedules) -> float:
        return float(amounts(self.horizon, decision)[self.objective])

    @property
    def over(self) -> bool:
        """True if time or work have run out."""
        return self.priced_slots > self.most or self.timer.over()

    @property
    def target(self) -> float:
        """Bound that a leaf has to reach; without a decision, more than any could cost."""
        if math.isinf(self.value):
            return self.prover.dearest + _EXCESS * max(1.0, abs(self.prover.dearest))
        return self.value - self.gap * abs(self.value)

    def run(self, prices: Mapping[str, float]) -> Cases[ShiftingDecision]:
        """Split the node of least bound until all reach the target, or nodes or time run out."""
        root = _Node(-math.inf, 0, self._price(self.master.solve().prices, ()))
        root.learn(self._price(prices_of(self.horizon, self.objective, prices), ()))
        left, leaves = [root], list[_Node]()
        while left and left[0].bound < self.target:
            if len(self.nodes) + 2 > MOST_NODES or self.over:
                break
            node = heapq.heappop(left)
            split = self._solve(node)
            if split is None:
                leaves.append(node)
            else:
                for child in self._children(node, split):
                    heapq.heappush(left, child)
        leaves += left
        for node in leaves:
            self.nodes[node.number] = {"prices": self._named(node.priced.prices)}
        decision = decision_of(self.horizon, self.best) if self.improved else None
        return Cases(self.nodes, self._named(root.priced.prices), min(n.bound for n in leaves), decision)

    def _named(self, prices: Prices) -> dict[str, float]:
        return prices.named(self.horizon, self.objective)

    def _price(self, prices: Prices, taken: Sequence[Taken], above: _Priced | None = None) -> _Priced:
        """Find least costs at prices under splits; given those above, only of the last split's job."""
        horizon, instance = self.horizon, self.horizon.instance
        charged, _ = charges(self._named(prices), self.prover.limits, (), "min")
        if (last := listing_of(taken)) is not None:
            listing, _ = self.listed[taken[last].node]
            least = self.prover.least_listed(listing, PricedInstance(instance, charged), taken)
            self.priced_slots += horizon.n_jobs
            return _Priced(prices, least, self._bound(charged, least), never_run(horizon, np.arange(0)))
        allowed, priced = allowed_by(instance, taken), PricedInstance(instance, charged)
        least = [-math.inf] * horizon.n_jobs if above is None else list(above.least)
        found = []
        for number in range(horizon.n_jobs) if above is None else [self._job(taken[-1].split)]:
            if self.over:
                # What is known from above still holds.
                break
            job = instance.jobs[number]
            one = priced.least_cost(job, allowed.get(job.name))
            self.priced_slots += max(1, one.end - one.job.first)
            least[number] = one.bound(levels_of(one.size, MOST_CELLS, leaf=bool(taken)))
            if math.isfinite(one.known):
                start = horizon.option_start[horizon.table[number]]
                found.append((number, np.where(one.option == PAUSE, PAUSE, start + one.option)))
        jobs, options = zip(*found, strict=True) if found else ((), np.zeros((0, horizon.slots)))
        schedules = follow(horizon, np.array(jobs, dtype=np.int64), np.array(options, dtype=np.int64))
        schedules = self._delayed(schedules.take(np.flatnonzero(np.isfinite(schedules.finish_s))), taken)
        return _Priced(prices, least, self._bound(charged, least), schedules)

    def _bound(self, charged: Mapping[str, float], least: list[float], within: float = 0.0) -> float:
        """Bound on decisions in which some job costs at least `within` more than its least."""
        if math.inf in least:
            return math.inf
        bound = self.prover.together(charged, least, within).bound
        return -math.inf if bound is None else bound

    def _delayed(self, schedules: Schedules, taken: Sequence[Taken]) -> Schedules:
        """Schedules whose ends count as late as splits have them on their outside, as in leaves."""
        finish_s, criteria = schedules.finish_s.copy(), schedules.criteria.copy()
        for split, inside, _ in taken:
            if "ends_by_s" in split and not inside:
                own = schedules.job == self._job(split)
                finish_s[own] = np.maximum(finish_s[own], split["ends_by_s"])
        criteria[:, 0] += self.horizon.share[schedules.job] * (finish_s - schedules.finish_s)
        return Schedules(schedules.job, schedules.option, criteria, finish_s)

    def _solve(self, node: _Node) -> dict[str, Any] | None:
        """Generate schedules and prices of a node; return its split, None where it needs or has none."""
        if (split := self._list(node)) is not None:
            return split
        listed = listing_of(node.taken) is not None
        smoothing = _SMOOTHING if node.taken and not listed else 0.0
        solution = self._lp(node.taken)
        for _ in range(MOST_ROUNDS):
            if self.over:
                return None
            too_little = not solution.exceeds and solution.cost + self.offset < self.target
            if node.taken and not listed and too_little:
                # No prices prove a node of which so little is known to cost too little.
                self._round(solution)
                if (split := self._split(node, solution)) is not None:
                    return split
            priced = self._price(node.priced.prices.mixed(solution.prices, smoothing), node.taken)
            node.learn(priced)
            if node.bound >= self.target:
                return None
            new = self.pool.add(priced.schedules)
            self.master.add(new)
            solution = self._lp(node.taken)
            self._round(solution)
            cost = solution.cost + self.offset
            missing = max(_CLOSED * abs(cost), _EARLY * (self.target - cost))
            if cost - node.bound <= missing or (not len(new) and smoothing == 0.0):
                if not solution.exceeds or self.raised == _MOST_RAISES:
                    break
                self.raised += 1
                self.master.raise_limits()
                solution = self._lp(node.taken)
            smoothing = _SMOOTHING if len(new) else 0.0
        return (None if listed else self._list(node)) or self._split(node, solution)

    def _list(self, node: _Node) -> dict[str, Any] | None:
        """Split off decisions of schedules that a better one could have, if these are few; list them."""
        slack = self.target - node.bound
        if not 0 < slack < math.inf or listing_of(node.taken) is not None:
            return None
        split = {"prices": self._named(node.priced.prices), "within": slack * (1 + _CLOSED)}
        try:
            listing = self.prover.listing(split, node.taken)
        except TooManyError:
            return None
        finally:
            self.priced_slots += self.horizon.n_jobs * self.horizon.slots
        if self._bound(listing.charged, listing.least, listing.within) < self.target:
            return None
        schedules = Schedules.joined([self._schedules(j, some) for j, some in enumerate(listing.schedules)])
        self.master.add(self.pool.add(schedules))
        numbers = self.pool.numbers(schedules.take(np.flatnonzero(np.isfinite(schedules.finish_s))))
        assert numbers is not None
        self.listed[node.number] = listing, numbers
        return split

    def _schedules(self, job: int, listed: Listed) -> Schedules:
        """Schedules of a job that the prover listed; its options count from the first of the job's table."""
        start = self.horizon.option_start[self.horizon.table[job]]
        option = np.where(listed.option == PAUSE, PAUSE, start + listed.option)
        return follow(self.horizon, np.full(len(option), job), option)

    def _lp(self, taken: Sequence[Taken]) -> MasterSolution:
        """Solve the LP over the schedules that splits allow."""
        known = self.pool.all()
        keep = np.ones(len(known), dtype=bool)
        for split, inside, number in taken:
            if lists(split):
                _, listed = self.listed[number]
                keep &= np.isin(np.arange(len(known)), listed)
                continue
            keep &= (known.job != self._job(split)) | self._is_on_side(split, known, inside)
        self.master.restrict(keep)
        return self.master.solve()

    def _job(self, split: Mapping[str, Any]) -> int:
        return next(j for j, job in enumerate(self.horizon.instance.jobs) if job.name == split["job"])

    def _is_on_side(self, split: Mapping[str, Any], schedules: Schedules, inside: bool) -> BoolArray:
        """Mask of schedules on a side of a split, as if they were of its job."""

        def rows_in(slot: int) -> IntArray:
            option = schedules.option[:, slot]
            return np.where(option == PAUSE, -1, self.horizon.row[option])

        return is_on_side(split, inside, schedules.finish_s, rows_in)

    def _round(self, solution: MasterSolution) -> None:
        """Take of each job the schedule of most share in the LP, if they make a better decision."""
        known = self.pool.all()
        likeliest = known.take(least_of_jobs(known.job, -solution.share))
        decision = follow(self.horizon, likeliest.job, likeliest.option)
        valid = len(decision) == self.horizon.n_jobs and is_valid(self.horizon, decision)
        if not valid or not fits(self.horizon, decision):
            return
        if (value := self._value(decision)) < self.value:
            self.best, self.value, self.improved = decision, value, True

    def _children(self, node: _Node, split: dict[str, Any]) -> Iterator[_Node]:
        """Both sides of a split, at the node's prices, where only one job's least cost differs."""
        first = len(self.nodes)
        self.nodes[node.number] = {"split": split, "inside": first, "outside": first + 1}
        self.nodes += [{}, {}]
        for number, inside in ((first, True), (first + 1, False)):
            taken = (*node.taken, Taken(split, inside, node.number))
            if not lists(split):
                priced = self._price(node.priced.prices, taken, above=node.priced)
            elif inside:
                priced = node.priced
            else:
                listing, _ = self.listed[node.number]
                bound = self._bound(listing.charged, listing.least, listing.within)
                priced = node.priced._replace(bound=bound)
            yield _Node(priced.bound, number, priced, taken)

    def _split(self, node: _Node, solution: MasterSolution) -> dict[str, Any] | None:
        """Choose the split after which the LP over the known schedules gains most on both sides.

        Gains are multiplied (Achterberg 2007, "Constraint Integer Programming").
        """
        best, most = None, -math.inf
        for split in self._candidates(solution):
            sides = [(*node.taken, Taken(split, inside, node.number)) for inside in (True, False)]
            costs = [self._lp(side).cost for side in sides]
            gains = [min(cost + self.offset, self.target) - node.bound for cost in costs]
            if (score := math.prod(max(gain, _LEAST_GAIN * abs(self.target)) for gain in gains)) > most:
                best, most = split, score
        return best

    def _candidates(self, solution: MasterSolution) -> Iterator[dict[str, Any]]:
        """Splits of jobs of which the LP mixes schedules."""
        known = self.pool.all()
        for number, job in enumerate(self.horizon.instance.jobs):
            mixed = np.flatnonzero((known.job == number) & (solution.share > FRACTIONAL))
            if len(mixed) < 2:
                continue
            part, some = solution.share[mixed], known.take(mixed)
            by_slots = list(self._of_slots(job.name, some, part))
            # Where ends cost nothing, others are as good as the best, and so on without end.
            if self.ends_cost or not by_slots:
                yield from self._by_ends(job.name, some, part)
            yield from by_slots

    def _by_ends(self, job: str, some: Schedules, part: FloatArray) -> Iterator[dict[str, Any]]:
        """Splits between the ends of some schedules of a job, `part` their shares in the LP."""
        ends, mean_s = np.unique(some.finish_s), float(part @ some.finish_s / part.sum())
        above = max(1, int(np.searchsorted(ends, mean_s)))
        for share in _BETWEEN if ends[-1] - ends[0] > FRACTIONAL * ends[-1] else ():
            yield {"job": job, "ends_by_s": float((1 - share) * ends[above - 1] + share * ends[above])}

    def _of_slots(self, job: str, some: Schedules, part: FloatArray) -> Iterator[dict[str, Any]]:
        """Split at the slot where `some` schedules, of shares `part`, differ most in GPUs or watts."""
        horizon, runs = self.horizon, some.option != PAUSE
        own = horizon.options_of(int(some.job[0]))
        for feature in (*horizon.uses.T, horizon.power_w):
            used = np.where(runs, feature[some.option], 0.0)
            mean = part @ used / part.sum()
            spread = part @ (used - mean) ** 2
            slot = int(np.argmax(spread))
            if spread[slot] > FRACTIONAL * feature.max() ** 2:
                rows = horizon.row[own[feature[own] > mean[slot]]]
                yield {"job": job, "slot": slot, "rows": sorted(rows.tolist())}
