"""A session as docs/session.md describes it: calls as plain JSON, and the round that they make as a document.

Comments in quotation marks are sentences of that page. Nothing of the package is imported.
"""

import copy
import random

from tests.pages.pages_cluster import Cluster
from tests.pages.pages_sizing import SETTINGS, Round
from tests.pages.sizing_rounds import OBJECTIVES, a_cluster, a_table, as_columns, number, some, tenants

COLUMNS = ("gpus", "pool", "rate", "power_w", "frequency_mhz", "power_limit_w", "batch_size")
BUDGETS = ("power_w", "energy_j", "carbon_g", "least_goodput", "scope")


class Told:
    """What the session was told so far."""

    def __init__(self, cluster: dict, tables: dict, given: dict):
        self.cluster, self.tables = copy.deepcopy(cluster), tables
        self.jobs: dict[str, dict] = {}
        self.budgets: dict = {}
        self.fields = {k: v for k, v in given.items() if v is not None}
        self.down: set[str] = set()
        self.calls = 0
        self.held_at: dict[str, int] = {}  # when `held` was told last

    def copy(self) -> "Told":
        return copy.deepcopy(self)

    def document(self) -> dict:
        cluster = copy.deepcopy(self.cluster)
        for node in cluster["nodes"]:
            if node["name"] in self.down:
                # "The GPUs of a node that is down draw nothing, but the node still counts with its
                # `base_power_w`"
                node["unavailable"] = list(range(node["gpus"]))
        jobs = [copy.deepcopy(job) for job in self.jobs.values()]
        return {
            "cluster": cluster,
            "tables": self.tables,
            "jobs": jobs,
            "budgets": dict(self.budgets),
            **self.fields,
        }

    def upsert(self, ids: list[str], given: dict) -> None:
        start = given.get("start", [0, len(given["gpus"])] if "gpus" in given else None)
        held = given.get("held")
        for i, name in enumerate(ids):
            # "adds jobs, and changes those that are there: fields that are not given stay as they are"
            job = self.jobs.setdefault(name, {"name": name})
            for key, column in given.items():
                if key not in (*COLUMNS, "start", "held"):
                    job[key] = column[i]
            if start is not None:
                rows = slice(
                    start[i], start[i + 1]
                )  # "options of job i are the rows start[i] to start[i + 1]"
                job["options"] = {
                    k: [given[k]] * (start[i + 1] - start[i]) if isinstance(given[k], str) else given[k][rows]
                    for k in COLUMNS
                    if k in given
                }
            if held is not None:
                self.held_at[name] = self.calls
                job.pop("current", None)
                if held[i] is not None:
                    job["current"] = copy.deepcopy(held[i])

    def remove(self, ids: list[str]) -> None:
        for name in ids:
            self.jobs.pop(name, None)
            self.held_at.pop(name, None)

    def update(self, given: dict) -> None:
        if "cluster" in given:  # "all its nodes are up, with the loads and unavailable GPUs that it states"
            capacity = {"capacity": self.cluster["capacity"]} if "capacity" in self.cluster else {}
            self.cluster, self.down = capacity | copy.deepcopy(given["cluster"]), set()
        nodes = {n["name"]: n for n in self.cluster["nodes"]}
        domains = {d["name"]: d for d in self.cluster.get("power_domains", [])}
        for key, value in given.items():
            if key in BUDGETS:  # "of which None takes one away"
                self.budgets.pop(key, None)
                if value is not None:
                    self.budgets[key] = value
            elif key == "reserved_w":
                # "it adds to what was told before, and 0 takes a load away": others stay, these are replaced
                for name, watts in value.items():
                    (nodes.get(name) or domains[name])["reserved_w"] = watts
            elif key == "unavailable":
                # "for each node that is named the numbers of its GPUs, instead of those so far"
                for name, gpus in value.items():
                    nodes[name]["unavailable"] = gpus
            elif key == "down":
                self.down |= set(value)
            elif key == "up":
                self.down -= set(value)
            elif key != "cluster":
                self.fields.pop(key, None)
                if value is not None:
                    self.fields[key] = value

    def apply(self, decision: dict, jobs: dict[str, frozenset], begun: int) -> str:
        """Tells that a decision was carried out; a sentence if that has to be refused.

        `jobs` are those that the decision knows, with the GPUs that they held when it was begun.
        """
        runs = {one["job"]: one for one in decision["jobs"]}
        mine = [name for name in jobs if name in self.jobs]
        new = {name: taken(runs[name]) if name in runs else None for name in mine}
        for name in mine:
            now = self.jobs[name].get("current")
            # "It is refused where it [...] stops or moves a job that is no longer `preemptible`"
            if self.jobs[name].get("preemptible") is False and places(new[name]) != places(now):
                return f"{name} is not preemptible"
            # "or where `held` of one of its jobs was told after it was begun and says otherwise": neither
            # what it began with nor what it says
            if self.held_at.get(name, -1) > begun and places(now) not in (jobs[name], places(new[name])):
                return f"{name} holds something else"
        strangers = [places(j.get("current")) for name, j in self.jobs.items() if name not in mine]
        # "takes GPUs of a job that it does not know"
        if frozenset().union(*strangers) & frozenset().union(*(places(one) for one in new.values())):
            return "GPUs of a job that it does not know"
        # "It needs a pool, a node or a GPU that the cluster no longer has."
        cluster = Cluster({"cluster": self.document()["cluster"], "jobs": []})
        pools = {name: {n: cluster.nodes[n]["gpus"] for n in p.nodes} for name, p in cluster.pools.items()}
        for one in filter(None, new.values()):
            nodes = pools.get(one["pool"], {})
            if any(max(gpus) >= nodes.get(node, 0) for node, gpus in one["nodes"].items()):
                return "a GPU that is no longer there"
        # "Of the jobs that the decision knows, those that run hold its GPUs then, and the others none"
        for name in mine:
            self.jobs[name].pop("current", None)
            self.held_at.pop(name, None)  # what is applied replaces what was told
            if new[name]:
                self.jobs[name]["current"] = new[name]
        return ""


