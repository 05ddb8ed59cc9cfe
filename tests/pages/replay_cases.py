"""Random clusters, caps and traces for `wattsched replay`, small enough to be followed by hand."""

import json
import random
from math import inf
from pathlib import Path
from typing import Any

from tests.pages.pages_cluster import Cluster, power_of_two
from tests.pages.replay_signals import a_signal, date_of, write_signal

Case = dict[str, Any]
GPU_COUNTS = (1, 1, 2, 2, 3, 4, 4, 8)


def a_case(seed: int) -> Case:
    """Draw a case; every fourth has one way to run each job, so that its schedule can be computed."""
    r = random.Random(seed)
    case: Case = {"seed": seed, "plain": seed % 4 == 0, "catalogue": seed % 4 == 3 and r.random() < 0.5}
    case["cluster"] = a_cluster(r, case["plain"], case["catalogue"])
    cluster = Cluster({"cluster": case["cluster"], "jobs": []})
    widest = max(len(block) for pool in cluster.pools.values() for block in usable(pool))
    case["tables"] = {f"t{i}": a_table(r, case, cluster) for i in range(r.randint(1, 3))}
    case["jobs"] = the_jobs(r, case, widest)
    case["options"] = some_options(r, case)
    case["power_w"] = case["site_w"] = None
    set_caps(r, case, cluster)
    case["signal"] = a_signal(seed, case, cluster, lambda r, pools: a_cap(r, case, cluster, pools))
    return case


def usable(pool: Any) -> list[frozenset]:
    """The aligned blocks of a pool without unavailable GPUs."""
    sizes = [1 << k for k in range(12)]
    return [block for size in sizes for block in pool.aligned(size) if block <= pool.free]


def a_cluster(r: random.Random, plain: bool, catalogue: bool) -> Case:
    names = ["A100", "V100"] if catalogue else ["V", "W", "X"]
    names = names[: 1 if plain else r.randint(1, len(names))]
    types = {name: {"idle_power_w": round(r.uniform(10, 60), 2)} for name in names}
    groups = [{"name": "site"}] + [{"name": f"r{i}", "parent": "site"} for i in range(r.randint(1, 2))]
    nodes = []
    for i in range(r.randint(1, 4)):
        node = {"name": f"n{i}", "gpu_type": names[i % len(names)], "gpus": r.choice((4, 4, 4, 8, 2))}
        node |= {
            "parent": r.choice(groups)["name"],
            "base_power_w": round(r.choice((0, r.uniform(0, 400))), 2),
        }
        if r.random() < 0.2 and not catalogue:
            node["unavailable"] = [r.randrange(node["gpus"])]
        nodes.append(node)
    if plain:
        nodes = [node | {"gpus": nodes[0]["gpus"]} for node in nodes]
        nodes = [node | {"unavailable": []} for node in nodes]
    domains = some_domains(r, plain, [entry["name"] for entry in nodes + groups])
    return {"gpu_types": types, "nodes": nodes, "groups": groups, "power_domains": domains}


def a_table(r: random.Random, case: Case, cluster: Cluster) -> dict[str, list]:
    """Draw the options of a kind of job: all of one count, pool and clock where the case is plain."""
    rows = []
    for name, kind in case["cluster"]["gpu_types"].items():
        if rows and r.random() < 0.3:
            continue
        room = [len(b) for p in cluster.matching(name) for b in usable(p)]
        counts = sorted({g for g in GPU_COUNTS if power_of_two(g) <= max(room, default=0)})
        clocks = [1000] if case["plain"] or r.random() < 0.5 else [600, 800, 1000]
        speed, watts, scaling = r.uniform(0.3, 3), r.uniform(40, 400), r.uniform(0.5, 1)
        if case["plain"]:  # blocks of one size, which do not break up what is free
            block = case.setdefault("block", power_of_two(r.choice(counts)))
            counts = [r.choice([g for g in counts if power_of_two(g) == block])]
        for gpus in counts:
            for clock in clocks:
                draw = kind["idle_power_w"] * r.uniform(0.9, 1.2) + watts * (clock / 1000) ** 2.5
                rate = speed * gpus**scaling * (clock / 1000) ** 0.6
                rows.append((gpus, name, round(gpus * draw, 3), round(rate, 6), clock))
    columns = ("gpus", "pool", "power_w", "rate", "frequency_mhz")
    return {column: [row[i] for row in rows] for i, column in enumerate(columns)}


def the_jobs(r: random.Random, case: Case, widest: int) -> list[Case]:
    """Draw bursts of jobs that last from seconds to days, in the order of arrival."""
    jobs, now, gap = [], 0.0, 10 ** r.uniform(0, 4)
    for i in range(r.randint(2, 12)):
        now += r.choice((0.0, 0.0, r.expovariate(1 / gap))) if i else 0.0
        job = {"job": f"j{i:02}", "arrival_s": round(now, 3), "duration": round(10 ** r.uniform(0.3, 4.3), 3)}
        if r.random() < 0.02:
            job["duration"] *= 10
        table = r.choice(sorted(case["tables"]))
        options = case["tables"][table]
        asked = r.choice(options["gpus"] or [1])
        if case["catalogue"]:
            asked, job["duration"] = (
                r.choice([g for g in GPU_COUNTS if power_of_two(g) <= widest]),
                int(job["duration"]) + 1,
            )
        rate = max(
            (s for g, s in zip(options["gpus"], options["rate"], strict=True) if g == asked), default=1.0
        )
        job |= {"table": table, "requested_gpus": asked, "work": round(job["duration"] * rate, 6)}
        jobs.append(job)
    return jobs


