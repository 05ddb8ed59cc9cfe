"""Brute force of `shifting`, written from docs/shifting.md alone: every sentence in quotes is the page's."""

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

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


def lengths(instance):
    """Seconds of every slot."""
    slots, slot_s = instance["slots"], instance.get("slot_s", 3600.0)
    # "one number, or one per slot (longer lists are cut, shorter ones refused)"
    per_slot = slot_s[:slots] if isinstance(slot_s, list) else [slot_s] * slots
    return [Fraction(seconds) for seconds in per_slot]


def begins(instance):
    """When every slot begins, and the end of the horizon."""
    # "A slot begins at the sum of the seconds of all slots before it."
    return list(accumulate(lengths(instance), initial=Fraction(0)))


def joule_prices(instance):
    """Per joule in every slot: energy, grams, money; None where the instance has no forecast."""
    slots = instance["slots"]
    forecasts = [[Fraction(1)] * slots]
    for field in ("carbon_g_per_kwh", "price_per_kwh"):
        # "forecasts, one number per slot; longer ones are cut"
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
    return begins(instance)[t] >= arrival_s - TINY * arrival_s


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
    seconds = sum(s for t, s in enumerate(lengths(instance)) if can_run(instance, job, t))
    return fastest * seconds


def schedules(instance, job):
    """All schedules of a job that keep its own limits, whatever the other jobs do."""
    slots, slot_lengths, slot_begins = instance["slots"], lengths(instance), begins(instance)
    table, prices = table_of(instance, job), joule_prices(instance)
    # "weight: weight of the job's completion time in the average"
    weights = sum(Fraction(other.get("weight", 1.0)) for other in instance["jobs"])
    share = Fraction(job.get("weight", 1.0)) / weights
    arrival_s, restart_s = Fraction(job.get("arrival_s", 0.0)), Fraction(job.get("restart_s", 0.0))
    held = job.get("current")
    held = (held["gpus"], held["pool"], held.get("batch_size")) if held else None
    # "Its first start is free, unless it ran before the horizon: with `has_run` or `current` every start is a
    # restart, except that the job may run on in the first slot"
    ran = job.get("has_run", False) or held is not None
    # "done after the horizon with the job's fastest option, without a restart; of equally fast options, the
    # one with the least power"
    runnable = [row for row in table if row is not None]
    fastest = min(runnable, key=lambda row: (-row[3], row[2])) if runnable else None
    # "the sum of each slot's number times its seconds, divided by the seconds of the horizon"
    means = [sum(x * s for x, s in zip(p, slot_lengths, strict=True)) / slot_begins[-1] for p in prices]
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
        # horizon plus the seconds that this takes. A deadline after the horizon is compared with this time."
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
            # "The energy counts in all budgets, at the mean of each forecast over time";
            # "What unfinished jobs draw after the horizon is under no cap."
            more_s = work / fastest[3]
            later = [c + more_s * fastest[2] * mean for c, mean in zip(costs, means, strict=True)]
            finish(rows, slot_begins[-1] + more_s, False, later, restarts, done)
            return
        follow(t + 1, (*rows, None), work, None, ran, costs, restarts)
        if not can_run(instance, job, t):
            return
        slot_s = slot_lengths[t]
        for r, row in enumerate(table):
            if row is None:
                continue
            gpus, pool, _, rate, batch = row
            # "A job restarts after a pause, or when its GPU count, pool or batch size changes from one slot
            # to the next. It then draws its power for restart_s seconds at the beginning of the slot and does
            # no work. Its first start is free, unless it ran before the horizon. A new clock or power limit
            # is not a restart."
            restart = ran and (gpus, pool, batch) != before
            # "A job can restart only in a slot that is longer than its `restart_s`." "A slot that is as long
            # as `restart_s` is too short; there is no tolerance."
            if restart and slot_s <= restart_s:
                continue
            lost_s, count = restart_s * restart, restarts + restart
            needed_s = lost_s + work / rate
            used_s = min(slot_s, needed_s)
            # "Idle GPUs draw their idle power in every slot", so a job counts with what it draws above them.
            # "A job that ends within a slot draws its power up to its end, and its GPUs are idle for the
            # rest of the slot."
            now = [c + above_w(row) * used_s * p[t] for c, p in zip(costs, prices, strict=True)]
            left = work - rate * (slot_s - lost_s)
            # "A job has ended in a slot when the work that it leaves is at most 1e-9 of what it does in the
            # whole slot without a restart."
            if left <= TINY * rate * slot_s:
                finish((*rows, r), slot_begins[t] + used_s, True, now, count, whole_work)
            else:
                follow(t + 1, (*rows, r), left, (gpus, pool, batch), True, now, count)

    follow(0, (), whole_work, held, ran, [Fraction(0)] * 3, 0)
    return found


def standing_costs(instance):
    """ "Idle GPUs draw their idle power in every slot and count in all budgets." """
    idle_w = sum(p["gpus"] * Fraction(p.get("idle_power_w", 0.0)) for p in instance["pools"].values())
    seconds = lengths(instance)
    joules = ((x * s for x, s in zip(prices, seconds, strict=True)) for prices in joule_prices(instance))
    return (Fraction(0), *(idle_w * sum(by_slot) for by_slot in joules))


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
    # Watts as whole numbers of a unit that all of them are multiples of: the same, and quicker.
    watts = [w for _, spare in limits for w in spare]
    watts += [w for found in choices for schedule in found for w in schedule.watts]
    unit = math.lcm(*(w.denominator for w in watts))

    def takes(schedule):
        """What a schedule takes of GPUs by slot and pool, and of watts by limit and slot."""
        # "GPUs are held for whole slots."
        gpus = [(schedule.gpus[t] or ("", 0))[1] * (held_in(schedule, t) == name) for t, name in room]
        return [*gpus, *(int(w * unit) * (held_in(schedule, t) in pools)
                         for pools, _ in limits for t, w in enumerate(schedule.watts))]  # fmt: skip

    choices = [[(schedule, takes(schedule)) for schedule in found] for found in choices]

    def choose(j, spare, totals, chosen):
        if j == len(choices):
            answers.append((totals, chosen))
            return
        for schedule, taken in choices[j]:
            left = [a - b for a, b in zip(spare, taken, strict=True)]
            if min(left) >= 0:
                totals_now = tuple(a + b for a, b in zip(totals, schedule.costs, strict=True))
                choose(j + 1, left, totals_now, (*chosen, schedule))

    spare = [*room.values(), *(int(w * unit) for _, watts in limits for w in watts)]
    choose(0, spare, standing_costs(instance), ())
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
