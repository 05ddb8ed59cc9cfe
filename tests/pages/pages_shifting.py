"""Brute force of `shifting`, written from docs/shifting.md alone: every sentence in quotes is the page's."""

import random
from dataclasses import dataclass
from fractions import Fraction

KWH_J = 3_600_000
BUDGET_TOLERANCE = Fraction(1, 10**6)
DEADLINE_TOLERANCE = Fraction(1, 10**9)
CRITERIA = ("average_completion_s", "energy_j", "carbon_g", "money")
CRITERION_OF = {
    "mean-completion": "average_completion_s",
    "carbon": "carbon_g",
    "energy": "energy_j",
    "money": "money",
}


@dataclass(frozen=True)
class Schedule:
    """What one job does: its row of the table in every slot, when it ends, and what it uses."""

    rows: tuple[int | None, ...]
    gpus: tuple[tuple[str, int] | None, ...]
    end_s: Fraction
    finished: bool
    costs: tuple[Fraction, ...]  # its part of each of CRITERIA
    restarts: int

    def dominates(self, other):
        holds_no_more = all(
            mine is None or (theirs is not None and mine[0] == theirs[0] and mine[1] <= theirs[1])
            for mine, theirs in zip(self.gpus, other.gpus, strict=True)
        )
        return holds_no_more and all(a <= b for a, b in zip(self.costs, other.costs, strict=True))


def table_of(instance, job):
    """Rows (gpus, pool, power_w, rate, batch_size) of a job; its options are a name, columns or rows."""
    options = job["options"]
    if isinstance(options, str):
        options = instance["tables"][options]
    if isinstance(options, list):
        options = {key: [row.get(key) for row in options] for key in options[0]}
    batches = options.get("batch_size") or [None] * len(options["gpus"])
    columns = (options["gpus"], options["pool"], options["power_w"], options["rate"], batches)
    rows = [(g, p, Fraction(w), Fraction(r), b) for g, p, w, r, b in zip(*columns, strict=True)]
    # "options with more GPUs than their pool has are left out"
    return [row if row[0] <= instance["pools"][row[1]]["gpus"] else None for row in rows]


def joule_prices(instance):
    """Per joule in every slot: energy, grams, money; None where the instance has no forecast."""
    slots = instance["slots"]
    forecasts = [[Fraction(1)] * slots]
    for field in ("carbon_g_per_kwh", "price_per_kwh"):
        # "forecasts, one number per slot and none negative; longer ones are cut"
        forecast = instance.get(field)
        forecasts.append(
            [Fraction(x) / KWH_J for x in forecast[:slots]] if forecast else [Fraction(0)] * slots
        )
    return forecasts


