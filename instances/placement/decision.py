"""A decision of `placement`: the node and GPUs of every task, and who waits."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from wattsched.topology.fields import Name, Strict


class PlacedTask(Strict):
    """A task on a node; `gpus` are the numbers of the GPUs that it uses, from 0, empty for CPU alone."""

    task: Name
    node: Name
    gpus: list[Annotated[int, Field(ge=0)]] = []


class PlacementDecision(Strict):
    """Every task is placed or waits."""

    placed: list[PlacedTask]
    waiting: list[Name]
