"""Random small rounds of `sizing`, as plain JSON documents, that have a bit of everything."""

import random

OBJECTIVES = ("total-completion", "progress", "makespan", "max-min", "proportional", "goodput", "work-value")
OBJECTIVES += ("energy", "carbon", "money")


def some(r: random.Random, share: float) -> bool:
    return r.random() < share


def number(r: random.Random, least: float, most: float) -> float:
    """Often a round number, so that ties and limits that are just met occur."""
    x = r.uniform(least, most)
    return float(round(x)) if most > 5 and some(r, 0.7) else round(x, 3)


def a_cluster(r: random.Random) -> dict:
    types = ["A"] if some(r, 0.6) else ["A", "B"]
    sleeping, equal = some(r, 0.3), some(r, 0.5)
    groups = [{"name": f"g{k}"} for k in range(r.choice([0, 0, 1, 2]))]
    if len(groups) == 2 and some(r, 0.4):
        groups[1]["parent"] = "g0"
    nodes = []
    left = 11
    base, size = number(r, 0, 300), r.choice([1, 2, 4, 3])
    for k in range(r.randint(1, 4)):
        gpus = size if equal else r.choice([1, 2, 2, 3, 4, 4, 6, 8])
        if gpus > left:
            break
        left -= gpus
        node = {"name": f"n{k}", "gpu_type": r.choice(types), "gpus": gpus}
        if equal or some(r, 0.6):
            node["base_power_w"] = base if equal else number(r, 0, 300)
        if groups and some(r, 0.7):
            node["parent"] = r.choice(groups)["name"]
        if sleeping and (equal or some(r, 0.8)):
            node["sleeps"] = True
        if some(r, 0.12):
            node["unavailable"] = sorted(r.sample(range(gpus), r.randint(1, gpus)))
            if some(r, 0.5):
                node["reserved_w"] = number(r, 0, 200)
        elif some(r, 0.05):
            node["reserved_w"] = number(r, 0, 200)
        nodes.append(node)
    used = {n["gpu_type"] for n in nodes}
    if some(r, 0.08):  # a pool with a name of its own
        alike = [n for n in nodes if (n["gpu_type"], n["gpus"]) == (nodes[0]["gpu_type"], nodes[0]["gpus"])]
        for node in r.sample(alike, r.randint(1, len(alike))):
            node["pool"] = "special"
    cluster = {"gpu_types": {t: {"idle_power_w": number(r, 0, 60)} for t in types}, "nodes": nodes}
    if groups:
        cluster["groups"] = groups
    kinds = ["blocks", "nodes", "count"]
    if some(r, 0.6):
        cluster["capacity"] = r.choice(kinds)
    elif some(r, 0.5):
        cluster["capacity"] = {t: r.choice(kinds) for t in used if some(r, 0.8)}
    if some(r, 0.25):
        members = [n["name"] for n in nodes] + [g["name"] for g in groups]
        cluster["power_domains"] = []
        for k in range(r.choice([1, 1, 2])):
            domain = {"name": f"d{k}", "members": r.sample(members, r.randint(1, min(2, len(members))))}
            domain["power_cap_w"] = number(r, 500, 3000)
            if some(r, 0.3):
                domain["reserved_w"] = number(r, 0, 100)
            cluster["power_domains"].append(domain)
    return cluster


def a_table(r: random.Random, types: list[str], batches: bool, scale: float, most: int = 8) -> list[dict]:
    rows: dict[tuple, dict] = {}
    clocks, limits = some(r, 0.4), some(r, 0.15)
    for _ in range(r.choice([1, 2, 2, 3, 3, 4])):
        counts = [1, 1, 2, 2, 3, 3, 4, 4, 5, 6, 8, 16]
        counts = [g for g in counts if g <= most] if some(r, 0.93) else counts
        row = {"gpus": r.choice(counts), "pool": r.choice(types)}
        row["power_w"] = number(r, 0 if some(r, 0.15) else 50, 400) * row["gpus"]
        row["rate"] = scale * round(row["gpus"] ** r.uniform(0.3, 1.0), 2)
        if clocks:
            row["frequency_mhz"] = r.choice([900, 1400])
        if limits:
            row["power_limit_w"] = r.choice([200.0, 300.0])
        if batches:
            row["batch_size"] = r.choice([32, 64])
        rows[tuple(v for k, v in row.items() if k not in ("power_w", "rate"))] = row
    return list(rows.values())


def job_gpus(cluster: dict, name: str, pool_of: dict) -> int:
    """What a job may well have of a pool or GPU type."""
    mine = [n for n in cluster["nodes"] if name in (n["gpu_type"], pool_of[n["name"]])]
    return sum(n["gpus"] - len(n.get("unavailable", [])) for n in mine) * 2 // 3


def as_columns(rows: list[dict]) -> dict:
    return {key: [row[key] for row in rows] for key in rows[0]}