def schedules(instance, job):
    """All schedules of a job that keep its own limits, whatever the other jobs do."""
    slot_s, slots = Fraction(instance.get("slot_s", 3600.0)), instance["slots"]
    table, prices = table_of(instance, job), joule_prices(instance)
    # "weight: weight of the job's completion time in the average"
    weights = sum(Fraction(other.get("weight", 1.0)) for other in instance["jobs"])
    share = Fraction(job.get("weight", 1.0)) / weights
    arrival_s, restart_s = Fraction(job.get("arrival_s", 0.0)), Fraction(job.get("restart_s", 0.0))
    held = job.get("current")
    held = (held["gpus"], held["pool"], held.get("batch_size")) if held else None
    # "Its first start is free, unless it ran before the horizon."
    ran = job.get("has_run", False) or held is not None
    # "done after the horizon with the job's fastest option (of equally fast ones that of least watts)"
    runnable = [row for row in table if row is not None]
    fastest = min(runnable, key=lambda row: (-row[3], row[2])) if runnable else None
    found = []

    def finish(rows, end_s, finished, costs, restarts):
        # "deadline_s: latest end, from the beginning of the horizon", "The completion time is the end of the
        # horizon plus the seconds that this takes, also for a deadline after the horizon."
        deadline_s = job.get("deadline_s")
        if deadline_s is not None:
            deadline_s = Fraction(deadline_s)
            if end_s > deadline_s + abs(deadline_s) * DEADLINE_TOLERANCE:
                return
        rows = rows + (None,) * (slots - len(rows))
        gpus = tuple(None if r is None else (table[r][1], table[r][0]) for r in rows)
        # "its completion time counts from its arrival"
        costs = (share * (end_s - arrival_s), *costs)
        found.append(Schedule(rows, gpus, end_s, finished, costs, restarts))

    def follow(t, rows, work, before, ran, costs, restarts):
        if t == slots:
            # "`must_finish` forbids unfinished work."
            if fastest is None or job.get("must_finish", False):
                return
            # "done after the horizon with the job's fastest option, without a restart";
            # "Its energy counts in all budgets at the averages of the forecasts"
            more_s = work / fastest[3]
            later = [c + more_s * fastest[2] * sum(p) / slots for c, p in zip(costs, prices, strict=True)]
            finish(rows, slots * slot_s + more_s, False, later, restarts)
            return
        follow(t + 1, (*rows, None), work, None, ran, costs, restarts)
        if t * slot_s < arrival_s:  # "can run from the first slot that begins then or later"
            return
        for r, row in enumerate(table):
            if row is None:
                continue
            gpus, pool, power_w, rate, batch = row
            # "A job restarts after a pause, or when its GPU count, pool or batch size change from one slot
            # to the next. It then draws its power for restart_s seconds at the beginning of the slot and does
            # no work. Its first start is free, unless it ran before the horizon. A new clock or power limit
            # is no restart."
            restart = ran and (gpus, pool, batch) != before
            lost_s, count = restart_s * restart, restarts + restart
            needed_s = lost_s + work / rate
            used_s = min(slot_s, needed_s)
            # "Idle GPUs draw their idle power in every slot", so a job counts with what it draws above them.
            # "A job that ends within a slot draws its power up to its end, and its GPUs are idle for the
            # rest of the slot."
            above_w = power_w - gpus * Fraction(instance["pools"][pool].get("idle_power_w", 0.0))
            now = [c + above_w * used_s * p[t] for c, p in zip(costs, prices, strict=True)]
            if needed_s <= slot_s:
                finish((*rows, r), t * slot_s + needed_s, True, now, count)
            else:
                left = work - rate * (slot_s - lost_s)
                follow(t + 1, (*rows, r), left, (gpus, pool, batch), True, now, count)

    follow(0, (), Fraction(job["remaining_work"]), held, ran, [Fraction(0)] * 3, 0)
    return found


def standing_costs(instance):
    """ "Idle GPUs draw their idle power in every slot and count in all budgets." """
    idle_w = sum(p["gpus"] * Fraction(p.get("idle_power_w", 0.0)) for p in instance["pools"].values())
    slot_s = Fraction(instance.get("slot_s", 3600.0))
    return (Fraction(0), *(idle_w * slot_s * sum(prices) for prices in joule_prices(instance)))


def undominated(found):
    """Schedules of a job without those that another one makes superfluous."""
    kept = []
    for schedule in sorted(found, key=lambda s: s.costs):
        if not any(other.dominates(schedule) for other in kept):
            kept.append(schedule)
    return kept


def decisions(instance, more=None):
    """(totals, schedules) of every choice of one schedule per job; `more` adds GPUs by slot and pool."""
    choices = [schedules(instance, job) for job in instance["jobs"]]
    choices = [undominated(found) for found in choices]
    room = {(t, name): p["gpus"] for name, p in instance["pools"].items() for t in range(instance["slots"])}
    for key, gpus in (more or {}).items():
        room[key] += gpus
    answers = []

    def choose(j, used, totals, chosen):
        if j == len(choices):
            answers.append((totals, chosen))
            return
        for schedule in choices[j]:
            now, fits = dict(used), True
            for t, held in enumerate(schedule.gpus):
                if held is not None:  # "GPUs are held for whole slots."
                    now[t, held[0]] = now.get((t, held[0]), 0) + held[1]
                    fits = fits and now[t, held[0]] <= room[t, held[0]]
            if fits:
                totals_now = tuple(a + b for a, b in zip(totals, schedule.costs, strict=True))
                choose(j + 1, now, totals_now, (*chosen, schedule))

    choose(0, {}, standing_costs(instance), ())
    return answers


