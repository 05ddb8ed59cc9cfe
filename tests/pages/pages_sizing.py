"""A brute force of `sizing`, written from docs/model.md and docs/file-format.md alone.

This file has what each job may do; `pages_sizing_search` tries every decision. Comments in quotation marks
are sentences of these pages. Nothing of the package is imported.
"""

import math
from dataclasses import dataclass

from tests.pages.pages_cluster import Cluster, within

SETTINGS = ("frequency_mhz", "power_limit_w", "batch_size")


@dataclass(frozen=True)
class Choice:
    """What one job does: an option, a set that it is in, or waiting (`pool` is None)."""

    job: str
    pool: str | None
    gpus: int
    cost: float  # of the objective, to be minimised
    uses: tuple[float, ...]  # of the rows of `Round.limits`, in their order
    group: str = ""  # the set
    same: bool = False  # "keeps its option": moving is what it could still pay for
    keeps: bool = False  # stays on its GPUs, which are no longer free
    settings: tuple = ()
    completion_s: float = 0.0
    joules: tuple[float, float] = (0.0, 0.0)  # round, completion


class Round(Cluster):
    """An instance as it is read: pools, rows, and the choices of every job."""

    def __init__(self, document: dict):
        self.document = document
        self.delta = document.get("round_s", 300)
        self.objective = document.get("objective", "work-value")
        self.budgets = document.get("budgets", {})
        self.scope = self.budgets.get("scope", "round")
        self.tenants = document.get("tenants") or {}
        super().__init__(document)
        self.weight = {
            name: j.get("weight", 1) * self.tenants.get(j.get("tenant"), {}).get("weight", 1)
            for name, j in self.jobs.items()
        }
        self.make_limits(document["cluster"])
        self.make_options()
        self.value = self.work_values()
        self.choices = {name: self.choices_of(name) for name in self.jobs if name not in self.dropped}

    # Rows

    def make_limits(self, cluster: dict) -> None:
        """Rows: name, kind, whom they are of, what is used already, and the limit."""
        b, kappa = self.budgets, self.document.get("carbon_g_per_kwh") or 0
        everything = self.standing_w(list(self.pools))
        self.limits: list[tuple[str, object, float, float]] = []
        if b.get("power_w") is not None:
            self.limits.append(("power", tuple(self.pools), everything, b["power_w"]))
        for d in cluster.get("power_domains", []):
            inside = [p for p in self.pools if d["name"] in self.feeds[p]]
            used = self.standing_w(inside) + d.get("reserved_w", 0)
            self.limits.append(("power", tuple(inside), used, d["power_cap_w"]))
        # "If a right-hand side is negative [...] the instance is infeasible" is left to the rows: jobs may
        # draw less than the idle GPUs that they replace.
        already = everything * self.delta if self.scope == "round" else 0.0
        for name, per_joule in (("energy_j", 1.0), ("carbon_g", kappa / 3.6e6)):
            if b.get(name) is not None:
                self.limits.append(("energy", per_joule, already * per_joule, b[name]))
        if b.get("least_goodput") is not None:  # of the form >=
            self.limits.append(("goodput", None, 0.0, -b["least_goodput"]))
        cohorts: dict[str, list[str]] = {}
        for name, t in self.tenants.items():
            if t.get("cohort"):
                cohorts.setdefault(t["cohort"], []).append(name)
            gpus = t.get("gpus")
            if gpus is not None and not t.get("cohort"):
                self.limits.append(("gpus", (name,), 0.0, gpus))
            if t.get("cohort") and t.get("borrow_gpus") is not None:
                self.limits.append(("gpus", (name,), 0.0, gpus + t["borrow_gpus"]))
            if t.get("power_w") is not None:
                self.limits.append(("tenant_w", name, 0.0, t["power_w"]))
            if t.get("energy_j") is not None:
                self.limits.append(("tenant_j", (name, 1.0), 0.0, t["energy_j"]))
            if t.get("carbon_g") is not None:
                self.limits.append(("tenant_j", (name, kappa / 3.6e6), 0.0, t["carbon_g"]))
        for members in cohorts.values():
            self.limits.append(("gpus", tuple(members), 0.0, sum(self.tenants[m]["gpus"] for m in members)))

    # Options

    def make_options(self) -> None:
        self.own: dict[str, list[dict]] = {}
        self.refused = ""
        for name, job in self.jobs.items():
            rows = rows_of(self.document, job)
            self.own[name] = [
                row | {"pool": p.name}
                for row in rows
                for p in self.matching(row["pool"])
                if p.holds(row["gpus"])
                and self.may_use(job, p)
                and (job.get("min_gpus") or 1) <= row["gpus"] <= (job.get("max_gpus") or math.inf)
                and self.quota_leaves(job, row["gpus"], row["power_w"])
            ]
        self.best_s, self.from_now_s, self.least_j, self.reference = {}, {}, {}, {}
        for name, rows in self.own.items():
            if not rows:
                continue
            job = self.jobs[name]
            work, lost = job.get("remaining_work", 1), job.get("restart_s", 0) if job.get("current") else 0.0
            self.best_s[name] = min(work / r["rate"] for r in rows) + lost
            # "from now the least C_jo of all options", of which those that do not restart lose nothing
            self.from_now_s[name] = min(self.timing(name, r, 1)[1] for r in rows)
            self.least_j[name] = min(r["power_w"] * (work / r["rate"] + lost) for r in rows)
            # "s_ref is the best rate that the job has at its smallest GPU count"
            fewest = min(r["gpus"] for r in rows)
            self.reference[name] = max(r["rate"] for r in rows if r["gpus"] == fewest)
        self.find_dropped()

    def quota_leaves(self, job: dict, gpus: float, watts: float) -> bool:
        # "A job that alone is beyond its tenant's GPUs or watts in a configuration does not have that
        # configuration, as if it were above `max_gpus`."
        for kind, whose, _, limit in self.limits:
            if kind == "gpus" and job.get("tenant") in whose and not within(gpus, limit):
                return False
            if kind == "tenant_w" and job.get("tenant") == whose and not within(watts, limit):
                return False
        return True

    def timing(self, name: str, row: dict, shared: int = 1) -> tuple[bool, float, bool]:
        """Whether an option restarts the job, when it is complete, and whether the tenant allows it."""
        job = self.jobs[name]
        now = job.get("current")
        # "An option restarts a running job if it differs from what the job holds in GPU count, pool or batch
        # size. A new clock or power limit alone needs no restart."
        keys = ("gpus", "pool", "batch_size")
        restarts = now is not None and any(row.get(k) != now.get(k) for k in keys)
        done = job.get("remaining_work", 1) / row["rate"] + (job.get("restart_s", 0) if restarts else 0.0)
        seconds = min(done, self.delta) if self.scope == "round" else done
        joules = row["power_w"] / shared * seconds
        leaves = all(
            kind != "tenant_j" or whose[0] != job.get("tenant") or within(joules * whose[1], limit)
            for kind, whose, _, limit in self.limits
        )
        return restarts, done, leaves

    def find_dropped(self) -> None:
        """Jobs that are left out, options that are possible, and sets that can be formed."""
        self.possible: dict[str, list[dict]] = {}
        self.waits: dict[str, bool] = {}
        must_run = {n for n, j in self.jobs.items() if j.get("can_wait") is False} | self.keepers
        left: dict[str, bool] = {}
        for name, rows in self.own.items():
            timed = [(row, *self.timing(name, row)) for row in rows]
            # "With "preemptible": false a job has only options without restart, and may not wait"
            timed = [t for t in timed if name not in self.keepers or not t[1]]
            deadline = self.jobs[name].get("deadline_s")
            # "One that is beyond its joules or grams is excluded as by a deadline"
            self.possible[name] = [row for row, _, done, leaves in timed if leaves and within(done, deadline)]
            left[name] = any(leaves for *_, leaves in timed)
            # "Options with C_jo above the job's `deadline_s` are excluded, waiting included."
            self.waits[name] = (
                name not in must_run and bool(rows) and within(self.delta + self.best_s[name], deadline)
            )
        # "a set in which a job would be late is not formed"; "sets that it [a job that is left out] is in
        # cannot be formed"
        sets = [(s, p) for s in self.document.get("sets", []) for p in self.matching(s["pool"])]
        self.sets = []
        for s, pool in sets:
            rows = {
                j: {"pool": pool.name, "gpus": s["gpus"], "power_w": s["power_w"], "rate": rate}
                | {"batch_size": s.get("batch_sizes", {}).get(j)}
                for j, rate in s["rates"].items()
            }
            n = len(rows)
            if pool.holds(s["gpus"]) and all(
                self.own[j]
                and self.may_use(self.jobs[j], pool)
                and self.quota_leaves(self.jobs[j], s["gpus"] / n, s["power_w"] / n)
                and within(self.timing(j, row, n)[1], self.jobs[j].get("deadline_s"))
                and self.timing(j, row, n)[2]
                for j, row in rows.items()
            ):
                self.sets.append((s["name"], rows, s))
        in_set = {j for _, rows, _ in self.sets for j in rows}
        # "A job that has no option, because it fits nowhere in its pools or its deadline cannot be met any
        # more [...] waits"; "A job to which its tenant leaves nothing to run as waits, with its reason."
        none = {n for n in self.jobs if not self.possible[n] and n not in in_set}
        self.dropped = {n for n in none if not (self.waits[n] and left[n]) and n not in must_run}

    def work_values(self) -> dict[str, float]:
        """Values of `work-value`: "Z>_j" and "Z>=_j" are sums of weights over larger sizes per weight."""

        def digits(x: float) -> float:  # "Sizes per weight are compared to 30 binary digits"
            mantissa, exponent = math.frexp(x)
            return math.ldexp(round(mantissa * 2**30), exponent - 30)

        jobs = [n for n in self.jobs if n not in self.dropped and self.own[n]]
        size = {
            n: digits(self.jobs[n].get("remaining_work", 1) / self.reference[n] / self.weight[n])
            for n in jobs
        }
        values = {}
        for n in jobs:
            above = math.fsum(self.weight[i] for i in jobs if size[i] > size[n])
            same = math.fsum(self.weight[i] for i in jobs if size[i] == size[n])
            values[n] = math.sqrt(self.weight[n] * (above + above + same))  # "w_j (Z>_j + Z>=_j)"
        return values

    def choices_of(self, name: str) -> list[Choice]:
        found = [self.choice(name, row) for row in self.possible[name]]
        return found + ([self.choice(name, None)] if self.waits[name] else [])

    def choice(self, name: str, row: dict | None, group: str = "", shared: int = 1) -> Choice:
        job, w, delta = self.jobs[name], self.weight[name], self.delta
        running = job.get("current") is not None
        lost = job.get("restart_s", 0)
        if row is None:
            restarts, done, rate, watts, extra, gpus = running, delta + self.best_s[name], 0.0, 0.0, 0.0, 0.0
            joules = (0.0, self.least_j[name])
        else:
            restarts, done, _ = self.timing(name, row, shared)
            rate, gpus, watts = row["rate"], row["gpus"] / shared, row["power_w"] / shared
            extra = watts - self.pools[row["pool"]].idle_w * gpus
            joules = (extra * min(done, delta), watts * done)
        speed = rate / self.reference[name]
        goodput = speed * max(0.0, 1 - lost * restarts / delta) * w
        counted = joules[0 if self.scope == "round" else 1]
        kwh = 1 / 3.6e6
        kept_s = min(max(600, delta), done)  # min(H, C), "H = max(600 s, Delta)"
        cost = {
            "total-completion": w * done,
            "progress": -3600 * w / done if row else 0.0,
            "makespan": w * done,
            "max-min": -self.from_now_s[name] / (done * w),
            "proportional": w * math.log(done / self.from_now_s[name]),
            "goodput": -goodput,
            "work-value": -self.value[name] * speed * max(0.0, 1 - lost * restarts / kept_s),
            "energy": counted,
            "carbon": counted * kwh * (self.document.get("carbon_g_per_kwh") or 0),
            "money": counted * kwh * (self.document.get("price_per_kwh") or 0),
        }[self.objective]
        if restarts:  # "The value of an option is then c + chi r, with r = 1 for waiting of jobs that run"
            cost += self.change_cost(name)
        used_j = watts * (min(done, delta) if self.scope == "round" else done) if row else 0.0
        uses = []
        for kind, whose, _, _ in self.limits:
            mine = job.get("tenant")
            uses.append(
                (extra if row and row["pool"] in whose else 0.0)
                if kind == "power"
                else counted * whose
                if kind == "energy"
                else -goodput
                if kind == "goodput"
                else (gpus if mine in whose else 0.0)
                if kind == "gpus"
                else (watts if mine == whose else 0.0)
                if kind == "tenant_w"
                else (used_j * whose[1] if mine == whose[0] else 0.0)
            )
        settings = tuple((row or {}).get(s) for s in SETTINGS)
        pool, count = (row["pool"], row["gpus"]) if row else (None, 0)
        same, keeps = running and not restarts and row is not None, name in self.keepers
        return Choice(name, pool, count, cost, tuple(uses), group, same, keeps, settings, done, joules)

    def change_cost(self, name: str) -> float:
        return self.jobs[name].get("change_cost", self.document.get("change_cost", 0)) or 0


def rows_of(document: dict, job: dict) -> list[dict]:
    """Options of a job in any of the three forms, with `rate`."""
    table = job["options"]
    table = document["tables"][table] if isinstance(table, str) else table
    if isinstance(table, dict):
        table = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
    # "instead of `rate`: seconds to completion when `remaining_work` is 1"
    return [row | {"rate": row.get("rate") or 1 / row["completion_s"]} for row in table]


def worst_or_sum(objective: str, costs: list[float]) -> float:
    return max(costs) if objective in ("makespan", "max-min") else math.fsum(costs)
