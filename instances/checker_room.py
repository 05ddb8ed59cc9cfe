"""The checker's own count of the GPUs that jobs can be placed on, by size of free aligned block."""

from __future__ import annotations

import numpy as np

from wattsched.instances.checker_gpus import gpus_of, reserved
from wattsched.instances.checker_site import Place
from wattsched.instances.instance import Instance


def free_gpus(instance: Instance, places: dict[str, Place]) -> dict[str, dict[int, int]]:
    """For every pool and power of two: GPUs in entirely free aligned blocks of that size.

    Unavailable GPUs are not free, nor are the blocks of jobs that keep what they hold. Sizes go up to the
    pool's largest block.
    """
    free = {name: [np.ones(size, dtype=bool) for size in place.sizes] for name, place in places.items()}
    for place in places.values():
        for node in place.nodes:
            for gpu in node.unavailable:
                block, offset = place.where[node.name, gpu]
                free[place.name][block][offset] = False
    for job in instance.jobs:
        if not job.preemptible and job.current is not None:
            held = job.current
            for block, offset in reserved(places[held.pool], held.gpus, gpus_of(held.nodes))[0]:
                free[held.pool][block][offset] = False
    return {name: _by_size(blocks) for name, blocks in free.items()}


def _by_size(blocks: list[np.ndarray[tuple[int], np.dtype[np.bool_]]]) -> dict[int, int]:
    """A block of twice the size is free when both of its halves are."""
    found: dict[int, int] = {}
    for free in blocks:
        size, whole = 1, free
        while True:
            found[size] = found.get(size, 0) + size * int(whole.sum())
            if len(whole) == 1:
                break
            size, whole = 2 * size, whole[0::2] & whole[1::2]
    return found
