"""Outcome of a replay: records of jobs, rounds and watts, figures computed from them, and tables."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from wattsched.instances.io import csv_text_cell
from wattsched.instances.units import S_PER_H
from wattsched.replay.jobs.accounts import Meter, Steps
from wattsched.replay.jobs.budget import Ledger
from wattsched.replay.jobs.caps import ROUNDING, Caps
from wattsched.replay.jobs.knowledge import BLIND, Knows
from wattsched.replay.jobs.trace import Trace
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray, ranges

DIGITS = 9
"""Significant digits of numbers in CSV files."""

CLOCK_COLUMNS = frozenset(("arrival_s", "first_start_s", "start_s", "end_s", "time_s", "works_s"))
"""Times of the trace's clock, which may be large: seconds since 1970, say."""


@dataclass
class JobRecords:
    """One entry per job of the trace.

    Attributes
    ----------
    first_start_s, end_s : float arrays
        Seconds on the trace's clock; inf where a job has not come so far.
    held_s : float array
        Seconds that the job held GPUs, restarts included.
    gpu_s, energy_j, carbon_g, done : float arrays
        GPU seconds, joules and grams of its GPUs, and work done.
    restarts, migrations, preemptions : int arrays
        Restarts with other GPUs or after a pause, moves to equal GPUs to make room, and times that it was
        stopped to wait.
    """

    first_start_s: FloatArray
    end_s: FloatArray
    held_s: FloatArray
    gpu_s: FloatArray
    energy_j: FloatArray
    carbon_g: FloatArray
    done: FloatArray
    restarts: IntArray
    migrations: IntArray
    preemptions: IntArray

    @classmethod
    def empty(cls, n: int) -> JobRecords:
        """Return records of jobs that have not arrived."""
        return cls(*np.full((2, n), np.inf), *np.zeros((5, n)), *np.zeros((3, n), dtype=np.int64))


@dataclass
class Rounds:
    """One entry per decision.

    Attributes
    ----------
    time_s, decision_s, gap : list of float
        When, wall-clock seconds it took, certified relative gap (nan: none).
    running, waiting, busy_gpus : list of int
        After the decision.
    fragmentation : list of float
        Share of the free GPUs that are fragments (`pools.fragments`), after the decision.
    """

    time_s: list[float] = field(default_factory=list)
    decision_s: list[float] = field(default_factory=list)
    gap: list[float] = field(default_factory=list)
    running: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    busy_gpus: list[int] = field(default_factory=list)
    fragmentation: list[float] = field(default_factory=list)


@dataclass
class SegmentLog:
    """One entry per segment: a job held GPUs in one configuration, restarts included.

    Attributes
    ----------
    job, row, first : list of int
        Numbers of the job and of its configuration, and place of its first GPU on the line of its pool.
    start_s, works_s, end_s : list of float
        Seconds on the trace's clock; from `works_s` on it works.
    idle_w, power_w : list of float
        Its draw before it works, and then.
    """

    job: list[int] = field(default_factory=list)
    row: list[int] = field(default_factory=list)
    start_s: list[float] = field(default_factory=list)
    end_s: list[float] = field(default_factory=list)
    first: list[int] = field(default_factory=list)
    works_s: list[float] = field(default_factory=list)
    idle_w: list[float] = field(default_factory=list)
    power_w: list[float] = field(default_factory=list)

    def add(self, lasted: BoolArray, **columns: IntArray | FloatArray) -> None:
        """Append those of the segments that lasted, by column."""
        for name, values in columns.items():
            getattr(self, name).extend(values[lasted].tolist())

    @property
    def numbers(self) -> Iterator[IntArray]:
        """Arrays of `job`, `row` and `first`."""
        return (np.array(values, dtype=np.int64) for values in (self.job, self.row, self.first))