def some_options(r: random.Random, case: Case) -> dict[str, float]:
    options = {"--round": r.choice((0, 0, 60, 7)), "--process-restart": r.choice((10, 10, 0, 75.5))}
    options |= {"--pod-restart": r.choice((60, 5)), "--carbon": r.choice((0, 312.5))}
    if case["catalogue"]:
        options["--elasticity"] = r.choice((1, 4))
    if r.random() < 0.15:
        options |= {
            "--sleep-after": r.choice((0, 30, 600)),
            "--sleep-power": r.choice((0, 3.25)),
            "--wake": 20,
        }
    return options


def some_domains(r: random.Random, plain: bool, names: list[str]) -> list[Case]:
    """Draw domains side by side, nested or overlapping; over everything where the case is plain."""
    count = r.choice((0, 1) if plain else (0, 0, 1, 2, 3))
    members = [["site"] if plain else r.sample(names, r.randint(1, min(2, len(names)))) for _ in range(count)]
    return [
        {"name": f"d{i}", "members": mine, "power_cap_w": 1e9, "reserved_w": r.choice((0, 0, 41.5))}
        for i, mine in enumerate(members)
    ]


def set_caps(r: random.Random, case: Case, cluster: Cluster) -> None:
    """Draw caps of the site and of domains, from the idle draw to beyond the full draw."""
    for domain in case["cluster"]["power_domains"]:
        pools = [pool for pool in cluster.pools if domain["name"] in cluster.feeds[pool]]
        domain["power_cap_w"] = domain["reserved_w"] + a_cap(r, case, cluster, pools)
    if r.random() < 0.7:
        case[r.choice(("power_w", "site_w"))] = a_cap(r, case, cluster, list(cluster.pools))
    if r.random() < 0.1:
        case["power_w"] = case["site_w"] = a_cap(r, case, cluster, list(cluster.pools))


def a_cap(r: random.Random, case: Case, cluster: Cluster, pools: list[str]) -> float:
    """Draw a cap on pools: rarely below idle, mostly between that and the full draw, sometimes above."""
    idle = cluster.standing_w(pools)
    options = [
        (gpus, power - gpus * case["cluster"]["gpu_types"][name]["idle_power_w"])
        for table in case["tables"].values()
        for gpus, name, power in zip(table["gpus"], table["pool"], table["power_w"], strict=True)
    ]
    if r.random() < 0.15 and not case["catalogue"]:  # what one or two jobs need, to the last digit
        return round(idle + sum(max(0.0, r.choice(options)[1]) for _ in range(r.randint(1, 2))), 3)
    most = 350.0 if case["catalogue"] else max([watts / gpus for gpus, watts in options] + [50.0])
    free = sum(len(cluster.pools[pool].free) for pool in pools)
    shares = [r.uniform(0, 0.3), r.uniform(0.1, 1), r.uniform(0.1, 1), r.uniform(0.4, 0.8), 1.5]
    share = -0.01 if r.random() < 0.03 else r.choice(shares)
    added = max(share * most * free, needed(case) if r.random() < 0.6 else -inf)
    return round(max(idle + added, 1.0), 3)


def needed(case: Case) -> float:
    """Draw beyond idle of the job that draws most on the GPUs that it asked for."""
    if case["catalogue"]:
        return 1500.0
    return max(
        power - gpus * case["cluster"]["gpu_types"][name]["idle_power_w"]
        for job in case["jobs"]
        for gpus, name, power, *_ in zip(*case["tables"][job["table"]].values(), strict=True)
        if gpus == job["requested_gpus"]
    )


def write(case: Case, folder: Path) -> list[str]:
    """Write the files of a case, and return the arguments of the command but policies and output."""
    budgets = {"budgets": {"power_w": case["site_w"]}} if case["site_w"] is not None else {}
    document = {"format": "wattsched-instance/1", "jobs": [], "cluster": case["cluster"], **budgets}
    (folder / "cluster.json").write_text(json.dumps(document))
    columns = ("job", "arrival_s", "work", "requested_gpus", "table")
    arguments = ["--cluster", str(folder / "cluster.json")]
    dated = case["catalogue"] and case["signal"] is not None and case["signal"]["dated"]
    if case["signal"] is not None:
        arguments += write_signal(case["signal"], folder)
        arguments += [] if dated else ["--start", case["signal"]["start"]]
    if case["catalogue"]:
        lines = ["job,arrival,duration,gpus"]
        for j in case["jobs"]:
            arrival = date_of(case["signal"], j["arrival_s"]) if dated else j["arrival_s"]
            lines.append(f"{j['job']},{arrival},{j['duration']},{j['requested_gpus']}")
    else:
        (folder / "tables.json").write_text(json.dumps(case["tables"]))
        arguments += ["--tables", str(folder / "tables.json")]
        lines = [",".join(columns)] + [",".join(str(job[c]) for c in columns) for job in case["jobs"]]
    (folder / "trace.csv").write_text("\n".join(lines) + "\n")
    if case["power_w"] is not None:
        arguments += ["--power-w", str(case["power_w"])]
    options = [text for name, value in case["options"].items() for text in (name, str(value))]
    return ["replay", str(folder / "trace.csv"), *arguments, *options]
