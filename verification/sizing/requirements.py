"""Requirements on a decision besides budgets are checked here, by the checker's own reading.

Other objectives may be limited, and some jobs must do other than in given decisions (`Instance.unlike`). A
limit on an objective in which the worst job counts rules options out; one on a sum is a row that options pay
for, and so is each decision to differ from, of which as many jobs as all but some may do the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from wattsched.instances.sizing.decision import Decision
from wattsched.instances.sizing.instance import Instance
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray
from wattsched.verification.arithmetic import Arithmetic, Numbers
from wattsched.verification.report import TOLERANCE, exceeds
from wattsched.verification.sizing.configurations import JobConfigurations
from wattsched.verification.sizing.job_rows import SURELY_IN_TIME, Use
from wattsched.verification.sizing.objectives import (
    BOTTLENECK,
    ENERGY,
    OBJECTIVES,
    Choices,
    JobTerms,
    costs_of,
    objective_of,
    terms_of,
)
from wattsched.verification.sizing.outcomes import Outcomes

WAITS, NOTHING = -1, -2
"""Numbers in place of what a job does: it waits, or a decision says nothing of it."""

Doing = tuple[Any, ...]
"""Choice of a job that runs: pool, GPU count, frequency, power limit, batch size and set."""


class Requirements:
    """Uses that options pay for by rows of requirements, and options that these rule out.

    Attributes
    ----------
    uses : list of Use
        Of an objective its value, negative where more is better; of a decision 1 for what is as there.
    """

    def __init__(
        self,
        configurations: JobConfigurations,
        arithmetic: Arithmetic,
        terms: JobTerms,
        doing: Sequence[Doing],
    ) -> None:
        instance = configurations.instance
        self._a, self._limits = arithmetic, instance.budgets.reached
        sums = [name for name in self._limits if name not in BOTTLENECK]
        self.uses: list[Use] = [("objective", name) for name in sums]
        self.uses += [("same", str(k)) for k in range(1, len(instance.unlike) + 1)]
        self._of = {name: instance.model_copy(update={"objective": name}) for name in self._limits}
        known, best_s, least_s = configurations, terms.best_s, terms.least_s
        self._terms = {
            name: terms_of(known, known.reference_rate, best_s, least_s, arithmetic, name)
            for name in self._limits
        }
        codes: dict[Doing, int] = {}
        self._row = np.array([codes.setdefault(one, len(codes)) for one in doing], dtype=np.int64)
        names = known.jobs.names
        self._before = [
            np.array([_number(codes, said.get(name, NOTHING)) for name in names], dtype=np.int64)
            for said in map(doings_of, instance.unlike)
        ]

    @property
    def rule_out(self) -> bool:
        """True if options are ruled out by what they are worth to the worst job."""
        return any(name in BOTTLENECK for name in self._limits)

    def paid(self, chosen: Choices, row: IntArray | int) -> tuple[Numbers, Numbers]:
        """Return how much choices pay for of each use, shape (n_choices, n_uses), and the sizes of that.

        Parameters
        ----------
        row : int array, shape (n_choices,), or `WAITS` for all
        """
        shape = len(chosen.job), len(self.uses)
        amounts, sizes = (np.zeros(shape, dtype=chosen.terms.best_s.dtype) for _ in range(2))
        for column, (kind, name, *_) in enumerate(self.uses):
            if kind == "objective":
                amounts[:, column], sizes[:, column] = self._worth(str(name), chosen)
            else:
                doing = row if isinstance(row, int) else self._row[row]
                amounts[:, column] = 1 * (self._before[int(name) - 1][chosen.job] == doing)
        return amounts, sizes

    def within(self, chosen: Choices, *, surely: bool = False) -> BoolArray:
        """Mask of choices that no limit rules out, by the checker's tolerance or by any arithmetic."""
        found = np.ones(len(chosen.job), dtype=bool)
        tolerance = self._a.number(SURELY_IN_TIME - 1 if surely else TOLERANCE)
        for name in self._limits:
            if name in BOTTLENECK:
                limit = self._a.number(self._limits[name])
                most = (limit if OBJECTIVES[name] == "min" else -limit) + tolerance * abs(limit)
                found &= np.asarray(self._worth(name, chosen)[0] <= most, dtype=bool)
        return found

    def _worth(self, name: str, chosen: Choices) -> tuple[Numbers, Numbers]:
        return costs_of(self._of[name], chosen._replace(terms=self._terms[name]), self._a)


def _number(codes: dict[Doing, int], doing: Doing | int) -> int:
    return doing if isinstance(doing, int) else codes.get(doing, NOTHING)


def doings_of(decision: Decision) -> dict[str, Doing | int]:
    """Return what each job does in a decision, or `WAITS`."""
    said: dict[str, Doing | int] = dict.fromkeys(decision.waiting, WAITS)
    for one in decision.jobs:
        said[one.job] = (
            one.pool,
            one.gpus,
            one.frequency_mhz,
            one.power_limit_w,
            one.batch_size,
            one.set,
        )
    return said


def reached_by(outcomes: Outcomes, joules: FloatArray, besides_j: float) -> dict[str, float]:
    """Return a decision's value in each objective that is limited, what moves cost apart.

    `joules` and `besides_j` are those of `objectives.objective_of`.
    """
    instance, found = outcomes.configurations.instance, {}
    for name in instance.budgets.reached:
        of = instance.model_copy(update={"objective": name})
        energy = (joules, besides_j) if name in ENERGY else (0.0, 0.0)
        found[name] = objective_of(of, outcomes, *energy, moves_cost=False)
    return found


def reached_faults(instance: Instance, reached: Mapping[str, float]) -> Iterator[str]:
    """Yield a fault for every value that is worse than its limit."""
    for name, limit in instance.budgets.reached.items():
        sign, value = (1.0 if OBJECTIVES[name] == "min" else -1.0), reached[name]
        if exceeds(sign * value, sign * limit, TOLERANCE):
            side = "most" if sign > 0 else "least"
            yield f"budgets.objectives: '{name}' is {value:.9g}, it must be {limit:.9g} at {side}"


def unlike_faults(instance: Instance, decision: Decision, decided: Sequence[str]) -> Iterator[str]:
    """Yield a fault for every decision that too few of the jobs decided differ from."""
    if not instance.unlike:
        return
    now = doings_of(decision)
    for number, earlier in enumerate(instance.unlike, start=1):
        before = doings_of(earlier)
        differ = sum(now.get(name) != before.get(name) for name in decided)
        if differ < instance.differ:
            told = f"{differ} jobs do other than in decision {number} of 'unlike'"
            yield f"{told}, {instance.differ} must at least"
