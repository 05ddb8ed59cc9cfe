"""Public traces under daily budgets of energy and carbon: PowerFlow's and GreenFlow's rules, others, ours.

python -m benchmarks.budgets --write [--only powerflow] [--seeds 5] [--processes 2]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from benchmarks.harness import Asked, in_processes, interval, run, say, table
from benchmarks.replays import GROUNDS, OURS, Case, carbon_cases, cases_of
from wattsched.replay.jobs.outcome import Outcome

EQUAL, FREE = "sizing, as much as the rule", "sizing, no budget"
BASELINES = {
    "powerflow": ("fifo", "tiresias-2dlas+zeus", "elasticflow+zeus"),
    "greenflow": ("tiresias-2dlas+zeus",),
}
HEADER = ("trace, budget, policy", "mean JCT, h", "over the rule's", "worst seed", "used, over the rule's",
          "budget of a day used, at most %")  # fmt: skip

Found = dict[str, tuple[float, float, float]]
"""Policy to mean completion time in hours, use over the rule's, and the most of a budget that a day used."""


def compare(seed: int, case: Case, rule: str) -> Found:
    """Replay a seed of a case under all policies.

    Ours is replayed within the budget, at a constant price at which it takes no more than the rule (`EQUAL`),
    and as if power were free (`FREE`).
    """
    say(f"{case.name}, {case.zone}, seed {seed}")
    trace = case.ground.trace(seed)
    base = case.replayed(trace, rule)

    def priced(price: float) -> tuple[Outcome, float]:
        outcome = case.replayed(trace, OURS, price)
        return outcome, case.used_over(outcome, base)

    runs = {rule: base} | {name: case.replayed(trace, name) for name in (*BASELINES[rule], OURS)}
    runs |= {EQUAL: case.at_equal_use(priced)[0], FREE: priced(0.0)[0]}
    return {
        name: (
            float(outcome.jct_s.mean()) / 3600,
            case.used_over(outcome, base),
            float(outcome.budget_used()[0].max()),
        )
        for name, outcome in runs.items()
    }


def rows_of(case: Case, rule: str, found: Sequence[Found]) -> Iterator[tuple[str, ...]]:
    """Lines of a case: every policy against the rule."""
    for policy in found[0]:
        jct_h, used, most = np.array([seed[policy] for seed in found]).T
        ratio = jct_h / np.array([seed[rule][0] for seed in found])
        over = ("1", "", "1") if policy == rule else (interval(ratio), f"{ratio.max():.2f}", interval(used))
        where = f"{case.ground.name}, {case.zone or 'energy'}, {case.watts_per_gpu:g} W"
        budget = "" if policy in (EQUAL, FREE) else f"{100 * most.max():.2f}"
        yield f"{where}: {policy}", f"{jct_h.mean():.2f}", *over, budget


def against(rule: str, cases: Sequence[Case], asked: Asked) -> str:
    """Table of a rule."""
    rows: list[tuple[str, ...]] = []
    if asked.quick:
        cases = [replace(case, ground=case.ground.shortened(0.1, 2)) for case in cases[2:3]]
    for case in cases:
        work = partial(compare, case=case, rule=rule)
        rows += rows_of(case, rule, list(in_processes(work, range(asked.seeds), asked.processes)))
    return table(HEADER, rows)


def powerflow(asked: Asked) -> str:
    """Budgets of energy."""
    return against("powerflow", cases_of(GROUNDS), asked)


def greenflow(asked: Asked) -> str:
    """Budgets of carbon, at the smaller one of energy."""
    return against("greenflow", carbon_cases(), asked)


TABLES = {"powerflow": powerflow, "greenflow": greenflow}

if __name__ == "__main__":
    run(__doc__, TABLES, seeds=5, processes=2)
