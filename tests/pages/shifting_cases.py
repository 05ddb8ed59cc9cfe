"""Random small instances of `shifting`, of every kind that its page describes, as JSON documents."""

import math
import random
from fractions import Fraction

from tests.pages.pages_shifting import (
    CRITERIA,
    CRITERION_OF,
    begins,
    could_do,
    decisions,
    held_in,
    lengths,
    schedules,
    table_of,
)


def random_table(rng, pools, rows, nice):
    """Options with unique settings; watts are never below the idle draw."""
    table = {"gpus": [], "pool": [], "power_w": [], "rate": []}
    clocks, batches = rng.random() < 0.4, rng.random() < 0.4
    if clocks:
        table[rng.choice(["frequency_mhz", "power_limit_w"])] = []
    if batches:
        table["batch_size"] = []
    seen = set()
    while len(table["gpus"]) < rows:
        pool = rng.choice(list(pools))
        gpus = rng.choice([1, 1, 2, 3, 4]) if table["gpus"] else rng.randint(1, pools[pool]["gpus"])
        extra = {k: rng.choice([1, 2]) * 100 for k in table if k not in ("gpus", "pool", "power_w", "rate")}
        key = (pool, gpus, *extra.values())
        if key in seen:
            if len(seen) > 3 * rows:
                break
            seen.add((key, rng.random()))
            continue
        seen.add(key)
        idle_w = gpus * pools[pool].get("idle_power_w", 0.0)
        factor = rng.choice([1.0, 2.0, 4.0]) if nice else rng.uniform(1, 6)
        table["gpus"].append(gpus)
        table["pool"].append(pool)
        table["power_w"].append(idle_w * factor + rng.choice([0.0, 0.0, 128.0, 300.0 * gpus]))
        table["rate"].append(float(rng.choice([1, 1, 2, 4])) if nice else rng.uniform(0.3, 1.2) * gpus**0.8)
        for name, value in extra.items():
            table[name].append(value)
    return table


def random_lengths(rng, slots, slot_s, nice):
    """Seconds of slots that differ by little or much, and at times of more slots than the horizon has."""
    few = rng.choice([(1.0, 0.5, 2.0), (1.0, 0.25, 0.5), (1.0, 2.0**-10)])
    parts = [
        rng.choice(few) if nice else rng.choice([rng.uniform(0.1, 1.5), 10 ** rng.uniform(-4, 0)])
        for _ in range(slots)
    ]
    seconds = [max(slot_s * part, 2.0**-7) for part in parts]  # a job has to take 1e-6 s at least
    return seconds + [slot_s * rng.choice([1e-3, 1e3])] * rng.choice([0, 0, 2])


def random_restart(rng, seconds, nice):
    """Less than the longest slot, and often longer than another slot, or as long, or all but as long."""
    shorter = [s for s in seconds if s < max(seconds)]
    if shorter and rng.random() < 0.8:
        slot_s = rng.choice(shorter)
        return rng.choice([slot_s, slot_s, math.nextafter(slot_s, 0.0), math.nextafter(slot_s, math.inf)])
    return max(seconds) * (rng.choice([0.25, 0.5]) if nice else rng.uniform(0, 0.99))


SMALL = [(1, 4, 4), (2, 2, 3), (2, 4, 2), (3, 2, 1), (3, 1, 4), (4, 2, 1), (4, 1, 2), (3, 3, 1)]
LARGE = [(3, 2, 3), (3, 3, 2), (4, 2, 2), (5, 1, 3), (6, 1, 3), (4, 1, 4), (2, 4, 4), (1, 4, 6), (5, 2, 2)]