def a_round(seed: int, pools_of=None) -> dict:
    """An instance; `pools_of` names the pools of a document's nodes, for what jobs hold now."""
    r = random.Random(seed)
    cluster = a_cluster(r)
    types = sorted({n["gpu_type"] for n in cluster["nodes"]})
    wild = some(r, 0.25)  # figures of all magnitudes
    scale = 10 ** r.uniform(-4, 6) if wild else 1.0
    document = {"objective": r.choice(OBJECTIVES), "cluster": cluster, "jobs": [], "tables": {}}
    document["round_s"] = 10 ** r.uniform(-3, 9) if wild and some(r, 0.3) else number(r, 60, 3600)
    if some(r, 0.5) or document["objective"] == "carbon":
        document["carbon_g_per_kwh"] = 10 ** r.uniform(-6, 6) if wild else number(r, 0, 800)
    if some(r, 0.2) or document["objective"] == "money":
        document["price_per_kwh"] = number(r, 0, 1)
    if some(r, 0.25):
        document["change_cost"] = round(10 ** r.uniform(-3, 9 if wild else 4), 3)
    tables: dict[str, list[dict]] = {}
    free = {(n["name"], i) for n in cluster["nodes"] for i in range(n["gpus"])}
    free -= {(n["name"], i) for n in cluster["nodes"] for i in n.get("unavailable", []) if some(r, 0.9)}
    pool_of = pools_of(document | {"jobs": []})
    for k in range(r.choice([0, 1, 2, 2, 2, 3, 3, 3, 3, 4, 4, 5, 5]) if some(r, 0.5) else 3):
        job = {"name": f"j{k}"}
        batches = some(r, 0.3)
        names = types if some(r, 0.85) else sorted(set(pool_of.values()))
        of = {g for g in (job_gpus(cluster, name, pool_of) for name in names)}
        rows = a_table(r, names, batches, scale, max(1, min(of)))
        job["remaining_work"] = number(r, 50, 8000) * (10 ** r.uniform(-3, 5) if wild else 1.0)
        if tables and some(r, 0.25):
            job["options"] = r.choice(list(tables))
            rows = tables[job["options"]]
        elif some(r, 0.3):
            tables[f"t{k}"], job["options"] = rows, f"t{k}"
        else:
            job["options"] = rows if some(r, 0.5) else as_columns(rows)
        if some(r, 0.5):
            job["weight"] = 10 ** r.uniform(-6, 6) if wild else r.choice([0.5, 1, 2, 3, 10])
        if some(r, 0.2):
            row = r.choice(rows)
            job["deadline_s"] = job["remaining_work"] / row["rate"] * r.choice([0.5, 0.9, 1, 1, 1.2, 3])
            job["deadline_s"] += r.choice([0, 0, document["round_s"]])
        if some(r, 0.15):
            job["max_gpus"] = r.choice([1, 2, 4])
        if some(r, 0.1):
            job["min_gpus"] = r.choice([1, 2])
            job["min_gpus"] = min(job["min_gpus"], job.get("max_gpus", 9))
        if some(r, 0.1):
            job["pools"] = [r.choice(types + sorted(set(pool_of.values())))]
        if some(r, 0.5):
            job["restart_s"] = number(r, 0, 300)
        if some(r, 0.25):
            job["change_cost"] = round(10 ** r.uniform(-3, 4), 3) if some(r, 0.8) else 0
        if some(r, 0.06):
            job["can_wait"] = False
        if some(r, 0.5):
            hold(r, job, rows, free, pool_of, cluster)
        document["jobs"].append(job)
    document["tables"] = {name: as_columns(rows) for name, rows in tables.items()}
    if some(r, 0.3):
        tenants(r, document)
    if len(document["jobs"]) > 1 and some(r, 0.35):
        document["sets"] = sets(r, document, types, pool_of, scale)
    document["budgets"] = budgets(r, document)
    return document


def at_a_negative_price(seed: int, document: dict) -> dict:
    """Return the round with prices below 0, at which it is best to draw most."""
    r = random.Random(-seed - 2)
    return document | {"objective": "money", "price_per_kwh": -number(r, 0, 1)}


def hold(r, job, rows, free, pool_of, cluster) -> None:
    """Gives the job GPUs now: mostly those of one of its options, at an aligned place."""
    row = r.choice(rows)
    count = row["gpus"] if some(r, 0.9) else r.choice([1, 2])
    of = {n["name"]: n["gpu_type"] for n in cluster["nodes"]}
    names = [n for n in of if row["pool"] in (of[n], pool_of[n])]
    pool = pool_of[r.choice(names)] if names else None
    mine = sorted(gpu for gpu in free if pool_of[gpu[0]] == pool)
    block = 1 << (count - 1).bit_length()
    starts = [s for s in range(0, len(mine), block if some(r, 0.9) else 1) if s + count <= len(mine)]
    if not starts:
        return
    start = r.choice(starts)
    gpus = mine[start : start + count]
    job["current"] = {"gpus": count, "pool": pool}
    for key in ("frequency_mhz", "power_limit_w", "batch_size"):
        if key in row and some(r, 0.95):
            job["current"][key] = row[key]
    if some(r, 0.3):  # anywhere, in any order
        gpus = r.sample(mine, count)
    if some(r, 0.85):
        free -= set(gpus)
        job["current"]["nodes"] = {n: [i for m, i in gpus if m == n] for n in {n for n, _ in gpus}}
        if some(r, 0.2):
            job["preemptible"] = False


