"""Replay a month under one budget: spent evenly, at a price that is learned, and at the price of hindsight.

    python benchmarks/online_price.py [--write] [--seeds 3]

PowerFlow's rule keeps to a budget of every day. What it takes in 28 days is the budget of `sizing` for
the whole month. With hindsight `sizing` gets the constant price at which it takes, until the later of both
ends, as much as with the price that it learned. ``--write`` puts the table into docs/tables.
`WATTSCHED_DATA` says where the traces are.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from budgets import DAY_S, GAP, OURS, ROUND_S, WATTS_PER_GPU, Case, PoolState, Run, equal, replayed
from grounds import RULE, Figures, energy_over, itp, philly
from tables import asked_over_seeds, table, write

from wattsched.replay.jobs.budget import Budget, Pacing
from wattsched.replay.jobs.outcome import Outcome
from wattsched.replay.jobs.policies import policy_of
from wattsched.replay.jobs.policy import PolicyContext
from wattsched.replay.jobs.simulation import simulate
from wattsched.replay.jobs.trace import Trace

MONTH_DAYS = 28
LEAST_GAIN = 0.05
"""Gain of hindsight below which no part of it is told."""
GROUNDS = (
    itp("01", 0, 5, MONTH_DAYS), itp("03", 14, 24, MONTH_DAYS), itp("06", 14, 16, MONTH_DAYS),
    philly("103959", 28, 5, MONTH_DAYS),
)  # fmt: skip
CHOSEN_ON = (philly("6c71a0", 28, 5, MONTH_DAYS), itp("02", 14, 12, 14), philly("6c71a0", 35, 5, 14))
"""Grounds that constants of `sizing` were chosen on, on seed 100: the second and third with a week's budget,
half of what the rule takes in 14 days."""


@dataclass(frozen=True)
class Found:
    """What came of a replay.

    Attributes
    ----------
    times : Figures
    energy : float
        Over the rule's, until the later of both ends.
    used : float
        Part of the budget that the month used; nan without one.
    """

    times: Figures
    energy: float
    used: float


def spent_j(case: Case, trace: Trace, outcome: Outcome) -> float:
    """Joules of the cluster in the month, after the last job those of the idle one."""
    assert outcome.ledger is not None
    until_s = float(trace.arrival_s[0]) + MONTH_DAYS * DAY_S
    after_j = case.idle(trace)(outcome.end_s, until_s) if outcome.end_s < until_s else 0.0
    return sum(outcome.ledger.spent[:MONTH_DAYS]) + after_j


def within(trace: Trace, amount_j: float, pacing: Pacing) -> Outcome:
    """Replay ours within a budget of a month."""
    budget = Budget.of_energy(amount_j, MONTH_DAYS * DAY_S, pacing)
    policy = policy_of(OURS, PolicyContext(trace, round_s=ROUND_S, gap=GAP, budget=budget))
    return simulate(trace, policy, name=OURS, round_s=ROUND_S, budget=budget)


def compared(case: Case, seed: int) -> dict[str, Found]:
    """Replay a seed of a case under the rule, and ours in all ways."""
    print(f"{case.pool.name}, {case.watts_per_gpu:g} W, seed {seed}", file=sys.stderr)
    trace = case.pool.trace(seed)
    rule = replayed(case, trace, RULE)

    def of(outcome: Outcome, used: float = np.nan) -> Found:
        return Found(Figures.of(outcome), energy_over(case, outcome, rule), used)

    def within_month(outcome: Outcome) -> Found:
        return of(outcome, float(outcome.budget_used()[0][0]))

    amount_j = spent_j(case, trace, rule)
    even, learned = (within(trace, amount_j, pacing) for pacing in ("even", "price"))
    kept: dict[Run, Outcome] = {}

    def priced(price: float) -> tuple[Run, float]:
        outcome = replayed(case, trace, OURS, price)
        run = Run(float(outcome.jct_s.mean()) / 3600, outcome.end_s, outcome.meter.energy_j, np.nan)
        kept[run] = outcome
        return run, energy_over(case, outcome, learned)

    return {
        "rule": of(rule),
        "a budget of each day": of(replayed(case, trace, OURS)),
        "even": within_month(even),
        "learned": within_month(learned),
        "hindsight": of(kept[equal(priced, case)[0]]),
    }


NAMES = {
    "rule": "powerflow, a budget of each day",
    "a budget of each day": "sizing, the same",
    "even": "sizing, a budget of the month, spent evenly",
    "learned": "sizing, a budget of the month, `--pacing price`",
    "hindsight": "sizing, the price of hindsight",
}
HEADER = (
    "ground, budget", "policy", "mean JCT, h", "over the rule's", "worst seed", "p99 over the rule's",
    "energy over the rule's", "of the month's budget, %", "of hindsight's gain, %",
)  # fmt: skip


def rows(case: Case, seeds: int) -> Iterator[tuple[str, ...]]:
    """Lines of a case: geometric means over the seeds."""
    found = [compared(case, seed) for seed in range(seeds)]
    mean_h = {name: np.array([one[name].times.mean_h for one in found]) for name in NAMES}
    ratio = {name: each / mean_h["rule"] for name, each in mean_h.items()}
    gain = {name: 1.0 - float(np.exp(np.log(each).mean())) for name, each in ratio.items()}
    for number, (name, called) in enumerate(NAMES.items()):
        energy, used = np.mean([[one[name].energy, one[name].used] for one in found], axis=0)
        p99 = np.exp(np.mean([np.log(one[name].times.p99_h / one["rule"].times.p99_h) for one in found]))
        where = f"{case.pool.name}, {len(case.pool.trace(0)):,} jobs, {case.watts_per_gpu:g} W"
        others = ("1", "", "1", "1", "", "") if name == "rule" else (
            f"{1.0 - gain[name]:.3f}", f"{ratio[name].max():.3f}", f"{p99:.2f}", f"{energy:.3f}",
            "" if np.isnan(used) else f"{100 * used:.1f}",
            f"{100 * gain[name] / gain['hindsight']:.0f}" if gain["hindsight"] > LEAST_GAIN else "",
        )  # fmt: skip
        yield "" if number else where, called, f"{mean_h[name].mean():.2f}", *others


def lines(seeds: int, grounds: Sequence[PoolState]) -> Iterator[list[tuple[str, ...]]]:
    """Lines so far, with one more case each time."""
    done: list[tuple[str, ...]] = []
    for ground in grounds:
        for watts in WATTS_PER_GPU[ground.gpu_type]:
            done += rows(Case(ground, watts), seeds)
            yield done


def main() -> None:
    """Command line."""
    asked = asked_over_seeds(__doc__, seeds=3)
    grounds = (replace(GROUNDS[0], days=(0, 1), nodes=2),) if asked.quick else GROUNDS
    for done in lines(asked.seeds, grounds):
        if asked.write:
            write("online-price", table(HEADER, done))
    print(table(HEADER, done))


if __name__ == "__main__":
    main()
