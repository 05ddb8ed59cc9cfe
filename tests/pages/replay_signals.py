"""Random signals for `wattsched replay --signal`: limits over time on random cases of replay_cases.py."""

import csv
import json
import random
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from tests.pages.pages_cluster import Cluster

Case = dict[str, Any]
Cap = Callable[[random.Random, list[str]], float]
ZONES = (0, 120, -420, 330)  # minutes
FIELDS = ("power_w", "from", "to", "ramp_w_per_s", "notice_s", "domain", "worth_per_kwh")


def a_signal(seed: int, case: Case, cluster: Cluster, cap: Cap) -> Case | None:
    """Draw a signal for most cases: limits before, within and after the replay, which may overlap."""
    r = random.Random(f"signal {seed}")
    if r.random() < 0.12:
        return None
    start = datetime(2026, 7, 14, 12, 0, tzinfo=timezone(timedelta(minutes=r.choice(ZONES))))
    start += timedelta(seconds=r.choice((0, 0, r.randrange(86400))))
    document: Case = {"format": "wattsched-signal/1", "limits": []}
    kind = r.choice(("json", "json", "csv"))
    ramps = kind == "json" and r.random() < 0.4
    if kind == "json":
        if r.random() < 0.3:
            document["power_w"] = cap(r, list(cluster.pools))
        if ramps or r.random() < 0.5:
            document["baseline_w"] = round(cap(r, list(cluster.pools)) * r.uniform(1, 1.6), 3)
        if r.random() < 0.3:
            document["name"] = "letter"
        if r.random() < 0.1:
            document["until"] = clock(start, r.choice((-3600.0, 1e7)), r)
    for _ in range(r.choice((1, 1, 2, 3, 5))):
        document["limits"].append(a_limit(r, case, cluster, cap, document, start, ramps))
    return {"document": document, "kind": kind, "start": start.isoformat(), "dated": r.random() < 0.5}


def a_limit(
    r: random.Random,
    case: Case,
    cluster: Cluster,
    cap: Cap,
    document: Case,
    start: datetime,
    ramps: bool,
) -> Case:
    begin, end = a_period(r, case)
    limit: Case = {"from": clock(start, begin, r)}
    if end is not None:
        limit["to"] = clock(start, end, r)
    elif r.random() < 0.3:
        limit["to"] = None
    pools, least = list(cluster.pools), 0.0
    domains = case["cluster"]["power_domains"]
    if domains and r.random() < 0.4:
        domain = r.choice(domains)
        pools = [pool for pool in cluster.pools if domain["name"] in cluster.feeds[pool]]
        limit["domain"], least = domain["name"], domain["reserved_w"]
    idle = least + cluster.standing_w(pools)
    share = r.random()
    if share < 0.02:
        watts = idle * r.uniform(0.5, 0.99)
    elif share < 0.3 and end is not None:  # so low that hardly a job runs
        watts = idle + r.choice((0.0, r.uniform(0.0, 60.0)))
    else:
        watts = least + cap(r, pools)
    if r.random() < 0.1:
        limit["worth_per_kwh"], watts = 0.25, idle * 0.7
    of_site = "domain" not in limit  # "without `share` and ramp, which are of the site"
    if watts < 0.999 * document.get("baseline_w", 0.0) and r.random() < 0.6 and of_site:
        limit["share"] = round(watts / document["baseline_w"] + 1e-6, 6)
    else:
        limit["power_w"] = round(watts + 0.001, 3)
    if ramps and r.random() < 0.7 and of_site:
        limit["ramp_w_per_s"] = round(10 ** r.uniform(-1.5, 3), 3)
    if r.random() < 0.2:
        limit["notice_s"] = r.choice((0, 900.0))
    return limit


def a_period(r: random.Random, case: Case) -> tuple[float, float | None]:
    """Draw a period: at round times, at arrivals, anywhere; before the replay, within it, after it."""
    arrivals = [job["arrival_s"] for job in case["jobs"]]
    long = arrivals[-1] + sum(job["duration"] for job in case["jobs"]) / 2
    kind = r.random()
    if kind < 0.08:
        begin = -r.uniform(10.0, 5000.0)
        return round(begin, 3), round(begin * r.uniform(0.0, 0.9), 3)
    if kind < 0.14:
        return round(long * 30 + 1e5, 3), r.choice((None, round(long * 30 + 2e5, 3)))
    begin = r.choice((0.0, r.choice(arrivals), r.uniform(-0.2, 1) * long, 10 ** r.uniform(1, 4.3)))
    if r.random() < 0.3:
        begin = begin // 60 * 60.0
    if kind < 0.22:
        return round(begin, 3), None
    lasting = r.choice((10 ** r.uniform(0, 3), r.uniform(0.05, 0.8) * long, 3600.0))
    return round(begin, 3), round(begin + max(lasting, 0.001), 3)


def clock(start: datetime, seconds: float, r: random.Random) -> str:
    """Write a time in any zone."""
    moment = (start + timedelta(milliseconds=round(seconds * 1000))).astimezone(
        timezone(timedelta(minutes=r.choice(ZONES)))
    )
    told = moment.isoformat()
    return told.replace("+00:00", "Z") if r.random() < 0.5 else told


def write_signal(signal: Case, folder: Path) -> list[str]:
    """Write the file of a signal, and return the arguments of the command."""
    path = folder / f"signal.{signal['kind']}"
    if signal["kind"] == "json":
        path.write_text(json.dumps(signal["document"]))
    else:
        limits = signal["document"]["limits"]
        used = [
            name for name in FIELDS if name in ("from", "to", "power_w") or any(name in x for x in limits)
        ]
        with path.open("w", newline="") as file:
            rows = csv.DictWriter(file, used, restval="")
            rows.writeheader()
            rows.writerows(limits)
    return ["--signal", str(path)]


def date_of(signal: Case, seconds: float) -> str:
    moment = datetime.fromisoformat(signal["start"]) + timedelta(milliseconds=round(seconds * 1000))
    return moment.isoformat()
