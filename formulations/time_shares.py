r"""Time shares: linear programs whose fractions are shares of time.

.. math::
    \max\ t \quad\text{or}\quad \max \sum_j z_j(x) \quad\text{s.t.}\quad
    z_j(x) \ge t, \quad \sum_{o \in O_j} x_o \le 1, \quad
    \sum_{o \in k} g_o x_o \le G_k, \quad \sum_o P_o x_o \le P, \quad x \ge 0

with the progress :math:`z_j` of the jobs. The least progress where demands are what is left to do is one over
the makespan: it needs no search over makespans.

An optimum of the least progress says little of the jobs that it does not hang on, and a vertex of the optimal
face may give them nothing more. `ties` says what else is asked for: the sum of all progress among the optima,
or the next least progress, and so on (lexicographic max-min, which Gavel calls water filling).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from wattsched.formulations.program import Block, Program, ProgramBuilder
from wattsched.instances.time_shares import TimeShareInstance
from wattsched.topology.arrays import BoolArray, FloatArray, largest_by

Ties = Literal["goodput", "max-min", "any"]
TIES = get_args(Ties)
"""Names of what is asked for among the optima."""

KEPT = 1.0 - 1e-7
"""Part of the progress found so far that further programs keep."""


@dataclass(frozen=True)
class Prices:
    """Duals of a program, none negative.

    Attributes
    ----------
    progress : float array, shape (n_jobs,)
        What a unit of each job's progress counts.
    gpus : float array, shape (n_types,)
        What all of a GPU's time is worth, in units of progress.
    power_w : float
        What a watt is worth.
    """

    progress: FloatArray
    gpus: FloatArray
    power_w: float


def program_of(
    instance: TimeShareInstance, *, raised: BoolArray | None = None, floor: FloatArray | None = None
) -> Program:
    """Program of the least progress of some jobs, or, where none are named, of the sum of all.

    Parameters
    ----------
    raised : bool array, shape (n_jobs,), optional
        Jobs whose least progress is maximised.
    floor : float array, shape (n_jobs,), optional
        Least progress of every job.
    """
    builder, job, n = ProgramBuilder(), instance.job, len(instance.jobs)
    worth, usable = instance.progress_rate, instance.usable
    best = largest_by(job[usable], worth[usable], n)
    costs = -worth if raised is None else 0.0
    x = builder.columns(
        Block("share", instance.n_options), cost=costs, upper=usable.astype(float), integer=False
    )
    builder.add(builder.rows(Block.named("time", instance.jobs), upper=1.0)[job], x)
    gpus = builder.rows(Block.named("gpus", instance.types), upper=instance.available)
    builder.add(gpus[instance.type_of], x, instance.gpus)
    if np.isfinite(instance.power_cap_w):
        builder.row("power_w", x, instance.power_w, upper=instance.power_cap_w)
    least = np.zeros(n) if floor is None else floor
    if raised is not None or floor is not None:
        progress = builder.rows(Block.named("progress", instance.jobs), lower=least)
        builder.add(progress[job], x, worth)
        if raised is not None and raised.any():
            # In units of what it can be at most, so that its entries are about as large as the others; its
            # own bound is out of reach, so that all that it costs is in the prices of rows.
            most = float(best[raised].min())
            t = builder.columns(Block("least", 1), cost=-most, upper=2.0, integer=False)
            builder.add(progress[raised], t, -most)
    return builder.program(sense="max")


def prices_of(instance: TimeShareInstance, duals: FloatArray) -> Prices:
    """Prices from the duals of the rows of `program_of`, in their order."""
    n, k = len(instance.jobs), len(instance.types)
    capped = int(np.isfinite(instance.power_cap_w))
    use, progress = -duals[n : n + k + capped], duals[n + k + capped :]
    use = np.maximum(use, 0.0)
    counts = np.maximum(progress, 0.0) if instance.objective != "goodput" else np.ones(n)
    return Prices(counts, use[:k], float(use[k:].sum()))


def repaired(instance: TimeShareInstance, share: FloatArray) -> FloatArray:
    """Shares that keep within time, GPUs and watts but for rounding, where a solver's do by its tolerance."""
    x = np.clip(np.where(instance.usable, share, 0.0), 0.0, 1.0)
    x = x / np.maximum(np.bincount(instance.job, x, len(instance.jobs)), 1.0)[instance.job]
    used = np.bincount(instance.type_of, instance.gpus * x, len(instance.types))
    over = np.divide(used, instance.available, out=np.ones(len(used)), where=instance.available > 0)
    x = x / np.maximum(over, 1.0)[instance.type_of]
    return x / max(float(instance.power_w @ x) / instance.power_cap_w, 1.0)
