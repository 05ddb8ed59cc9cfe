"""Power of jobs from logs: the table of measured steps is completed by the watts of its jobs.

What counts are of each GPU of a job (at each power limit, where that changed) the samples from the first to
the last in which it is busy, less the first tenth of that time, in which the job warms up. A GPU is busy when
a kernel runs at least `BUSY` of the time, or, where the utilisation is unknown, when it draws more than the
middle between the least and the most watts of the job's samples. Windows of Zeus are busy. Means are over
time: a sample stands until the next one of its GPU, but no longer than `LONGEST_GAP` allows. All GPUs of a
job count alike or, where it moved to others, by their time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from functools import partial

import numpy as np

from wattsched.perfmodels.logs.samples import MOST, Samples, Texts, reading, seconds_of
from wattsched.reading.clocks import TWICE, fitting
from wattsched.reading.inputs import MOST_NAMED, echo, listed, notice, number_in
from wattsched.reading.tables import Row
from wattsched.topology.arrays import BoolArray, FloatArray, largest_by, least_by

BUSY = 0.05
IDLE_DRAW = 0.6
"""Watts, as a part of the most, below which a log without utilisation shows a GPU that idles."""
WARM_UP = 10
"""One of so many seconds (of Zeus: windows) is of the warm-up."""
LONGEST_GAP = 4.0
"""A sample stands for at most so many times the usual gap: the longer of those before and after its own, or
the step of the log there."""
STEP_GAPS, HOLES, LONG_PART = 41, 3, 0.1
"""The log's step is the shortest of the longest tenth of so many gaps around, and of three at least: where
samples come in bursts, as from two replicas of Prometheus, steps are between these, and holes are few."""
LEAST = 5
"""Samples of busy GPUs that a job needs."""
SAME_CLOCK, LOCKED = 0.01, 0.9
"""A locked clock is within so much of its median in so much of the time."""
ABOVE_LIMIT, COVERED = 1.1, 0.5
"""Pointed at are mean watts above so many times the limit, and GPUs of less than this part of the time."""

_MODEL = re.compile(r"(?<![a-z])[a-z]+\d+[a-z]*", re.IGNORECASE)
"""Model of a GPU in its name, such as ``A100`` in ``NVIDIA A100-SXM4-80GB``."""


@dataclass(frozen=True)
class LoggedRun:
    """Power, utilisation and clock of a job's GPUs at one setting, from logs; nan where no log tells.

    Attributes
    ----------
    gpus : int
        Most that were busy at one time.
    power_w, utilisation, frequency_mhz, power_limit_w : float
        Of one GPU: mean watts, mean utilisation (0 to 1), median clock, limit.
    window_s : float
        Mean seconds of a window of Zeus.
    locked : bool
        Whether the clock stayed the same.
    samples, read : int
        How many count, of how many that the job has.
    gpu_s : float
        GPU seconds of those that count, each second of a GPU once; nan where logs tell no times.
    named : bool
        Whether the log names the job of its samples, among those of others.
    without_watts, repeated : int
        How many of those that count have unknown watts, and how many an earlier row or window has, too.
    covered : dict of str to float
        GPUs whose samples are of less than `COVERED` of the time, and of which part of it.
    """

    job: str
    gpus: int
    power_w: float
    utilisation: float
    frequency_mhz: float
    power_limit_w: float
    window_s: float
    locked: bool
    samples: int
    read: int
    gpu_s: float = math.nan
    named: bool = False
    without_watts: int = 0
    repeated: int = 0
    covered: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class LoggedJobs:
    """Rows of a table completed from logs, the run of each, and notes on excluded jobs."""

    rows: list[Row]
    runs: tuple[LoggedRun, ...]
    notes: tuple[str, ...]


def completed(
    rows: Sequence[Row],
    samples: Samples,
    table: str,
    time_zone: tzinfo | None = None,
    gpu_type: str = "",
) -> LoggedJobs:
    """Complete the rows of a table of jobs from the samples of all logs.

    ``job`` names the samples of a row, which ``start``, ``end`` and ``power_limit_w`` narrow; `time_zone` is
    that of times without one, `gpu_type` what the GPUs should be. Each job and power limit gets a row, with
    ``power_w``, and where the table does not tell them ``gpus`` and the setting that was varied:
    ``power_limit_w``, or ``frequency_mhz`` where clocks were locked. Windows of ``steps`` give
    ``step_time_s``. It is a ValueError if the table lacks ``job``, no job is in a log, or a row and its
    samples do not go together.
    """
    if rows and "job" not in rows[0].cells:
        raise ValueError(f"{table} lacks the column 'job', which names the jobs of the logs")
    used = np.zeros(len(samples), dtype=bool)
    missing: list[str] = []
    idle: list[str] = []
    with_runs: list[tuple[Row, LoggedRun]] = []
    for row in rows:
        chosen = _chosen(row, samples, time_zone)
        runs = _runs(row, samples.take(chosen), _fresh_parts(samples, chosen, used)[chosen])
        used |= chosen
        if not runs:
            (idle if chosen.any() else missing).append(row.cells["job"])
        if len(runs) > 1 and not row.cells.get("steps"):
            limits = listed((f"{run.power_limit_w:g}" for run in runs), quote="", most=MOST_NAMED)
            several = f"{echo(row.cells['job'])} ran at the power limits {limits} W"
            each = "a row, with its power_limit_w and step time, or of windows of Zeus steps"
            raise ValueError(f"{row.place}: {several}; give each {each}")
        with_runs += [(row, run) for run in runs]
    doubts = _doubts(samples.take(used), with_runs)
    notes = tuple(dict.fromkeys([*_notes(missing, idle, samples.take(~used), table), *doubts]))
    notes += _models(samples.take(used), gpu_type)
    if not with_runs:
        reason = f"{table}: no job is in the logs, which have {listed(_names(samples))}"
        raise ValueError("; ".join([reason, *notes]))
    found = zip(with_runs, _settings(with_runs), strict=True)
    completed_rows = [_filled(row, run, setting) for (row, run), setting in found]
    return LoggedJobs(completed_rows, tuple(run for _, run in with_runs), notes)


def _doubts(used: Samples, with_runs: Sequence[tuple[Row, LoggedRun]]) -> Iterator[str]:
    """Yield what is assumed of samples and runs, and where watts or numbers of GPUs cannot be right."""
    if names := np.unique(used.job[used.jobs > 1]).tolist():
        told = "the watts of a GPU that several jobs use at a time are divided evenly among them"
        yield f"assumed: {told}, as for {listed(names)}"
    if (untold := used.untold).any():
        told = f"{untold.sum():,} of {len(used):,} samples, of {listed(_names(used.take(untold)))}"
        goes_on = (
            "go on as before, or as after; they idle with others, and without any other they do not count"
        )
        yield f"assumed: {told}, tell neither watts nor utilisation: their GPUs {goes_on}"
    for _, run in with_runs:
        job, of = echo(run.job), f"of {run.samples:,} samples of {echo(run.job)}"
        if run.without_watts:
            yield f"assumed: {run.without_watts:,} {of} have unknown watts: the mean of the others"
        if run.covered:
            gpus, part = listed(run.covered, most=MOST_NAMED), np.mean([*run.covered.values()])
            told = f"of GPU {gpus} of {job} only {100 * part:.2g} % of the time is in the log"
            yield f"assumed: {told}; they stand for all of it"
        if run.repeated:
            yield f"{run.repeated:,} {of} are in an earlier row or window, too; their GPU hours count once"
        if run.power_w > ABOVE_LIMIT * run.power_limit_w:
            above = f"{run.power_w:.0f} W on average at a power limit of {run.power_limit_w:g} W"
            yield f"doubtful: {job} draws {above}"
    known_w = {run.power_limit_w for _, run in with_runs if not math.isnan(run.power_limit_w)}
    without = dict.fromkeys(run.job for _, run in with_runs if math.isnan(run.power_limit_w))
    if without and len(known_w) > 1 and not any(row.cells.get("power_limit_w") for row, _ in with_runs):
        limits = listed((f"{limit:g}" for limit in sorted(known_w)), quote="", most=MOST_NAMED)
        yield f"not used: the power limits {limits} W, as no log tells that of {listed(without)}"
    for row, run in with_runs:
        if row.cells.get("gpus") and (stated := number_in(row.cells["gpus"])) != run.gpus:
            told = f"{echo(run.job)} has {stated:g} GPUs, its log shows {run.gpus:,} busy at once"
            yield f"doubtful: the table says that {told}"
        if math.isnan(run.gpu_s):
            several = not row.cells.get("gpus") and run.gpus > 1 and run.named
            at_once = f", and its {run.gpus:,} GPUs were busy at once" if several else ""
            yield f"assumed: samples of {echo(run.job)} count alike{at_once}: its log tells no times"


def _models(used: Samples, gpu_type: str) -> tuple[str, ...]:
    """Return notes on logs of several models of GPUs, or of another than that of the profile."""
    names = {found[0].lower(): name for name in np.unique(used.model) if (found := _MODEL.search(name))}
    if len(names) > 1:
        return (f"doubtful: the logs are of {listed(names.values(), most=MOST_NAMED)}",)
    stated = _MODEL.findall(gpu_type.lower())
    wrong = [name for model, name in names.items() if stated and model not in stated]
    return tuple(f"doubtful: the logs are of {echo(name)}, and not of {echo(gpu_type)}" for name in wrong)


def _notes(missing: list[str], idle: list[str], unused: Samples, table: str) -> Iterator[str]:
    """Yield notes on jobs without samples, jobs that were idle, and samples of no job in the table."""
    if missing:
        yield f"left out: {listed(dict.fromkeys(missing))}, of which no log has a sample"
    if idle:
        yield f"left out: {listed(dict.fromkeys(idle))}, with fewer than {LEAST} samples of busy GPUs"
    if names := [name for name in np.unique(unused.job).tolist() if name]:
        yield f"not used: {listed(names)} of the logs, which {table} does not name"


def _names(samples: Samples) -> list[str]:
    """Return the names that rows can use: jobs, or logs for samples without a job."""
    return [str(name) for name in np.unique(np.where(samples.job == "", samples.log, samples.job))]


def _chosen(row: Row, samples: Samples, time_zone: tzinfo | None) -> BoolArray:
    """Return the mask of samples of a row: by job or pod, else by log; within its times and power limit."""
    chosen = _match(samples.job, job := row.cells["job"])
    namespaces = np.unique(samples.job[chosen]).tolist()
    if len(namespaces) > 1 and "*" not in job:
        several = f"{echo(job)} is the name of several pods or jobs ({listed(namespaces)}); name one"
        raise row.fault("job", several)
    if not chosen.any():
        chosen = _match(samples.log, job)
        jobs = [name for name in np.unique(samples.job[chosen]).tolist() if name]
        if len(jobs) > 1:
            several = f"the log {echo(job)} has several jobs or windows ({listed(jobs)})"
            raise row.fault("job", f"{several}; name one")
        if jobs:
            chosen &= samples.job == jobs[0]
    ends_s = samples.time_s + np.nan_to_num(samples.duration_s)
    cells = {name: cell for name in ("start", "end") if (cell := row.cells.get(name, ""))}
    read = [row.read(name, partial(seconds_of, time_zone=time_zone)) for name in cells]
    moments_s, ambiguous = fitting([readings for readings, _ in read])
    if ambiguous:
        notice(f"{row.place}: {TWICE}")
    for (column, cell), (_, zoned), moment_s in zip(cells.items(), read, moments_s, strict=True):
        if np.isnan(samples.time_s[chosen]).any():
            raise row.fault(column, f"the log of {echo(job)} tells no times")
        if ((samples.local_line[chosen] == 0) != zoned).any():
            clocks = ("has a time zone", "have none") if zoned else ("has no time zone", "have one")
            told = f"{echo(cell)} {clocks[0]}, times of the log of {echo(job)} {clocks[1]}"
            raise row.fault(column, f"{told}; give it as `time_zone`")
        chosen &= samples.time_s >= moment_s if column == "start" else ends_s <= moment_s
        # A sample at the end is the next job's, unless there is no other.
        if column == "end" and (before := chosen & (samples.time_s < moment_s)).any():
            chosen = before
    if row.cells.get("power_limit_w"):
        limit_w = row.read("power_limit_w", partial(reading, most=MOST["power_limit_w"]))
        chosen &= np.isnan(samples.power_limit_w) | (samples.power_limit_w == np.round(limit_w))
    return chosen


def _match(names: Texts, pattern: str) -> BoolArray:
    """Return the mask of names that match a pattern, with or without what is before a slash of theirs.

    That is their namespace or cluster; ``*`` is a wildcard.
    """
    wanted = re.compile(f"(?s:.*/)?{'(?s:.*)'.join(map(re.escape, pattern.split('*')))}")
    matched = {name: bool(name and wanted.fullmatch(name)) for name in {*names.tolist()}}
    return np.fromiter((matched[name] for name in names.tolist()), dtype=bool, count=len(names))


def _fresh_parts(samples: Samples, chosen: BoolArray, used: BoolArray) -> FloatArray:
    """Return which part of a chosen sample's seconds no used one and no earlier window of its GPU has."""
    parts, end_s = (~used).astype(float), samples.time_s + samples.duration_s
    windows = ~np.isnan(end_s)
    for gpu in np.unique(samples.gpu[windows & chosen]):
        of_gpu = windows & (samples.gpu == gpu)
        before, own = (np.flatnonzero(of_gpu & mask) for mask in (used, chosen))
        before_s, own_s = (_apart(samples.time_s[some], end_s[some]) for some in (before, own))
        fresh_s = np.diff(own_s)[:, 0]
        if len(before):
            lasts_s = np.column_stack([np.zeros(len(before)), np.diff(before_s)[:, 0]]).ravel().cumsum()
            fresh_s = fresh_s - np.diff(np.interp(own_s, before_s.ravel(), lasts_s))[:, 0]
        parts[own] = fresh_s / samples.duration_s[own]
    return parts


