"""Brute force of `sharing`, written from docs/sharing.md alone: every sentence in quotes is the page's."""

import random
from collections import Counter
from dataclasses import dataclass
from math import inf

KWH_J = 3.6e6
TOLERANCE = 1e-9
LAW = {"per_job": 0.034870127137706576, "per_load": 0.045827662614167874, "exponent": 4.0}
SENSE = {"eaco": "min", "energy": "min", "power": "min", "throughput": "max"}


@dataclass(frozen=True)
class Running:
    """How a set runs on its unit: its watts, and the epoch time of each of its jobs."""

    power_w: float
    epoch_s: tuple[float, ...]


def unit_types(instance):
    return {unit["name"]: unit for unit in instance["unit_types"]}


def class_of(instance, job):
    return next(c for c in instance["classes"] if c["name"] == job["job_class"])


def measured(instance, unit_type, classes):
    """The measured set of these classes on this type, "in any order" (schema)."""
    key = unit_type, sorted(classes)
    return next((s for s in instance.get("sets", []) if (s["unit_type"], sorted(s["classes"])) == key), None)


def run_set(instance, unit_type, classes):
    """The set of jobs of these classes on a unit of this type; None where it may not be formed."""
    unit, limits = unit_types(instance)[unit_type], instance.get("limits", {})
    table = {c["name"]: c["alone"] for c in instance["classes"]}
    # "A class states how its jobs run alone on a unit of each type"
    if any(unit_type not in table[name] for name in classes):
        return None
    alone = [table[name][unit_type] for name in classes]
    entry = measured(instance, unit_type, classes)
    # "`fits: false` means that neither the set nor a larger one with its jobs fits"
    for other in instance.get("sets", []):
        unfit = not other.get("fits", True) and other["unit_type"] == unit_type
        if unfit and not Counter(other["classes"]) - Counter(classes):
            return None
    # "`unmeasured`: `law` (default) or `refuse`: whether other sets may be formed"
    if len(classes) > 1 and entry is None and instance.get("unmeasured", "law") == "refuse":
        return None
    # "utilisation and memory add up, the former to 100 % at most"
    load_pct = sum(a["utilisation_pct"] for a in alone)
    utilisation_pct, memory_pct = min(100.0, load_pct), sum(a.get("memory_pct", 0.0) for a in alone)
    power_w = alone[0].get("power_w") if len(classes) == 1 else None
    if entry is not None:
        utilisation_pct = first(entry.get("utilisation_pct"), utilisation_pct)
        memory_pct = first(entry.get("memory_pct"), memory_pct)
        power_w = entry.get("power_w")
    # "`limits` of every set, including a single job: ..., as measured or by law; by law the utilisation of a
    # set is 100 at most, so that only a lower limit binds"
    if (
        len(classes) > limits.get("jobs_per_set", 4)
        or utilisation_pct > limits.get("utilisation_pct", 100.0) * (1 + TOLERANCE)
        or memory_pct > limits.get("memory_pct", 100.0) * (1 + TOLERANCE)
    ):
        return None
    if power_w is None:
        # "P = P_idle + (P_full - P_idle) U^0.478 at utilisation U from 0 to 1"
        share = (utilisation_pct / 100.0) ** unit.get("power_exponent", 0.478)
        power_w = unit["idle_power_w"] + (unit["full_power_w"] - unit["idle_power_w"]) * share
    if len(classes) == 1:
        slower = [1.0]  # "For a job alone sigma = 1."
    elif entry is not None:
        slower = [entry["slowdown"][entry["classes"].index(name)] for name in classes]
    else:
        # "sigma = max(L, 1 + (n - 1)(a + b L^p)) times as long as alone, for n jobs whose utilisations add up
        # to L"
        law, load = LAW | instance.get("slowdown", {}), load_pct / 100.0
        more = law["per_job"] + law["per_load"] * load ** law["exponent"]
        slower = [max(load, 1 + (len(classes) - 1) * more)] * len(classes)
    return Running(power_w, tuple(a["epoch_s"] * s for a, s in zip(alone, slower, strict=True)))


