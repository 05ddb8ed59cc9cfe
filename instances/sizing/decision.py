"""A decision: what every job of the round does."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from wattsched.topology.cluster import Count, Name, Positive, Strict


class Assignment(Strict):
    """A job that runs: its configuration and its concrete GPUs (node name to GPU numbers).

    ``set`` names the declared set in which it runs; all its jobs have the same GPUs.
    """

    job: Name
    gpus: Count
    pool: Name
    set: Name | None = None
    frequency_mhz: Count | None = None
    power_limit_w: Positive | None = None
    batch_size: Count | None = None
    nodes: dict[Name, list[Annotated[int, Field(ge=0)]]]


class Decision(Strict):
    """Every job either runs (`jobs`) or waits (`waiting`)."""

    jobs: list[Assignment]
    waiting: list[Name]
