"""Consistency checks across the fields of an instance, beyond the type of each."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from itertools import chain, islice

import numpy as np

from wattsched.instances.errors import MOST_FAULTS
from wattsched.instances.sizing.decision import AssignmentColumns, Decision
from wattsched.instances.sizing.instance import Instance
from wattsched.instances.sizing.job import Job, OptionTable, Placement
from wattsched.instances.sizing.job_columns import JobColumns
from wattsched.instances.sizing.option_rows import OptionTables, rows_of, rows_of_kinds
from wattsched.instances.sizing.tenants import most_alone
from wattsched.perfmodels.profile import models
from wattsched.topology.arrays import BoolArray, IntArray
from wattsched.topology.cluster import Cluster, Node
from wattsched.topology.column import NONE
from wattsched.topology.pools import Pool, pools_of
from wattsched.topology.remembered import remembered
from wattsched.topology.room import largest_room, room_for

MOST_CONFIGURATIONS = 100_000
"""Configurations of a job's model in a pool: what is beyond is refused before any is made."""

MOST_NEAR = 50
"""Names, and characters of one, up to which similar ones are looked for."""


def faults_of(instance: Instance) -> list[str]:
    """Faults of an instance, one readable line each; none for an instance that can be solved.

    Names must be known, every job that may not wait must have an option that fits into its pools, and no two
    running jobs may hold the same GPU. Budgets and deadlines that cannot be met are no faults: there is an
    answer, if only that there is no decision.
    """
    try:
        pools = pools_of(instance.cluster)
    except ValueError as error:
        return [f"cluster: {error}"]
    jobs = instance.by_column()
    faults = chain(
        sleep_faults(instance.cluster),
        _unknown_pools(instance, jobs, pools),
        _ambiguous_rows(instance, jobs, pools),
        _jobs_without_options(instance, jobs, pools),
        _bad_placements(instance, jobs, pools),
        _parted_sets(jobs),
        _bad_sets(instance, jobs, pools),
    )
    return list(islice(faults, MOST_FAULTS))


@remembered
def sleep_faults(cluster: Cluster) -> list[str]:
    """Pools of which it cannot be said by numbers of nodes alone what can sleep.

    A block that is larger than a node takes nodes that lie together: those that are free must all be alike.
    """
    nodes = cluster.node_columns()
    sleeps, reserved_w = nodes.flags("sleeps"), nodes.numbers("reserved_w")
    if not sleeps.any():
        return []
    base_w, whole = nodes.numbers("base_power_w"), nodes.available == nodes.counts("gpus")
    found = []
    for pool in pools_of(cluster):
        members = pool.members[whole[pool.members]]
        asleep = members[sleeps[members] & (reserved_w[members] == 0.0)]
        if not len(asleep) or pool.capacity != "blocks" or pool.largest_block <= pool.gpus_per_node:
            continue
        first = int(asleep[0])
        other = members[~np.isin(members, asleep) | (base_w[members] != base_w[first])]
        if len(other):
            pair = f"'{nodes.names[first]}' and '{nodes.names[int(other[0])]}'"
            told = "have blocks of several nodes, all of which must sleep then, with one base_power_w and no"
            found.append(
                f"cluster: nodes {pair} of pool '{pool.name}' {told} reserved_w; or set capacity to 'nodes'"
            )
    return found


def strangers(instance: Instance, decision: Decision) -> list[str]:
    """Fault of a decision of another round: a job that it says nothing of, if there is one."""
    names = instance.by_column().names
    said = {*AssignmentColumns.from_records(decision.jobs).names, *decision.waiting}
    if said.issuperset(names):
        return []
    return [f"job '{next(name for name in names if name not in said)}' neither runs nor waits"]


def _tables(instance: Instance, jobs: JobColumns, but_for: set[str]) -> Iterator[tuple[str, OptionTable]]:
    """Yield what to call it, and the table, for tables that name other pools than `but_for`."""
    for name, table in instance.tables.items():
        if not but_for.issuperset(rows_of(table).pool.values):
            yield f"table '{name}'", table
    options = jobs.coded("options")
    own = options.values
    if isinstance(own, OptionTables) and but_for.issuperset(own.rows.pool.values):
        return
    strange = options.where(
        lambda one: isinstance(one, OptionTable) and not but_for.issuperset(rows_of(one).pool.values)
    )
    for j in np.flatnonzero(strange).tolist():
        yield f"job '{jobs.names[j]}'", own[options.codes[j]]


