"""Splits of certificate trees: what a job may do, on two sides, in few words.

An option that was dropped because others beat it belongs to a side that has one of these: in a decision that
one can take its place. So the sides are split where the columns are, and named by as few beginnings of
settings (a pool, a pool and a GPU count, ...) as tell them apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from wattsched.formulations.sizing.columns import Choices
from wattsched.formulations.sizing.data import Options
from wattsched.formulations.sizing.sleeping import Part
from wattsched.topology.arrays import BoolArray, IntArray

Key = tuple[Any, ...]
WAIT: Key = (None,)


def split_of(
    columns: Choices, parts: Sequence[Part], inside: IntArray, outside: IntArray
) -> tuple[dict[str, Any], bool] | None:
    """Split of the columns of one job, or of a part of the nodes that sleep, that are left, on two sides.

    Returns
    -------
    split : dict
        As `verification.sizing.splits` reads it.
    swapped : bool
        Whether the sides are exchanged, because the other one was quicker to name.
    None
        Where a table repeats a setting on both sides.
    """
    options = columns.options
    if inside[0] >= len(columns):
        i, awake = divmod(int(inside[0]) - len(columns), 2)
        part = parts[i]
        return {"awake": part.pool, "each_w": part.each_w, "part": part.number}, not awake
    j = int(columns.job[inside[0]])
    span = np.arange(options.start[j], options.start[j + 1])
    beaten = [_stood_for(columns, side, span) for side in (inside, outside)]
    keys = [_key(options, int(i)) for i in span]
    found = []
    for swapped, (mine, others) in enumerate((beaten, beaten[::-1])):
        named = list(_named(sorted(zip(keys, mine, others, strict=True), key=lambda row: str(row[0])), 1))
        if None in named:
            return None
        told = ["wait" if key == WAIT else list(key) for key in named if key is not None]
        found.append((len(told), bool(swapped), told))
    _, swapped, listed = min(found, key=lambda one: one[:2])
    return {"job": options.of.jobs.names[j], "options": listed}, swapped


def _stood_for(columns: Choices, side: IntArray, span: IntArray) -> BoolArray:
    """Return the mask of a job's options on a side, or dropped and beaten by one there; shape (n_span,)."""
    options, own = columns.options, columns.index[side]
    dropped = ~np.isin(span, columns.index)
    rival = own[~options.shared[own], None]
    beaten = options.waiting[rival] | (options.pool[rival] == options.pool[span])
    for values in columns.criteria:
        beaten = beaten & (values[rival] <= values[span])
    return np.asarray(np.isin(span, own) | (dropped & beaten.any(axis=0)))


def _named(rows: list[tuple[Key, bool, bool]], length: int) -> Iterator[Key | None]:
    """Beginnings of keys that hold all that is on one side alone and nothing that is on the other alone.

    None stands for a key that is on both sides.
    """
    for begin, group in groupby(rows, key=lambda row: row[0][:length]):
        members = list(group)
        if not any(mine and not other for _, mine, other in members):
            continue
        if not any(other and not mine for _, mine, other in members):
            yield begin
        elif all(key == begin for key, _, _ in members):
            yield None
        else:
            yield from _named(members, length + 1)


def _key(options: Options, i: int) -> Key:
    """Pool, GPU count, batch size, frequency and power limit; of sets pool and name."""
    if options.waiting[i]:
        return WAIT
    pool = options.pools[options.pool[i]].name
    if options.shared[i]:
        return pool, options.job_sets[options.job_set[i]].declared.name
    mhz, batch = (_whole(values[i]) for values in (options.frequency_mhz, options.batch_size))
    limit_w = float(options.power_limit_w[i])
    return pool, int(options.gpus[i]), batch, mhz, None if math.isnan(limit_w) else limit_w


def _whole(value: float) -> int | None:
    return None if math.isnan(value) else int(value)
