"""Paces of a daily budget: evenly, at a price that is learned, and by a plan for the jobs to come.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python -m benchmarks.pacing --write [--seeds 3]

`sizing` against PowerFlow's rule with the same budgets and the same knowledge of durations, on the six
grounds of benchmarks/grounds.py, on which nothing was chosen. The plan's constants were chosen on `GROUNDS`
and `CHOSEN_ON` of benchmarks/replays.py, on seed 100.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from scipy.stats import gmean

from benchmarks.harness import Asked, in_processes, run, say, table
from benchmarks.replays import HELD_OUT, OURS, RULE, Case, Figures, cases_of
from wattsched.replay.jobs.budget import Pacing
from wattsched.replay.jobs.knowledge import Knows

PACES: tuple[Pacing, ...] = ("even", "price", "plan")
KNOWN: tuple[Knows, ...] = ("exact", "history")
HEADER = (
    "ground, budget", "durations", "rule, h",
    *(f"{pace}{what}" for pace in PACES for what in (", over rule", ", worst seed")),
    "plan, p99 over rule's", "plan over even",
)  # fmt: skip


def seed_of(seed: int, case: Case, knows: Knows) -> dict[str, Figures]:
    """Replay a seed of a case under the rule, and under ours at every pace."""
    trace = case.ground.trace(seed)
    found = {"rule": Figures.of(case.replayed(trace, RULE, knows=knows))}
    found |= {pace: Figures.of(case.replayed(trace, OURS, knows=knows, pacing=pace)) for pace in PACES}
    say(f"{case.name}, {knows}, seed {seed}")
    return found


def line(where: str, knows: Knows, found: Sequence[dict[str, Figures]]) -> list[str]:
    """A line of the table: geometric means over seeds."""
    mean_h = {name: np.array([seed[name].mean_h for seed in found]) for name in ("rule", *PACES)}
    over = [mean_h[pace] / mean_h["rule"] for pace in PACES]
    p99 = gmean([seed["plan"].p99_h / seed["rule"].p99_h for seed in found])
    return [
        where,
        knows,
        f"{gmean(mean_h['rule']):.2f}",
        *(text for ratio in over for text in (f"{gmean(ratio):.3f}", f"{ratio.max():.3f}")),
        f"{p99:.2f}",
        f"{gmean(mean_h['plan'] / mean_h['even']):.3f}",
    ]


def pacing(asked: Asked) -> str:
    """The table."""
    rows, everything = list[list[str]](), {knows: list[dict[str, Figures]]() for knows in KNOWN}
    chosen = (HELD_OUT[0].shortened(0.2, 2),) if asked.quick else HELD_OUT
    for case in cases_of(chosen):
        for knows in KNOWN:
            replays = partial(seed_of, case=case, knows=knows)
            found = list(in_processes(replays, range(asked.seeds), asked.processes))
            rows.append(line(case.name, knows, found))
            everything[knows] += found
    rows += [line("all", knows, found) for knows, found in everything.items()]
    return table(HEADER, rows)


TABLES = {"pacing": pacing}

if __name__ == "__main__":
    run(__doc__, TABLES, seeds=3, processes=2)
