r"""Proving a bound on every schedule of a trace again, from its prices alone.

At prices of GPU seconds, of the budget and of joules jobs do not interact. One with work w that arrives at r
and completes in slot k, which begins at e, costs at least, whatever a unit of its work is worth,

.. math:: e_k - r + \nu w - \sum_{i < k} \Delta_i \max_c (\nu s_c - \kappa_{ic})^+
          - \Delta_k \max_c (\nu s_c - \kappa_{kc} - 1)^+,

with speeds s and costs of a second :math:`\kappa` of what it may run as: a second of the slot in which it
completes also counts for completion. The dearest of these bounds, over the worths :math:`\nu` of the file,
and of these the least over the slots count for the job. Their sum, less what GPUs and budget are worth at
their prices, bounds :math:`\sum_j (C_j - r_j) + q E`.

No code of replays takes part in it.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, pairwise

import numpy as np

from wattsched.instances.clairvoyant import ClairvoyantBound, PeriodBudget, SlotPrices
from wattsched.instances.units import J_PER_KWH
from wattsched.topology.arrays import FloatArray
from wattsched.verification.report import ROUNDING


def faults_of(bound: ClairvoyantBound) -> list[str]:
    """Claims that the prices do not prove, one line each."""
    _, faults = proven_again(bound)
    return faults


def proven_again(bound: ClairvoyantBound) -> tuple[ClairvoyantBound, list[str]]:
    """Return the bound with no claim above what its prices prove here, and a fault for each that was above.

    Another processor may have claimed a little more, by its last digits; a price of joules can make any
    amount of energy of that, so that nothing is to follow from a claim.
    """
    prover, proofs, faults = Prover(bound), list[SlotPrices](), list[str]()
    for number, proof in enumerate(bound.proofs):
        value, rounding = prover.enclosed(proof)
        proven = value - rounding
        if not proof.bound_s <= value:
            claimed = f"claims {proof.bound_s:.9g} s, the prices prove {proven:.9g} s"
            faults.append(f"proofs[{number}].bound_s: {claimed}")
        proofs.append(proof.model_copy(update={"bound_s": min(proof.bound_s, proven)}))
    return bound.model_copy(update={"proofs": proofs}), faults


class Prover:
    """Bounds in seconds that prices prove, for the slots, jobs and pools of a `ClairvoyantBound`."""

    def __init__(self, bound: ClairvoyantBound) -> None:
        self.bound = bound
        self._edge_s = np.array(bound.slot_edges_s)
        self._width_s = np.diff(self._edge_s)
        # Jobs by the name of their table of options.
        self._members: dict[str, list[int]] = {}
        for job, name in enumerate(bound.jobs.options):
            self._members.setdefault(name, []).append(job)

    def __call__(self, proof: SlotPrices) -> float:
        """Return the bound in seconds at the prices, rounded to the safe side."""
        value, rounding = self.enclosed(proof)
        return value - rounding

    def enclosed(self, proof: SlotPrices) -> tuple[float, float]:
        """Return the bound in seconds at the prices, and the largest error that rounding may have made."""
        joule = self._joule_prices(proof)
        least, sizes = [], []
        for name, members in self._members.items():
            table = self._table(name, proof, joule)
            for job in members:
                cost, size = self._least(table, job)
                least.append(cost)
                sizes.append(size)
        owed = [
            gpus * math.fsum(np.array(proof.gpus.get(pool, [0.0])) * self._width_s)
            for pool, gpus in self.bound.pools.items()
        ]
        owed += [price * spare for price, spare in zip(proof.budget, self._spare(), strict=False)]
        rounding = ROUNDING * (math.fsum(sizes) + math.fsum(map(abs, owed)))
        return math.fsum(least) - math.fsum(owed), rounding

    def _joule_prices(self, proof: SlotPrices) -> FloatArray:
        """Least price of a joule in each slot: that of all joules, and the budget's."""
        budget = self.bound.budget
        if budget is None or not proof.budget:
            return np.full(len(self._width_s), proof.joule_price)
        return np.array(
            [
                proof.joule_price + min(_per_joule(budget, proof.budget, begin, end))
                for begin, end in zip(self._edge_s[:-1].tolist(), self._edge_s[1:].tolist(), strict=True)
            ]
        )

    def _spare(self) -> Iterator[float]:
        """Yield the amount of the budget that the idle cluster leaves in each period, at least 0.

        No job may run where it leaves none.
        """
        if (budget := self.bound.budget) is None:
            return
        for period in count():
            begin_s = budget.begin_s + period * budget.period_s
            idle = self.bound.standing_w * _used_per_watt(budget, begin_s, begin_s + budget.period_s)
            yield max(0.0, budget.amount - idle)

    def _table(self, name: str, proof: SlotPrices, joule: FloatArray) -> _Table:
        """Return the gains of a table of options, by prices and the price of a joule in each slot."""
        options, worth = self.bound.options[name], np.array(proof.worth[name])
        slots, free = len(self._width_s), math.inf
        most = np.zeros((len(worth), slots))
        rows = zip(options.pool, options.gpus, options.rate, options.power_w, strict=True)
        for pool, gpus, rate, power_w in rows:
            paid = gpus * np.array(proof.gpus.get(pool, [0.0] * slots)) + power_w * joule
            np.maximum(most, rate * worth[:, None] - paid, out=most)
            free = min(free, (1.0 + power_w * proof.joule_price) / rate)
        return _Table(worth, most, np.maximum(most - 1.0, 0.0), np.cumsum(most * self._width_s, axis=1), free)

    def _least(self, table: _Table, job: int) -> tuple[float, float]:
        """Return the least cost of a job, and the size of the numbers that this is the sum of, in seconds."""
        arrival_s, work = self.bound.jobs.arrival_s[job], self.bound.jobs.work[job]
        first = int(np.searchsorted(self._edge_s, arrival_s, side="right")) - 1
        part_s = self._edge_s[first + 1] - arrival_s
        begun = table.worth * work - part_s * table.most[:, first]
        # It completes in the slot in which it arrives, in a later one, or after the last.
        found = [(table.worth * work - part_s * table.last[:, first]).max()]
        if first + 1 < len(self._width_s):
            between = table.before[:, first:-1] - table.before[:, first, None]
            rest = between + self._width_s[first + 1 :] * table.last[:, first + 1 :]
            by_slot = (begun[:, None] - rest).max(axis=0) + self._edge_s[first + 1 : -1] - arrival_s
            found.append(by_slot.min())
        # Without prices a second of work costs its time and its joules: more than that it is not worth.
        still = table.worth <= table.free
        whole = table.before[still, -1] - table.before[still, first]
        after = np.append(0.0, begun[still] - whole).max() + self._edge_s[-1] - arrival_s
        least = float(min(after, *found))
        return least, 4.0 * abs(least) + float(self._edge_s[-1] - arrival_s) * 1e-3