def within_budgets(instance, totals, tolerance=BUDGET_TOLERANCE, without=()):
    """ "A decision may exceed a budget by 1e-6 of it" """
    budgets = instance.get("budgets", {})
    return all(
        totals[CRITERIA.index(name)] <= Fraction(limit) + tolerance * abs(Fraction(limit))
        for name, limit in budgets.items()
        if limit is not None and name not in without
    )


def optimum(instance, answers, objective=None):
    """Least values with and without the tolerance of budgets; None where there is no decision."""
    criterion = CRITERIA.index(CRITERION_OF[objective or instance.get("objective", "mean-completion")])
    loose = [t[criterion] for t, _ in answers if within_budgets(instance, t)]
    strict = [t[criterion] for t, _ in answers if within_budgets(instance, t, Fraction(0))]
    return min(loose, default=None), min(strict, default=None)


def frontier(instance, answers, tradeoff, without):
    """Points (average completion, total) that no other decision is better than, soonest first."""
    criterion = CRITERIA.index(CRITERION_OF[tradeoff])
    points = sorted(
        {(t[0], t[criterion]) for t, _ in answers if within_budgets(instance, t, without=without)}
    )
    front = []
    for point in points:
        if not front or point[1] < front[-1][1]:
            front.append(point)
    return front


def totals_of(instance, decision):
    """Totals of a decision in the form of a result, and its schedules; None where one is no schedule."""
    runs = {entry["job"]: entry["runs"] for entry in decision["jobs"]}
    totals, chosen = standing_costs(instance), []
    for job in instance["jobs"]:
        rows = [None] * instance["slots"]
        options = job["options"]
        table = table_of(instance, job)
        raw = instance["tables"][options] if isinstance(options, str) else options
        for run in runs.get(job["name"], []):
            r = row_of(raw, table, run)
            for t in range(run["first_slot"], run["first_slot"] + run["slots"]):
                rows[t] = r
        match = [s for s in schedules(instance, job) if list(s.rows) == rows]
        if len(match) != 1:
            return None
        totals = tuple(a + b for a, b in zip(totals, match[0].costs, strict=True))
        chosen += match
    return totals, chosen


def row_of(raw, table, run):
    """Number of the row of a table that a run names by its settings."""
    if isinstance(raw, dict):
        raw = [{key: values[r] for key, values in raw.items()} for r in range(len(table))]
    keys = ("gpus", "pool", "frequency_mhz", "power_limit_w", "batch_size")
    return next(r for r, row in enumerate(raw) if all(row.get(k) == run.get(k) for k in keys))


def decision_of(instance, chosen):
    """A decision in the form of a result from one schedule for each job."""
    entries, waiting = [], []
    for job, schedule in zip(instance["jobs"], chosen, strict=True):
        raw = instance["tables"][job["options"]] if isinstance(job["options"], str) else job["options"]
        if isinstance(raw, dict):
            raw = [{key: values[r] for key, values in raw.items()} for r in range(len(raw["gpus"]))]
        runs = []
        for t, r in enumerate(schedule.rows):
            if r is None:
                continue
            if runs and runs[-1][0] == r and runs[-1][1] + runs[-1][2] == t:
                runs[-1][2] += 1
            else:
                runs.append([r, t, 1])
        settings = ("gpus", "pool", "frequency_mhz", "power_limit_w", "batch_size")
        named = [
            {"first_slot": t, "slots": n} | {k: raw[r][k] for k in settings if raw[r].get(k) is not None}
            for r, t, n in runs
        ]
        if named:
            entries.append({"job": job["name"], "runs": named})
        else:
            waiting.append(job["name"])
    return {"jobs": entries, "waiting": waiting}