def random_instance(rng, sizes):
    """A small instance of every kind that the page describes; budgets lie near what decisions use."""
    nice = rng.random() < 0.5
    slots, rows, jobs = rng.choice(sizes)
    slot_s = rng.choice([1.0, 64.0, 3600.0]) if nice else rng.choice([0.125, 60.0, 1800.0, 86400.0])
    idle_w = rng.choice([0.0, 0.0, 32.0, 50.0])
    pools = {"p": {"gpus": rng.randint(1, 4), "idle_power_w": idle_w}}
    if rng.random() < 0.3:
        pools["q"] = {"gpus": rng.randint(1, 3)}
    low = rng.choice([0.0, 0.0, 100.0])
    instance = {"format": "wattsched-instance/1", "problem": "shifting", "slots": slots, "slot_s": slot_s}
    instance |= {"pools": pools, "tables": {}, "jobs": []}
    if rng.random() < 0.5:
        instance["slot_s"] = random_lengths(rng, slots, slot_s, nice)
    seconds, starts = ([float(s) for s in found(instance)] for found in (lengths, begins))
    unit_s = max(seconds) if nice else starts[-1] / slots
    for field, most, chance in (("carbon_g_per_kwh", 500.0, 0.8), ("price_per_kwh", 0.4, 0.5)):
        if rng.random() < chance:
            flat = rng.choice([0.0, most]) if rng.random() < 0.15 else None
            length = slots + rng.choice([0, 0, 2])
            instance[field] = [
                rng.uniform(low * most / 500, most) if flat is None else flat for _ in range(length)
            ]
    shared = random_table(rng, pools, rows, nice)
    instance["tables"]["shared"] = shared
    scale = rng.choice([1.0, 1.0, 1.0, 2.0**-13, 1024.0])
    shared["rate"] = [rate * scale for rate in shared["rate"]]
    for j in range(jobs):
        job = {"name": f"j{j}", "options": "shared"}
        if rng.random() < 0.3:
            own = random_table(rng, pools, rows, nice)
            own["rate"] = [rate * scale for rate in own["rate"]]
            job["options"] = own
            if rng.random() < 0.5:
                job["options"] = [{k: v[r] for k, v in own.items()} for r in range(len(own["gpus"]))]
        if nice:
            job["remaining_work"] = scale * unit_s * rng.choice([0.25, 0.5, 1, 1.5, 2, 3, 5])
        else:
            job["remaining_work"] = (
                scale
                * unit_s
                * rng.choice([rng.uniform(0.05, 2), rng.uniform(0.5, 5), rng.choice([1e-3, 1e3])])
            )
        if rng.random() < 0.5:
            job["weight"] = rng.choice([1e-6, 1e-3, 0.5, 2.0, 1e3, 1e6])
        if rng.random() < 0.4:
            job["arrival_s"] = rng.choice([0, starts[1] / 2, starts[1], starts[-2]]) * (slots > 1)
        if rng.random() < 0.6:
            job["restart_s"] = random_restart(rng, seconds, nice)
        if rng.random() < (0.6 if job.get("restart_s", 0.0) >= min(seconds) else 0.3):
            job["has_run"] = True
        if rng.random() < 0.3 and not job.get("arrival_s"):
            row = rng.choice([row for row in table_of(instance, job) if row] or [(1, "p", 0, 0, None)])
            job["current"] = {"gpus": rng.choice([row[0], 1]), "pool": row[1]}
            if row[4] is not None:
                job["current"]["batch_size"] = rng.choice([row[4], 100])
        ends = sorted({s.end_s for s in schedules(instance | {"jobs": [job]}, job)})
        if ends and rng.random() < 0.35:
            job["deadline_s"] = float(rng.choice(ends)) * rng.choice([1.0, 1.0, 1.001, 1.5, 3.0, 1 - 1e-6])
        if rng.random() < 0.15 and (min(ends) <= starts[-1] or rng.random() < 0.1):
            job["must_finish"] = True
        if j and rng.random() < 0.25:  # equal jobs
            job = dict(instance["jobs"][-1], name=f"j{j}")
        instance["jobs"].append(job)
    objectives = ["mean-completion", "energy"]
    objectives += ["carbon"] if "carbon_g_per_kwh" in instance else []
    objectives += ["money"] if "price_per_kwh" in instance else []
    instance["objective"] = rng.choice(objectives)
    instance["budgets"] = random_budgets(rng, instance)
    return instance


def random_budgets(rng, instance):
    """Budgets that some decision just keeps, or just fails to keep, or that nothing can keep."""
    answers = decisions(instance)
    budgets = {}
    for name in CRITERIA:
        needed = {"carbon_g": "carbon_g_per_kwh", "money": "price_per_kwh"}.get(name)
        if rng.random() > 0.3 or (needed and needed not in instance):
            continue
        value = float(rng.choice(answers)[0][CRITERIA.index(name)]) if answers else 1.0
        factor = rng.choice([1.0, 1.0, 1.0 + 1e-4, 1.0 - 1e-4, 1.1, 0.95, 0.5, 1e-9])
        budgets[name] = max(value * factor, 1e-9)
    return budgets


def random_case(seed, large=False, negative=False):
    rng, limits = random.Random(seed), random.Random(f"limits {seed}")
    if limits.random() < 0.5:
        instance = random_instance(rng, LIMITED_LARGE if large else LIMITED)
        add_limits(limits, instance)
        instance["budgets"] = random_budgets(limits, instance) if limits.random() < 0.5 else {}
    else:
        instance = random_instance(rng, LARGE if large else SMALL)
    return (at_negative_prices(rng, instance) if negative else instance), rng


