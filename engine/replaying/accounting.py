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
from wattsched.report.imports import BEYOND
from wattsched.report.saved import IDLE, NOBODY, Group, Interval, Recorded
from wattsched.report.wording import count, energy, percent
from wattsched.topology.arrays import FloatArray

By = Literal["account", "month"]

FAR = 2.0
"""Factor between the energy of the baseline and of the record from which on it is pointed at."""


def record_of(baseline: Sequence[Outcome], idle_w: float) -> Recorded | None:
    """Estimate what a cluster drew while it ran the jobs as recorded; None where no durations are known.

    A job draws its measured watts or, without these, those of its model as it was asked for, which replays of
    the baseline have drawn by seed; all other GPUs and the nodes are idle from the first arrival to the last
    end. A job without a wait starts as it arrives, and does not count in completion times.
    """
    traces = [outcome.trace for outcome in baseline]
    trace = traces[0]
    if not trace.records:
        return None
    lasts_s = np.array([one.duration_s for one in trace.records])
    waits_s = np.array([np.nan if one.waited_s is None else one.waited_s for one in trace.records])
    watts = np.array([np.nan if one.power_w is None else one.power_w for one in trace.records])
    gpu_s = np.array([one.gpus for one in trace.records]) * lasts_s
    seconds = float((trace.arrival_s + np.nan_to_num(waits_s) + lasts_s).max() - trace.arrival_s[0])
    jobs_j = list[float]()
    for drawn in traces:
        rate = np.append(drawn.configurations.rate, np.nan)[drawn.request]
        off = np.nan_to_num(np.abs(drawn.work[:, None] / rate - lasts_s[:, None]), nan=np.inf)
        row = drawn.request[np.arange(len(drawn)), off.argmin(axis=1)]
        busy_w = np.where(np.isnan(watts), drawn.configurations.power_w[row], watts) - drawn.idle_w[row]
        jobs_j.append(float(busy_w @ lasts_s))
    told = ~np.isnan(waits_s)
    ends_s = [(waits_s + lasts_s)[told], *(outcome.jct_s[told] for outcome in baseline)]
    figures = [[np.mean(some_s), np.percentile(some_s, 99)] for some_s in ends_s if told.any()]
    times_s = np.ravel([figures[0], np.mean(figures[1:], axis=0)]).tolist() if figures else [None] * 4
    most_w = drawn.highest_w[drawn.configurations.pool[row]] * drawn.configurations.gpus[row]
    return Recorded(
        energy_j=Interval.of([idle_w * seconds + job_j for job_j in jobs_j]),
        waits=float(told.mean()),
        **dict(zip(("completion_s", "p99_s", "baseline_s", "baseline_p99_s"), times_s, strict=True)),
        utilisation=float(gpu_s.sum() / (trace.available.sum() * seconds)),
        measured=float(gpu_s[~np.isnan(watts)].sum() / gpu_s.sum()),
        strange=int(np.sum((watts < drawn.idle_w[row] / BEYOND) | (watts > most_w * BEYOND))),
    )


def doubts(baseline: str, energy_j: float, record: Recorded | None) -> Iterator[str]:
    """Point at totals that can hardly be right."""
    if record is None:
        return
    if record.strange:
        told = f"{count(record.strange, 'job')} by the list draw less than idle GPUs, or more than theirs can"
        yield f"{told}: `watts` are those of all GPUs of a job, without the server"
    ratio = energy_j / record.energy_j.mean
    if not 1 / FAR < ratio < FAR:
        told = f"'{baseline}' takes {energy(energy_j)}, and the record {energy(record.energy_j.mean)}"
        yield f"{told}: check the watts of the cluster file and of the list"
    if record.utilisation > 1.0:
        told = f"by the record {percent(record.utilisation)} of the cluster's GPU time were in use"
        yield f"{told}: the cluster has fewer GPUs than the jobs had, or jobs are counted twice"


def clock_of(trace: Trace, start: str | None) -> float:
    """Seconds since 1970 at time 0 of a trace, by its own clock where that has no zone; else a ValueError."""
    if start is not None:
        return utc_time(start).timestamp() - float(trace.arrival_s[0])
    if trace.clock is None:
        raise ValueError(
            "by: month needs a list whose arrivals are dates, or, with a file over time, the time of the "
            "first as `start`"
        )
    return trace.clock.replace(tzinfo=UTC).timestamp()


def groups_of(outcomes: Sequence[Outcome], by: Sequence[By], clock_s: float) -> list[Group]:
    """Split what the cluster draws by month and account, the mean over replays of the same jobs.

    Jobs stand for what their GPUs draw; idle GPUs and nodes are nobody's.
    """
    found: dict[tuple[str, str], FloatArray] = {}
    jobs = slice(None) if "account" in by else slice(0)
    for outcome in outcomes if by else ():
        log, power, meter = outcome.segments, outcome.meter.power, outcome.meter
        accounts, account = np.unique(
            [one.account or NOBODY for one in outcome.trace.records], return_inverse=True
        )
        names, of_job = (
            [IDLE if "account" in by else "", *accounts[jobs].tolist()],
            1 + account[log.job[jobs]],
        )
        owner = np.concatenate([np.zeros(len(power.time_s), dtype=np.int64), of_job, of_job])
        begins_s = np.concatenate([power.time_s, log.start_s[jobs], log.works_s[jobs]])
        ends_s = np.concatenate([power.time_s[1:], [outcome.end_s], log.works_s[jobs], log.end_s[jobs]])
        watts = np.concatenate([power.values, log.idle_w[jobs], log.power_w[jobs]])
        tariff = meter.tariff or PerKwh.constant(0.0)
        edges = _months(outcome.begin_s, outcome.end_s, clock_s) if "month" in by else {"": outcome.begin_s}
        for (month, begin_s), (_, end_s) in pairwise([*edges.items(), ("", outcome.end_s)]):
            since_s, until_s = (np.clip(times, begin_s, end_s) for times in (begins_s, ends_s))
            costs = (until_s - since_s, *(one.per_watt(since_s, until_s) for one in (meter.carbon, tariff)))
            amounts = np.array([np.bincount(owner, watts * cost, len(names)) for cost in costs])
            amounts[:, 0] -= amounts[:, 1:].sum(axis=1)
            for name, part in zip(names, amounts.T / len(outcomes), strict=True):
                found[month, name] = found.get((month, name), 0.0) + part
    priced = any(outcome.meter.tariff is not None for outcome in outcomes)
    return [
        Group(*names, energy_j, carbon_g, money if priced else None)
        for names, (energy_j, carbon_g, money) in sorted((key, sums.tolist()) for key, sums in found.items())
    ]


def months_of_arrival(trace: Trace, clock_s: float) -> list[str]:
    """Month in which each job arrives, as ``2026-11``."""
    return [f"{datetime.fromtimestamp(clock_s + at_s, UTC):%Y-%m}" for at_s in trace.arrival_s.tolist()]


def _months(begin_s: float, until_s: float, clock_s: float) -> dict[str, float]:
    """Begin of each month, the first one's at `begin_s`."""
    found, at = {}, datetime.fromtimestamp(clock_s + begin_s, UTC)
    while (start_s := at.timestamp() - clock_s) < until_s:
        found[f"{at:%Y-%m}"] = max(start_s, begin_s)
        at = datetime(at.year + at.month // 12, at.month % 12 + 1, 1, tzinfo=UTC)
    return found
