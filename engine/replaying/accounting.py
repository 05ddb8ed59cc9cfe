"""Replays beside the record of what the cluster did, and their energy and carbon by account and by month."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Literal

import numpy as np

from wattsched.instances.traces.carbon import utc_time
from wattsched.replay.jobs.accounts import PerKwh
from wattsched.replay.jobs.outcome import Outcome
from wattsched.replay.jobs.trace import Trace
from wattsched.report.saved import IDLE, NOBODY, Recorded
from wattsched.report.wording import energy, percent
from wattsched.topology.arrays import FloatArray

By = Literal["account", "month"]
Groups = dict[str, tuple[float, float, float]]
"""Joules, grams and money of the cluster by ``MONTH|ACCOUNT``, empty where it is not split by one of them."""

FAR = 2.0
"""Factor between the energy of the baseline and of the record from which on it is pointed at."""


def record_of(trace: Trace, idle_w: float) -> Recorded | None:
    """Estimate what a cluster drew while it ran the jobs as recorded; None where no durations are known.

    A job draws its measured watts or, without these, those of its model as it was asked for; all other GPUs
    and the nodes are idle from the first arrival to the last end. Without waits jobs start as they arrive.
    """
    if not trace.records:
        return None
    rows, lasts_s = trace.configurations, np.array([one.duration_s for one in trace.records])
    waits_s = np.array([np.nan if one.waited_s is None else one.waited_s for one in trace.records])
    rate = np.append(rows.rate, np.nan)[trace.request]
    off = np.nan_to_num(np.abs(trace.work[:, None] / rate - lasts_s[:, None]), nan=np.inf)
    row = trace.request[np.arange(len(trace)), off.argmin(axis=1)]
    watts = np.array([np.nan if one.power_w is None else one.power_w for one in trace.records])
    busy_w = np.where(np.isnan(watts), rows.power_w[row], watts) - trace.idle_w[row]
    gpu_s = np.array([one.gpus for one in trace.records]) * lasts_s
    seconds = float((trace.arrival_s + np.nan_to_num(waits_s) + lasts_s).max() - trace.arrival_s[0])
    return Recorded(
        energy_j=idle_w * seconds + float(busy_w @ lasts_s),
        completion_s=None if np.isnan(waits_s).any() else float((waits_s + lasts_s).mean()),
        utilisation=float(gpu_s.sum() / (trace.available.sum() * seconds)),
        measured=float(gpu_s[~np.isnan(watts)].sum() / gpu_s.sum()),
    )


def doubts(baseline: str, energy_j: float, record: Recorded | None) -> Iterator[str]:
    """Point at totals that can hardly be right."""
    if record is None:
        return
    ratio = energy_j / record.energy_j
    if not 1 / FAR < ratio < FAR:
        told = f"'{baseline}' takes {energy(energy_j)}, and the record {energy(record.energy_j)}"
        yield f"{told}: check the watts of the cluster file and of the list"
    if record.utilisation > 1.0:
        told = f"by the record {percent(record.utilisation)} of the cluster's GPU time were in use"
        yield f"{told}: the cluster has fewer GPUs than the jobs had, or jobs are counted twice"


def clock_of(trace: Trace, start: str | None) -> float:
    """Seconds since 1970 at time 0 of a trace; by the list's own clock where its dates have no zone.

    Raises
    ------
    ValueError
        When neither the list nor `start` tells a date.
    """
    if start is not None:
        return utc_time(start).timestamp() - float(trace.arrival_s[0])
    if trace.clock is None:
        raise ValueError(
            "by: month needs a list whose arrivals are dates, or the time of the first as `start`"
        )
    return trace.clock.replace(tzinfo=UTC).timestamp()


def groups_of(outcome: Outcome, by: Sequence[By], clock_s: float, until_s: float, idle_w: float) -> Groups:
    """Split what the cluster draws until a time, idle from the last completion on, by month and account.

    Jobs stand for what their GPUs draw; idle GPUs and nodes are nobody's.
    """
    log, power, of_job = outcome.segments, outcome.meter.power, np.array(outcome.segments.job, dtype=np.int64)
    starts, works, ends, low_w, high_w = (
        np.array(values) for values in (log.start_s, log.works_s, log.end_s, log.idle_w, log.power_w)
    )
    owners = [one.account for one in outcome.trace.records] if "account" in by else [""] * len(outcome.trace)
    names, owner = np.unique(owners, return_inverse=True)
    times = np.append(np.clip(power.time_s, None, outcome.end_s), [outcome.end_s, until_s])
    of_cluster = np.append(power.values, idle_w)

    def drawn(
        begin_s: FloatArray, end_s: FloatArray, watts: FloatArray, within: tuple[float, float]
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Joules, grams and money of constant draws within two times."""
        begin_s, end_s = np.clip(begin_s, *within), np.clip(end_s, *within)
        price = PerKwh.constant(0.0) if outcome.meter.tariff is None else outcome.meter.tariff
        grams, money = (one.per_watt(begin_s, end_s) for one in (outcome.meter.carbon, price))
        return watts * (end_s - begin_s), watts * grams, watts * money

    found: Groups = {}
    edges = _months(outcome.begin_s, until_s, clock_s) if "month" in by else {"": outcome.begin_s}
    for (month, begin_s), (_, end_s) in pairwise([*edges.items(), ("", until_s)]):
        within = (begin_s, end_s)
        total = [float(part.sum()) for part in drawn(times[:-1], times[1:], of_cluster, within)]
        if "account" in by:
            parts = zip(drawn(starts, works, low_w, within), drawn(works, ends, high_w, within), strict=True)
            by_owner = np.array([np.bincount(owner[of_job], low + high, len(names)) for low, high in parts])
            for name, (joules, grams, money) in zip(names.tolist(), by_owner.T.tolist(), strict=True):
                found[f"{month}|{name or NOBODY}"] = joules, grams, money
            total = (total - by_owner.sum(axis=1)).tolist()
        found[f"{month}|{IDLE}" if "account" in by else f"{month}|"] = total[0], total[1], total[2]
    return found


def _months(begin_s: float, until_s: float, clock_s: float) -> dict[str, float]:
    """Begin of each month, the first one's at `begin_s`."""
    found, at = {}, datetime.fromtimestamp(clock_s + begin_s, UTC)
    while (start_s := at.timestamp() - clock_s) < until_s:
        found[f"{at:%Y-%m}"] = max(start_s, begin_s)
        at = datetime(at.year + at.month // 12, at.month % 12 + 1, 1, tzinfo=UTC)
    return found