# Slots, rows and jobs of instances with caps and least progress
LIMITED = [(1, 4, 4), (2, 3, 2), (2, 2, 3), (3, 2, 2), (3, 2, 2), (4, 2, 1), (4, 1, 2), (3, 1, 3), (5, 2, 1)]
LIMITED_LARGE = [(3, 2, 3), (4, 2, 2), (3, 3, 2), (5, 1, 2), (4, 1, 3), (2, 3, 3), (5, 2, 1), (6, 1, 2)]
MOST_CHOICES = 20_000


def add_limits(rng, instance):
    """Caps near what decisions draw, clocks to keep them, and jobs that must make progress."""
    pools = instance["pools"]
    if len(pools) == 1 and rng.random() < 0.5:
        pools["q"] = {"gpus": rng.randint(1, 3), "idle_power_w": rng.choice([0.0, 40.0, 64.0])}
    own = [job["options"] for job in instance["jobs"] if job["options"] != "shared"]
    changed = []  # equal jobs have the same options
    for options in [instance["tables"]["shared"], *own]:
        if not any(options is other for other in changed):
            add_clocks(rng, instance, options)
            changed.append(options)
    for job in instance["jobs"]:
        add_work(rng, instance, job)
    which = rng.choice(["whole", "whole", "parts", "parts", "both", "none"])
    if which != "none" and rng.random() < 0.5:
        instance["objective"] = "mean-completion"  # others draw little by themselves
    answers = decisions(instance)
    if which in ("whole", "both"):
        instance["power_w"] = random_cap(rng, instance, list(pools), answers)
    if which in ("parts", "both"):
        instance["power_domains"] = {}
        for i in range(rng.choice([1, 1, 2, 3])):
            part = rng.sample(list(pools), rng.randint(1, len(pools)))
            domain = {"pools": part, "power_w": random_cap(rng, instance, part, answers)}
            instance["power_domains"][f"d{i}"] = domain
    if answers and rng.random() < 0.6:
        add_progress(rng, instance, decisions(instance) or answers)


def best_of(instance, answers):
    """Schedules of a decision of the least objective."""
    criterion = CRITERIA.index(CRITERION_OF[instance["objective"]])
    return min(answers, key=lambda answer: answer[0][criterion])[1]


def add_progress(rng, instance, answers):
    """As much progress as some decision makes, or about that, and where possible more than the best one."""
    best = best_of(instance, answers)
    more = [
        chosen
        for _, chosen in answers
        if any(a.done > b.done and not a.finished for a, b in zip(chosen, best, strict=True))
    ]
    chosen = rng.choice(more or [best])
    for job, schedule in zip(instance["jobs"], chosen, strict=True):
        part = rng.choice([0.1, 0.25, 0.5, 0.75, 1.0])
        if not schedule.finished and rng.random() < 0.9:
            part = float(schedule.done / could_do(instance, job)) * rng.choice([1.0, 1.0, 0.7, 0.999, 1.001])
        if rng.random() < 0.8:
            job["least_progress"] = min(part, 1.0)


def add_clocks(rng, instance, options):
    """Some rows again at other clocks, or in place of others where more would be too many to try."""
    rows = options
    if isinstance(options, dict):
        rows = [{key: values[r] for key, values in options.items()} for r in range(len(options["gpus"]))]
    rows = [dict(row) for row in rows]
    setting = next((k for k in ("frequency_mhz", "power_limit_w") if k in rows[0]), "frequency_mhz")
    for row in rows:
        row.setdefault(setting, 100)
    slots, jobs = instance["slots"], len(instance["jobs"])
    for clock in rng.choice([(), (300,), (300,), (300, 400), (300, 400)]):
        kept = [row for row in rows if row[setting] < 300]
        row = dict(rng.choice(kept))
        if (len(rows) + 2) ** (slots * jobs) > MOST_CHOICES and len(kept) > 1:
            rows.remove(rng.choice([other for other in kept if other != row]))
        elif (len(rows) + 2) ** slots > 800 or (len(rows) + 2) ** (slots * jobs) > 20 * MOST_CHOICES:
            break
        if row["pool"] == "p" and "q" in instance["pools"] and rng.random() < 0.3:
            row["pool"], row["gpus"] = "q", min(row["gpus"], instance["pools"]["q"]["gpus"])
        idle_w = row["gpus"] * instance["pools"][row["pool"]].get("idle_power_w", 0.0)
        slower = rng.choice([0.5, 0.75, 0.75, 1.0])
        more_w = max(row["power_w"] - idle_w, 64.0) * rng.choice([0.25, 0.5, 0.5, 0.75, 1.0])
        rows.append(row | {"power_w": idle_w + more_w, "rate": row["rate"] * slower, setting: clock})
    if isinstance(options, dict):
        options.clear()
        options |= {key: [row[key] for row in rows] for key in rows[0]}
    else:
        options[:] = rows


