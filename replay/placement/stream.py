"""One run: tasks arrive one after another, a policy places them, and the cluster is measured on the way."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from wattsched.instances.arrivals import arrival_order, node_order
from wattsched.instances.placement.tables import NodeTable, TaskTable, target_workload
from wattsched.perfmodels.node_power import CPU_OF_GPU, NodePower, node_power
from wattsched.replay.placement.curves import Curves, Recorder
from wattsched.replay.placement.policies import policy_factory
from wattsched.replay.placement.policy import Factory, Setting
from wattsched.replay.placement.state import ClusterState, Request
from wattsched.topology.arrays import IntArray

STEPS = 100
"""Grid points per GPU capacity."""


@dataclass(frozen=True)
class Experiment:
    """A cluster, a task list, and how much of it arrives.

    Parameters
    ----------
    nodes : NodeTable
        The cluster.
    tasks : TaskTable
        The list that arrivals are drawn from, and whose frequent classes are the target workload.
    arrivals : float
        Demand to submit, as a part of the GPU capacity.
    mapped_cpus : bool
        Whether nodes have the CPU that usually goes with their GPUs, instead of one and the same.
    """

    nodes: NodeTable
    tasks: TaskTable
    arrivals: float = 1.3
    mapped_cpus: bool = False

    def setting(self, seed: int) -> Setting:
        """What policies may know before a run.

        Raises
        ------
        ValueError
            If the power of a GPU model is unknown.
        """
        nodes = _in_order(self.nodes, node_order(len(self.nodes), seed))
        return Setting(nodes, self._power_of(nodes), target_workload(self.tasks), seed)

    def power(self) -> NodePower:
        """Power of the nodes, in the order of `nodes`."""
        return self._power_of(self.nodes)

    def _power_of(self, nodes: NodeTable) -> NodePower:
        models = [nodes.models[model] for model in nodes.model]
        cpus = [CPU_OF_GPU.get(model, "") for model in models] if self.mapped_cpus else None
        return node_power(nodes.cpu_milli, nodes.gpus, models, cpus)

    def arriving(self, seed: int) -> IntArray:
        """Positions of the arriving tasks in the list, in their order, shape (A,).

        Raises
        ------
        ValueError
            If no task asks for a GPU.
        """
        return arrival_order(self.tasks, self.arrivals * self.nodes.gpu_capacity_milli, seed)


def run(experiment: Experiment, policy: str | Factory, seed: int) -> Curves:
    """Submit the arrivals of a seed to a policy.

    Parameters
    ----------
    policy : str or callable
        Name of a policy, or how to make one.

    Raises
    ------
    ValueError
        If there is no such policy, the power of a GPU model is unknown or no task asks for a GPU.
    """
    setting = experiment.setting(seed)
    placer = (policy_factory(policy) if isinstance(policy, str) else policy)(setting)
    state, recorder = ClusterState(setting.nodes), Recorder(setting)
    order = experiment.arriving(seed)
    asked_milli = np.concatenate([[0], np.cumsum(experiment.tasks.demand_milli[order])])
    requests = requests_of(experiment.tasks)
    arriving = [requests[profile] for profile in experiment.tasks.profiles[1][order]]
    done = failed = 0
    for point, until in enumerate(_grid(experiment, asked_milli)):
        for request in arriving[done:until]:
            placement = placer.decide(request, state)
            if placement is None:
                failed += 1
            else:
                state.place(request, placement)
            placer.told(request, placement, state)
        done = until
        recorder.record(state, point / STEPS, int(asked_milli[done]), failed)
    return recorder.curves()


def _grid(experiment: Experiment, asked_milli: IntArray) -> list[int]:
    """Tasks that arrived until each point: none at 0, then as many as ask for no more than the point."""
    points = np.arange(1 + int(STEPS * experiment.arrivals + 1e-6)) * experiment.nodes.gpu_capacity_milli
    until = np.searchsorted(STEPS * asked_milli, points, side="right") - 1
    until[0] = 0
    counts: list[int] = until.tolist()
    return counts


def requests_of(tasks: TaskTable) -> list[Request]:
    """Distinct requests of a list, in the order of its profiles."""
    profiles = tasks.profiles[0]
    columns = (profiles.cpu_milli, profiles.memory_mib, profiles.gpus, profiles.gpu_milli, profiles.spec)
    return [
        Request(cpu, memory, gpus, gpu_milli, profiles.specs[spec])
        for cpu, memory, gpus, gpu_milli, spec in zip(*(column.tolist() for column in columns), strict=True)
    ]


def _in_order(nodes: NodeTable, order: IntArray) -> NodeTable:
    return replace(
        nodes,
        names=tuple(nodes.names[i] for i in order),
        cpu_milli=nodes.cpu_milli[order],
        memory_mib=nodes.memory_mib[order],
        gpus=nodes.gpus[order],
        model=nodes.model[order],
    )
