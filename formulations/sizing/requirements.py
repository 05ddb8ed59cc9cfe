"""Requirements limit other objectives of a round, and tell its decision from others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattsched.formulations.sizing.data import Options
from wattsched.formulations.sizing.matching import same_options
from wattsched.formulations.sizing.objectives import objective
from wattsched.topology.arrays import BoolArray, FloatArray
from wattsched.verification.report import ROUNDING


@dataclass(frozen=True)
class Requirement:
    """A row: the sum of the chosen options' `use` is at most the limit, or with `least` at least.

    Attributes
    ----------
    name : str
        ``objective:NAME``, or ``unlike:N`` for the decision of number N, from 1.
    use : float array, shape (n_options,)
        Value in the objective; or 1 for what is as in the decision.
    """

    name: str
    use: FloatArray
    limit: float
    least: bool = False


def requirements_of(options: Options) -> list[Requirement]:
    """Rows of the objectives that are sums and are limited, and of the decisions to differ from."""
    instance, found = options.instance, list[Requirement]()
    for name, limit in instance.budgets.reached.items():
        goal = objective(name)
        if goal.combine == "sum":
            sign = 1.0 if goal.sense == "min" else -1.0
            found.append(Requirement(f"objective:{name}", sign * goal.cost(options), limit, sign < 0.0))
    most = len(options.of) - instance.differ
    for number, decision in enumerate(instance.unlike, start=1):
        same = same_options(options, decision).astype(float)
        found.append(Requirement(f"unlike:{number}", same, float(most)))
    return found


def good_enough(options: Options) -> BoolArray:
    """Mask of the options that no limit on an objective rules out in which only the worst job counts."""
    keep = np.ones(len(options), dtype=bool)
    for name, limit in options.instance.budgets.reached.items():
        goal = objective(name)
        if goal.combine == "worst":
            worst = limit if goal.sense == "min" else -limit
            keep &= goal.cost(options) <= worst + ROUNDING * abs(worst)
    return keep
