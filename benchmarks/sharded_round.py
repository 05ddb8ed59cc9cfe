"""One round in shards on a local Dask cluster: bytes and seconds of a pass, and the memory of every process.

    python -m benchmarks.sharded_round --write

Each size runs in a process of its own. The seconds of 16 machines are computed: what the workers computed in
a pass, divided by 16, and what a pass of nothing takes.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable, Iterable
from statistics import median
from typing import Any, NamedTuple

import wattsched
from benchmarks.harness import Asked, in_new_process, machine, resident_mib, run, table, timed
from wattsched.results.documents import verdict_on
from wattsched.running.dask_workers import DaskExecutor
from wattsched.running.executors import Kept

JOBS = (1_000_000, 10_000_000)
CLUSTER, GAP, MACHINES = "local:2", 1e-6, 16
MOST_GPUS, GPUS_PER_JOB = 10_000_000, 3
EMPTY_PASSES = 20
MB = 1e6


class Call(NamedTuple):
    """A function that was called on all shards: seconds here and on the workers together, bytes both ways."""

    name: str
    wall_s: float
    worker_s: float
    sent: int
    received: int


class CountedShards:
    """Shards on workers, and all calls on them."""

    def __init__(self, kept: Kept, calls: list[Call]) -> None:
        self._kept, self._calls = kept, calls

    def each(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Call a function on every shard, and count."""
        of_workers, wall_s = timed(lambda: self._kept.each(timed_call, function, *arguments))
        found = [outcome for _, outcome in of_workers]
        sent, received = len(pickle.dumps(arguments)) * len(found), sum(map(len, map(pickle.dumps, found)))
        worker_s = sum(seconds for seconds, _ in of_workers)
        name = getattr(function, "__name__", "")
        self._calls.append(Call(name, wall_s, worker_s, sent, received))
        return found


class CountingExecutor:
    """A Dask executor that counts what is called on the shards that it keeps."""

    def __init__(self, executor: DaskExecutor) -> None:
        self._executor = executor
        self.workers = executor.workers
        self.shared, self.completed = executor.shared, executor.completed
        self.calls: list[Call] = []
        self.n_shards = self.bytes = 0

    def kept(self, values: Iterable[Any]) -> CountedShards:
        """Keep shards, and count their bytes."""
        shards = list(values)
        self.n_shards, self.bytes = len(shards), sum(map(len, map(pickle.dumps, shards)))
        self.shards = CountedShards(self._executor.kept(shards), self.calls)
        return self.shards


def timed_call(shard: Any, function: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    """Processor seconds of a call, and what it returned."""
    began_s = time.process_time()
    found = function(shard, *arguments)
    return time.process_time() - began_s, found


def peak_of(shard: Any) -> tuple[int, float]:
    """Process that has a shard, and the most GB that it has needed."""
    return os.getpid(), peak_gb()


def nothing(shard: Any) -> None:
    """Return at once."""


def peak_gb() -> float:
    """Most memory that this process has needed."""
    return resident_mib("VmHWM") * 2**20 / 1e9


def measured(jobs: int) -> dict[str, str]:
    """Generate a round, solve it in shards, and check the result in shards."""
    # An instance may have no more GPUs; rounds have them for half of what the jobs ask for.
    gpus = MOST_GPUS if jobs * GPUS_PER_JOB > MOST_GPUS else None
    instance = wattsched.generate("uniform", jobs=jobs, gpus=gpus, seed=1)
    with wattsched.dask_executor(CLUSTER) as executor:
        counting = CountingExecutor(executor)
        result = wattsched.solve(instance, gap=GAP, executor=counting)
        calls = list(counting.calls)
        workers = dict(counting.shards.each(peak_of))
        for _ in range(EMPTY_PASSES):
            counting.shards.each(nothing)
        latency_s = median(call.wall_s for call in counting.calls[-EMPTY_PASSES:])
    solved_gb = peak_gb()
    with wattsched.dask_executor(CLUSTER) as executor:
        document = result.model_dump(mode="json", exclude={"decision"}) | {"decision": result.decision}
        verdict, check_s = timed(lambda: verdict_on(instance, document, executor))
    assert not verdict.faults
    passes = [call for call in calls if call.name == "sums"]
    others = [call for call in calls if call.name != "sums"]
    worker_s = median(call.worker_s for call in passes)
    spent = result.time_s
    return {
        "shards, workers": f"{counting.n_shards}, {len(workers)}",
        "to the workers at first, MB": f"{counting.bytes / MB:.1f}",
        "passes": f"{len(passes)}",
        "a pass, s": f"{median(call.wall_s for call in passes):.2f}",
        "of that on the workers, processor seconds of all": f"{worker_s:.2f}",
        "to the workers in a pass, kB": f"{median(call.sent for call in passes) / 1e3:.1f}",
        "back in a pass, kB": f"{median(call.received for call in passes) / 1e3:.1f}",
        "calls for points and columns": f"{len(others)}",
        "to and fro in these, MB": f"{sum(call.sent + call.received for call in others) / MB:.1f}",
        "a pass of nothing, s": f"{latency_s:.3f}",
        f"a pass on {MACHINES} machines, computed, s": f"{worker_s / MACHINES + latency_s:.3f}",
        "expand and build, s": f"{spent['expand'] + spent['build']:.1f}",
        "safety net and solver, s": f"{spent['safety'] + spent['solve']:.1f}",
        "decode and check, s": f"{spent.get('decode', 0.0) + spent.get('check', 0.0):.1f}",
        "whole, s": f"{spent['total']:.1f}",
        "proven gap": f"{result.proven_gap:.1e}",
        "the result checked again in shards, s": f"{check_s:.1f}",
        "most memory of the client, GB": f"{solved_gb:.2f}",
        "of a worker, GB": f"{max(workers.values()):.2f}",
    }


def sharded_round(asked: Asked) -> str:
    """One column for each size."""
    columns = {jobs: in_new_process(measured, jobs) for jobs in ((20_000,) if asked.quick else JOBS)}
    names = next(iter(columns.values()))
    rows = [(name, *(column[name] for column in columns.values())) for name in names]
    header = ("round", *(f"{jobs:,} jobs" for jobs in columns))
    return f"{table(header, rows)}\n\nMeasured on {machine()}."


TABLES = {"sharded-round": sharded_round}

if __name__ == "__main__":
    run(__doc__, TABLES)
