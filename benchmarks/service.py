"""The service under load: requests per second, faulty requests, kills at random moments, a day of rounds.

    python benchmarks/service.py            # all of it, some ten minutes
    python benchmarks/service.py --quick
    python benchmarks/service.py --write    # docs/tables/service.md

A real server in a process of its own is asked over loopback by clients in another process, on the same cores.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import os
import platform
import random
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import tables

from wattsched.serve.journal import Journal

TYPES = {"A": {"idle_power_w": 50.0}}
GPUS = [1, 2, 4]
TABLE = {"gpus": GPUS, "pool": ["A"] * 3, "rate": [1.0, 1.9, 3.5], "power_w": [200.0, 390.0, 750.0]}
JOBS = 20
LOADS = [
    *(("decision", 1, clients) for clients in (1, 2, 8)),
    *(("decision", 2, clients) for clients in (2, 8)),
    *((kind, 1, clients) for kind in ("change", "read") for clients in (1, 2, 8)),
]
"""Requests, servers, clients."""


def document(nodes: int = 8) -> dict[str, Any]:
    listed = [{"name": f"n{i}", "gpu_type": "A", "gpus": 8} for i in range(nodes)]
    cluster = {"gpu_types": TYPES, "nodes": listed}
    return {"cluster": cluster, "tables": {"t": TABLE}, "objective": "goodput", "round_s": 60.0}


def jobs(first: int, count: int, rng: random.Random) -> dict[str, Any]:
    named = [f"j{k}" for k in range(first, first + count)]
    return {"jobs": [{"name": n, "options": "t", "weight": rng.uniform(0.5, 5.0)} for n in named]}


class Client:
    """One connection that is kept."""

    def __init__(self, port: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def __call__(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        self.connection.request(method, path, content, {"Content-Type": "application/json"})
        answer = self.connection.getresponse()
        return answer.status, answer.read()


class Prepared:
    """One connection that is kept, for requests that are bytes already: it takes little of the cores."""

    def __init__(self, port: int) -> None:
        self.connection = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __call__(self, request: bytes) -> tuple[int, bytes]:
        """Status and content of the answer, which has a stated length."""
        self.connection.sendall(request)
        answer = b""
        while received := self.connection.recv(1 << 16):
            answer += received
            head, _, content = answer.partition(b"\r\n\r\n")
            length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
            if length and len(content) == int(length[1]):
                return int(head[9:12]), content
        raise ConnectionError("the server has closed the connection")


def prepared(method: str, path: str, body: Any = None) -> bytes:
    content = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


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


# -- requests per second -------------------------------------------------------------------------------------


def throughput(folder: Path, seconds: float) -> str:
    rows = []
    for kind, servers, clients in LOADS:
        with ExitStack() as running:
            files = [folder / f"{kind}-{servers}-{clients}-{number}.db" for number in range(servers)]
            found = [running.enter_context(served(file, "--rate", "100000")) for file in files]
            processes = [process for _, process in found]
            before_s = cpu_s(processes)
            taken, statuses = ask_for([port for port, _ in found], kind, clients, seconds)
            cpu_ms = 1e3 * (cpu_s(processes) - before_s) / len(taken)
        p50, p99 = np.percentile(taken, [50, 99])
        figures = [f"{len(taken) / seconds:,.0f}", *(f"{ms:.1f}" for ms in (p50, p99, cpu_ms))]
        rows.append([kind, servers, clients, *figures, told(statuses)])
    header = ["request", "servers", "clients", "per second", "p50, ms", "p99, ms", "CPU, ms", "answers"]
    about = (
        f"{JOBS} jobs on 64 GPUs; a decision is a request that changes a job, decides, records and applies. "
        "CPU is the time of the servers' processes per request. Two servers have a journal each."
    )
    return f"{about}\n\n{tables.table(header, rows)}"


def cpu_s(processes: list[psutil.Process]) -> float:
    """CPU seconds that processes have taken so far."""
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def ask_for(ports: list[int], kind: str, clients: int, seconds: float) -> tuple[list[float], Counter[int]]:
    """Milliseconds of every answer, and the statuses; each client has a session of its own."""
    taken: list[float] = []
    statuses: Counter[int] = Counter()
    ready, until = threading.Barrier(clients), [0.0]

    def work(number: int) -> None:
        ask, rng = Client(ports[number % len(ports)]), random.Random(number)
        name = f"/v1/sessions/s{number}"
        ask("PUT", name, document())
        ask("PUT", f"{name}/jobs", jobs(0, JOBS, rng))
        ask("POST", f"{name}/solve", {"apply": True})
        requests = itertools.cycle([request_of(kind, name, rng) for _ in range(500)])
        send = Prepared(ports[number % len(ports)])
        ready.wait()
        until[0] = time.monotonic() + seconds
        while time.monotonic() < until[0]:
            began = time.perf_counter()
            status, _ = send(next(requests))
            taken.append(1e3 * (time.perf_counter() - began))
            statuses[status] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return taken, statuses


def request_of(kind: str, name: str, rng: random.Random) -> bytes:
    if kind == "read":
        return prepared("GET", name)
    one = jobs(rng.randrange(JOBS), 1, rng)
    if kind == "change":
        return prepared("PUT", f"{name}/jobs", one)
    return prepared("POST", f"{name}/solve", {**one, "apply": True})


def told(statuses: Counter[int]) -> str:
    return ", ".join(f"{many:,} x {status}" for status, many in sorted(statuses.items()))


# -- faulty requests -----------------------------------------------------------------------------------------


def faulty(folder: Path, requests: int) -> str:
    """Requests with bytes, values and fields that are wrong, at random."""
    rng, statuses = random.Random(7), Counter[int]()
    with served(folder / "faulty.db", "--rate", "100000") as (port, _):
        ask = Client(port)
        for number in range(requests):
            if number % 50 == 0:
                ask("PUT", "/v1/sessions/s", document())
                ask("PUT", "/v1/sessions/s/jobs", jobs(0, 5, rng))
            try:
                status, _ = ask(*damaged(rng))
            except http.client.HTTPException:
                status, ask = 0, Client(port)
            statuses[status] += 1
    rows = [[status or "closed", f"{many:,}"] for status, many in sorted(statuses.items())]
    return tables.table(["status", "requests"], rows)


def damaged(rng: random.Random) -> tuple[str, str, bytes]:
    update = {
        "power_w": 5e3,
        "down": ["n0"],
        "up": ["n1"],
        "reserved_w": {"n1": 5.0},
        "unavailable": {"n2": [0]},
    }
    asked: list[tuple[str, str, Any]] = [
        ("PUT", "s", document(2)),
        ("PUT", "u", document(2)),
        ("PUT", "s/jobs", jobs(0, 3, rng)),
        ("PATCH", "s", update),
        ("POST", "s/solve", {"deadline_s": 1.0, "gap": 1e-3, "apply": True}),
        ("DELETE", "s/jobs", {"ids": ["j0"]}),
        ("POST", "s/rounds/1/apply", None),
        ("GET", "s/rounds/0", None),
        ("DELETE", "none", None),
    ]
    method, path, body = rng.choice(asked)
    content = bytearray(json.dumps(changed(body, rng)).encode())
    for _ in range(rng.choice([0, 0, 1, 3])):
        content[rng.randrange(len(content))] = rng.randrange(256)
    return rng.choice([method] * 9 + ["POST"]), f"/v1/sessions/{path}", bytes(content)


def changed(value: Any, rng: random.Random) -> Any:
    """A document in which something is of another kind."""
    odd = [None, True, -1, 0, 1e308, 10**400, float("nan"), "", "x" * 300, "\ud800", "\x00", [], {}, [[[]]]]
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        return {**value, rng.choice([key] * 9 + ["strange"]): changed(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.9:
        place = rng.randrange(len(value))
        return [*value[:place], changed(value[place], rng), *value[place + 1 :]]
    return rng.choice(odd)


# -- kills ---------------------------------------------------------------------------------------------------


def killed(folder: Path, kills: int) -> str:
    """Kill a server that is being asked, at random moments; look for what it had acknowledged."""
    path, rng = folder / "killed.db", random.Random(3)
    acknowledged: dict[str, float] = {}
    lost, rounds_lost, changes, last_round = 0, 0, 0, 0
    for _ in range(kills):
        command = [sys.executable, "-m", "wattsched", "serve", str(path), "--port", "0", "--no-token"]
        child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert child.stderr is not None
        ask = Client(int(child.stderr.readline().rpartition(":")[2]))
        ask("PUT", "/v1/sessions/s", document())
        timer = threading.Timer(rng.uniform(0.02, 0.5), child.kill)
        timer.start()
        sent: dict[str, float] = {}
        try:
            while True:
                sent = {f"j{rng.randrange(200)}": rng.uniform(0.5, 5.0)}
                listed = [{"name": name, "options": "t", "weight": weight} for name, weight in sent.items()]
                if ask("PUT", "/v1/sessions/s/jobs", {"jobs": listed})[0] == 200:
                    acknowledged |= sent
                    changes, sent = changes + 1, {}
                if rng.random() < 0.2:
                    status, told_now = ask("POST", "/v1/sessions/s/solve", {"apply": True})
                    last_round = json.loads(told_now)["round"] if status == 200 else last_round
        except (http.client.HTTPException, OSError):
            child.wait()
        with Journal(path) as journal:
            session = journal.open("s")
            found = {job.name: job.weight for job in session.session.to_instance().by_column()}
            for name, weight in acknowledged.items():
                # The one that was under way when it was killed may be there or not.
                lost += found.get(name) not in (weight, sent.get(name))
            rounds_lost += bool(last_round and (session.last is None or session.last.number < last_round))
            acknowledged = found
    header = ["kills", "changes acknowledged", "of these lost", "rounds lost", "journals that did not open"]
    return tables.table(header, [[kills, f"{changes:,}", lost, rounds_lost, 0]])


# -- a day ---------------------------------------------------------------------------------------------------


def day(folder: Path, rounds: int) -> str:
    """As many rounds as a day of minutes has: jobs come and go, and every decision is applied."""
    path, rng = folder / "day.db", random.Random(5)
    rows, marks = [], {rounds // 10, rounds // 4, rounds // 2, 3 * rounds // 4, rounds}
    with served(path, "--kept-rounds", "100") as (port, process):
        ask = Client(port)
        ask("PUT", "/v1/sessions/s", document())
        began = time.monotonic()
        for number in range(1, rounds + 1):
            ask("PUT", "/v1/sessions/s/jobs", jobs(2 * number, 2, rng))
            if number > JOBS // 2:
                old = 2 * (number - JOBS // 2)
                ask("DELETE", "/v1/sessions/s/jobs", {"ids": [f"j{old}", f"j{old + 1}"]})
            status, content = ask("POST", "/v1/sessions/s/solve", {"apply": True})
            assert status == 200, content
            if number in marks:
                size = sum(file.stat().st_size for file in folder.glob("day.db*"))
                taken = time.monotonic() - began
                rss = process.memory_info().rss
                rows.append([f"{number:,}", f"{taken:.0f}", f"{rss / 2**20:.1f}", f"{size / 1e6:.1f}"])
    return tables.table(["rounds", "seconds", "memory (RSS), MiB", "journal, MB"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a little of everything")
    parser.add_argument("--write", action="store_true", help="write docs/tables/service.md")
    asked = parser.parse_args()
    quick = asked.quick
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        parts = {
            "Requests per second": throughput(folder, 0.5 if quick else 8.0),
            "Faulty requests": faulty(folder, 200 if quick else 10_000),
            "Kills at random moments": killed(folder, 2 if quick else 50),
            "A day of rounds, one a minute": day(folder, 40 if quick else 1440),
        }
    where = f"Measured on {os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    end = f"{where}; the clients run on the same cores."
    content = "\n\n".join([*(f"## {title}\n\n{part}" for title, part in parts.items()), end])
    print(content)
    if asked.write:
        tables.write("service", content)


if __name__ == "__main__":
    main()