def _unknown_pools(instance: Instance, jobs: JobColumns, pools: tuple[Pool, ...]) -> Iterator[str]:
    """Names that are neither that of a pool nor that of a GPU type, which may have no node just now."""
    known = {name for p in pools for name in (p.name, p.gpu_type)} | set(instance.cluster.gpu_types)
    named: list[tuple[str, Collection[str]]] = [
        (owner, table.pool) for owner, table in _tables(instance, jobs, known)
    ]
    only = jobs.coded("pools")
    strange = only.where(lambda names: not known.issuperset(names))
    named += [
        (f"job '{jobs.names[j]}'", only.values[only.codes[j]]) for j in np.flatnonzero(strange).tolist()
    ]
    named += [(f"set '{declared.name}'", (declared.pool,)) for declared in instance.sets]
    if isinstance(instance.cluster.capacity, dict):
        named.append(("cluster.capacity", instance.cluster.capacity))
    for owner, names in named:
        for name in sorted(set(names) - known):
            yield f"{owner}: pool '{name}' is no pool or GPU type of the cluster{_near(name, known)}"


def _ambiguous_rows(instance: Instance, jobs: JobColumns, pools: tuple[Pool, ...]) -> Iterator[str]:
    """Rows of a pool that repeat a row of its GPU type, which stands for the pool as well."""
    type_of = {pool.name: pool.gpu_type for pool in pools if pool.name != pool.gpu_type}
    for owner, table in _tables(instance, jobs, set(instance.cluster.gpu_types) - type_of.keys()):
        if not type_of.keys() & set(table.pool):
            continue
        rows = list(table.settings())
        known = set(rows)
        for i, (gpus, pool, *settings) in enumerate(rows):
            if (gpus, type_of.get(str(pool)), *settings) in known:
                yield f"{owner}: row {i} of pool '{pool}' repeats a row of GPU type '{type_of[str(pool)]}'"


def _jobs_without_options(instance: Instance, jobs: JobColumns, pools: tuple[Pool, ...]) -> Iterator[str]:
    """Jobs that have no option; one that fits nowhere is a fault only where it may not wait.

    Equal jobs are judged once: a round of 100,000 jobs has a few hundred kinds of them.
    """
    first, kind = jobs.kinds
    surely = _surely_fit(instance, jobs, pools).tolist()
    verdicts = [
        ("", False) if fits else why_no_option(instance, pools, jobs[j])
        for j, fits in zip(first.tolist(), surely, strict=True)
    ]
    refused, lacking = np.zeros(len(verdicts), dtype=bool), np.zeros(len(verdicts), dtype=bool)
    for number, (reason, nowhere) in enumerate(verdicts):
        refused[number], lacking[number] = bool(reason) and not nowhere, nowhere
    must_run = jobs.fixed | ~jobs.flags("can_wait")
    for j in np.flatnonzero(refused[kind] | (lacking[kind] & must_run)).tolist():
        reason, _ = verdicts[kind[j]]
        yield f"job '{jobs.names[j]}' {reason}"


def _surely_fit(instance: Instance, jobs: JobColumns, pools: tuple[Pool, ...]) -> BoolArray:
    """Mask of kinds of jobs without bounds of their own that have a row of a table that fits."""
    first, _ = jobs.kinds
    fits, rows = np.zeros(len(first), dtype=bool), rows_of_kinds(instance)
    bounded = (jobs.counts("min_gpus") + jobs.counts("max_gpus"))[first] > 0
    for name in ("pools", "tenant"):
        bounded |= jobs.coded(name).codes[first] != NONE
    for p, pool in enumerate(pools):
        meant = np.array([name in (pool.name, pool.gpu_type) for name in rows.pool.values], dtype=bool)
        here = np.flatnonzero(meant[rows.pool.codes])
        room = room_for(pools, np.full(len(here), p), rows.gpus[here])
        fits[rows.table[here[room <= largest_room(pool)]]] = True
    return fits & ~bounded


