"""Random small instances of `sizing`: several GPU types and levels, occupied GPUs, running jobs, budgets."""

from __future__ import annotations

from hypothesis import assume
from hypothesis import strategies as st

from wattsched.instances.sizing.instance import Instance
from wattsched.instances.sizing.validity import faults_of, sleep_faults
from wattsched.topology.cluster import Cluster
from wattsched.topology.pools import pools_of

WATTS = st.integers(40, 400).map(float)
SECONDS = st.integers(10, 5000).map(float)


@st.composite
def clusters(draw: st.DrawFn) -> dict:
    """Cluster of up to 20 GPUs: one or two types, racks with fan-outs that need not be powers of two."""
    types = {"A": {"idle_power_w": 30.0}, "B": {"idle_power_w": 10.0}}
    racks = draw(st.integers(0, 2))
    groups = [{"name": "site", "level": "site"}]
    groups += [{"name": f"rack{r}", "level": "rack", "parent": "site"} for r in range(racks)]
    nodes = []
    for n in range(draw(st.integers(1, 4))):
        gpus = draw(st.sampled_from([1, 2, 3, 4, 4, 6]))
        nodes.append(
            {
                "name": f"n{n}",
                "gpu_type": draw(st.sampled_from(["A", "A", "B"])),
                "gpus": gpus,
                "parent": draw(st.sampled_from([None, "site", *[g["name"] for g in groups]])),
                "base_power_w": draw(st.sampled_from([0.0, 50.0])),
                "sleeps": False,
                "reserved_w": draw(st.sampled_from([0.0, 0.0, 35.0])),
                "unavailable": draw(st.lists(st.integers(0, gpus - 1), unique=True, max_size=2)),
            }
        )
    domains = []
    for d in range(draw(st.integers(0, 2))):
        members = draw(
            st.lists(st.sampled_from([x["name"] for x in nodes + groups]), unique=True, min_size=1)
        )
        domains.append(
            {
                "name": f"pdu{d}",
                "members": members,
                "power_cap_w": draw(st.integers(350, 2500)) * 1.0,
                "reserved_w": draw(st.sampled_from([0.0, 0.0, 120.0])),
            }
        )
    capacity = draw(
        st.sampled_from(["blocks", "blocks", "nodes", "nodes", "count", {"A": "nodes", "B": "count"}])
    )
    fields = {"gpu_types": types, "nodes": nodes, "groups": groups, "power_domains": domains}
    return {**fields, "capacity": capacity}


@st.composite
def tables(draw: st.DrawFn) -> dict:
    """Table of one to four rows."""
    n = draw(st.integers(1, 4))
    rows = st.lists(st.sampled_from([1, 1, 2, 3, 4, 5, 8]), min_size=n, max_size=n)
    pools = st.lists(st.sampled_from(["A", "A", "B"]), min_size=n, max_size=n)
    return {
        "gpus": draw(rows),
        "pool": draw(pools),
        "power_w": draw(st.lists(WATTS, min_size=n, max_size=n)),
        "completion_s": draw(st.lists(SECONDS, min_size=n, max_size=n)),
        "frequency_mhz": [900 + 100 * row for row in range(n)],
    }