def first(value, otherwise):
    return otherwise if value is None else value


def job_cost(instance, job, power_w, jobs, epoch_s, sleep_w):
    """What a job in a set costs under the objective; the watts of a unit are divided equally."""
    # "E_j is the energy of a job, its equal share of its unit's watts until it is complete"
    energy_kwh = power_w / jobs * job.get("remaining_epochs", 1.0) * epoch_s / KWH_J
    objective = instance.get("objective", "eaco")
    if objective == "energy":
        return energy_kwh
    if objective == "power":
        return max(0.0, power_w - sleep_w) / jobs  # "the watts above those asleep", none where it draws less
    # "alpha sum E_j + (1 - alpha) 1/J sum e_j, energy in kWh and epoch times in hours (J counts all jobs,
    # waiting ones too)"
    alpha = instance.get("alpha", 0.5)
    return alpha * energy_kwh + (1 - alpha) / len(instance["jobs"]) * epoch_s / 3600.0


def sleep_w(instance, unit_type):
    """Watts of a unit without a job; "Such units have no draw asleep" of those made of a pool (schema)."""
    return unit_types(instance)[unit_type].get("sleep_power_w", 0.0)


def alone_on(instance, job):
    """By type of its class "whose limits admit it there": how the job runs there alone."""
    name = job["job_class"]
    found = {t: run_set(instance, t, [name]) for t in class_of(instance, job)["alone"]}
    return {t: run for t, run in found.items() if run is not None}


def waiting_cost(instance, job):
    """Cost of a job that waits; None where it may not."""
    if not job.get("can_wait", True):
        return None
    alone = alone_on(instance, job)
    deadline_s = job.get("deadline_s")
    if deadline_s is not None:
        # "A job that waits must be able to meet its deadline alone after `round_s`."
        soonest_s = min((run.epoch_s[0] for run in alone.values()), default=inf) * job.get(
            "remaining_epochs", 1.0
        )
        if instance.get("round_s", 300.0) + soonest_s > deadline_s + abs(deadline_s) * TOLERANCE:
            return None
    if instance.get("objective", "eaco") == "throughput":
        return 0.0
    # "the cost of a job that waits is `waiting_penalty` (2) times its largest cost alone on a type of its
    # class whose limits admit it there, in time for its deadline or not (under `power`, the watts above
    # those asleep)"
    costs = [
        job_cost(instance, job, r.power_w, 1, r.epoch_s[0], sleep_w(instance, t)) for t, r in alone.items()
    ]
    return instance.get("waiting_penalty", 2.0) * max(costs, default=0.0)


def evaluate(instance, sets, waiting):
    """Value of a decision and its terms, or None where it breaks a rule; `sets` are (type, job numbers)."""
    jobs, units = instance["jobs"], unit_types(instance)
    objective = instance.get("objective", "eaco")
    value = energy_j = 0.0
    # "power: min watts of all units, sleeping ones included"
    power_w = sum(u["count"] * sleep_w(instance, name) for name, u in units.items())
    used = Counter(t for t, _ in sets)
    if any(used[t] > units[t]["count"] for t in used):
        return None
    for pool in instance.get("pools", []):
        # "Only the number of GPUs is counted, not their places"
        if (
            sum(n * units[t].get("gpus", 1) for t, n in used.items() if units[t].get("pool") == pool["name"])
            > pool["gpus"]
        ):
            return None
    for unit_type, members in sets:
        if len(members) > 1 and any(jobs[j].get("exclusive", False) for j in members):
            return None  # "exclusive: whether it must have a unit to itself" (schema)
        run = run_set(instance, unit_type, [jobs[j]["job_class"] for j in members])
        if run is None:
            return None
        power_w += run.power_w - sleep_w(instance, unit_type)
        for j, epoch_s in zip(members, run.epoch_s, strict=True):
            job = jobs[j]
            # "A job in a set completes after its remaining epochs at its speed in the set, and must meet its
            # deadline."
            done_s, deadline_s = job.get("remaining_epochs", 1.0) * epoch_s, job.get("deadline_s")
            if deadline_s is not None and done_s > deadline_s + abs(deadline_s) * TOLERANCE:
                return None
            energy_j += run.power_w / len(members) * done_s
            if objective == "throughput":
                # "e-hat_j its least epoch time alone on any type"; "max sum e-hat_j / e_j"
                value += min(a["epoch_s"] for a in class_of(instance, job)["alone"].values()) / epoch_s
            elif objective != "power":
                value += job_cost(instance, job, run.power_w, len(members), epoch_s, 0.0)
    waits = [waiting_cost(instance, jobs[j]) for j in waiting]
    if None in waits:
        return None
    value += sum(waits) + (power_w if objective == "power" else 0.0)
    # "A power budget counts all units. Budgets of energy and carbon count E_j of running jobs only. The
    # checker tolerates that budgets and deadlines are exceeded by 1e-9 of themselves"
    uses = {"power_w": power_w, "energy_j": energy_j}
    uses["carbon_g"] = energy_j / KWH_J * first(instance.get("carbon_g_per_kwh"), 0.0)
    for name, limit in instance.get("budgets", {}).items():
        if limit is not None and name in uses and uses[name] > limit * (1 + TOLERANCE):
            return None
    return value, uses