def add_work(rng, instance, job):
    """Another amount of work, a configuration at the beginning, and another deadline."""
    for field in ("deadline_s", "must_finish"):
        job.pop(field, None)
    table = [row for row in table_of(instance, job) if row]
    if not table:
        return
    if rng.random() < 0.4 and not job.get("arrival_s"):
        row = rng.choice(table)
        job["current"] = {"gpus": row[0], "pool": row[1]}
        if row[4] is not None:
            job["current"]["batch_size"] = row[4]
    if "current" in job:
        held = [other["current"] for other in instance["jobs"] if "current" in other]
        pool = job["current"]["pool"]
        if sum(c["gpus"] for c in held if c["pool"] == pool) > instance["pools"][pool]["gpus"]:
            del job["current"]
    if rng.random() < 0.6:  # does not fit, or just does
        job["remaining_work"] = float(could_do(instance, job)) * rng.choice([0.5, 0.75, 1.0, 1.5, 2.0, 3.0])
    if rng.random() < 0.3:
        job.pop("restart_s", None)
    ends = sorted({s.end_s for s in schedules(instance, job)})
    if rng.random() < 0.15:
        job["deadline_s"] = float(rng.choice(ends)) * rng.choice([1.0, 1.5])
    if ends[0] <= begins(instance)[-1] and rng.random() < 0.1:
        job["must_finish"] = True


def random_cap(rng, instance, pools, answers):
    """Watts that a decision just keeps or fails to keep, often low in the middle of the horizon."""
    slots = instance["slots"]
    idle_w = sum(instance["pools"][p]["gpus"] * instance["pools"][p].get("idle_power_w", 0.0) for p in pools)
    rows = [row for job in instance["jobs"] for row in table_of(instance, job) if row and row[1] in pools]
    steps = [float(row[2]) - row[0] * instance["pools"][row[1]].get("idle_power_w", 0.0) for row in rows]
    steps = [watts for watts in steps if watts > 0] or [64.0]
    chosen, best = (rng.choice(answers)[1], best_of(instance, answers)) if answers else ((), ())
    drawn, most = ([float(drawn_w(instance, c, t, pools)) for t in range(slots)] for c in (chosen, best))
    high = 2 * sum(steps) * len(instance["jobs"])

    def low(watts):
        """Less than these watts in most cases."""
        some = sum(rng.choice(steps) for _ in range(rng.choice([1, 1, 2])))
        return min(watts, rng.choice([some, some, watts * rng.choice([0.999999, 0.9, 0.75, 0.5, 0.0])]))

    kind = rng.random()
    if kind < 0.3:  # one number
        cap = [rng.choice([low(max(most)), max(drawn)])]
    else:
        tight = rng.choice([0.0, 0.2, 1.0])
        cap = [watts if rng.random() < tight else high for watts in drawn]
        middle = rng.choice([t for t in range(slots) if most[t] == max(most)])
        for t in range(middle, min(slots, middle + rng.choice([1, 1, 2]))):
            cap[t] = low(most[t])
    cap = [max(idle_w + watts, 1e-3) for watts in cap]
    if rng.random() < 0.06:
        cap[-1] = max(idle_w * 0.9, 1e-3)
    return cap[0] if kind < 0.3 else cap + [1.0] * rng.choice([0, 0, 0, 1])


def drawn_w(instance, chosen, t, pools):
    """What the jobs of a decision draw in a slot above the idle draw of their GPUs in these pools."""
    drawn = Fraction(0)
    for job, schedule in zip(instance["jobs"], chosen, strict=bool(chosen)):
        if held_in(schedule, t) in pools:
            gpus, pool, power_w, *_ = table_of(instance, job)[schedule.rows[t]]
            drawn += power_w - gpus * Fraction(instance["pools"][pool].get("idle_power_w", 0.0))
    return drawn


def at_negative_prices(rng, instance):
    """The instance with prices of which some or all are below 0, and budgets near what decisions use then."""
    least, most = rng.choice([(-0.4, 0.2), (-0.4, 0.2), (-0.4, 0.0), (-0.1, -0.1)])
    length = instance["slots"] + rng.choice([0, 0, 2])
    instance["price_per_kwh"] = [rng.uniform(least, most) for _ in range(length)]
    instance["objective"] = rng.choice(["money", "money", "money", instance["objective"]])
    instance["budgets"] = random_budgets(rng, instance)
    return instance
