r"""Proofs from prices for a shifting instance: a bound, or that it has no decision at all.

Prices :math:`\lambda_r \ge 0` of the rows :math:`a_r x \le U_r` leave jobs that do not interact, and the
objective is at least :math:`\sum_j V_j(\lambda) - \sum_r \lambda_r U_r`, with V the least cost of one job's
schedule, which `least_cost` finds. A bound that lies above what the dearest decision could cost leaves none.

No code of formulations and solvers takes part in it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from wattsched.instances.shifting.instance import ShiftingInstance, ShiftingJob
from wattsched.topology.arrays import FloatArray
from wattsched.verification.report import ROUNDING, TOLERANCE, Proof, charges, reach_of
from wattsched.verification.shifting.checker import (
    BUDGETS,
    CRITERIA,
    after_horizon,
    caps_of,
    per_joule,
    standing_of,
)
from wattsched.verification.shifting.least_cost import LeastCost, Listing, schedules_up_to
from wattsched.verification.shifting.priced import Allowed, PricedJob, PricedOptions, allowed_by, listing_of
from wattsched.verification.tree import Prover as ProverOfSplits
from wattsched.verification.tree import Taken

CELLS = 2.5e8
"""Slots by options by levels that all jobs may have together, some seconds' worth."""
CELLS_PER_JOB = 2e7
LEVELS = (64, 16384)
"""Fewest and most levels of a job's work."""
LEVELS_OF_LEAF = 4096
"""Most levels of a job's work in a leaf of a tree, of which there are many."""
CANCELLED = 2.0**-48
"""Relative error of times that are subtracted from each other, after a few operations."""


def prove(instance: ShiftingInstance, prices: Mapping[str, object]) -> Proof:
    """Bound on the objective of an instance without faults that prices (as of `report.charges`) prove.

    Rows are ``gpus:POOL@SLOT`` (GPUs of a pool in a slot), ``groups:POOL:SIZE@SLOT`` (disjoint groups of so
    many of them, as in `group_sizes`), ``power_w@SLOT`` and ``power_w:DOMAIN@SLOT`` (watts under a cap) and,
    of budgets, ``carbon_g``, ``energy_j``, ``money`` and ``completion_s``. They may prove that there is no
    decision.
    """
    return Prover(instance)(prices)


