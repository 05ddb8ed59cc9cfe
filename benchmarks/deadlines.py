"""How late calls with a time limit are, over random problems, sizes, solvers and limits.

    python benchmarks/deadlines.py --solves 300 --write
    python benchmarks/deadlines.py --solves 10000 --processes 2 --write

A call with a limit of T seconds has 1.05 T + 0.1 s, measured around it. A twin process that only sleeps tells
how long the machine itself stood still meanwhile, which is taken off. Every solver runs once before, so that
no import is counted.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection

import numpy as np
from tables import machine, table, write

import wattsched
from wattsched.instances.generators import generate
from wattsched.problems import problem

FAMILIES = {
    "uniform": (10, 20_000),
    "hetero": (10, 2_000),
    "sia-like": (10, 1_000),
    "philly-like": (10, 5_000),
    "shifting": (2, 200),
    "sharing": (4, 200),
    "placement": (2, 60),
}
LIMITS_S = (0.01, 5.0)
SOLVERS = ("auto", "auto", "price", "highs", "cpsat", "greedy")
TICK_S = 0.002
PAUSE_S = 0.005
SHARE, SLACK_S = 0.05, 0.1
HEADER = ("family", "calls", "decided", "late", "excess, median, s", "99 %, s", "worst, s")


@dataclass(frozen=True)
class Case:
    """One call."""

    family: str
    jobs: int
    seed: int
    solver: str
    formulation: str
    limit_s: float


@dataclass(frozen=True)
class Outcome:
    """What became of it; the seconds are those beyond the limit, the machine's pauses taken off."""

    case: Case
    reason: str
    limit: str | None
    excess_s: float

    @property
    def late(self) -> bool:
        """Whether it broke the contract."""
        return self.excess_s > SHARE * self.case.limit_s + SLACK_S


def sleep(pipe: Connection) -> None:
    """Be the twin: tell of every pause that was longer than asked for."""
    last = time.monotonic()
    while not pipe.poll():
        time.sleep(TICK_S)
        now = time.monotonic()
        if now - last > TICK_S + PAUSE_S:
            pipe.send((last, now))
        last = now


def case_of(rng: np.random.Generator) -> Case:
    """A random call: sizes and limits are spread evenly over their orders of magnitude."""
    family = str(rng.choice(list(FAMILIES)))
    low, high = FAMILIES[family]
    jobs = round(float(np.exp(rng.uniform(np.log(low), np.log(high)))))
    limit_s = float(np.exp(rng.uniform(*np.log(LIMITS_S))))
    rules = problem(generate(family, jobs=2, seed=0).problem)
    names = list(rules.formulations)
    formulation = names[0] if rng.random() < 0.8 else str(rng.choice(names))
    solver = str(rng.choice([*SOLVERS, *rules.heuristics]))
    return Case(family, jobs, int(rng.integers(1_000)), solver, formulation, limit_s)


def ask(case: Case, twin: Connection) -> Outcome:
    """Make the call, and see how late it is."""
    instance = generate(case.family, jobs=case.jobs, seed=case.seed)
    begin = time.monotonic()
    asked = {"formulation": case.formulation, "solver": case.solver, "time_limit": case.limit_s, "gap": 1e-6}
    try:
        ended = wattsched.solve(instance, **asked).termination
        reason, limit = ended.reason, ended.limit
    except ValueError:  # no instance for that formulation
        reason, limit = "refused", None
    end = time.monotonic()
    time.sleep(2 * TICK_S)
    paused_s = 0.0
    while twin.poll():
        first, last = twin.recv()
        paused_s += max(0.0, min(last, end) - max(first, begin))
    return Outcome(case, reason, limit, end - begin - case.limit_s - paused_s)


def warm_up() -> None:
    """Load everything once."""
    for family in FAMILIES:
        for solver in sorted(set(SOLVERS)):
            for limit_s in (None, 5.0):
                wattsched.solve(generate(family, jobs=4, seed=0), solver=solver, time_limit=limit_s, gap=1e-2)


def outcomes_of(seed: int, solves: int) -> list[Outcome]:
    """Make some random calls, one after the other, beside a twin that sleeps."""
    context = multiprocessing.get_context("spawn")
    pipe, theirs = context.Pipe()
    twin = context.Process(target=sleep, args=(theirs,), daemon=True)
    twin.start()
    warm_up()
    rng, outcomes = np.random.default_rng(seed), []
    for number in range(solves):
        outcomes.append(ask(case_of(rng), pipe))
        if outcomes[-1].late:
            print(number, outcomes[-1], flush=True)
    pipe.send("end")
    return outcomes


def main() -> int:
    """Ask, and print the worst."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--solves", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0, help="of the first process")
    parser.add_argument("--processes", type=int, default=1, help="that share the calls, side by side")
    parser.add_argument("--write", action="store_true", help="write the table in docs/tables")
    asked = parser.parse_args()
    shares = [len(range(k, asked.solves, asked.processes)) for k in range(asked.processes)]
    seeds = range(asked.seed, asked.seed + asked.processes)
    with ProcessPoolExecutor(asked.processes, multiprocessing.get_context("spawn")) as pool:
        outcomes = [one for some in pool.map(outcomes_of, seeds, shares) for one in some]
    late = sum(outcome.late for outcome in outcomes)
    shown = table(HEADER, rows_of(outcomes))
    print(shown)
    if asked.write:
        write("deadlines", f"{shown}\n\nMeasured on {machine()}.")
    return 1 if late else 0


def rows_of(outcomes: list[Outcome]) -> list[list[str]]:
    """Rows by family, and of all."""
    rows = []
    for family in [*FAMILIES, "all"]:
        some = [one for one in outcomes if family in (one.case.family, "all")]
        if not some:
            continue
        excess = np.array([one.excess_s for one in some])
        decided = sum(one.reason in ("optimal", "feasible") for one in some)
        shown = [f"{value:.3f}" for value in (np.median(excess), np.quantile(excess, 0.99), excess.max())]
        rows.append([family, str(len(some)), str(decided), str(sum(one.late for one in some)), *shown])
    return rows


if __name__ == "__main__":
    sys.exit(main())
