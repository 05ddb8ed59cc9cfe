"""Brute force of `shifting`, written from docs/shifting.md alone: every sentence in quotes is the page's."""

import random
from dataclasses import dataclass
from fractions import Fraction

KWH_J = 3_600_000
BUDGET_TOLERANCE = Fraction(1, 10**6)
DEADLINE_TOLERANCE = Fraction(1, 10**9)
TINY = Fraction(1, 10**9)  # of caps, arrivals, and work
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
    done: Fraction  # work within the horizon
    watts: tuple[Fraction, ...]  # above the idle draw of its GPUs, in slots where a cap counts them

    def dominates(self, other):
        holds_no_more = all(
            mine is None or (theirs is not None and mine[0] == theirs[0] and mine[1] <= theirs[1])
            for mine, theirs in zip(self.gpus, other.gpus, strict=True)
        )
        draws_no_more = all(a <= b for a, b in zip(self.watts, other.watts, strict=True))
        costs_no_more = all(a <= b for a, b in zip(self.costs, other.costs, strict=True))
        return holds_no_more and draws_no_more and costs_no_more


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


def caps(instance):
    """Pools and the watts of every slot, for each cap."""
    slots, everything = instance["slots"], (list(instance["pools"]), instance.get("power_w"))
    domains = [(d["pools"], d["power_w"]) for d in instance.get("power_domains", {}).values()]
    found = []
    for pools, cap in [everything, *domains]:
        # "one number, or one per slot (longer lists are cut, shorter ones refused)"
        if cap is not None:
            per_slot = cap[:slots] if isinstance(cap, list) else [cap] * slots
            found.append((set(pools), [Fraction(watts) for watts in per_slot]))
    return found


def spare_watts(instance):
    """Pools, and what jobs may draw above idle GPUs in every slot, for each cap."""
    found = []
    for pools, cap in caps(instance):
        # "In each slot, the watts under a cap are those of idle GPUs, for all GPUs of its pools"
        idle_w = sum(
            p["gpus"] * Fraction(p.get("idle_power_w", 0.0))
            for name, p in instance["pools"].items()
            if name in pools
        )
        # "This sum may not exceed the cap, up to 1e-9 of it."
        found.append((pools, [watts + TINY * abs(watts) - idle_w for watts in cap]))
    return found


def can_run(instance, job, t):
    """ "the job can run from the first slot that begins then or later (up to 1e-9 of it)" """
    arrival_s = Fraction(job.get("arrival_s", 0.0))
    return t * Fraction(instance.get("slot_s", 3600.0)) >= arrival_s - TINY * arrival_s


