"""Instances that stay as they are: their options are listed, and their numbers do not hang on a processor.

Options that performance models give are tabulated, in six digits, so that an instance means the same whatever
the catalogue says later, and to programs that know no models. Sums have six digits, too: the last ones of a
double differ between processors.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wattsched.formulations.sizing.configurations import configurations_of
from wattsched.instances.sizing.instance import Instance
from wattsched.instances.sizing.job import Job, OptionTable
from wattsched.topology.arrays import FloatArray, IntArray
from wattsched.topology.pools import pools_of

DIGITS = 6


def frozen(instance: Any, name: str) -> Any:
    """The instance under a name, its options listed and its budgets in six digits."""
    fields: dict[str, Any] = {"name": name}
    if hasattr(instance, "budgets"):
        budgets = {
            field: short(value) if isinstance(value, float) else value
            for field, value in dict(instance.budgets).items()
        }
        fields["budgets"] = type(instance.budgets).model_validate(budgets)
    if isinstance(instance, Instance):
        fields |= _tabulated(instance)
    return type(instance).model_validate({**dict(instance), **fields})


def short(value: float) -> float:
    """Number in six digits."""
    return float(f"{value:.{DIGITS}g}")


def _tabulated(instance: Instance) -> dict[str, Any]:
    """Tables, profiles and jobs of a round whose jobs have no models any more."""
    jobs = instance.by_column()
    modelled = [job.model is not None for job in jobs]
    if not any(modelled):
        return {}
    pools = pools_of(instance.cluster)
    known, tables = configurations_of(instance, jobs, pools), dict(instance.tables)
    # Kinds are numbered in the order of their first jobs.
    _, first_job = np.unique(known.of_job, return_index=True)
    number = np.argsort(np.argsort(first_job)).tolist()
    names, listed = [pool.name for pool in pools], []
    for j, job in enumerate(jobs):
        if not modelled[j]:
            listed.append(job)
            continue
        kind = int(known.of_job[j])
        table = f"{job.model}-{number[kind]}"
        if table not in tables:
            rows = np.arange(known.start[kind], known.start[kind + 1])
            tables[table] = OptionTable.model_validate(_columns(known, rows, names))
        listed.append(_by_table(job, table))
    return {"tables": tables, "profiles": [], "jobs": listed}


def _columns(known: Any, rows: IntArray, names: list[str]) -> dict[str, Any]:
    """Columns of an option table, of some rows of configurations; names are those of the pools."""

    def numbers(values: FloatArray) -> list[float]:
        return [short(value) for value in values[rows].tolist()]

    columns: dict[str, Any] = {
        "gpus": known.gpus[rows].tolist(),
        "pool": [names[p] for p in known.pool[rows].tolist()],
        "power_w": numbers(known.power_w),
        "rate": numbers(known.rate),
    }
    for setting, whole in (("frequency_mhz", True), ("power_limit_w", False), ("batch_size", True)):
        values = getattr(known, setting)
        if len(rows) and not np.isnan(values[rows]).any():
            columns[setting] = [int(value) for value in values[rows]] if whole else numbers(values)
    return columns


def _by_table(job: Job, table: str) -> Job:
    without = {"model", "batch_sizes", "gpu_counts", "frequencies_mhz", "power_limits_w"}
    kept = {field: value for field, value in dict(job).items() if field not in without}
    return Job.model_validate({**kept, "options": table})
