"""What the fields of an instance must mean together, beyond the type of each."""

from __future__ import annotations

import difflib
from collections.abc import Hashable, Iterator

from wattsched.instances.sizing.instance import Instance, Job, OptionTable, Placement
from wattsched.perfmodels.profile import Profile, find, models
from wattsched.topology.cluster import Node
from wattsched.topology.pools import Pool, pools_of


def faults_of(instance: Instance) -> list[str]:
    """Faults of an instance, one readable line each; none for an instance that can be solved.

    Names must be known, every job must have an option that fits into some block of its pools, and no two
    running jobs may hold the same GPU. Budgets and deadlines that cannot be met are no faults: they make an
    instance infeasible, which is an answer.
    """
    try:
        pools = pools_of(instance.cluster)
    except ValueError as error:
        return [f"cluster: {error}"]
    return [
        *_unknown_table_pools(instance, pools),
        *_ambiguous_rows(instance, pools),
        *_jobs_without_options(instance, pools),
        *_bad_placements(instance, pools),
        *_parted_sets(instance.jobs),
        *_unknown_set_pools(instance, pools),
        *_bad_sets(instance, pools),
    ]


def unknown_pools(instance: Instance) -> list[str]:
    """Those faults that `solve` would not notice: options, jobs and sets in pools that do not exist."""
    try:
        pools = pools_of(instance.cluster)
    except ValueError as error:
        return [f"cluster: {error}"]
    return [*_unknown_table_pools(instance, pools), *_unknown_set_pools(instance, pools)]


def _tables(instance: Instance) -> Iterator[tuple[str, OptionTable]]:
    """Shared and own tables, with what to call them."""
    for name, table in instance.tables.items():
        yield f"table '{name}'", table
    for job in instance.jobs:
        if isinstance(job.options, OptionTable):
            yield f"job '{job.name}'", job.options


def _unknown_table_pools(instance: Instance, pools: tuple[Pool, ...]) -> Iterator[str]:
    known = _pool_names(instance, pools)
    for owner, table in _tables(instance):
        for name in sorted(set(table.pool) - known):
            yield f"{owner}: pool '{name}' is no pool or GPU type of the cluster{_near(name, known)}"
    for job in instance.jobs:
        for name in sorted(set(job.pools or ()) - known):
            yield f"job '{job.name}': pool '{name}' is no pool or GPU type of the cluster{_near(name, known)}"


def _pool_names(instance: Instance, pools: tuple[Pool, ...]) -> set[str]:
    """What a pool may be called: by its name or its GPU type, which may have no node just now."""
    return {name for pool in pools for name in (pool.name, pool.gpu_type)} | set(instance.cluster.gpu_types)


def _ambiguous_rows(instance: Instance, pools: tuple[Pool, ...]) -> Iterator[str]:
    """Rows of a pool that repeat a row of its GPU type, which stands for the pool as well."""
    type_of = {pool.name: pool.gpu_type for pool in pools if pool.name != pool.gpu_type}
    for owner, table in _tables(instance):
        if not type_of.keys() & set(table.pool):
            continue
        columns = (table.pool, table.gpus, table.frequency_mhz, table.power_limit_w, table.batch_size)
        rows = list(zip(*(column for column in columns if column is not None), strict=True))
        known = set(rows)
        for i, (pool, *settings) in enumerate(rows):
            if (type_of.get(str(pool)), *settings) in known:
                yield f"{owner}: row {i} of pool '{pool}' repeats a row of GPU type '{type_of[str(pool)]}'"


def _jobs_without_options(instance: Instance, pools: tuple[Pool, ...]) -> Iterator[str]:
    """Judge equal jobs once: a round of 100,000 jobs has a few hundred kinds of them."""
    verdicts: dict[Hashable, str | None] = {}
    for job in instance.jobs:
        key = _kind_of(job)
        if key not in verdicts:
            verdicts[key] = _why_no_option(instance, pools, job)
        if (verdict := verdicts[key]) is not None:
            yield f"job '{job.name}' {verdict}"


