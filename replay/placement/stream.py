"""Runs: tasks arrive one after another, a policy places them, and the cluster is measured on the way.

Arrivals are drawn for a seed, and so is the order in which nodes win ties. Many runs, of several policies by
several seeds, go in parallel processes if wanted.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from wattsched.environment.interrupts import later_interrupts
from wattsched.formulations.placement.state import (
    ClusterState,
    Factory,
    Policy,
    PolicyContext,
    requests_of,
    serve,
)
from wattsched.instances.placement.instance import Node, PlacementInstance, Task, TaskClass
from wattsched.instances.placement.tables import WHOLE_GPU, NodeTable, TaskTable, target_workload
from wattsched.perfmodels.node_power import CPU_OF_GPU, UNIFORM_CPU, NodePower, node_power
from wattsched.replay.placement.curves import Curves, Recorder
from wattsched.replay.placement.policies import policy_factory
from wattsched.running.executors import Executor, SerialExecutor, in_order
from wattsched.topology.arrays import IntArray, offsets

STEPS = 100
"""Grid points per GPU capacity."""
MOST_TASKS = 5_000_000
"""Tasks of one run at most: tiny requests on a huge cluster should fail early, not run for days."""

# Whether nobody waits any more for the runs of this process.
_unwanted = threading.Event()


@dataclass(frozen=True)
class Experiment:
    """A cluster, a task list, and how much of it arrives.

    Parameters
    ----------
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

    def context(self, seed: int) -> PolicyContext:
        """Return the information that policies have before a run.

        Raises
        ------
        ValueError
            If the power of a GPU model is unknown.
        """
        nodes = self.nodes.take(node_order(len(self.nodes), seed))
        return PolicyContext(nodes, self._power_of(nodes), target_workload(self.tasks), seed)

    def power(self) -> NodePower:
        """Power of the nodes, in the order of `nodes`."""
        return self._power_of(self.nodes)

    def _power_of(self, nodes: NodeTable) -> NodePower:
        models = [nodes.models[model] for model in nodes.model]
        return node_power(nodes.cpu_milli, nodes.gpus, models, [self.cpu_of(model) for model in models])

    def cpu_of(self, gpu_model: str) -> str:
        """CPU model of nodes with these GPUs."""
        return CPU_OF_GPU.get(gpu_model, "") if self.mapped_cpus else UNIFORM_CPU

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
    context, placer = _prepared(experiment, policy, seed)
    state, recorder = ClusterState(context.nodes), Recorder(context)
    order = experiment.arriving(seed)
    asked_milli = offsets(experiment.tasks.demand_milli[order])
    requests = requests_of(experiment.tasks)
    arriving = [requests[profile] for profile in experiment.tasks.profiles[1][order]]
    done = failed = 0
    for point, until in enumerate(_grid(experiment, asked_milli)):
        if _unwanted.is_set():
            raise InterruptedError("nobody waits for this run")
        for request in arriving[done:until]:
            failed += serve(placer, request, state) is None
        done = until
        recorder.record(state, point / STEPS, int(asked_milli[done]), failed)
    return recorder.curves()


def _prepared(experiment: Experiment, policy: str | Factory, seed: int) -> tuple[PolicyContext, Policy]:
    context = experiment.context(seed)
    return context, (policy_factory(policy) if isinstance(policy, str) else policy)(context)


def _grid(experiment: Experiment, asked_milli: IntArray) -> list[int]:
    """Tasks that arrived until each point: none at 0, then as many as ask for no more than the point."""
    points = np.arange(1 + int(STEPS * experiment.arrivals + 1e-6)) * experiment.nodes.gpu_capacity_milli
    until = np.searchsorted(STEPS * asked_milli, points, side="right") - 1
    until[0] = 0
    return list(until.tolist())


