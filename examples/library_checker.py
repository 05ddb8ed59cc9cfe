"""Check a decision of a round of `sizing` in plain Python, without wattsched: what it uses, what it is worth.

Of `wattsched library get NAME --mps -o DIR`: python library_checker.py NAME.json NAME.best.json
"""

import json
import math
import sys
from collections import Counter
from pathlib import Path

SETTINGS = ("gpus", "frequency_mhz", "power_limit_w", "batch_size")


def check(instance, decision):
    """Value of a decision and what it draws in W and J; an AssertionError for one that breaks a rule."""
    cluster, round_s = instance["cluster"], instance.get("round_s", 300.0)
    nodes, domains = {n["name"]: n for n in cluster["nodes"]}, cluster.get("power_domains", [])
    kind = {name: n["gpu_type"] for name, n in nodes.items()}
    feeds = {n: [d["name"] for d in domains if {n, nodes[n].get("parent")} & {*d["members"]}] for n in nodes}
    pools = Counter(of for of, *_ in {(kind[n], *feeds[n]) for n in nodes})  # of each GPU type
    pool = {n: f"{kind[n]}@{'+'.join(feeds[n]) or 'none'}" if pools[kind[n]] > 1 else kind[n] for n in nodes}
    room = Counter(pool[n] for n in nodes for _ in range(nodes[n]["gpus"]))
    gpus = {name: {*range(n["gpus"])} - {*n.get("unavailable", ())} for name, n in nodes.items()}
    idle_w = {n: cluster["gpu_types"][kind[n]]["idle_power_w"] for n in nodes}
    drawn_w = {n: nodes[n].get("base_power_w", 0.0) + idle_w[n] * len(gpus[n]) for n in nodes}
    runs = {one["job"]: one for one in decision["jobs"]}
    told = [one["job"] for one in decision["jobs"]] + decision["waiting"]
    assert sorted(told) == sorted(job["name"] for job in instance["jobs"]), "a job is missing, or told twice"
    taken = [(n, gpu) for one in runs.values() for n, ids in one["nodes"].items() for gpu in ids]
    assert len(taken) == len(set(taken)), "a GPU is taken twice"
    assert all(gpu in gpus.get(n, ()) for n, gpu in taken), "a GPU is not there"
    value, round_j, completion_j = 0.0, sum(drawn_w.values()) * round_s, 0.0
    for job in instance["jobs"]:
        one, held, work = runs.get(job["name"]), job.get("current"), job.get("remaining_work", 1.0)
        table = instance["tables"][job["options"]] if isinstance(job["options"], str) else job["options"]
        fewest, most = job.get("min_gpus") or 1, job.get("max_gpus") or math.inf
        rows = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
        # A job takes a block of the next power of two, which a pool must have.
        widest = {p: max(room[q] for q in room if p in (q, q.partition("@")[0])) for p in {*table["pool"]}}
        rows = [r for r in rows if 1 << (r["gpus"] - 1).bit_length() <= widest[r["pool"]]]
        rows = [r for r in rows if fewest <= r["gpus"] <= most]
        lost_s = job.get("restart_s", 0.0) if held else 0.0
        done_s, speed = round_s + min(work / r["rate"] for r in rows) + lost_s, 0.0
        used_j = min(r["power_w"] * (work / r["rate"] + lost_s) for r in rows)
        if one:
            assert {pool[n] for n in one["nodes"]} == {one["pool"]}, f"{job['name']} is not in its pool"
            assert sum(map(len, one["nodes"].values())) == one["gpus"], f"{job['name']} has other GPUs"
            mine = [r for r in rows if r["pool"] in (one["pool"], one["pool"].partition("@")[0])]
            mine = [r for r in mine if all(r.get(s) == one.get(s) for s in SETTINGS)]
            assert mine, f"{job['name']} has no such option"
            watts, rate = mine[0]["power_w"], mine[0]["rate"]
            if held and all(held.get(s) == one.get(s) for s in ("gpus", "batch_size", "pool")):
                lost_s = 0.0
            done_s = work / rate + lost_s
            reference = max(r["rate"] for r in rows if r["gpus"] == min(q["gpus"] for q in rows))
            speed = rate / reference * max(0.0, 1.0 - lost_s / round_s)
            for n, ids in one["nodes"].items():
                added_w = len(ids) * (watts / one["gpus"] - idle_w[n])
                drawn_w[n] += added_w
                round_j += added_w * min(done_s, round_s)
            used_j = watts * done_s
        assert one or job.get("can_wait", True), f"{job['name']} waits although it may not"
        assert done_s <= (job.get("deadline_s") or math.inf) * (1 + 1e-9), f"{job['name']} is late"
        completion_j, weight = completion_j + used_j, job.get("weight", 1.0)
        worth = {"total-completion": weight * done_s, "goodput": weight * speed}
        worth["progress"] = 3600.0 * weight / done_s if one else 0.0
        value += worth[instance["objective"]]
    limits = instance.get("budgets", {})
    joules = completion_j if limits.get("scope") == "completion" else round_j
    caps = [(sum(drawn_w.values()), limits.get("power_w")), (joules, limits.get("energy_j"))]
    for domain in domains:
        caps.append((sum(drawn_w[n] for n in nodes if domain["name"] in feeds[n]), domain["power_cap_w"]))
    assert all(cap is None or used <= cap * (1 + 1e-6) for used, cap in caps), "a cap or budget is exceeded"
    return value, sum(drawn_w.values()), joules


if __name__ == "__main__":
    instance, result = (json.loads(Path(name).read_text(encoding="utf-8")) for name in sys.argv[1:3])
    value, watts, joules = check(instance, result["decision"])
    assert math.isclose(value, result["objective"], rel_tol=1e-6), f"worth {value}, not {result['objective']}"
    print(f"valid: {instance['objective']} {value:.8g}, {watts:.8g} W, {joules:.8g} J")