def decisions(instance):
    """Every decision: each job waits, joins a set that is there, or begins one on a unit of some type."""
    jobs = instance["jobs"]
    units = [unit["name"] for unit in instance["unit_types"]]

    def decide(j, sets, waiting):
        if j == len(jobs):
            yield tuple((t, tuple(m)) for t, m in sets), tuple(waiting)
            return
        yield from decide(j + 1, sets, [*waiting, j])
        for s, (unit_type, members) in enumerate(sets):
            if unit_type in class_of(instance, jobs[j])["alone"]:
                yield from decide(j + 1, [*sets[:s], (unit_type, [*members, j]), *sets[s + 1 :]], waiting)
        for unit_type in units:
            if unit_type in class_of(instance, jobs[j])["alone"]:
                yield from decide(j + 1, [*sets, (unit_type, [j])], waiting)

    return decide(0, [], [])


def optimum(instance):
    """Value of the best decision, or None; and a number of the size of its terms."""
    sign = 1 if SENSE[instance.get("objective", "eaco")] == "min" else -1
    best = None
    for sets, waiting in decisions(instance):
        found = evaluate(instance, sets, waiting)
        if found is not None and (best is None or sign * found[0] < sign * best):
            best = found[0]
    return best


def without_tolerances(instance):
    """The instance with limits that are stricter by as much as the tolerances."""
    factor = 1 - 3 * TOLERANCE
    stated = instance.get("budgets", {}).items()
    budgets = {name: limit * factor for name, limit in stated if isinstance(limit, int | float)}
    jobs = [
        job | {"deadline_s": job["deadline_s"] - abs(job["deadline_s"]) * 3 * TOLERANCE}
        if "deadline_s" in job
        else job
        for job in instance["jobs"]
    ]
    return instance | {"budgets": budgets, "jobs": jobs}


def evaluate_document(instance, decision):
    """Value of a decision in the form of a result."""
    number = {job["name"]: j for j, job in enumerate(instance["jobs"])}
    sets = [(entry["unit_type"], tuple(number[name] for name in entry["jobs"])) for entry in decision["sets"]]
    named = sorted(j for _, members in sets for j in members) + [number[n] for n in decision["waiting"]]
    assert sorted(named) == list(range(len(number))), "every job is in one of the sets, or waits"
    return evaluate(instance, sets, [number[n] for n in decision["waiting"]])


def document_of(instance, sets, waiting):
    names = [job["name"] for job in instance["jobs"]]
    formed = [{"unit_type": t, "jobs": [names[j] for j in members]} for t, members in sets]
    return {"sets": formed, "waiting": [names[j] for j in waiting]}


