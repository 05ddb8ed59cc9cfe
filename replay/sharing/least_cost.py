r"""Our policy over time: jobs join where that costs least, and move where the move pays.

A set of n jobs on a unit that draws P costs, per second of work of its jobs,

.. math:: f = (P + v\,n)\,\sigma,

with the mean slowdown :math:`\sigma` of its jobs and the value v of a job's time: energy and run time in one
unit, as EaCO's eq. 1 has them. Jobs that arrive join the set or free unit where the sum of f grows least.
Then single jobs move while what that saves until a horizon is more than the epoch costs that the job repeats.
"""

from __future__ import annotations

import math
from collections import defaultdict

from wattsched.replay.sharing.published import free_units, keeps, waiting
from wattsched.replay.sharing.sets import Classes, Sets
from wattsched.replay.sharing.stream import Moment, Units

_TOLERANCE_W = 1e-6


class LeastCost:
    """Place jobs by their marginal cost.

    Parameters
    ----------
    value_w : float
        What a second of a job's run is worth, in joules.
    slack : float
        Part by which a job may run longer than alone; infinite for no limit.
    horizon_s : float
        For how long a move is taken to last, at most; the job's end may come before. 0 for no moves.
    """

    def __init__(self, value_w: float, slack: float = math.inf, horizon_s: float = 3600.0):
        self._slack, self._horizon_s = slack, horizon_s
        self._costs = _Costs(value_w)

    def __call__(self, moment: Moment) -> Units:
        """Decide."""
        self._costs.of(moment.sets)
        packing = _Packing(moment, self._costs, self._slack)
        for j in waiting(moment):
            unit = packing.cheapest(j)
            if unit is not None:
                packing.put(j, unit)
        while self._horizon_s > 0 and (move := packing.best_move(self._horizon_s)) is not None:
            packing.move(*move)
        return packing.units


class _Costs:
    """Watts that sets cost, remembered."""

    def __init__(self, value_w: float):
        self._value_w = value_w
        self._sets: Sets | None = None
        self._set_w: dict[Classes, float] = {(): 0.0}
        self._added_w: dict[tuple[Classes, int], float] = {}

    def of(self, sets: Sets) -> None:
        """Forget what was of other sets."""
        if self._sets is not sets:
            self._sets, self._set_w, self._added_w = sets, {(): 0.0}, {}

    def set_w(self, classes: Classes) -> float:
        """Cost of a set, 0 for no jobs."""
        found = self._set_w.get(classes)
        if found is None:
            assert self._sets is not None
            together = self._sets.of(classes)
            found = (together.power_w + self._value_w * len(classes)) * together.slowdown
            self._set_w[classes] = found
        return found

    def added_w(self, classes: Classes, own: int) -> float:
        """What a job of a class adds to a set, infinite where it is not admitted."""
        found = self._added_w.get((classes, own))
        if found is None:
            assert self._sets is not None
            larger = tuple(sorted((*classes, own)))
            found = self.set_w(larger) - self.set_w(classes) if self._sets.of(larger).admitted else math.inf
            self._added_w[classes, own] = found
        return found


class _Packing:
    """Sets while they are changed."""

    def __init__(self, moment: Moment, costs: _Costs, slack: float):
        self.units = {unit: list(members) for unit, members in moment.running.items()}
        self._moment, self._costs, self._slack = moment, costs, slack
        self._classes = {unit: moment.classes(members) for unit, members in self.units.items()}
        self._fixed = set(waiting(moment))
        self._targets_of: dict[int, list[tuple[float, list[int]]]] = {}

    def put(self, job: int, unit: int) -> None:
        """Add a job to a unit."""
        self.units.setdefault(unit, []).append(job)
        self._classes[unit] = self._moment.classes(self.units[unit])
        self._targets_of.clear()

    def move(self, job: int, source: int, target: int) -> None:
        """Let a job change its unit, once per event."""
        self._fixed.add(job)
        self.units[source].remove(job)
        self._classes[source] = self._moment.classes(self.units[source])
        self.put(job, target)
        if not self.units[source]:
            del self.units[source], self._classes[source]

    def cheapest(self, job: int) -> int | None:
        """Unit where a job that waits adds least, None where none takes it."""
        targets = self._targets(self._moment.job_class[job])
        return next((unit for _, units in targets for unit in units if self._takes(unit, job)), None)

    def best_move(self, horizon_s: float) -> tuple[int, int, int] | None:
        """Job, source and target of the move that pays most, None where none pays."""
        moment, most_j, found = self._moment, 0.0, None
        for unit, members in self.units.items():
            classes = self._classes[unit]
            for own in set(classes):
                rest = list(classes)
                rest.remove(own)
                gain_w = self._costs.set_w(classes) - self._costs.set_w(tuple(rest)) - _TOLERANCE_W
                targets = self._targets(own)
                if not targets or targets[0][0] >= gain_w:
                    continue
                for j in members:
                    if moment.job_class[j] != own or j in self._fixed:
                        continue
                    for added_w, units in targets:
                        saved_j = self._saved_j(j, gain_w - added_w, classes, horizon_s)
                        if saved_j <= most_j:
                            break
                        target = next((u for u in units if u != unit and self._takes(u, j)), None)
                        if target is not None:
                            most_j, found = saved_j, (j, unit, target)
                            break
        return found

    def _saved_j(self, job: int, net_w: float, classes: Classes, horizon_s: float) -> float:
        """What a move saves while it lasts, less its share of the set for as long as the job repeats."""
        moment = self._moment
        lasts_s = min(horizon_s, float(moment.left[job]) * moment.epoch_s[job])
        repeated_s = moment.repeated_epochs(job) * moment.epoch_s[job]
        return net_w * lasts_s - repeated_s * self._costs.set_w(classes) / len(classes)

    def _targets(self, own: int) -> list[tuple[float, list[int]]]:
        """Units that take a job of a class by what it adds to their cost, the cheapest first."""
        found = self._targets_of.get(own)
        if found is None:
            alike: defaultdict[Classes, list[int]] = defaultdict(list)
            for unit, classes in self._classes.items():
                alike[classes].append(unit)
            if (free := next(free_units(self._moment, self.units), None)) is not None:
                alike[()].append(free)
            added = ((self._costs.added_w(classes, own), units) for classes, units in alike.items())
            found = self._targets_of[own] = sorted(pair for pair in added if pair[0] < math.inf)
        return found

    def _takes(self, unit: int, job: int) -> bool:
        if unit not in self.units or self._slack == math.inf:
            return True
        return keeps(self._moment, [*self.units[unit], job], self._slack, moving=job)
