"""Nodes of boards that are cut and shared, in 1,000 random layouts: never more watts than their boards.

The watts of boards are stated here anew, and layouts are of boards, as no importer sees them.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import UTC
from typing import Any

import pytest

from tests.strategies.effort import examples
from wattsched.adapters.kubernetes.load import load_of as kubernetes_load
from wattsched.adapters.kubernetes.options import KubernetesOptions
from wattsched.adapters.kubernetes.reading import read as read_kubernetes
from wattsched.adapters.kubernetes.trace import items_of
from wattsched.adapters.kubernetes.trace import recorded as kubernetes_recorded
from wattsched.adapters.recorded import Recorded
from wattsched.adapters.slurm.inventory import nodes_in
from wattsched.adapters.slurm.load import load_of as slurm_load
from wattsched.adapters.slurm.options import Ours, SiteOptions
from wattsched.adapters.slurm.reading import Site as SlurmSite
from wattsched.adapters.slurm.trace import Said
from wattsched.adapters.slurm.trace import recorded as slurm_recorded

LAYOUTS, SERVER_W = examples(1_000), 200.0
BOARDS = {"A100-40": ("a100", 50, 400), "A100-80": ("a100", 50, 400), "H100-80": ("h100", 70, 700)}
"""Name in small letters, idle watts and most watts of a board."""
PROFILES = {
    "A100-40": {"1g.5gb": (1, 1), "1g.10gb": (1, 2), "2g.10gb": (2, 2), "3g.20gb": (3, 4), "4g.20gb": (4, 4)},
    "A100-80": {
        "1g.10gb": (1, 1),
        "1g.20gb": (1, 2),
        "2g.20gb": (2, 2),
        "3g.40gb": (3, 4),
        "7g.80gb": (7, 8),
    },
    "H100-80": {"1g.10gb": (1, 1), "1g.10gb+me": (1, 1), "2g.20gb": (2, 2), "3g.40gb": (3, 4)},
}
"""MIG profiles: sevenths of the compute and eighths of the memory of a board."""
PRODUCTS = {
    "A100-40": "NVIDIA-A100-SXM4-40GB",
    "A100-80": "NVIDIA-A100-SXM4-80GB",
    "H100-80": "NVIDIA-H100-80GB-HBM3",
}


@dataclass
class Host:
    """A server with boards of one model, some of them cut or shared."""

    model: str
    boards: list[Counter[str]]
    """Slices of each; '' for the whole board, in so many replicas."""

    @property
    def pieces(self) -> Counter[str]:
        return sum(self.boards, Counter())

    @property
    def idle_w(self) -> float:
        return BOARDS[self.model][1] * len(self.boards)

    @property
    def most_w(self) -> float:
        return BOARDS[self.model][2] * len(self.boards)

    @property
    def sevenths(self) -> float:
        """Sevenths of boards that are in some part."""
        own = PROFILES[self.model]
        return sum(own[name][0] * n if name else 7 for one in self.boards for name, n in one.items())

    @property
    def server_w(self) -> float:
        return max(SERVER_W, 1500 / 8 * len(self.boards)) if self.model == "H100-80" else SERVER_W


def hosts(seed: int, most_replicas: int) -> list[Host]:
    """One to three servers whose boards are whole, shared, or cut into slices until no more fit."""
    pick, found = random.Random(seed), []
    for _ in range(pick.randint(1, 3)):
        model, replicas = pick.choice(list(BOARDS)), pick.choice([1, pick.randint(1, most_replicas)])
        boards = []
        for _ in range(pick.randint(1, 8)):
            cut, compute, memory = Counter[str](), 7, 8
            while pick.random() < 0.9:
                name, (sevenths, eighths) = pick.choice(list(PROFILES[model].items()))
                if sevenths > compute or eighths > memory:
                    break
                cut, compute, memory = cut + Counter([name]), compute - sevenths, memory - eighths
            boards.append(cut or Counter({"": replicas}))
        found.append(Host(model, boards))
    return found


def replicas_of(host: Host) -> int:
    return max((one[""] for one in host.boards), default=0)


def require_within(found: Recorded, layout: list[Host], told: list[str]) -> None:
    """Check a cluster, whose nodes are summed by host, against its boards."""
    assert found.cluster is not None
    draw = defaultdict[str, list[float]](lambda: [0.0, 0.0])
    for node in found.cluster.nodes:
        kind, sums = found.cluster.gpu_types[node.gpu_type], draw[node.name.partition("/")[0]]
        sums[0] += node.base_power_w + node.gpus * kind.idle_power_w
        sums[1] += node.base_power_w + node.gpus * (kind.max_power_w or 0)
    assert len(draw) == len(layout)
    for number, host in enumerate(layout):
        idle_w, most_w = draw[f"n{number}"]
        share = host.sevenths / 7 / len(host.boards)
        # Nobody is told how many boards there are: the fewest that can be count.
        assert SERVER_W + share * host.idle_w - 1e-6 <= idle_w <= host.server_w + host.idle_w + 1e-6
        assert SERVER_W + share * host.most_w - 1e-6 <= most_w <= host.server_w + host.most_w + 1e-6
    pieces = sum(sum(host.pieces.values()) for host in layout)
    assert sum(node.gpus for node in found.cluster.nodes) == pieces
    nodes = f"{len(layout)} node{'s' * (len(layout) > 1)} with "
    assert any(line.startswith(nodes) for line in told)


def by_host(node_w: dict[str, float]) -> dict[str, float]:
    """Watts of machines, whose kinds of GPUs are nodes of their own."""
    found = defaultdict[str, float](float)
    for name, watts in node_w.items():
        found[name.partition("/")[0]] += watts
    return found


def slurm_nodes(layout: list[Host]) -> str:
    rows = []
    for number, host in enumerate(layout):
        names = [(BOARDS[host.model][0] + (f"_{name}" if name else ""), n) for name, n in host.pieces.items()]
        gres = ",".join(f"gpu:{'nvidia_' * (n % 2)}{name}:{n}" for name, n in names)
        rows.append(f"NodeName=n{number} Gres={gres} State=IDLE Partitions=gpu")
    return "\n".join(rows)


JOB = "JobID|State|Submit|Start|Elapsed|AllocTRES|NodeList\n1|COMPLETED|{0}|{0}|01:00:00|gres/gpu=1|n0\n"


def test_slurm() -> None:
    for seed in range(LAYOUTS):
        layout = hosts(seed, 1)
        text = slurm_nodes(layout)
        found = slurm_recorded(Said([JOB.format("2026-11-02T08:00:00")], [text]), UTC)
        require_within(found, layout, found.lines())
        nodes = nodes_in(text, apart=True)
        load = slurm_load(SlurmSite(0.0, nodes, {}, [], {}, {}, {}), SiteOptions(), Ours())
        idle_w = by_host(load.node_w)
        pick = random.Random(seed)
        for name, node in nodes.items():
            used = set(pick.sample(range(node.gpus), pick.randint(0, node.gpus)))
            load.claim({name: used})
            load.others[name] = used
        most_w = by_host(load.node_w)
        for number, host in enumerate(layout):
            name = f"n{number}"
            assert idle_w[name] <= host.server_w + host.idle_w + 1e-6
            assert idle_w[name] - 1e-6 <= most_w[name] <= host.server_w + host.most_w + 1e-6
            if all(len(load.others[one.name]) == one.gpus for one in nodes.values() if one.host == name):
                assert most_w[name] >= SERVER_W + host.most_w * host.sevenths / 7 / len(host.boards) - 1e-6


def kubernetes_node(number: int, host: Host, strategy: str) -> dict[str, Any]:
    """A node whose plugin and labels say what its boards are cut and shared into."""
    labels, offered = {"nvidia.com/gpu.product": PRODUCTS[host.model]}, dict[str, str]()
    for name, n in host.pieces.items():
        resource = f"nvidia.com/mig-{name.replace('+', '.')}" if name else "nvidia.com/gpu"
        if name and strategy == "single":
            resource = "nvidia.com/gpu"
            labels["nvidia.com/gpu.product"] += f"-MIG-{name}"
        replicas = replicas_of(host)
        if not name and replicas > 1:
            labels |= {"nvidia.com/gpu.replicas": str(replicas), "nvidia.com/gpu.sharing-strategy": "mps"}
            if n // replicas % 2:
                resource += ".shared"
            else:
                labels["nvidia.com/gpu.product"] += "-SHARED"
        offered[resource] = str(n)
    status = {
        "capacity": offered,
        "allocatable": offered,
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    return {"kind": "Node", "metadata": {"name": f"n{number}", "labels": labels}, "status": status}


def kubernetes_pods(node: dict[str, Any], pick: random.Random) -> list[dict[str, Any]]:
    """Pods of others that take some of all that a node offers, or all of it."""
    pods, name = [], node["metadata"]["name"]
    for resource, offered in node["status"]["capacity"].items():
        limits = {resource: str(pick.choice([int(offered), pick.randint(1, int(offered))]))}
        spec = {"nodeName": name, "containers": [{"name": "c", "resources": {"limits": limits}}]}
        status = {"phase": "Running", "startTime": "2026-11-02T08:00:00Z"}
        metadata = {"name": f"p{len(pods)}-{name}", "uid": f"{name}/{resource}"}
        pods.append({"kind": "Pod", "metadata": metadata, "spec": spec, "status": status})
    return pods


def test_kubernetes() -> None:
    for seed in range(LAYOUTS):
        layout, pick = hosts(seed, 48), random.Random(seed)
        single = [set(host.pieces) for host in layout]
        nodes = [
            kubernetes_node(i, host, "single" if len(single[i]) == 1 else "mixed")
            for i, host in enumerate(layout)
        ]
        pods = [pod for node in nodes for pod in kubernetes_pods(node, pick)]
        found = kubernetes_recorded(items_of({"items": [*nodes, *pods]}), 1.8e9)
        require_within(found, layout, found.lines())
        assert all(job.gpu_type for job in found.jobs)
        site = read_kubernetes({"time": 1.8e9, "nodes": nodes, "pods": pods})
        empty = read_kubernetes({"time": 1.8e9, "nodes": nodes, "pods": []})
        idle_w, most_w = (
            by_host(kubernetes_load(one, KubernetesOptions(), lambda _: False).node_w)
            for one in (empty, site)
        )
        for number, host in enumerate(layout):
            name = f"n{number}"
            assert idle_w[name] <= host.server_w + host.idle_w + 1e-6
            assert idle_w[name] - 1e-6 <= most_w[name] <= host.server_w + host.most_w + 1e-6


GKE, AMD = "cloud.google.com/gke", {"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"}


def shared(
    node: str, resource: str, count: int, gke: dict[str, str] | None = None, **labels: str
) -> dict[str, Any]:
    """A node that offers GPUs as a resource."""
    offered = {resource: str(count)}
    status = {
        "capacity": offered,
        "allocatable": offered,
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    of_gpus = {f"nvidia.com/{name.replace('__', '.')}": value for name, value in labels.items()}
    of_gpus |= gke or {}
    return {"kind": "Node", "metadata": {"name": node, "labels": of_gpus}, "status": status}


@pytest.mark.parametrize(
    ("node", "kind", "told"),
    [
        (
            shared("n", "nvidia.com/gpu", 6, gpu__product="Tesla-T4-SHARED", gpu__replicas="3"),
            "Tesla-T4-SHARED-3",
            "1 node with 6 slices of 2 boards",
        ),
        (
            shared("n", "nvidia.com/gpu", 6, gpu__product="Tesla-T4-SHARED", gpu__count="3"),
            "Tesla-T4-SHARED-2",
            "1 node with 6 slices of 3 boards",
        ),
        (
            shared("n", "nvidia.com/gpu", 32, gpu__product="A100", gpu__count="8", gpu__replicas="1"),
            "A100-SHARED-4",
            "1 node with 32 slices of 8 boards",
        ),
        (
            shared("n", "nvidia.com/mig-2g.10gb", 3, gpu__product="NVIDIA-A100-SXM4-40GB"),
            "NVIDIA-A100-SXM4-40GB-mig-2g.10gb",
            "1 node with 3 slices of 1 board",
        ),
        (
            shared(
                *("n", "nvidia.com/gpu", 8),
                {f"{GKE}-accelerator": "nvidia-tesla-t4", f"{GKE}-max-shared-clients-per-gpu": "4"},
            ),
            "nvidia-tesla-t4-SHARED-4",
            "1 node with 8 slices of 2 boards",
        ),
        (
            shared(
                *("n", "nvidia.com/gpu", 7),
                {f"{GKE}-accelerator": "nvidia-tesla-a100", f"{GKE}-gpu-partition-size": "1g.5gb"},
            ),
            "nvidia-tesla-a100-mig-1g.5gb",
            "1 node with 7 slices of 1 board",
        ),
        (
            shared("n", "amd.com/gpu", 64, AMD | {"amd.com/compute-memory-partition": "cpx_nps4"}),
            "AMD_Instinct_MI300X_OAM-cpx_nps4",
            "1 node with 64 slices of 8 boards",
        ),
        (
            shared("n", "amd.com/qpx_nps1", 5, AMD),
            "AMD_Instinct_MI300X_OAM-qpx_nps1",
            "1 node with 5 slices of 2 boards",
        ),
        (
            shared("n", "nvidia.com/gpu", 4, gpu__product="GRID-T4-4C"),
            "GRID-T4-4C",
            "1 node with 4 slices of 1 board",
        ),
    ],
)
def test_pods_on_parts_are_jobs_on_slices(node: dict[str, Any], kind: str, told: str) -> None:
    found = kubernetes_recorded(items_of({"items": [node, *kubernetes_pods(node, random.Random(1))]}), 1.8e9)
    assert [job.gpu_type for job in found.jobs] == [kind]
    assert told in found.lines()
    assert any("in watts and speed, by its" in one.what for one in found.entries)


@pytest.mark.parametrize(
    ("gpus", "product", "treatment"),
    [
        (8, "A100", []),
        (6, "A100", []),
        (32, "A100", ["assumed"]),
        (20, "A100", ["doubtful"]),
        (56, "A100-MIG-1g.5gb", []),
        (16, "A100-SHARED", []),
    ],
)
def test_more_gpus_than_their_label_counts_are_told(gpus: int, product: str, treatment: list[str]) -> None:
    node = shared("n", "nvidia.com/gpu", gpus, gpu__product=product, gpu__count="8")
    found = kubernetes_recorded(items_of({"items": [node, *kubernetes_pods(node, random.Random(1))]}), 1.8e9)
    assert [one.treatment for one in found.entries if "nvidia.com/gpu.count" in one.what] == treatment


def test_a_job_on_a_slice_that_no_node_has_is_left_out_and_told() -> None:
    lines = JOB.format("2026-11-02T08:00:00") + JOB.format("2026-11-02T09:00:00").partition("\n")[2].replace(
        "gres/gpu=1", "gres/gpu:a100_1g.5gb=1,gres/gpu=1"
    )
    alone = slurm_recorded(Said([lines]), UTC)
    assert [job.gpu_type for job in alone.jobs] == [None, "A100-1g.5gb"]
    found = slurm_recorded(Said([lines], ["NodeName=n0 Gres=gpu:a100:8 State=IDLE"]), UTC)
    assert [job.gpu_type for job in found.jobs] == ["a100"]
    assert found.left_out == {"on slices 'a100_1g.5gb', which no node has": 1}


def test_gpus_of_which_shards_are_used_go_to_nobody() -> None:
    rows = {
        "nodes": [{"name": "n0", "state": ["IDLE"], "gres": "gpu:A100:2,shard:A100:8", "partitions": ["gpu"]}]
    }
    rows["nodes"][0]["gres_used"] = "gpu:A100:0(IDX:N/A),shard:A100:3(IDX:0)"
    node = nodes_in(json.dumps(rows))["n0"]
    assert (node.gpu_type, node.gpus, node.used) == ("A100", 2, frozenset([0]))
