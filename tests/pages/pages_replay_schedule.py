"""Schedules of the simple policies of `wattsched replay`, from the trace alone.

Comments in quotation marks are sentences of docs/replay.md and docs/elastic.md. Nothing of the package is
imported. Each job must have one configuration, and all take blocks of one size, because the pages do not
tell where a job is placed: the case is `plain`.
"""

from dataclasses import dataclass
from math import ceil, inf

from tests.pages.pages_replay_site import SAME_S, Row, Site

SIMULATED = ("fifo", "backfill", "srtf")


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

    @property
    def ends(self) -> float:
        return inf if self.start is None else self.start + self.left_s


class Schedule:
    """A replay under a policy that decides after every arrival and completion."""

    def __init__(self, case: Row, policy: str):
        self.site, self.policy = Site(case), policy
        self.round_s, self.restart_s = case["options"]["--round"], case["options"]["--process-restart"]
        begin = case["jobs"][0]["arrival_s"]
        self.jobs = [self.job_of(job, job["arrival_s"] - begin) for job in case["jobs"]]

    def job_of(self, job: Row, arrival: float) -> Job:
        (row,) = self.site.rows(job, requested=True)
        return Job(job["job"], arrival, job["work"] / row["rate"], row["is"])

    def times(self) -> dict[str, tuple[float, float]]:
        """First start and completion of each job."""
        events = sorted({job.arrival for job in self.jobs})
        now = 0.0
        decide = -inf
        while any(job.end is None for job in self.jobs):
            # "Decisions fall on multiples of `--round` (0: any moment). A decision is made after an arrival
            # or a completion" and "A job that ends frees its GPUs at once."
            ends = min(job.ends for job in self.jobs)
            now = min([ends, *events[:1], *([decide] if decide >= 0 else [])])
            for job in self.jobs:
                if job.ends <= now + SAME_S:
                    job.end, job.start, decide = job.ends, None, max(decide, self.next_round(now))
            if events and events[0] <= now:
                events.pop(0)
                decide = max(decide, self.next_round(now))
            if 0 <= decide <= now:
                decide = -inf
                self.decide(now)
        return {job.name: (job.first, job.end) for job in self.jobs}

    def next_round(self, now: float) -> float:
        if not self.round_s:
            return now
        return ceil(now / self.round_s - 1e-9) * self.round_s

    def decide(self, now: float) -> None:
        present = [job for job in self.jobs if job.arrival <= now + SAME_S and job.end is None]
        running = [job for job in present if job.start is not None]
        waiting = [job for job in present if job.start is None]
        chosen = getattr(self, self.policy)(now, running, waiting)
        for job in running:
            if job not in chosen:  # stopped; what it has done is kept
                job.left_s -= max(0.0, now - job.start)
                job.start = None
        for job in chosen:
            if job.start is None:
                # "For the policy's restart time it holds its GPUs without working"
                job.start = now + (self.restart_s if job.first is not None else 0.0)
                job.first = now if job.first is None else job.first

    def fits(self, jobs: list[Job]) -> bool:
        return self.site.fits([job.held for job in jobs])

    def fifo(self, now: float, running: list[Job], waiting: list[Job]) -> list[Job]:
        # "if the first waiting job does not fit under a cap, it waits, and nobody passes it"
        for job in waiting:
            if not self.fits([*running, job]):
                break
            running = [*running, job]
        return running

    def backfill(self, now: float, running: list[Job], waiting: list[Job]) -> list[Job]:
        # "the first waiting job that does not fit is promised the first moment at which both its GPUs and its
        # watts will be free. Later jobs may start if they end by then, or if the GPUs and the watts that they
        # use will be left over."
        running = self.fifo(now, running, waiting)
        first, *later = [job for job in waiting if job not in running] or [None]
        ends = {id(job): job.ends if job.start is not None else now + job.left_s for job in running}
        for job in later:
            promise = min(t for t in ends.values() if self.fits([*self.after(running, ends, t), first]))
            end = now + job.left_s
            kept = self.after(running, ends, promise)
            if self.fits([*running, job]) and (end <= promise or self.fits([*kept, first, job])):
                running = [*running, job]
                ends[id(job)] = end
        return running

    def after(self, running: list[Job], ends: dict[int, float], moment: float) -> list[Job]:
        return [job for job in running if ends[id(job)] > moment]

    def srtf(self, now: float, running: list[Job], waiting: list[Job]) -> list[Job]:
        # "shortest remaining time first, with preemption"; "pass over those that do not fit"
        def left(job: Job) -> float:
            return job.left_s if job.start is None else job.left_s - max(0.0, now - job.start)

        chosen: list[Job] = []
        for job in sorted([*running, *waiting], key=lambda job: (left(job), job.arrival, job.name)):
            if self.fits([*chosen, job]):
                chosen.append(job)
        return chosen
