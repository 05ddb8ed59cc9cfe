"""Kinds of hostile comments, annotations, requests and names, from a seed."""

from __future__ import annotations

import json
from random import Random
from typing import Any

FIELDS = [
    *("options", "model", "remaining_work", "weight", "restart_s", "preemptible", "min_gpus", "max_gpus"),
    *("pools", "gpu_counts", "batch_sizes", "frequencies_mhz", "power_limits_w", "tenant", "deadline_s"),
    *("can_wait", "current", "name", "change_cost", "wieght"),
]
REQUESTS = [
    *("name", "features", "excluded_nodes", "dependency", "memory_per_node", "cpus", "time_limit", "qos")
]
ATOMS: list[Any] = [
    *(0, -1, 1, 3, 1e6, 1e-9, 1e308, -1e308, 10**30, float("inf"), float("nan"), True, False, None),
    *("", "A100", "H100", "bert", "gpt2", "resnet50", "small", "none", "x" * 300, "\x1b[2J", "\ud800", "NaN"),
    *("g1", "0", "1e400", "[", "{", "../../etc/passwd", "A100/8/gpu", "A100/8", "*"),
    *([], {}, [[]], [1] * 500, {"gpus": []}, {"wattsched": {}}),
]


def value(rng: Random, depth: int = 0) -> Any:
    """Anything that JSON can say, and a little more."""
    kind = rng.randrange(8)
    if depth > 2 or kind < 4:
        return rng.choice(ATOMS)
    if kind < 6:
        return [value(rng, depth + 1) for _ in range(rng.randrange(5))]
    return {rng.choice([*FIELDS, "gpus", "pool", "rate", ""]): value(rng, depth + 1) for _ in range(3)}


def table(rng: Random) -> Any:
    """Options that may be a table, that are too good to be true, or nearly a table."""
    rows = rng.choice([1, 2, 3, 40])
    found: dict[str, Any] = {
        "gpus": [rng.choice([1, 2, 4, 8, 16, 10**6]) for _ in range(rows)],
        "pool": [rng.choice(["A100", "A100/8", "H100", "A100/8/gpu"]) for _ in range(rows)],
        "power_w": [rng.choice([0, 1e-9, 1.0, 500.0, 1e12]) for _ in range(rows)],
        "rate": [rng.choice([1e-12, 1.0, 1e12]) for _ in range(rows)],
    }
    if rng.random() < 0.5:
        found["frequency_mhz"] = list(range(1000, 1000 + rows))
    if rng.random() < 0.3:
        found[rng.choice([*found, "batch_size"])] = value(rng)
    return found if rng.random() < 0.8 else [dict(zip(found, row, strict=False)) for row in [found.values()]]


def choices(rng: Random) -> dict[str, Any]:
    """A model with choices whose product is large, or out of range."""
    return {
        "model": rng.choice(["bert", "resnet50", "none"]),
        "gpu_counts": list(range(1, rng.choice([2, 9, 65]))),
        "batch_sizes": list(range(1, rng.choice([2, 65, 400]))),
        "frequencies_mhz": list(range(rng.choice([1, 1005]), rng.choice([1411, 1410, 1020]))),
    }


def said(rng: Random) -> dict[str, Any]:
    """What a job says."""
    kind = rng.randrange(7)
    if kind == 6:
        return rng.choice([{}, {"options": "small"}, {"model": "bert"}, {"preemptible": True}])
    if kind == 0:
        return {"options": table(rng)}
    if kind == 1:
        return choices(rng)
    if kind == 2:
        return {rng.choice(["weight", "restart_s", "remaining_work"]): rng.choice([1e6, 1e-6, 0, 2, 1e12])}
    if kind == 3:
        return {"model": rng.choice(["bert", "small"]), rng.choice(FIELDS): value(rng)}
    return {rng.choice(FIELDS): value(rng) for _ in range(rng.randrange(1, 4))}


def text(rng: Random) -> str:
    """The same as the text of a comment."""
    kind = rng.randrange(10)
    if kind == 0:
        return rng.choice(
            [
                '{"wattsched": ' + "[" * rng.choice([10, 2_000, 100_000]),
                '{"wattsched": {"weight": 1' + "0" * rng.choice([400, 5_000]) + "}}",
                '{"wattsched": {"weight": 1, "weight": 1e6}}',
                '{"wattsched": 3}',
                '{"wattsched": [{}]}',
                '{"wattsched": "' + "x" * 70_000 + '"}',
                "wattsched",
                '{"wattsched": null}',
            ]
        )
    try:
        return json.dumps({"wattsched": said(rng)})
    except ValueError:
        return '{"wattsched": {}}'


def slurm_row(rng: Random) -> dict[str, Any]:
    """Fields of a held job of Slurm."""
    found: dict[str, Any] = {"comment": text(rng)}
    if rng.random() < 0.3:
        gpus = rng.choice(["gres:gpu:1", "gres:gpu:16", "gres:gpu:999999", "gres:gpu:H100:2", "", "gres:gpu"])
        found["tres_per_node"] = gpus
    if rng.random() < 0.3:
        found[rng.choice(REQUESTS)] = rng.choice(
            ["vision-1", "", "\x1b[31m", "a&b|c", "g[1-4]", "g[1-", None, 10**9, 3.5, {"set": True}, ["g1"]]
        )
    return found


def pod_metadata(rng: Random) -> dict[str, Any]:
    """Annotations of a pod, which are texts."""
    found = dict[str, str]()
    for field, content in said(rng).items():
        name = "wattsched.io/" + field.replace("_", "-")
        found[name] = content if isinstance(content, str) else json.dumps(content)
    if rng.random() < 0.2:
        odd = [
            "[" * 20_000,
            "{",
            "1e999",
            "\x00",
            "x" * 77_000,
            '{"uid": "u", "gpus": 2, "power_w": 0}',
            "-1",
        ]
        names = ["launch", "gang-size", "gang", "weight", "options", "model", ""]
        found["wattsched.io/" + rng.choice(names)] = rng.choice(odd)
    return {"annotations": found}


def pod_gpus(rng: Random) -> str:
    """How many GPUs a pod asks for."""
    return rng.choice(["1", "2", "2", "2", "8", "9", "2000000", "1e30", "0", "-1", "500m", "x"])