def _apart(begin_s: FloatArray, end_s: FloatArray) -> FloatArray:
    """Return begin and end of windows, in the order of their begins, without what earlier ones cover."""
    last_s = np.maximum.accumulate(end_s)
    return np.column_stack([np.minimum(last_s, np.fmax(begin_s, np.append(-np.inf, last_s)[:-1])), last_s])


def _runs(row: Row, samples: Samples, fresh: FloatArray) -> list[LoggedRun]:
    """Summarise a job at each of its power limits where it was busy for long enough.

    `fresh` is the part of each sample that is in no earlier row or window.
    """
    limit_w, told_w = samples.power_limit_w, samples.power_limit_w[samples.telling()]
    samples = replace(samples, power_limit_w=np.where(np.isnan(limit_w), told_w, limit_w))
    limits = np.unique(samples.power_limit_w)
    masks = [np.isnan(samples.power_limit_w) if np.isnan(x) else samples.power_limit_w == x for x in limits]
    runs = [_summarise_run(row, samples.take(mask), fresh[mask]) for mask in masks]
    return [run for run in runs if run.samples >= (LEAST if math.isnan(run.window_s) else 1)]


def _summarise_run(row: Row, samples: Samples, fresh: FloatArray) -> LoggedRun:
    """Average the samples of a run while it was busy; its power is per GPU, `gpu_s` is of `fresh` parts."""
    read, counted_s = samples, _counted_s(samples)
    counts = counted_s > 0
    samples, counted_s, fresh = samples.take(counts), counted_s[counts], fresh[counts]
    gpus, (names, of_gpu) = _most_at_once(samples), np.unique(samples.gpu, return_inverse=True)
    all_s, alike = np.bincount(of_gpu, counted_s), gpus == len(names)
    part_s = np.fmax(all_s, alike * all_s.max(initial=0.0))

    def weights(values: FloatArray) -> FloatArray:
        """Return seconds of known values, scaled to each GPU's part."""
        known_s = np.where(np.isnan(values), 0.0, counted_s)
        gpu_s = np.bincount(of_gpu, known_s)
        return np.asarray(known_s * (part_s / (gpu_s + (gpu_s == 0)))[of_gpu])

    read_s = {name: _held_s(read.time_s[read.gpu == name]).sum() for name in names}
    least_s = COVERED * max(read_s.values(), default=0.0) * alike
    power_w, unknown = _mean(samples.power_w, weights(samples.power_w)), np.isnan(samples.power_w)
    if len(samples) >= LEAST and unknown.all() and not row.cells.get("power_w"):
        raise ValueError(f"{row.place}: no sample tells the watts of {echo(row.cells['job'])}; give power_w")
    timeless = np.isnan(samples.time_s) & np.isnan(samples.duration_s)
    cell = row.cells.get("gpus", "")
    if (samples.gpu == "").any():
        if not cell:
            raise ValueError(f"{row.place}: the log has the energy of all GPUs together; give gpus")
        gpus = max(int(row.read("gpus", partial(reading, most=1e6))), 1)
        power_w /= gpus
    median_mhz = _median(samples.frequency_mhz, clocked := weights(samples.frequency_mhz))
    near = np.abs(samples.frequency_mhz - median_mhz) <= SAME_CLOCK * median_mhz
    near_part = _mean(np.where(np.isnan(samples.frequency_mhz), np.nan, near), clocked)
    return LoggedRun(
        job=row.cells["job"],
        gpus=gpus,
        power_w=power_w,
        utilisation=_mean(samples.utilisation, weights(samples.utilisation)),
        frequency_mhz=median_mhz,
        power_limit_w=float(samples.power_limit_w[0]) if len(samples) else math.nan,
        window_s=_mean(samples.duration_s, np.ones(len(samples))),
        locked=near_part >= LOCKED,
        samples=len(samples),
        read=len(read),
        gpu_s=float(np.where(timeless, np.nan, counted_s * fresh)[fresh > 0.0].sum()),
        named=bool((samples.job != "").any()),
        without_watts=int(unknown.sum()),
        repeated=int((fresh < 0.5).sum()),
        covered={name: COVERED * s / least_s for name, s in read_s.items() if s < least_s},
    )


