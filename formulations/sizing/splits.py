"""Splits of certificate trees: what a job may do, on two sides, in few words.

An option that was dropped because others beat it belongs to a side that has one of these: in a decision that
one can take its place. So the sides are split where the columns are, and named by as few beginnings of
settings (a pool, a pool and a GPU count, ...) as tell them apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from wattsched.formulations.sizing.columns import Choices
from wattsched.formulations.sizing.data import Options
from wattsched.formulations.sizing.sleeping import Part
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray


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
    inner, outer = (_stood_for(columns, side, span) for side in (inside, outside))
    settings = _settings(options, span)
    first = _named(settings, inner & ~outer, outer & ~inner)
    second = _named(settings, outer & ~inner, inner & ~outer)
    if first is None or second is None:
        return None
    swapped = len(second) < len(first)
    keys = [_key(options, int(span[i]), length) for i, length in (second if swapped else first)]
    return {"job": options.of.jobs.names[j], "options": keys}, swapped


def _stood_for(columns: Choices, side: IntArray, span: IntArray) -> BoolArray:
    """Return the mask of a job's options on a side, or dropped and beaten by one there; shape (n_span,)."""
    options, own = columns.options, columns.index[side]
    dropped = ~np.isin(span, columns.index)
    rival = own[~options.shared[own], None]
    beaten = options.waiting[rival] | (options.pool[rival] == options.pool[span])
    for values in columns.criteria:
        beaten = beaten & (values[rival] <= values[span])
    return np.asarray(np.isin(span, own) | (dropped & beaten.any(axis=0)))


def _settings(options: Options, span: IntArray) -> FloatArray:
    """Settings of a job's options as numbers, one column each; shape (n_span, 5).

    A set of jobs is a negative GPU count, and what an option leaves open, or has not while it waits, is -1.
    """
    shared = options.shared[span]
    gpus = np.where(shared, -2.0 - options.job_set[span], options.gpus[span])
    further = np.stack([options.batch_size[span], options.frequency_mhz[span], options.power_limit_w[span]])
    further = np.where(shared | np.isnan(further), -1.0, further)
    settings = np.column_stack([options.pool[span], gpus, *further])
    settings[options.waiting[span]] = -1.0
    return settings


def _named(settings: FloatArray, mine: BoolArray, others: BoolArray) -> list[tuple[int, int]] | None:
    """Beginnings of settings that hold all that is on one side alone and nothing that is on the other alone.

    Returns
    -------
    list of (row, length)
        A row that begins so, and the length of the beginning; None where a setting is on both sides.
    """
    order = np.lexsort(settings.T[::-1])
    mine, others, differs = mine[order], others[order], np.diff(settings[order], axis=0) != 0.0
    left, found = np.ones(len(order), dtype=bool), []
    for length in range(1, settings.shape[1] + 1):
        begins = np.flatnonzero(np.append(True, differs[:, :length].any(axis=1)))
        here = np.logical_or.reduceat(mine & left, begins)
        there = np.logical_or.reduceat(others & left, begins)
        found += [(int(row), length) for row in begins[here & ~there]]
        left &= np.repeat(here & there, np.diff(np.append(begins, len(order))))
    return None if left.any() else [(int(order[row]), length) for row, length in sorted(found)]


def _key(options: Options, i: int, length: int) -> list[Any] | str:
    """First `length` of pool, GPU count, batch size, frequency and power limit; of sets of pool and name."""
    if options.waiting[i]:
        return "wait"
    pool = options.pools[options.pool[i]].name
    if options.shared[i]:
        return [pool, options.job_sets[options.job_set[i]].declared.name][:length]
    batch, mhz, limit_w = options.batch_size[i], options.frequency_mhz[i], options.power_limit_w[i]
    batch, mhz = (None if math.isnan(value) else int(value) for value in (batch, mhz))
    return [pool, int(options.gpus[i]), batch, mhz, None if math.isnan(limit_w) else float(limit_w)][:length]
