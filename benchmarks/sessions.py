"""Measure the time of a decision of a session, against HiGHS on arrays that are ready.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python -m benchmarks.sessions --write [--rounds 500]

Rounds as Sia's simulator has them: jobs with 15 configurations each, five GPU counts at three clocks, under
`goodput`, without a budget and with one of 200 W a GPU. From round to round a twentieth of the jobs goes
and comes, and all rates change. HiGHS gets the program of the round by `passModel` and `run`, with the same
gap; making its arrays is not in its time. Both solve every round in turn, in one process. The overhead is
the session's time without its solver's. Rounds are of 20 seeds from 401 on, on which nothing was chosen. A
second table has the same jobs on larger clusters, and a third 20,000 jobs of which 1 % change, geometric
means over these seeds and the worst.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np

import wattsched
from benchmarks.harness import Asked, machine, mean_and_worst, run, sections, table, timed
from wattsched import Session
from wattsched.formulations.program import Program
from wattsched.formulations.timer import Timer
from wattsched.solvers.lp import loaded, scaled
from wattsched.solvers.solution import Limits
from wattsched.solving.engine import model_of

FIRST, GAP = 401, 1e-4
SIZES = ((20, 64), (200, 2_048))
WATTS_PER_GPU = 200.0
CLUSTERS = (64, 4_096, 32_768)
CLOCKS_MHZ = (900, 1_200, 1_400)
COUNTS = 5
LARGE, CHANGED, RESTART_S = 20_000, 0.01, 30.0
HEADER = (
    "jobs",
    "GPUs",
    "budget",
    "session, ms",
    "p99",
    "overhead, ms",
    "p99",
    "HiGHS, ms",
    "p99",
    "gap, worst",
)
SECOND = ("jobs", "first round, s", "change, s", "second, s", "worst", "of the first", "worst", "gap, worst")


def cluster_of(gpus: int) -> dict[str, Any]:
    """Nodes of eight GPUs."""
    nodes = [{"name": f"n{i}", "gpu_type": "A100", "gpus": 8} for i in range(gpus // 8)]
    return {"gpu_types": {"A100": {"idle_power_w": 50.0}}, "nodes": nodes}


def arrays(rng: np.random.Generator, jobs: int) -> dict[str, Any]:
    """Options of jobs: five GPU counts at three clocks."""
    gpus = np.sort(rng.permuted(np.tile(2 ** np.arange(7), (jobs, 1)), axis=1)[:, :COUNTS], axis=1)
    every = np.repeat(gpus, len(CLOCKS_MHZ), axis=1).ravel()
    mhz = np.tile(CLOCKS_MHZ, jobs * COUNTS)
    speed = rng.uniform(0.5, 2.0, jobs).repeat(COUNTS * len(CLOCKS_MHZ))
    return {
        "start": np.arange(jobs + 1) * COUNTS * len(CLOCKS_MHZ),
        "pool": "A100",
        "gpus": every,
        "rate": speed * every**0.8 * mhz / 1_400 * rng.uniform(0.9, 1.1, len(every)),
        "power_w": every * mhz / 5.0,
        "frequency_mhz": mhz,
    }


def rounds(seed: int, jobs: int, gpus: int, number: int, power_w: float | None) -> Iterator[Session]:
    """A session, round after round."""
    rng, session = np.random.default_rng(seed), Session(cluster_of(gpus), objective="goodput", round_s=60.0)
    session.update(power_w=power_w)
    names = [f"j{j}" for j in range(jobs)]
    new = max(1, jobs // 20)
    for turn in range(number):
        if turn:
            session.remove(names[:new])
            names = [*names[new:], *(f"j{turn}-{j}" for j in range(new))]
        session.upsert(names, **arrays(rng, jobs), restart_s=np.full(jobs, 5.0))
        yield session


def by_highs(program: Program) -> float:
    """Seconds that HiGHS takes from the arrays of a program to its optimum."""
    model = scaled(program)
    return timed(lambda: loaded(model, Limits(gap=GAP), Timer()).run())[1]


def row(jobs: int, gpus: int, number: int, seeds: int, power_w: float | None = None) -> list[str]:
    """Medians and 99th percentiles in milliseconds of one size of rounds."""
    taken_s, gaps = [], []
    of_seeds = (rounds(FIRST + k, jobs, gpus, -(-number // seeds), power_w) for k in range(seeds))
    for session in chain.from_iterable(of_seeds):
        decision, seconds = timed(lambda session=session: session.solve(gap=GAP))
        spent = decision.result.time_s
        overhead_s = seconds - spent.get("solve", 0.0) - spent.get("safety", 0.0)
        taken_s.append((seconds, overhead_s, by_highs(model_of(session.to_instance()).program)))
        gaps.append(decision.result.gap or 0.0)
        session.apply(decision)
    budget = "" if power_w is None else f"{power_w / 1e3:,.1f} kW"
    figures = (f"{1e3 * ms:.2f}" for ms in np.quantile(taken_s, (0.5, 0.99), axis=0).T.ravel())
    return [f"{jobs:,}", f"{gpus:,}", budget, *figures, f"{max(gaps):.1e}"]


def two_rounds(jobs: int, seed: int) -> tuple[float, float, float, float]:
    """Seconds of a first round, of a change, and of a second one, with its gap; jobs share tables."""
    first = wattsched.generate("uniform", jobs=jobs, budget="power", seed=seed)
    columns = first.by_column()
    tables = {name: kept.model_dump() for name, kept in first.tables.items()}
    session = Session(first.cluster, objective="total-completion", round_s=first.round_s, tables=tables)
    session.update(power_w=first.budgets.power_w)
    fields = set(columns.columns) - {"name", "current", "restart_s"}

    def upsert(names: list[str], of: Any) -> None:
        values = {name: of.columns[name] for name in fields}
        session.upsert(names, **values, restart_s=np.full(len(names), RESTART_S))

    def change() -> None:
        new = int(CHANGED * jobs)
        session.remove(columns.names[:new])
        upsert([f"new{j}" for j in range(new)], columns.take(np.arange(new)))

    upsert(columns.names, columns)
    decision, cold_s = timed(lambda: session.solve(gap=GAP))
    session.apply(decision)
    _, change_s = timed(change)
    again, warm_s = timed(lambda: session.solve(gap=GAP))
    return cold_s, change_s, warm_s, again.result.gap or 0.0


def second_round(jobs: int, seeds: int) -> list[str]:
    """First and second rounds of many jobs."""
    cold_s, change_s, warm_s, gap = np.array([two_rounds(jobs, FIRST + k) for k in range(seeds)]).T
    seconds = (mean_and_worst(cold_s, 3)[0], mean_and_worst(change_s, 3)[0], *mean_and_worst(warm_s, 3))
    parts = (f"{part} %" for part in mean_and_worst(100 * warm_s / cold_s, 0))
    return [f"{jobs:,}", *seconds, *parts, f"{gap.max():.1e}"]


def sessions(asked: Asked) -> str:
    """All three tables."""
    number = 5 if asked.quick else asked.rounds
    few = max(2, number // 10)
    lines = [
        row(jobs, gpus, number, asked.seeds, power_w)
        for jobs, gpus in SIZES
        for power_w in (None, WATTS_PER_GPU * gpus)
    ]
    parts = {
        "": table(HEADER, lines),
        "The same jobs on larger clusters": table(HEADER, [row(20, n, few, asked.seeds) for n in CLUSTERS]),
        "A second round": table(SECOND, [second_round(2_000 if asked.quick else LARGE, asked.seeds)]),
    }
    about = f"Measured on {machine()}, {number} rounds of {asked.seeds} seeds, gap {GAP:g}."
    return f"{sections(parts)}\n\n{about}"


TABLES = {"sessions": sessions}

if __name__ == "__main__":
    run(__doc__, TABLES, seeds=20, rounds=500)
