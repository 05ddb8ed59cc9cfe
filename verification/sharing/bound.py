r"""Proving a bound from prices again, from the instance's numbers alone.

Every job is in one set or waits (prices :math:`u_j` of any sign), and capacities and budgets have prices
:math:`\lambda_r \ge 0`. Whatever they are, no decision costs less than

.. math::
    L = \sum_j \min(u_j, w_j) - \sum_r \lambda_r U_r
      + \sum_t N_t \min\Big(0,\ \lambda_t + \min_{p\ \text{on}\ t}
        \Big[c_p + \lambda a_p + \sum_{s \in p} \min_{j} (c_{js} + \lambda a_{js} - u_j)\Big]\Big)

where a job that may not wait has no :math:`w_j`. Patterns are those that there are enough jobs for; the inner
minimum may still take a job more than once, which can only lower the bound.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import combinations_with_replacement

import numpy as np

from wattsched.instances.sharing.instance import OBJECTIVES, Job, SharingInstance
from wattsched.instances.units import J_PER_KWH, S_PER_H
from wattsched.verification.report import Proof
from wattsched.verification.sharing.checker import dearest_alone, why_not_wait
from wattsched.verification.sharing.outcomes import Outcomes

TOLERANCE = 1e-9


def prove(instance: SharingInstance, prices: Mapping[str, float]) -> Proof:
    """Bound on the instance's objective that prices prove, from prices as `lower_bound` takes them."""
    try:
        return Proof(bound=lower_bound(instance, prices))
    except ValueError as error:
        return Proof([str(error)])


def lower_bound(instance: SharingInstance, prices: Mapping[str, float]) -> float:
    """Bound on the instance's objective that prices prove.

    Parameters
    ----------
    instance : SharingInstance
        Validated, free of faults as `instance.faults_of` finds them.
    prices : mapping of str to float
        Derivative of the objective by the bound of a row: ``job:NAME`` (one more job like it),
        ``nodes:TYPE`` or ``gpus:TYPE`` (one more unit), ``power_w``, ``energy_j``, ``carbon_g``. Rows that
        are not named have price 0.

    Raises
    ------
    ValueError
        For a row that the instance does not have, a price that is not finite, and a price of a capacity or
        budget with the wrong sign.
    """
    sign = -1.0 if OBJECTIVES[instance.objective] == "max" else 1.0
    charged = _charged(instance, prices, sign)
    outcomes = Outcomes(instance)
    gain = {job.name: sign * prices.get(f"job:{job.name}", 0.0) for job in instance.jobs}
    parts = [min(gain[job.name], _waiting_cost(instance, job, outcomes)) for job in instance.jobs]
    parts += [-charged[name] * limit for name, limit in instance.budgets if limit is not None]
    parts += [-charged[pool.row] * pool.gpus for pool in instance.pools]
    for unit in instance.unit_types:
        asleep_w = unit.count * unit.sleep_power_w
        parts.append(asleep_w * (charged["power_w"] + (instance.objective == "power")))
        least = min(_reduced(instance, unit.name, charged, gain, outcomes), default=0.0)
        of_unit = charged[unit.row] + (0.0 if unit.pool is None else charged[f"gpus:{unit.pool}"] * unit.gpus)
        parts.append(-charged[unit.row] * unit.count)
        parts.append(unit.count * min(0.0, of_unit + least))
    bound = math.fsum(parts)
    # Rounding of the sum, on the safe side.
    bound -= 1e-13 * math.fsum(abs(part) for part in parts)
    return sign * bound


def _charged(instance: SharingInstance, prices: Mapping[str, float], sign: float) -> dict[str, float]:
    """What a unit of each capacity and budget costs, not negative."""
    rows = {unit.row for unit in instance.unit_types} | {pool.row for pool in instance.pools}
    rows |= {name for name, limit in instance.budgets if limit is not None}
    known = rows | {f"job:{job.name}" for job in instance.jobs}
    charged: dict[str, float] = defaultdict(float)
    for name, price in prices.items():
        if name not in known:
            raise ValueError(f"certificate: the instance has no row '{name}'")
        if not isinstance(price, int | float) or not math.isfinite(price):
            raise ValueError(f"certificate: the price {price!r:.40} of row '{name}' is not a finite number")
        if name in rows:
            if sign * price > 0:
                raise ValueError(
                    f"certificate: the price {price:g} of row '{name}' has the wrong sign: more of it cannot "
                    "make the objective worse"
                )
            charged[name] = abs(price)
    return charged


