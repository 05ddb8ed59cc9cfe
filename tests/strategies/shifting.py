"""Tiny shifting instances for brute force."""

from __future__ import annotations

import random

from wattsched.instances.shifting.instance import ShiftingInstance

OBJECTIVES = ("mean-completion", "carbon", "energy", "money")


def tiny(seed: int) -> ShiftingInstance:
    """One to three jobs, two to four slots, one to three options; a quarter with budgets that bind.

    Every third has slots of several lengths, some of them too short for restarts.
    """
    rng = random.Random(seed)
    n_jobs = rng.choice([1, 2, 2, 3])
    slots = rng.choice([2, 3] if n_jobs > 2 else [2, 3, 4])
    slot_s = rng.choice([1.0, 60.0, 3600.0])
    pools = {
        name: {"gpus": rng.randint(1, 3), "idle_power_w": rng.choice([0.0, 0.0, 15.0])}
        for name in ("a", "b")[: rng.randint(1, 2)]
    }
    free = {name: pool["gpus"] for name, pool in pools.items()}
    jobs = [_job(rng, j, slots, slot_s, pools, free) for j in range(n_jobs)]
    lengths_s = _lengths(seed, slots, slot_s) if seed % 3 == 2 else slot_s
    if seed % 3 == 2:
        for job in jobs:
            job["arrival_s"] = min(job.get("arrival_s", 0.0), sum(lengths_s[: slots - 1]))
    document = {
        "problem": "shifting",
        "slots": slots,
        "slot_s": lengths_s,
        "carbon_g_per_kwh": [rng.choice([0.0, 50.0, 120.0, 400.0]) for _ in range(slots)],
        "price_per_kwh": [rng.choice([0.05, 0.1, 0.4]) for _ in range(slots)],
        "pools": pools,
        "objective": rng.choice(OBJECTIVES),
        "jobs": jobs,
    }
    return ShiftingInstance.model_validate({**document, "budgets": _budgets(rng, n_jobs, slots, slot_s)})


def _lengths(seed: int, slots: int, slot_s: float) -> list[float]:
    """Seconds of slots, the longest of which has time for all restarts; perhaps one more, which is cut."""
    rng = random.Random(seed)
    lengths_s = [slot_s * rng.choice([0.25, 0.5, 0.6, 1.0, 1.5]) for _ in range(slots + rng.randrange(2))]
    lengths_s[rng.randrange(slots)] = slot_s
    return lengths_s


def _job(rng: random.Random, j: int, slots: int, slot_s: float, pools: dict, free: dict) -> dict:
    """A job; what it holds is no longer free."""
    rows = [
        (pool, gpus, mhz)
        for pool in pools
        for gpus in (1, 2)
        if gpus <= pools[pool]["gpus"]
        for mhz in (900, 1400)
    ]
    rows = rng.sample(rows, min(len(rows), rng.randint(1, 3 if slots < 4 else 2)))
    rate = [round(g**0.8 * (mhz / 1400) ** 0.7, 3) for _, g, mhz in rows]
    power_w = [g * 15.0 + round(g * 200.0 * (mhz / 1400) ** 2, 1) for _, g, mhz in rows]
    job = {
        "name": f"job{j}",
        "options": {
            "pool": [p for p, _, _ in rows],
            "gpus": [g for _, g, _ in rows],
            "frequency_mhz": [mhz for _, _, mhz in rows],
            "rate": rate,
            "power_w": power_w,
        },
        "remaining_work": rng.choice([0.3, 0.9, 1.0, 1.7, 2.5, 6.0]) * slot_s,
        "weight": rng.choice([1.0, 1.0, 3.0]),
        "restart_s": rng.choice([0.0, 0.25, 0.5]) * slot_s,
    }
    if rng.random() < 0.3:
        job["arrival_s"] = rng.choice([0.5, 1.0]) * slot_s
    elif rng.random() < 0.3:
        p, g, _ = rng.choice(rows)
        if g <= free[p]:
            free[p] -= g
            job["current"] = {"pool": p, "gpus": g}
    if rng.random() < 0.2:
        job["has_run"] = True
    if rng.random() < 0.1:
        job["deadline_s"] = rng.choice([1.6, 2.3, slots + 1.5]) * slot_s
    if rng.random() < 0.1:
        job["must_finish"] = True
    return job


def _budgets(rng: random.Random, n_jobs: int, slots: int, slot_s: float) -> dict:
    kwh = n_jobs * slots * 200 * slot_s / 3.6e6
    choices = {
        "carbon_g": kwh * 150,
        "energy_j": kwh * 3.6e6,
        "money": kwh * 0.15,
        "average_completion_s": slots * slot_s,
    }
    return {name: typical * rng.uniform(0.5, 2.0) for name, typical in choices.items() if rng.random() < 0.25}


def capped(seed: int) -> ShiftingInstance:
    """As `tiny`, with caps that bind in some slots, a domain among them, and least progress of some jobs."""
    document, rng = tiny(seed).model_dump(mode="json"), random.Random(seed)
    idle_w = sum(pool["gpus"] * pool["idle_power_w"] for pool in document["pools"].values())
    most_w = sum(max(job["options"]["power_w"]) for job in document["jobs"])
    caps = [idle_w + most_w * rng.choice([0.3, 0.6, 1.0]) + 1.0 for _ in range(document["slots"])]
    document["power_w"] = caps if rng.random() < 0.7 else max(caps)
    if len(document["pools"]) == 2:
        pool = document["pools"]["a"]
        limit_w = pool["gpus"] * (pool["idle_power_w"] + rng.choice([60.0, 200.0])) + 1.0
        document["power_domains"] = {"feed": {"pools": ["a"], "power_w": limit_w}}
    for job in document["jobs"]:
        job["least_progress"] = rng.choice([0.0, 0.0, 0.2, 0.5])
    return ShiftingInstance.model_validate(document)
