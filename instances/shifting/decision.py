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


class ShiftingDecision(Strict):
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
