"""Jobs that Slurm has accounted for: records of runs, the energy of steps, and which records are one run."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf
from operator import itemgetter
from typing import NamedTuple

from wattsched.instances.gpu_parts import AS_ONE_TYPE
from wattsched.instances.units import S_PER_H
from wattsched.report.imports import Entry

STILL_RUN = frozenset(["RUNNING", "COMPLETING", "SUSPENDED", "STOPPED"])
WAITING = frozenset(["PENDING", "CONFIGURING"])
"""Records in other states have ended: RESIZING is of the time before a job's size was changed."""
BEYOND_LIMIT, BEYOND_LIMIT_S = 1.1, 600.0
"""Factor of its time limit, and seconds more, for which OverTimeLimit and KillWait let a job run."""
AS_CUT = "as sacct --truncate cuts runs: without energy"
RUNAWAY = "is it a runaway job? sacctmgr show runaway lists these"
COVERED = (0.9, 1.1)
"""Parts of a job's nodes and time that its steps' energy may be of, to stand for the job's."""

_TASKS = re.compile(r"(?<=[\[,])(\d{1,9})(?:-(\d{1,9})(?::([1-9]\d{0,8}))?)?(?=[\],%])")


@dataclass(frozen=True)
class Accounted:
    """A job that Slurm has accounted for, or an array's task; its steps are counted in.

    Attributes
    ----------
    state : str
        How it ended, or that it has not, such as ``COMPLETED``.
    eligible_s : float
        From when on Slurm could have started it, in seconds since 1970.
    start_s : float, optional
        None where it never started.
    elapsed_s : float
        For how long it ran, until now where it still does; not for how long it was suspended.
    gpus : int, optional
        None where Slurm does not know how many.
    gpu_types : frozenset of str
        Of its GPUs, as far as Slurm tells; '' for those without a type beside others.
    energy_j : float, optional
        Of its nodes or GPUs, whatever the site's sensors measure.
    steps : dict of str to Step
        Those that have energy.
    partly_measured : bool
        True if only steps have energy, and not of all its nodes and time.
    requested, converted : bool
        True if its GPUs are those that it asked for; if they stand for slices of several types.
    restarts : int, optional
        How often it was requeued or restarted before.
    time_limit_s : float, optional
        None where it had no limit of its own.
    job_name : str
        As its user named it; empty where Slurm does not tell.
    other_gres : tuple of str
        Generic resources that are no GPUs, such as ``gres/shard``.
    local, ambiguous : bool
        True if a time has no zone; and if it may be either of two in the hour that comes twice in autumn.
    eligible_told : bool
        False if it started, and the records do not say when it was eligible.
    start_cut, end_cut : bool
        True if it may have begun before its start, or gone on after its end, which ``sacct -T`` has cut.
    begun : int
        Of an array's tasks that its record calls waiting, those of which other records tell.
    """

    id: str
    user: str
    account: str
    state: str
    eligible_s: float
    start_s: float | None
    elapsed_s: float
    gpus: int | None
    gpu_types: frozenset[str]
    energy_j: float | None
    nodes: tuple[str, ...]
    time_limit_s: float | None = None
    job_name: str = field(default="", compare=False)
    other_gres: tuple[str, ...] = ()
    end_s: float | None = None
    suspended_s: float | None = None
    cluster: str = ""
    steps: Mapping[str, Step] = field(default_factory=dict, compare=False)
    partly_measured: bool = field(default=False, compare=False)
    requested: bool = field(default=False, compare=False)
    converted: bool = field(default=False, compare=False)
    restarts: int | None = field(default=None, compare=False)
    local: bool = field(default=False, compare=False)
    ambiguous: bool = field(default=False, compare=False)
    eligible_told: bool = field(default=True, compare=False)
    start_cut: bool = field(default=False, compare=False)
    end_cut: bool = field(default=False, compare=False)
    begun: int = field(default=0, compare=False)

    @property
    def held_s(self) -> float:
        """Seconds that it held its GPUs: from start to end, as a suspended job keeps them."""
        told_s = self.elapsed_s + (0.0 if self.end_s else self.suspended_s or 0.0)
        return max(told_s, (self.end_s or 0.0) - (self.start_s or inf))

    @property
    def last_s(self) -> float:
        """When it ended, or until when it is known to have run; 0 where it never started."""
        return 0.0 if self.start_s is None else self.start_s + self.held_s

    @property
    def remarks(self) -> list[tuple[str, str]]:
        """Treatments of its times and GPUs by the import, and why, unless they fit to a second."""
        lasted_s = self.end_s - (self.start_s or 0.0) if self.end_s else self.held_s
        rest_s = lasted_s - self.elapsed_s - (self.suspended_s or 0.0)
        misfit = not -1 <= rest_s <= (inf if self.suspended_s is None else 1)
        beyond_limit = self.elapsed_s > BEYOND_LIMIT * (self.time_limit_s or inf) + BEYOND_LIMIT_S
        runs_on = self.state == "RUNNING" and not self.end_s
        remarks = {
            ("doubtful", "Start is before Submit or Eligible"): self.eligible_s > (self.start_s or inf) + 1,
            ("doubtful", "Elapsed is not the time from Start to End; is --time-zone right?"): misfit,
            ("doubtful", f"starts with others at the first second, {AS_CUT}; arrives then"): self.start_cut,
            ("doubtful", f"ends with others at the last second, or runs on, {AS_CUT}"): self.end_cut,
            ("doubtful", "ran longer than its time limit"): beyond_limit and not runs_on,
            ("doubtful", f"still runs after its time limit: {RUNAWAY}"): beyond_limit and runs_on,
            ("assumed", "suspended for a time: GPUs are held until the end"): self.held_s > self.elapsed_s,
            ("assumed", "Eligible is not told: waits count from Submit"): not self.eligible_told,
            ("assumed", "GPUs are those requested, as allocated ones are not told"): self.requested,
            ("assumed", "a time is in the hour that comes twice: the first is taken"): self.ambiguous,
            ("converted", AS_ONE_TYPE): self.converted,
        }
        return [remark for remark, holds in remarks.items() if holds]

    @property
    def tasks(self) -> int:
        """Jobs that its record stands for: one, or the tasks of an array that wait, as in ``7_[4-9%2]``."""
        return (sum(map(len, self._ranges)) or 1) - self.begun

    @property
    def _ranges(self) -> list[range]:
        parts = _TASKS.findall(self.id)
        return [range(int(first), int(last or first) + 1, int(step or 1)) for first, last, step in parts]

    def without(self, tasks: Iterable[int]) -> Accounted:
        """Return the record of an array's waiting tasks without those of these numbers."""
        return replace(self, begun=sum(any(task in some for some in self._ranges) for task in tasks))


