"""Whether instances whose limits are left out, or others, have a decision, by trying all.

Limits are taken out of documents here once more, by their names in results.
"""

from __future__ import annotations

import math
from copy import deepcopy
from typing import Any

from tests.brute_force import sizing
from tests.pages import pages_sharing, pages_shifting
from wattsched.instances.sizing.instance import Instance

DEMANDING_NOTHING = {
    "can_wait": True,
    "preemptible": True,
    "deadline_s": None,
    "must_finish": False,
    "least_progress": 0.0,
    "exclusive": False,
}
PLENTY = 8


def feasible(document: dict[str, Any]) -> bool:
    """Whether a small instance has a decision."""
    match document["problem"]:
        case "shifting":
            answers = pages_shifting.decisions(document)
            return pages_shifting.optimum(document, answers, "mean-completion")[0] is not None
        case "sharing":
            return pages_sharing.optimum(document) is not None
        case _:
            # Sums: of a bottleneck other things count besides.
            instance = Instance.model_validate(document)
            return sizing.optimum(instance, "total-completion") is not None


def limits(document: dict[str, Any]) -> set[str]:
    """Names of all limits and demands."""
    others = ("scope", "objectives")
    found = {f"budgets.{k}" for k, v in document["budgets"].items() if k not in others and v is not None}
    demands = DEMANDING_NOTHING
    for job in document["jobs"]:
        stated = [name for name in demands if job.get(name, demands[name]) != demands[name]]
        found |= {f"jobs.{job['name']}.{name}" for name in stated}
    match document["problem"]:
        case "shifting":
            found |= {f"gpus:{name}" for name in document["pools"]}
            found |= {f"power_domains.{name}" for name in document["power_domains"]}
            found |= {"power_w"} if document["power_w"] is not None else set()
        case "sharing":
            found |= {f"units:{unit['name']}" for unit in document["unit_types"]}
            found |= {f"gpus:{pool['name']}" for pool in document["pools"]}
        case _:
            cluster = document["cluster"]
            found |= {f"gpus:{name}" for name in _pools(document)}
            found |= {f"cluster.power_domains.{one['name']}.power_cap_w" for one in cluster["power_domains"]}
            for name, tenant in document["tenants"].items():
                quotas = ["power_w", "energy_j", "carbon_g", "borrow_gpus" if tenant["cohort"] else "gpus"]
                found |= {f"tenants.{name}.{quota}" for quota in quotas if tenant[quota] is not None}
                found |= {f"cohort_gpus:{tenant['cohort']}"} if tenant["cohort"] else set()
    return found


def changed(document: dict[str, Any], values: dict[str, float | None]) -> dict[str, Any]:
    """The document with other values of limits, None for without a limit."""
    document = deepcopy(document)
    # What more of a capacity uses while it is idle is added to the budgets that are left.
    for name, value in sorted(values.items(), key=lambda item: ":" in item[0]):
        kind, _, of = name.partition(":")
        if kind == "gpus" and document["problem"] == "sizing":
            _more_nodes(document, of, value)
        elif kind == "cohort_gpus":
            own = sum(t["gpus"] for t in document["tenants"].values() if t["cohort"] == of)
            more = 10_000 if value is None else round(value) - own
            document["tenants"]["another"] = {"cohort": of, "gpus": more}
        elif kind in ("gpus", "units"):
            _more(document, kind, of, value)
        elif name.startswith("jobs."):
            field = name.rpartition(".")[2]
            job = next(job for job in document["jobs"] if name == f"jobs.{job['name']}.{field}")
            job[field] = DEMANDING_NOTHING[field] if value is None else value
        elif name.startswith("cluster.power_domains."):
            [domain] = [d for d in document["cluster"]["power_domains"] if d["name"] == name.split(".")[2]]
            domain["power_cap_w"] = 1e8 if value is None else value
        elif name.startswith("tenants."):
            _, tenant, field = name.split(".")
            whole = field.endswith("gpus") and value is not None
            document["tenants"][tenant][field] = round(value) if whole else value
        elif name.startswith("budgets."):
            document["budgets"][name.removeprefix("budgets.")] = value
        elif value is None and name != "power_w":
            del document["power_domains"][name.removeprefix("power_domains.")]
        else:
            owner = document if name == "power_w" else document["power_domains"][name.split(".")[1]]
            watts = owner["power_w"]
            if value is not None and isinstance(watts, list):
                watts = watts[: document["slots"]]
                value = [w + value - min(watts) for w in watts]
            owner["power_w"] = value
    return document


