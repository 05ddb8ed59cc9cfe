"""Explanations in words: one sentence first, then the changes and what they rest on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from wattsched.formulations.sizing.data import options_of
from wattsched.formulations.sizing.jobs import jobs_of
from wattsched.instances.sizing.decision import AssignmentColumns, Decision
from wattsched.instances.sizing.explanation import COMPLETIONS, Alternative, Change, Explanation
from wattsched.instances.sizing.instance import Instance
from wattsched.reading.inputs import echo
from wattsched.report.terminal import heading, line, table
from wattsched.report.wording import count, duration, number, quantity
from wattsched.topology.arrays import IntArray
from wattsched.topology.pools import Pool
from wattsched.verification.sizing.checker import check

if TYPE_CHECKING:
    from rich.console import Console

# A decision that is so close to its bound is one of the best.
_CLOSE = 1e-3
_ASKED = {
    "budgets": "more watts or joules",
    "gpus": "more GPUs",
    "tenant_gpus": "a larger quota",
    "power_domains": "higher caps of power domains",
    "later": "options that are later than if it waits",
    "requests": "less that the job asks for",
    "min_gpus": "fewer GPUs",
    "deadline_s": "a later deadline",
    "cost": "what it costs others",
    "start": "when it is expected to start",
    "several": "changes of several kinds at once, of which no single one is enough",
}

_CHOICES: dict[str, Callable[[Any], str]] = {
    "pools": lambda own: f"{count(own.gpus, 'GPU')} of {named(own.pool)}",
    "gpu_counts": lambda own: count(own.gpus, "GPU"),
    "frequencies_mhz": lambda own: f"a clock of {own.frequency_mhz} MHz",
    "power_limits_w": lambda own: f"a power limit of {number(own.power_limit_w)} W",
    "batch_sizes": lambda own: f"a batch size of {own.batch_size}",
}
"""Words for the choice of a job, by the name of its own list that is lifted."""

MOST_NAMED, MOST_LETTERS, LONGEST = 3, 40, 600
"""Jobs that a sentence names, letters of each name, and letters of a sentence."""


def named(name: object) -> str:
    """Return a name of a file, printable and short."""
    return echo(name, quote="", most=MOST_LETTERS)


def sentence_of(found: Explanation, instance: Instance, decision: Decision) -> str:
    """Say in a sentence why a job waits and what would let it run."""
    job, parts = named(found.job), list[str]()
    if found.state == "runs":
        parts.append(f"{job} runs: nothing keeps it waiting")
    elif found.reason:
        parts += [f"{job} cannot run: it {found.reason}", *_ways(found)]
    elif any(one.change == Change() for one in found.alternatives):
        parts.append(f"{job} could run now, and no other job would be later")
        parts.append("the objective is no better if it does")
    else:
        jobs = instance.by_column()
        waits = "has to stop, and waits" if jobs.place[found.job] in jobs.running else "waits"
        parts += [f"{job} {waits} for {_needs(found, instance, decision)}", *_goes_first(found, instance)]
        if found.state == "never":
            parts.append("to stop other jobs would not be enough")
        parts += [*_ways(found), *_weight(found, instance), *_start(found)]
    text = "; ".join(parts)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _ways(found: Explanation) -> Iterator[str]:
    """Yield what would let the job start: with which it is better off than if it waits, and others."""
    if ways := [words_of(one, found.job) for one in found.alternatives if not one.change.later]:
        yield f"it would start now with {', or with '.join(ways)}"
    for one in found.alternatives:
        if one.change.later:
            gpus = sum(own.gpus for own in one.decision.jobs if own.job == found.job)
            how = f"with {words_of(one, found.job)}" if one.change.amounts else "at once"
            could = f"it could start on {count(gpus, 'GPU')} {how}"
            yield f"{could}, but expects to be complete sooner if it waits"


def _weight(found: Explanation, instance: Instance) -> Iterator[str]:
    """Yield the weight with which the job would go first, if it is known."""
    if found.cost is not None and found.cost.weight is not None:
        jobs = instance.by_column()
        own = jobs.numbers("weight")[jobs.place[found.job]]
        if number(found.cost.weight) == number(own):
            yield f"others are worth as much: with any weight above {number(own)} it would go first"
        else:
            yield f"with weight {number(found.cost.weight)} instead of {number(own)} it would go first"


def _start(found: Explanation) -> Iterator[str]:
    """Yield when the job is expected to start, if that is known."""
    if found.start is not None:
        first, last = duration(found.start.earliest_s), duration(found.start.latest_s)
        others = "no others come"
        when = f"in {first} to {last}, if {others}"
        if first == last:
            when = f"in about {first}, if jobs take as long as expected and {others}"
        yield f"it is expected to start {when}"


def words_of(one: Alternative, job: str) -> str:
    """Say what an alternative changes for a job: ``8 more GPUs of A100 and 1.2 kW more``."""
    change, parts = one.change, list[str]()
    for pool, gpus in change.gpus.items():
        parts.append(f"{count(gpus, 'more GPU')} of {named(pool)}")
    for domain, watts in change.power_domains.items():
        parts.append(f"{quantity(watts, 'W')} more behind {named(domain)}")
    if change.tenant_gpus:
        parts.append(f"{count(change.tenant_gpus, 'more GPU')} in the quota of its tenant")
    if change.min_gpus is not None:
        parts.append(f"{count(change.min_gpus, 'GPU')}, fewer than it asks for")
    if change.deadline_s is not None:
        parts.append(f"a deadline of {duration(change.deadline_s)}")
    own = next((assigned for assigned in one.decision.jobs if assigned.job == job), None)
    for field in change.lifted if own is not None else ():
        parts.append(f"{_CHOICES[field](own)}, which its own list lacks")
    raised = {"power_w": (change.power_w, "W"), "energy_j": (change.energy_j, "J")}
    raised["carbon_g"] = (change.carbon_g, "g of CO2")
    parts += [f"{quantity(amount, unit)} more" for amount, unit in raised.values() if amount]
    return " and ".join(parts) or "nothing"


def _needs(found: Explanation, instance: Instance, decision: Decision) -> str:
    """Say what the job's smallest option needs of the pool where it is soonest, and what is free there."""
    known = jobs_of(instance)
    options = options_of(known, np.array([known.jobs.place[found.job]]))
    runs = np.flatnonzero(~options.waiting)
    if instance.objective in COMPLETIONS:
        runs = runs[options.completion_s[runs] <= known.round_s + known.best_s[options.job[0]]]
    if not len(runs):
        return "jobs that it could share GPUs with"
    p = int(options.pool[runs[np.argmin(options.completion_s[runs])]])
    pool, here = known.pools[p], runs[options.pool[runs] == p]
    gpus, free = int(options.gpus[here].min()), _free(instance, decision)[pool.members]
    total, most = int(free.sum()), int(free.max())
    needed = f"{count(gpus, 'GPU')}{f' of {named(pool.name)}' if len(known.pools) > 1 else ''}"
    together = total if gpus > pool.gpus_per_node or pool.capacity == "count" else most
    short = {name for one in found.alternatives for name in one.change.amounts}
    if together >= gpus and "gpus" not in short:
        if "tenant_gpus" in short:
            return f"{needed}: {_quota_left(instance, decision, found.job)}"
        if "power_w" in short and instance.budgets.power_w is not None:
            left_w = instance.budgets.power_w - check(instance, decision).totals["power_w"]
            watts = float((options.power_w - options.idle_w)[here].min())
            return f"power: {needed} would take {quantity(watts, 'W')} more, {quantity(left_w, 'W')} are left"
        if "power_domains" in short:
            return f"power: {needed} would be free, but the caps of its power domains bind"
        what = "energy" if short & {"energy_j", "carbon_g"} else "other limits"
        if what != "energy" and _has_quota(instance, found.job):
            what = "other limits, such as the quota of its tenant"
        return f"{what}: {needed} would be free"
    return f"{needed}{_room(pool, free, gpus)}"


