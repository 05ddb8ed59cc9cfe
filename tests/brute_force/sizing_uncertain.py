"""Rounds with uncertain watts and rates, small enough to try every decision, by the definitions alone.

The worst case of a budget of uncertainty is a maximum over all sets of jobs that may deviate; that of normal
deviations is a quantile. Nothing here comes from the package.
"""

from __future__ import annotations

import math
from itertools import combinations, product
from random import Random
from statistics import NormalDist
from typing import Any

GPUS, IDLE_W = {"A": 6, "B": 4}, {"A": 40.0, "B": 25.0}
OBJECTIVES = ("total-completion", "progress", "proportional", "goodput")
Row = tuple[str, int, float, float]


def random_round(random: Random, *, rates: bool = True) -> dict[str, Any]:
    """Document of a round of two to four jobs on two pools that are counted, with caps that may bind."""
    jobs = []
    for j in range(random.randint(2, 4)):
        rows: dict[tuple[str, int], tuple[float, float]] = {}
        for _ in range(random.randint(1, 4)):
            pool, gpus = random.choice("AB"), random.randint(1, 4)
            speed = gpus**0.7 * random.uniform(0.8, 1.2)
            rows[pool, gpus] = speed, gpus * random.uniform(30.0, 300.0)
        job: dict[str, Any] = {
            "name": f"j{j}",
            "weight": random.choice((1.0, 2.0, 0.5)),
            "remaining_work": random.choice((100.0, 300.0, 1000.0)),
            "options": {
                "pool": [pool for pool, _ in rows],
                "gpus": [gpus for _, gpus in rows],
                "rate": [rate for rate, _ in rows.values()],
                "power_w": [watts for _, watts in rows.values()],
            },
        }
        for name in ("power_deviation", "rate_deviation") if rates else ("power_deviation",):
            if random.random() < 0.3:
                job[name] = random.choice((0.0, 0.05, 0.4))
        if random.random() < 0.15:
            job["can_wait"] = False
        if random.random() < 0.25:
            pool, gpus = random.choice(list(rows))
            job["current"], job["restart_s"] = {"pool": pool, "gpus": gpus}, random.choice((10.0, 100.0))
        jobs.append(job)
    standing_w = sum(GPUS[pool] * IDLE_W[pool] for pool in GPUS)
    uncertainty = {"power_deviation": random.choice((0.1, 0.3)), "rate_deviation": random.choice((0.0, 0.2))}
    if not rates:
        uncertainty["rate_deviation"] = 0.0
    if random.random() < 0.6:
        uncertainty["gamma"] = random.choice((0.0, 0.5, 1.0, 1.7, 2.0, 3.0, 10.0))
    else:
        uncertainty["confidence"] = random.choice((0.5, 0.8, 0.95, 0.999))
    cluster: dict[str, Any] = {
        "gpu_types": {pool: {"idle_power_w": watts} for pool, watts in IDLE_W.items()},
        "nodes": [{"name": pool.lower(), "gpu_type": pool, "gpus": gpus} for pool, gpus in GPUS.items()],
        "capacity": "count",
    }
    if random.random() < 0.4:
        cap_w = GPUS["A"] * IDLE_W["A"] + random.uniform(50.0, 700.0)
        cluster["power_domains"] = [{"name": "rack", "power_cap_w": cap_w, "members": ["a"]}]
    return {
        "name": "uncertain",
        "objective": random.choice(OBJECTIVES),
        "round_s": random.choice((60.0, 300.0)),
        "budgets": {"power_w": standing_w + random.uniform(50.0, 1500.0)} if random.random() < 0.85 else {},
        "cluster": cluster,
        "jobs": jobs,
        "uncertainty": uncertainty,
    }


def worst_case(uncertainty: dict[str, float], deviations: list[float]) -> float:
    """What deviations add: the largest sum of a set of jobs that may deviate together, or the quantile."""
    if (confidence := uncertainty.get("confidence")) is not None:
        return NormalDist().inv_cdf(confidence) * math.sqrt(sum(d * d for d in deviations))
    whole, part = int(uncertainty["gamma"]), uncertainty["gamma"] % 1.0
    best = 0.0
    for size in range(min(whole, len(deviations)) + 1):
        for chosen in combinations(range(len(deviations)), size):
            rest = [part * d for j, d in enumerate(deviations) if j not in chosen]
            best = max(best, sum(deviations[j] for j in chosen) + max(rest, default=0.0))
    return best


