"""A decision of `sharing`: the sets that are formed, and who waits."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from wattsched.topology.fields import Name, Strict


class SharedSet(Strict):
    """Jobs that share one unit of a type; a job alone is a set too."""

    unit_type: Name
    jobs: Annotated[list[Name], Field(min_length=1)]


class SharingDecision(Strict):
    """Every job is in one of the sets, each on a unit of its own, or waits."""

    sets: list[SharedSet]
    waiting: list[Name]
