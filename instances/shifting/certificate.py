r"""The bound that prices prove for a shifting instance; shares no code with formulations and solvers.

Prices :math:`\lambda_r \ge 0` of the rows :math:`a_r x \le U_r` leave jobs that do not interact, and the
objective is at least :math:`\sum_j V_j(\lambda) - \sum_r \lambda_r U_r`, with V the least cost of one job's
schedule.

V is bounded from below by dynamic programming over slots and levels of work left. What is left is rounded
down to a level. Over a run of slots with one option the work done is rounded as a whole: in slot t,
:math:`\lfloor (t+1) a \rfloor - \lfloor t a \rfloor` levels for an option that does a, and in the first slot
of the run as much more as makes the sum of any number of slots at least the true one. Schedules of the true
job have thus counterparts that do no less work in the same slots, and costs never fall with the work left.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wattsched.instances.instance import OptionTable
from wattsched.instances.shifting.instance import ShiftingInstance, ShiftingJob

CRITERIA = {"completion": "completion_s", "carbon": "carbon_g", "energy": "energy_j", "money": "money"}
BUDGETS = {
    "completion_s": "average_completion_s",
    "carbon_g": "carbon_g",
    "energy_j": "energy_j",
    "money": "money",
}
JOULES_PER_KWH = 3.6e6
ROUNDING = 1e-9
CELLS = 4e8
"""Cells that the dynamic programmes may have together, which sets the number of levels."""
LEVELS = (100, 6000)

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class _Charges:
    """What schedules are charged: for average completion, a joule by slot (then after), and a GPU."""

    completion: float
    joule: FloatArray
    gpu: dict[str, FloatArray]


def prove(instance: ShiftingInstance, prices: Mapping[str, float]) -> float:
    """Lower bound on the instance's objective that prices prove.

    Parameters
    ----------
    instance : ShiftingInstance
        Free of faults.
    prices : mapping of str to float
        Derivative of the objective by the bound of a row, not positive: ``gpus:POOL@SLOT`` for the GPUs of a
        pool in a slot, and ``carbon_g``, ``energy_j``, ``money``, ``completion_s`` for budgets.

    Raises
    ------
    ValueError
        For an unknown row, a budget that the instance does not have, an unknown objective, and a price that
        is not finite or positive.
    """
    if instance.objective not in CRITERIA:
        raise ValueError(f"certificate: the objective '{instance.objective}' is unknown")
    charged = _charged(instance, prices)
    weight = {name: charged.get(name, 0.0) for name in BUDGETS}
    weight[CRITERIA[instance.objective]] += 1.0
    charges = _charges(instance, charged, weight)
    classes: dict[tuple[object, ...], list[ShiftingJob]] = defaultdict(list)
    for job in instance.jobs:
        key = (id(instance.table_of(job)), job.restart_s, job.weight, job.deadline_s, job.must_finish)
        classes[*key, math.frexp(job.remaining_work)[1]].append(job)
    cells = sum(instance.slots * (len(instance.table_of(jobs[0]).gpus) + 2) * 3 for jobs in classes.values())
    levels = int(min(max(CELLS / max(cells, 1), LEVELS[0]), LEVELS[1]))
    total = sum(_least(instance, jobs, charges, levels) for jobs in classes.values())
    standing = _standing(instance)
    total += standing.get(CRITERIA[instance.objective], 0.0)
    owed = 0.0
    for name, price in charged.items():
        if name in BUDGETS:
            owed += price * (getattr(instance.budgets, BUDGETS[name]) - standing.get(name, 0.0))
        else:
            pool = name.removeprefix("gpus:").rpartition("@")[0]
            owed += price * instance.pools[pool].gpus
    return total - owed - ROUNDING * (abs(total) + abs(owed))


def _charged(instance: ShiftingInstance, prices: Mapping[str, float]) -> dict[str, float]:
    """Positive prices, once all are known to make sense."""
    rows = {f"gpus:{pool}@{slot}" for pool in instance.pools for slot in range(instance.slots)}
    rows |= {name for name, field in BUDGETS.items() if getattr(instance.budgets, field) is not None}
    for name, price in prices.items():
        if name not in rows:
            raise ValueError(f"certificate: '{name}' is no row of this instance")
        if isinstance(price, bool) or not isinstance(price, int | float) or not math.isfinite(price):
            raise ValueError(f"certificate: the price {price!r:.40} of row '{name}' is not a finite number")
        if price > 0:
            raise ValueError(f"certificate: the price {price:g} of row '{name}' is positive")
    return {name: -float(price) for name, price in prices.items() if price}


def _per_joule(instance: ShiftingInstance) -> dict[str, FloatArray]:
    """Grams, joules and money of a joule by slot, and, last, after the horizon."""
    found = {"energy_j": np.ones(instance.slots)}
    if instance.carbon_g_per_kwh is not None:
        found["carbon_g"] = np.array(instance.carbon_g_per_kwh[: instance.slots]) / JOULES_PER_KWH
    if instance.price_per_kwh is not None:
        found["money"] = np.array(instance.price_per_kwh[: instance.slots]) / JOULES_PER_KWH
    return {name: np.append(line, line.mean()) for name, line in found.items()}


def _standing(instance: ShiftingInstance) -> dict[str, float]:
    """Draw of all GPUs if they were idle throughout."""
    watts = sum(pool.gpus * pool.idle_power_w for pool in instance.pools.values())
    return {
        name: float(line[:-1].sum()) * watts * instance.slot_s for name, line in _per_joule(instance).items()
    }


def _charges(
    instance: ShiftingInstance, charged: Mapping[str, float], weight: Mapping[str, float]
) -> _Charges:
    joule = np.zeros(instance.slots + 1)
    for name, line in _per_joule(instance).items():
        joule += weight[name] * line
    gpu = {
        pool: np.array([charged.get(f"gpus:{pool}@{slot}", 0.0) for slot in range(instance.slots)])
        for pool in instance.pools
    }
    return _Charges(weight["completion_s"], joule, gpu)


def _least(instance: ShiftingInstance, jobs: list[ShiftingJob], charges: _Charges, levels: int) -> float:
    """Sum of the least costs of jobs that differ in arrival, history and a little in size."""
    programme = _Programme(instance, jobs, charges, levels)
    begins = defaultdict(list)
    for job in jobs:
        begins[math.ceil(job.arrival_s * (1 - ROUNDING) / instance.slot_s)].append(job)
    total, cost = 0.0, programme.after()
    for slot in range(instance.slots - 1, min(begins) - 1, -1):
        cost = programme.before(slot, cost)
        for job in begins.get(slot, ()):
            total += float(cost[programme.state_of(job), programme.level_of(job.remaining_work)])
            total -= programme.delay * job.arrival_s
    return total


class _Programme:
    """Least costs by state (the option of the slot before, "ran before", "never ran") and level."""

    def __init__(self, instance: ShiftingInstance, jobs: list[ShiftingJob], charges: _Charges, levels: int):
        self.instance, self.job, self.charges = instance, jobs[0], charges
        table = instance.table_of(jobs[0])
        self.rows = [r for r, g in enumerate(table.gpus) if g <= instance.pools[table.pool[r]].gpus]
        self.table, self.n = table, len(self.rows)
        self.rate = np.array(table.rate, dtype=float)[self.rows]
        self.power_w = np.array(table.power_w, dtype=float)[self.rows]
        self.gpus = np.array(table.gpus, dtype=float)[self.rows]
        self.pools = [table.pool[r] for r in self.rows]
        idle_w = np.array([instance.pools[pool].idle_power_w for pool in self.pools])
        self.extra_w = np.maximum(self.power_w - self.gpus * idle_w, 0.0)
        kinds = [_kind(table, r) for r in self.rows]
        self.same_kind = np.array([[a == b for b in kinds] for a in kinds])
        self.delay = charges.completion * self.job.weight / sum(job.weight for job in instance.jobs)
        largest = max(job.remaining_work for job in jobs)
        self.step = largest / levels
        self.work = self.step * np.arange(levels + 1)
        self.deadline_s = math.inf if self.job.deadline_s is None else self.job.deadline_s * (1 + ROUNDING)
        slots = np.arange(instance.slots + 1)[:, None]
        exact = slots * (self.rate * instance.slot_s / self.step)
        self.floor = np.floor(exact)
        behind = exact - self.floor
        worst = np.array([behind[t + 1 :].max(axis=0) for t in range(instance.slots)])
        self.makes_up = worst - behind[1:] + 1e-7

    def state_of(self, job: ShiftingJob) -> int:
        """State before the job's first slot; of options that differ only in clocks any one will do."""
        if job.current is not None:
            held = (job.current.gpus, job.current.pool, job.current.batch_size)
            for o, row in enumerate(self.rows):
                if _kind(self.table, row) == held:
                    return self.n + 2 + o
        return self.n if job.has_run or job.current is not None else self.n + 1

    def level_of(self, work: float) -> int:
        """Level at or below an amount of work."""
        return min(int(work * (1 - ROUNDING) / self.step), len(self.work) - 1)

    def after(self) -> FloatArray:
        """Costs at the end of the horizon."""
        fastest = min(range(self.n), key=lambda o: (-self.rate[o], self.power_w[o], o))
        seconds = self.work / self.rate[fastest]
        end_s = self.instance.horizon_s + seconds
        cost = self.delay * end_s + self.charges.joule[-1] * self.power_w[fastest] * seconds
        if self.job.must_finish:
            cost = np.full_like(cost, math.inf)
        cost[end_s > self.deadline_s] = math.inf
        return np.tile(cost, (2 * self.n + 2, 1))

    def before(self, slot: int, later: FloatArray) -> FloatArray:
        """Costs of a slot from those of the next one; the last states begin a run of a kind for free."""
        n = self.n
        per_slot = self.floor[slot + 1] - self.floor[slot]
        start = self._run(slot, later, self._first(slot, 0.0), 0.0)
        again = start if self.job.restart_s == 0 else self._run(
            slot, later, self._first(slot, self.job.restart_s), self.job.restart_s
        )  # fmt: skip
        going_on = self._run(slot, later, per_slot, 0.0)
        paused = np.minimum(later[n], again.min(axis=0))
        never = np.minimum(later[n + 1], start.min(axis=0))
        # A run that goes on is not begun again, or every slot would be given a part of a level.
        running = np.minimum(going_on, later[n])
        held = np.tile(paused, (n, 1))
        for o, same in enumerate(self.same_kind):
            others = same.copy()
            others[o] = False
            running[o] = np.minimum(running[o], start[others].min(axis=0, initial=math.inf))
            running[o] = np.minimum(running[o], again[~same].min(axis=0, initial=math.inf))
            held[o] = np.minimum(held[o], start[same].min(axis=0))
        return np.concatenate([running, paused[None], never[None], held])

    def _first(self, slot: int, lost_s: float) -> FloatArray:
        """Levels of the first slot of a run."""
        able = self.rate * (self.instance.slot_s - lost_s) / self.step
        return np.asarray(np.ceil(able + self.makes_up[slot]))

    def _run(self, slot: int, later: FloatArray, done: FloatArray, lost_s: float) -> FloatArray:
        """Cost of every option in a slot, shape (n_options, n_levels)."""
        slot_s = self.instance.slot_s
        index = np.maximum(np.arange(len(self.work)) - done[:, None].astype(np.int64), 0)
        rest = np.take_along_axis(later[: self.n], index, axis=1)
        needs_s = lost_s + self.work / self.rate[:, None]
        ends = needs_s <= slot_s * (1 + ROUNDING)
        end_s = slot * slot_s + needs_s
        last = np.where(end_s > self.deadline_s, math.inf, self.delay * end_s)
        gpu = self.gpus * [self.charges.gpu[pool][slot] for pool in self.pools]
        used_s = np.where(ends, needs_s, slot_s)
        joules = self.extra_w[:, None] * used_s
        return np.asarray(gpu[:, None] + self.charges.joule[slot] * joules + np.where(ends, last, rest))


def _kind(table: OptionTable, row: int) -> tuple[int, str, int | None]:
    """What may not change without a restart."""
    return table.gpus[row], table.pool[row], None if table.batch_size is None else table.batch_size[row]
