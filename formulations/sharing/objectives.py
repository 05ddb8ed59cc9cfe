r"""Objectives of `sharing`: what a pattern costs, what a job in a slot adds, and what waiting costs.

A job j of class c in slot s of pattern p costs :math:`a_s + b_s r_j`, where :math:`r_j` are its remaining
epochs. Everything else is linear in the number of units that carry a pattern, so the program is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from wattsched.formulations.sharing.data import Patterns
from wattsched.instances.sharing.instance import OBJECTIVES, SharingInstance
from wattsched.instances.units import J_PER_KWH, S_PER_H
from wattsched.topology.arrays import FloatArray, IntArray


@dataclass(frozen=True)
class Costs:
    """Costs to be minimised, of P patterns with Q slots and C classes.

    Attributes
    ----------
    pattern : float array, shape (P,)
        For each unit that carries the pattern.
    slot, per_epoch : float arrays, shape (Q,)
        For each job in the slot, and for each epoch that remains of it.
    waiting, waiting_per_epoch : float arrays, shape (C, T)
        The same for a job alone on each unit type, -inf where it cannot be; the dearest one counts.
    penalty : float
        What the cost of waiting is multiplied with.
    offset : float
    """

    pattern: FloatArray
    slot: FloatArray
    per_epoch: FloatArray
    waiting: FloatArray
    waiting_per_epoch: FloatArray
    penalty: float
    offset: float = 0.0

    @property
    def work_matters(self) -> bool:
        """True if costs depend on the epochs that remain."""
        return bool(np.any(self.per_epoch != 0))

    def of_waiting(self, job_class: IntArray, epochs: FloatArray) -> FloatArray:
        """Cost of jobs that wait."""
        alone = self.waiting[job_class] + self.waiting_per_epoch[job_class] * epochs[:, None]
        dearest = alone.max(axis=1, initial=-np.inf)
        return self.penalty * np.where(np.isfinite(dearest), dearest, 0.0)


def _eaco(instance: SharingInstance, patterns: Patterns) -> Costs:
    """Energy in kWh and mean epoch time in h, weighted (EaCO, eq. 1)."""
    per_job = (1 - instance.alpha) / max(1, len(instance.jobs)) / S_PER_H
    per_epoch = instance.alpha * patterns.epoch_energy_j / J_PER_KWH
    return _of_slots(instance, patterns, per_job * patterns.epoch_s, per_epoch)


def _energy(instance: SharingInstance, patterns: Patterns) -> Costs:
    """Energy in kWh until the jobs that run are complete."""
    return _of_slots(instance, patterns, np.zeros(len(patterns.epoch_s)), patterns.epoch_energy_j / J_PER_KWH)


def _power(instance: SharingInstance, patterns: Patterns) -> Costs:
    """Watts of all units, sleeping ones included."""
    sleep_w = np.array([unit.sleep_power_w for unit in instance.unit_types])
    awake, nothing = patterns.power_w - sleep_w[patterns.unit_type], np.zeros(len(patterns.epoch_s))
    of_slots = _of_slots(instance, patterns, np.maximum(0.0, awake)[patterns.pattern], nothing)
    offset = float(sum(unit.count * unit.sleep_power_w for unit in instance.unit_types))
    return replace(of_slots, pattern=awake, slot=nothing, offset=offset)


def _throughput(instance: SharingInstance, patterns: Patterns) -> Costs:
    """Sum of normalised throughputs: epochs per second over the most that the job could have anywhere."""
    fastest = np.array([min(a.epoch_s for a in c.alone.values()) for c in instance.classes])
    gain = fastest[patterns.job_class] / patterns.epoch_s
    return replace(_of_slots(instance, patterns, -gain, np.zeros(len(gain))), penalty=0.0)


def _of_slots(
    instance: SharingInstance, patterns: Patterns, slot: FloatArray, per_epoch: FloatArray
) -> Costs:
    """Costs of slots alone; waiting costs what the slots of jobs alone do."""
    shape = (len(instance.classes), len(instance.unit_types))
    waiting, waiting_per_epoch = np.full(shape, -np.inf), np.zeros(shape)
    alone = np.flatnonzero(patterns.size[patterns.pattern] == 1)
    where = patterns.job_class[alone], patterns.unit_type[patterns.pattern[alone]]
    waiting[where], waiting_per_epoch[where] = slot[alone], per_epoch[alone]
    nothing, penalty = np.zeros(len(patterns)), instance.waiting_penalty
    return Costs(nothing, slot, per_epoch, waiting, waiting_per_epoch, penalty)


_COSTS: dict[str, Callable[[SharingInstance, Patterns], Costs]] = {
    "eaco": _eaco,
    "energy": _energy,
    "power": _power,
    "throughput": _throughput,
}


def costs_of(instance: SharingInstance, patterns: Patterns, objective: str) -> Costs:
    """Costs of an objective.

    Raises
    ------
    ValueError
        For an unknown objective.
    """
    if objective not in _COSTS:
        raise ValueError(f"unknown objective '{objective}'; known: {', '.join(OBJECTIVES)}")
    return _COSTS[objective](instance, patterns)
