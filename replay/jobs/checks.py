"""Checks of what policies answer."""

from __future__ import annotations

import numpy as np

from wattsched.replay.jobs.menus import WAITS
from wattsched.replay.jobs.policy import Decision, View
from wattsched.topology.arrays import IntArray


def check(view: View, decision: Decision, policy: str) -> None:
    """Refuse a decision that is none for this view.

    Raises
    ------
    ValueError
        When it is not made of arrays and numbers as `Decision` says, there is not one row of its kind for
        every job, jobs run that no budget is left for, or share GPUs that are not the same for both.
    """
    _check_kinds(decision, policy)
    row, menus = decision.row, view.menus
    if row.shape != view.jobs.shape:
        raise ValueError(f"policy '{policy}' gives {row.shape} rows for {len(view)} jobs")
    first, end = menus.start[view.kind], menus.start[view.kind + 1]
    wrong = (row != WAITS) & ((row < first) | (row >= end))
    if wrong.any():
        job = view.trace.names[view.jobs[wrong][0]]
        raise ValueError(f"policy '{policy}' gives job '{job}' a row of another kind")
    if view.allowance is not None and view.allowance.exhausted and np.any(row != WAITS):
        raise ValueError(f"policy '{policy}' runs jobs at {view.time_s:g} s, when the budget is spent")
    if decision.host is not None:
        _check_hosts(view, row, decision.host, policy)


def _check_kinds(decision: Decision, policy: str) -> None:
    if not isinstance(decision, Decision):
        raise ValueError(f"policy '{policy}' decides {type(decision).__name__}, not a Decision")
    arrays = {"row": decision.row} if decision.host is None else {"row": decision.row, "host": decision.host}
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray) or array.dtype.kind != "i":
            raise ValueError(f"policy '{policy}': {name} must be an array of whole numbers")
    if not isinstance(decision.gap, float | int | np.number):
        raise ValueError(f"policy '{policy}': gap must be a number, nan where there is none")
    if not isinstance(decision.again_s, float | int | np.number) or np.isnan(decision.again_s):
        raise ValueError(f"policy '{policy}': again_s must be a time, inf where there is none")


def _check_hosts(view: View, row: IntArray, host: IntArray, policy: str) -> None:
    n = len(view)
    if host.shape != row.shape:
        raise ValueError(f"policy '{policy}' gives {host.shape} hosts for {n} jobs")
    if np.any(host >= n):
        raise ValueError(f"policy '{policy}' gives host {host.max()}, there are {n} jobs")
    guests = np.flatnonzero(host >= 0)
    of = host[guests]
    names, menus = view.trace.names, view.menus
    wrong = guests[(host[of] >= 0) | (of == guests)]
    if len(wrong):
        job, other = (names[view.jobs[i]] for i in (wrong[0], host[wrong[0]]))
        raise ValueError(f"policy '{policy}' lets job '{job}' share with '{other}', which is no host")
    # All guests of a host are held against the first of them that runs, the host itself before all.
    runs = np.flatnonzero(row != WAITS)
    leader = np.where(host < 0, np.arange(n), host)[runs]
    order = np.lexsort((runs != leader, leader))
    runs, leader = runs[order], leader[order]
    base = runs[np.searchsorted(leader, leader)]
    unlike = (menus.pool[row[runs]] != menus.pool[row[base]]) | (
        menus.gpus[row[runs]] != menus.gpus[row[base]]
    )
    if unlike.any():
        job, other = (names[view.jobs[i[unlike][0]]] for i in (runs, base))
        raise ValueError(f"policy '{policy}' lets job '{job}' share GPUs with '{other}', which has others")