@st.composite
def small_instances(draw: st.DrawFn, max_jobs: int = 4, min_jobs: int = 1) -> Instance:
    """Instance that a brute force can solve."""
    cluster = draw(clusters())
    jobs = []
    taken: set[tuple[str, int]] = set()
    for j in range(draw(st.integers(min_jobs, max_jobs))):
        job = {"name": f"job{j}", "options": draw(tables()), "weight": draw(st.sampled_from([1.0, 0.5, 3.0]))}
        if draw(st.booleans()):
            job["remaining_work"] = draw(st.sampled_from([0.25, 2.0]))
        if draw(st.integers(0, 4)) == 0:
            job["deadline_s"] = draw(st.integers(800, 8000)) * 1.0
        if draw(st.integers(0, 9)) == 0:
            job["can_wait"] = False
        if draw(st.integers(0, 2)) == 0:
            _let_run(draw, job, cluster, taken)
        jobs.append(job)
    budgets = {"scope": draw(st.sampled_from(["round", "completion"]))}
    for name, most in (("power_w", 3000), ("energy_j", 1_500_000), ("carbon_g", 170)):
        if draw(st.integers(0, 2)) == 0:
            budgets[name] = draw(st.integers(most // 6, most)) * 1.0
    if draw(st.integers(0, 4)) == 0:
        budgets["least_goodput"] = draw(st.integers(1, 8)) * 0.5
    document = {"cluster": cluster, "jobs": jobs, "budgets": budgets, "round_s": 300.0, "price_per_kwh": 0.25}
    document |= {"carbon_g_per_kwh": 400.0, "change_cost": draw(st.sampled_from([0.0, 0.0, 0.5, 200.0]))}
    if draw(st.integers(0, 2)) == 0:
        document["tenants"] = draw(tenants())
        for job in jobs:
            # One that stays would be a fault where its tenant may not have as much.
            if job.get("can_wait", True) and job.get("preemptible", True):
                job["tenant"] = draw(st.sampled_from([None, "x", "x", "y", "z"]))
    instance = Instance.model_validate(document)
    if not faults_of(instance):
        return instance
    # A job that has no option may wait.
    for job in jobs:
        job.pop("can_wait", None)
    return Instance.model_validate(document)


@st.composite
def tenants(draw: st.DrawFn) -> dict:
    """Three tenants, of which some are under quotas, and some of a cohort."""
    found = {}
    for name in ("x", "y", "z"):
        tenant = {"weight": draw(st.sampled_from([1.0, 1.0, 0.25, 2.0]))}
        if draw(st.booleans()):
            tenant["gpus"] = draw(st.sampled_from([0, 1, 2, 3, 4, 6]))
            if draw(st.booleans()):
                tenant["cohort"] = draw(st.sampled_from(["c", "c", "d"]))
                tenant["borrow_gpus"] = draw(st.sampled_from([None, 0, 1, 2]))
        if draw(st.integers(0, 2)) == 0:
            tenant["power_w"] = draw(st.integers(100, 800)) * 1.0
        for quota, most in (("energy_j", 120_000), ("carbon_g", 14)):
            if draw(st.integers(0, 3)) == 0:
                tenant[quota] = draw(st.integers(1, most)) * 1.0
        found[name] = tenant
    return found


def _let_run(draw: st.DrawFn, job: dict, cluster: dict, taken: set[tuple[str, int]]) -> None:
    """Make the job run on the first GPUs of a node, when they are free and the job has such a row."""
    node = draw(st.sampled_from(cluster["nodes"]))
    sizes = {1, 2, 3, 4, 8} & {
        g
        for g, pool in zip(job["options"]["gpus"], job["options"]["pool"], strict=True)
        if pool == node["gpu_type"]
    }
    sizes = {g for g in sizes if g <= node["gpus"]}
    if not sizes:
        return
    gpus = draw(st.sampled_from(sorted(sizes)))
    block = 1 << (gpus - 1).bit_length()
    held = [(node["name"], g) for g in range(block)]
    if block > node["gpus"] or taken & set(held):
        return
    taken.update(held)
    job["restart_s"] = draw(st.sampled_from([0.0, 40.0, 400.0]))
    job["change_cost"] = draw(st.sampled_from([None, None, 0.2, 60.0, 1e5]))
    job["current"] = {
        "gpus": gpus,
        "pool": next(p.name for p in pools_of(Cluster.model_validate(cluster)) if node["name"] in p.nodes),
        "nodes": {node["name"]: list(range(gpus))},
    }
    # A GPU that broke under a job is one that it leaves.
    sound = set(range(gpus)).isdisjoint(node["unavailable"])
    if sound and job.get("can_wait", True) and draw(st.integers(0, 3)) == 0:
        job["preemptible"] = False
        job.pop("deadline_s", None)


@st.composite
def sleeping(draw: st.DrawFn, instances: st.SearchStrategy[Instance]) -> Instance:
    """An instance with nodes that sleep, where they may: of base powers that make a difference."""
    content = draw(instances).model_dump()
    alike = draw(st.booleans())
    for node in content["cluster"]["nodes"]:
        node["sleeps"] = alike or draw(st.booleans())
        node["base_power_w"] = 120.0 if alike else draw(st.sampled_from([0.0, 60.0, 300.0]))
        node["reserved_w"] = 0.0 if alike else node["reserved_w"]
        node["unavailable"] = draw(st.sampled_from([node["unavailable"], []]))
    cluster = Cluster.model_validate(content["cluster"])
    assume(not sleep_faults(cluster))
    return Instance.model_validate(content)


@st.composite
def instances_with_sets(draw: st.DrawFn) -> Instance:
    """Small instance with sets of jobs that may share GPUs, and jobs that share theirs now."""
    content = draw(small_instances(max_jobs=3, min_jobs=2)).model_dump()
    jobs = content["jobs"]
    movable = [job for job in jobs if job["preemptible"]]
    assume(len(movable) > 1)
    _let_share(draw, movable)
    for job in movable:
        # In which some sets would make them late.
        if draw(st.integers(0, 2)) == 0:
            job["deadline_s"] = draw(SECONDS)
    types = [node["gpu_type"] for node in content["cluster"]["nodes"]]
    content["sets"] = [
        draw(_sets(f"set{number}", types, [job["name"] for job in movable]))
        for number in range(draw(st.integers(1, 3)))
    ]
    instance = Instance.model_validate(content)
    sets = [one for one in instance.sets if not faults_of(instance.model_copy(update={"sets": [one]}))]
    assume(sets)
    return instance.model_copy(update={"sets": sets})


def _let_share(draw: st.DrawFn, jobs: list[dict]) -> None:
    """Let a job share the GPUs of one that runs."""
    running = [job for job in jobs if job["current"]]
    new = [job for job in jobs if not job["current"]]
    if running and new and draw(st.booleans()):
        one, other = draw(st.sampled_from(running)), draw(st.sampled_from(new))
        one["current"]["set"] = "now"
        other["current"] = one["current"]
        other["restart_s"] = draw(st.sampled_from([0.0, 40.0, 400.0]))


@st.composite
def _sets(draw: st.DrawFn, name: str, types: list[str], jobs: list[str]) -> dict:
    """Set of two jobs or more, often with fewer watts and better rates than its jobs alone."""
    members = draw(st.lists(st.sampled_from(jobs), unique=True, min_size=2))
    settings = draw(st.sampled_from([{}, {"frequency_mhz": 900}, {"power_limit_w": 250.0}]))
    return {
        "name": name,
        "pool": draw(st.sampled_from(types)),
        "gpus": draw(st.sampled_from([1, 1, 2, 3, 4])),
        "power_w": draw(WATTS) * draw(st.sampled_from([0.5, 1.0, 2.0])),
        "rates": {job: draw(st.sampled_from([1.0, 5.0])) / draw(SECONDS) for job in members},
        "batch_sizes": {job: 64 for job in members if draw(st.integers(0, 5)) == 0},
        **settings,
    }