def tenants(r, document) -> None:
    document["tenants"] = {}
    for name in ("x", "y"):
        t = document["tenants"][name] = {}
        if some(r, 0.3):
            t["weight"] = r.choice([0.5, 2])
        if some(r, 0.7):
            t["gpus"] = r.choice([0, 1, 2, 2, 3, 4, 6])
            if some(r, 0.6):
                t["cohort"] = "c"
                if some(r, 0.5):
                    t["borrow_gpus"] = r.choice([0, 1, 2])
        if some(r, 0.2):
            t["power_w"] = number(r, 100, 1500)
        if some(r, 0.2):
            t["energy_j"] = number(r, 1e5, 1e6)
        if some(r, 0.1) and "carbon_g_per_kwh" in document:
            t["carbon_g"] = number(r, 1, 100)
    for job in document["jobs"]:
        if some(r, 0.8):
            job["tenant"] = r.choice(["x", "y"])
            weight = job.get("weight", 1) * document["tenants"][job["tenant"]].get("weight", 1)
            if not 1e-6 <= weight <= 1e6:
                del job["tenant"]


def sets(r, document, types, pool_of, scale) -> list[dict]:
    made = []
    for k in range(r.choice([1, 1, 2, 3])):
        may = [j for j in document["jobs"] if j.get("preemptible", True)]
        if len(may) < 2:
            break
        jobs = r.sample(may, min(len(may), r.choice([2, 2, 2, 3])))
        least = max(j.get("min_gpus", 1) for j in jobs)
        gpus = r.choice([1, 1, 2, 2, 4, 3])
        if not least <= gpus <= min(j.get("max_gpus", 99) for j in jobs):
            continue
        s = {"name": f"s{k}", "pool": r.choice(types + sorted(set(pool_of.values()))), "gpus": gpus}
        s["power_w"] = number(r, 60, 450) * gpus
        if some(r, 0.2):
            s["frequency_mhz"] = 1200
        s["rates"] = {
            j["name"]: scale * round(gpus ** r.uniform(0.3, 1) * r.uniform(0.3, 1.1), 2) for j in jobs
        }
        made.append(s)
        if some(r, 0.4):
            share(r, document, jobs, s)
    return made


def share(r, document, jobs, s) -> None:
    """The jobs of a set run together now: "the same `set` (any name) and hold the same GPUs"."""
    running = [j for j in jobs if j.get("current", {}).get("nodes") and "set" not in j["current"]]
    if not running:
        return
    now = running[0]["current"]
    for job in jobs:
        batch = {k: v for k, v in job.get("current", {}).items() if k == "batch_size"}
        if "set" in job.get("current", {}):
            return
        job["current"] = {k: v for k, v in now.items() if k != "batch_size"} | batch | {"set": s["name"]}
        if batch and some(r, 0.7):
            s.setdefault("batch_sizes", {})[job["name"]] = batch["batch_size"]


def budgets(r, document) -> dict:
    made, nodes = {}, document["cluster"]["nodes"]
    gpus = sum(n["gpus"] for n in nodes)
    base = sum(n.get("base_power_w", 0) + n.get("reserved_w", 0) for n in nodes)
    watts = base + gpus * r.choice([40, 80, 100, 150, 200, 250])
    if some(r, 0.2):
        return made
    if some(r, 0.4):
        made["power_w"] = float(max(1, round(watts)))
    if some(r, 0.3):
        made["scope"] = "completion"
    seconds = document["round_s"] if "scope" not in made else r.choice([300, 1000, 5000])
    if some(r, 0.3):
        made["energy_j"] = float(max(1, round(watts * seconds * r.uniform(0.6, 1.3))))
    if some(r, 0.15) and document.get("carbon_g_per_kwh"):
        made["carbon_g"] = watts * seconds * r.uniform(0.6, 1.3) * document["carbon_g_per_kwh"] / 3.6e6
    wants = document["objective"] in ("energy", "carbon", "money")
    if some(r, 0.8 if wants else 0.1):
        made["least_goodput"] = number(r, 0.1, 2.5)
    return made


def tighten(seed: int, document: dict, uses_of) -> dict:
    """Budgets that one decision just keeps, or just does not; `uses_of` says what a random decision uses."""
    r = random.Random(-seed - 1)
    rows = {"power_w": 1e17, "energy_j": 1e17, "carbon_g": 1e17, "least_goodput": 1e-9}
    rows = {
        k: v
        for k, v in rows.items()
        if some(r, 0.6) and (k != "carbon_g" or document.get("carbon_g_per_kwh"))
    }
    rows["scope"] = r.choice(["round", "completion"])
    document = document | {"budgets": rows}
    used = uses_of(document, r)
    for name, use in used.items():
        if use <= 0:
            del rows[name]
        else:
            more = name == "least_goodput"
            slack = r.choice([0.0, 0.0, 0.0, 1e-4, -1e-4, 0.05, 0.2])
            rows[name] = use * (1 - slack if more else 1 + slack)
    return document
