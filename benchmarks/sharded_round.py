"""One round in shards on a local Dask cluster: bytes and seconds of a pass, and the memory of every process.

    python benchmarks/sharded_round.py --jobs 1000000 10000000

prints the table; with ``--write`` it also puts it into docs/tables. Each size runs in a process of its own.
The seconds of 16 machines are computed: what the workers computed in a pass, divided by 16, and what a pass
of nothing takes.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from tables import machine, table, write

import wattsched
from wattsched.dask_workers import DaskExecutor
from wattsched.documents import verdict_on
from wattsched.executors import Kept

JOBS = (1_000_000, 10_000_000)
GAP = 1e-6
MACHINES = 16
MOST_GPUS, GPUS_PER_JOB = 10_000_000, 3
EMPTY_PASSES = 20


class Call(NamedTuple):
    """A function that was called on all shards: seconds here and on the workers together, bytes both ways."""

    name: str
    wall_s: float
    worker_s: float
    sent: int
    received: int


class CountedShards:
    """Shards on workers, and all calls on them."""

    def __init__(self, values: list[Any], executor: DaskExecutor, calls: list[Call]) -> None:
        self._kept: Kept = executor.kept(values)
        self._calls = calls

    def each(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Call a function on every shard, and count."""
        began_s = time.perf_counter()
        timed = self._kept.each(timed_call, function, *arguments)
        wall_s = time.perf_counter() - began_s
        found = [outcome for _, outcome in timed]
        sent, received = len(pickle.dumps(arguments)) * len(found), sum(map(len, map(pickle.dumps, found)))
        self._calls.append(Call(name_of(function), wall_s, sum(s for s, _ in timed), sent, received))
        return found


class CountingExecutor:
    """A Dask executor that counts what is called on the shards that it keeps."""

    def __init__(self, executor: DaskExecutor) -> None:
        self._executor = executor
        self.workers = executor.workers
        self.shared, self.completed = executor.shared, executor.completed
        self.calls: list[Call] = []
        self.shards: CountedShards | None = None
        self.n_shards = self.bytes = 0

    def kept(self, values: Iterable[Any]) -> Kept:
        """Keep shards, and count their bytes."""
        shards = list(values)
        self.n_shards, self.bytes = len(shards), sum(map(len, map(pickle.dumps, shards)))
        self.shards = CountedShards(shards, self._executor, self.calls)
        return self.shards


def name_of(function: Callable[..., Any]) -> str:
    """Name of a function."""
    return str(getattr(function, "__name__", function))


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
    """Most memory that this process has needed (Linux); `getrusage` tells a child that of its parent."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 / 1e9 for line in lines if line.startswith("VmHWM:"))


def measure(jobs: int, cluster: str) -> dict[str, Any]:
    """Generate a round, and solve it in shards."""
    # An instance may have no more GPUs; rounds have them for half of what the jobs ask for.
    gpus = MOST_GPUS if jobs * GPUS_PER_JOB > MOST_GPUS else None
    instance = wattsched.generate("uniform", jobs=jobs, gpus=gpus, seed=1)
    with wattsched.dask_executor(cluster) as executor:
        counting = CountingExecutor(executor)
        result = wattsched.solve(instance, gap=GAP, executor=counting)
        calls, shards = list(counting.calls), counting.shards
        assert shards is not None
        workers = dict(shards.each(peak_of))
        began = len(counting.calls)
        for _ in range(EMPTY_PASSES):
            shards.each(nothing)
        latency_s = median(call.wall_s for call in counting.calls[began:])
    solved_gb = peak_gb()
    began_s = time.perf_counter()
    with wattsched.dask_executor(cluster) as executor:
        document = result.model_dump(mode="json", exclude={"decision"}) | {"decision": result.decision}
        verdict = verdict_on(instance, document, executor)
    passes = [call for call in calls if call.name == "sums"]
    return {
        "jobs": jobs,
        "shards": counting.n_shards,
        "shards_bytes": counting.bytes,
        "passes": len(passes),
        "pass_s": median(call.wall_s for call in passes),
        "pass_worker_s": median(call.worker_s for call in passes),
        "pass_sent": median(call.sent for call in passes),
        "pass_received": median(call.received for call in passes),
        "others": len(calls) - len(passes),
        "others_bytes": sum(call.sent + call.received for call in calls if call.name != "sums"),
        "latency_s": latency_s,
        "gap": result.gap,
        "proven_gap": result.proven_gap,
        "reason": result.termination.reason,
        "time_s": result.time_s,
        "faults": len(verdict.faults),
        "check_s": time.perf_counter() - began_s,
        "client_gb": solved_gb,
        "worker_gb": max(workers.values()),
        "workers": len(workers),
    }


def rows_of(found: dict[str, Any]) -> dict[str, str]:
    """What the table says of a round."""
    spent = found["time_s"]
    beyond_s = found["pass_worker_s"] / MACHINES + found["latency_s"]
    return {
        "shards, workers": f"{found['shards']}, {found['workers']}",
        "to the workers at first, MB": f"{found['shards_bytes'] / 1e6:.1f}",
        "passes": f"{found['passes']}",
        "a pass, s": f"{found['pass_s']:.2f}",
        "of that on the workers, processor seconds of all": f"{found['pass_worker_s']:.2f}",
        "to the workers in a pass, kB": f"{found['pass_sent'] / 1e3:.1f}",
        "back in a pass, kB": f"{found['pass_received'] / 1e3:.1f}",
        "calls for points and columns": f"{found['others']}",
        "to and fro in these, MB": f"{found['others_bytes'] / 1e6:.1f}",
        "a pass of nothing, s": f"{found['latency_s']:.3f}",
        f"a pass on {MACHINES} machines, computed, s": f"{beyond_s:.3f}",
        "expand and build, s": f"{spent['expand'] + spent['build']:.1f}",
        "safety net and solver, s": f"{spent['safety'] + spent['solve']:.1f}",
        "decode and check, s": f"{spent.get('decode', 0.0) + spent.get('check', 0.0):.1f}",
        "whole, s": f"{spent['total']:.1f}",
        "proven gap": f"{found['proven_gap']:.1e}",
        "the result checked again in shards, s": f"{found['check_s']:.1f}",
        "most memory of the client, GB": f"{found['client_gb']:.2f}",
        "of a worker, GB": f"{found['worker_gb']:.2f}",
    }


def measured_alone(jobs: int, cluster: str) -> dict[str, Any]:
    """The same in a process of its own, so that its memory is."""
    command = [sys.executable, __file__, "--one", "--jobs", str(jobs), "--cluster", cluster]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, nargs="+", default=JOBS, help="sizes of the rounds")
    parser.add_argument("--cluster", default="local:2", help="address of the Dask cluster")
    parser.add_argument("--write", action="store_true", help="put the table into docs/tables")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.jobs[0], arguments.cluster)))
        return
    rounds = [measured_alone(jobs, arguments.cluster) for jobs in arguments.jobs]
    columns = [rows_of(found) for found in rounds]
    rows = [(name, *(column[name] for column in columns)) for name in columns[0]]
    text = table(("round", *(f"{found['jobs']:,} jobs" for found in rounds)), rows)
    print(text)
    if arguments.write:
        write("sharded-round", f"{text}\n\nMeasured on {machine()}.")


if __name__ == "__main__":
    main()
