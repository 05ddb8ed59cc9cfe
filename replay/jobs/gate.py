"""The gate that every decision of a replay passes, so that no power cap is exceeded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from wattsched.formulations.sizing.configurations import WAIT
from wattsched.replay.jobs.allocations import Sharing
from wattsched.replay.jobs.policy import Decision, State
from wattsched.topology.arrays import IntArray


def within_caps(state: State, decision: Decision, sharing: Sharing) -> Decision:
    """Return the decision without the changes with which a power cap would be exceeded.

    What draws less passes first, then jobs that run and would draw more, then those that start, both in the
    order of arrival. A job whose change does not pass keeps its configuration where its GPUs are left to it,
    and waits where they are not.
    """
    caps, trace, of = state.caps, state.trace, state.configurations
    if not caps.names:
        return decision

    def fits(row: IntArray) -> bool:
        runs = row != WAIT
        extra_w = trace.extra_w[row[runs]]
        if decision.host is not None:
            extra_w = sharing.of(row[runs], replace(decision, row=row).sets(state)[runs])[2]
        return bool(np.all(caps.use_w(of.pool[row[runs]], extra_w).sum(axis=0) <= state.room_w))

    wanted, now = decision.row, state.row
    if fits(wanted):
        return decision
    row = np.full(len(state), WAIT)
    if decision.host is None:
        both = (wanted != WAIT) & (now != WAIT) & (of.pool[wanted] == of.pool[now])
        falls = both & (trace.extra_w[wanted] <= trace.extra_w[now])
        stays = both & ~falls & (of.block[now] <= of.block[wanted])
        kept = np.where(falls, wanted, np.where(stays, now, WAIT))
        row = kept if fits(kept) else row
    for job in np.argsort(now == WAIT, kind="stable"):
        if row[job] != wanted[job]:
            changed = row.copy()
            changed[job] = wanted[job]
            row = changed if fits(changed) else row
    return replace(decision, row=row)
