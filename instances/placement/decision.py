"""A decision of `placement`: the node and GPUs of every task, and who waits."""

from __future__ import annotations

from wattsched.topology.fields import GpuNumber, Name, Strict


class PlacedTask(Strict):
    """A task on a node; `gpus` are the numbers of the GPUs that it uses, from 0, empty for CPU alone."""

    task: Name
    node: Name
    gpus: list[GpuNumber] = []


class PlacementDecision(Strict):
    """Every task is placed or waits."""

    placed: list[PlacedTask]
    waiting: list[Name]