class Step(NamedTuple):
    """A step's joules, nodes, start in seconds since 1970, and seconds; those that are untold empty or 0."""

    energy_j: float
    nodes: frozenset[str] = frozenset()
    start_s: float = 0.0
    elapsed_s: float = 0.0

    @property
    def node_s(self) -> float:
        """Seconds of all its nodes."""
        return len(self.nodes) * self.elapsed_s

    def with_part(self, other: Step) -> Step:
        """Join two parts of a step, each with the energy of the whole."""
        start_s = min(self.start_s, other.start_s)
        end_s = max(one.start_s + one.elapsed_s for one in (self, other))
        return Step(max(self.energy_j, other.energy_j), self.nodes | other.nodes, start_s, end_s - start_s)

    def of(self, job: Accounted) -> Step:
        """Return the step with its job's nodes, start and seconds where it does not tell its own."""
        nodes = self.nodes or frozenset(job.nodes or [""])
        start_s = self.start_s or job.start_s or 0.0
        return Step(self.energy_j, nodes, start_s, self.elapsed_s or job.held_s or 1.0)

    def overlaps(self, other: Step) -> bool:
        """True if both are on a node at the same time."""
        before, after = sorted([self, other], key=lambda step: step.start_s)
        return after.start_s < before.start_s + before.elapsed_s and bool(self.nodes & other.nodes)


