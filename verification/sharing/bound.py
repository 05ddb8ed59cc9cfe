r"""Proving a bound from prices again, from the instance's numbers alone.

Every job is in one set or waits (prices :math:`u_j` of any sign), and capacities and budgets have prices
:math:`\lambda_r \ge 0`. Whatever they are, no decision costs less than

.. math::
    L = \sum_j \min(u_j, w_j) - \sum_r \lambda_r U_r
      + \sum_t N_t \min\Big(0,\ \lambda_t + \min_{p\ \text{on}\ t}
        \Big[c_p + \lambda a_p + \sum_{s \in p} \min_{j} (c_{js} + \lambda a_{js} - u_j)\Big]\Big)

where a job that may not wait has no :math:`w_j`. Patterns are those that there are enough jobs for; the inner
minimum may still take a job more than once, which can only lower the bound.

In doubles, a part of the sum can be too large by the rounding of prices and costs that cancel in it. Of a
pattern in a decision these are no larger than the parts of its jobs and of the budgets that it keeps, and
what it costs.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import combinations_with_replacement

import numpy as np

from wattsched.instances.sharing.instance import OBJECTIVES, Job, SharingInstance, UnitType
from wattsched.instances.units import J_PER_KWH
from wattsched.verification.report import ROUNDING, Proof, charges
from wattsched.verification.sharing.outcomes import Outcomes, Rates

SUM_ROUNDING = 1e-13
"""By how much a sum of parts may be too large, relative to the sum of their magnitudes."""


def prove(instance: SharingInstance, prices: Mapping[str, object]) -> Proof:
    """Bound on the instance's objective that prices prove.

    Parameters
    ----------
    instance : SharingInstance
        Validated, free of faults as `instance.faults_of` finds them.
    prices : mapping of str to float
        As `report.charges` takes them: ``job:NAME`` (one more job like it), an equality; ``nodes:TYPE`` or
        ``gpus:TYPE`` (one more unit), ``power_w``, ``energy_j``, ``carbon_g``.
    """
    sense = OBJECTIVES[instance.objective]
    limits = {unit.row: float(unit.count) for unit in instance.unit_types}
    limits |= {pool.row: float(pool.gpus) for pool in instance.pools}
    limits |= {name: limit for name, limit in instance.budgets if limit is not None}
    found, faults = charges(prices, limits, {f"job:{job.name}" for job in instance.jobs}, sense)
    if faults:
        return Proof(faults)
    charged, outcomes = defaultdict(float, found), Outcomes(instance)
    # More of a job is less of a choice: what its row charges is what having decided it is worth.
    gain = {job.name: -charged[f"job:{job.name}"] for job in instance.jobs}
    paid = _paid(instance, charged, outcomes.rates)
    parts = [min(gain[job.name], _waiting_cost(job, outcomes)) for job in instance.jobs]
    parts += [-charged[row] * limit for row, limit in limits.items()]
    for unit in instance.unit_types:
        parts.append(unit.count * unit.sleep_power_w * paid.watt)
        of_unit = charged[unit.row] + (0.0 if unit.pool is None else charged[f"gpus:{unit.pool}"] * unit.gpus)
        least = min(_reduced(unit, paid, gain, outcomes), default=0.0)
        parts.append(unit.count * min(0.0, of_unit + least))
    bound = math.fsum(parts) - SUM_ROUNDING * math.fsum(map(abs, parts))
    return Proof(bound=bound if sense == "min" else -bound)


def _paid(instance: SharingInstance, charged: Mapping[str, float], rates: Rates) -> Rates:
    """What patterns pay by objective and prices together."""
    carbon = charged["carbon_g"] * (instance.carbon_g_per_kwh or 0.0) / J_PER_KWH
    return Rates(charged["power_w"] + rates.watt, charged["energy_j"] + carbon + rates.joule, rates.epoch_s)


def _waiting_cost(job: Job, outcomes: Outcomes) -> float:
    """Cost of a job that waits, infinite when it may not."""
    return math.inf if any(outcomes.why_not_wait(job)) else outcomes.waiting_cost(job)


def _reduced(unit: UnitType, paid: Rates, gain: Mapping[str, float], outcomes: Outcomes) -> Iterator[float]:
    """Cost of every pattern on a unit type with its best jobs, less their prices."""
    instance = outcomes.instance
    by_class: defaultdict[str, list[Job]] = defaultdict(list)
    for job in instance.jobs:
        by_class[job.job_class].append(job)
    candidates = {
        name: _Candidates(jobs, gain) for name, jobs in by_class.items() if unit.name in outcomes.alone[name]
    }
    for size in range(1, min(instance.limits.jobs_per_set, len(instance.jobs)) + 1):
        for classes in combinations_with_replacement(sorted(candidates), size):
            if any(candidates[name].sociable < classes.count(name) for name in classes) and size > 1:
                continue
            outcome = outcomes.of(unit.name, classes)
            if outcome.refused:
                continue
            total = paid.watt * (outcome.power_w - unit.sleep_power_w)
            best: dict[str, float] = {}
            for name, epoch_s in zip(classes, outcome.epoch_s, strict=True):
                if name not in best:
                    slope = paid.joule * outcome.power_w / size * epoch_s
                    best[name] = paid.epoch_s * epoch_s
                    if instance.objective == "throughput":
                        best[name] -= outcomes.best_epoch_s(name) / epoch_s
                    best[name] += candidates[name].least(slope, epoch_s, shared=size > 1)
                total += best[name]
            yield total


class _Candidates:
    """Jobs of a class, of which a slot takes the one with the least cost less its price."""

    def __init__(self, jobs: list[Job], gain: Mapping[str, float]):
        self.sociable = sum(not job.exclusive for job in jobs)
        self._epochs = np.array([job.remaining_epochs for job in jobs])
        self._gain = np.array([gain[job.name] for job in jobs])
        # A job that may not share has no time to share in.
        deadline_s = np.array([math.inf if job.deadline_s is None else job.deadline_s for job in jobs])
        self._alone_s = deadline_s * (1 + ROUNDING)
        self._shared_s = np.where([job.exclusive for job in jobs], -math.inf, self._alone_s)

    def least(self, slope: float, epoch_s: float, *, shared: bool) -> float:
        """Least of ``slope * epochs - gain`` over the jobs that meet their deadlines, infinite for none."""
        in_time = self._epochs * epoch_s <= (self._shared_s if shared else self._alone_s)
        return float(np.min((slope * self._epochs - self._gain)[in_time], initial=math.inf))
