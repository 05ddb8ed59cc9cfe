"""What a placement policy is: what it may know, and what it has to answer.

A policy is made for one run from a `Setting`. For each arriving task it is asked to `decide` from the request
and the state of the cluster, and is then `told` what became of it. It learns nothing of the tasks still to
come but their target workload.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from wattsched.instances.placement.tables import NodeTable, TargetWorkload
from wattsched.perfmodels.node_power import NodePower
from wattsched.replay.placement.state import ClusterState, Placement, Request


@dataclass(frozen=True)
class Setting:
    """What is known before the first task arrives.

    Parameters
    ----------
    nodes : NodeTable
        The cluster, in the order in which nodes win ties during this run.
    power : NodePower
        Power of these nodes, in the same order.
    target : TargetWorkload
        Classes of tasks that the cluster usually sees.
    seed : int
        For policies that draw something.
    """

    nodes: NodeTable
    power: NodePower
    target: TargetWorkload
    seed: int


class Policy(Protocol):
    """Decides where tasks go, one after another."""

    def decide(self, request: Request, state: ClusterState) -> Placement | None:
        """Place of an arriving task, or None to let it fail for good.

        Parameters
        ----------
        request : Request
            What the task asks for.
        state : ClusterState
            Read it, do not change it.
        """

    def told(self, request: Request, placement: Placement | None, state: ClusterState) -> None:
        """Learn that the task was placed there, or failed; `state` has it already."""


Factory = Callable[[Setting], Policy]
"""Makes a policy for one run."""
