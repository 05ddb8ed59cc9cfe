"""Published policies over time: FIFO and the packing policies of Gavel, and EaCO's rule.

Jobs under `fifo` and `Eaco` stay where they are. Those under `FifoPacked` and `Gandiva` are placed anew at
every event, as Gavel does every round, and move without cost.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator

from wattsched.formulations.sharing.rules import PACKING_THRESHOLD
from wattsched.instances.sharing.decision import SharingDecision
from wattsched.instances.sharing.instance import SharingInstance
from wattsched.replay.sharing.stream import Moment, Policy, Units

Decide = Callable[[SharingInstance], SharingDecision | None]


def anew(instance: SharingInstance, decide: Decide) -> Policy:
    """Policy that decides of everything at each event, by a rule or a program, as if nothing ran."""
    number = {job.name: j for j, job in enumerate(instance.jobs)}

    def policy(moment: Moment) -> Units:
        jobs = [
            instance.jobs[j].model_copy(update={"remaining_epochs": float(moment.left[j])})
            for j in moment.present
        ]
        decision = decide(instance.model_copy(update={"jobs": jobs}))
        sets = [] if decision is None else decision.sets
        return {unit: [number[name] for name in formed.jobs] for unit, formed in enumerate(sets)}

    return policy


def free_units(moment: Moment, taken: Units) -> Iterator[int]:
    """Units without jobs, in their order."""
    return (unit for unit in range(moment.units) if unit not in taken)


def waiting(moment: Moment) -> list[int]:
    """Jobs that do not run, in the order of their arrival."""
    runs = {j for members in moment.running.values() for j in members}
    return [j for j in moment.present if j not in runs]


def fifo(moment: Moment) -> Units:
    """Give each job a unit to itself, in the order of their arrival."""
    free = list(free_units(moment, moment.running))
    started = zip(free, waiting(moment), strict=False) if free else ()
    return {**moment.running, **{unit: [j] for unit, j in started}}


class FifoPacked:
    """As FIFO; then a job joins the single one with which the normalised throughput of the pair is highest.

    It must be above 1.5; the first job without such a partner stops the queue (Gavel, ``policies/fifo.py``).
    """

    def __call__(self, moment: Moment) -> Units:
        """Decide."""
        units = {unit: [j] for unit, j in zip(range(moment.units), moment.present, strict=False)}
        single: defaultdict[int, list[int]] = defaultdict(list)
        for unit in reversed(units):
            single[moment.job_class[units[unit][0]]].append(unit)
        for j in moment.present[moment.units :]:
            own = moment.job_class[j]
            values = {c: self._throughput(moment, c, own) for c, of_class in single.items() if of_class}
            best = max(values, key=lambda c: values[c], default=None)
            if best is None or values[best] <= PACKING_THRESHOLD:
                break
            units[single[best].pop()].append(j)
        return units

    @staticmethod
    def _throughput(moment: Moment, one: int, other: int) -> float:
        pair = moment.sets.of((min(one, other), max(one, other)))
        alone = (moment.sets.of((c,)).epoch_s[c] / pair.epoch_s[c] for c in (one, other))
        return sum(alone) if pair.admitted else 0.0


class Gandiva:
    """Random pairs of all jobs while there are more jobs than units (Gavel, ``policies/gandiva.py``).

    Pairs last until one of the two is complete; while there are units for all jobs they run alone. What is
    more than the units takes turns.

    Parameters
    ----------
    seed : int
    """

    def __init__(self, seed: int = 0):
        self._random = random.Random(seed)
        self._partner: dict[int, int] = {}

    def __call__(self, moment: Moment) -> Units:
        """Decide."""
        here = set(moment.present)
        self._partner = {j: k for j, k in self._partner.items() if j in here and k in here}
        if len(moment.present) <= moment.units:
            return {unit: [j] for unit, j in enumerate(moment.present)}
        self._pair([j for j in moment.present if j not in self._partner], moment)
        groups = [[j, self._partner[j]] if j in self._partner else [j] for j in moment.present]
        return dict(enumerate(group for group in groups if group[0] == min(group)))

    def _pair(self, single: list[int], moment: Moment) -> None:
        for _ in range(len(single)):
            if len(single) < 2:
                return
            one, other = self._random.sample(single, 2)
            if moment.sets.of(moment.classes((one, other))).admitted:
                self._partner[one], self._partner[other] = other, one
                single.remove(one)
                single.remove(other)


class Eaco:
    """EaCO: a job that arrives joins the most utilised set that takes it (algorithms 1 and 2), and stays.

    What EaCO measures for an epoch, and then perhaps undoes, is here what the instance says, which the
    prediction knows: nothing is undone.

    Parameters
    ----------
    slack : float
        A job's deadline: it may run longer than alone by this part. The publication has deadlines, but not
        which.
    """

    def __init__(self, slack: float):
        self._slack = slack

    def __call__(self, moment: Moment) -> Units:
        """Decide."""
        units = {unit: list(members) for unit, members in moment.running.items()}
        utilisation = {unit: _utilisation(moment, members) for unit, members in units.items()}
        for j in waiting(moment):
            fullest = sorted(units, key=lambda unit: (-utilisation[unit], unit))
            taken = next((unit for unit in fullest if keeps(moment, [*units[unit], j], self._slack)), None)
            if taken is None:
                taken = next(free_units(moment, units), None)
            if taken is not None:
                units.setdefault(taken, []).append(j)
                utilisation[taken] = _utilisation(moment, units[taken])
        return units


def _utilisation(moment: Moment, jobs: list[int]) -> float:
    return moment.sets.of(moment.classes(jobs)).utilisation_pct


def keeps(moment: Moment, jobs: list[int], slack: float, moving: int | None = None) -> bool:
    """Whether jobs may share a unit, and all of them are complete in time if they do so to their ends.

    One that moves there repeats the epoch that it has begun.
    """
    together = moment.sets.of(moment.classes(jobs))
    if not together.admitted:
        return False
    for j in jobs:
        left = moment.left[j] + (moment.repeated_epochs(j) if j == moving else 0.0)
        runs_s = moment.run_s[j] + left * together.epoch_s[moment.job_class[j]]
        if runs_s > (1 + slack) * moment.epochs[j] * moment.epoch_s[j] * (1 + 1e-9):
            return False
    return True
