"""Whatever users write into pods, rounds go on, and nobody else starts less or is stopped for it.

``HOSTILE_CASES=2000 HOSTILE_SEED=7`` tries more of them.
"""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.kubernetes.server import GPU, PREFIX
from tests.adapters.kubernetes.test_room import Cluster
from tests.strategies.effort import examples
from wattsched.adapters.allowed import MOST_CHARACTERS
from wattsched.adapters.kubernetes.reading import read

CASES, SEED = int(os.environ.get("HOSTILE_CASES", examples(60))), int(os.environ.get("HOSTILE_SEED", "0"))
AMOUNTS = [
    *("0", "1", "-1", "1e308", "9" * 25, "1E", "5u", "7n", "x", "", "2000000", "1e9Gi"),
    *(None, True, 3.5, []),
]
TEXTS = [
    *("", "null", "1e6", "-1", '{"a":', "[" * 50_000, "\x1b[31m", "\u202e", "NaN", '"x"', "true", "{}"),
    "9" * 400,
]
FIELDS = ["weight", "options", "model", "restart_s", "preemptible", "remaining_work", "pools", "batch_sizes"]
FIELDS += ["frequencies_mhz", "power_limits_w", "gang-size", "launch", "min_gpus", "unheard-of", "x" * 300]


def expression(rng: random.Random) -> Any:
    operator = rng.choice(["In", "NotIn", "Exists", "Gt", "Lt", "Odd", None])
    values = rng.choice([["n0"], ["9" * 5_000], [], None, 3, ["nowhere"]])
    key = rng.choice(["kubernetes.io/hostname", "metadata.name", "a", None])
    return {"key": key, "operator": operator, "values": values}


def affinity(rng: random.Random) -> Any:
    terms = [
        {rng.choice(["matchExpressions", "matchFields"]): [expression(rng)] * rng.choice([1, 1, 300])}
        for _ in range(rng.choice([0, 1, 2]))
    ]
    required = {"nodeSelectorTerms": rng.choice([terms, None, 3, "x"])}
    return rng.choice(
        [{"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}, 3, [], {}]
    )


def hostile(cluster: Cluster, rng: random.Random, name: str) -> None:
    """Make a pod that means harm, or was written by a machine that is out of order."""
    pod = cluster.submit(name, rng.choice([0, 1, 8, 9, 1_000, 2_000_000]))
    about, spec = pod["metadata"], pod["spec"]
    for _ in range(rng.randint(1, 4)):
        match rng.randrange(12):
            case 0:
                limits = {rng.choice([GPU, "cpu", "memory", "x/y"]): rng.choice(AMOUNTS)}
                spec["containers"] = [{"resources": {"limits": {GPU: "1"} | limits}}]
            case 1:
                field = rng.choice(FIELDS).replace("_", "-")
                about["annotations"][PREFIX + field] = rng.choice([*TEXTS, "y" * (MOST_CHARACTERS + 1)])
            case 2:
                about["labels"] |= {PREFIX + "gang": rng.choice(["g", "", "\n"])}
                about["annotations"][PREFIX + "gang-size"] = rng.choice(["2", "999999", "-1", "x"])
            case 3:
                spec["affinity"] = affinity(rng)
            case 4:
                spec["nodeSelector"] = {"kubernetes.io/hostname": rng.choice(["n0", "nowhere"])}
            case 5:
                spec["nodeName"] = "n2"
            case 6:
                spec["containers"] = rng.choice(
                    [[], None, 3, [{"resources": {"limits": {GPU: "1"}}}] * 500, [{}]]
                )
            case 7:
                ports = [{"hostPort": port} for port in range(rng.choice([1, 2_000]))]
                spec["containers"] = [{"resources": {}, "ports": ports}]
            case 8:
                launch = {"uid": name, "gpus": 1_000, "power_w": 0, "gang": {"n0": 10**6}, "node": "n0"}
                about["annotations"][PREFIX + "launch"] = json.dumps(launch)
            case 9:
                pod[rng.choice(["metadata", "spec", "status"])] = rng.choice([None, 3, "x", [], {}])
                return
            case 10:
                about[rng.choice(["creationTimestamp", "deletionTimestamp"])] = rng.choice(
                    ["x", "0001-01-01", 9]
                )
            case _:
                spec["tolerations"] = [{"operator": "Exists"}] * rng.choice([1, 500])


@pytest.mark.parametrize("number", range(CASES))
def test_hostile_pods_take_nothing_from_others(number: int, tmp_path: Path) -> None:
    rng = random.Random(f"{SEED}-{number}")
    cluster = Cluster(tmp_path, nodes=3)
    try:
        cluster.submit("runs", 4)
        ours = {name: {"weight": 1e6} for name in ("t/runs", "t/small", "t/gang:wide")}
        rounds = cluster.rounds(options={"jobs": ours})
        assert set(rounds.round().started) == {"t/runs"}
        cluster.gang("wide", 2, gpus=8)
        cluster.submit("small", 1)
        for i in range(rng.choice([1, 1, 5])):
            hostile(cluster, rng, f"evil-{i}")
        begun = time.monotonic()
        report = rounds.round()
        assert time.monotonic() - begun < 30
        assert not report.stopped
        wide = not any(pod["spec"] and pod["spec"].get("nodeName") == "n2" for pod in evil(cluster))
        assert {"t/small", *(["t/gang:wide"] if wide else [])} <= set(report.started)
        most_w = 3 * 200 + 24 * 400
        assert report.power_w <= most_w
    finally:
        cluster.journal.close()


def evil(cluster: Cluster) -> list[dict[str, Any]]:
    return [
        pod for name, pod in cluster.pods.items() if name.startswith("evil") and isinstance(pod["spec"], dict)
    ]


def test_a_pod_that_names_its_node_has_no_more_gpus_than_are_left(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    try:
        cluster.submit("ours", 4, preemptible="true")
        rounds = cluster.rounds()
        drawn_w = rounds.round().power_w
        node = cluster.pods["ours"]["spec"]["nodeName"]
        cluster.submit("thousand", 1_000, spec={"nodeName": node, "schedulerName": "default-scheduler"})
        cluster.budget.power_w = drawn_w
        report = rounds.round()
        assert (report.power_w, report.stopped) == (drawn_w, {})
        assert f"t/thousand asks for 1,000 GPUs of {node}: counts as 0" in report.notes
        cluster.submit("rest", 8, spec={"nodeName": node, "schedulerName": "default-scheduler"})
        cluster.budget.power_w = 1e6
        assert rounds.round().power_w == drawn_w + 4 * 350
    finally:
        cluster.journal.close()


def test_a_pod_that_cannot_be_read_has_all_that_is_left_of_its_node(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    try:
        pod = cluster.submit("odd", 1, spec={"nodeName": "n1"})
        pod["spec"]["containers"][0]["resources"]["limits"][GPU] = "many"
        (found,) = read(cluster.look()).pods.values()
        assert not found.legible
        assert "must be a quantity" in found.odd
        cluster.submit("large", 8)
        assert {pod["spec"].get("nodeName") for pod in cluster.pods.values()} == {"n1", None}
        report = cluster.rounds().round()
        assert cluster.pods["large"]["spec"]["nodeName"] == "n0"
        assert report.power_w == 2 * 200 + 16 * 400
    finally:
        cluster.journal.close()