def _room(pool: Pool, free: IntArray, gpus: int) -> str:
    """Say where so many GPUs would have to be together in a pool, and how many are free on its nodes."""
    total, most, each = int(free.sum()), int(free.max()), pool.gpus_per_node
    every = int(pool.available.sum())
    shut = pool.n_gpus - every
    closed = f"{shut:,} {'is' if shut == 1 else 'are'} closed: broken, reserved or used by others"
    beside = f" ({closed})" if shut else ""
    if pool.capacity != "count" and gpus > each and gpus % each == 0:
        whole = int((free >= each).sum())
        nodes = "node is" if whole == 1 else "nodes are"
        return f" on {gpus // each:,} whole nodes: {whole:,} {nodes} free{beside}"
    if pool.capacity == "count" or gpus > each or gpus == 1:
        together = ", but not together" if total >= gpus else ""
        return f": {total:,} of {every:,} free{together}{beside}"
    where = named(pool.nodes[int(np.argmax(free))])
    there = f"{most} {'is' if most == 1 else 'are'} free on {where}" if most else "none is free"
    there += ", but not in one block" if most >= gpus else ""
    scattered = f", and {total:,} in all" if total > most else ""
    return f" on one node: {there}{scattered}{beside}"


def _quota_left(instance: Instance, decision: Decision, job: str) -> str:
    """Say how many GPUs are left of the quota of a job's tenant."""
    jobs = instance.by_column()
    name = jobs.coded("tenant").at(jobs.place[job]) or ""
    quota = instance.tenants[name].gpus or 0
    theirs = [one.gpus for one in decision.jobs if jobs.coded("tenant").at(jobs.place[one.job]) == name]
    left = max(0, quota - sum(theirs))
    return (
        f"{left:,} of {count(quota, 'GPU')} {'is' if left == 1 else 'are'} left in the quota of {named(name)}"
    )


