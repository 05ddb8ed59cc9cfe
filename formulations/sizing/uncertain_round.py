"""Rounds with uncertain watts or rates, as families of ordinary programs; `uncertainty` has the algebra."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from wattsched.formulations.sizing.budgets import budgets_of
from wattsched.formulations.sizing.data import Options, options_of
from wattsched.formulations.sizing.jobs import RoundJobs
from wattsched.formulations.sizing.matching import matching_options
from wattsched.formulations.sizing.objectives import Objective
from wattsched.formulations.sizing.objectives import objective as find_objective
from wattsched.formulations.sizing.uncertainty import (
    OBJECTIVE,
    Box,
    Interval,
    cost_deviation,
    parameter,
    power_deviation_w,
    quantile,
    understated,
)
from wattsched.instances.sizing.decision import Decision
from wattsched.instances.sizing.uncertainty import Uncertainty
from wattsched.topology.arrays import FloatArray

_ROUNDING = 1e-9
_NARROW = 0.05
"""Parts of a normal parameter's interval are no narrower than this share of it."""


def family_of(known: RoundJobs, objective: str) -> UncertainRound | None:
    """Return the family of programs of a round with uncertain watts or rates; None where none matter."""
    if known.instance.uncertainty is None:
        return None
    found = UncertainRound(known, find_objective(objective))
    return found if found.root else None


@dataclass(frozen=True)
class UncertainRound:
    """The family of a round; its parameters are those of power caps, and `OBJECTIVE`."""

    known: RoundJobs
    goal: Objective

    @property
    def _set(self) -> Uncertainty:
        assert self.known.instance.uncertainty is not None
        return self.known.instance.uncertainty

    @cached_property
    def _options(self) -> Options:
        return options_of(self.known)

    @cached_property
    def _deviations(self) -> dict[str, FloatArray]:
        """Deviation of every option in each power cap, 0 outside of its pools, and in the objective."""
        options, watts = self._options, power_deviation_w(self._options)
        capped = [budget for budget in budgets_of(self.known) if budget.counts == "power"]
        found = {b.name: np.where(np.isin(options.pool, b.members), watts, 0.0) for b in capped}
        found[OBJECTIVE] = cost_deviation(options, self.goal)
        return found

    @cached_property
    def root(self) -> Box:
        """Intervals that the parameters of every decision lie in, of what can deviate."""
        deviating = {name: values for name, values in self._deviations.items() if values.any()}
        if self._set.gamma is not None:
            return {name: (0.0, float(v.max())) for name, v in deviating.items()} if self._set.gamma else {}
        if self._set.confidence == 0.5:  # half of the time is the median: nothing is added
            return {}
        starts = self._options.start[:-1]
        most = {name: np.maximum.reduceat(values, starts) for name, values in deviating.items()}
        return {name: (0.0, math.sqrt(float(each @ each))) for name, each in most.items()}

    @cached_property
    def _sizes(self) -> dict[str, float]:
        """Size of what each parameter belongs to: power caps, and about the least objective."""
        size = {budget.name: budget.limit for budget in budgets_of(self.known)}
        least = np.minimum.reduceat(np.abs(self.goal.cost(self._options)), self._options.start[:-1])
        return size | {OBJECTIVE: max(float(least.sum()), float(self._deviations[OBJECTIVE].max()))}

    def within(self, box: Box) -> RoundJobs:
        """Return the jobs with a box, by which `columns` and `budgets` state costs and uses."""
        return replace(self.known, box=box)

    def constant(self, box: Box) -> float:
        """Return the constant of the objective's worst case."""
        return understated(self._set, box[OBJECTIVE], np.zeros(0))[1] if OBJECTIVE in box else 0.0

    def _chosen(self, decision: Decision) -> dict[str, FloatArray]:
        """Deviations of the jobs of a decision, by the name of the parameter."""
        chosen = matching_options(self._options, decision)
        return {name: self._deviations[name][chosen[chosen >= 0]] for name in self.root}

    def parameters(self, decision: Decision) -> dict[str, float]:
        """Return the parameters at which the worst cases of a decision are exact."""
        return {name: parameter(self._set, each) for name, each in self._chosen(decision).items()}

    def looseness(self, box: Box) -> dict[str, float]:
        """Return by how much, at most, a box understates each worst case, relative as in `shortfalls`."""
        found = {}
        for name, (low, high) in box.items():
            if self._set.gamma is not None:
                most = self._set.gamma * (high - low)
            else:  # between a root and its chord
                most = quantile(self._set) * (high - low) ** 2 / (4.0 * (low + high)) if high else 0.0
            found[name] = most / self._sizes[name]
        return found

    def shortfalls(self, decision: Decision, box: Box) -> dict[str, float]:
        """Return by how much a box understates each worst case, relative to the cap or the objective."""
        found = {}
        for name, deviation in self._chosen(decision).items():
            exact = parameter(self._set, deviation)
            ends = [understated(self._set, each, deviation) for each in (box[name], (exact, exact))]
            least, worst = (float(terms.sum()) + besides for terms, besides in ends)
            found[name] = (worst - least) / self._sizes[name]
        return found

    @cached_property
    def _levels(self) -> dict[str, FloatArray]:
        """Values that each parameter can have under a budget of uncertainty, but for rounding; ascending."""
        found = {name: np.unique(np.append(self._deviations[name], 0.0)) for name in self.root}
        return {name: v[np.append(np.diff(v) > _ROUNDING * v[-1], True)] for name, v in found.items()}

    def split(self, name: str, interval: Interval, value: float) -> tuple[float, Interval, Interval] | None:
        """Split between two deviations, so that a value ends its part, or at a value of normal deviations."""
        low, high = interval
        if self._set.gamma is None:
            margin = _NARROW * (high - low)
            at = min(max(value, low + margin), high - margin)
            return (at, (low, at), (at, high)) if low < at < high else None
        levels = self._levels[name]
        first, last = np.searchsorted(levels, (low, high))
        if first == last:
            return None
        near = int(np.searchsorted(levels, value))
        if not first <= near <= last:
            near = int(first + last) // 2
        near = min(near, int(last) - 1)  # both parts are smaller
        below, above = float(levels[near]), float(levels[near + 1])
        return (below + above) / 2.0, (low, below), (above, high)