def random_table(rng, pools, rows, slot_s, nice):
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
    for field, most, chance in (("carbon_g_per_kwh", 500.0, 0.8), ("price_per_kwh", 0.4, 0.5)):
        if rng.random() < chance:
            flat = rng.choice([0.0, most]) if rng.random() < 0.15 else None
            length = slots + rng.choice([0, 0, 2])
            instance[field] = [
                rng.uniform(low * most / 500, most) if flat is None else flat for _ in range(length)
            ]
    shared = random_table(rng, pools, rows, slot_s, nice)
    instance["tables"]["shared"] = shared
    scale = rng.choice([1.0, 1.0, 1.0, 2.0**-13, 1024.0])
    shared["rate"] = [rate * scale for rate in shared["rate"]]
    for j in range(jobs):
        job = {"name": f"j{j}", "options": "shared"}
        if rng.random() < 0.3:
            own = random_table(rng, pools, rows, slot_s, nice)
            own["rate"] = [rate * scale for rate in own["rate"]]
            job["options"] = own
            if rng.random() < 0.5:
                job["options"] = [{k: v[r] for k, v in own.items()} for r in range(len(own["gpus"]))]
        if nice:
            job["remaining_work"] = scale * slot_s * rng.choice([0.25, 0.5, 1, 1.5, 2, 3, 5])
        else:
            job["remaining_work"] = (
                scale
                * slot_s
                * rng.choice([rng.uniform(0.05, 2), rng.uniform(0.5, 5), rng.choice([1e-3, 1e3])])
            )
        if rng.random() < 0.5:
            job["weight"] = rng.choice([1e-6, 1e-3, 0.5, 2.0, 1e3, 1e6])
        if rng.random() < 0.4:
            job["arrival_s"] = slot_s * rng.choice([0, 0.5, 1, slots - 1]) * (slots > 1)
        if rng.random() < 0.6:
            job["restart_s"] = slot_s * (rng.choice([0.25, 0.5]) if nice else rng.uniform(0, 0.99))
        if rng.random() < 0.3:
            job["has_run"] = True
        if rng.random() < 0.3 and not job.get("arrival_s"):
            row = rng.choice([row for row in table_of(instance, job) if row] or [(1, "p", 0, 0, None)])
            job["current"] = {"gpus": rng.choice([row[0], 1]), "pool": row[1]}
            if row[4] is not None:
                job["current"]["batch_size"] = rng.choice([row[4], 100])
        ends = sorted({s.end_s for s in schedules(instance | {"jobs": [job]}, job)})
        if ends and rng.random() < 0.35:
            job["deadline_s"] = float(rng.choice(ends)) * rng.choice([1.0, 1.0, 1.001, 1.5, 3.0, 1 - 1e-6])
        if rng.random() < 0.15 and (min(ends) <= slots * slot_s or rng.random() < 0.1):
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
    rng = random.Random(seed)
    instance = random_instance(rng, LARGE if large else SMALL)
    return (at_negative_prices(rng, instance) if negative else instance), rng


def at_negative_prices(rng, instance):
    """The instance with prices of which some or all are below 0, and budgets near what decisions use then."""
    least, most = rng.choice([(-0.4, 0.2), (-0.4, 0.2), (-0.4, 0.0), (-0.1, -0.1)])
    length = instance["slots"] + rng.choice([0, 0, 2])
    instance["price_per_kwh"] = [rng.uniform(least, most) for _ in range(length)]
    instance["objective"] = rng.choice(["money", "money", "money", instance["objective"]])
    instance["budgets"] = random_budgets(rng, instance)
    return instance


def refused(instance):
    """Instances that are errors in the file, as messages say; the page names none of these."""
    held = {}
    for job in instance["jobs"]:
        current = job.get("current")
        if current:
            held[current["pool"]] = held.get(current["pool"], 0) + current["gpus"]
        if not any(table_of(instance, job)) or job.get("deadline_s", 1e18) <= job.get("arrival_s", 0.0):
            return True
    return any(gpus > instance["pools"][pool]["gpus"] for pool, gpus in held.items())
