"""How far ahead it is worth looking at given prices.

A schedule that ends in slot T or later costs at least the delay until then and the energy of the work where
it is cheapest. Where that is more than the best schedule of a single run costs, T need not be looked at.
"""

from __future__ import annotations

import numpy as np

from wattsched.formulations.program import FloatArray, IntArray
from wattsched.formulations.shifting.horizon import Horizon
from wattsched.formulations.shifting.job_groups import NEVER_RAN, JobGroup
from wattsched.formulations.shifting.schedule import ROUNDING


def windows(
    horizon: Horizon, group: JobGroup, delay: FloatArray, joule: FloatArray, gpu_cost: FloatArray
) -> IntArray:
    """Slots from a job's first one on that may matter, shape (n_jobs,).

    Parameters
    ----------
    delay : float array, shape (n_jobs,)
        Price of a second of completion time.
    joule : float array, shape (slots + 1,)
    gpu_cost : float array, shape (slots, n_options)
    """
    extra_w, rate = horizon.extra_w[group.option], horizon.rate[group.option]
    known = _single_runs(horizon, group, delay, joule, gpu_cost).min(axis=(1, 2), initial=np.inf)
    cheapest = np.minimum.accumulate(joule[::-1])[::-1][group.first_slot]
    room = known - group.work * float((extra_w / rate).min()) * cheapest
    with np.errstate(divide="ignore", invalid="ignore"):
        end = np.ceil(room * (1 + ROUNDING) / (delay * horizon.slot_s)) + 1
    end = np.where(np.isfinite(end) & (end < horizon.slots), end, horizon.slots)
    return np.asarray(np.maximum(end.astype(np.int64) - group.first_slot, 1))


def _single_runs(
    horizon: Horizon, group: JobGroup, delay: FloatArray, joule: FloatArray, gpu_cost: FloatArray
) -> FloatArray:
    """Costs of schedules that are one run, by job, first slot and option."""
    extra_w, rate = horizon.extra_w[group.option], horizon.rate[group.option]
    slot_s, option = horizon.slot_s, np.arange(len(group.option))
    each = gpu_cost + np.outer(joule[:-1], extra_w * slot_s)
    spent = np.concatenate([np.zeros((1, len(option))), np.cumsum(each, axis=0)])
    lost_s = np.where(group.kind_before == NEVER_RAN, 0.0, group.restart_s)
    needs_s = group.work[:, None] / rate + lost_s[:, None]
    before = np.maximum(np.ceil(needs_s / slot_s - 1e-6).astype(np.int64) - 1, 0)
    used_s = needs_s - before * slot_s
    begun = np.arange(horizon.slots)[:, None]
    last = begun + before[:, None]
    inside = np.minimum(last, horizon.slots - 1)
    end_s = inside * slot_s + used_s[:, None]
    cost = spent[inside, option] - spent[:-1] + gpu_cost[inside, option]
    cost += joule[inside] * (extra_w * used_s)[:, None] + delay[:, None, None] * end_s
    valid = (last < horizon.slots) & (begun >= group.first_slot[:, None, None])
    valid &= end_s <= group.deadline_s[:, None, None]
    return np.asarray(np.where(valid, cost, np.inf))
