"""Tasks that arrive one after another: the state of the cluster, and what a policy knows and answers.

A policy is made for one run from a `PolicyContext`. For each arriving task it is asked to `decide` from the
request and the state of the cluster, and then learns with `on_decision` what became of it. It knows nothing
of the tasks still to come but their target workload.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from wattsched.instances.placement.tables import WHOLE_GPU, NodeTable, TargetWorkload, TaskTable
from wattsched.perfmodels.node_power import NodePower
from wattsched.topology.arrays import BoolArray, IntArray

Nodes = IntArray | slice

MOST_TASKS = 1001
"""Tasks on one node at most, as in FGD's artifact."""


class Request(NamedTuple):
    """Resources that a task asks for; equal requests are one value."""

    cpu_milli: int
    memory_mib: int
    gpus: int
    gpu_milli: int
    """Thousandths of each of the GPUs, below 1000 only for a share of one."""
    models: frozenset[str]
    """GPU models allowed; any if empty."""

    @property
    def shared(self) -> bool:
        """True if it asks for a part of one GPU."""
        return 0 < self.gpu_milli < WHOLE_GPU

    @property
    def demand_milli(self) -> int:
        """Thousandths of a GPU asked for."""
        return self.gpus * self.gpu_milli


def requests_of(tasks: TaskTable) -> list[Request]:
    """Distinct requests of a list of tasks, in the order of `TaskTable.profiles`."""
    profiles, _ = tasks.profiles
    columns = (profiles.cpu_milli, profiles.memory_mib, profiles.gpus, profiles.gpu_milli, profiles.spec)
    return [
        Request(cpu, memory, gpus, gpu_milli, profiles.specs[spec])
        for cpu, memory, gpus, gpu_milli, spec in zip(*(column.tolist() for column in columns), strict=True)
    ]


class Placement(NamedTuple):
    """Place of a task: a position in the node table, and the GPUs of that node."""

    node: int
    gpus: tuple[int, ...]


class ClusterState:
    """Free resources of N nodes with G GPUs at most. Tasks come and stay.

    Only `place` changes it.

    Parameters
    ----------
    nodes : NodeTable
        The empty cluster. Where nodes are equally good, the first of them wins.

    Attributes
    ----------
    cpu_free_milli, memory_free_mib : (N,) int
        Free thousandths of a vCPU and MiB.
    gpu_free_milli : (N, G) int
        Free thousandths of each GPU; 0 for GPUs that the node does not have.
    tasks : (N,) int
        Tasks on the node.
    placements : int
        Tasks placed so far.
    changed : (N,) int
        `placements` right after the node changed last, 0 if it never did. Whoever remembers `placements`
        finds the nodes that are different since then: ``changed > remembered``.
    """

    def __init__(self, nodes: NodeTable):
        self.nodes = nodes
        self.cpu_free_milli = nodes.cpu_milli.copy()
        self.memory_free_mib = nodes.memory_mib.copy()
        exists = np.arange(nodes.gpus.max()) < nodes.gpus[:, None]
        self.gpu_free_milli: IntArray = np.where(exists, WHOLE_GPU, 0)
        self.tasks = np.zeros(len(nodes), dtype=np.int64)
        self.placements = 0
        self.changed = np.zeros(len(nodes), dtype=np.int64)
        self._allowed: dict[frozenset[str], BoolArray] = {}

    def copy(self) -> ClusterState:
        """The same state, to go on from independently."""
        other = copy(self)
        for name in ("cpu_free_milli", "memory_free_mib", "gpu_free_milli", "tasks", "changed"):
            setattr(other, name, getattr(self, name).copy())
        return other

    def allowed(self, models: frozenset[str]) -> BoolArray:
        """Mask of nodes with a GPU of these models, or of any if there are none, shape (N,)."""
        if models not in self._allowed:
            fine = [not models or model in models for model in self.nodes.models]
            self._allowed[models] = np.array(fine, dtype=bool)[self.nodes.model]
        return self._allowed[models]

    def fits(self, request: Request, nodes: Nodes = slice(None)) -> BoolArray:
        """Return the mask of nodes at these positions (default: all) that a task fits on, shape (S,)."""
        fits = self.cpu_free_milli[nodes] >= request.cpu_milli
        fits &= self.memory_free_mib[nodes] >= request.memory_mib
        fits &= self.tasks[nodes] < MOST_TASKS
        if request.gpus:
            if request.models:
                fits &= self.allowed(request.models)[nodes]
            large_enough = self.gpu_free_milli[nodes] >= request.gpu_milli
            fits &= large_enough.sum(axis=1) >= request.gpus
        return fits

    def free_gpus(self, nodes: Nodes = slice(None)) -> IntArray:
        """GPUs of each of these nodes that nothing uses, shape (S,)."""
        count: IntArray = (self.gpu_free_milli[nodes] == WHOLE_GPU).sum(axis=1)
        return count

    def first_free_gpus(self, node: int, count: int) -> tuple[int, ...]:
        """First so many unused GPUs of a node."""
        return tuple(np.flatnonzero(self.gpu_free_milli[node] == WHOLE_GPU)[:count].tolist())

    def place(self, request: Request, placement: Placement) -> None:
        """Put a task on a node.

        Raises
        ------
        ValueError
            If it does not fit there.
        """
        node, gpus = placement
        # One node in scalars: `fits`, which is for many, would take several times as long.
        if not (
            0 <= node < len(self.nodes)
            and self.cpu_free_milli[node] >= request.cpu_milli
            and self.memory_free_mib[node] >= request.memory_mib
            and self.tasks[node] < MOST_TASKS
            and len(set(gpus)) == len(gpus) == request.gpus
            and (not gpus or self.allowed(request.models)[node])
            and all(0 <= gpu < self.gpu_free_milli.shape[1] for gpu in gpus)
            and all(self.gpu_free_milli[node, gpu] >= request.gpu_milli for gpu in gpus)
        ):
            raise ValueError(f"a task does not fit on GPUs {gpus} of node {node}: {request}")
        self.cpu_free_milli[node] -= request.cpu_milli
        self.memory_free_mib[node] -= request.memory_mib
        for gpu in gpus:
            self.gpu_free_milli[node, gpu] -= request.gpu_milli
        self.tasks[node] += 1
        self.placements += 1
        self.changed[node] = self.placements


@dataclass(frozen=True)
class PolicyContext:
    """Knowledge of a policy before the first task arrives.

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
        """Place of an arriving task, or None to let it fail for good; the state must not be changed."""

    def on_decision(self, request: Request, placement: Placement | None, state: ClusterState) -> None:
        """Learn that the task was placed there, or failed; `state` has it already."""


Factory = Callable[[PolicyContext], Policy]
"""Makes a policy for one run."""


def serve(policy: Policy, request: Request, state: ClusterState) -> Placement | None:
    """Ask a policy for the place of an arriving task, put the task there, and let the policy know."""
    placement = policy.decide(request, state)
    if placement is not None:
        state.place(request, placement)
    policy.on_decision(request, placement, state)
    return placement
