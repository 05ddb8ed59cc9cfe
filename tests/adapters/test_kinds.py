"""Rounds on nodes with several kinds of GPUs: each job gets the kind that it names, of what others leave.

Layouts are those of `test_slices`, of which the schedulers are told as they tell it themselves.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from typing import Any

from tests.adapters.test_slices import (
    BOARDS,
    LAYOUTS,
    SERVER_W,
    Host,
    by_host,
    hosts,
    kubernetes_node,
    kubernetes_pods,
)
from tests.adapters.trust import decided, trusting
from tests.strategies.effort import examples
from wattsched.adapters.kubernetes.load import load_of as kubernetes_load
from wattsched.adapters.kubernetes.loop import Policy
from wattsched.adapters.kubernetes.options import KubernetesOptions
from wattsched.adapters.kubernetes.plan import plan_of as kubernetes_plan
from wattsched.adapters.kubernetes.plan import round_of as kubernetes_round
from wattsched.adapters.kubernetes.reading import read as read_kubernetes
from wattsched.adapters.rounds import Plan
from wattsched.adapters.slurm.actions import _release
from wattsched.adapters.slurm.load import load_of
from wattsched.adapters.slurm.options import Ours, SiteOptions
from wattsched.adapters.slurm.plan import plan_of, round_of
from wattsched.adapters.slurm.reading import read

DECIDED = examples(300)
"""Layouts of which rounds are decided, too."""


class Slurm:
    """Machines of a layout with jobs of others, as Slurm's commands tell of them."""

    def __init__(self, layout: list[Host], pick: random.Random) -> None:
        self.kinds = dict[str, dict[str, int]]()
        self.held = defaultdict[str, Counter[str]](Counter)
        self.jobs = list[dict[str, Any]]()
        self.numbers = dict[str, dict[str, list[int]]]()
        self.pick = pick
        for number, host in enumerate(layout):
            model = BOARDS[host.model][0]
            counts = {model + (f"_{name}" if name else ""): n for name, n in host.pieces.items()}
            self.kinds[name := f"n{number}"] = counts
            # Slurm numbers the GPUs of a machine in the order of gres.conf, whatever slurm.conf says.
            left = iter(range(sum(counts.values())))
            order = sorted(counts, key=lambda _: pick.random())
            self.numbers[name] = {kind: [next(left) for _ in range(counts[kind])] for kind in order}
        for name, numbers in self.numbers.items():
            for _ in range(pick.randint(0, 3)):
                self.begin(name, numbers)
        self.free = {
            (name, kind): n - self.held[name][kind]
            for name, of in self.kinds.items()
            for kind, n in of.items()
        }

    def begin(self, name: str, numbers: dict[str, list[int]]) -> None:
        """Let a job of others have some GPUs of a machine, which it names or not."""
        kind, typed = self.pick.choice(list(numbers)), self.pick.random() < 0.5
        free = [
            (one, number)
            for one in ([kind] if typed else numbers)
            for number in numbers[one][self.held[name][one] :]
        ]
        taken = free[: self.pick.randint(0, len(free))]
        mine = {
            one: [number for of, number in taken if of == one] for one in numbers if not typed or one == kind
        }
        self.held[name].update({one: len(own) for one, own in mine.items()})
        if taken:
            request = f"{kind}:{len(taken)}" if typed else len(taken)
            self.add(f"gres:gpu:{request}", job_state=["RUNNING"], nodes=name, gres_detail=[said(mine)])

    def add(self, request: str, **fields: Any) -> int:
        """Put a job into the queue."""
        row = {
            **{"job_id": 100 + len(self.jobs), "job_state": ["PENDING"], "partition": "gpu", "priority": 1},
            **{"comment": "", "admin_comment": "", "nodes": "", "gres_detail": [], "tres_per_node": request},
            **{"state_reason": "None", "restart_cnt": 0, "time_limit": 60, "submit_time": len(self.jobs)},
        }
        self.jobs.append(row | fields)
        return row["job_id"]

    def submit(self, request: str, **fields: Any) -> int:
        """Submit a job that is ours, held."""
        held = {"priority": 0, "state_reason": "JobHeldUser", "comment": '{"wattsched": {}}'}
        return self.add(request, **{**held, **fields})

    def snapshot(self) -> dict[str, str]:
        """What the commands print."""
        nodes = [
            {
                **{"name": name, "state": ["MIXED"], "partitions": ["gpu"], "cpus": 512},
                "gres": ",".join(f"gpu:{kind}:{n}" for kind, n in of.items()),
                "gres_used": said({kind: self.numbers[name][kind][: self.held[name][kind]] for kind in of}),
            }
            for name, of in self.kinds.items()
        ]
        return {
            **{
                "time": "1.8e9",
                "nodes": json.dumps({"nodes": nodes}),
                "jobs": json.dumps({"jobs": self.jobs}),
            },
            **{"partitions": "PartitionName=gpu State=UP", "topology": "SwitchName=r Nodes=n[0-9]"},
            "reservations": "No reservations in the system",
        }


def said(numbers: dict[str, list[int]]) -> str:
    """GPUs as ``gres_detail`` and ``gres_used`` have them."""
    return ",".join(f"gpu:{kind}:{len(own)}(IDX:{','.join(map(str, own))})" for kind, own in numbers.items())


def require_within_boards(node_w: dict[str, float], layout: list[Host]) -> None:
    """Check that machines draw no more than their boards, and no less than their servers."""
    found = by_host(node_w)
    for number, host in enumerate(layout):
        assert SERVER_W <= found.pop(f"n{number}") <= host.server_w + host.most_w + 1e-6
    assert not found