def least_cost(document: dict[str, Any]) -> float | None:
    """Least cost of all decisions, objectives to be maximised being negative; None where there is none."""
    uncertainty, jobs, cluster = document["uncertainty"], document["jobs"], document["cluster"]
    standing = {pool: GPUS[pool] * IDLE_W[pool] for pool in GPUS}
    caps = [(domain["power_cap_w"], "A") for domain in cluster.get("power_domains", [])]
    if (cap_w := document["budgets"].get("power_w")) is not None:
        caps.append((cap_w, "AB"))
    best = None
    for decision in product(*map(_choices, jobs)):
        running = [(job, row) for job, row in zip(jobs, decision, strict=True) if row is not None]
        if any(sum(gpus for _, (at, gpus, _, _) in running if at == pool) > GPUS[pool] for pool in GPUS):
            continue
        if any(_draw_w(uncertainty, running, inside, standing) > cap * (1 + 1e-9) for cap, inside in caps):
            continue
        costs = [_cost(document, job, row, 0.0) for job, row in zip(jobs, decision, strict=True)]
        slow = [
            _cost(document, job, row, job.get("rate_deviation", uncertainty["rate_deviation"]))
            for job, row in zip(jobs, decision, strict=True)
        ]
        cost = sum(costs) + worst_case(uncertainty, [b - a for a, b in zip(costs, slow, strict=True)])
        best = cost if best is None else min(best, cost)
    return best


def _choices(job: dict[str, Any]) -> list[Row | None]:
    rows = list(zip(*(job["options"][name] for name in ("pool", "gpus", "rate", "power_w")), strict=True))
    return [*rows, *([None] if job.get("can_wait", True) else [])]


def _draw_w(
    uncertainty: dict[str, float],
    running: list[tuple[dict[str, Any], Row]],
    inside: str,
    standing: dict[str, float],
) -> float:
    """Watts in the worst case of jobs and idle GPUs in some pools."""
    here = [(job, row) for job, row in running if row[0] in inside]
    drawn = sum(standing[pool] for pool in inside) + sum(w - n * IDLE_W[pool] for _, (pool, n, _, w) in here)
    deviations = [job.get("power_deviation", uncertainty["power_deviation"]) * row[3] for job, row in here]
    return drawn + worst_case(uncertainty, deviations)


def _cost(document: dict[str, Any], job: dict[str, Any], row: Row | None, slower: float) -> float:
    """Cost of a job's choice at rates that are lower by a share; a job that waits is slower later."""
    table, work, weight = job["options"], job["remaining_work"], job["weight"]
    current, restart_s = job.get("current"), job.get("restart_s", 0.0)
    going = [
        work / rate
        for pool, gpus, rate in zip(table["pool"], table["gpus"], table["rate"], strict=True)
        if current == {"pool": pool, "gpus": gpus}
    ]
    best_s = min([work / max(table["rate"]) + restart_s, *going])
    lost_s = restart_s
    if row is None:
        seconds = document["round_s"] + work / max(table["rate"]) / (1.0 - slower) + restart_s
    else:
        lost_s = 0.0 if current == {"pool": row[0], "gpus": row[1]} else restart_s
        seconds = work / (row[2] * (1.0 - slower)) + lost_s
    match document["objective"]:
        case "total-completion":
            return weight * seconds
        case "progress":
            return 0.0 if row is None else -weight * 3600.0 / seconds
        case "proportional":
            return weight * math.log(seconds / best_s)
        case _:
            least = min(table["gpus"])
            reference = max(r for r, n in zip(table["rate"], table["gpus"], strict=True) if n == least)
            useful = max(0.0, 1.0 - lost_s / document["round_s"])
            return 0.0 if row is None else -weight * row[2] * (1.0 - slower) / reference * useful
