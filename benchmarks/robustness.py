"""Rounds with uncertain watts and rates: what robustness costs, and how far its bounds are proven.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python -m benchmarks.robustness --write [--seeds 3] [--limit 20]

Rounds of `uniform` under a power cap, total completion time. Watts, or watts and rates, deviate by a tenth:
of a tenth of the jobs at once, or normally with a confidence of 99 %. The price is what the objective loses
to that of the certain round. Every call has a limit of 20 s. Seeds begin at 501, on which nothing was chosen.
"""

from __future__ import annotations

import numpy as np

import wattsched
from benchmarks.harness import Asked, machine, mean_and_worst, run, say, table, timed
from wattsched.instances.sizing.uncertainty import Uncertainty

FIRST, GAP, SHARE = 501, 1e-4, 0.1
HEADER = ("jobs", "uncertain", "set", "price, mean", "gap proven, mean", "worst", "s, mean", "worst")


def robustness(asked: Asked) -> str:
    """One row for each size, uncertain quantity and set."""
    wattsched.solve(wattsched.generate("uniform", jobs=300))  # modules are imported once
    rows = []
    for jobs in (20,) if asked.quick else (20, 200, 5_000):
        for both in (False, True):
            for of, known in (
                ("a tenth of the jobs", {"gamma": SHARE * jobs}),
                ("99 %", {"confidence": 0.99}),
            ):
                found = []
                for seed in range(FIRST, FIRST + asked.seeds):
                    say(f"{jobs} --seed {seed} {known} {both}")
                    round_ = wattsched.generate("uniform", jobs=jobs, seed=seed, budget="power")
                    certain = wattsched.solve(round_, gap=GAP).objective
                    rates = SHARE if both else 0.0
                    uncertainty = Uncertainty(power_deviation=SHARE, rate_deviation=rates, **known)
                    robust = round_.model_copy(update={"uncertainty": uncertainty})
                    result, seconds = timed(
                        lambda robust=robust: wattsched.solve(robust, gap=GAP, time_limit=asked.limit)
                    )
                    assert not wattsched.check(robust, result).faults
                    gap = 1.0 if result.proven_gap is None else result.proven_gap
                    found.append((result.objective / certain - 1.0, gap, seconds))
                price, gap, seconds = np.array(found).T
                gaps = (f"{gap.mean():.1e}", f"{gap.max():.1e}")
                what = "watts and rates" if both else "watts"
                rows.append([f"{jobs:,}", what, of, f"{price.mean():.2%}", *gaps, *mean_and_worst(seconds)])
    told = f"{asked.seeds} seeds from {FIRST}, gap {GAP:g}, limit {asked.limit:g} s"
    return f"{table(HEADER, rows)}\n\nMeasured on {machine()}, {told}."


TABLES = {"robustness": robustness}

if __name__ == "__main__":
    run(__doc__, TABLES, seeds=3, limit=20.0)
