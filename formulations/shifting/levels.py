r"""Levels of work left, and how many of them options go down in a slot.

An option that does a levels in a slot, not a whole number, goes down :math:`\lfloor (t+1) a \rfloor -
\lfloor t a \rfloor` levels in slot t: over any slots in a row nothing is lost but parts of one level. *Safe*
levels give that part back with the first slot of every run, so that never less than the true work is done.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattsched.formulations.program import FloatArray, IntArray
from wattsched.formulations.shifting.horizon import Horizon
from wattsched.formulations.shifting.job_groups import JobGroup

_ENOUGH_PER_SLOT = 25
"""Levels in a slot of the middle option, where nothing has to be safe."""
_MARGIN = 1e-7
"""Share of a level by which safe levels exceed what rounding could make too little."""


@dataclass(frozen=True)
class Levels:
    """Levels of work left, ``step`` apart.

    Attributes
    ----------
    step : float
    work : float array, shape (n_levels,)
    going_on, starting, restarting : int arrays, shape (slots, n_options)
        Levels down in a slot: with the option of the slot before, as the first slot of a run, and as one that
        begins with a restart.
    safe : bool
    """

    step: float
    work: FloatArray
    going_on: IntArray
    starting: IntArray
    restarting: IntArray
    safe: bool

    def below(self, work: FloatArray) -> IntArray:
        """Level at or below amounts of work, or nearest to them where nothing has to be safe."""
        level = work * (1 - 1e-9) / self.step if self.safe else np.rint(work / self.step)
        return np.minimum(level.astype(np.int64), len(self.work) - 1)


def able(horizon: Horizon, group: JobGroup) -> FloatArray:
    """Work of a full slot without and with a restart, shape (2, n_options)."""
    seconds = np.array([[horizon.slot_s], [horizon.slot_s - group.restart_s]])
    return np.asarray(seconds * horizon.rate[group.option])


def levels_of(horizon: Horizon, group: JobGroup, most: int, *, safe: bool) -> Levels:
    """Levels of a group's work.

    Parameters
    ----------
    most : int
        How many there are at most; unsafe ones are fewer where the middle option does many in a slot.
    """
    work, largest = able(horizon, group), float(horizon.work[group.job].max())
    step = largest / most
    if not safe:
        step = max(step, float(np.median(work[0])) / _ENOUGH_PER_SLOT)
    full, cut = work / step
    slot = np.arange(horizon.slots + 1)[:, None]
    levels = step * np.arange(int(largest / step) + 2, dtype=np.float64)
    if not safe:
        done = np.rint(slot * full).astype(np.int64)
        restarting = done[1:] - np.rint(slot[1:] * full - cut).astype(np.int64)
        going_on = np.diff(done, axis=0)
        return Levels(step, levels, going_on, going_on, restarting, safe)
    done = np.floor(slot * full)
    lost = np.maximum.accumulate((slot * full - done)[::-1], axis=0)[::-1][1:]
    first = done[1:] + lost - slot[1:] * full + _MARGIN
    return Levels(
        step,
        levels,
        np.diff(done, axis=0).astype(np.int64),
        np.ceil(first + full).astype(np.int64),
        np.ceil(first + cut).astype(np.int64),
        safe,
    )
