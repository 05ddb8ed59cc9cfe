"""Schedules of the simple policies of `wattsched replay`, from the trace alone.

Comments in quotation marks are sentences of docs/replay.md and docs/elastic.md. Nothing of the package is
imported. Each job must have one configuration, and all take blocks of one size, because the pages do not
tell where a job is placed: the case is `plain`.
"""

from dataclasses import dataclass, field
from itertools import pairwise, product
from math import ceil, fsum, inf

from tests.pages.pages_replay_site import SAME_S, Row, Site

SIMULATED = ("fifo", "backfill", "srtf")


@dataclass(frozen=True)
class Reading:
    """How to read the pages where they do not say what a limit over time does."""

    pod_restart: bool = False  # jobs of `fifo` and `backfill` restart as pods
    rise_at_once: bool = True  # a limit that rises makes policies decide at once, not in the next round
    fall_decides: bool = True  # when a limit falls, all of a decision is made, not only stops
    stops_last_in: bool = True  # jobs stop in the reverse order of arrival until the rest fits; else `srtf`
    # stops in its own order, and others stop, in the order of arrival, each job that does not fit
    stopped_wait: bool = True  # what stops is not chosen again in the same moment
    promise_knows: bool = True  # `backfill` promises with the limits to come
    stops_first: bool = True  # what does not fit stops before the policy decides, not after
    least_counts: bool = True  # the least of limits and caps has to change, not the least limit of the signal


def readings(policy: str, round_s: float) -> list[Reading]:
    """Return the readings that may differ for a policy."""
    both = (True, False)
    return [
        Reading(*row)
        for row in product(
            both if policy != "srtf" else (False,),
            both if round_s else (True,),
            both if round_s else (True,),
            both,
            both,
            both if policy == "backfill" else (True,),
            both,
            both if round_s else (True,),
        )
        if policy != "srtf" or row[3] or (row[4] and row[6])
    ]


@dataclass
class Job:
    """A job of the trace in its only configuration."""

    name: str
    arrival: float
    left_s: float
    held: tuple[str, int, float]
    start: float | None = None  # of the work of its present period
    first: float | None = None
    end: float | None = None
    worked: list[tuple[float, float]] = field(default_factory=list)

    @property
    def ends(self) -> float:
        return inf if self.start is None else self.start + self.left_s