def _pools(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    from wattsched.topology.cluster import Cluster
    from wattsched.topology.pools import pools_of

    nodes = {node["name"]: node for node in document["cluster"]["nodes"]}
    pools = pools_of(Cluster.model_validate(document["cluster"]))
    return {pool.name: nodes[pool.nodes[0]] | {"domains": pool.domains} for pool in pools}


def _more_nodes(document: dict[str, Any], pool: str, gpus: float | None) -> None:
    model = _pools(document)[pool]
    cluster, domains = document["cluster"], model.pop("domains")
    same = {name for name, node in _pools(document).items() if name == pool}
    assert same == {pool}
    from wattsched.topology.cluster import Cluster
    from wattsched.topology.pools import pools_of

    [known] = [one for one in pools_of(Cluster.model_validate(cluster)) if one.name == pool]
    more = PLENTY if gpus is None else round((gpus - int(known.available.sum())) / model["gpus"])
    names = [f"new{len(cluster['nodes']) + n}" for n in range(more)]
    for name in names:
        cluster["nodes"].append(model | {"name": name, "base_power_w": 0.0, "unavailable": []})
    for domain in cluster["power_domains"]:
        if domain["name"] in domains:
            domain["members"] += names
    watts = more * model["gpus"] * cluster["gpu_types"][model["gpu_type"]]["idle_power_w"]
    for domain in cluster["power_domains"]:
        domain["power_cap_w"] += watts if domain["name"] in domains else 0.0
    budgets = document["budgets"]
    joules = watts * document["round_s"] if budgets["scope"] == "round" else 0.0
    grams = joules * document["carbon_g_per_kwh"] / 3.6e6
    for name, more_of in (("power_w", watts), ("energy_j", joules), ("carbon_g", grams)):
        if budgets[name] is not None:
            budgets[name] += more_of


def _more(document: dict[str, Any], kind: str, name: str, value: float | None) -> None:
    """More GPUs of a pool, or units of a type."""
    budgets = document["budgets"]
    if document["problem"] == "sharing":
        field, of = ("count", "unit_types") if kind == "units" else ("gpus", "pools")
        [owner] = [one for one in document[of] if one["name"] == name]
        before = owner[field]
        owner[field] = before + 10 * PLENTY if value is None else round(value)
        if kind == "units" and budgets["power_w"] is not None:
            budgets["power_w"] += (owner[field] - before) * owner["sleep_power_w"]
        return
    pool, slots = document["pools"][name], document["slots"]
    more = PLENTY if value is None else round(value) - pool["gpus"]
    pool["gpus"] += more
    idle_w = more * pool["idle_power_w"]
    slot_s = document["slot_s"]
    seconds = slot_s[:slots] if isinstance(slot_s, list) else [slot_s] * slots
    for field, forecast in (("energy_j", [3.6e6] * slots), *_forecasts(document)):
        if budgets[field] is not None:
            budgets[field] += math.fsum(
                idle_w * s * f / 3.6e6 for s, f in zip(seconds, forecast, strict=False)
            )
    for owner in (document, *(d for d in document["power_domains"].values() if name in d["pools"])):
        if owner["power_w"] is not None:
            watts = owner["power_w"]
            owner["power_w"] = [w + idle_w for w in watts] if isinstance(watts, list) else watts + idle_w


def _forecasts(document: dict[str, Any]) -> list[tuple[str, list[float]]]:
    return [("carbon_g", document["carbon_g_per_kwh"]), ("money", document["price_per_kwh"])]
