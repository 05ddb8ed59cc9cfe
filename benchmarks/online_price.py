"""A month under one budget: spent evenly, at a price that is learned, and at the price of hindsight.

    python -m benchmarks.online_price --write [--seeds 3] [--runs FILE]

PowerFlow's rule keeps to a budget of every day. What it takes in 28 days is the budget of `sizing` for
the whole month. With hindsight `sizing` gets the constant price at which it takes, until the later of both
ends, as much as with the price that it learned. It may take more than the budget before the month ends, and
less after; the bound on the mean completion time of every schedule holds within the budget. Policies know
durations exactly. FILE keeps the runs; those that it has are not run again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields

import numpy as np
from scipy.stats import gmean

from benchmarks.harness import Asked, remembered, run, say, table
from benchmarks.replays import DAY_S, GAP, OURS, ROUND_S, RULE, Case, Figures, cases_of, itp, philly
from wattsched.instances.units import S_PER_H
from wattsched.replay.jobs.bound.clairvoyant import bound_of, parts_of
from wattsched.replay.jobs.budget import Budget, Pacing
from wattsched.replay.jobs.outcome import Outcome
from wattsched.replay.jobs.policies import policy_of
from wattsched.replay.jobs.policy import PolicyContext
from wattsched.replay.jobs.simulation import simulate
from wattsched.replay.jobs.trace import Trace

MONTH_DAYS = 28
LEAST_GAIN = 0.05
"""Gain of hindsight below which no part of it is stated."""
MONTHS = (itp("01", 0, 5, MONTH_DAYS), itp("03", 14, 24, MONTH_DAYS), itp("06", 14, 16, MONTH_DAYS),
          philly("103959", 28, 5, MONTH_DAYS))  # fmt: skip
CHOSEN_ON = (philly("6c71a0", 49, 5, MONTH_DAYS), philly("103959", 56, 5, MONTH_DAYS),
             philly("b436b2", 35, 8, MONTH_DAYS), itp("02", 0, 12, MONTH_DAYS))  # fmt: skip
"""Grounds that constants of `sizing` were chosen on, on seed 100."""
NAMES = {
    "rule": "powerflow, a budget of each day",
    "a budget of each day": "sizing, the same",
    "even": "sizing, a budget of the month, spent evenly",
    "learned": "sizing, a budget of the month, `--pacing price`",
    "planned": "sizing, a budget of the month, `--pacing plan`",
    "hindsight": "sizing, the price of hindsight",
    "bound": "no schedule within the budget of the month is below",
}
WITHIN = ("even", "learned", "planned")
HEADER = (
    "ground, budget", "policy", "durations", "mean JCT, h", "over the rule's", "worst seed",
    "p99 over the rule's", "energy over the rule's", "of the month's budget, %", "of hindsight's gain, %",
)  # fmt: skip


@dataclass(frozen=True)
class Found:
    """Completion times of a replay, energy over the rule's, and the part of the month's budget used."""

    times: Figures
    energy: float
    used: float


def spent_j(case: Case, trace: Trace, outcome: Outcome) -> float:
    """Joules of the cluster in the month, after the last job those of the idle one."""
    assert outcome.ledger is not None
    until_s = float(trace.arrival_s[0]) + MONTH_DAYS * DAY_S
    after_j = case.idle(trace, outcome.end_s, until_s) if outcome.end_s < until_s else 0.0
    return sum(outcome.ledger.spent[:MONTH_DAYS]) + after_j


def month_of(amount_j: float, pacing: Pacing) -> Budget:
    """Budget of a month."""
    return Budget.of_energy(amount_j, MONTH_DAYS * DAY_S, pacing)


def within(trace: Trace, amount_j: float, pacing: Pacing) -> Outcome:
    """Replay ours within a budget of a month."""
    budget = month_of(amount_j, pacing)
    policy = policy_of(OURS, PolicyContext(trace, round_s=ROUND_S, gap=GAP, budget=budget))
    return simulate(trace, policy, name=OURS, round_s=ROUND_S, budget=budget)


def compared(case: Case, seed: int) -> dict[str, Found]:
    """Replay a seed of a case under the rule, and ours in all ways."""
    say(f"{case.name}, seed {seed}")
    trace = case.ground.trace(seed)
    rule = case.replayed(trace, RULE)
    amount_j = spent_j(case, trace, rule)
    even, learned, planned = (within(trace, amount_j, pacing) for pacing in ("even", "price", "plan"))

    def priced(price: float) -> tuple[Outcome, float]:
        outcome = case.replayed(trace, OURS, price)
        return outcome, case.used_over(outcome, learned)

    outcomes = {
        "rule": rule,
        "a budget of each day": case.replayed(trace, OURS),
        "even": even,
        "learned": learned,
        "planned": planned,
        "hindsight": case.at_equal_use(priced)[0],
    }
    found = {
        name: Found(
            Figures.of(outcome),
            case.used_over(outcome, rule),
            float(outcome.budget_used()[0][0]) if name in WITHIN else np.nan,
        )
        for name, outcome in outcomes.items()
    }
    bound = bound_of(parts_of(trace, month_of(amount_j, "none")))
    least = Figures(bound.mean_completion_s / S_PER_H, *[np.nan] * (len(fields(Figures)) - 1))
    return found | {"bound": Found(least, np.nan, np.nan)}


def kept(case: Case, seed: int, runs: str) -> dict[str, Found]:
    """Comparison of a seed of a case, made or as the file has it."""

    def made() -> dict[str, dict[str, object]]:
        return {name: asdict(found) for name, found in compared(case, seed).items()}

    found = remembered(runs, f"{case.name}, seed {seed}", made)
    return {name: Found(**{**of, "times": Figures(**of["times"])}) for name, of in found.items()}


def stated(value: float, digits: int) -> str:
    """Return a figure as the table has it, nothing where there is none."""
    return "" if np.isnan(value) else f"{value:.{digits}f}"


def rows(case: Case, asked: Asked) -> Iterator[tuple[str, ...]]:
    """Lines of a case: geometric means over the seeds."""
    found = [kept(case, seed, asked.runs) for seed in range(asked.seeds)]
    mean_h = {name: np.array([one[name].times.mean_h for one in found]) for name in NAMES}
    ratio = {name: each / mean_h["rule"] for name, each in mean_h.items()}
    gain = {name: 1.0 - float(gmean(each)) for name, each in ratio.items()}
    where = f"{case.ground.name}, {len(case.ground.trace(0)):,} jobs, {case.watts_per_gpu:g} W"
    for name, words in NAMES.items():
        energy, used = np.mean([[one[name].energy, one[name].used] for one in found], axis=0)
        p99 = gmean([one[name].times.p99_h / one["rule"].times.p99_h for one in found])
        others = ("1", "", "1", "1", "", "") if name == "rule" else (
            f"{1.0 - gain[name]:.3f}", f"{ratio[name].max():.3f}", stated(p99, 2), stated(energy, 3),
            stated(100 * used, 1),
            f"{100 * gain[name] / gain['hindsight']:.0f}" if gain["hindsight"] > LEAST_GAIN else "",
        )  # fmt: skip
        yield where if name == "rule" else "", words, "exact", f"{mean_h[name].mean():.2f}", *others


def online_price(asked: Asked) -> str:
    """The table."""
    cases = cases_of((MONTHS[0].shortened(0.5, 2),))[:1] if asked.quick else cases_of(MONTHS)
    return table(HEADER, [line for case in cases for line in rows(case, asked)])


TABLES = {"online-price": online_price}

if __name__ == "__main__":
    run(__doc__, TABLES, seeds=3, runs="")