def random_instance(rng, most_jobs=5):
    """A small instance of every kind that the page describes; limits lie near what decisions use."""
    pool = rng.random() < 0.3
    scale = rng.choice([1.0, 1.0, 1.0, 1e-4, 1e4])
    types = []
    for t in range(rng.choice([1, 1, 2, 2, 3])):
        idle_w = rng.choice([0.0, 50.0, 350.0])
        unit = {"name": f"t{t}", "count": rng.choice([1, 1, 2, 3]), "gpus": rng.choice([1, 2, 4])}
        unit |= {"idle_power_w": idle_w, "full_power_w": idle_w + rng.choice([0.0, 250.0, 1500.0])}
        if rng.random() < 0.2:
            unit["power_exponent"] = rng.choice([1.0, 2.0, 0.1])
        if pool and rng.random() < 0.8:
            unit["pool"] = "p"
        elif rng.random() < 0.4:
            unit["sleep_power_w"] = rng.uniform(0, idle_w)
        types.append(unit)
    instance = {
        "format": "wattsched-instance/1",
        "problem": "sharing",
        "unit_types": types,
        "classes": [],
        "jobs": [],
    }
    if pool:
        sizes = [u["gpus"] for u in types if u.get("pool")]
        instance["pools"] = [{"name": "p", "gpus": max([*sizes, rng.randint(1, 6)])}]
    for c in range(rng.choice([1, 2, 2, 3])):
        alone = {}
        for unit in rng.sample(types, rng.randint(1, len(types))):
            there = {"epoch_s": rng.choice([100.0, rng.uniform(20, 400)]) * scale}
            there["utilisation_pct"] = rng.choice([0.0, 12.0, 30.0, 50.0, 90.0, rng.uniform(0, 100), 100.0])
            if rng.random() < 0.6:
                there["memory_pct"] = rng.choice([0.0, 10.0, 25.0, 50.0, 60.0, rng.uniform(0, 100)])
            if rng.random() < 0.3:
                there["power_w"] = rng.choice([0.0, 200.0, rng.uniform(50, 2000)])
            alone[unit["name"]] = there
        instance["classes"].append({"name": f"c{c}", "alone": alone})
    instance["sets"] = random_sets(rng, instance)
    if rng.random() < 0.2:
        instance["unmeasured"] = "refuse"
    if rng.random() < 0.25:
        instance["slowdown"] = {"per_job": rng.choice([0.0, 0.3]), "per_load": rng.choice([0.0, 0.1, 1.0])}
        instance["slowdown"]["exponent"] = rng.choice([1.0, 4.0, 0.5])
    if rng.random() < 0.5:
        instance["limits"] = {"jobs_per_set": rng.randint(1, 5)}
        if rng.random() < 0.4:
            instance["limits"]["utilisation_pct"] = rng.choice([40.0, 62.0, 90.0, 0.0, 99.0])
        if rng.random() < 0.4:
            instance["limits"]["memory_pct"] = rng.choice([0.0, 35.0, 60.0, 75.0, 90.0])
    for field, values in (
        ("waiting_penalty", [0.0, 0.5, 1.0, 10.0, 1000.0]),
        ("alpha", [0.0, 1.0, 0.9, 1e-6]),
    ):
        if rng.random() < 0.4:
            instance[field] = rng.choice(values)
    if rng.random() < 0.4:
        instance["round_s"] = rng.choice([1e-3, 10.0, 3600.0]) * scale
    instance["objective"] = rng.choice(["eaco", "energy", "power", "throughput"])
    if not any(admitted(instance)) or rng.random() < 0.95:
        instance["classes"] = [
            c for c, able in zip(instance["classes"], admitted(instance), strict=True) if able
        ]
        kept = {c["name"] for c in instance["classes"]}
        instance["sets"] = [entry for entry in instance["sets"] if kept.issuperset(entry["classes"])]
    for j in range(rng.randint(1, most_jobs) if instance["classes"] else 0):
        instance["jobs"].append(random_job(rng, instance, j))
    if rng.random() < 0.4:
        instance["carbon_g_per_kwh"] = rng.choice([0.0, 350.0])
    instance["budgets"] = random_budgets(rng, instance)
    return instance