def _mean(values: FloatArray, weights: FloatArray) -> float:
    """Average the values that are known, nan if none is."""
    known = ~np.isnan(values)
    return float(np.average(values[known], weights=weights[known])) if known.any() else math.nan


def _median(values: FloatArray, weights: FloatArray) -> float:
    """Weighted median of the values that are known, nan if none is."""
    known = np.argsort(values)[: np.count_nonzero(~np.isnan(values))]
    if not len(known):
        return math.nan
    below = np.cumsum(weights[known])
    middle = [np.searchsorted(below, below[-1] / 2.0, side) for side in ("left", "right")]
    return float(values[known][middle].mean())


def _counted_s(samples: Samples) -> FloatArray:
    """Return the seconds that each sample counts for: those of its GPU's work after the first tenth."""
    least, most = np.fmin.reduce(samples.power_w, initial=np.inf), np.fmax.reduce(samples.power_w, initial=0)
    busy, unknown = samples.utilisation >= BUSY, np.isnan(samples.utilisation)
    drawing = samples.power_w > (least + most) / 2.0
    if least >= IDLE_DRAW * most:
        # All draw alike, and do what most of those do of which it is known.
        drawing[:] = unknown.all() or busy[~unknown].mean() > 0.5
    busy = np.where(unknown, drawing, busy)
    busy |= ~np.isnan(samples.duration_s)
    busy = (busy & ~samples.untold)[samples.telling()] & ~_beside_idle(samples, busy)
    counted_s = np.zeros(len(samples))
    for gpu in np.unique(samples.gpu):
        of_gpu = np.flatnonzero(samples.gpu == gpu)
        of_gpu = of_gpu[np.argsort(samples.time_s[of_gpu], kind="stable")]
        at_work = np.flatnonzero(busy[of_gpu])
        if len(at_work):
            of_work = of_gpu[at_work[0] : at_work[-1] + 1]
            window_s = samples.duration_s[of_work]
            # In the warm-up each window counts as one, whatever its seconds.
            held_s = np.where(np.isnan(window_s), _held_s(samples.time_s[of_work]), 1.0)
            after_warm_up_s = np.cumsum(held_s) - held_s.sum() / WARM_UP
            counted_s[of_work] = np.clip(after_warm_up_s, 0.0, held_s) * np.nan_to_num(window_s, nan=1.0)
    return counted_s