class Prover(ProverOfSplits):
    """Proves bounds on an instance's objective (as for `prove`), also of the decisions on sides of splits.

    Attributes
    ----------
    standing : dict of str to float
        By row of a budget or cap, what all GPUs use if they are idle throughout: joules, grams, money, watts.
    limits : dict of str to float
        Of the rows that prices may name; see `prove`.
    dearest : float
        Objective that no decision exceeds; NaN where the instance lacks the forecast of its objective.
    """

    def __init__(self, instance: ShiftingInstance):
        self.instance, self.standing = instance, standing_of(instance)
        budgets = {row: getattr(instance.budgets, field) for row, field in BUDGETS.items()}
        self.limits = {row: limit for row, limit in budgets.items() if limit is not None}
        for name, pool in instance.pools.items():
            self.limits |= {f"gpus:{name}@{slot}": pool.gpus for slot in range(instance.slots)}
            for size in group_sizes(instance, name):
                groups = pool.gpus // size
                self.limits |= {f"groups:{name}:{size}@{slot}": groups for slot in range(instance.slots)}
        for name, (_, cap_w, idle_w) in caps_of(instance).items():
            rows = {f"{name}@{slot}": watts for slot, watts in enumerate(cap_w.tolist())}
            self.limits |= rows
            self.standing |= dict.fromkeys(rows, idle_w)
        self._idle_exceeds = any(spare_w.min() < 0 for spare_w in spare_watts(instance).values())
        # The last listing, and the splits that it is of; none yet.
        self._listed = "", Listing({}, [], 0.0, [])
        self.dearest = objective_upper_bound(instance) if self._has_objective else math.nan

    @cached_property
    def _latest_s(self) -> float:
        """Scale of the times in s whose differences are completion times."""
        return self.instance.horizon_s + max((job.arrival_s for job in self.instance.jobs), default=0.0)

    @property
    def _has_objective(self) -> bool:
        return CRITERIA.get(self.instance.objective) in {"completion_s", *self.standing}

    def _without_prices(self) -> Proof | None:
        """Proof that there is no decision whatever the prices, or why there is none at all; else None."""
        if not self._has_objective:
            why = f"the objective '{self.instance.objective}' is unknown, or the instance lacks its forecast"
            return Proof([f"certificate: {why}"])
        return Proof(bound=math.inf, excess=math.inf) if self._idle_exceeds else None

    def __call__(self, prices: Mapping[str, object], taken: Sequence[Taken] = ()) -> Proof:
        """Prove a bound as `prove` does, of the decisions on some sides of splits (`priced.allowed_by`)."""
        charged, found = self._charged(prices)
        if found is not None:
            return found
        within, least = 0.0, None
        if (last := listing_of(taken)) is not None:
            listing = self.listing(taken[last].split, taken[:last])
            if taken[last].inside:
                least = self.least_listed(listing, PricedInstance(self.instance, charged), taken)
            # Outside, some job costs `within` more than its least cost, but only at the prices of the list.
            elif charged == listing.charged:
                within, least = listing.within, listing.least
        if least is None:
            least = self._least(charged, allowed_by(self.instance, taken), leaf=bool(taken))
        return self.together(charged, least, within)

    def in_time(self, prices: Mapping[str, object], over: Callable[[], bool]) -> Proof:
        """Prove a bound by prices; once the time is over, jobs count for what their relaxations cost."""
        charged, found = self._charged(prices)
        return found or self.together(charged, self._least(charged, {}, leaf=False, over=over))

    def _charged(self, prices: Mapping[str, object]) -> tuple[dict[str, float], Proof | None]:
        """Charges for a unit of rows, and what is known without them, or why they prove nothing."""
        charged, faults = charges(prices, self.limits, (), "min")
        return charged, Proof(faults) if faults else self._without_prices()

    def proof(
        self, charged: Mapping[str, float], allowed: Mapping[str, Allowed], runs: Mapping[str, FloatArray]
    ) -> Proof:
        """Prove a bound on what is allowed to jobs, by charges for a unit of each row and for runs.

        `runs` are of either sign, by the job's name, slot and row of its table.
        """
        if (found := self._without_prices()) is not None:
            return found
        return self.together(charged, self._least(charged, allowed, runs, leaf=bool(allowed)))

    def _least(
        self,
        charged: Mapping[str, float],
        allowed: Mapping[str, Allowed],
        runs: Mapping[str, FloatArray] | None = None,
        *,
        leaf: bool,
        over: Callable[[], bool] = lambda: False,
    ) -> list[float]:
        """Lower bounds on all jobs' least costs of what is allowed, by charges for units of rows and runs."""
        priced = PricedInstance(self.instance, charged, runs)
        searches = [priced.least_cost(job, allowed.get(job.name)) for job in self.instance.jobs]
        together = sum(one.size for one in searches)
        return [
            one.by_relaxation() if over() else one.bound(levels_of(one.size, together, leaf=leaf))
            for one in searches
        ]

    def listing(self, split: Mapping[str, Any], before: Sequence[Taken]) -> Listing:
        """Schedules inside of a split, of those on the sides of splits before; the last listing is kept.

        A ValueError says that the split is none, or lists too many.
        """
        key = repr((split, [(one.split, one.inside) for one in before]))
        known, listing = self._listed
        if key != known:
            charged, faults = charges(split["prices"], self.limits, (), "min")
            if faults:
                raise ValueError(f"split.prices: {faults[0]}")
            allowed = allowed_by(self.instance, before)
            least = self._least(charged, allowed, leaf=bool(before))
            priced = PricedInstance(self.instance, charged)
            schedules = [
                schedules_up_to(priced.job(job, allowed.get(job.name)), cost + split["within"])
                for job, cost in zip(self.instance.jobs, least, strict=True)
            ]
            listing = Listing(charged, least, split["within"], schedules)
            self._listed = key, listing
        return listing

    def least_listed(self, listing: Listing, priced: PricedInstance, taken: Sequence[Taken]) -> list[float]:
        """Return for every job the least cost of its listed schedules that are on the sides of splits."""
        allowed_by(self.instance, taken)  # refuses splits that are none
        least = []
        for job, listed in zip(self.instance.jobs, listing.schedules, strict=True):
            costs = listed.costs(one := priced.job(job))
            for split, inside, _ in taken:
                if split.get("job") == job.name:
                    costs[~listed.allowed_by(one, split, inside)] = math.inf
            least.append(float(costs.min(initial=math.inf)))
        return least

    def together(self, charged: Mapping[str, float], least: Sequence[float], within: float = 0.0) -> Proof:
        """Return the proof from the least costs of all jobs, by the charges for a unit of rows.

        It holds for decisions in which some job costs at least `within` more than its least cost; 0: for all.
        """
        if math.inf in least:  # a job has no schedule that ends in time
            return Proof(bound=math.inf, excess=math.inf)
        standing, limits = self.standing, self.limits
        total = math.fsum(least) + standing.get(CRITERIA[self.instance.objective], 0.0)
        owed = math.fsum(price * (limits[row] - standing.get(row, 0.0)) for row, price in charged.items())
        size = math.fsum(
            price * (abs(limits[row]) + abs(standing.get(row, 0.0))) for row, price in charged.items()
        )
        bound = total + within - owed - ROUNDING * (abs(total) + size + within)
        # Completion times are differences of times up to `_latest_s`, and are rounded as these are.
        per_second = charged.get("completion_s", 0.0) + (CRITERIA[self.instance.objective] == "completion_s")
        bound -= CANCELLED * self._latest_s * per_second
        # Decisions may exceed a budget by the checker's tolerance, which the bound knows nothing of.
        leeway = math.fsum(
            price * (TOLERANCE if row in BUDGETS else ROUNDING) * abs(limits[row])
            for row, price in charged.items()
            if row in standing or row in BUDGETS
        )
        excess = bound - leeway - self.dearest * (1 + ROUNDING)
        short = shortfall(charged, excess) if charged and excess > 0 else ""
        return Proof(bound=bound, reach=reach_of(bound, self.dearest), excess=excess, short=short)


