"""The decision of a shifting problem: which configuration every job has in which slots."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from wattsched.topology.fields import Count, Name, Positive, Strict


class Run(Strict):
    """A job keeps one configuration for some consecutive slots.

    Attributes
    ----------
    first_slot : int
        From 0.
    slots : int
        How many; the job may end within the last one.
    gpus, pool, frequency_mhz, power_limit_w, batch_size
        Settings of a row of the job's table.
    """

    first_slot: Annotated[int, Field(ge=0)]
    slots: Count
    gpus: Count
    pool: Name
    frequency_mhz: Count | None = None
    power_limit_w: Positive | None = None
    batch_size: Count | None = None


class Schedule(Strict):
    """Runs of one job, in the order of time; it pauses in between."""

    job: Name
    runs: Annotated[list[Run], Field(min_length=1)]


class Plan(Strict):
    """Schedule of every job; each job of the instance is named exactly once.

    Attributes
    ----------
    jobs : list of Schedule
        Jobs that run at some time, whether they end within the horizon or not.
    waiting : list of str
        Jobs that do not run within the horizon.
    """

    jobs: list[Schedule]
    waiting: list[Name]

    def first(self, slots: int) -> Plan:
        """Return the plan of the first slots alone."""
        begun = {one.job: [run for run in one.runs if run.first_slot < slots] for one in self.jobs}
        cut = {
            job: [run.model_copy(update={"slots": min(run.slots, slots - run.first_slot)}) for run in runs]
            for job, runs in begun.items()
        }
        jobs = [Schedule(job=job, runs=runs) for job, runs in cut.items() if runs]
        return Plan(jobs=jobs, waiting=[*(job for job, runs in cut.items() if not runs), *self.waiting])


class ShiftingDecision(Plan):
    """Plan of the horizon; of an instance with scenarios, what to do in its decided slots.

    Attributes
    ----------
    scenarios : dict of str to Plan, optional
        Plan of the whole horizon in each scenario; in the decided slots they agree.
    """

    scenarios: dict[Name, Plan] | None = None
