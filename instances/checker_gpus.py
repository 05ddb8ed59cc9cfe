"""The checker's rules of GPUs: they exist, nobody shares them, and every job has its aligned block."""

from __future__ import annotations

from collections.abc import Iterator

from wattsched.instances.checker_menu import block_of
from wattsched.instances.checker_site import Gpu, Place
from wattsched.instances.decision import Assignment
from wattsched.instances.instance import Instance

Spot = tuple[int, int]
"""Number of a structural block of a pool, and offset in it."""


def gpu_faults(instance: Instance, users: list[Assignment], places: dict[str, Place]) -> Iterator[str]:
    """Every job's GPUs exist, are its own and lie in an aligned block that no other job reaches into.

    Of the jobs that share their GPUs, `users` has one.
    """
    kept = {job.name for job in instance.jobs if not job.preemptible}
    home = {node.name: (place.name, node.gpus) for place in places.values() for node in place.nodes}
    broken = {(node.name, gpu) for node in instance.cluster.nodes for gpu in node.unavailable}
    user: dict[Gpu, str] = {}
    reserver: dict[str, dict[Spot, str]] = {name: {} for name in places}
    for assignment in users:
        who = f"job '{assignment.job}'"
        listed = sum(len(numbers) for numbers in assignment.nodes.values())
        gpus = gpus_of(assignment.nodes)
        if len(gpus) < listed:
            yield f"{who} lists a GPU twice"
        if len(gpus) != assignment.gpus:
            yield f"{who} has {len(gpus)} GPUs in its nodes, its configuration {assignment.gpus}"
        place = places.get(assignment.pool)
        sound = place is not None and gpus <= place.where.keys()
        # Sets tell at once that most jobs have no fault; only the others are looked at closely.
        if not sound:
            yield from _strangers(assignment, gpus, home)
        if not broken.isdisjoint(gpus):
            for name, gpu in sorted(gpus & broken):
                yield f"{who} uses GPU {gpu} of node '{name}', which is unavailable"
        if user.keys().isdisjoint(gpus):
            user.update(dict.fromkeys(gpus, assignment.job))
        else:
            for name, gpu in sorted(gpus):
                other = user.setdefault((name, gpu), assignment.job)
                if other != assignment.job:
                    yield f"jobs '{other}' and '{assignment.job}' both use GPU {gpu} of node '{name}'"
        if sound and gpus:
            assert place is not None
            yield from _block_faults(assignment, place, gpus, kept, reserver[place.name])


def _strangers(assignment: Assignment, gpus: set[Gpu], home: dict[str, tuple[str, int]]) -> Iterator[str]:
    """GPUs that do not exist, or are in another pool than the job's; `home` has each node's pool and size."""
    who = f"job '{assignment.job}'"
    for name, gpu in sorted(gpus):
        pool, size = home.get(name, ("", 0))
        if gpu >= size:
            yield f"{who} uses GPU {gpu} of node '{name}', which does not exist"
        elif pool != assignment.pool:
            yield f"{who} runs in pool '{assignment.pool}' but node '{name}' is in '{pool}'"


def _block_faults(
    assignment: Assignment, place: Place, gpus: set[Gpu], kept: set[str], reserver: dict[Spot, str]
) -> Iterator[str]:
    """Reserve the block of a job; two jobs that keep their GPUs may have come to share one."""
    spots, aligned = reserved(place, assignment.gpus, gpus)
    if not aligned and assignment.job not in kept:
        yield f"job '{assignment.job}' is not inside one aligned block of {block_of(assignment.gpus)} GPUs"
    if not reserver.keys().isdisjoint(spots):
        others = {reserver[spot] for spot in spots if spot in reserver} - {assignment.job}
        for other in sorted(others):
            if not (assignment.job in kept and other in kept):
                yield f"the blocks of jobs '{other}' and '{assignment.job}' in pool '{place.name}' overlap"
        spots = [spot for spot in spots if spot not in reserver]
    reserver.update(dict.fromkeys(spots, assignment.job))


def reserved(place: Place, count: int, gpus: set[Gpu]) -> tuple[list[Spot], bool]:
    """Spots that a job with these GPUs takes: the aligned block around them, if there is one.

    A job that keeps its GPUs may hold scattered ones, which then are all it takes.

    Returns
    -------
    spots : list of Spot
    aligned : bool
        Whether the GPUs lie in one aligned block.
    """
    size = block_of(count)
    spots = [place.where[gpu] for gpu in gpus]
    block, first = spots[0][0], spots[0][1] // size * size
    aligned = all(b == block and first <= offset < first + size for b, offset in spots)
    if aligned and first + size <= place.sizes[block]:
        return [(block, offset) for offset in range(first, first + size)], True
    return spots, False


def gpus_of(nodes: dict[str, list[int]]) -> set[Gpu]:
    """GPUs as pairs of node name and number."""
    return {(name, gpu) for name, numbers in nodes.items() for gpu in numbers}