@dataclass(frozen=True)
class Outcome:
    """Record of a complete replay.

    Attributes
    ----------
    begin_s, end_s : float
        First arrival and last completion, in seconds on the trace's clock.
    ledger : Ledger, optional
        Spending in every period, where there is a budget.
    segments : SegmentLog
        Segments of all jobs, in the order of their ends.
    caps : Caps
        Power caps that were held.
    knows : {"exact", "limit", "history", "nothing"}
        What was known of the work that jobs have left.
    """

    trace: Trace
    policy: str
    jobs: JobRecords
    rounds: Rounds
    meter: Meter
    begin_s: float
    end_s: float
    ledger: Ledger | None = None
    segments: SegmentLog = field(default_factory=SegmentLog)
    caps: Caps = field(default_factory=Caps)
    knows: Knows = "exact"

    @property
    def knows_durations(self) -> str:
        """As `knows`; "no" of a policy that does not decide by durations."""
        return "no" if self.policy.partition("+")[0] in BLIND else self.knows

    @property
    def jct_s(self) -> FloatArray:
        """Completion time of each job: from arrival to completion, shape (n_jobs,)."""
        return self.jobs.end_s - self.trace.arrival_s

    def budget_used(self) -> tuple[FloatArray, BoolArray]:
        """Part of the budget that each period used, and whether it is over and was always short."""
        if (ledger := self.ledger) is None:
            return np.zeros(0), np.zeros(0, dtype=bool)
        over = np.array(ledger.begin_s) + ledger.budget.period_s <= self.end_s
        return np.array(ledger.spent) / ledger.budget.amount, over & np.array(ledger.short)

    def cap_used(self) -> list[tuple[float, float]]:
        """Largest part of each power cap that was drawn, and seconds above it."""
        found = list[tuple[float, float]]()
        for log, limit in zip(self.meter.capped, self.caps.limits, strict=True):
            edges = np.unique([*log.time_s, *limit.time_s.clip(self.begin_s, self.end_s), self.end_s])
            part = log.steps.at(edges[:-1]) / limit.at(edges[:-1])
            above_s = np.diff(edges) @ (part > 1 + ROUNDING)
            found.append((float(part.max(initial=0.0)), float(above_s)))
        return found


@dataclass(frozen=True)
class Summary:
    """Figures of one replay, as `summary` computes them.

    Attributes
    ----------
    knows_durations : {"exact", "limit", "history", "nothing", "no"}
        How the policy knows how long jobs take; "no" for one that does not decide by it.
    jct_mean_s, jct_median_s, jct_p95_s, jct_p99_s : float
        Completion time: from arrival to completion.
    queueing_mean_s : float
        Time without GPUs, pauses included.
    makespan_s : float
        From the first arrival to the last completion.
    energy_j, carbon_g : float
        Of the whole cluster over the makespan; `jobs_energy_j` is the part of the GPUs that jobs held.
    energy_error_j : float, optional
        How much more or less that may be if the watts of all models are off to the same side, each by the
        error of its profile; None where some profile does not state one.
    gpu_utilisation, gpu_h : float
        Share of the GPU time that jobs held, and hours of it.
    fragmentation : float
        Share of the free GPU time that a job of the trace could not have used (`pools.fragments`).
    restarts, migrations, preemptions, rounds : int
    decision_median_s, decision_p99_s : float
        Wall-clock seconds of a decision.
    gap_mean, gap_max : float, optional
        Certified gaps of the rounds; None for a rule without bounds.
    rho_mean, rho_max, unfair_fraction : float
        Finish-time fairness (`finish_time_fairness`), and the share of the jobs above 1.
    peak_w : float
        Highest draw of the cluster that lasted.
    cap_used_max, above_cap_s : float, optional
        Largest part of a power cap that was drawn, and seconds above one; None without a cap.
    budget_used_max, budget_used_min : float, optional
        Largest part of the budget that a period used, and smallest of those periods in which it was short at
        every moment; None without a budget, and where there is no such period.
    money : float, optional
        Price of the energy over the makespan; None without a tariff.
    currency : str
        Of the tariff; empty where that tells none.
    """

    policy: str
    knows_durations: str
    jobs: int
    jct_mean_s: float
    jct_median_s: float
    jct_p95_s: float
    jct_p99_s: float
    queueing_mean_s: float
    makespan_s: float
    energy_j: float
    jobs_energy_j: float
    energy_error_j: float | None
    carbon_g: float
    gpu_utilisation: float
    gpu_h: float
    fragmentation: float
    restarts: int
    migrations: int
    preemptions: int
    rounds: int
    decision_median_s: float
    decision_p99_s: float
    gap_mean: float | None
    gap_max: float | None
    rho_mean: float
    rho_max: float
    unfair_fraction: float
    peak_w: float
    cap_used_max: float | None
    above_cap_s: float | None
    budget_used_max: float | None
    budget_used_min: float | None
    money: float | None = None
    currency: str = ""

    @property
    def energy_error(self) -> float | None:
        """`energy_error_j` as a part of the energy; None where there is none."""
        if self.energy_error_j is None or not self.energy_j:
            return None
        return self.energy_error_j / self.energy_j

    def as_dict(self) -> dict[str, object]:
        """Plain values by name."""
        return asdict(self)


