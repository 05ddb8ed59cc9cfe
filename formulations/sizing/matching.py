"""Conversion of a decision back to its options: last round's answer is a start for this one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattsched.formulations.sizing.configurations import WAIT
from wattsched.formulations.sizing.data import Options
from wattsched.formulations.sizing.jobs import RoundJobs
from wattsched.instances.sizing.decision import AssignmentColumns, Decision
from wattsched.instances.sizing.option_rows import SETTINGS
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray
from wattsched.topology.column import NONE, Coded

UNKNOWN = -2
"""Pool of a job that a decision does not name, or has in a pool that there is not; row that is none."""


@dataclass(frozen=True)
class StatedChoices:
    """Choice of a decision for every job of a round, in arrays of shape (n_jobs,).

    Attributes
    ----------
    pool : int array
        `WAIT` for waiting, `UNKNOWN` for what no option can be.
    gpus : int array
    settings : dict of str to float array
        nan for none.
    together : Coded
        Name of the set.
    """

    pool: IntArray
    gpus: IntArray
    settings: dict[str, FloatArray]
    together: Coded


def stated_choices(known: RoundJobs, decision: Decision) -> StatedChoices:
    """What a decision says of each job of the round; other jobs are left out."""
    n = len(known)
    running = AssignmentColumns.from_records(decision.jobs)
    number = {pool.name: p for p, pool in enumerate(known.pools)}
    job, pool, gpus = known.numbers_of(running.names), np.full(n, UNKNOWN), np.zeros(n, dtype=np.int64)
    here = np.flatnonzero(job != NONE)
    job, named = job[here], running.coded("pool")
    pool[job] = np.array([number.get(name, UNKNOWN) for name in named.values], np.int64)[named.codes[here]]
    gpus[job] = running.counts("gpus")[here]
    settings = {name: np.full(n, np.nan) for name in SETTINGS}
    for name, values in settings.items():
        given = running.numbers(name) if name == "power_limit_w" else running.counts(name).astype(float)
        values[job] = np.where(given[here] == 0, np.nan, given[here])
    sets, together = running.coded("set"), np.full(n, NONE)
    together[job] = sets.codes[here]
    waits = known.numbers_of(decision.waiting)
    pool[waits[waits != NONE]] = WAIT
    return StatedChoices(pool, gpus, settings, Coded(together, sets.values))


def says_all(known: RoundJobs, decision: Decision) -> bool:
    """True if a decision says of every job of a round what it does."""
    running = AssignmentColumns.from_records(decision.jobs)
    return known.jobs.place.keys() <= {*running.names, *decision.waiting}


def same_options(options: Options, decision: Decision) -> BoolArray:
    """Mask of the options that are what a decision says of their jobs, on whatever GPUs."""
    stated, job = stated_choices(options.of, decision), options.job
    same = (options.pool == stated.pool[job]) & (options.gpus == stated.gpus[job])
    for name, values in stated.settings.items():
        same &= _equal(getattr(options, name), values[job])
    number = {name: code for code, name in enumerate(stated.together.values)}
    # The last stands for no set, whose number is -1.
    code = np.array([*(number.get(one.declared.name, UNKNOWN) for one in options.job_sets), NONE])
    same &= options.waiting | (code[options.job_set] == stated.together.codes[job])
    return np.asarray(same)


def matching_options(options: Options, decision: Decision) -> IntArray:
    """Option of each job that a decision stands for; -1 where the job is new or has no such option."""
    job = options.job
    hits = np.flatnonzero(same_options(options, decision))
    # Of several options with the same settings the soonest complete, of equals the first.
    hits = hits[np.lexsort((options.completion_s[hits], job[hits]))]
    _, first = np.unique(job[hits], return_index=True)
    found = np.full(len(options.start) - 1, -1, dtype=np.int64)
    found[job[hits[first]]] = hits[first]
    return found


def matching_rows(known: RoundJobs, decision: Decision) -> IntArray:
    """Row of its kind that a decision stands for, of every job that is not in a set, shape (n_jobs,).

    `WAIT` for waiting, `UNKNOWN` where the job is new or its kind has no row of these settings.
    """
    stated, rows = stated_choices(known, decision), known.configurations
    row = rows.by_setting.first_equal([known.kind, stated.pool, stated.gpus, *stated.settings.values()])
    found = np.where((row == NONE) | (stated.together.codes != NONE), UNKNOWN, row)
    found[stated.pool == WAIT] = WAIT
    return found


def _equal(left: FloatArray, right: FloatArray) -> BoolArray:
    return np.asarray((left == right) | (np.isnan(left) & np.isnan(right)))