def why_no_option(instance: Instance, pools: tuple[Pool, ...], job: Job) -> tuple[str, bool]:
    """Return the reason why a job has no option, and True with it if it is for lack of a place.

    The reason is empty for a job that has options.
    """
    allowed = [p for p in pools if _may_use(job, p)]
    profiles = {p.gpu_type: job.model and instance.profile_of(job.model, p.gpu_type) for p in allowed}
    if job.model is not None and allowed and not any(profiles.values()):
        known = {profile.model for profile in instance.profiles} | set(models())
        types = ", ".join(sorted(profiles))
        near = _near(job.model, known)
        return f"has the model '{job.model}', which no profile describes on {types}{near}", False
    try:
        many = max((instance.most_configurations(job, pool) for pool in allowed), default=0)
        if many > MOST_CONFIGURATIONS:
            told = f"has {many:,} configurations in a pool"
            return f"{told}, and at most {MOST_CONFIGURATIONS:,} are taken", False
        told = why_nowhere(instance, pools, job)
    except ValueError as error:
        return f"has a setting out of range: {error}", False
    return told, bool(told)


def why_nowhere(instance: Instance, pools: tuple[Pool, ...], job: Job) -> str:
    """Return the reason why a job fits nowhere, even if nothing else runs; empty for one that does fit.

    Raises
    ------
    ValueError
        If it asks for a setting that its profile does not know.
    """
    within = _within(instance, pools, job)
    if not within:
        limits_w = {name: kind.max_power_w for name, kind in instance.cluster.gpu_types.items()}
        beyond = sorted({pool.gpu_type for pool, *_ in _within(_without_boards(instance), pools, job)})
        if beyond:
            told = ", ".join(f"{kind} {limits_w[kind]:g} W" for kind in beyond)
            return f"has no option that keeps GPUs within their max_power_w: {told}"
        return "has no option in its pools and within its min_gpus and max_gpus"
    alike = {(pool.name, gpus): (pool, gpus) for pool, gpus, _ in within}
    need = {key: _need_of(pool, gpus) for key, (pool, gpus) in alike.items()}
    fits = {key: need[key] <= largest_room(pool) for key, (pool, _) in alike.items()}
    fitting = [(gpus, watts) for pool, gpus, watts in within if fits[pool.name, gpus]]
    if not fitting:
        largest = max((pool for pool, _ in alike.values()), key=largest_room)
        return f"needs at least {min(need.values())} GPUs {_beyond(largest)}"
    most = most_alone(instance.tenants, job.tenant)
    if any(gpus <= most.gpus and watts <= most.power_w for gpus, watts in fitting):
        return ""
    fewest, least_w = (min(column) for column in zip(*fitting, strict=True))
    if fewest > most.gpus:
        return f"needs at least {fewest} GPUs but its tenant '{job.tenant}' may have {most.gpus:g}"
    if least_w > most.power_w:
        return f"needs at least {least_w:g} W but its tenant '{job.tenant}' may draw {most.power_w:g} W"
    return f"has no option within the GPUs and watts of its tenant '{job.tenant}'"


def _need_of(pool: Pool, gpus: int) -> int:
    """GPUs that a job with so many takes of a pool for itself."""
    return int(room_for([pool], np.zeros(1, dtype=np.int64), np.array([gpus]))[0])


def _beyond(pool: Pool, of: str = "") -> str:
    """End of a sentence on a need that the largest pool, or its largest block, does not meet."""
    if pool.capacity == "blocks":
        return f"in one block but the largest block{of} is {pool.largest_block}"
    return f"but the largest pool has {pool.n_gpus}"


def _may_use(job: Job, pool: Pool) -> bool:
    return job.pools is None or not {pool.name, pool.gpu_type}.isdisjoint(job.pools)