def require_sound(outcome: Outcome) -> None:
    """Refuse an outcome, by a ValueError, that has not a sound number for each job, decision and period."""
    meter, n = outcome.meter, len(outcome.trace)
    tables = {what: vars(getattr(outcome, what)) for what in ("jobs", "rounds", "segments")}
    tables |= {"power": vars(meter.power), "busy": vars(meter.busy)}
    tables |= {f"capped[{number}]": vars(log) for number, log in enumerate(meter.capped)}
    if (ledger := outcome.ledger) is not None:
        tables["periods"] = {"begin_s": ledger.begin_s, "spent": ledger.spent, "short": ledger.short}
    for what, columns in tables.items():
        arrays = {name: np.array(values, dtype=float) for name, values in columns.items()}
        sizes = {array.shape for array in arrays.values()}
        if len(sizes) > 1 or (what == "jobs" and sizes != {(n,)}):
            raise ValueError(f"{what}: there is not one number for each")
        for name, array in arrays.items():
            if not np.all(np.isfinite(array) | (np.isnan(array) & (name == "gap"))):
                raise ValueError(f"{what}: {name} is not finite")
    totals = [value for value in vars(meter).values() if isinstance(value, int | float)]
    if not all(map(math.isfinite, [*totals, outcome.begin_s, outcome.end_s])):
        raise ValueError("the totals are not finite")
    if not _segments_fit(outcome):
        raise ValueError("segments: there is one of no job, or on no GPUs")
    if n and (not outcome.rounds.time_s or np.any(outcome.jobs.end_s < outcome.trace.arrival_s)):
        raise ValueError("a job ends before it arrives")


def _segments_fit(outcome: Outcome) -> bool:
    """True if segments name jobs and configurations that exist, and lie on the lines of the pools."""
    trace, (job, row, first) = outcome.trace, outcome.segments.numbers
    known = (job >= 0) & (job < len(trace)) & (row >= 0) & (row < len(trace.configurations))
    if not known.all():
        return False
    of = trace.configurations
    length = np.array([pool.n_gpus for pool in trace.pools], dtype=np.int64)[of.pool[row]]
    return bool(np.all((first >= 0) & (first + of.gpus[row] <= length)))