def _kind_of(job: Job) -> Hashable:
    source: Hashable = id(job.options) if isinstance(job.options, OptionTable) else (job.options, job.model)
    choices = (job.pools, job.batch_sizes, job.gpu_counts, job.frequencies_mhz, job.power_limits_w)
    return (source, job.min_gpus, job.max_gpus, *(None if c is None else tuple(c) for c in choices))


def _why_no_option(instance: Instance, pools: tuple[Pool, ...], job: Job) -> str | None:
    allowed = [p for p in pools if job.pools is None or {p.name, p.gpu_type} & set(job.pools)]
    if job.model is not None:
        profiles = {p.gpu_type: _profile(instance, job.model, p.gpu_type) for p in allowed}
        if allowed and not any(profiles.values()):
            known = {profile.model for profile in instance.profiles} | set(models())
            types = ", ".join(sorted(profiles))
            return (
                f"has the model '{job.model}', which no profile describes on {types}{_near(job.model, known)}"
            )
        try:
            counts = {p.name: _model_gpus(instance, job, p, profiles[p.gpu_type]) for p in allowed}
        except ValueError as error:
            return f"has a setting out of range: {error}"
    else:
        table = instance.tables[job.options] if isinstance(job.options, str) else job.options
        assert table is not None
        rows = set(zip(table.pool, table.gpus, strict=True))
        counts = {p.name: {g for name, g in rows if name in (p.name, p.gpu_type)} for p in allowed}
    low, high = job.min_gpus or 1, job.max_gpus or max((g for c in counts.values() for g in c), default=0)
    within = {name: {g for g in gpus if low <= g <= high} for name, gpus in counts.items()}
    if not any(within.values()):
        return "has no option in its pools and within its min_gpus and max_gpus"
    if any(_block(g) <= p.largest_block for p in allowed for g in within[p.name]):
        return None
    needs = min(_block(g) for gpus in within.values() for g in gpus)
    largest = max(p.largest_block for p in allowed if within[p.name])
    return f"needs at least {needs} GPUs in one block but the largest block is {largest}"


def _block(gpus: int) -> int:
    return 1 << (gpus - 1).bit_length()


def _profile(instance: Instance, model: str, gpu_type: str) -> Profile | None:
    """Profile of the instance for the GPU type or its stand-in, else that of the catalogue."""
    stand_in = instance.cluster.gpu_types[gpu_type].profile or gpu_type
    own = [
        p
        for name in (gpu_type, stand_in)
        for p in instance.profiles
        if (p.model, p.gpu_type) == (model, name)
    ]
    return own[0] if own else find(model, stand_in)


def _model_gpus(instance: Instance, job: Job, pool: Pool, profile: Profile | None) -> set[int]:
    if profile is None:
        return set()
    gpu_type = instance.cluster.gpu_types[pool.gpu_type]
    rows = profile.configurations(
        pool.gpus_per_node,
        gpu_counts=job.gpu_counts,
        batch_sizes=job.batch_sizes,
        frequencies_mhz=job.frequencies_mhz or gpu_type.frequencies_mhz,
        power_limits_w=gpu_type.limits_of_stand_in(job.power_limits_w),
    )
    return {int(g) for g in rows.gpus}


def _bad_placements(instance: Instance, pools: tuple[Pool, ...]) -> Iterator[str]:
    names = {pool.name for pool in pools}
    pool_of = {node: pool.name for pool in pools for node in pool.nodes}
    nodes = {node.name: node for node in instance.cluster.nodes}
    holder: dict[tuple[str, int], Job] = {}
    for job in instance.jobs:
        held = job.current
        if held is None:
            continue
        if held.pool not in names:
            near = _near(held.pool, names)
            yield f"job '{job.name}': current.pool '{held.pool}' is no pool of the cluster{near}"
        elif elsewhere := sorted(n for n in held.nodes if pool_of.get(n, held.pool) != held.pool):
            yield f"job '{job.name}': current.nodes: '{elsewhere[0]}' is not in the pool '{held.pool}'"
        yield from (f"job '{job.name}': current.{fault}" for fault in _bad_gpus(held, nodes))
        for node_name, numbers in held.nodes.items():
            for gpu in numbers:
                other = holder.setdefault((node_name, gpu), job)
                if other is not job and (held.set is None or held.set != _set_of(other)):
                    yield f"jobs '{other.name}' and '{job.name}' both hold GPU {gpu} of node '{node_name}'"


