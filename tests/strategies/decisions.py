"""Random decisions of small rounds, sound ones and ones with a few things changed."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import strategies as st

from wattsched.instances.sizing.decision import Decision
from wattsched.instances.sizing.instance import Instance
from wattsched.instances.sizing.job import Job
from wattsched.topology.pools import Pool, pools_of


@st.composite
def decisions(draw: st.DrawFn, instance: Instance) -> Decision:
    """A decision on a round; half of them are drawn without a change, and even so not always sound."""
    choice = Random(draw(st.integers(0, 2**32)))
    pools = pools_of(instance.cluster)
    running: list[dict[str, Any]] = []
    waiting: list[str] = []
    for job in instance.jobs:
        drawn = _assigned(instance, job, pools, choice)
        if drawn is None:
            waiting.append(job.name)
        else:
            running.append(drawn)
    if instance.sets and choice.random() < 0.7:
        _form_a_set(instance, running, waiting, pools, choice)
    for _ in range(choice.choice([0, 0, 0, 1, 1, 2])):
        _change(instance, running, waiting, choice)
    choice.shuffle(running)
    return Decision.model_validate({"jobs": running, "waiting": waiting})


def _assigned(instance: Instance, job: Job, pools: tuple[Pool, ...], choice: Random) -> dict[str, Any] | None:
    """A row of the job's table in some block, or what it holds; None where it waits."""
    if job.current is not None and (choice.random() < 0.5 or not job.preemptible):
        held = job.current.model_dump(exclude={"set"})
        return {"job": job.name, **held, "frequency_mhz": choice.choice([900, 1000])}
    table = instance.tables[job.options] if isinstance(job.options, str) else job.options
    assert table is not None
    row = choice.randrange(len(table.gpus))
    gpus, named = table.gpus[row], [pool for pool in pools if pool.gpu_type == table.pool[row]]
    if choice.random() < 0.4 or not named:
        return None
    pool = choice.choice(named)
    mhz = None if table.frequency_mhz is None else table.frequency_mhz[row]
    return {"job": job.name, "gpus": gpus, "frequency_mhz": mhz, **_somewhere(pool, gpus, choice)}


def _somewhere(pool: Pool, gpus: int, choice: Random) -> dict[str, Any]:
    """GPUs that follow each other on the line of a pool, most often where a block begins."""
    block = 1 << (gpus - 1).bit_length()
    first = choice.randrange(pool.n_gpus)
    first = first // block * block if choice.random() < 0.9 else first
    places = range(first, min(first + gpus, pool.n_gpus))
    return {"pool": pool.name, "nodes": pool.gpus_at(places)}


def _form_a_set(
    instance: Instance,
    running: list[dict[str, Any]],
    waiting: list[str],
    pools: tuple[Pool, ...],
    choice: Random,
) -> None:
    """Let the jobs of a set share GPUs, and now and then not all of them."""
    one = choice.choice(instance.sets)
    named = [pool for pool in pools if pool.gpu_type == one.pool]
    if not named:
        return
    together = {
        "set": one.name,
        "gpus": one.gpus,
        "frequency_mhz": one.frequency_mhz,
        "power_limit_w": one.power_limit_w,
        **_somewhere(choice.choice(named), one.gpus, choice),
    }
    running[:] = [a for a in running if a["job"] not in one.rates]
    waiting[:] = [name for name in waiting if name not in one.rates]
    for name in one.rates:
        if choice.random() < 0.05:
            waiting.append(name)
        else:
            running.append({"job": name, "batch_size": one.batch_sizes.get(name), **together})


def _change(instance: Instance, running: list[dict[str, Any]], waiting: list[str], choice: Random) -> None:
    """Change something, often to something wrong."""
    if not running:
        waiting.append(choice.choice(["ghost", *waiting]))
        return
    one = choice.choice(running)
    nodes = [node.name for node in instance.cluster.nodes]
    match choice.randrange(9):
        case 0:
            one["gpus"] = choice.randint(1, 8)
        case 1:
            one["pool"] = choice.choice(["A", "B", "C"])
        case 2:
            one["frequency_mhz"] = choice.choice([None, 900, 1000, 77])
        case 3:
            added = {choice.choice([*nodes, "elsewhere"]): [choice.randint(0, 6)]}
            one["nodes"] = {**one["nodes"], **added}
        case 4:
            one["nodes"] = {name: [*gpus, choice.randint(0, 6)] for name, gpus in one["nodes"].items()}
        case 5:
            running.append(dict(one))
        case 6:
            running.remove(one)
        case 7:
            waiting.append(one["job"])
        case _:
            one["set"] = choice.choice([None, "set0", "undeclared"])