class Schedule:
    """A replay under a policy that decides after every arrival and completion, and as limits change."""

    def __init__(self, case: Row, policy: str, reading: Reading):
        self.site, self.policy, self.reading = Site(case), policy, reading
        self.round_s, self.restart_s = case["options"]["--round"], case["options"]["--process-restart"]
        if reading.pod_restart:
            self.restart_s = case["options"]["--pod-restart"]
        begin = case["jobs"][0]["arrival_s"]
        self.jobs = [self.job_of(job, job["arrival_s"] - begin) for job in case["jobs"]]
        self.order = {job.name: i for i, job in enumerate(self.jobs)}
        self.changes = [t for t in self.site.limits.moments if t > 0]

    def job_of(self, job: Row, arrival: float) -> Job:
        (row,) = self.site.rows(job, requested=True)
        return Job(job["job"], arrival, job["work"] / row["rate"], row["is"])

    def limits(self, now: float) -> dict[str, float]:
        return {cap: min(always, self.site.limits.at(cap, now)) for cap, always in self.site.caps.items()}

    def counted(self, now: float) -> dict[str, float]:
        """The limits whose changes make policies decide."""
        if self.reading.least_counts:
            return self.limits(now)
        always = {cap: self.site.limits.always if not cap else inf for cap in self.site.caps}
        return {cap: min(always[cap], self.site.limits.at(cap, now)) for cap in always}

    def run(self) -> bool:
        """Follow the events until all jobs are complete; False if some never are."""
        arrivals, changes = sorted({job.arrival for job in self.jobs}), list(self.changes)
        decisions: set[float] = set()
        self.caps, counted = self.limits(0.0), self.counted(0.0)
        while any(job.end is None for job in self.jobs):
            # "Decisions fall on multiples of `--round` (0: any moment). A decision is made after an arrival
            # or a completion" and "A job that ends frees its GPUs at once."
            now = min([*(job.ends for job in self.jobs), *arrivals[:1], *changes[:1], *decisions])
            if now == inf:
                return False
            for job in self.jobs:
                if job.ends <= now + SAME_S:
                    job.worked.append((job.start, job.ends))
                    job.end, job.start = job.ends, None
                    decisions.add(self.next_round(now))
            if arrivals and arrivals[0] <= now:
                arrivals.pop(0)
                decisions.add(self.next_round(now))
            at_once, stopped = False, []
            if changes and changes[0] <= now:
                changes.pop(0)
                before, counted, self.caps = counted, self.counted(now), self.limits(now)
                if any(counted[cap] > before[cap] for cap in before):
                    decisions.add(now if self.reading.rise_at_once else self.next_round(now))
                if any(counted[cap] < before[cap] for cap in before):
                    # "When a limit falls, every policy decides at once. What then does not fit stops"
                    at_once = self.reading.fall_decides
                    stops_first = self.reading.stops_first or not at_once
                    if stops_first and (self.policy != "srtf" or self.reading.stops_last_in):
                        stopped = self.stop_last_in()
                    if not at_once:
                        decisions.add(self.next_round(now))
            due = {t for t in decisions if t <= now}
            decisions -= due
            if due or at_once:
                self.decide(now, stopped)
                if not self.reading.stops_first:
                    self.stop(now, self.stop_last_in())
            elif stopped:
                self.stop(now, stopped)
        return True

    def next_round(self, now: float) -> float:
        if not self.round_s:
            return now
        return ceil(now / self.round_s - 1e-9) * self.round_s

    def stop_last_in(self) -> list[Job]:
        """Return what stops: "in the reverse order of their arrival", or what does not fit in this order."""
        running = sorted((job for job in self.jobs if job.start is not None), key=self.age)
        stopped: list[Job] = []
        if not self.reading.stops_last_in:
            kept: list[Job] = []
            for job in running:
                (kept if self.fits([*kept, job]) else stopped).append(job)
            return stopped
        while running and not self.fits(running):
            stopped.append(running.pop())
        return stopped

    def age(self, job: Job) -> tuple[float, int]:
        return job.arrival, self.order[job.name]

    def stop(self, now: float, jobs: list[Job]) -> None:
        for job in jobs:  # what it has done is kept
            job.left_s -= max(0.0, now - job.start)
            if now > job.start:
                job.worked.append((job.start, now))
            job.start = None

    def decide(self, now: float, stopped: list[Job]) -> None:
        present = [job for job in self.jobs if job.arrival <= now + SAME_S and job.end is None]
        running = [job for job in present if job.start is not None and job not in stopped]
        waiting = [job for job in present if job.start is None or job in stopped]
        if self.reading.stopped_wait:
            kept = getattr(self, self.policy)(now, running, waiting, stopped)
        else:
            kept = getattr(self, self.policy)(now, running, waiting, [])
        self.stop(now, [job for job in present if job.start is not None and job not in kept])
        for job in kept:
            if job.start is None:
                # "For the policy's restart time it holds its GPUs without working"
                job.start = now + (self.restart_s if job.first is not None else 0.0)
                job.first = now if job.first is None else job.first

    def times(self) -> dict[str, tuple[float, float]]:
        """First start and completion of each job."""
        return {job.name: (job.first, job.end) for job in self.jobs}

    def figures(self) -> dict[str, float]:
        """Energy and peak of the cluster."""
        # "GPUs of a job draw the power of its performance model, other GPUs their idle power, nodes their
        # base power."
        end = max(job.end for job in self.jobs)
        idle = self.site.cluster.standing_w(list(self.site.cluster.pools))
        beyond = {
            job.name: job.held[2] - job.held[1] * self.site.cluster.pools[job.held[0]].idle_w
            for job in self.jobs
        }
        energy = idle * end + fsum(beyond[j.name] * (b - a) for j in self.jobs for a, b in j.worked)
        moments = sorted({0.0, end, *(t for job in self.jobs for period in job.worked for t in period)})
        peak = 0.0
        for begin, until in pairwise(moments):
            if until - begin > SAME_S:
                middle = (begin + until) / 2
                on = (j for j in self.jobs if any(a <= middle < b for a, b in j.worked))
                peak = max(peak, idle + fsum(beyond[job.name] for job in on))
        return {"energy_j": energy, "peak_w": peak}

    def ends_of(self, job: Job, now: float) -> float:
        if job.start is not None:
            return job.ends
        return now + job.left_s + (self.restart_s if job.first is not None else 0.0)

    def fits(self, jobs: list[Job], moment: float | None = None) -> bool:
        caps = self.caps if moment is None or not self.reading.promise_knows else self.limits(moment)
        return self.site.fits([job.held for job in jobs], caps)

    def fifo(self, now: float, running: list[Job], waiting: list[Job], stopped: list[Job]) -> list[Job]:
        # "if the first waiting job does not fit under a cap, it waits, and nobody passes it"
        for job in waiting:
            if job in stopped or not self.fits([*running, job]):
                break
            running = [*running, job]
        return running

    def backfill(self, now: float, running: list[Job], waiting: list[Job], stopped: list[Job]) -> list[Job]:
        # "the first waiting job that does not fit is promised the first moment at which both its GPUs and its
        # watts will be free. Later jobs may start if they end by then, or if the GPUs and the watts that they
        # use will be left over."
        running = self.fifo(now, running, waiting, stopped)
        first, *later = [job for job in waiting if job not in running] or [None]
        ends = {id(job): self.ends_of(job, now) for job in running}
        for job in later:
            if job in stopped:
                continue
            times = sorted({now, *ends.values(), *(t for t in self.changes if t > now)})
            promise = min(
                (t for t in times if self.fits([*self.after(running, ends, t), first], t)), default=inf
            )
            end = self.ends_of(job, now)
            kept = self.after(running, ends, promise)
            if self.fits([*running, job]) and (end <= promise or self.fits([*kept, first, job], promise)):
                running = [*running, job]
                ends[id(job)] = end
        return running

    def after(self, running: list[Job], ends: dict[int, float], moment: float) -> list[Job]:
        return [job for job in running if ends[id(job)] > moment]

    def srtf(self, now: float, running: list[Job], waiting: list[Job], stopped: list[Job]) -> list[Job]:
        # "shortest remaining time first, with preemption"; "pass over those that do not fit"
        def left(job: Job) -> float:
            return job.left_s if job.start is None else job.left_s - max(0.0, now - job.start)

        chosen: list[Job] = []
        for job in sorted([*running, *waiting], key=lambda job: (left(job), job.arrival, job.name)):
            if job not in stopped and self.fits([*chosen, job]):
                chosen.append(job)
        return chosen
