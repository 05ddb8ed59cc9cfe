"""The independent checker: recomputes a decision from the instance alone and trusts nobody.

It shares no code with formulations, solvers, the options' arrays or the topology's pools and allocator. Where
it and they read the rules differently, one of them is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import repeat

import numpy as np

from wattsched.instances.errors import require
from wattsched.instances.sizing.decision import Decision
from wattsched.instances.sizing.instance import Instance
from wattsched.instances.units import J_PER_KWH
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray
from wattsched.verification.report import TOLERANCE, Report, budget_faults, exceeds, pairing_faults
from wattsched.verification.sizing.gpus import UNKNOWN, Assigned, gpu_faults
from wattsched.verification.sizing.left_out import decided
from wattsched.verification.sizing.left_out import faults as left_out_faults
from wattsched.verification.sizing.objectives import ENERGY, OBJECTIVES, goodput_in_all, objective_of, total
from wattsched.verification.sizing.outcomes import UNSAID, WAITS, Outcomes, outcomes_of, set_faults
from wattsched.verification.sizing.pools import Places, Pool, block_of, places_of
from wattsched.verification.sizing.requirements import reached_by, reached_faults, unlike_faults
from wattsched.verification.sizing.rows import awake_w, sleepers
from wattsched.verification.sizing.tenants import drawn_j
from wattsched.verification.sizing.tenants import faults as quota_faults
from wattsched.verification.sizing.uncertainty import worst_case


def check(instance: Instance, decision: Decision) -> Report:
    """Check a decision against every rule of an instance without faults; a TypeError for anything else.

    The totals are ``power_w`` (running jobs, idle GPUs, base power of nodes that are awake), ``energy_j``
    and, where the carbon intensity or the price is known, ``carbon_g`` and ``money`` in the scope of the
    budgets, ``gpus_used``, ``gpus_available``, ``restarts`` (running jobs that change GPU count, batch size
    or pool, or stop), ``migrations`` (those that keep their configuration but on other GPUs) and, where there
    is such a thing, ``change_cost``, what the objective pays for changes, ``goodput`` under a least one, and
    ``nodes_asleep``, ``worst_power_w`` where watts are uncertain, and values of objectives that are limited,
    such as ``objective:energy``. The objective is None when some job does nothing that it could do. Jobs
    without options wait, and are in none of this.
    """
    require("instance", instance, (Instance,), "an Instance")
    require("decision", decision, (Decision,), "a Decision, such as a result's field 'decision'")
    of, whole = decided(instance), instance  # without jobs that are left out, and with them
    instance, configurations = of.instance, of.configurations
    pools, jobs = configurations.pools, configurations.jobs
    numbers = jobs.place
    assigned = Assigned(decision, numbers, pools, places_of(instance.cluster))
    kept = np.append(jobs.fixed, False)[assigned.job]  # the last is of jobs that are not known
    waits = np.fromiter(map(numbers.get, decision.waiting, repeat(UNKNOWN)), np.int64, len(decision.waiting))
    faults = list(left_out_faults(of, decision))
    every = whole.by_column().place if of.left_out else numbers
    faults += pairing_faults(every, assigned.names, decision.waiting)
    faults += [*set_faults(whole, assigned), *gpu_faults(assigned, kept)]
    said = _said(len(jobs), assigned.job, waits)
    outcomes, own_faults = outcomes_of(configurations, assigned, said, np.arange(len(jobs)))
    faults += own_faults
    places = places_of(instance.cluster)
    sleeping = sleepers(instance, places)
    asleep = sleeping & ~_used_nodes(assigned, places, kept) if sleeping.any() else sleeping
    drawn = _Drawn(instance, pools, outcomes, places.by_pool(asleep), places.by_pool(sleeping & ~asleep))
    energy_j, intensity = drawn.energy_j(), instance.carbon_g_per_kwh
    totals = {
        "gpus_used": int(assigned.gpus[assigned.users].sum()),
        "gpus_available": sum(pool.available for pool in pools.values()),
        "power_w": total(drawn.power_w.values()),
        "energy_j": energy_j,
        **({} if intensity is None else {"carbon_g": energy_j * intensity / J_PER_KWH}),
        "restarts": int(outcomes.restarts.sum()),
        "migrations": int(outcomes.migrates.sum()),
        **({"change_cost": total(outcomes.change_cost.tolist())} if configurations.change_cost.any() else {}),
        **({} if (price := instance.price_per_kwh) is None else {"money": energy_j * price / J_PER_KWH}),
        **({"nodes_asleep": int(asleep.sum())} if sleeping.any() else {}),
        **({} if instance.budgets.least_goodput is None else {"goodput": goodput_in_all(outcomes)}),
    }
    if instance.uncertainty is not None:
        totals["worst_power_w"] = totals["power_w"] + drawn.beyond_w()
    faults += _over_caps(instance, drawn)
    capped = totals | {"power_w": totals.get("worst_power_w", totals["power_w"])}
    faults += budget_faults(instance.budgets, capped, TOLERANCE)
    if instance.budgets.reached and len(outcomes.jobs) == len(jobs):
        reached = reached_by(outcomes, drawn.by_job_j(), drawn.woken_j())
        totals |= {f"objective:{name}": value for name, value in reached.items()}
        faults += reached_faults(instance, reached)
    faults += unlike_faults(instance, decision, jobs.names)
    faults += [*_over_quotas(instance, outcomes), *_too_little(instance, totals)]
    objective = None
    if instance.objective not in OBJECTIVES:
        faults.append(f"objective '{instance.objective}' is not known")
    elif len(outcomes.jobs) == len(jobs):
        energy = (drawn.by_job_j(), drawn.woken_j()) if instance.objective in ENERGY else (0.0, 0.0)
        objective = objective_of(instance, outcomes, *energy)
    return Report(faults, objective, totals, dropped=of.left_out)


def _used_nodes(assigned: Assigned, places: Places, kept: BoolArray) -> BoolArray:
    """Mask of nodes with GPUs or blocks of the decision; assignments that are kept have no more than GPUs."""
    node, used = places.on_node, np.zeros(len(places.size), dtype=bool)
    used[node[assigned.number[assigned.number != UNKNOWN]]] = True
    for a in np.flatnonzero((block_of(assigned.gpus) != assigned.gpus) & ~kept).tolist():
        numbers = assigned.number[assigned.start[a] : assigned.start[a + 1]]
        if not len(numbers) or UNKNOWN in numbers or places.capacity[assigned.pool[a]] != "blocks":
            continue
        begin, aligned = places.reserved(numbers, np.zeros(1, dtype=np.int64), np.array([len(numbers)]))
        if aligned[0]:
            first = places.line[places.home[numbers[0]]] + begin[0]
            used[node[places.on_lines[first : first + int(block_of(len(numbers)))]]] = True
    return used


def _too_little(instance: Instance, totals: Mapping[str, float]) -> Iterator[str]:
    """Yield a fault for a goodput below the least."""
    least = instance.budgets.least_goodput
    if least is not None and not (found := totals["goodput"]) >= least * (1 - TOLERANCE):
        yield f"budgets.least_goodput: the decision has {found:.9g}, it must be {least:.9g} at least"


def _over_quotas(instance: Instance, outcomes: Outcomes) -> list[str]:
    """Return a fault for every tenant and cohort whose jobs have more than they may."""
    if not instance.tenants:
        return []
    runs = outcomes.runs
    tenants = outcomes.configurations.jobs.coded("tenant").take(outcomes.jobs[runs]).tolist()
    gpus = outcomes.assigned.gpus[outcomes.assignment[runs]] / outcomes.members[runs]
    drawn = drawn_j(instance, outcomes.power_w[runs], outcomes.completion_s[runs])
    grams = drawn * ((instance.carbon_g_per_kwh or 0.0) / J_PER_KWH)
    used = {"share": gpus, "draw": outcomes.power_w[runs], "energy": drawn, "carbon": grams}
    return list(quota_faults(instance, tenants, used))


def _said(n: int, running: IntArray, waiting: IntArray) -> IntArray:
    """Return the first statement on each of n jobs: the number of an assignment, `WAITS` or `UNSAID`."""
    said = np.full(n + 1, UNSAID)  # the last is of those that are not known
    said[waiting] = WAITS
    said[running[::-1]] = np.arange(len(running))[::-1]
    return said[:-1]


class _Drawn:
    """Watts and joules of a decision, by its nodes of each pool that are asleep, and that jobs have woken.

    Attributes
    ----------
    idle_w, power_w : dict of str to float
        Draw of each pool if no job runs, and with the jobs.
    woken_w : float
        Draw of the nodes, without jobs, that would sleep if no job were there.
    """

    def __init__(
        self,
        instance: Instance,
        pools: dict[str, Pool],
        outcomes: Outcomes,
        asleep: list[IntArray],
        woken: list[IntArray],
    ):
        self._instance, self._outcomes, self.pools = instance, outcomes, pools
        types, runs, assigned = instance.cluster.gpu_types, outcomes.runs, outcomes.assigned
        self._idle_w = np.array([types[pool.gpu_type].idle_power_w for pool in pools.values()])
        assignment = outcomes.assignment[runs]
        self._pool, self._gpus = assigned.pool[assignment], assigned.gpus[assignment]
        self._busy_w = outcomes.power_w[runs]
        leading = np.where(outcomes.leads[runs], self._gpus, 0)
        order = np.argsort(self._pool, kind="stable")
        ends = np.searchsorted(self._pool, np.arange(len(pools) + 1), sorter=order).tolist()
        self.idle_w, self.power_w = {}, {}
        self.woken_w = total(
            watts
            for pool, nodes in zip(pools.values(), woken, strict=True)
            for watts in awake_w(instance, nodes, pool).tolist()
        )
        base_w = instance.cluster.node_columns().numbers("base_power_w")
        for (name, pool), down, idle_w, start, end in zip(
            pools.items(), asleep, self._idle_w.tolist(), ends[:-1], ends[1:], strict=True
        ):
            here = order[start:end]
            servers_w = pool.servers_w - total(base_w[down].tolist()) if len(down) else pool.servers_w
            idle, busy = pool.available - pool.gpus_per_node * len(down), int(leading[here].sum())
            self.idle_w[name] = idle * idle_w + servers_w
            self.power_w[name] = total([(idle - busy) * idle_w + servers_w, *self._busy_w[here].tolist()])

    def beyond_w(self, domain: str | None = None) -> float:
        """Watts beyond what options state in the worst case, of all pools or of those in a power domain."""
        outcomes, uncertainty = self._outcomes, self._instance.uncertainty
        if uncertainty is None:
            return 0.0
        share = self._instance.deviations(outcomes.configurations.jobs, "power_deviation")
        deviation_w = share[outcomes.jobs[outcomes.runs]] * self._busy_w
        inside = [domain is None or domain in pool.domains for pool in self.pools.values()]
        return worst_case(uncertainty, deviation_w[np.array(inside, dtype=bool)[self._pool]])

    def woken_j(self) -> float:
        """Energy of the nodes that jobs keep awake, without that of jobs, in the scope of the budgets."""
        return self.woken_w * self._instance.round_s if self._instance.budgets.scope == "round" else 0.0

    def by_job_j(self) -> FloatArray:
        """Energy of each job in the scope of the budgets, above idle in that of a round; shape (n_jobs,)."""
        outcomes, runs = self._outcomes, self._outcomes.runs
        found = np.zeros(len(runs))
        with np.errstate(over="ignore", invalid="ignore"):
            if self._instance.budgets.scope == "completion":
                found[runs] = self._busy_w * outcomes.completion_s[runs]
                found[~runs] = outcomes.configurations.least_energy_j(outcomes.jobs[~runs])
                return found
            idle_w = self._idle_w[self._pool] * (self._gpus / outcomes.members[runs])
            busy_s = np.minimum(outcomes.completion_s[runs], self._instance.round_s)
            found[runs] = (self._busy_w - idle_w) * busy_s
        return found

    def energy_j(self) -> float:
        """Energy in the scope of the budgets."""
        idle_w = self.idle_w.values() if self._instance.budgets.scope == "round" else ()
        return total([*self.by_job_j().tolist(), *(watts * self._instance.round_s for watts in idle_w)])


def _over_caps(instance: Instance, drawn: _Drawn) -> Iterator[str]:
    """Yield a fault for every power domain above its cap, in the worst case where watts are uncertain."""
    inside: dict[str, list[float]] = {}
    for name, pool in drawn.pools.items():
        for through in pool.domains:
            inside.setdefault(through, []).append(drawn.power_w[name])
    for domain in instance.cluster.power_domains:
        draws_w = [domain.reserved_w, *inside.get(domain.name, []), drawn.beyond_w(domain.name)]
        inside_w, cap_w = total(draws_w), domain.power_cap_w
        if exceeds(inside_w, cap_w, TOLERANCE):
            yield f"power domain '{domain.name}' draws {inside_w:.9g} W, its cap is {cap_w:.9g} W"
