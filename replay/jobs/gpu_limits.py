"""Traces on GPUs with a fixed power limit, as an operator sets it for all jobs alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from wattsched.replay.jobs.trace import Trace, requests, standard_rows
from wattsched.topology.arrays import FloatArray, alike, least_by


def limited(trace: Trace, limit_w: float) -> Trace:
    """Leave out the rows in which a GPU draws more than a limit.

    The power limit of a row counts where it has one, else the mean draw of its GPUs. Of rows that differ in
    this setting alone the lowest stays in any case: no model describes a lower one. Work stays what it is.
    """
    rows = trace.configurations
    each_w = np.where(np.isnan(rows.power_limit_w), rows.power_w / rows.gpus, rows.power_limit_w)
    _, alone = alike([trace.choice, np.nan_to_num(rows.batch_size)])
    lowest_w = least_by(alone, each_w, int(alone.max(initial=-1)) + 1)[alone]
    keep = each_w <= np.maximum(limit_w, lowest_w) * (1 + 1e-9)
    kept = rows.only(keep)
    standard = standard_rows(kept, trace.usual_batch[trace.choice][keep])
    request = requests(kept, standard, trace.requested_gpus, len(trace.pools))
    return replace(trace, configurations=kept, standard=standard, request=request)


def distinct_limits(traces: Iterable[Trace], limits_w: Sequence[float]) -> list[float]:
    """Limits, the highest first, of which each makes jobs of the traces run otherwise than the one before."""
    traces = list(traces)
    found, last = list[float](), [_requested_w(trace) for trace in traces]
    for limit_w in sorted(limits_w, reverse=True):
        now = [_requested_w(limited(trace, limit_w)) for trace in traces]
        if not all(map(np.array_equal, now, last)):
            found.append(limit_w)
        last = now
    return found


def _requested_w(trace: Trace) -> FloatArray:
    """Watts of what each job asked for in each pool, 0 where there is nothing."""
    return np.append(trace.configurations.power_w, 0.0)[trace.request]
