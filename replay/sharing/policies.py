r"""Policies over time: FIFO and the packing policies of Gavel, EaCO's rule, and ours.

Jobs under `fifo` and `Eaco` stay where they are. Those under `fifo_packed` and `Gandiva` are placed anew at
every event, as Gavel does every round, and move without cost.

Under `LeastCost` jobs join where that costs least, and move where the move pays. A set of n jobs on a unit
that draws P costs, per second of work of its jobs,

.. math:: f = (P + v\,n)\,\sigma,

with the mean slowdown :math:`\sigma` of its jobs and the value v of a job's time: energy and run time in one
unit, as EaCO's eq. 1 has them. Jobs that arrive join the set or free unit where the sum of f grows least.
Then single jobs move while what that saves until a horizon is more than the epoch costs that the job repeats.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache

from wattsched.formulations.sharing import rules
from wattsched.instances.sharing.decision import SharingDecision
from wattsched.instances.sharing.instance import SharingInstance
from wattsched.replay.sharing.stream import Classes, Policy, Sets, State, Units

Decide = Callable[[SharingInstance], SharingDecision | None]

_TOLERANCE_W = 1e-6


def anew(instance: SharingInstance, decide: Decide) -> Policy:
    """Make a policy that replaces all sets at each event by what a rule or a program decides."""
    index_of = {job.name: j for j, job in enumerate(instance.jobs)}

    def policy(state: State) -> Units:
        jobs = [
            instance.jobs[j].model_copy(update={"remaining_epochs": float(state.left[j])})
            for j in state.present
        ]
        decision = decide(instance.model_copy(update={"jobs": jobs}))
        sets = [] if decision is None else decision.sets
        return {unit: [index_of[name] for name in formed.jobs] for unit, formed in enumerate(sets)}

    return policy


# -- published rules -------------------------------------------------------------------------------------


class _Packing:
    """Sets of jobs on units, as a rule of `formulations.sharing.rules` forms them.

    Parameters
    ----------
    running : dict of int to list of int
        Sets on the units at the start.
    slack : float
        Share by which jobs of EaCO's sets may run longer than alone.
    """

    def __init__(self, state: State, running: Units, slack: float = math.inf):
        self.units = {unit: list(members) for unit, members in running.items()}
        self._state, self._slack, self._free = state, slack, state.free_units(running)
        self._single: defaultdict[int, list[int]] = defaultdict(list)

    def start(self, job: int) -> bool:
        """Give a job the next free unit to itself."""
        if (unit := next(self._free, None)) is None:
            return False
        self.units[unit] = [job]
        return True

    def join_fullest(self, job: int) -> bool:
        """Let a job join the most utilised set in which all keep their deadlines."""
        for unit in sorted(self.units, key=lambda unit: (-self._utilisation_pct(unit), unit)):
            if keeps(self._state, [*self.units[unit], job], self._slack):
                self.units[unit].append(job)
                return True
        return False

    def join_best_pair(self, job: int) -> bool:
        """Pair a job with the single job of highest joint throughput, if that exceeds the threshold."""
        state, own = self._state, self._state.job_class[job]
        if not self._single:
            for unit, members in reversed(self.units.items()):
                self._single[state.job_class[members[0]]].append(unit)
        throughput = {c: self._throughput(c, own) for c, units in self._single.items() if units}
        best = max(throughput, key=lambda c: throughput[c], default=None)
        if best is None or throughput[best] <= rules.PACKING_THRESHOLD:
            return False
        self.units[self._single[best].pop()].append(job)
        return True

    def _utilisation_pct(self, unit: int) -> float:
        return self._state.sets.of(self._state.classes(self.units[unit])).utilisation_pct

    def _throughput(self, one: int, other: int) -> float:
        sets = self._state.sets
        pair = sets.of((min(one, other), max(one, other)))
        alone = (sets.of((c,)).epoch_s[c] / pair.epoch_s[c] for c in (one, other))
        return sum(alone) if pair.admitted else 0.0


def fifo(state: State) -> Units:
    """Give each job a unit to itself, in the order of their arrival."""
    packing = _Packing(state, state.running)
    rules.fifo(state.waiting(), packing.start)
    return packing.units


def fifo_packed(state: State) -> Units:
    """Give each job a unit as `fifo` does; then let a job join the lone one that makes the fastest pair."""
    packing = _Packing(state, {})
    rules.fifo_packed(state.present, packing.start, packing.join_best_pair)
    return packing.units


class Gandiva:
    """Random pairs of all jobs while there are more jobs than units; what is more takes turns."""

    def __init__(self, seed: int = rules.SEED):
        self._pairs = rules.Gandiva(seed)

    def __call__(self, state: State) -> Units:
        """Decide."""

        def propose(single: list[int]) -> Iterator[tuple[int, int]]:
            for _ in range(len(single)):
                if len(single) < 2:
                    return
                one, other = self._pairs.draw.sample(single, 2)
                if state.sets.of(state.classes((one, other))).admitted:
                    yield one, other
                    single[:] = (j for j in single if j not in (one, other))

        groups = self._pairs.groups(state.present, len(state.present) > state.units, propose)
        return dict(enumerate(groups))


class Eaco:
    """EaCO's rule: a job that arrives joins the most utilised set that takes it, and stays.

    Parameters
    ----------
    slack : float
        A job's deadline: it may run longer than alone by this part. The publication has deadlines, but not
        which.
    """

    def __init__(self, slack: float):
        self._slack = slack

    def __call__(self, state: State) -> Units:
        """Decide."""
        packing = _Packing(state, state.running, self._slack)
        rules.eaco(state.waiting(), packing.join_fullest, packing.start)
        return packing.units


def keeps(state: State, jobs: list[int], slack: float, moving: int | None = None) -> bool:
    """True if jobs may share a unit, and all are complete in time if they do so to their ends.

    One that moves there repeats the epoch that it has begun.
    """
    together = state.sets.of(state.classes(jobs))
    if not together.admitted:
        return False
    for j in jobs:
        left = state.left[j] + (state.repeated_epochs(j) if j == moving else 0.0)
        runs_s = state.run_s[j] + left * together.epoch_s[state.job_class[j]]
        if runs_s > (1 + slack) * state.epochs[j] * state.epoch_s[j] * (1 + 1e-9):
            return False
    return True


# -- least cost ------------------------------------------------------------------------------------------


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
        self._value_w, self._slack, self._horizon_s = value_w, slack, horizon_s
        self._sets: Sets | None = None

    def __call__(self, state: State) -> Units:
        """Decide."""
        if self._sets is not state.sets:
            self._sets, self._costs = state.sets, _Costs(state.sets, self._value_w)
        moves = _Moves(state, self._costs, self._slack)
        for j in state.waiting():
            if (unit := moves.cheapest(j)) is not None:
                moves.put(j, unit)
        while self._horizon_s > 0 and (move := moves.best(self._horizon_s)) is not None:
            moves.make(*move)
        return moves.units


class _Costs:
    """Watts that sets cost at a value of a job's time."""

    def __init__(self, sets: Sets, value_w: float):
        self._sets, self._value_w = sets, value_w
        self.set_w, self.added_w = cache(self._set_w), cache(self._added_w)

    def _set_w(self, classes: Classes) -> float:
        if not classes:
            return 0.0
        together = self._sets.of(classes)
        return together.slowdown * (together.power_w + self._value_w * len(classes))

    def _added_w(self, classes: Classes, own: int) -> float:
        """Watts that a job of a class adds to a set, infinite where it is not admitted."""
        larger = tuple(sorted((*classes, own)))
        return self.set_w(larger) - self.set_w(classes) if self._sets.of(larger).admitted else math.inf


