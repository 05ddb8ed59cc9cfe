"""The extender of Kubernetes under load: how long the scheduler waits for an answer.

    python benchmarks/extender.py            # a minute
    python benchmarks/extender.py --write    # docs/tables/extender.md

A real server in a process of its own answers from the last decision; a question has a pod and 200 node names.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import tables
from service import Client, told

from wattsched.adapters.kubernetes.extender import ASKING, Extender, Opinion, router_of
from wattsched.adapters.kubernetes.loop import is_marked
from wattsched.adapters.kubernetes.reading import read_pod
from wattsched.serve.app import create
from wattsched.serve.journal import Journal
from wattsched.serve.limits import Limits
from wattsched.serve.server import Server, listening

NODES = [f"gpu-node-{i:03}.example" for i in range(200)]
PODS = 1_000


def pod(number: int) -> dict[str, Any]:
    """A pod as the API server has it, some 2 kB of it."""
    needs = {"limits": {"nvidia.com/gpu": "4", "cpu": "16", "memory": "64Gi"}}
    container = {"name": "train", "image": "registry.example/train:1", "resources": needs}
    container |= {"env": [{"name": f"VARIABLE_{i}", "value": "value" * 5} for i in range(20)]}
    metadata = {"name": f"p{number}", "namespace": "default", "uid": f"uid-{number}"}
    metadata |= {"annotations": {"wattsched.io/weight": "2"}, "creationTimestamp": "2026-01-01T00:00:00Z"}
    tolerations = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    return {"metadata": metadata, "spec": {"containers": [container], "tolerations": tolerations}}


def ours(document: Mapping[str, Any]) -> bool:
    return is_marked(read_pod(document))


def serve(folder: Path) -> None:
    """Half of the pods have a node, the others wait."""
    extender = Extender(ours, stale_s=1e6)
    waits = Opinion(why="no room within the power cap")
    extender.publish({f"uid-{i}": waits if i % 2 else Opinion(node=NODES[i % 200]) for i in range(PODS)})
    with Journal(folder / "journal") as journal, listening("127.0.0.1", 0) as bound:
        app = create(journal, Limits(rate=1e6), None, [router_of(extender)], fixed=True, asking=ASKING)
        print(bound.getsockname()[1], flush=True)
        Server(app).run([bound])


def ask_for(port: int, verb: str, clients: int, seconds: float) -> tuple[list[float], Counter[int]]:
    """Milliseconds of every answer, and the statuses."""
    taken, statuses, ready = list[float](), Counter[int](), threading.Barrier(clients)

    def work(number: int) -> None:
        ask, rng = Client(port), random.Random(number)
        questions = [{"Pod": pod(i), "Nodes": None, "NodeNames": NODES} for i in rng.sample(range(PODS), 50)]
        ready.wait()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            question = rng.choice(questions)
            began = time.perf_counter()
            status, _ = ask("POST", f"/kubernetes/{verb}", question)
            taken.append(1e3 * (time.perf_counter() - began))
            statuses[status] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return taken, statuses


def measured(seconds: float) -> str:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--serve", folder]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        try:
            port, rows = int(child.stdout.readline()), []
            for verb in ("filter", "prioritize"):
                for clients in (1, 2, 8):
                    taken, statuses = ask_for(port, verb, clients, seconds)
                    p50, p99 = np.percentile(taken, [50, 99])
                    rate = f"{len(taken) / seconds:,.0f}"
                    rows.append([verb, clients, rate, f"{p50:.2f}", f"{p99:.2f}", told(statuses)])
            memory = psutil.Process(child.pid).memory_info().rss / 2**20
        finally:
            child.terminate()
            child.wait()
    header = ["question", "at the same time", "per second", "p50, ms", "p99, ms", "answers"]
    about = (
        f"{PODS:,} pods, of which half have a node and half wait; {len(NODES)} node names in each question."
    )
    return f"{about}\n\n{tables.table(header, rows)}\n\nThe server had {memory:.0f} MiB (RSS) at the end."


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a little of everything")
    parser.add_argument("--write", action="store_true", help="write docs/tables/extender.md")
    parser.add_argument("--serve", metavar="DIR", help="be the server")
    asked = parser.parse_args()
    if asked.serve is not None:
        serve(Path(asked.serve))
        return
    content = measured(0.5 if asked.quick else 8.0)
    load = os.getloadavg()[0]
    content += (
        f"\n\nMeasured on {tables.machine()}; the clients run on the same cores, beside a load of {load:.1f}."
    )
    print(content)
    if asked.write:
        tables.write("extender", content)


if __name__ == "__main__":
    main()
