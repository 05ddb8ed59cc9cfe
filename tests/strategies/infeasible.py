"""Random small instances of which most have no decision, for brute force."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.strategies.shifting import capped
from wattsched.instances.sharing.instance import SharingInstance
from wattsched.instances.sharing.instance import faults_of as sharing_faults
from wattsched.instances.shifting.instance import ShiftingInstance
from wattsched.instances.sizing.instance import Instance
from wattsched.instances.sizing.validity import faults_of as sizing_faults


def sizing_round(rng: Random) -> Instance | None:
    """One to four jobs on one or two pools, many of which must run; None for a round with faults."""
    nodes = [
        {
            "name": f"n{n}",
            "gpu_type": rng.choice("AAB"),
            "gpus": rng.choice((2, 4, 4, 3)),
            "base_power_w": rng.choice((0.0, 50.0)),
        }
        for n in range(rng.randint(1, 3))
    ]
    jobs, tenants, taken = [], {}, set()
    for name in ("x", "y")[: rng.choice((0, 0, 1, 2))]:
        tenants[name] = {}
        if rng.random() < 0.6:
            tenants[name] = {"gpus": rng.randint(0, 4)}
            if rng.random() < 0.5:
                tenants[name] |= {"cohort": "c", "borrow_gpus": rng.choice((None, 0, 1))}
        for quota, most in (("power_w", 600), ("energy_j", 120_000)):
            if rng.random() < 0.3:
                tenants[name][quota] = float(rng.randint(most // 10, most))
    scope = rng.choice(("round", "round", "completion"))
    # Until completion the joules of jobs that wait count, unless they have room nowhere.
    sizes = (1, 2) if scope == "completion" else (1, 2, 3, 4)
    for j in range(rng.randint(1, 4)):
        rows = rng.randint(1, 3)
        job: dict[str, Any] = {
            "name": f"job{j}",
            "options": {
                "gpus": [rng.choice(sizes) for _ in range(rows)],
                "pool": [rng.choice(nodes)["gpu_type"] for _ in range(rows)],
                "power_w": [float(rng.randint(50, 400)) for _ in range(rows)],
                "completion_s": [float(rng.randint(10, 3000)) for _ in range(rows)],
                "frequency_mhz": [900 + 100 * row for row in range(rows)],
            },
            "can_wait": rng.random() < 0.4,
        }
        if tenants and rng.random() < 0.6:
            job["tenant"] = rng.choice(list(tenants))
        if rng.random() < 0.25:
            job["deadline_s"] = float(rng.randint(100, 3000))
        node, gpus = rng.choice(nodes), job["options"]["gpus"][0]
        held = [(node["name"], gpu) for gpu in range(1 << (gpus - 1).bit_length())]
        same = node["gpu_type"] == job["options"]["pool"][0] and len(held) <= node["gpus"]
        if rng.random() < 0.3 and same and taken.isdisjoint(held):
            taken.update(held)
            job["preemptible"] = rng.random() < 0.4
            job["current"] = {"gpus": gpus, "pool": "", "nodes": {node["name"]: list(range(gpus))}}
        jobs.append(job)
    budgets: dict[str, Any] = {"scope": scope}
    for name, most in (("power_w", 1500), ("energy_j", 400_000), ("carbon_g", 50)):
        if rng.random() < 0.4:
            budgets[name] = float(rng.randint(most // 10, most))
    if rng.random() < 0.2:
        budgets["least_goodput"] = rng.randint(1, 8) * 0.5
    domains = []
    if rng.random() < 0.4:
        members = rng.sample([node["name"] for node in nodes], rng.randint(1, len(nodes)))
        domains = [{"name": "pdu", "members": members, "power_cap_w": float(rng.randint(150, 1200))}]
    cluster = {
        "gpu_types": {"A": {"idle_power_w": 30.0}, "B": {"idle_power_w": 10.0}},
        "nodes": nodes,
        "power_domains": domains,
        "capacity": rng.choice(("blocks", "nodes", "count")),
    }
    from wattsched.topology.cluster import Cluster
    from wattsched.topology.pools import pools_of

    homes = {node: pool.name for pool in pools_of(Cluster.model_validate(cluster)) for node in pool.nodes}
    for job in jobs:
        if "current" in job:
            job["current"]["pool"] = homes[next(iter(job["current"]["nodes"]))]
    document = {
        "problem": "sizing",
        "objective": rng.choice(
            ("total-completion", "work-value", "energy", "max-min", "makespan", "goodput")
        ),
        "cluster": cluster,
        "jobs": jobs,
        "tenants": tenants,
        "budgets": budgets,
        "carbon_g_per_kwh": 400.0,
    }
    try:
        instance = Instance.model_validate(document)
    except ValueError:
        return None
    return None if sizing_faults(instance) else instance


def shifting_horizon(rng: Random) -> ShiftingInstance | None:
    """As `capped`, with jobs that must finish or make progress, under caps and budgets that are low."""
    document = capped(rng.randrange(10**9)).model_dump(mode="json")
    for job in document["jobs"]:
        job["must_finish"] = rng.random() < 0.4
        job["least_progress"] = rng.choice((0.0, 0.3, 0.8))
        if rng.random() < 0.3:
            last_s = document["slots"] * (
                document["slot_s"] if isinstance(document["slot_s"], float) else 1.0
            )
            job["deadline_s"] = job["arrival_s"] + last_s * rng.uniform(0.2, 1.5)
    factor = rng.choice((0.3, 0.6, 1.0))
    for name, value in document["budgets"].items():
        document["budgets"][name] = None if value is None else value * factor
    for name in ("power_w",):
        if rng.random() < 0.4:
            document[name] = None
    return ShiftingInstance.model_validate(document)


def sharing_round(rng: Random) -> SharingInstance | None:
    """One to five jobs of one or two classes on few units, most of which must run; None for faults."""
    types = [f"T{t}" for t in range(rng.randint(1, 2))]
    units = [
        {
            "name": name,
            "count": rng.randint(1, 2),
            "gpus": rng.choice((1, 8)),
            "idle_power_w": float(rng.randint(20, 60)),
            "full_power_w": float(rng.randint(100, 300)),
            "sleep_power_w": float(rng.choice((0, 10))),
        }
        for name in types
    ]
    pools = []
    if rng.random() < 0.4:
        pools = [{"name": "pool", "gpus": rng.randint(1, 10)}]
        units[0] |= {"pool": "pool", "sleep_power_w": 0.0}
    classes = [
        {
            "name": f"c{c}",
            "alone": {
                name: {
                    "epoch_s": float(rng.randint(10, 90)),
                    "utilisation_pct": float(rng.randint(20, 70)),
                    "memory_pct": float(rng.randint(5, 50)),
                }
                for name in rng.sample(types, rng.randint(1, len(types)))
            },
        }
        for c in range(rng.randint(1, 2))
    ]
    jobs = [
        {
            "name": f"j{j}",
            "job_class": rng.choice(classes)["name"],
            "remaining_epochs": rng.choice((10.0, 25.0)),
            "deadline_s": rng.choice((None, None, float(rng.randint(150, 2500)))),
            "exclusive": rng.random() < 0.3,
            "can_wait": rng.random() < 0.3,
        }
        for j in range(rng.randint(1, 5))
    ]
    budgets = {}
    for name, low, high in (("power_w", 60, 500), ("energy_j", 20_000, 500_000), ("carbon_g", 2, 50)):
        if rng.random() < 0.4:
            budgets[name] = float(rng.randint(low, high))
    document = {
        "problem": "sharing",
        "objective": rng.choice(("eaco", "energy", "power", "throughput")),
        "carbon_g_per_kwh": 400.0,
        "limits": {"jobs_per_set": rng.randint(1, 3), "utilisation_pct": rng.choice((100.0, 90.0))},
        "pools": pools,
        "unit_types": units,
        "classes": classes,
        "budgets": budgets,
        "jobs": jobs,
    }
    instance = SharingInstance.model_validate(document)
    return None if sharing_faults(instance) else instance


MAKERS = {"sizing": sizing_round, "shifting": shifting_horizon, "sharing": sharing_round}