def _beside_idle(samples: Samples, busy: BoolArray) -> BoolArray:
    """Return the mask of untold samples before or after all known work, where a GPU is known to idle."""
    told, idle = ~samples.untold, np.zeros(len(samples), dtype=bool)
    for time_s in (samples.time_s, -samples.time_s):
        worked_s, told_s = (time_s[mask].max(initial=-np.inf) for mask in (told & busy, told))
        idle |= ~told & (time_s > worked_s) & (told_s > worked_s)
    return idle


def _most_at_once(samples: Samples) -> int:
    """Most GPUs that were busy at one time: a job that was restarted may have had others before."""
    gpus, of_gpu = np.unique(samples.gpu, return_inverse=True)
    if not len(samples) or np.isnan(samples.time_s).any():
        return len(gpus)
    # By GPU, its first and last sample; the most are busy when one of them begins.
    ended_s = samples.time_s + np.nan_to_num(samples.duration_s)
    begin_s = least_by(of_gpu, samples.time_s, len(gpus))
    end_s = largest_by(of_gpu, ended_s, len(gpus), -np.inf)
    return max(
        int(np.sum((begin_s <= moment) & ((end_s > moment) | (begin_s == moment)))) for moment in begin_s
    )


def _held_s(time_s: FloatArray) -> FloatArray:
    """Return the seconds for which each sample of a GPU stands, 1 where a log tells no times.

    Samples of one moment share its seconds; the last moment has those of the one before.
    """
    moments, place, times = np.unique(time_s, return_inverse=True, return_counts=True)
    if len(moments) == 1 or np.isnan(moments).any():
        return np.ones(len(time_s))
    gaps_s = np.diff(moments)
    beside_s = np.fmax(np.append(gaps_s[1:], np.nan), np.append(np.nan, gaps_s[:-1]))
    held_s = np.fmin(gaps_s, LONGEST_GAP * np.fmax(beside_s, _log_step_s(gaps_s)))
    return np.asarray((np.append(held_s, held_s[-1]) / times)[place])


