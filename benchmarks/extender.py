"""The extender of Kubernetes under load: how long the scheduler waits for an answer.

    python -m benchmarks.extender --write

A real server in a process of its own answers from the last decision; a question has a pod and 200 node names.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.harness import Asked, machine, run, table
from benchmarks.service import Client
from wattsched.adapters.kubernetes.extender import ASKING, Extender, Opinion, router_of
from wattsched.adapters.kubernetes.loop import is_marked
from wattsched.adapters.kubernetes.reading import read_pod
from wattsched.serve.app import create
from wattsched.serve.journal import Journal
from wattsched.serve.limits import Limits
from wattsched.serve.server import Server, listening

NODES = [f"gpu-node-{i:03}.example" for i in range(200)]
PODS = 1_000
SERVE = "from benchmarks.extender import serve; serve({!r})"


def pod(number: int) -> dict[str, Any]:
    """Return a pod as the API server has it, some 2 kB of it."""
    needs = {"limits": {"nvidia.com/gpu": "4", "cpu": "16", "memory": "64Gi"}}
    container = {"name": "train", "image": "registry.example/train:1", "resources": needs}
    container |= {"env": [{"name": f"VARIABLE_{i}", "value": "value" * 5} for i in range(20)]}
    metadata = {"name": f"p{number}", "namespace": "default", "uid": f"uid-{number}"}
    metadata |= {"annotations": {"wattsched.io/weight": "2"}, "creationTimestamp": "2026-01-01T00:00:00Z"}
    tolerations = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    return {"metadata": metadata, "spec": {"containers": [container], "tolerations": tolerations}}


def serve(folder: str) -> None:
    """Answer until the process ends: half of the pods have a node, the others wait."""
    extender = Extender(lambda document: is_marked(read_pod(document)), stale_s=1e6)
    waits = Opinion(why="no room within the power cap")
    extender.publish({f"uid-{i}": waits if i % 2 else Opinion(node=NODES[i % 200]) for i in range(PODS)})
    with Journal(Path(folder) / "journal") as journal, listening("127.0.0.1", 0) as bound:
        app = create(journal, Limits(rate=1e6), None, [router_of(extender)], fixed=True, asking=ASKING)
        print(bound.getsockname()[1], flush=True)
        Server(app).run([bound])


def answer_times_ms(port: int, verb: str, clients: int, seconds: float) -> list[float]:
    """Measure every answer to clients that ask one question after the other."""
    taken, ready = list[float](), threading.Barrier(clients)

    def work(number: int) -> None:
        ask, rng = Client(port), random.Random(number)
        questions = [{"Pod": pod(i), "Nodes": None, "NodeNames": NODES} for i in rng.sample(range(PODS), 50)]
        ready.wait()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            question = rng.choice(questions)
            began = time.perf_counter()
            status, content = ask("POST", f"/kubernetes/{verb}", question)
            taken.append(1e3 * (time.perf_counter() - began))
            assert status == 200, content

    threads = [threading.Thread(target=work, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return taken


def extender(asked: Asked) -> str:
    """Measure answers to one, two and eight clients."""
    seconds = 0.5 if asked.quick else 8.0
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", SERVE.format(folder)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            port, rows = int(child.stdout.readline()), []
            for verb in ("filter", "prioritize"):
                for clients in (1, 2, 8):
                    taken = answer_times_ms(port, verb, clients, seconds)
                    p50, p99 = np.percentile(taken, [50, 99])
                    rows.append([verb, clients, f"{len(taken) / seconds:,.0f}", f"{p50:.2f}", f"{p99:.2f}"])
            memory = psutil.Process(child.pid).memory_info().rss / 2**20
            child.terminate()
    header = ["question", "at the same time", "per second", "p50, ms", "p99, ms"]
    about = f"{PODS:,} pods, half of them with a node; {len(NODES)} node names in each question."
    where = f"Measured on {machine()}; the clients run on the same cores."
    return f"{about}\n\n{table(header, rows)}\n\nThe server had {memory:.0f} MiB (RSS) at the end. {where}"


TABLES = {"extender": extender}

if __name__ == "__main__":
    run(__doc__, TABLES)
