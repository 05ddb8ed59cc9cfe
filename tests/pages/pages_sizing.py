"""A brute force of `sizing`, written from docs/model.md and docs/file-format.md alone: every decision is tried.

Comments in quotation marks are sentences of these pages. Nothing of the package is imported.
"""

import itertools
import math
from dataclasses import dataclass, field

TOLERATED = 1e-6  # "It tolerates rounding of 1e-6 of a budget or a deadline."
SETTINGS = ("frequency_mhz", "power_limit_w", "batch_size")


class Unclear(Exception):
    """The instance hangs on a comparison within the tolerance of the checker: both answers are right."""


def within(used: float, limit: float | None) -> bool:
    if limit is None or used <= limit + 1e-9 * abs(limit):
        return True
    if used <= limit + 3 * TOLERATED * abs(limit):
        raise Unclear
    return False


def power_of_two(gpus: int) -> int:
    return 1 << (gpus - 1).bit_length()


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


@dataclass
class Pool:
    name: str
    nodes: list[str]
    size: int  # GPUs of a node
    idle_w: float
    capacity: str
    blocks: list[list[tuple[str, int]]] = field(default_factory=list)
    free: frozenset = frozenset()

    def holds(self, gpus: int) -> bool:
        # "What is larger than a pool would hold with all of its GPUs, its largest block where blocks are
        # aligned, is no option."
        if self.capacity == "blocks":
            return power_of_two(gpus) <= max(map(len, self.blocks))
        return gpus <= self.size * len(self.nodes)

    def aligned(self, size: int) -> list[frozenset]:
        # "An aligned block of size 2^k starts at a multiple of 2^k and lies inside one structural block."
        return [frozenset(b[i : i + size]) for b in self.blocks for i in range(0, len(b) - size + 1, size)]


def structural(children: list[list[list]]) -> list[list]:
    """Blocks of a vertex, from those of its children."""
    # "children of a vertex (GPUs of a node, nodes of a rack, racks of a pod) that are whole blocks of one size
    # are joined in runs of 2^m, from the first (groups before nodes, each in the order of the file)"
    whole: dict[int, list] = {}
    blocks = []
    for child in children:
        if len(child) == 1:
            whole.setdefault(len(child[0]), []).append(child[0])
        else:
            blocks += child
    for same in whole.values():
        while same:
            run = 1 << (len(same).bit_length() - 1)
            blocks.append([gpu for block in same[:run] for gpu in block])
            same = same[run:]
    return sorted(blocks, key=len, reverse=True)