def _set_of(job: Job) -> str | None:
    return None if job.current is None else job.current.set


def _parted_sets(jobs: list[Job]) -> Iterator[str]:
    """Jobs that are said to share their GPUs now but hold different ones."""
    first: dict[str, tuple[Job, Placement]] = {}
    for job in jobs:
        held = job.current
        if held is None or held.set is None:
            continue
        other, its = first.setdefault(held.set, (job, held))
        gpus, others = ({(n, g) for n, gpus in h.nodes.items() for g in gpus} for h in (held, its))
        if (held.pool, held.gpus, gpus) != (its.pool, its.gpus, others):
            yield f"jobs '{other.name}' and '{job.name}' are now in the set '{held.set}' on different GPUs"


def _unknown_set_pools(instance: Instance, pools: tuple[Pool, ...]) -> Iterator[str]:
    known = _pool_names(instance, pools)
    for declared in instance.sets:
        if declared.pool not in known:
            near = _near(declared.pool, known)
            yield f"set '{declared.name}': pool '{declared.pool}' is no pool or GPU type of the cluster{near}"


def _bad_sets(instance: Instance, pools: tuple[Pool, ...]) -> Iterator[str]:
    """Sets that no block can hold or a job's bounds do not allow."""
    jobs = {job.name: job for job in instance.jobs}
    for declared in instance.sets:
        told = f"set '{declared.name}'"
        members = [jobs[name] for name in declared.rates]
        for job in members:
            if declared.gpus < (job.min_gpus or 1):
                yield f"{told}: {declared.gpus} GPUs are below the min_gpus {job.min_gpus} of '{job.name}'"
            if declared.gpus > (job.max_gpus or declared.gpus):
                yield f"{told}: {declared.gpus} GPUs are above the max_gpus {job.max_gpus} of '{job.name}'"
        named = [pool for pool in pools if declared.pool in (pool.name, pool.gpu_type)]
        usable = [
            pool
            for pool in named
            if all(job.pools is None or {pool.name, pool.gpu_type} & set(job.pools) for job in members)
        ]
        if named and not usable:
            yield f"{told}: not all of its jobs may use '{declared.pool}'"
        elif usable and _block(declared.gpus) > (largest := max(pool.largest_block for pool in usable)):
            needs = f"needs {_block(declared.gpus)} GPUs in one block"
            yield f"{told}: {needs} but the largest block of '{declared.pool}' is {largest}"


def _bad_gpus(held: Placement, nodes: dict[str, Node]) -> Iterator[str]:
    listed = sum(len(numbers) for numbers in held.nodes.values())
    if held.nodes and listed != held.gpus:
        yield f"gpus is {held.gpus} but current.nodes lists {listed}"
    for name, numbers in held.nodes.items():
        node = nodes.get(name)
        if node is None:
            yield f"nodes: '{name}' is no node of the cluster{_near(name, set(nodes))}"
            continue
        if len(set(numbers)) < len(numbers):
            yield f"nodes: node '{name}' lists a GPU twice"
        for gpu in numbers:
            if gpu >= node.gpus:
                yield f"nodes: node '{name}' has no GPU {gpu}, it has {node.gpus}"
            elif gpu in node.unavailable:
                yield f"nodes: GPU {gpu} of node '{name}' is unavailable"


def _near(name: str, known: set[str]) -> str:
    """Names that were perhaps meant; none for a name that is known elsewhere."""
    if name in known:
        return ""
    close = difflib.get_close_matches(name, sorted(known), n=3)
    return f" (did you mean {' or '.join(repr(c) for c in close)}?)" if close else ""