def admitted(instance):
    """For each class whether the limits admit it alone anywhere; other jobs are errors in the file."""
    return [bool(alone_on(instance, {"job_class": c["name"]})) for c in instance["classes"]]


def refused(instance):
    """Instances that messages call errors in the file; the page says nothing of them."""
    return any(not alone_on(instance, job) or job.get("deadline_s", 1.0) <= 0 for job in instance["jobs"])


def random_sets(rng, instance):
    """Measured sets of classes that all run on the type, none twice."""
    sets, names = [], [c["name"] for c in instance["classes"]]
    for _ in range(rng.choice([0, 0, 1, 2, 3, 4])):
        unit_type = rng.choice(instance["unit_types"])["name"]
        able = [c["name"] for c in instance["classes"] if unit_type in c["alone"]]
        if not able:
            continue
        classes = [rng.choice(able) for _ in range(rng.choice([2, 2, 2, 3]))]
        if measured(instance | {"sets": sets}, unit_type, classes):
            continue
        entry = {"unit_type": unit_type, "classes": classes}
        if rng.random() < 0.2:
            entry["fits"] = False
        else:
            slower = {name: rng.choice([1.0, 0.9, 1.05, rng.uniform(1, 3)]) for name in names}
            entry["slowdown"] = [slower[name] for name in classes]
            for field, most in (("power_w", 2000.0), ("utilisation_pct", 100.0), ("memory_pct", 100.0)):
                if rng.random() < 0.4:
                    entry[field] = rng.uniform(0, most)
        sets.append(entry)
    return sets


def random_job(rng, instance, j):
    if j and rng.random() < 0.35:  # equal jobs
        return instance["jobs"][-1] | {"name": f"j{j}"}
    job = {"name": f"j{j}", "job_class": rng.choice(instance["classes"])["name"]}
    if rng.random() < 0.7:
        job["remaining_epochs"] = rng.choice([1.0, 2.0, 30.0, rng.uniform(0.5, 60), 1e-6, 1e9, 1e5])
    if rng.random() < 0.35:
        ends = [
            a["epoch_s"] * job.get("remaining_epochs", 1.0) for a in class_of(instance, job)["alone"].values()
        ]
        ends += [end + instance.get("round_s", 300.0) for end in ends]
        job["deadline_s"] = rng.choice(ends) * rng.choice([1.0, 1.0, 1.04, 1.3, 2.0, 1 - 1e-6, 0.5])
    if rng.random() < 0.15:
        job["exclusive"] = True
    if rng.random() < 0.2:
        job["can_wait"] = False
    return job


def random_budgets(rng, instance):
    """Budgets near what some decision uses."""
    budgets, found = {}, (evaluate(instance, *decision) for decision in decisions(instance))
    uses = [value[1] for value in found if value is not None]
    for name in ("power_w", "energy_j", "carbon_g"):
        if rng.random() > 0.25 or (name == "carbon_g" and "carbon_g_per_kwh" not in instance):
            continue
        use = rng.choice(uses)[name] if uses else 1.0
        budgets[name] = min(
            1e18, max(1e-9, use * rng.choice([1.0, 1.0, 1 + 1e-6, 1 - 1e-6, 1.1, 0.9, 0.5, 1e-9]))
        )
    return budgets


def random_case(seed, most_jobs=5, pairs=False):
    """An instance; with `pairs` one that the formulation `matching` takes."""
    rng = random.Random(seed)
    instance = random_instance(rng, most_jobs)
    while pairs and (len(instance["unit_types"]) > 1 or "pools" in instance):
        instance = random_instance(rng, most_jobs)
    if pairs:
        # "With one type of unit, at most two jobs per unit and no budget" (nor a pool: not on the page)
        instance |= {"budgets": {}, "limits": instance.get("limits", {}) | {"jobs_per_set": 2}}
    return instance, rng
