"""Arriving tasks under placement policies, and how far they are from any placement's best: `place_tasks`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wattsched.instances.errors import naming, require_range
from wattsched.instances.traces.openb import read_nodes, read_tasks
from wattsched.reading.arguments import require_types
from wattsched.reading.inputs import notice
from wattsched.replay.placement.bounds import Distances, distances
from wattsched.replay.placement.curves import Curves, mean
from wattsched.replay.placement.stream import Experiment, run_all
from wattsched.report.wording import count, listed
from wattsched.running.executors import Executor


def read_experiment(
    nodes: str | Path, tasks: str | Path, *, arrivals: float = 1.3, mapped_cpus: bool = False, seed: int = 0
) -> Experiment:
    """Read a cluster and its tasks for `place_tasks`, and make sure that the arrivals of a seed can be drawn.

    Parameters
    ----------
    nodes, tasks : str or Path
        Files of Alibaba's form: sn, cpu_milli, memory_mib, gpu, model; cpu_milli, memory_mib, num_gpu,
        gpu_milli and, if wanted, gpu_spec.
    arrivals, mapped_cpus
        As for `Experiment`.

    Raises
    ------
    ValueError
        For malformed files, GPUs of unknown power, and tasks that ask for no GPU.
    OSError
        When a file cannot be read.
    """
    require_types(read_experiment, locals())
    require_range(0 <= arrivals < math.inf, "arrivals", "at least 0 and finite", arrivals)
    require_range(seed >= 0, "seed", "at least 0", seed)
    with naming(nodes):
        cluster = read_nodes(nodes)
    with naming(tasks):
        experiment = Experiment(cluster, read_tasks(tasks), arrivals, mapped_cpus)
        experiment.arriving(seed)
    with naming(nodes):
        experiment.context(seed)
    _tell_unknown_models(experiment)
    return experiment


def _tell_unknown_models(experiment: Experiment) -> None:
    """Tell which models that no node has tasks ask for, and how many ask for no others."""
    known, tasks = set(experiment.nodes.models), experiment.tasks
    if not (unknown := sorted({model for models in tasks.specs for model in models} - known)):
        return
    nowhere = [number for number, models in enumerate(tasks.specs) if models and not models & known]
    lost = sum(int((tasks.spec == number).sum()) for number in nowhere)
    message = f"gpu_spec names models that no node has: {listed(unknown)}"
    if lost:
        message += f"; {count(lost, 'task')} can go nowhere"
    notice(message)


@dataclass(frozen=True)
class PlacementTrial:
    """Outcome of arriving tasks under some policies.

    Attributes
    ----------
    curves : mapping of str to Curves
        Means over the seeds, by policy.
    bound : Distances, optional
        What no placement can beat.
    runs : mapping of str to list of Curves
        The curves of each seed, by policy.
    """

    curves: Mapping[str, Curves]
    bound: Distances | None
    runs: Mapping[str, Sequence[Curves]]


def place_tasks(
    experiment: Experiment,
    policies: Sequence[str] = ("fgd",),
    *,
    seeds: Sequence[int] = tuple(range(42, 52)),
    processes: int = 1,
    bound_gap: float | None = 0.01,
    executor: Executor | None = None,
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> PlacementTrial:
    """Submit tasks to a cluster, one after another, under every policy and with every seed.

    Parameters
    ----------
    experiment : Experiment
        As `read_experiment` gives it.
    policies : sequence of str
        Names of `replay.placement.policies`.
    processes : int
        Runs at a time; with several, call this under ``if __name__ == "__main__":``.
    bound_gap : float, optional
        How loose the bound on any placement may be; None for no bound.
    executor : Executor, optional
        Does the runs, as one of `wattsched.dask_executor`; `processes` is 1 then.
    progress : callable
        Told what goes on, and how many runs are done, of how many.

    Raises
    ------
    ValueError
        If there is no such policy, or none is named; a `ClusterError` where an executor cannot go on.
    """
    require_types(place_tasks, locals())
    if not policies or not seeds:
        raise ValueError(f"{'seeds' if policies else 'policies'}: name one at least")
    require_range(min(seeds) >= 0, "seeds", "at least 0", min(seeds))
    require_range(processes >= 1, "processes", "at least 1", processes)
    require_range(executor is None or processes == 1, "processes", "1 with an executor", processes)
    require_range(bound_gap is None or 0 <= bound_gap < 1, "bound_gap", "at least 0 and below 1", bound_gap)
    runs: dict[str, list[Curves]] = {policy: [] for policy in policies}
    total = len(policies) * len(seeds)
    progress(policies[0], 0, total)
    found = run_all(experiment, policies, seeds, processes, executor)
    for done, (policy, _, curves) in enumerate(found, start=1):
        runs[policy].append(curves)
        progress(policy, done, total)
    means = {policy: mean(curves) for policy, curves in runs.items()}
    if bound_gap is None:
        return PlacementTrial(means, None, runs)
    progress("bounding any placement", total, total)
    return PlacementTrial(means, distances(experiment, means, seeds, bound_gap), runs)
