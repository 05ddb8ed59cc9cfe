"""Uncertain watts and rates of a round: by how much they deviate, and how many do so at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, Self, get_args

import numpy as np
from pydantic import Field, model_validator

from wattsched.instances.sizing.job import DeviationShare
from wattsched.instances.sizing.job_columns import JobColumns
from wattsched.topology.arrays import FloatArray
from wattsched.topology.fields import NonNegative, Strict

Deviation = Literal["power_deviation", "rate_deviation"]

SUMS = ("total-completion", "progress", "proportional", "goodput", "work-value")
"""Objectives that take uncertain rates: sums over the jobs that do not count joules."""


class Uncertainty(Strict):
    """Power caps, and the objective, are to hold in the worst case, or with a probability.

    Exactly one of `gamma` and `confidence` is given. Jobs may have deviations of their own.

    Attributes
    ----------
    power_deviation : float
        Share by which a job may draw more watts than its option states; with `confidence` the standard
        deviation.
    rate_deviation : float
        Share by which a job may be slower than its option states, likewise.
    gamma : float, optional
        Number of jobs that deviate at once, at most, under each power cap and in the objective: the budget of
        uncertainty of Bertsimas and Sim (2004). Of a fraction one more job deviates by that part.
    confidence : float, optional
        Probability with which each power cap holds, and with which the objective is at least as good as
        stated, if the deviations of jobs are independent and normal.
    """

    power_deviation: DeviationShare = 0.0
    rate_deviation: DeviationShare = 0.0
    gamma: NonNegative | None = None
    confidence: Annotated[float, Field(ge=0.5, le=0.999999, allow_inf_nan=False)] | None = None

    @model_validator(mode="after")
    def _one_set(self) -> Self:
        if (self.gamma is None) == (self.confidence is None):
            raise ValueError("give exactly one of 'gamma' and 'confidence'")
        return self

    def of_jobs(self, jobs: JobColumns, name: Deviation, objective: str) -> FloatArray:
        """Deviation of each job, its own or that of all, shape (n_jobs,); 0 where it does not count."""
        if name == "rate_deviation" and objective not in SUMS:
            return np.zeros(len(jobs))
        own = jobs.numbers(name)
        return np.where(np.isnan(own), getattr(self, name), own)


def uncertainty_faults(known: Uncertainty | None, jobs: JobColumns, objective: str) -> Iterator[str]:
    """Yield a fault for deviations without an uncertainty set, or in an objective that takes none."""
    own = {name: jobs.numbers(name) for name in get_args(Deviation) if name in jobs.columns}
    if known is None:
        for name, shares in own.items():
            for j in np.flatnonzero(~np.isnan(shares))[:1].tolist():
                yield f"job '{jobs.names[j]}' has a '{name}', which needs 'uncertainty'"
    elif objective not in SUMS and (known.rate_deviation or np.nansum(own.get("rate_deviation", 0.0))):
        yield f"uncertain rates need one of the objectives {', '.join(SUMS)}, not '{objective}'"