class _Moves:
    """Sets while jobs join them and change between them."""

    def __init__(self, state: State, costs: _Costs, slack: float):
        self.units = {unit: list(members) for unit, members in state.running.items()}
        self._state, self._costs, self._slack = state, costs, slack
        self._classes = {unit: state.classes(members) for unit, members in self.units.items()}
        self._fixed = set(state.waiting())
        self._targets_of: dict[int, list[tuple[float, list[int]]]] = {}

    def put(self, job: int, unit: int) -> None:
        """Add a job to a unit."""
        self.units.setdefault(unit, []).append(job)
        self._classes[unit] = self._state.classes(self.units[unit])
        self._targets_of.clear()

    def make(self, job: int, source: int, target: int) -> None:
        """Let a job change its unit, once per event."""
        self._fixed.add(job)
        self.units[source].remove(job)
        self._classes[source] = self._state.classes(self.units[source])
        self.put(job, target)
        if not self.units[source]:
            del self.units[source], self._classes[source]

    def cheapest(self, job: int) -> int | None:
        """Unit where a job that waits adds least, None where none takes it."""
        targets = self._targets(self._state.job_class[job])
        return next((unit for _, units in targets for unit in units if self._takes(unit, job)), None)

    def best(self, horizon_s: float) -> tuple[int, int, int] | None:
        """Job, source and target of the move that pays most, None where none pays."""
        state, most_j, found = self._state, 0.0, None
        for unit, members in self.units.items():
            classes = self._classes[unit]
            for own in set(classes):
                rest = list(classes)
                rest.remove(own)
                gain_w = self._costs.set_w(classes) - self._costs.set_w(tuple(rest)) - _TOLERANCE_W
                targets = self._targets(own)
                if not targets or targets[0][0] >= gain_w:
                    continue
                for j in (j for j in members if state.job_class[j] == own and j not in self._fixed):
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
        """Joules that a move saves while it lasts, less those of the work that the job repeats."""
        state = self._state
        lasts_s = min(horizon_s, float(state.left[job]) * state.epoch_s[job])
        repeated_s = state.repeated_epochs(job) * state.epoch_s[job]
        return net_w * lasts_s - repeated_s * self._costs.set_w(classes) / len(classes)

    def _targets(self, own: int) -> list[tuple[float, list[int]]]:
        """Units that take a job of a class by what it adds to their cost, the cheapest first."""
        if own not in self._targets_of:
            alike: defaultdict[Classes, list[int]] = defaultdict(list)
            for unit, classes in self._classes.items():
                alike[classes].append(unit)
            if (free := next(self._state.free_units(self.units), None)) is not None:
                alike[()].append(free)
            added = ((self._costs.added_w(classes, own), units) for classes, units in alike.items())
            self._targets_of[own] = sorted(pair for pair in added if pair[0] < math.inf)
        return self._targets_of[own]

    def _takes(self, unit: int, job: int) -> bool:
        if unit not in self.units or self._slack == math.inf:
            return True
        return keeps(self._state, [*self.units[unit], job], self._slack, moving=job)