def run_all(
    experiment: Experiment,
    policies: Sequence[str],
    seeds: Sequence[int],
    processes: int = 1,
    executor: Executor | None = None,
) -> Iterator[tuple[str, int, Curves]]:
    """Run every policy by every seed, policy by policy.

    A run depends on its seed alone, so the number of processes, or an executor that does the runs instead,
    changes nothing but the time. With several processes, a script must call this under
    ``if __name__ == "__main__":``, as `multiprocessing` asks.

    Raises
    ------
    ValueError
        As of `run`.
    RuntimeError
        If a process dies.
    """
    pairs = list(product(policies, seeds))
    if processes == 1 or executor is not None:
        executor = executor or SerialExecutor()
        shared = executor.shared(experiment)
        curves = in_order(executor.completed(run, [(shared, *pair) for pair in pairs]))
        yield from ((*pair, of) for pair, of in zip(pairs, curves, strict=True))
        return
    # Not forked: the threads of a solver would be missing in the copy.
    fresh = get_context("spawn")
    ending, here = fresh.Pipe(duplex=False)
    most = min(processes, len(pairs))
    with ending, here, ProcessPoolExecutor(most, fresh, _begin, (ending,)) as pool:
        pair = pairs[0]
        try:  # Ctrl-C that was held back comes when the processes have started, and nothing is to run then
            with later_interrupts():
                runs = [pool.submit(run, experiment, *each) for each in pairs]
            for pair, made in zip(pairs, runs, strict=True):
                yield *pair, made.result()
        except BrokenProcessPool:
            raise RuntimeError(f"a process died before policy {pair[0]}, seed {pair[1]} was done") from None
        except BaseException:
            here.close()  # nobody waits for the runs that have begun
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _begin(ending: Connection) -> None:
    """Leave Ctrl-C to the first process; end runs when it closes its end of the pipe, all when it is gone.

    To end all before would leave half an answer in the queue, for whose other half it would wait.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    first = parent_process()
    assert first is not None

    def end() -> None:
        with suppress(EOFError, OSError):
            ending.recv()
        _unwanted.set()
        first.join()
        os._exit(1)

    threading.Thread(target=end, daemon=True).start()


def window_at(experiment: Experiment, policy: str | Factory, seed: int, tasks: int) -> PlacementInstance:
    """Submit the arrivals of a seed to a policy; the cluster as it is then takes the next tasks.

    Parameters and errors are those of `run`.
    """
    context, placer = _prepared(experiment, policy, seed)
    state, requests = ClusterState(context.nodes), requests_of(experiment.tasks)
    order, done = _order_beyond(experiment, seed, tasks)
    for profile in experiment.tasks.profiles[1][order[:done]]:
        serve(placer, requests[profile], state)
    window, usual = experiment.tasks.take(order[done : done + tasks]), context.target
    return PlacementInstance(
        problem="placement",
        name=f"window-{tasks}-{seed}",
        workload=[
            TaskClass(**_request(usual.classes, m), count=int(often)) for m, often in enumerate(usual.count)
        ],
        nodes=[_node(experiment, state, n) for n in range(len(context.nodes))],
        tasks=[
            Task(name=f"t{t}", memory_mib=int(memory_mib), **_request(window, t))
            for t, memory_mib in enumerate(window.memory_mib)
        ],
    )


def _order_beyond(experiment: Experiment, seed: int, tasks: int) -> tuple[IntArray, int]:
    """Order of at least so many tasks more than the experiment has, and how many it has."""
    wanted = experiment.arrivals * experiment.nodes.gpu_capacity_milli
    more = WHOLE_GPU * tasks
    while True:
        order = arrival_order(experiment.tasks, wanted + more, seed)
        asked_milli = np.cumsum(experiment.tasks.demand_milli[order])
        done = int(np.searchsorted(asked_milli, wanted)) + (wanted > 0)
        if len(order) >= done + tasks:
            return order, done
        more *= 2


def _node(experiment: Experiment, state: ClusterState, n: int) -> Node:
    nodes = state.nodes
    model = nodes.models[nodes.model[n]]
    used_gpu_milli = (WHOLE_GPU - state.gpu_free_milli[n, : nodes.gpus[n]]).tolist()
    return Node(
        name=nodes.names[n],
        cpu_milli=int(nodes.cpu_milli[n]),
        memory_mib=int(nodes.memory_mib[n]),
        gpus=int(nodes.gpus[n]),
        gpu_type=model,
        cpu_type=experiment.cpu_of(model),
        used_cpu_milli=int(nodes.cpu_milli[n] - state.cpu_free_milli[n]),
        used_memory_mib=int(nodes.memory_mib[n] - state.memory_free_mib[n]),
        used_gpu_milli=used_gpu_milli if any(used_gpu_milli) else [],
    )


def _request(tasks: TaskTable, t: int) -> dict[str, Any]:
    return {
        "cpu_milli": int(tasks.cpu_milli[t]),
        "gpus": int(tasks.gpus[t]),
        "gpu_milli": int(tasks.gpu_milli[t]) or WHOLE_GPU,
        "gpu_types": sorted(tasks.specs[tasks.spec[t]]),
    }


def arrival_order(tasks: TaskTable, demand_milli: float, seed: int) -> IntArray:
    """Draw tasks until they ask for this much GPU in total.

    A random permutation of the list comes first, then draws from the whole list with replacement: the "Monte
    Carlo inflation" of FGD's artifact (Weng et al., USENIX ATC 2023). Where the list asks for more than is
    wanted, the tail of the permutation is cut off, which is to delete tasks at random.

    Parameters
    ----------
    demand_milli : float
        Thousandths of a GPU to ask for; the last task reaches it or steps over it.

    Returns
    -------
    (A,) int
        Positions in `tasks`, in the order of arrival.

    Raises
    ------
    ValueError
        If no task asks for a GPU, or if it took more than `MOST_TASKS` tasks.
    """
    demand = tasks.demand_milli
    total = int(demand.sum())
    if total == 0:
        raise ValueError("no task asks for a GPU, so the demand cannot be reached")
    expected = demand_milli / total * len(tasks)
    if expected > MOST_TASKS:
        raise ValueError(
            f"about {expected:,.0f} tasks are needed to ask for {demand_milli / 1000:,.0f} GPUs, "
            f"more than {MOST_TASKS:,}"
        )
    random = np.random.default_rng(seed)
    order = random.permutation(len(tasks))
    while (asked := np.cumsum(demand[order]))[-1] < demand_milli:
        missing = (demand_milli - asked[-1]) / total * len(tasks)
        order = np.concatenate([order, random.integers(len(tasks), size=int(missing) + 100)])
    return order[: 1 + np.searchsorted(asked, demand_milli)].astype(np.int64)


def node_order(count: int, seed: int) -> IntArray:
    """Draw the order in which nodes win ties during a run, a permutation of their positions, shape (count,).

    FGD's artifact names the nodes by such a permutation, and its scheduler takes the first name among the
    best nodes; that fixed order packs tasks together and is worth some points of allocation.
    """
    # A second stream of the seed: with the stream of the tasks, orders of equal length would be the same.
    return np.random.default_rng([seed, 1]).permutation(count).astype(np.int64)
