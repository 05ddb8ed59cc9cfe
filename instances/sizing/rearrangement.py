"""A rearrangement: moves of running jobs, one after the other, after which others fit into a round."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from wattsched.topology.fields import Count, GpuNumber, Name, Strict

Nodes = dict[Name, list[GpuNumber]]
"""GPU numbers by node."""


class Wanted(Strict):
    """Jobs that are to fit, all alike: the GPUs that each of them takes, by the pools that will do."""

    name: Name
    count: Count = 1
    gpus: dict[Name, Count]


class Step(Strict):
    """A change of the GPUs of one running job.

    Attributes
    ----------
    before, after : dict of str to list of int
        GPUs that it leaves and those that it takes; `after` is empty where the job stops for a while, until a
        later step in which `before` is empty.
    """

    job: Name
    before: Nodes
    after: Nodes


class Fitted(Strict):
    """GPUs that a wanted job has after all steps."""

    name: Name
    pool: Name
    nodes: Nodes


class Rearrangement(Strict):
    """Fewest moves after which what is wanted fits into the round of that name.

    Attributes
    ----------
    reason : {"optimal", "feasible", "infeasible", "no_solution"}
        Whether the moves are known to be the fewest; why there are none.
    detail : str
        What is short, of a reason without moves.
    moves : int, optional
        Number of running jobs that move; None where it is not known how to make room.
    bound, proven_bound : int
        No rearrangement has fewer moves, as the solver says, and as `prices` prove.
    prices : dict of str to float
        What a piece of GPUs, ``piece:POOL:SIZE``, is worth in moves.
    steps : list of Step
        In an order in which each finds its GPUs free.
    """

    instance: Name
    wanted: list[Wanted]
    reason: Literal["optimal", "feasible", "infeasible", "no_solution"]
    detail: str = ""
    moves: Annotated[int, Field(ge=0)] | None = None
    bound: Annotated[int, Field(ge=0)] = 0
    proven_bound: Annotated[int, Field(ge=0)] = 0
    prices: dict[str, float] = {}
    steps: list[Step] = []
    fitted: list[Fitted] = []

    @property
    def pauses(self) -> list[str]:
        """Jobs that stop for a while, as no order has room for all."""
        return [step.job for step in self.steps if not step.after]