def _waiting_cost(instance: SharingInstance, job: Job, outcomes: Outcomes) -> float:
    """Cost of a job that waits, infinite when it may not."""
    if any(True for _ in why_not_wait(instance, job, outcomes)):
        return math.inf
    if instance.objective == "throughput":
        return 0.0
    return instance.waiting_penalty * dearest_alone(instance, job, outcomes)


def _reduced(
    instance: SharingInstance,
    unit_name: str,
    charged: Mapping[str, float],
    gain: Mapping[str, float],
    outcomes: Outcomes,
) -> Iterator[float]:
    """Cost of every pattern on a unit type with its best jobs, less their prices."""
    unit = outcomes.types[unit_name]
    candidates = {
        name: _Candidates(jobs, gain)
        for name, jobs in _jobs_by_class(instance).items()
        if unit_name in outcomes.alone[name]
    }
    per_watt = charged["power_w"] + (instance.objective == "power")
    per_joule = charged["energy_j"] + charged["carbon_g"] * (instance.carbon_g_per_kwh or 0.0) / J_PER_KWH
    per_joule += {"eaco": instance.alpha, "energy": 1.0}.get(instance.objective, 0.0) / J_PER_KWH
    for size in range(1, min(instance.limits.jobs_per_set, len(instance.jobs)) + 1):
        for classes in combinations_with_replacement(sorted(candidates), size):
            if any(candidates[name].sociable < classes.count(name) for name in classes) and size > 1:
                continue
            outcome = outcomes.of(unit_name, classes)
            if outcome.refused:
                continue
            total = per_watt * (outcome.power_w - unit.sleep_power_w)
            best: dict[str, float] = {}
            for name, epoch_s in zip(classes, outcome.epoch_s, strict=True):
                if name not in best:
                    slope = per_joule * outcome.power_w / size * epoch_s
                    best[name] = _of_epoch(instance, name, epoch_s, outcomes)
                    best[name] += candidates[name].least(slope, epoch_s, shared=size > 1)
                total += best[name]
            yield total


def _jobs_by_class(instance: SharingInstance) -> dict[str, list[Job]]:
    by_class: defaultdict[str, list[Job]] = defaultdict(list)
    for job in instance.jobs:
        by_class[job.job_class].append(job)
    return by_class


class _Candidates:
    """Jobs of a class, of which a slot takes the one with the least cost less its price."""

    def __init__(self, jobs: list[Job], gain: Mapping[str, float]):
        self.sociable = sum(not job.exclusive for job in jobs)
        self._epochs = np.array([job.remaining_epochs for job in jobs])
        self._gain = np.array([gain[job.name] for job in jobs])
        # A job that may not share has no time to share in.
        deadline_s = np.array([math.inf if job.deadline_s is None else job.deadline_s for job in jobs])
        self._alone_s = deadline_s * (1 + TOLERANCE)
        self._shared_s = np.where([job.exclusive for job in jobs], -math.inf, self._alone_s)

    def least(self, slope: float, epoch_s: float, *, shared: bool) -> float:
        """Least of ``slope * epochs - gain`` over the jobs that meet their deadlines, infinite for none."""
        in_time = self._epochs * epoch_s <= (self._shared_s if shared else self._alone_s)
        return float(np.min((slope * self._epochs - self._gain)[in_time], initial=math.inf))


def _of_epoch(instance: SharingInstance, name: str, epoch_s: float, outcomes: Outcomes) -> float:
    """Part of a job's cost that does not depend on its work."""
    if instance.objective == "eaco":
        return (1 - instance.alpha) * epoch_s / S_PER_H / len(instance.jobs)
    if instance.objective == "throughput":
        return -min(a.epoch_s for a in outcomes.alone[name].values()) / epoch_s
    return 0.0