def _within(instance: Instance, pools: tuple[Pool, ...], job: Job) -> list[tuple[Pool, int, float]]:
    """Pools, GPU counts and watts of a job's options within its own bounds."""
    rows = [(p, *row) for p in pools if _may_use(job, p) for row in _rows(instance, job, p)]
    fewest, most = job.min_gpus or 1, job.max_gpus or np.inf
    return [(pool, gpus, watts) for pool, gpus, watts in rows if fewest <= gpus <= most]


def _without_boards(instance: Instance) -> Instance:
    """The instance with GPUs that may draw whatever their models say."""
    kinds = {
        name: kind.model_copy(update={"max_power_w": None})
        for name, kind in instance.cluster.gpu_types.items()
    }
    cluster = instance.cluster.model_copy(update={"gpu_types": kinds})
    return instance.model_copy(update={"cluster": cluster})


def _rows(instance: Instance, job: Job, pool: Pool) -> set[tuple[int, float]]:
    """GPU counts and watts that a job's table or model offers in a pool."""
    if job.model is None:
        table = instance.table_of(job)
        listed = zip(table.pool, table.gpus, table.power_w, strict=True)
        return {(gpus, watts) for name, gpus, watts in listed if name in (pool.name, pool.gpu_type)}
    rows = instance.configurations_of(job, pool)
    return set() if rows is None else set(zip(rows.gpus.tolist(), rows.power_w.tolist(), strict=True))


def _bad_placements(instance: Instance, jobs: JobColumns, pools: tuple[Pool, ...]) -> Iterator[str]:
    """Faults of what running jobs hold: it is not there, or another holds it, too."""
    if not len(jobs.running):
        return
    names = {pool.name for pool in pools}
    pool_of = {node: pool.name for pool in pools for node in pool.nodes}
    known = instance.cluster.node_columns()
    suspects = _suspects(instance, jobs, pools).tolist()
    used = {node for j in suspects if (held := jobs.held(j)) is not None for node in held.nodes}
    named = np.array([i for i, name in enumerate(known.names) if name in used], dtype=np.int64)
    nodes = {node.name: node for node in known.take(named)}
    holder: dict[tuple[str, int], tuple[Job, Placement]] = {}
    for job in map(jobs.__getitem__, suspects):
        held = job.current
        assert held is not None
        if held.pool not in names:
            near = _near(held.pool, names)
            yield f"job '{job.name}': current.pool '{held.pool}' is no pool of the cluster{near}"
        elif elsewhere := sorted(n for n in held.nodes if pool_of.get(n, held.pool) != held.pool):
            yield f"job '{job.name}': current.nodes: '{elsewhere[0]}' is not in the pool '{held.pool}'"
        faults = _bad_gpus(held, nodes, known.names, kept=not job.preemptible)
        yield from (f"job '{job.name}': current.{fault}" for fault in faults)
        for node, gpu in held.places:
            other, its = holder.setdefault((node, gpu), (job, held))
            if other is not job and (held.set is None or held.set != its.set):
                yield f"jobs '{other.name}' and '{job.name}' both hold GPU {gpu} of node '{node}'"


def _suspects(instance: Instance, jobs: JobColumns, pools: tuple[Pool, ...]) -> IntArray:
    """Running jobs whose placements deserve a look at each of their GPUs."""
    held, codes = jobs.holdings, jobs.current.codes[jobs.running]
    number = {pool.name: p for p, pool in enumerate(pools)}
    pool_of = {node: p for p, pool in enumerate(pools) for node in pool.nodes}
    pool = np.array([*(number.get(name, -2) for name in held.pool.values), -2])[held.pool.codes]
    size = np.diff(held.start)
    odd = (pool < 0) | ((size > 0) & (size != held.gpus))
    # Every GPU: is it one of the pool's, does it work, and who else holds it?
    holder = np.repeat(np.arange(len(held)), size)
    home = np.array([*(pool_of.get(name, -1) for name in held.node.values), -1])[held.node.codes]
    nodes = instance.cluster.node_columns()
    place_of = {name: i for i, name in enumerate(nodes.names)}
    node = np.array([*(place_of.get(name, NONE) for name in held.node.values), NONE])[held.node.codes]
    most = np.where(node == NONE, 0, nodes.counts("gpus")[node])
    bad = (home != pool[holder]) | (held.gpu >= most)
    width = int(nodes.counts("gpus").max())
    broken_node, broken_gpu = nodes.broken
    place = node * width + np.minimum(held.gpu, width - 1)
    bad |= np.isin(place, broken_node * width + broken_gpu)
    _, which, times = np.unique(place, return_inverse=True, return_counts=True)
    bad |= times[which] > 1
    odd[holder[bad]] = True
    # A placement may be that of several jobs.
    odd[np.bincount(codes, minlength=len(held)) > 1] = True
    return np.asarray(jobs.running[odd[codes]])


