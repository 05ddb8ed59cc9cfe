"""Least changes with which a job of a small round runs, by trying every decision, from the definition alone.

Rounds are documents; nothing here comes from the package. Of capacities: parts of nodes are laid out one by
one, aligned blocks level by level.
"""

from __future__ import annotations

import math
from itertools import product
from random import Random
from typing import Any

IDLE_W, SIZE, NODES = {"A": 40.0, "B": 25.0}, {"A": 4, "B": 2}, {"A": 2, "B": 2}
OBJECTIVES = ("total-completion", "progress", "proportional", "goodput", "work-value", "makespan", "max-min")
WAITING_COUNTS = {"total-completion", "makespan", "max-min", "proportional"}
Row = tuple[str, int, float, float]
"""Pool, GPUs, rate and watts."""


def random_round(random: Random) -> dict[str, Any]:
    """Document of a round of three to five jobs on two pools, short of GPUs, watts, or a tenant's GPUs."""
    jobs, tenants = [], {"t": {"gpus": random.randint(1, 6)}} if random.random() < 0.25 else {}
    for j in range(random.randint(3, 5)):
        rows: dict[tuple[str, int], tuple[float, float]] = {}
        for _ in range(random.randint(1, 4)):
            pool, gpus = random.choice("AAB"), random.choice((1, 1, 2, 2, 3, 4, 6))
            speed = gpus**0.7 * random.uniform(0.8, 1.2)
            rows[pool, gpus] = speed, gpus * random.uniform(60.0, 300.0)
        table = {
            "pool": [pool for pool, _ in rows],
            "gpus": [gpus for _, gpus in rows],
            "rate": [rate for rate, _ in rows.values()],
            "power_w": [watts for _, watts in rows.values()],
        }
        job: dict[str, Any] = {
            "name": f"j{j}",
            "weight": random.choice((1.0, 2.0, 0.5)),
            "remaining_work": random.choice((100.0, 300.0, 1000.0)),
            "options": table,
        }
        if random.random() < 0.15:
            job["can_wait"] = False
        if random.random() < 0.2:
            job["min_gpus"] = random.choice(table["gpus"])
        if random.random() < 0.2:
            times = [job["remaining_work"] / rate for rate in table["rate"]]
            job["deadline_s"] = random.choice(times) * random.choice((1.0, 1.5)) + random.choice((0.0, 400.0))
        if random.random() < 0.2 and not job.get("min_gpus"):
            pool, gpus = random.choice(list(rows))
            job["current"], job["restart_s"] = {"pool": pool, "gpus": gpus}, random.choice((10.0, 100.0))
        if tenants and random.random() < 0.6:
            job["tenant"] = "t"
        jobs.append(job)
    standing_w = sum(NODES[pool] * SIZE[pool] * IDLE_W[pool] for pool in IDLE_W)
    budgets = {"power_w": standing_w + random.uniform(50.0, 1200.0)} if random.random() < 0.7 else {}
    if random.random() < 0.15:
        budgets["energy_j"] = (standing_w + random.uniform(50.0, 1200.0)) * 300.0
    return {
        "name": "small",
        "objective": random.choice(OBJECTIVES),
        "round_s": 300.0,
        "budgets": budgets,
        "cluster": {
            "gpu_types": {pool: {"idle_power_w": watts} for pool, watts in IDLE_W.items()},
            "nodes": [
                {"name": f"{pool}{n}", "gpu_type": pool, "gpus": SIZE[pool]}
                for pool in IDLE_W
                for n in range(NODES[pool])
            ],
            "capacity": random.choice(("count", "nodes", "blocks")),
        },
        "tenants": tenants,
        "jobs": jobs,
    }


