"""Horizons with scenarios, small enough to try every plan in each of them, by the definitions alone.

A decision has a plan for each scenario; what jobs do in the decided slots is the same in all of them. Each
plan keeps the GPUs, caps, deadlines and budgets of its scenario, and the mean objective counts. Nothing here
comes from the package.
"""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any, NamedTuple

OBJECTIVES = ("mean-completion", "carbon", "energy", "money")
BUDGETS = ("average_completion_s", "carbon_g", "energy_j", "money")
J_PER_KWH = 3.6e6
Choice = tuple[int | None, ...]
"""Row of a job's table by slot, None for a pause."""


class Outcome(NamedTuple):
    """What a job's plan amounts to: rows by slot, end, and joules by slot and after the horizon."""

    choice: Choice
    end_s: float
    joules: list[float]


def random_horizon(random: Random) -> dict[str, Any]:
    """Document of one to three jobs, two to four slots and one to three scenarios; limits may bind."""
    n_jobs = random.choice((1, 2, 2, 3))
    slots = random.choice((2, 3)) if n_jobs > 2 else random.choice((2, 3, 3, 4))
    lengths_s = [3600.0] * slots
    if random.random() < 0.25:
        lengths_s = [random.choice((1200.0, 1800.0, 3600.0)) for _ in range(slots)]
        lengths_s[random.randrange(slots)] = 3600.0
    pools = {
        name: {"gpus": random.randint(1, 3), "idle_power_w": random.choice((0.0, 20.0))}
        for name in ("a", "b")[: random.randint(1, 2)]
    }
    jobs = [_job(random, f"j{j}", slots, pools, sum(lengths_s[:-1])) for j in range(n_jobs)]
    document: dict[str, Any] = {
        "problem": "shifting",
        "name": "scenarios",
        "objective": random.choice(OBJECTIVES),
        "slots": slots,
        "slot_s": lengths_s if random.random() < 0.5 or len(set(lengths_s)) > 1 else 3600.0,
        "carbon_g_per_kwh": _carbon(random, slots),
        "price_per_kwh": _prices(random, slots),
        "pools": pools,
        "jobs": jobs,
        "decided_slots": random.randint(0, slots),
        "scenarios": _scenarios(random, slots, pools, jobs),
    }
    kwh = n_jobs * slots * 0.2
    typical = {
        "average_completion_s": 3600.0 * slots,
        "carbon_g": 180.0 * kwh,
        "energy_j": J_PER_KWH * kwh,
        "money": 0.2 * kwh,
    }
    document["budgets"] = {
        n: v * random.uniform(0.4, 1.5) for n, v in typical.items() if random.random() < 0.15
    }
    return document


def _carbon(random: Random, slots: int) -> list[float]:
    return [random.choice((0.0, 50.0, 120.0, 400.0)) for _ in range(slots)]


def _prices(random: Random, slots: int) -> list[float]:
    return [random.choice((-0.02, 0.05, 0.1, 0.4)) for _ in range(slots)]


def _job(random: Random, name: str, slots: int, pools: dict[str, Any], latest_s: float) -> dict[str, Any]:
    rows = [(p, g, f) for p in pools for g in (1, 2) if g <= pools[p]["gpus"] for f in (900, 1400)]
    rows = random.sample(rows, min(len(rows), random.randint(1, 3 if slots < 4 else 2)))
    job: dict[str, Any] = {
        "name": name,
        "options": {
            "pool": [pool for pool, _, _ in rows],
            "gpus": [gpus for _, gpus, _ in rows],
            "frequency_mhz": [mhz for _, _, mhz in rows],
            "rate": [round(gpus**0.8 * (mhz / 1400) ** 0.7, 3) for _, gpus, mhz in rows],
            "power_w": [gpus * 20.0 + round(gpus * 200.0 * (mhz / 1400) ** 2, 1) for _, gpus, mhz in rows],
        },
        "remaining_work": random.choice((1000.0, 3000.0, 3600.0, 6000.0, 9000.0)),
        "weight": random.choice((1.0, 1.0, 3.0)),
        "restart_s": random.choice((0.0, 0.0, 900.0, 1500.0)),
    }
    if random.random() < 0.25:
        job["arrival_s"] = min(latest_s, random.choice((1000.0, 3600.0)))
    elif random.random() < 0.2:
        job["has_run"] = True
    if random.random() < 0.15:
        job["deadline_s"] = random.choice((5000.0, 9000.0, 20000.0))
    if random.random() < 0.2:
        job["must_finish"] = True
    return job


def _scenarios(random: Random, slots: int, pools: dict[str, Any], jobs: list[Any]) -> dict[str, Any]:
    """One to three scenarios; what one does not give is as in the document."""
    parts = [random.choice((1, 1, 2, 3)) for _ in range(random.choice((1, 2, 2, 3)))]
    found = {}
    for name, part in zip("xyz", parts, strict=False):
        scenario: dict[str, Any] = {"probability": part / sum(parts)}
        if random.random() < 0.8:
            scenario["carbon_g_per_kwh"] = _carbon(random, slots)
        if random.random() < 0.8:
            scenario["price_per_kwh"] = _prices(random, slots)
        if random.random() < 0.2:
            most_w = sum(max(job["options"]["power_w"]) for job in jobs)
            idle_w = sum(pool["gpus"] * pool["idle_power_w"] for pool in pools.values())
            scenario["power_w"] = [idle_w + most_w * random.choice((0.4, 0.7, 1.0)) for _ in range(slots)]
        found[name] = scenario
    return found