@dataclass(frozen=True)
class _Table:
    """Gains, work's worth less what is charged, at each worth and in each slot, shape (n_worths, n_slots).

    Attributes
    ----------
    worth : float array, shape (n_worths,)
        Of a unit of work.
    most, last : float arrays
        Per second at most, and where the second counts for completion.
    before : float array
        At most in all slots up to and with each.
    free : float
        Worth of a unit of work at which it just pays without prices.
    """

    worth: FloatArray
    most: FloatArray
    last: FloatArray
    before: FloatArray
    free: float


def _per_joule(budget: PeriodBudget, prices: list[float], begin_s: float, end_s: float) -> Iterator[float]:
    """Yield the budget's prices of a joule from a time to another, where they change; 0 where it has none."""
    first, last = _period(budget, begin_s), _period(budget, end_s)
    if budget.begin_s + last * budget.period_s >= end_s:
        last -= 1
    if last >= len(prices):
        yield 0.0
    begins = [budget.begin_s + n * budget.period_s for n in range(first + 1, min(last + 1, len(prices)))]
    changes = budget.time_s[bisect_right(budget.time_s, begin_s) : bisect_left(budget.time_s, end_s)]
    for at_s in [begin_s, *begins, *changes] if first < len(prices) else []:
        period = _period(budget, at_s)
        per_kwh = budget.per_kwh[max(0, bisect_right(budget.time_s, at_s) - 1)]
        yield prices[period] * per_kwh / J_PER_KWH if period < len(prices) else 0.0


def _period(budget: PeriodBudget, at_s: float) -> int:
    """Number of the period in which a time lies; periods begin where their multiples do, as doubles."""
    period = math.floor((at_s - budget.begin_s) / budget.period_s)
    while budget.begin_s + (period + 1) * budget.period_s <= at_s:
        period += 1
    while budget.begin_s + period * budget.period_s > at_s:
        period -= 1
    return period


def _used_per_watt(budget: PeriodBudget, begin_s: float, end_s: float) -> float:
    """Return the amount of the budget that one watt uses from a time to another."""
    inside = budget.time_s[bisect_right(budget.time_s, begin_s) : bisect_left(budget.time_s, end_s)]
    times = [begin_s, *inside, end_s]
    return math.fsum(
        budget.per_kwh[max(0, bisect_right(budget.time_s, at_s) - 1)] * (until_s - at_s) / J_PER_KWH
        for at_s, until_s in pairwise(times)
    )