def summary(outcome: Outcome) -> Summary:
    """Compute the figures of a replay."""
    jobs, rounds, meter, jct_s = outcome.jobs, outcome.rounds, outcome.meter, outcome.jct_s
    p95_s, p99_s = np.percentile(jct_s, [95, 99]).tolist()
    gaps = np.array([gap for gap in rounds.gap if not np.isnan(gap)])
    rho = finish_time_fairness(outcome)
    makespan_s = outcome.end_s - outcome.begin_s
    gpu_s = outcome.trace.available.sum() * makespan_s
    used, short = outcome.budget_used()
    capped = outcome.cap_used()
    error_j = float(jobs.energy_j @ outcome.trace.power_error[outcome.trace.configurations.of_job])
    return Summary(
        policy=outcome.policy,
        knows_durations=outcome.knows_durations,
        jobs=len(outcome.trace),
        jct_mean_s=float(jct_s.mean()),
        jct_median_s=float(np.median(jct_s)),
        jct_p95_s=p95_s,
        jct_p99_s=p99_s,
        queueing_mean_s=float((jct_s - jobs.held_s).mean()),
        makespan_s=makespan_s,
        energy_j=meter.energy_j,
        jobs_energy_j=meter.jobs_j,
        energy_error_j=None if math.isnan(error_j) else error_j,
        carbon_g=meter.carbon_g,
        gpu_utilisation=float(meter.busy_gpu_s / gpu_s) if makespan_s > 0 else 0.0,
        gpu_h=meter.busy_gpu_s / S_PER_H,
        fragmentation=meter.fragmentation,
        restarts=int(jobs.restarts.sum()),
        migrations=int(jobs.migrations.sum()),
        preemptions=int(jobs.preemptions.sum()),
        rounds=len(rounds.time_s),
        decision_median_s=float(np.median(rounds.decision_s)),
        decision_p99_s=float(np.percentile(rounds.decision_s, 99)),
        gap_mean=float(gaps.mean()) if len(gaps) else None,
        gap_max=float(gaps.max()) if len(gaps) else None,
        rho_mean=float(rho.mean()),
        rho_max=float(rho.max()),
        unfair_fraction=float((rho > 1.0 + 1e-9).mean()),
        peak_w=max(meter.power.values, default=0.0),
        cap_used_max=max(part for part, _ in capped) if capped else None,
        above_cap_s=max(seconds for _, seconds in capped) if capped else None,
        budget_used_max=float(used.max()) if len(used) else None,
        budget_used_min=float(used[short].min()) if short.any() else None,
        money=None if meter.tariff is None else meter.money,
        currency="" if meter.tariff is None else meter.tariff.currency,
    )


def finish_time_fairness(outcome: Outcome) -> FloatArray:
    """Completion time of each job over the one that it would have with a fair share, shape (n_jobs,).

    The fair completion time is its run time on the GPUs asked for times the contention: GPUs asked for by all
    jobs in the system over GPUs of the cluster, at least 1, averaged over the job's stay (Shockwave, NSDI
    2023; Themis, NSDI 2020).
    """
    trace, end_s = outcome.trace, outcome.jobs.end_s
    times, at = np.unique(np.append(trace.arrival_s, end_s), return_inverse=True)
    change = np.bincount(at, np.append(trace.requested_gpus, -trace.requested_gpus))
    contention = Steps(times, np.maximum(np.cumsum(change) / trace.available.sum(), 1.0))
    stay_s = end_s - trace.arrival_s
    total = contention.integral(end_s) - contention.integral(trace.arrival_s)
    alone_s = trace.work / trace.requested_rate
    # The fair time is alone_s * total / stay_s. Jobs that end as they arrive have their share.
    apart = alone_s * total > 0
    return np.asarray(np.divide(stay_s**2, alone_s * total, out=np.ones_like(total), where=apart))


# -- tables ----------------------------------------------------------------------------------------------

Table = Mapping[str, Sequence[object]]


def _jobs(outcome: Outcome) -> Table:
    rho, columns = finish_time_fairness(outcome), {"arrival_s": outcome.trace.arrival_s, **vars(outcome.jobs)}
    numbers = {name: values.tolist() for name, values in columns.items() if name != "done"}
    users = {"user": outcome.trace.users} if outcome.trace.users else {}
    return {"job": outcome.trace.names, **users, **numbers, "rho": rho.tolist()}


