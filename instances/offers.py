"""Declared sets of jobs as options of their jobs: one *offer* for each set and pool that it can run in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from wattsched.instances.instance import Instance, Job, JobSet
from wattsched.instances.templates import Columns, FloatArray, IntArray
from wattsched.topology.buddy import block_size
from wattsched.topology.pools import Pool

NO_OFFER = -1


@dataclass(frozen=True)
class Offer:
    """A set in a pool.

    Attributes
    ----------
    declared : JobSet
    pool : int
        Number of the pool.
    members : tuple of int
        Numbers of its jobs; the first one *leads*: its option takes the block of GPUs for all of them.
    """

    declared: JobSet
    pool: int
    members: tuple[int, ...]


def offers_of(instance: Instance, pools: tuple[Pool, ...]) -> tuple[Offer, ...]:
    """Offers in the order of the sets, and of the pools within a set."""
    if not instance.sets:
        return ()
    number = {job.name: j for j, job in enumerate(instance.jobs)}
    return tuple(
        Offer(declared, p, tuple(number[name] for name in declared.rates))
        for declared in instance.sets
        for p in _usable(declared, [instance.jobs[number[name]] for name in declared.rates], pools)
    )


def _usable(declared: JobSet, jobs: list[Job], pools: tuple[Pool, ...]) -> Iterator[int]:
    """Pools in which the set has a block that all its jobs may use."""
    if any(not (job.min_gpus or 1) <= declared.gpus <= (job.max_gpus or declared.gpus) for job in jobs):
        return
    for p, pool in enumerate(pools):
        names = {pool.name, pool.gpu_type}
        allowed = all(job.pools is None or names & set(job.pools) for job in jobs)
        if declared.pool in names and allowed and int(block_size(declared.gpus)) <= pool.largest_block:
            yield p


def rows_of(offers: tuple[Offer, ...]) -> tuple[IntArray, IntArray, Columns]:
    """An option for every job of every offer, by job; offers of a job in their order.

    All jobs of a set have its GPUs, but only the first a block; each draws its part of the set's watts.

    Returns
    -------
    job, offer : int arrays, shape (n_rows,)
    columns : dict of str to array, shape (n_rows,)
        As those of `Templates`.
    """
    places = [(j, o, k) for o, offer in enumerate(offers) for k, j in enumerate(offer.members)]
    places.sort(key=lambda place: place[:2])
    job, offer, position = np.array(places, dtype=np.int64).reshape(-1, 3).T
    declared = [offers[o].declared for o in offer]
    gpus = np.array([d.gpus for d in declared], dtype=np.int64)
    names = [list(d.rates)[k] for d, k in zip(declared, position, strict=True)]

    def setting(values: list[float | int | None]) -> FloatArray:
        return np.array([np.nan if v is None else v for v in values], dtype=float)

    columns: Columns = {
        "pool": np.array([offers[o].pool for o in offer], dtype=np.int64),
        "gpus": gpus,
        "block": np.where(position == 0, block_size(gpus), 0),
        "rate": np.array([d.rates[name] for d, name in zip(declared, names, strict=True)], dtype=float),
        "power_w": np.array([d.power_w / len(d.rates) for d in declared], dtype=float),
        "frequency_mhz": setting([d.frequency_mhz for d in declared]),
        "power_limit_w": setting([d.power_limit_w for d in declared]),
        "batch_size": setting([d.batch_sizes.get(name) for d, name in zip(declared, names, strict=True)]),
    }
    return job, offer, columns