def measured(job: Accounted, own_j: float | None, steps: Mapping[str, Step]) -> Accounted:
    """Return a job with the joules of steps that do not overlap and cover its nodes and time, or its own.

    A step's sensors count all that is drawn on its nodes; of steps that overlap, as the batch script and what
    it starts do, the one of most nodes and seconds counts. Slurm's own energy of a job is the sum over all
    steps unless it has an ``extern`` step; so it counts only where no step tells any.
    """
    if not steps:
        return replace(job, energy_j=own_j or None)
    told, kept = {name: step.of(job) for name, step in steps.items()}, list[Step]()
    for step in sorted(told.values(), key=lambda step: (step.node_s, step.energy_j), reverse=True):
        if not any(step.overlaps(other) for other in kept):
            kept.append(step)
    node_s, energy_j = sum(step.node_s for step in kept), sum(step.energy_j for step in kept)
    whole_s = max(1, len(job.nodes)) * (job.held_s or 1.0)  # Slurm tells whole seconds
    least, most = COVERED
    covered = least * whole_s <= node_s <= most * whole_s
    whole_j = energy_j * whole_s / node_s if covered else None
    return replace(job, energy_j=whole_j, steps=told, partly_measured=not covered)


def with_cuts(jobs: Sequence[Accounted]) -> list[Accounted]:
    """Mark runs of an export that ``sacct --truncate`` may have cut.

    So look several jobs, eligible at different times, that begin at its first second or end at its last one,
    where ``scancel`` has not ended them; and jobs that have an end but still run, with all that end then.
    """
    ran = [job for job in jobs if job.start_s and job.state not in WAITING]
    first_s = min((job.start_s or inf for job in ran), default=inf)
    last_s = max((job.end_s or 0.0 for job in ran), default=0.0)
    begun = {job.eligible_s for job in ran if job.start_s == first_s} - {first_s}
    ends_s = {job.end_s for job in jobs if job.end_s and job.state in {"RUNNING", "SUSPENDED", *WAITING}}
    ended = {job.eligible_s for job in ran if job.end_s == last_s and job.state != "CANCELLED"}
    ends_s |= {last_s} if len(ended) > 1 else set()
    began_s = first_s if len(begun) > 1 else inf
    return [
        replace(job, start_cut=job.start_s == began_s != job.eligible_s, end_cut=job.end_s in ends_s)
        for job in jobs
    ]


def latest(records: Sequence[Accounted]) -> list[Accounted]:
    """Return the latest record of each run of a job, in the order of starts, whatever that of `records`."""
    runs, last_s = dict[tuple[str, float | None], Accounted](), dict[str, float]()
    states = (WAITING, STILL_RUN)
    # Of a run, records of its wait come first, and those of its end last: the last one counts.
    keys = [(*(one.state not in some for some in states), one.held_s, -one.tasks) for one in records]
    for _, one in sorted(zip(keys, records, strict=True), key=itemgetter(0)):
        start_s = None if one.state in WAITING else one.start_s
        id = one.id.partition("[")[0]  # an array has one record of tasks that wait, ever fewer
        runs[id, start_s] = _filled(one, runs.get((id, start_s), one))
        last_s[id] = max(start_s or -inf, last_s.get(id, -inf))
    _join_readings(runs)
    # What waited has started since, unless it was requeued after its last start.
    waiting = [one for (id, s), one in runs.items() if s is None and one.eligible_s > last_s[id]]
    waiting = [one for one in _without_begun(waiting, last_s) if one.tasks]
    found = [*waiting, *_whole([one for (_, s), one in runs.items() if s is not None])]
    return sorted(found, key=lambda one: one.start_s or one.eligible_s)


def _without_begun(waiting: Iterable[Accounted], last_s: Mapping[str, float]) -> Iterator[Accounted]:
    """Yield records that wait, those of arrays without tasks that have begun or that wait on their own."""
    tasks = defaultdict[str, list[tuple[int, float]]](list)
    for id, start_s in last_s.items():
        array, _, task = id.rpartition("_")
        if task.isdecimal():
            tasks[array].append((int(task), start_s if start_s > -inf else inf))
    for one in waiting:
        array, is_array, _ = one.id.partition("_[")
        begun = (task for task, start_s in tasks[array] if start_s >= one.eligible_s)
        yield one.without(begun) if is_array else one