def _log_step_s(gaps_s: FloatArray) -> FloatArray:
    """Return the step of a log at each of its gaps, robust to bursts of samples and to a few holes."""
    from scipy.ndimage import rank_filter

    if len(gaps_s) < 2:
        return gaps_s
    near = min(STEP_GAPS, len(gaps_s))
    # At either end of the log, those of the nearest gap with as many on both sides.
    middle = np.clip(np.arange(len(gaps_s)), near // 2, len(gaps_s) - (near + 1) // 2)
    return np.asarray(rank_filter(gaps_s, -min(near, max(HOLES, int(near * LONG_PART))), near)[middle])


def _settings(with_runs: Sequence[tuple[Row, LoggedRun]]) -> list[dict[str, str]]:
    """Return the varied setting of each run as a cell: its power limit, or its locked clock."""
    runs, names = [run for _, run in with_runs], ("frequency_mhz", "power_limit_w")
    given = {name for row, _ in with_runs for name in names if row.cells.get(name)}
    limits, clocks = [run.power_limit_w for run in runs], _merged([run.frequency_mhz for run in runs])
    if "frequency_mhz" not in given and ("power_limit_w" in given or _vary(limits)):
        return [{"power_limit_w": _cell(limit)} for limit in limits]
    if "frequency_mhz" in given or (all(run.locked for run in runs) and _vary(clocks)):
        return [{"frequency_mhz": _cell(clock)} for clock in clocks]
    return [{} for _ in runs]


def _vary(values: Sequence[float]) -> bool:
    return not any(map(math.isnan, values)) and len(set(values)) > 1


def _cell(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.0f}"


def _merged(clocks: Iterable[float]) -> list[float]:
    """Replace clocks that differ by few steps by the highest of them."""
    names: dict[float, float] = {}
    highest = math.inf
    for clock in sorted({clock for clock in clocks if not math.isnan(clock)}, reverse=True):
        if clock < highest * (1.0 - SAME_CLOCK):
            highest = clock
        names[clock] = highest
    return [names.get(clock, math.nan) for clock in clocks]


def _filled(row: Row, run: LoggedRun, setting: dict[str, str]) -> Row:
    """Fill the empty cells of a row from its run."""
    cells = {"gpus": str(run.gpus), "power_w": f"{run.power_w:.9g}", **setting}
    if steps := row.cells.get("steps"):
        if math.isnan(run.window_s):
            reason = "are of windows, which only Zeus has; give step_time_s or throughput"
            raise row.fault("steps", reason)
        if not (count := row.read("steps", partial(reading, most=1e12))) >= 1:
            raise row.fault("steps", f"{echo(steps, quote='')} must be at least 1")
        cells["step_time_s"] = f"{run.window_s / count:.9g}"
    filled = {name: cell for name, cell in cells.items() if not row.cells.get(name)}
    return Row({**row.cells, **filled}, row.place)
