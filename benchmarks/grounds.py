"""Jobs that nothing was chosen on: `sizing` against PowerFlow's rule within the same daily budget.

    python -m benchmarks.grounds --write [--seeds 10]

Six grounds, days of clusters of ITP, of virtual clusters of Philly and of PAI, each under two budgets that
bind. Constants of policies are chosen on other grounds (`GROUNDS` and `CHOSEN_ON` of benchmarks/replays.py),
on other seeds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.harness import Asked, run, say, table
from benchmarks.replays import HELD_OUT, OURS, RULE, Case, Figures, cases_of

RATIOS = ("mean_h", "p95_h", "p99_h", "heavy_h", "slowdown")
HEADER = (
    "ground, budget", "durations", "jobs", "rule's mean JCT, h", "mean JCT", "worst seed", "p95", "p99",
    "heaviest 5 %", "largest slowdown", "energy", "preemptions of a job", "the rule's",
)  # fmt: skip


@dataclass(frozen=True)
class Pair:
    """The rule and ours on a seed, and the energy of ours over the rule's until the later of both ends."""

    rule: Figures
    ours: Figures
    energy: float


def pair(case: Case, seed: int) -> Pair:
    """Replay a seed of a case under both."""
    say(f"{case.name}, seed {seed}")
    trace = case.ground.trace(seed)
    rule, ours = (case.replayed(trace, policy) for policy in (RULE, OURS))
    return Pair(Figures.of(rule), Figures.of(ours), case.used_over(ours, rule))


def row(name: str, jobs: str, found: Sequence[Pair]) -> tuple[str, ...]:
    """A line: geometric means over the seeds of ours over the rule's, and preemptions of both."""
    ratio = np.array([[getattr(p.ours, n) / getattr(p.rule, n) for n in RATIOS] + [p.energy] for p in found])
    mean, *others = np.exp(np.log(ratio).mean(axis=0)).tolist()
    means = np.mean([[p.rule.mean_h, p.ours.preemptions, p.rule.preemptions] for p in found], axis=0)
    shown = (f"{mean:.3f}", f"{ratio[:, 0].max():.3f}", *(f"{value:.2f}" for value in others))
    return name, "exact", jobs, f"{means[0]:.2f}", *shown, f"{means[1]:.2f}", f"{means[2]:.2f}"


def rows(cases: Sequence[Case], seeds: int) -> Iterator[tuple[str, ...]]:
    """Lines of all cases, and one of all together."""
    everything: list[Pair] = []
    for case in cases:
        found = [pair(case, seed) for seed in range(seeds)]
        yield row(case.name, str(len(case.ground.trace(0))), found)
        everything += found
    yield row("all", "", everything)


def grounds(asked: Asked) -> str:
    """The table."""
    chosen = (HELD_OUT[0].shortened(0.2, 2),) if asked.quick else HELD_OUT
    return table(HEADER, list(rows(cases_of(chosen), asked.seeds)))


TABLES = {"grounds": grounds}

if __name__ == "__main__":
    run(__doc__, TABLES, seeds=10)