def test_jobs_on_slurm_get_the_kinds_that_they_name() -> None:
    started = refused = 0
    for seed in range(LAYOUTS):
        layout, pick = hosts(seed, 1), random.Random(seed)
        world, asked = Slurm(layout, pick), dict[int, str]()
        for _ in range(4):
            kind, n = pick.choice([pair for of in world.kinds.values() for pair in of.items()])
            asked[world.submit(f"gres:gpu:{kind}:{pick.randint(1, n)}")] = kind
        vague, alone = world.submit("gres:gpu:1"), world.submit(f"gres:gpu:{kind}:1", shared=["NONE"])
        load = load_of(read(world.snapshot()), SiteOptions.model_validate(trusting()), Ours())
        require_within_boards(load.node_w, layout)
        nodes = {
            name if len(of) == 1 else f"{name}/{kind}": (name, kind)
            for name, of in world.kinds.items()
            for kind in of
        }
        assert not load.mislaid
        assert {nodes[name]: len(load.free(name)) for name in load.site.nodes} == world.free
        cap_w = load.power_w + pick.choice([0.0, 100.0, 1e5])
        round = round_of(load, Ours(), 60.0)
        plan = plan_of(round, decided(round, cap_w)) if seed < DECIDED else Plan([], {}, round.left_out)
        left = Counter(world.free)
        for start in plan.starts:
            for node, gpus in start.launch.nodes.items():
                left[nodes[node]] -= gpus
                _, kind = nodes[node]
                assert node in world.kinds or kind == asked[start.job.id]
            update, _ = _release(start.job, start.launch)
            named = next(word for word in update if word.startswith("ReqNodeList=")).split("=")[1]
            assert set(named.split(",")) == {nodes[node][0] for node in start.launch.nodes}
        assert min(left.values()) >= 0
        if all(len(of) > 1 for of in world.kinds.values()):
            assert all("has: one kind of GPUs (--" in plan.reasons[number] for number in (vague, alone))
            refused += 1
        then = load.after(plan.stops, plan.starts)
        assert then.power_w <= cap_w + 1e-6
        require_within_boards(then.node_w, layout)
        started += len(plan.starts)
    assert min(started, refused) >= LAYOUTS // 10


def test_pods_get_the_kinds_that_they_ask_for() -> None:
    started = 0
    for seed in range(LAYOUTS):
        layout, pick = hosts(seed, 8), random.Random(seed)
        nodes = [
            kubernetes_node(i, host, "single" if len(host.pieces) == 1 else "mixed")
            for i, host in enumerate(layout)
        ]
        offered = {one["metadata"]["name"]: one["status"]["capacity"] for one in nodes}
        theirs = [pod for one in nodes for pod in kubernetes_pods(one, pick) if pick.random() < 0.4]
        for one in nodes:
            one["status"] |= {"allocatable": {**one["status"]["capacity"], "pods": "110", "cpu": "2"}}
        kinds = sorted({resource for of in offered.values() for resource in of})
        ours = [waiting(number, pick.choice(kinds), pick.randint(1, 3)) for number in range(4)]
        ours.append(waiting(4, kinds[0], 1) | {"spec": both(kinds[0], kinds[-1])})
        daemon = waiting(9, "cpu", 1)
        daemon["spec"] |= {"nodeName": "n0", "schedulerName": "default-scheduler"}
        site = read_kubernetes({"time": 1.8e9, "nodes": nodes, "pods": [*theirs, *ours, daemon]})
        policy = Policy(KubernetesOptions.model_validate(trusting()))
        load = kubernetes_load(site, policy.options, policy.ours)
        require_within_boards(load.node_w, layout)
        left = {(name, resource): int(n) for name, of in offered.items() for resource, n in of.items()}
        for pod in theirs:
            for resource, n in pod["spec"]["containers"][0]["resources"]["limits"].items():
                left[pod["spec"]["nodeName"], resource] -= int(n)
        free = {
            (node.host, resource): load.free(node)
            for node in site.nodes.values()
            for resource in node.resources
        }
        assert free == left
        left |= {(name, "cpu"): 2 - (name == "n0") for name in offered}
        cap_w = load.power_w + pick.choice([0.0, 100.0, 1e5])
        round = kubernetes_round(load)
        plan = (
            kubernetes_plan(round, decided(round, cap_w)) if seed < DECIDED else Plan([], {}, round.left_out)
        )
        assert len(kinds) == 1 or "several kinds" in plan.reasons["default/ours-4"]
        for start in plan.starts:
            placed, why = load.placed(start)
            assert not why or "cpu" in why
            for one in placed:
                ((resource, n),) = one.pod.resources.items()
                left[one.host, resource] -= n
                left[one.host, "cpu"] -= 1
        assert min(left.values()) >= 0
        assert load.power_w <= cap_w + 1e-6
        require_within_boards(load.node_w, layout)
        started += len(plan.starts)
    assert started >= LAYOUTS // 10


def both(*resources: str) -> dict[str, Any]:
    """What a pod asks for that wants a GPU of each of some kinds."""
    limits = dict.fromkeys(resources, "1")
    return {"schedulerName": "wattsched", "containers": [{"name": "c", "resources": {"limits": limits}}]}


def waiting(number: int, resource: str, gpus: int) -> dict[str, Any]:
    """A pod of ours that waits."""
    metadata = {"name": f"ours-{number}", "namespace": "default", "uid": f"ours-{number}"}
    spec = both(resource)
    spec["containers"][0]["resources"]["limits"] |= {resource: str(gpus), "cpu": "1"}
    return {"kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}