def _filled(one: Accounted, before: Accounted) -> Accounted:
    """Return a record with what only an earlier one of the same run tells, as exports have other columns."""
    told = ("user", "account", "nodes", "time_limit_s", "restarts", "job_name")
    names = [name for name in told if not getattr(one, name)]
    same_end = bool(before.steps) and one.last_s == before.last_s
    if one.start_s == before.start_s and not one.steps and (same_end or not one.energy_j):
        names += ["energy_j", "steps", "partly_measured"]
    names += [] if one.eligible_told else ["eligible_s", "eligible_told"]
    return replace(one, **{name: getattr(before, name) for name in names})


def _join_readings(runs: dict[tuple[str, float | None], Accounted]) -> None:
    """Drop the runs that are others an hour away: two exports of the hour that comes twice, read unlike."""
    for (id, start_s), one in list(runs.items()):
        if start_s is None or not one.ambiguous:
            continue
        for other in (runs.get((id, start_s + S_PER_H)), runs.get((id, start_s - S_PER_H))):
            alike = other is not None and abs(other.eligible_s - one.eligible_s) in (0.0, S_PER_H)
            if alike and other is not None and (not other.ambiguous or other.end_s):
                del runs[id, start_s]
                break


def _whole(runs: Iterable[Accounted]) -> list[Accounted]:
    """Join the parts of runs that exports have cut (``sacct --truncate``), of adjacent times or overlapping.

    They touch or overlap, hold as many GPUs, and were submitted at once; what is requeued is not.
    """
    found = list[Accounted]()
    for one in sorted(runs, key=lambda one: (one.id, one.start_s or 0.0)):
        first = found[-1] if found else one
        alike = [(job.id, job.eligible_s, job.gpus) for job in (first, one)]
        # Its state has changed at most from one in which it runs.
        ran_on = first.state == one.state or STILL_RUN & {first.state, one.state}
        if found and alike[0] == alike[1] and ran_on and (one.start_s or 0.0) <= first.last_s:
            found[-1] = _as_one_run(found[-1], _filled(one, found[-1]))
        else:
            found.append(one)
    return found


def _as_one_run(first: Accounted, one: Accounted) -> Accounted:
    """Join two parts of a run that touch or overlap, the later one second: Slurm's energy is of the whole."""
    common_s = max(0.0, min(first.last_s, one.last_s) - (one.start_s or 0.0))
    last = max(first, one, key=lambda part: part.last_s)
    energies_j = [part.energy_j for part in (first, one) if part.energy_j]
    known = last.energy_j or first.state == one.state  # of one that still ran it is not of the whole
    joined = replace(
        last,
        start_s=first.start_s,
        end_s=last.last_s,
        elapsed_s=max(first.elapsed_s, one.elapsed_s, first.elapsed_s + one.elapsed_s - common_s),
        suspended_s=None,
        start_cut=first.start_cut,
        energy_j=max(energies_j, default=None) if known else None,
    )
    if not (first.steps and one.steps):
        return joined
    parts = {name: step.with_part(first.steps.get(name, step)) for name, step in one.steps.items()}
    return measured(joined, None, {**first.steps, **parts})


def doubts(runs: Iterable[Accounted]) -> list[Entry]:
    """Point at runs of one job that cannot all be, and at runs that are missing."""
    of_job, told = defaultdict[str, list[Accounted]](list), Counter[str]()
    for one in (one for one in runs if one.start_s is not None):
        of_job[one.id].append(one)
    for some in of_job.values():
        gaps = [(one.state, (other.start_s or 0.0) - one.last_s) for one, other in pairwise(some)]
        overlap = any(gap_s < -1 for _, gap_s in gaps)
        told["runs overlap: do files tell times of several zones or clusters?"] += overlap
        on = any(state in STILL_RUN for state, _ in gaps)
        told["a run of it is told to go on, and a later one: is a file between them missing?"] += on
        missing = max(one.restarts or 0 for one in some) >= len(some)
        told["earlier runs are missing; sacct --duplicates prints them"] += missing
    return [Entry("doubtful", what, jobs) for what, jobs in told.items() if jobs]