def could_do(instance, job):
    """Most work that a job is held to in the horizon: F x T."""
    options = [row for row in table_of(instance, job) if row is not None]
    current = job.get("current")
    if current:
        # "Where the job has `current`, only options with the same GPU count, pool and batch size count for F
        # if there are any."
        held = (current["gpus"], current["pool"], current.get("batch_size"))
        options = [row for row in options if (row[0], row[1], row[4]) == held] or options
    # "Let F be the rate of the job's fastest option."
    fastest = max((row[3] for row in options), default=Fraction(0))
    # "Let T be the seconds from the job's first slot to the end of the horizon."
    slots = sum(can_run(instance, job, t) for t in range(instance["slots"]))
    return fastest * slots * Fraction(instance.get("slot_s", 3600.0))


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
    # "done after the horizon with the job's fastest option, without a restart; of equally fast options, the
    # one with the least power"
    runnable = [row for row in table if row is not None]
    fastest = min(runnable, key=lambda row: (-row[3], row[2])) if runnable else None
    whole_work = Fraction(job["remaining_work"])
    # "A job that does not end within the horizon must have done at least `least_progress` x F x T of its work
    # by then, up to 1e-9 of its work."
    needed_work = Fraction(job.get("least_progress", 0.0)) * could_do(instance, job) - TINY * whole_work
    capped = {pool for pools, _ in caps(instance) for pool in pools}
    found = []

    def above_w(row):
        return row[2] - row[0] * Fraction(instance["pools"][row[1]].get("idle_power_w", 0.0))

    def finish(rows, end_s, finished, costs, restarts, done):
        # "deadline_s: latest end, from the beginning of the horizon", "The completion time is the end of the
        # horizon plus the seconds that this takes, also for a deadline after the horizon."
        deadline_s = job.get("deadline_s")
        if deadline_s is not None:
            deadline_s = Fraction(deadline_s)
            if end_s > deadline_s + abs(deadline_s) * DEADLINE_TOLERANCE:
                return
        rows = rows + (None,) * (slots - len(rows))
        gpus = tuple(None if r is None else (table[r][1], table[r][0]) for r in rows)
        # "for each job that holds GPUs of these pools in the slot its `power_w` less the idle watts of its
        # GPUs. A job counts in full in the slot in which it ends."
        watts = tuple(
            Fraction(0) if r is None or table[r][1] not in capped else above_w(table[r]) for r in rows
        )
        # "its completion time counts from its arrival"
        costs = (share * (end_s - arrival_s), *costs)
        found.append(Schedule(rows, gpus, end_s, finished, costs, restarts, done, watts))

    def follow(t, rows, work, before, ran, costs, restarts):
        if t == slots:
            # "`must_finish` forbids unfinished work."
            done = whole_work - work
            if fastest is None or job.get("must_finish", False) or done < needed_work:
                return
            # "The energy counts in all budgets, at the average of each forecast";
            # "What unfinished jobs draw after the horizon is under no cap."
            more_s = work / fastest[3]
            later = [c + more_s * fastest[2] * sum(p) / slots for c, p in zip(costs, prices, strict=True)]
            finish(rows, slots * slot_s + more_s, False, later, restarts, done)
            return
        follow(t + 1, (*rows, None), work, None, ran, costs, restarts)
        if not can_run(instance, job, t):
            return
        for r, row in enumerate(table):
            if row is None:
                continue
            gpus, pool, _, rate, batch = row
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
            now = [c + above_w(row) * used_s * p[t] for c, p in zip(costs, prices, strict=True)]
            left = work - rate * (slot_s - lost_s)
            # "A job has ended when its remaining work is less than 1e-9 of its work in a slot."
            if left <= 0 or left < TINY * rate * slot_s:
                finish((*rows, r), t * slot_s + used_s, True, now, count, whole_work)
            else:
                follow(t + 1, (*rows, r), left, (gpus, pool, batch), True, now, count)

    follow(0, (), whole_work, held, ran, [Fraction(0)] * 3, 0)
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


def held_in(schedule, t):
    return schedule.gpus[t] and schedule.gpus[t][0]


def keeps_caps(instance, chosen):
    """Whether one schedule for each job keeps all caps."""
    return all(
        watts >= sum(schedule.watts[t] for schedule in chosen if held_in(schedule, t) in pools)
        for pools, spare in spare_watts(instance)
        for t, watts in enumerate(spare)
    )


def decisions(instance, more=None):
    """(totals, schedules) of every choice of one schedule per job; `more` adds GPUs by slot and pool."""
    choices = [schedules(instance, job) for job in instance["jobs"]]
    choices = [undominated(found) for found in choices]
    room = {(t, name): p["gpus"] for name, p in instance["pools"].items() for t in range(instance["slots"])}
    for key, gpus in (more or {}).items():
        room[key] += gpus
    limits, answers = spare_watts(instance), []
    if any(watts < 0 for _, spare in limits for watts in spare):
        return answers

    def choose(j, used, spare, totals, chosen):
        if j == len(choices):
            answers.append((totals, chosen))
            return
        for schedule in choices[j]:
            now, fits = dict(used), True
            for t, held in enumerate(schedule.gpus):
                if held is not None:  # "GPUs are held for whole slots."
                    now[t, held[0]] = now.get((t, held[0]), 0) + held[1]
                    fits = fits and now[t, held[0]] <= room[t, held[0]]
            left = [
                [w - schedule.watts[t] * (held_in(schedule, t) in pools) for t, w in enumerate(watts)]
                for (pools, _), watts in zip(limits, spare, strict=True)
            ]
            if fits and all(w >= 0 for watts in left for w in watts):
                totals_now = tuple(a + b for a, b in zip(totals, schedule.costs, strict=True))
                choose(j + 1, now, left, totals_now, (*chosen, schedule))

    choose(0, {}, [spare for _, spare in limits], standing_costs(instance), ())
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
    if ends[0] <= instance["slots"] * Fraction(instance["slot_s"]) and rng.random() < 0.1:
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