def least_cost(document: dict[str, Any], decided_slots: int | None = None) -> float | None:
    """Least expected objective of all decisions, None where there is none."""
    decided = document["decided_slots"] if decided_slots is None else decided_slots
    plans = [list(_outcomes(document, job)) for job in document["jobs"]]
    probabilities = [one["probability"] for one in document["scenarios"].values()]
    by_beginning = [_cheapest(document, one, plans, decided) for one in document["scenarios"].values()]
    return min(
        (
            sum(p * costs[begun] for p, costs in zip(probabilities, by_beginning, strict=True))
            for begun in by_beginning[0]
            if all(begun in costs for costs in by_beginning)
        ),
        default=None,
    )


def _cheapest(
    document: dict[str, Any], scenario: dict[str, Any], plans: list[list[Outcome]], decided: int
) -> dict[tuple[Choice, ...], float]:
    """Least objective in a scenario by what all jobs do in the decided slots."""
    known = document | scenario
    found: dict[tuple[Choice, ...], float] = {}
    for chosen in product(*plans):
        if not _fits(known, chosen):
            continue
        amounts = _amounts(known, chosen)
        limits = [document["budgets"].get(name) for name in BUDGETS]
        if any(a > b + 1e-9 * abs(b) for a, b in zip(amounts, limits, strict=True) if b is not None):
            continue
        begun = tuple(one.choice[:decided] for one in chosen)
        cost = amounts[OBJECTIVES.index(document["objective"])]
        found[begun] = min(cost, found.get(begun, cost))
    return found


def _lengths_s(document: dict[str, Any]) -> list[float]:
    each = document["slot_s"]
    return each if isinstance(each, list) else [each] * document["slots"]


def _fits(known: dict[str, Any], chosen: tuple[Outcome, ...]) -> bool:
    """True if GPUs and the cap suffice in every slot."""
    pools = known["pools"]
    for slot in range(known["slots"]):
        held = dict.fromkeys(pools, 0)
        drawn_w = sum(pool["gpus"] * pool["idle_power_w"] for pool in pools.values())
        for job, one in zip(known["jobs"], chosen, strict=True):
            if (row := one.choice[slot]) is not None:
                pool, gpus = job["options"]["pool"][row], job["options"]["gpus"][row]
                held[pool] += gpus
                drawn_w += job["options"]["power_w"][row] - gpus * pools[pool]["idle_power_w"]
        if any(held[pool] > pools[pool]["gpus"] for pool in pools):
            return False
        if "power_w" in known and drawn_w > known["power_w"][slot] * (1 + 1e-9):
            return False
    return True


def _amounts(known: dict[str, Any], chosen: tuple[Outcome, ...]) -> list[float]:
    """Average completion, grams, joules and money of a plan in a scenario."""
    lengths_s, jobs = _lengths_s(known), known["jobs"]
    idle_w = sum(pool["gpus"] * pool["idle_power_w"] for pool in known["pools"].values())
    joules = [idle_w * seconds for seconds in lengths_s] + [0.0]
    for one in chosen:
        joules = [a + b for a, b in zip(joules, one.joules, strict=True)]
    late = [
        job["weight"] * (one.end_s - job.get("arrival_s", 0.0)) for job, one in zip(jobs, chosen, strict=True)
    ]
    found = [sum(late) / sum(job["weight"] for job in jobs)]
    for line in (known["carbon_g_per_kwh"], [J_PER_KWH] * known["slots"], known["price_per_kwh"]):
        mean = sum(v * s for v, s in zip(line, lengths_s, strict=True)) / sum(lengths_s)
        found.append(sum(v * j for v, j in zip([*line, mean], joules, strict=True)) / J_PER_KWH)
    return found


def _outcomes(document: dict[str, Any], job: dict[str, Any]):
    """Plans of a job that break no rule of its own."""
    rows = range(len(job["options"]["rate"]))
    for choice in product((None, *rows), repeat=document["slots"]):
        if (found := _outcome(document, job, choice)) is not None:
            yield found


def _outcome(document: dict[str, Any], job: dict[str, Any], choice: Choice) -> Outcome | None:
    """Follow a job through its slots; None where it runs or ends too early or late, or cannot restart."""
    table, lengths_s = job["options"], _lengths_s(document)
    left, end_s, begin_s = job["remaining_work"], None, 0.0
    ran, before, joules = job.get("has_run", False), None, []
    for row, slot_s in zip(choice, lengths_s, strict=True):
        drawn_s, extra_w = 0.0, 0.0
        if row is None:
            before = None
        else:
            if end_s is not None or begin_s < job.get("arrival_s", 0.0):
                return None
            kind = table["pool"][row], table["gpus"][row]
            lost_s = job["restart_s"] if ran and kind != before else 0.0
            if lost_s >= slot_s:
                return None
            needed_s = lost_s + left / table["rate"][row]
            drawn_s = min(slot_s, needed_s)
            if needed_s <= slot_s * (1 + 1e-9):
                end_s = begin_s + drawn_s
            left -= (drawn_s - lost_s) * table["rate"][row]
            extra_w = table["power_w"][row] - kind[1] * document["pools"][kind[0]]["idle_power_w"]
            ran, before = True, kind
        joules.append(drawn_s * extra_w)
        begin_s += slot_s
    after_j = 0.0
    if end_s is None:
        if job.get("must_finish"):
            return None
        fastest = max(range(len(table["rate"])), key=lambda r: (table["rate"][r], -table["power_w"][r]))
        end_s = begin_s + left / table["rate"][fastest]
        after_j = table["power_w"][fastest] * left / table["rate"][fastest]
    if end_s > job.get("deadline_s", end_s) * (1 + 1e-9):
        return None
    return Outcome(choice, end_s, [*joules, after_j])
