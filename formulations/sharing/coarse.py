"""A coarser round: jobs of a class with nearly as much work are taken as equal.

Its LP is small, and its prices of slots and units are nearly right for the round itself.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from wattsched.formulations.program import FloatArray, IntArray
from wattsched.formulations.sharing.kinds import Kinds
from wattsched.formulations.sharing.master import Master
from wattsched.formulations.sharing.rounds import Round, all_columns

BUCKETS = 6
"""Amounts of work that jobs of a class with the same permissions are told apart by."""


def coarse_slot_prices(of: Round) -> FloatArray:
    """Prices of all slots from the LP of the coarser round, shape (Q,)."""
    bucket = _buckets(of.kinds)
    kinds = _merged(of.kinds, bucket)
    count = np.bincount(bucket).astype(float)
    waiting = np.bincount(bucket, of.waiting * of.kinds.jobs) / np.bincount(bucket, of.kinds.jobs)
    coarser = replace(of, kinds=kinds, waiting=np.where(count > 0, waiting, 0.0))
    columns = all_columns(coarser)
    master = Master(coarser)
    master.add(columns.pattern, columns.kind, columns.slot)
    return master.solve()[1].slot


def _buckets(kinds: Kinds) -> IntArray:
    """Bucket of each kind: equal numbers of kinds of the same class and permissions, by work."""
    timed = np.isfinite(kinds.deadline_s)
    order = np.lexsort((kinds.epochs, kinds.may_wait, kinds.exclusive, timed, kinds.job_class))
    key = np.stack([kinds.job_class, timed, kinds.exclusive, kinds.may_wait], axis=1)[order]
    first = np.flatnonzero(np.append(True, np.any(key[1:] != key[:-1], axis=1)))
    bucket = np.zeros(len(kinds), dtype=np.int64)
    used = 0
    for group in np.split(order, first[1:]):
        bucket[group] = used + np.arange(len(group)) * BUCKETS // len(group)
        used += BUCKETS
    return np.asarray(np.unique(bucket, return_inverse=True)[1])


def _merged(kinds: Kinds, bucket: IntArray) -> Kinds:
    """One kind for each bucket, with the mean work and the loosest deadline in relation to it."""
    jobs = np.bincount(bucket, kinds.jobs)
    epochs = np.bincount(bucket, kinds.epochs * kinds.jobs) / jobs
    loosest = np.zeros(len(jobs))
    np.maximum.at(loosest, bucket, kinds.deadline_s / kinds.epochs)
    some = np.unique(bucket, return_index=True)[1]
    return Kinds(
        members=tuple(() for _ in jobs),
        job_class=kinds.job_class[some],
        jobs=jobs.astype(np.int64),
        epochs=epochs,
        deadline_s=loosest * epochs,
        exclusive=kinds.exclusive[some],
        may_wait=kinds.may_wait[some],
    )
