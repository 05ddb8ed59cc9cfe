"""What is scarce in a round: watts, joules, grams and free GPUs; what options use of it, and what is left."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattsched.formulations.sizing.data import Options
from wattsched.instances.sizing.instance import Instance, Placement
from wattsched.instances.units import J_PER_KWH
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray
from wattsched.topology.buddy import block_size
from wattsched.topology.pools import Pool


@dataclass(frozen=True)
class BudgetRow:
    """One budget: what columns use of it and the capacity left once everything idle is paid for.

    Attributes
    ----------
    name : str
        Row name, for example ``power_w`` or ``power_w:rack3``.
    column : int array, shape (n_users,)
        Columns that use it, in their order.
    use : float array, shape (n_users,)
    limit : float
        The budget as the instance states it.
    standing : float
        What idle GPUs and nodes use of it whatever is decided.
    """

    name: str
    column: IntArray
    use: FloatArray
    limit: float
    standing: float

    @classmethod
    def of(cls, name: str, use: FloatArray, limit: float, standing: float) -> BudgetRow:
        """Row of the uses of all columns, shape (n_columns,)."""
        column = np.flatnonzero(use)
        return cls(name, column, use[column], limit, standing)

    @property
    def capacity(self) -> float:
        """What is left for the jobs; negative when the standing use alone breaks the budget."""
        return self.limit - self.standing


def extra_power_w(options: Options) -> FloatArray:
    """Draw of each option beyond the idle draw of the GPUs it takes."""
    return options.power_w - options.idle_w


def energy_j(options: Options) -> FloatArray:
    """Energy of each option in the scope of the budgets (see `Budgets`)."""
    instance = options.instance
    if instance.budgets.scope == "round":
        return extra_power_w(options) * np.minimum(options.completion_s, instance.round_s)
    return options.energy_j


def budget_rows(options: Options, index: IntArray | None = None) -> list[BudgetRow]:
    """Rows of all budgets and power caps of the instance.

    Parameters
    ----------
    index : int array, shape (n_columns,), optional
        Option of each column; without it, every option is one.
    """
    instance, pools, budgets = options.instance, options.pools, options.instance.budgets
    index = np.arange(len(options)) if index is None else index
    idle_w, extra = standing_power_w(instance, pools), extra_power_w(options)[index]
    rows = []
    if budgets.power_w is not None:
        rows.append(BudgetRow.of("power_w", extra, budgets.power_w, idle_w))
    pool = options.pool[index]
    by_pool = np.argsort(pool, kind="stable")
    ends = np.searchsorted(pool[by_pool], np.arange(len(pools) + 1))
    for domain in instance.cluster.power_domains:
        inside = [p for p, one in enumerate(pools) if domain.name in one.domains]
        column = np.sort(np.concatenate([ends[:0], *(by_pool[ends[p] : ends[p + 1]] for p in inside)]))
        column = column[extra[column] != 0.0]
        standing = standing_power_w(instance, pools, domain.name)
        row = f"power_w:{domain.name}"
        rows.append(BudgetRow(row, column, extra[column], domain.power_cap_w, standing))
    if budgets.energy_j is None and budgets.carbon_g is None:
        return rows
    use = energy_j(options)[index]
    standing = idle_w * instance.round_s if budgets.scope == "round" else 0.0
    if budgets.energy_j is not None:
        rows.append(BudgetRow.of("energy_j", use, budgets.energy_j, standing))
    if budgets.carbon_g is not None and instance.carbon_g_per_kwh is not None:
        grams = instance.carbon_g_per_kwh / J_PER_KWH
        rows.append(BudgetRow.of("carbon_g", use * grams, budgets.carbon_g, standing * grams))
    return rows


def standing_power_w(instance: Instance, pools: tuple[Pool, ...], domain: str | None = None) -> float:
    """Idle draw of all available GPUs plus node base power, of the site or of a power domain."""
    types = instance.cluster.gpu_types
    base_w = {node.name: node.base_power_w for node in instance.cluster.nodes}
    return float(
        sum(
            types[pool.gpu_type].idle_power_w * int(pool.available.sum())
            + sum(base_w[name] for name in pool.nodes)
            for pool in pools
            if domain is None or domain in pool.domains
        )
    )


def free_gpus(options: Options) -> list[BoolArray]:
    """Per pool, which positions of its line are free for the jobs that are to be placed."""
    free = [pool.available.copy() for pool in options.pools]
    number = {pool.name: p for p, pool in enumerate(options.pools)}
    for job in options.instance.jobs:
        if not job.preemptible and job.current is not None:
            p = number[job.current.pool]
            free[p][held_positions(options.pools[p], job.current)] = False
            free[p][_reserved(options.pools[p], job.current)] = False
    return free


def held_positions(pool: Pool, current: Placement) -> list[int]:
    """Line positions of the GPUs that a running job holds."""
    return sorted(pool.position(node, gpu) for node, gpus in current.nodes.items() for gpu in gpus)


def _reserved(pool: Pool, current: Placement) -> slice:
    """The aligned block around a job's GPUs, which it reserves when its count is no power of two.

    A job that keeps its GPUs may hold some that lie in no common block; it reserves nothing more then.
    """
    size = int(block_size(current.gpus))
    positions = held_positions(pool, current)
    first = positions[0] // size * size
    # On the line, small structural blocks lie next to each other without being one.
    structural = int(pool.blocks[np.searchsorted(pool.blocks[:, 0], positions[0], side="right") - 1, 1])
    together = structural >= size and positions[-1] < first + size
    return slice(first, first + size) if together else slice(0, 0)
