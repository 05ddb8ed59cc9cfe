"""Draws and budgets of a horizon in joules, grams and money, for checking decisions and for proofs."""

from __future__ import annotations

import numpy as np

from wattsched.instances.shifting.instance import ShiftingInstance
from wattsched.instances.sizing.job import OptionTable
from wattsched.instances.units import J_PER_KWH
from wattsched.topology.arrays import FloatArray

CRITERIA = {"mean-completion": "completion_s", "carbon": "carbon_g", "energy": "energy_j", "money": "money"}
"""Objective to the row of its budget."""

BUDGETS = {
    "completion_s": "average_completion_s",
    "carbon_g": "carbon_g",
    "energy_j": "energy_j",
    "money": "money",
}
"""Row to the field of its budget, which is the name of its total, too."""


def per_joule(instance: ShiftingInstance) -> dict[str, FloatArray]:
    """Joules, grams and money of a joule by slot, and, last, after the horizon at the average."""
    found = {"energy_j": np.ones(instance.slots)}
    if instance.carbon_g_per_kwh is not None:
        found["carbon_g"] = np.array(instance.carbon_g_per_kwh[: instance.slots]) / J_PER_KWH
    if instance.price_per_kwh is not None:
        found["money"] = np.array(instance.price_per_kwh[: instance.slots]) / J_PER_KWH
    return {name: np.append(line, line.mean()) for name, line in found.items()}


def standing_of(instance: ShiftingInstance) -> dict[str, float]:
    """Return the joules, grams and money of all GPUs if they are idle throughout."""
    joules = sum(pool.gpus * pool.idle_power_w for pool in instance.pools.values()) * instance.slot_s
    return {name: float(line[:-1].sum()) * joules for name, line in per_joule(instance).items()}


def fitting_rows(instance: ShiftingInstance, table: OptionTable) -> list[int]:
    """Rows of a table that fit into their pools."""
    return [row for row, gpus in enumerate(table.gpus) if gpus <= instance.pools[table.pool[row]].gpus]


def after_horizon(instance: ShiftingInstance, table: OptionTable) -> tuple[float, float]:
    """Rate and watts of unfinished jobs, which run on at their fastest and, of the fastest, thriftiest."""
    assert table.rate is not None, "instances whose tables give completion times are refused"
    rate, power_w = table.rate, table.power_w
    fastest = min(fitting_rows(instance, table), key=lambda row: (-rate[row], power_w[row], row))
    return rate[fastest], power_w[fastest]