def places(now: dict | None) -> frozenset:
    return frozenset((n, i) for n, gpus in ((now or {}).get("nodes") or {}).items() for i in gpus)


def taken(one: dict) -> dict:
    return {k: one[k] for k in ("gpus", "pool", *SETTINGS, "nodes") if one.get(k) is not None}


def change_of(now: dict | None, one: dict | None) -> str | None:
    # "`start`, `stop`, `resize`, `move` to other GPUs [...], or another `setting` on the same GPUs"
    if one is None or now is None:
        return "stop" if now else "start" if one else None
    if one["gpus"] != now["gpus"]:
        return "resize"
    if (now.get("nodes") and places(one) != places(now)) or one["pool"] != now["pool"]:
        return "move"
    return "setting" if any(one.get(s) != now.get(s) for s in SETTINGS) else None


class History:
    """Random calls, each of which fits what was told before, or has one fault."""

    def __init__(self, seed: int):
        self.r = r = random.Random(seed)
        self.cluster = a_cluster(r)
        self.types = sorted({n["gpu_type"] for n in self.cluster["nodes"]})
        self.tables = {f"t{k}": as_columns(a_table(r, self.types, False, 1.0)) for k in range(2)}
        self.given = {"objective": r.choice(OBJECTIVES), "round_s": number(r, 60, 1200)}
        if self.given["objective"] == "carbon":
            self.given["carbon_g_per_kwh"] = number(r, 1, 600)
        if self.given["objective"] == "money":
            self.given["price_per_kwh"] = number(r, 0.01, 1)
        self.names = 0

    def calls(self, told: Told) -> list:
        """The next few calls: `[name, arguments]`."""
        r, calls = self.r, []
        kinds = [
            "upsert",
            "upsert",
            "change",
            "held",
            "update",
            "update",
            "nodes",
            "remove",
            "solve",
            "solve",
        ]
        kind = r.choice(kinds) if told.jobs else "upsert"
        if kind == "upsert":
            calls.append(["upsert", *self.some_jobs(told)])
        elif kind == "change":
            calls.append(["upsert", *self.changes(told)])
        elif kind == "held":
            calls.append(["upsert", *self.held(told)])
        elif kind == "update":
            calls.append(["update", self.limits(told)])
        elif kind == "nodes":
            calls.append(["update", self.node_news(told)])
        elif kind == "remove":
            calls.append(["remove", r.sample(sorted(told.jobs), r.randint(1, min(2, len(told.jobs))))])
        else:
            calls.append(["solve"])
            if some(r, 0.7):
                calls.append(["apply", -1])
        if some(r, 0.05):
            calls.append(["apply", r.choice([-1, -2])])
        return calls

    def some_jobs(self, told: Told) -> tuple[list, dict]:
        r = self.r
        count = r.choice([1, 1, 2, 3]) if len(told.jobs) < 4 else 1
        ids = [f"j{self.names + k}" for k in range(count)]
        self.names += count
        if told.jobs and (some(r, 0.1) or len(told.jobs) > 4):  # one that is there gets other options
            ids = [r.choice(sorted(told.jobs))]
        given: dict = {}
        if some(r, 0.4):
            given["options"] = [r.choice(["t0", "t1"]) for _ in ids]
        else:
            batches = some(r, 0.3)
            rows = [a_table(r, self.types, batches, 1.0) for _ in ids]
            keys = set.intersection(*(set(row) for table in rows for row in table))
            rows = [unique([{k: row[k] for k in row if k in keys} for row in table]) for table in rows]
            flat = [row for table in rows for row in table]
            given = as_columns(flat)
            if len({*given["pool"]}) == 1 and some(r, 0.5):
                given["pool"] = given["pool"][0]
            ends = [sum(map(len, rows[:k])) for k in range(len(ids) + 1)]
            if len(ids) > 1 or some(r, 0.5):
                given["start"] = ends
        given["remaining_work"] = [number(r, 50, 6000) for _ in ids]
        if some(r, 0.4):
            given["restart_s"] = [number(r, 0, 200) for _ in ids]
        if some(r, 0.3):
            given["weight"] = [r.choice([0.5, 1.0, 2.0, 10.0]) for _ in ids]
        if some(r, 0.2):
            given["deadline_s"] = [number(r, 100, 8000) for _ in ids]
        if some(r, 0.15):
            given["max_gpus"] = [r.choice([1, 2, 4]) for _ in ids]
        if some(r, 0.1):
            given["can_wait"] = [some(r, 0.5) for _ in ids]
        if told.fields.get("tenants") and some(r, 0.7):
            given["tenant"] = [r.choice(["x", "y"]) for _ in ids]
        if some(r, 0.15):
            given["change_cost"] = [round(10 ** r.uniform(-3, 3), 3) for _ in ids]
        return ids, given

    def changes(self, told: Told) -> tuple[list, dict]:
        r = self.r
        ids = r.sample(sorted(told.jobs), r.randint(1, len(told.jobs)))
        key, value = r.choice(
            [
                ("remaining_work", lambda: number(r, 10, 6000)),
                ("weight", lambda: r.choice([1e-6, 0.5, 1.0, 3.0, -1.0 if some(r, 0.3) else 2.0])),
                ("deadline_s", lambda: number(r, 50, 8000)),
                ("restart_s", lambda: number(r, 0, 300)),
                ("preemptible", lambda: some(r, 0.5)),
                ("can_wait", lambda: some(r, 0.6)),
                ("min_gpus", lambda: r.choice([1, 1, 2])),
            ]
        )
        return ids, {key: [value() for _ in ids]}

    def held(self, told: Told) -> tuple[list, dict]:
        """What some jobs hold: nothing, or free GPUs of a pool."""
        r = self.r
        ids = r.sample(sorted(told.jobs), r.randint(1, min(2, len(told.jobs))))
        pool_of = Round(told.document() | {"jobs": [], "sets": []}).pool_of
        others = [
            places(j.get("current")) for name, j in told.jobs.items() if name not in ids or some(r, 0.05)
        ]
        free = {(n["name"], i) for n in told.cluster["nodes"] for i in range(n["gpus"])}
        free = sorted(free.difference(*others))
        held: list = []
        for _ in ids:
            pool = r.choice(sorted(set(pool_of.values())))
            mine = [gpu for gpu in free if pool_of[gpu[0]] == pool]
            count = r.choice([1, 1, 2, 2, 3, 4])
            if some(r, 0.25) or len(mine) < count:
                held.append(None)
                continue
            start = r.choice(range(0, len(mine) - count + 1, count))
            gpus = mine[start : start + count]
            free = [gpu for gpu in free if gpu not in gpus]
            nodes = {n: [i for m, i in gpus if m == n] for n in sorted({n for n, _ in gpus})}
            held.append({"gpus": count, "pool": pool, "nodes": nodes})
        return ids, {"held": held}

    def limits(self, told: Told) -> dict:
        r, given = self.r, {}
        gpus = sum(n["gpus"] for n in told.cluster["nodes"])
        base = sum(n.get("base_power_w", 0) + n.get("reserved_w", 0) for n in told.cluster["nodes"])
        watts = max(1.0, base + gpus * r.choice([20.0, 60.0, 100.0, 150.0, 250.0]))
        kind = r.randrange(8)
        if kind == 0:
            given["power_w"] = None if some(r, 0.4) else watts
        elif kind == 1:
            given["energy_j"] = None if some(r, 0.4) else watts * told.fields["round_s"] * r.uniform(0.4, 1.2)
        elif kind == 2:
            given |= {"carbon_g_per_kwh": 300.0, "carbon_g": watts * told.fields["round_s"] / 12_000}
            given = {"carbon_g": None} if some(r, 0.3) else given
        elif kind == 3:
            given["least_goodput"] = None if some(r, 0.5) else number(r, 0.1, 3)
        elif kind == 4:
            given["scope"] = r.choice(["round", "completion"])
        elif kind == 5:
            given["objective"] = r.choice(OBJECTIVES)
        elif kind == 6:
            given["round_s"] = number(r, 60, 1200)
            given["change_cost"] = round(10 ** r.uniform(-3, 3), 3)
        else:
            document = {"jobs": [], **({"carbon_g_per_kwh": 1} if "carbon_g_per_kwh" in told.fields else {})}
            tenants(r, document)
            given["tenants"] = document["tenants"]
        return given

    def node_news(self, told: Told) -> dict:
        r = self.r
        node = r.choice(told.cluster["nodes"])
        kind = r.randrange(6)
        if kind < 2:
            return {"down": [node["name"]]}
        if kind == 2 and told.down:
            return {"up": r.sample(sorted(told.down), 1)}
        if kind == 3:
            return {
                "unavailable": {
                    node["name"]: sorted(r.sample(range(node["gpus"]), r.randint(0, node["gpus"])))
                }
            }
        if kind == 4:
            names = [n["name"] for n in told.cluster["nodes"] + told.cluster.get("power_domains", [])]
            return {"reserved_w": {r.choice(names): r.choice([0.0, 50.0, 120.0])}}
        return {"cluster": a_cluster(r)} if some(r, 0.3) else {"up": sorted(told.down)}


def unique(rows: list[dict]) -> list[dict]:
    known = {tuple(v for k, v in row.items() if k not in ("power_w", "rate")): row for row in rows}
    return list(known.values())