class Round:
    """An instance as it is read: pools, rows, and the choices of every job."""

    def __init__(self, document: dict):
        self.document = document
        self.delta = document.get("round_s", 300)
        self.objective = document.get("objective", "work-value")
        self.budgets = document.get("budgets", {})
        self.scope = self.budgets.get("scope", "round")
        self.tenants = document.get("tenants") or {}
        cluster = document["cluster"]
        self.nodes = {n["name"]: n for n in cluster["nodes"]}
        self.make_pools(cluster)
        self.jobs = {j["name"]: j for j in document["jobs"]}
        self.keepers = {
            name for name, j in self.jobs.items() if j.get("preemptible") is False and j.get("current")
        }
        self.make_room()
        self.weight = {
            name: j.get("weight", 1) * self.tenants.get(j.get("tenant"), {}).get("weight", 1)
            for name, j in self.jobs.items()
        }
        self.make_limits(cluster)
        self.make_options()
        self.value = self.work_values()
        self.choices = {name: self.choices_of(name) for name in self.jobs if name not in self.dropped}

    # Pools and room

    def make_pools(self, cluster: dict) -> None:
        groups = {g["name"]: g for g in cluster.get("groups", [])}
        domains = cluster.get("power_domains", [])

        def above(name: str) -> set[str]:
            # "a group stands for everything below it"
            found = {name}
            vertex = self.nodes.get(name) or groups.get(name)
            while vertex and vertex.get("parent"):
                found.add(vertex["parent"])
                vertex = groups.get(vertex["parent"])
            return found

        feeds = {n: tuple(d["name"] for d in domains if above(n) & set(d["members"])) for n in self.nodes}
        kinds: dict[str, set] = {}
        for n, node in self.nodes.items():
            if "pool" not in node:
                kinds.setdefault(node["gpu_type"], set()).add((node["gpus"], feeds[n]))
        self.pools: dict[str, Pool] = {}
        self.pool_of, self.feeds = {}, {}
        capacity = cluster.get("capacity", "blocks")
        for n, node in self.nodes.items():
            of = node["gpu_type"]
            name = node.get("pool")
            if name is None:  # the table of "How pools are named"
                name = of
                if len({size for size, _ in kinds[of]}) > 1:
                    name += f"x{node['gpus']}"
                if len({feed for _, feed in kinds[of]}) > 1:
                    name += "@" + ("+".join(feeds[n]) or "none")
            # "or an object by pool or GPU type, of which the pool's own name counts first, and where pools
            # that are not named have blocks"
            kind = capacity if isinstance(capacity, str) else capacity.get(name, capacity.get(of, "blocks"))
            idle_w = cluster["gpu_types"][of]["idle_power_w"]
            self.pools.setdefault(name, Pool(name, [], node["gpus"], idle_w, kind)).nodes.append(n)
            self.pool_of[n], self.feeds[name] = name, feeds[n]

        def blocks(pool: str, vertex: str | None) -> list:
            below = [blocks(pool, g) for g in groups if groups[g].get("parent") == vertex]
            for n in self.pools[pool].nodes:
                if self.nodes[n].get("parent") == vertex:
                    below.append(structural([[[(n, i)]] for i in range(self.nodes[n]["gpus"])]))
            return structural([child for child in below if child])

        for name, pool in self.pools.items():
            pool.blocks = blocks(name, None)

    def make_room(self) -> None:
        broken = {(n, i) for n, node in self.nodes.items() for i in node.get("unavailable", [])}
        taken = set(broken)
        kept = set()
        for name in self.keepers:
            mine = self.held(name)
            pool = self.pools[self.jobs[name]["current"]["pool"]]
            # "Its GPUs (its whole block, if its GPU count is no power of two) do not count as free."
            if pool.capacity == "blocks" and power_of_two(len(mine)) != len(mine):
                mine = next((b for b in pool.aligned(power_of_two(len(mine))) if mine <= b), mine)
            taken |= mine
            kept |= {n for n, _ in self.held(name)}
        self.broken, self.taken = broken, taken
        for pool in self.pools.values():
            every = {(n, i) for n in pool.nodes for i in range(pool.size)}
            pool.free = frozenset(every - taken)
        # "It is awake whatever is decided [...] if others reserve watts there (`reserved_w`), if a GPU is
        # `unavailable`, which others may use, or if a job keeps its GPUs there."
        self.sleepers = {
            n
            for n, node in self.nodes.items()
            if node.get("sleeps")
            and not node.get("reserved_w")
            and not node.get("unavailable")
            and n not in kept
        }

    def held(self, job: str) -> frozenset:
        nodes = (self.jobs[job].get("current") or {}).get("nodes") or {}
        return frozenset((n, i) for n, gpus in nodes.items() for i in gpus)

    def awake_w(self, node: str) -> float:
        # "or a nodes pool draw a watts awake, beta + n iota"
        pool = self.pools[self.pool_of[node]]
        return self.nodes[node].get("base_power_w", 0) + pool.size * pool.idle_w

    # Rows

    def standing_w(self, pools: list[str]) -> float:
        # "the base power of its nodes and the idle draw of its available GPUs, but for those of nodes that
        # sleep"; "What is not ours to decide comes on top: gamma_n is the node's `reserved_w`"
        return sum(
            node.get("base_power_w", 0)
            + node.get("reserved_w", 0)
            + self.pools[self.pool_of[n]].idle_w * (node["gpus"] - len(set(node.get("unavailable", []))))
            for n, node in self.nodes.items()
            if self.pool_of[n] in pools and n not in self.sleepers
        )

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
        # "If a right-hand side is negative [...] the instance is infeasible" is left to the rows: jobs may draw less
        # than the idle GPUs that they replace.
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
        self.best_s, self.least_j, self.reference = {}, {}, {}
        for name, rows in self.own.items():
            if not rows:
                continue
            job = self.jobs[name]
            work, lost = job.get("remaining_work", 1), job.get("restart_s", 0) if job.get("current") else 0.0
            self.best_s[name] = min(work / r["rate"] for r in rows) + lost
            self.least_j[name] = min(r["power_w"] * (work / r["rate"] + lost) for r in rows)
            # "s_ref is the best rate that the job has at its smallest GPU count"
            fewest = min(r["gpus"] for r in rows)
            self.reference[name] = max(r["rate"] for r in rows if r["gpus"] == fewest)
        self.find_dropped()

    def matching(self, pool: str) -> list[Pool]:
        # "a pool, or a GPU type, which stands for every pool of that type"
        if pool in self.pools:
            return [self.pools[pool]]
        return [p for p in self.pools.values() if self.nodes[p.nodes[0]]["gpu_type"] == pool]

    def may_use(self, job: dict, pool: Pool) -> bool:
        return not job.get("pools") or any(pool in self.matching(name) for name in job["pools"])

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
        """Whether an option restarts the job, when it is complete, and whether the tenant's joules allow it."""
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
        # A set is an option of each of its jobs, where none of them would be late: "a set in which a job would
        # be late is not formed"; "sets that it [a job that is left out] is in cannot be formed".
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
        # "A job that has no option, because it fits nowhere in its pools or its deadline cannot be met any more
        # [...] waits"; "A job to which its tenant leaves nothing to run as waits, with its reason."
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
            values[n] = math.sqrt(same * (2 * above + same))  # (above + same)^2 - above^2
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
        cost = {
            "total-completion": w * done,
            "progress": -3600 * w / done if row else 0.0,
            "makespan": w * done,
            "max-min": -self.best_s[name] / (done * w),
            "proportional": w * math.log(done / self.best_s[name]),
            "goodput": -goodput,
            "work-value": -self.value[name]
            * speed
            * max(0.0, 1 - lost * restarts / min(max(600, delta), done)),
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


def subsets(items: list) -> itertools.chain:
    return itertools.chain.from_iterable(itertools.combinations(items, k) for k in range(len(items) + 1))