class Truth:
    """Everything that can be said of one job of a round and a decision, which has a row or None by job."""

    def __init__(self, document: dict[str, Any], decided: dict[str, Row | None], name: str):
        self.document, self.decided, self.name = document, decided, name
        self.job = next(job for job in document["jobs"] if job["name"] == name)
        self.own_waits_s = self.waits_s(self.job)

    def waits_s(self, job: dict[str, Any]) -> float:
        """Seconds to completion of a job that waits."""
        restart_s = job["restart_s"] if "current" in job else 0.0
        best = min((job["remaining_work"] / row[2] for row in self.rows(job)), default=math.inf)
        return self.document["round_s"] + best + restart_s

    def rows(self, job: dict[str, Any], min_gpus: int | None = None) -> list[Row]:
        """Rows within the least size that fit an empty cluster and the tenant's quota."""
        table = job["options"]
        columns = (table[name] for name in ("pool", "gpus", "rate", "power_w"))
        least = job.get("min_gpus", 1) if min_gpus is None else min_gpus
        quota = self.document["tenants"]["t"]["gpus"] if "tenant" in job else math.inf
        rows = [row for row in zip(*columns, strict=True) if least <= row[1] <= quota]
        return [row for row in rows if self.fits(row[0], [row[1]], 0)]

    def seconds(self, job: dict[str, Any], row: Row) -> float:
        """Seconds to completion as a row, with the restart."""
        same = "current" in job and (job["current"]["pool"], job["current"]["gpus"]) == row[:2]
        return job["remaining_work"] / row[2] + (job["restart_s"] if "current" in job and not same else 0.0)

    def fits(self, pool: str, gpus: list[int], more: int) -> bool:
        """Whether jobs of these sizes fit into a pool that has some more GPUs, on new nodes."""
        size, capacity = SIZE[pool], self.document["cluster"]["capacity"]
        free = [size] * NODES[pool]
        while more > 0:
            free.append(min(size, more))
            more -= size
        if capacity == "count":
            return sum(gpus) <= sum(free)
        if capacity == "nodes":
            return laid_out(sorted(free), sorted(gpus), size)
        return self._aligned(free, gpus, size)

    @staticmethod
    def _aligned(free: list[int], gpus: list[int], size: int) -> bool:
        """Whether blocks fit: at each size there is room enough in aligned blocks that are all free."""
        line: list[list[bool]] = []  # structural blocks, the largest first
        left = [[n < many for n in range(size)] for many in free]
        while left:
            run = 1 << (len(left).bit_length() - 1)
            line.append([gpu for node in left[:run] for gpu in node])
            left = left[run:]
        blocks = [1 << (one - 1).bit_length() for one in gpus]
        for level in (1, 2, 4, 8, 16):
            cut = [b[i : i + level] for b in line for i in range(0, len(b) - level + 1, level)]
            room = level * sum(all(part) for part in cut)
            if sum(block for block in blocks if block >= level) > room:
                return False
        return True

    def combinations(self, later: bool = False, **asked: Any) -> list[list[tuple[dict[str, Any], Row]]]:
        """Decisions in which the job runs and no other job that runs is later, whatever fits."""
        each = []
        for job in self.document["jobs"]:
            decided, mine = self.decided[job["name"]], job["name"] == self.name
            latest_s = job.get("deadline_s", math.inf)
            if mine:
                latest_s = asked.get("deadline_s", latest_s)
                if self.document["objective"] in WAITING_COUNTS and not later:
                    latest_s = min(latest_s, self.own_waits_s)
            elif decided is not None:
                latest_s = self.seconds(job, decided)
            rows = self.rows(job, asked.get("min_gpus") if mine else None)
            chosen: list[Row | None] = [
                row for row in rows if self.seconds(job, row) <= latest_s * (1 + 1e-11)
            ]
            if not mine and decided is None and (self.waits_s(job) <= latest_s or not chosen):
                chosen.append(None)
            each.append([(job, row) for row in chosen])
        return [[(job, row) for job, row in one if row is not None] for one in product(*each)]

    def least_w(
        self, gpus: dict[str, int] | None = None, quota: int = 0, later: bool = False, **asked: Any
    ) -> float:
        """Least watts of the cluster with more GPUs, or a larger quota of the tenant; infinite for none."""
        if quota:
            tenants = {"t": {"gpus": self.document["tenants"]["t"]["gpus"] + quota}}
            other = Truth({**self.document, "tenants": tenants}, self.decided, self.name)
            other.own_waits_s = self.own_waits_s
            return other.least_w(gpus, later=later, **asked)
        more = gpus or {}
        standing = sum((NODES[p] * SIZE[p] + more.get(p, 0)) * IDLE_W[p] for p in IDLE_W)
        least = math.inf
        for running in self.combinations(later, **asked):
            if self._room(running, more):
                watts = standing + sum(row[3] - IDLE_W[row[0]] * row[1] for _, row in running)
                least = min(least, watts)
        return least

    def _room(self, running: list[tuple[dict[str, Any], Row]], more: dict[str, int]) -> bool:
        """Whether running jobs fit into the pools, and the tenant's quota."""
        if self.document["tenants"]:
            used = sum(row[1] for job, row in running if "tenant" in job)
            if used > self.document["tenants"]["t"]["gpus"]:
                return False
        return all(
            self.fits(pool, [row[1] for _, row in running if row[0] == pool], more.get(pool, 0))
            for pool in IDLE_W
        )

    def possible(self, **asked: Any) -> bool:
        """Whether the job can run within the budgets, with no other job that runs later."""
        budgets = self.document["budgets"]
        standing = sum(NODES[p] * SIZE[p] * IDLE_W[p] for p in IDLE_W)
        for running in self.combinations(**asked):
            above = [(row[3] - IDLE_W[row[0]] * row[1], self.seconds(job, row)) for job, row in running]
            watts = standing + sum(w for w, _ in above)
            joules = standing * 300.0 + sum(w * min(300.0, s) for w, s in above)
            within = watts <= budgets.get("power_w", math.inf) * (1 + 1e-9)
            if (
                within
                and joules <= budgets.get("energy_j", math.inf) * (1 + 1e-9)
                and self._room(running, {})
            ):
                return True
        return False


def laid_out(free: list[int], gpus: list[int], size: int) -> bool:
    """Whether jobs have whole nodes of a size, and the rest of each on one other node."""
    if not gpus:
        return True
    *rest, most = gpus
    whole, part = divmod(most, size)
    for _ in range(whole):
        if size not in free:
            return False
        free = free[:]
        free.remove(size)
    if not part:
        return laid_out(free, rest, size)
    for one in {one for one in free if one >= part}:
        left = free[:]
        left.remove(one)
        if laid_out([*left, one - part], rest, size):
            return True
    return False