def shortfall(charged: Mapping[str, float], excess: float) -> str:
    """Say what of each budget or cap is missing if no other limit is changed, or which pools are too small.

    By the charges for a unit of rows the bound exceeds any objective by `excess`; a unit more of a budget
    lowers it by its charge.
    """
    short = [
        f"{BUDGETS[name]} is short by at least {excess / charge:.6g}"
        for name, charge in charged.items()
        if name in BUDGETS
    ]
    in_slots = defaultdict[str, dict[int, float]](dict)
    for name, charge in charged.items():
        resource, _, slot = name.rpartition("@")
        if name not in BUDGETS:
            in_slots[resource][int(slot)] = charge
    for resource, of_slots in in_slots.items():
        if resource.startswith("power_w"):
            lacks_w = excess / sum(of_slots.values())
            when = (
                f"slots {min(of_slots)} to {max(of_slots)}" if len(of_slots) > 1 else f"slot {min(of_slots)}"
            )
            short.append(f"{resource} is short by at least {lacks_w:.6g} W in {when}")
    counted = [name.partition(":") for name in in_slots if not name.startswith("power_w")]
    pools = dict.fromkeys(rest if what == "gpus" else _group(rest)[0] for what, _, rest in counted)
    if not short:
        return f"the GPUs of {', '.join(pools)} are too few for the work that must end in time"
    return " or ".join(short) + (" with these GPUs" if pools else "")


def levels_of(size: int, together: int, *, leaf: bool) -> int:
    """Levels that a job's work is divided into, by the `LeastCost.size` of the job and of all together."""
    most = LEVELS_OF_LEAF if leaf else LEVELS[1]
    return int(np.clip(min(CELLS / together, CELLS_PER_JOB / size), LEVELS[0], most))