def _segments(outcome: Outcome) -> Table:
    """Segments by start; one has a line for every run of neighbouring GPUs that it holds on a node."""
    trace, log = outcome.trace, outcome.segments
    job, row, first = log.numbers
    order = np.lexsort((job, np.array(log.start_s)))
    rows, n_rows = trace.configurations, row[order]
    # An entry for every GPU of every segment, then the first of each run.
    of_entry = np.repeat(np.arange(len(order)), rows.gpus[n_rows])
    place = ranges(first[order], rows.gpus[n_rows])
    pool = rows.pool[n_rows][of_entry]
    node, gpu = np.zeros((2, len(place)), dtype=np.int64)
    names: list[str] = []
    for p, one in enumerate(trace.pools):
        here = pool == p
        node[here] = len(names) + one.node_index[place[here]]
        gpu[here] = one.gpu_index[place[here]]
        names += one.nodes
    begins = np.ones(len(place), dtype=bool)
    begins[1:] = (np.diff(of_entry) != 0) | (np.diff(node) != 0) | (np.diff(gpu) != 1)
    begin = np.flatnonzero(begins)
    segment = order[of_entry[begin]]
    held, gpus = row[segment], np.diff(np.append(begin, len(place)))
    columns = {name: np.array(getattr(log, name))[segment] for name in ("works_s", "idle_w", "power_w")}
    part = gpus / rows.gpus[held]
    return {
        "job": [trace.names[j] for j in job[segment].tolist()],
        "start_s": np.array(log.start_s, dtype=float)[segment].tolist(),
        "end_s": np.array(log.end_s, dtype=float)[segment].tolist(),
        "node": [names[n] for n in node[begin].tolist()],
        "gpus": gpus.tolist(),
        "frequency_mhz": rows.frequency_mhz[held].tolist(),
        "batch_size": rows.batch_size[held].tolist(),
        "first_gpu": gpu[begin].tolist(),
        "works_s": columns["works_s"].tolist(),
        "idle_w": (columns["idle_w"] * part).tolist(),
        "power_w": (columns["power_w"] * part).tolist(),
    }


def _power(outcome: Outcome) -> Table:
    """Watts of the cluster, and of each power domain, at every change of one of them."""
    capped = zip(outcome.caps.names, outcome.meter.capped, strict=True)
    logs = {"power_w": outcome.meter.power} | {name: log for name, log in capped if name != "power_w"}
    times = np.unique(np.concatenate([log.time_s for log in logs.values()]))
    return {"time_s": times.tolist()} | {name: log.steps.at(times).tolist() for name, log in logs.items()}


RECORDS: dict[str, Callable[[Outcome], Table]] = {
    "jobs": _jobs,
    "rounds": lambda outcome: vars(outcome.rounds),
    "power": _power,
    "segments": _segments,
}
"""A line per job in the order of arrival, per decision, per change of the watts, per segment."""


def csv_text(table: Table) -> str:
    """Table as CSV, numbers to nine digits, and times of the clock to the millisecond at least."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table)
    cells = ([_cell(value, clock=name in CLOCK_COLUMNS) for value in table[name]] for name in table)
    writer.writerows(zip(*cells, strict=True))
    return out.getvalue()


def _cell(value: object, *, clock: bool) -> object:
    if isinstance(value, str):
        return csv_text_cell(value)
    if not isinstance(value, float):
        return value
    if value != value:
        return ""
    digits = max(DIGITS, len(f"{value:.0f}") + 3) if clock else DIGITS
    return f"{value:.{digits}g}"


def parquet(table: Table) -> bytes:
    """Table as Parquet, numbers as they are; an ImportError without pyarrow (``wattsched[parquet]``)."""
    import pandas as pd

    content: bytes = pd.DataFrame(dict(table)).to_parquet(engine="pyarrow", index=False)
    return content