def _has_quota(instance: Instance, job: str) -> bool:
    """True if the tenant of a job has a quota of watts, joules or grams."""
    jobs = instance.by_column()
    tenant = instance.tenants.get(jobs.coded("tenant").at(jobs.place[job]) or "")
    quotas = (tenant.power_w, tenant.energy_j, tenant.carbon_g) if tenant is not None else ()
    return any(quota is not None for quota in quotas)


def _is_proven(found: Explanation) -> bool:
    """True if the decision in which the job runs is known to be about as good as there is."""
    cost = found.cost
    if cost is None or cost.bound is None:
        return False
    return abs(cost.objective - cost.bound) <= _CLOSE * max(1e-9, abs(cost.objective))


def _free(instance: Instance, decision: Decision) -> IntArray:
    """GPUs of each node that no job of a decision has, shape (n_nodes,)."""
    nodes, running = instance.cluster.node_columns(), AssignmentColumns.from_records(decision.jobs)
    column, place = running.coded("node"), {name: i for i, name in enumerate(nodes.names)}
    free = nodes.available.copy()
    for code, _ in set(zip(column.codes.tolist(), running.gpu.tolist(), strict=True)):  # those of a set once
        free[place[column.values[code]]] -= 1
    return free


def _goes_first(found: Explanation, instance: Instance) -> Iterator[str]:
    """Yield the names of jobs that would be later if this one ran."""
    if found.cost is None or not found.cost.later or not _is_proven(found):
        return
    jobs, later = instance.by_column(), found.cost.later
    weights = jobs.numbers("weight")
    names = [f"{named(name)} (weight {number(weights[jobs.place[name]])})" for name in later[:MOST_NAMED]]
    if len(later) > MOST_NAMED:
        yield f"{', '.join(names)} and {len(later) - MOST_NAMED:,} more go first"
    else:
        yield f"{' and '.join(names)} {'goes' if len(names) == 1 else 'go'} first"


def print_explanation(out: Console, found: Explanation) -> None:
    """Print an explanation: the sentence, the changes, and who would pay for none."""
    first, *others = found.sentence.split("; ")
    line(out, (first, "bold"))
    for part in others:
        line(out, part, indent=2)
    rows: list[Any] = []
    for one in found.alternatives:
        told = words_of(one, found.job) + (", later than if it waits" if one.change.later else "")
        more = len(one.decision.jobs) + len(one.decision.waiting) - 1  # beside the job itself
        proof = "proven least" if one.proven else _short(one)
        rows.append((told, str(more) if more > 0 else "none", proof))
    if rows:
        heading(out, "It runs with", "no other job that runs is later")
        table(out, ["change", "other jobs that change", "proof"], rows)
    if (cost := found.cost) is not None:
        best = "" if _is_proven(found) else ", or better: that was not found out in time"
        heading(out, "Without any change", f"the objective is {number(cost.objective, 7)} if it runs{best}")
        rows = [(named(name),) for name in cost.later]
        table(out, ["later, or stopped"], rows, most=8)
    if found.unanswered:
        asked = ", ".join(_ASKED.get(name, name) for name in found.unanswered)
        line(out, (f"not answered in time, or without a proof: {asked}", "dim"))


def _short(one: Alternative) -> str:
    """Say how much of an amount is proven to be needed."""
    units = {"power_w": "W", "energy_j": "J", "carbon_g": "g", "power_domains": "W"}
    told = [
        f"at least {quantity(one.least[n], units[n])}"
        for n in one.change.amounts
        if n in units and n in one.least
    ]
    return ", ".join(told) or "not proven"