def _bad_gpus(
    held: Placement, nodes: dict[str, Node], known: Collection[str], *, kept: bool
) -> Iterator[str]:
    """What is wrong with a placement; a job that is not `kept` there may hold GPUs that broke."""
    if held.nodes and (listed := len(held.places)) != held.gpus:
        yield f"gpus is {held.gpus} but current.nodes lists {listed}"
    for name, numbers in held.nodes.items():
        node = nodes.get(name)
        if node is None:
            yield f"nodes: '{name}' is no node of the cluster{_near(name, known)}"
            continue
        if len(set(numbers)) < len(numbers):
            yield f"nodes: node '{name}' lists a GPU twice"
        if kept and len(node.unavailable) == node.gpus:
            yield f"nodes: node '{name}' is down, with all GPUs unavailable, but the job is not preemptible"
            continue
        for gpu in numbers:
            if gpu >= node.gpus:
                yield f"nodes: node '{name}' has no GPU {gpu}, it has {node.gpus}"
            elif kept and gpu in node.unavailable:
                yield f"nodes: GPU {gpu} of node '{name}' is unavailable, but the job is not preemptible"


def _parted_sets(jobs: JobColumns) -> Iterator[str]:
    """Jobs that are said to share their GPUs now but hold different ones."""
    first: dict[str, tuple[Job, Placement]] = {}
    for j in np.flatnonzero(jobs.shares).tolist():
        job = jobs[j]
        held = job.current
        assert held is not None
        assert held.set is not None
        other, its = first.setdefault(held.set, (job, held))
        if (held.pool, held.gpus, set(held.places)) != (its.pool, its.gpus, set(its.places)):
            yield f"jobs '{other.name}' and '{job.name}' are now in the set '{held.set}' on different GPUs"


def _bad_sets(instance: Instance, jobs: JobColumns, pools: tuple[Pool, ...]) -> Iterator[str]:
    """Sets that no block can hold or a job's bounds do not allow."""
    number = {name: j for j, name in enumerate(jobs.names)} if instance.sets else {}
    for declared in instance.sets:
        told, gpus = f"set '{declared.name}'", declared.gpus
        members = [jobs[number[name]] for name in declared.rates]
        for job in members:
            if gpus < (job.min_gpus or 1):
                yield f"{told}: {gpus} GPUs are below the min_gpus {job.min_gpus} of '{job.name}'"
            if gpus > (job.max_gpus or gpus):
                yield f"{told}: {gpus} GPUs are above the max_gpus {job.max_gpus} of '{job.name}'"
        named = [pool for pool in pools if declared.pool in (pool.name, pool.gpu_type)]
        usable = [pool for pool in named if all(_may_use(job, pool) for job in members)]
        if named and not usable:
            yield f"{told}: not all of its jobs may use '{declared.pool}'"
        elif usable and all(_need_of(pool, gpus) > largest_room(pool) for pool in usable):
            largest, of = max(usable, key=largest_room), f" of '{declared.pool}'"
            yield f"{told}: needs {_need_of(largest, gpus)} GPUs {_beyond(largest, of)}"


def _near(name: str, known: Collection[str]) -> str:
    """Names that were perhaps meant; none for a name that is known elsewhere, or among very many."""
    many = len(known) > MOST_NEAR or len(name) > MOST_NEAR
    close = [] if many or name in known else difflib.get_close_matches(name, sorted(known), n=3)
    return f" (did you mean {' or '.join(repr(c) for c in close)}?)" if close else ""
