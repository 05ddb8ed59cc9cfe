"""The checker's rules of GPUs: they exist, nobody shares them, and every job has its aligned block."""

from __future__ import annotations

from collections.abc import Iterator

from wattsched.instances.checker_menu import block_of
from wattsched.instances.checker_site import Place
from wattsched.instances.decision import Assignment, Decision
from wattsched.instances.instance import Instance


def gpu_faults(instance: Instance, decision: Decision, places: dict[str, Place]) -> Iterator[str]:
    """Every job's GPUs exist, are its own and lie in an aligned block that no other job reaches into."""
    jobs = {job.name: job for job in instance.jobs}
    nodes = {node.name: node for node in instance.cluster.nodes}
    pool_of = {node.name: place.name for place in places.values() for node in place.nodes}
    broken = {(node.name, gpu) for node in instance.cluster.nodes for gpu in node.unavailable}
    user: dict[tuple[str, int], str] = {}
    reserver: dict[tuple[str, int, int], tuple[str, bool]] = {}
    for assignment in decision.jobs:
        who = f"job '{assignment.job}'"
        listed = sum(len(numbers) for numbers in assignment.nodes.values())
        gpus = gpus_of(assignment.nodes)
        if len(gpus) < listed:
            yield f"{who} lists a GPU twice"
        if len(gpus) != assignment.gpus:
            yield f"{who} has {len(gpus)} GPUs in its nodes, its configuration {assignment.gpus}"
        sound = True
        for name, gpu in sorted(gpus):
            if name not in nodes or gpu >= nodes[name].gpus:
                yield f"{who} uses GPU {gpu} of node '{name}', which does not exist"
                sound = False
            elif pool_of[name] != assignment.pool:
                yield f"{who} runs in pool '{assignment.pool}' but node '{name}' is in '{pool_of[name]}'"
                sound = False
            elif (name, gpu) in broken:
                yield f"{who} uses GPU {gpu} of node '{name}', which is unavailable"
            other = user.setdefault((name, gpu), assignment.job)
            if other != assignment.job:
                yield f"jobs '{other}' and '{assignment.job}' both use GPU {gpu} of node '{name}'"
        if sound and gpus:
            job = jobs.get(assignment.job)
            fixed = job is not None and not job.preemptible
            yield from _block_faults(assignment, places[assignment.pool], gpus, fixed, reserver)


def _block_faults(
    assignment: Assignment,
    place: Place,
    gpus: set[tuple[str, int]],
    fixed: bool,
    reserver: dict[tuple[str, int, int], tuple[str, bool]],
) -> Iterator[str]:
    """Reserve the aligned block around the GPUs.

    A job that keeps its GPUs may hold scattered ones, which then are all it reserves, and two such jobs may
    have come to share a block.
    """
    size = block_of(assignment.gpus)
    spots = [place.where[gpu] for gpu in gpus]
    block, first = spots[0][0], spots[0][1] // size * size
    aligned = all((b, offset // size * size) == (block, first) for b, offset in spots)
    if aligned and first + size <= place.sizes[block]:
        spots = [(block, offset) for offset in range(first, first + size)]
    elif not fixed:
        yield f"job '{assignment.job}' is not inside one aligned block of {size} GPUs"
    clashes = set()
    for b, offset in spots:
        other, other_fixed = reserver.setdefault((place.name, b, offset), (assignment.job, fixed))
        if other != assignment.job and not (fixed and other_fixed):
            clashes.add(other)
    for other in sorted(clashes):
        yield f"the blocks of jobs '{other}' and '{assignment.job}' in pool '{place.name}' overlap"


def gpus_of(nodes: dict[str, list[int]]) -> set[tuple[str, int]]:
    """GPUs as pairs of node name and number."""
    return {(node, gpu) for node, numbers in nodes.items() for gpu in numbers}