class PricedInstance:
    """Jobs of an instance that pay charges for a unit of each row, and so do not interact any more.

    They may also pay for `runs`, by the job's name, slot and row of its table.
    """

    def __init__(
        self,
        instance: ShiftingInstance,
        charged: Mapping[str, float],
        runs: Mapping[str, FloatArray] | None = None,
    ):
        self.instance, self._runs = instance, runs or {}
        weight = {row: charged.get(row, 0.0) for row in BUDGETS}
        weight[CRITERIA[instance.objective]] += 1.0
        # Charges for a joule by slot and, last, after the horizon; for a group of GPUs by pool, size and
        # slot; for a second of a job's completion, by its weight.
        self._joule = np.zeros(instance.slots + 1)
        for row, line in per_joule(instance).items():
            self._joule += weight[row] * line
        self._gpu = {pool: {1: np.zeros(instance.slots)} for pool in instance.pools}
        for row, price in charged.items():
            resource, _, slot = row.rpartition("@")
            what, _, counted = resource.partition(":")
            if what in ("gpus", "groups"):
                pool, size = (counted, 1) if what == "gpus" else _group(counted)
                self._gpu[pool].setdefault(size, np.zeros(instance.slots))[int(slot)] = price
        self._watt = {pool: np.zeros(instance.slots) for pool in instance.pools}
        for name, (pools, *_) in caps_of(instance).items():
            by_slot = np.array([charged.get(f"{name}@{slot}", 0.0) for slot in range(instance.slots)])
            for pool in pools:
                self._watt[pool] += by_slot
        self._spare_w, self._times_s = spare_watts(instance), (instance.lengths_s, instance.begin_s)
        self._delay = weight["completion_s"] / (sum(job.weight for job in instance.jobs) or 1.0)
        self._options: dict[int, PricedOptions] = {}  # by the identity of their table

    def least_cost(self, job: ShiftingJob, allowed: Allowed | None = None) -> LeastCost:
        """Return the search for the least cost of a job's schedules, or of those that are allowed."""
        return LeastCost(self.job(job, allowed))

    def job(self, job: ShiftingJob, allowed: Allowed | None = None) -> PricedJob:
        """Return a job with the charges of its schedules, or of those that are allowed."""
        table = self.instance.table_of(job)
        if id(table) not in self._options:
            self._options[id(table)] = PricedOptions.of(
                self.instance, table, self._gpu, self._watt, self._spare_w
            )
        options, delay = self._options[id(table)], self._delay * job.weight
        if (runs := self._runs.get(job.name)) is not None:
            options = replace(options, gpu=options.gpu + runs[:, options.row])
        return PricedJob(self.instance, job, options, delay, self._joule, self._times_s, allowed)


def group_sizes(instance: ShiftingInstance, pool: str) -> list[int]:
    """Sizes of groups of GPUs, as jobs hold them, whose number a pool limits by more than its GPUs do.

    Jobs of g GPUs each hold at least the whole part of g / k disjoint groups of k GPUs, and a pool of G GPUs
    has no more of them than the whole part of G / k.
    """
    most, tables = instance.pools[pool].gpus, {id(t): t for t in map(instance.table_of, instance.jobs)}
    held = {gpus for t in tables.values() for gpus, of in zip(t.gpus, t.pool, strict=True) if of == pool}
    return sorted(size for size in held if 1 < size <= most and most % size)


def _group(counted: str) -> tuple[str, int]:
    """Pool and size of a row ``groups:POOL:SIZE`` without its first part."""
    pool, _, size = counted.rpartition(":")
    return pool, int(size)


def spare_watts(instance: ShiftingInstance) -> dict[str, FloatArray]:
    """Watts by slot that one job in each pool may draw at most above idle GPUs, by all caps on the pool."""
    spare_w = {pool: np.full(instance.slots, math.inf) for pool in instance.pools}
    for pools, cap_w, idle_w in caps_of(instance).values():
        for pool in pools:
            spare_w[pool] = np.minimum(spare_w[pool], cap_w * (1 + 2 * ROUNDING) - idle_w)
    return spare_w


def objective_upper_bound(instance: ShiftingInstance) -> float:
    """Objective that no decision exceeds: every job draws its most throughout, and all work is left over."""
    criterion = CRITERIA[instance.objective]
    tables = {id(table): table for table in map(instance.table_of, instance.jobs)}
    fastest = {key: after_horizon(instance, table) for key, table in tables.items()}
    rates = {key: rate for key, (rate, _) in fastest.items()}
    after_s = [(job, job.remaining_work / rates[id(instance.table_of(job))]) for job in instance.jobs]
    horizon_s = instance.horizon_s
    if criterion == "completion_s":
        weights = sum(job.weight for job in instance.jobs)
        late = (job.weight * (horizon_s + more_s - job.arrival_s) for job, more_s in after_s)
        return sum(late) / weights if weights else 0.0
    per_j = np.maximum(per_joule(instance)[criterion], 0.0)
    per_w, after_per_j = float(per_j[:-1].max()) * horizon_s, float(per_j[-1])
    most = (max(instance.table_of(job).power_w) * (per_w + more_s * after_per_j) for job, more_s in after_s)
    return float(standing_of(instance)[criterion] + sum(most))
