"""The service under load: requests per second, and a day of rounds.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python -m benchmarks.service --write

A real server in a process of its own is asked over loopback by clients in another process, on the same cores.
"""

from __future__ import annotations

import http.client
import itertools
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.harness import Asked, machine, run, sections, table

CLUSTER = {
    "gpu_types": {"A": {"idle_power_w": 50.0}},
    "nodes": [{"name": f"n{i}", "gpu_type": "A", "gpus": 8} for i in range(8)],
}
TABLE = {"gpus": [1, 2, 4], "pool": ["A"] * 3, "rate": [1.0, 1.9, 3.5], "power_w": [200.0, 390.0, 750.0]}
SESSION = {"cluster": CLUSTER, "tables": {"t": TABLE}, "objective": "goodput", "round_s": 60.0}
JOBS = 20
LOADS = [
    *(("decision", 1, clients) for clients in (1, 2, 8)),
    *(("decision", 2, clients) for clients in (2, 8)),
    *((kind, 1, clients) for kind in ("change", "read") for clients in (1, 2, 8)),
]
"""Requests, servers, clients."""


def jobs(numbers: Sequence[int], rng: random.Random) -> dict[str, Any]:
    """Jobs of some numbers."""
    return {"jobs": [{"name": f"j{k}", "options": "t", "weight": rng.uniform(0.5, 5.0)} for k in numbers]}


class Client:
    """One connection that is kept."""

    def __init__(self, port: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def __call__(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        """Status and content of the answer."""
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        self.connection.request(method, path, content, {"Content-Type": "application/json"})
        answer = self.connection.getresponse()
        return answer.status, answer.read()


@contextmanager
def served(path: Path, *options: str) -> Iterator[tuple[int, psutil.Process]]:
    """A server in a process of its own: its port, and the process."""
    command = [sys.executable, "-m", "wattsched", "serve", str(path), "--port", "0", "--no-token", *options]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    try:
        yield int(child.stderr.readline().rpartition(":")[2]), psutil.Process(child.pid)
    finally:
        child.terminate()
        child.wait()


def measured(
    clients: int, seconds: float, begin: Callable[[int], Callable[[], int]]
) -> tuple[list[float], Counter[int]]:
    """Milliseconds of every answer to clients that ask at the same time, and the statuses.

    Parameters
    ----------
    begin : callable
        From the number of a client, a function that asks once and returns the status.
    """
    taken, statuses = list[float](), Counter[int]()
    ready, until = threading.Barrier(clients), [0.0]

    def work(number: int) -> None:
        ask = begin(number)
        ready.wait()
        until[0] = time.monotonic() + seconds
        while time.monotonic() < until[0]:
            began = time.perf_counter()
            status = ask()
            taken.append(1e3 * (time.perf_counter() - began))
            statuses[status] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return taken, statuses


def answers(statuses: Counter[int]) -> str:
    """Statuses, each with its number."""
    return ", ".join(f"{many:,} x {status}" for status, many in sorted(statuses.items()))


def throughput(folder: Path, seconds: float, loads: Sequence[tuple[str, int, int]]) -> str:
    """Requests per second of several clients."""
    rows = []
    for kind, servers, clients in loads:
        with ExitStack() as running:
            files = [folder / f"{kind}-{servers}-{clients}-{number}.db" for number in range(servers)]
            found = [running.enter_context(served(file, "--rate", "100000")) for file in files]

            def begin(number: int, kind: str = kind, found: Any = found) -> Callable[[], int]:
                port, rng = found[number % len(found)][0], random.Random(number)
                ask, name = Client(port), f"/v1/sessions/s{number}"
                ask("PUT", name, SESSION)
                ask("PUT", f"{name}/jobs", jobs(range(JOBS), rng))
                ask("POST", f"{name}/solve", {"apply": True})
                requests = itertools.cycle([request_of(kind, name, rng) for _ in range(500)])
                return lambda: ask(*next(requests))[0]

            before_s = sum(sum(process.cpu_times()[:2]) for _, process in found)
            taken, statuses = measured(clients, seconds, begin)
            spent_s = sum(sum(process.cpu_times()[:2]) for _, process in found) - before_s
        milliseconds = (*np.percentile(taken, [50, 99]), 1e3 * spent_s / len(taken))
        figures = [f"{len(taken) / seconds:,.0f}", *(f"{ms:.1f}" for ms in milliseconds)]
        rows.append([kind, servers, clients, *figures, answers(statuses)])
    header = ["request", "servers", "clients", "per second", "p50, ms", "p99, ms", "CPU, ms", "answers"]
    about = (
        f"{JOBS} jobs on 64 GPUs; a decision is a request that changes a job, decides, records and applies. "
        "CPU is the time of the servers' processes per request. Two servers have a journal each."
    )
    return f"{about}\n\n{table(header, rows)}"


def request_of(kind: str, name: str, rng: random.Random) -> tuple[str, str, bytes | None]:
    """A request that reads a session, changes a job, or decides too; its body is made before it is sent."""
    if kind == "read":
        return "GET", name, None
    one = jobs([rng.randrange(JOBS)], rng)
    if kind == "change":
        return "PUT", f"{name}/jobs", json.dumps(one).encode()
    return "POST", f"{name}/solve", json.dumps({**one, "apply": True}).encode()


def day(folder: Path, rounds: int) -> str:
    """As many rounds as a day of minutes has: jobs come and go, and every decision is applied."""
    rng, rows = random.Random(5), []
    marks = {rounds // 10, rounds // 4, rounds // 2, 3 * rounds // 4, rounds}
    with served(folder / "day.db", "--kept-rounds", "100") as (port, process):
        ask = Client(port)
        ask("PUT", "/v1/sessions/s", SESSION)
        began = time.monotonic()
        for number in range(1, rounds + 1):
            ask("PUT", "/v1/sessions/s/jobs", jobs([2 * number, 2 * number + 1], rng))
            if number > JOBS // 2:
                old = 2 * (number - JOBS // 2)
                ask("DELETE", "/v1/sessions/s/jobs", {"ids": [f"j{old}", f"j{old + 1}"]})
            status, content = ask("POST", "/v1/sessions/s/solve", {"apply": True})
            assert status == 200, content
            if number in marks:
                size = sum(file.stat().st_size for file in folder.glob("day.db*"))
                memory, taken = process.memory_info().rss / 2**20, time.monotonic() - began
                rows.append([f"{number:,}", f"{taken:.0f}", f"{memory:.1f}", f"{size / 1e6:.1f}"])
    return table(["rounds", "seconds", "memory (RSS), MiB", "journal, MB"], rows)


def service(asked: Asked) -> str:
    """Both tables, some two minutes."""
    quick = asked.quick
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        parts = {
            "Requests per second": throughput(folder, *((0.2, LOADS[1::3]) if quick else (8.0, LOADS))),
            "A day of rounds, one a minute": day(folder, 10 if quick else 1440),
        }
    return f"{sections(parts)}\n\nMeasured on {machine()}; the clients run on the same cores."


TABLES = {"service": service}

if __name__ == "__main__":
    run(__doc__, TABLES)
