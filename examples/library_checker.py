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
    nodes, kinds = {n["name"]: n for n in cluster["nodes"]}, cluster["gpu_types"]
    domains = cluster.get("power_domains", [])
    runs = {one["job"]: one for one in decision["jobs"]}
    assert sorted([*runs, *decision["waiting"]]) == sorted(j["name"] for j in instance["jobs"])
    taken = [(n, gpu) for one in runs.values() for n, gpus in one["nodes"].items() for gpu in gpus]
    assert len(taken) == len(set(taken)), "a GPU is taken twice"
    assert all(0 <= gpu < nodes[n]["gpus"] and gpu not in nodes[n].get("unavailable", ()) for n, gpu in taken)
    room = Counter()  # GPUs of each pool: nodes of one type in the same power domains
    for n in nodes.values():
        room[n["gpu_type"], n.get("parent") if domains else None] += n["gpus"]
    sizes = [(kind, gpus) for (kind, _), gpus in room.items()]
    idle_w = {name: kind["idle_power_w"] for name, kind in kinds.items()}
    drawn_w = {
        name: n.get("base_power_w", 0.0) + idle_w[n["gpu_type"]] * (n["gpus"] - len(n.get("unavailable", ())))
        for name, n in nodes.items()
    }
    value, round_j, completion_j = 0.0, sum(drawn_w.values()) * round_s, 0.0
    for job in instance["jobs"]:
        one, held, work = runs.get(job["name"]), job.get("current"), job.get("remaining_work", 1.0)
        table = instance["tables"][job["options"]] if isinstance(job["options"], str) else job["options"]
        rows = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
        fewest, most = job.get("min_gpus") or 1, job.get("max_gpus") or math.inf
        # A job takes a block of the next power of two, which a pool of its type must have.
        widest = {p: max(size for kind, size in sizes if p.startswith(kind)) for p in set(table["pool"])}
        rows = [r for r in rows if fewest <= r["gpus"] <= most]
        rows = [r for r in rows if 1 << (r["gpus"] - 1).bit_length() <= widest[r["pool"]]]
        restart_s = job.get("restart_s", 0.0) if held else 0.0
        done_s, speed = round_s + min(work / r["rate"] for r in rows) + restart_s, 0.0
        used_j = min(r["power_w"] * (work / r["rate"] + restart_s) for r in rows)
        if one:
            [kind] = {nodes[n]["gpu_type"] for n in one["nodes"]}
            assert sum(map(len, one["nodes"].values())) == one["gpus"]
            mine = [r for r in rows if r["pool"] in (kind, one["pool"])]
            [row] = [r for r in mine if all(r.get(s) == one.get(s) for s in SETTINGS)]
            stays = held and all(held.get(s) == one.get(s) for s in ("gpus", "batch_size", "pool"))
            lost_s = 0.0 if stays else restart_s
            done_s = work / row["rate"] + lost_s
            reference = max(r["rate"] for r in rows if r["gpus"] == min(q["gpus"] for q in rows))
            speed = row["rate"] / reference * max(0.0, 1.0 - lost_s / round_s)
            for n, gpus in one["nodes"].items():
                drawn_w[n] += len(gpus) * (row["power_w"] / row["gpus"] - idle_w[kind])
            round_j += (row["power_w"] - row["gpus"] * idle_w[kind]) * min(done_s, round_s)
            used_j = row["power_w"] * done_s
        assert one or job.get("can_wait", True), f"{job['name']} waits although it may not"
        assert done_s <= (job.get("deadline_s") or math.inf) * (1 + 1e-9), f"{job['name']} is late"
        completion_j, weight = completion_j + used_j, job.get("weight", 1.0)
        worth = {"total-completion": weight * done_s, "goodput": weight * speed}
        worth["progress"] = 3600.0 * weight / done_s if one else 0.0
        value += worth[instance["objective"]]
    budgets = instance.get("budgets", {})
    joules = completion_j if budgets.get("scope") == "completion" else round_j
    caps = [(sum(drawn_w.values()), budgets.get("power_w")), (joules, budgets.get("energy_j"))]
    for domain in domains:
        inside = (n for n in nodes if {n, nodes[n].get("parent")} & {*domain["members"]})
        caps.append((sum(drawn_w[n] for n in inside), domain["power_cap_w"]))
    assert all(cap is None or used <= cap * (1 + 1e-6) for used, cap in caps), "a cap or budget is exceeded"
    return value, sum(drawn_w.values()), joules


if __name__ == "__main__":
    instance, result = (json.loads(Path(name).read_text(encoding="utf-8")) for name in sys.argv[1:3])
    value, watts, joules = check(instance, result["decision"])
    assert math.isclose(value, result["objective"], rel_tol=1e-6), f"worth {value}, not {result['objective']}"
    print(f"valid: {instance['objective']} {value:.8g}, {watts:.8g} W, {joules:.8g} J")
