"""Measure how late calls with a time limit are, over random problems, sizes, solvers and limits.

    python -m benchmarks.deadlines --solves 300
    python -m benchmarks.deadlines --solves 10000 --processes 2 --write

A call with a limit of T seconds has 1.05 T + 0.1 s, measured around it. A twin process that only sleeps tells
how long the machine itself stood still meanwhile, which is taken off. Every solver runs once before, so that
no import is counted.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection

import numpy as np

import wattsched
from benchmarks.harness import Asked, in_processes, machine, run, say, table
from wattsched.instances.generators import generate
from wattsched.results.problems import problem

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
TICK_S, PAUSE_S = 0.002, 0.005
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
    """Outcome of a call; the seconds are those beyond the limit, the machine's pauses taken off."""

    case: Case
    reason: str
    excess_s: float

    @property
    def late(self) -> bool:
        """True if the call broke the contract."""
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
        reason = wattsched.solve(instance, **asked).termination.reason
    except ValueError:  # no instance for that formulation
        reason = "refused"
    end = time.monotonic()
    time.sleep(2 * TICK_S)
    paused_s = 0.0
    while twin.poll():
        first, last = twin.recv()
        paused_s += max(0.0, min(last, end) - max(first, begin))
    return Outcome(case, reason, end - begin - case.limit_s - paused_s)


def outcomes_of(seed: int, solves: int) -> list[Outcome]:
    """Make some random calls, one after the other, beside a twin that sleeps."""
    context = get_context("spawn")
    pipe, theirs = context.Pipe()
    context.Process(target=sleep, args=(theirs,), daemon=True).start()
    for family in FAMILIES:  # load everything once
        for solver in set(SOLVERS):
            for limit_s in (None, 5.0):
                wattsched.solve(generate(family, jobs=4, seed=0), solver=solver, time_limit=limit_s, gap=1e-2)
    rng, outcomes = np.random.default_rng(seed), []
    for number in range(solves):
        outcomes.append(ask(case_of(rng), pipe))
        if outcomes[-1].late:
            say(f"{number} {outcomes[-1]}")
    pipe.send("end")
    return outcomes


def rows_of(outcomes: Sequence[Outcome]) -> Iterator[list[str]]:
    """Rows by family, and of all."""
    for family in [*FAMILIES, "all"]:
        some = [one for one in outcomes if family in (one.case.family, "all")]
        if some:
            excess = np.array([one.excess_s for one in some])
            decided = sum(one.reason in ("optimal", "feasible") for one in some)
            shown = (f"{value:.3f}" for value in (np.median(excess), np.quantile(excess, 0.99), excess.max()))
            yield [family, str(len(some)), str(decided), str(sum(one.late for one in some)), *shown]


def deadlines(asked: Asked) -> str:
    """One row for each family."""
    solves = 3 if asked.quick else asked.solves
    work = partial(outcomes_of, solves=-(-solves // asked.processes))
    outcomes = [one for some in in_processes(work, range(asked.processes), asked.processes) for one in some]
    return f"{table(HEADER, rows_of(outcomes))}\n\nMeasured on {machine()}."


TABLES = {"deadlines": deadlines}

if __name__ == "__main__":
    run(__doc__, TABLES, solves=300, processes=1)
