"""What a decision of a session costs, against HiGHS on arrays that are ready.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python benchmarks/sessions.py --write [--rounds 500]

Rounds as Sia's simulator has them: jobs with 15 configurations each, five GPU counts at three clocks, under
`goodput`, without a budget and with one of 200 W a GPU. From round to round a twentieth of the jobs goes
and comes, and all rates change. HiGHS gets the program of the round by `passModel` and `run`, with the same
gap; making its arrays is not in its time. Both solve every round in turn, in one process. The overhead is
the session's time without its solver's. Rounds are of 20 seeds from 401 on, on which nothing was chosen. A
second table has the same jobs on larger clusters, and a third 20,000 jobs of which 1 % change, geometric
means over these seeds and the worst. ``--quick`` is a few small rounds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
from scipy.stats import gmean
from tables import machine, table, write

import wattsched
from wattsched import Session, SessionDecision
from wattsched.engine import model_of
from wattsched.formulations.program import Program
from wattsched.formulations.timer import Timer
from wattsched.solvers.lp import loaded, scaled
from wattsched.solvers.solution import Limits

FIRST, SEEDS, GAP = 401, 20, 1e-4
SIZES = ((20, 64), (200, 2_048))
WATTS_PER_GPU = 200.0
CLUSTERS = (64, 4_096, 32_768)
CLOCKS_MHZ = (900, 1_200, 1_400)
COUNTS = 5
LARGE, CHANGED = 20_000, 0.01
HEADER = (
    "jobs", "GPUs", "budget", "session, ms", "p99", "overhead, ms", "p99", "HiGHS, ms", "p99", "gap, worst",
)  # fmt: skip


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


def rounds(seed: int, jobs: int, gpus: int, number: int, power_w: float | None = None) -> Iterator[Session]:
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
    model, limits = scaled(program), Limits(gap=GAP)
    begin = time.perf_counter()
    loaded(model, limits, Timer()).run()
    return time.perf_counter() - begin


def decided(session: Session) -> tuple[SessionDecision, float]:
    """A decision, and how many seconds it took."""
    begin = time.perf_counter()
    decision = session.solve(gap=GAP)
    return decision, time.perf_counter() - begin


def ends(seconds: list[float]) -> list[str]:
    """Median and 99th percentile in milliseconds."""
    return [f"{1e3 * np.quantile(seconds, part):.2f}" for part in (0.5, 0.99)]


def row(jobs: int, gpus: int, number: int, power_w: float | None = None) -> list[str]:
    """One size of rounds."""
    whole, beside, highs, gaps = [], [], [], []
    seeds = min(SEEDS, max(1, number // 2))
    of_seeds = (rounds(FIRST + k, jobs, gpus, -(-number // seeds), power_w) for k in range(seeds))
    for session in chain.from_iterable(of_seeds):
        decision, seconds = decided(session)
        solver_s = decision.result.time_s.get("solve", 0.0) + decision.result.time_s.get("safety", 0.0)
        whole.append(seconds)
        beside.append(seconds - solver_s)
        gaps.append(decision.result.gap or 0.0)
        highs.append(by_highs(model_of(session.to_instance()).program))
        session.apply(decision)
    budget = "" if power_w is None else f"{power_w / 1e3:,.1f} kW"
    return [f"{jobs:,}", f"{gpus:,}", budget, *ends(whole), *ends(beside), *ends(highs), f"{max(gaps):.1e}"]


def second_round(jobs: int, seeds: int) -> list[str]:
    """First and second rounds of many jobs."""
    cold_s, change_s, warm_s, gap = np.array([two_rounds(jobs, FIRST + k) for k in range(seeds)]).T
    ratio = warm_s / cold_s
    seconds = (f"{gmean(some):.3f}" for some in (cold_s, change_s, warm_s))
    parts = f"{warm_s.max():.3f}", f"{100 * gmean(ratio):.0f} %", f"{100 * ratio.max():.0f} %"
    return [f"{jobs:,}", *seconds, *parts, f"{gap.max():.1e}"]


def two_rounds(jobs: int, seed: int) -> tuple[float, float, float, float]:
    """Seconds of a first round, of a change, and of a second one, with its gap; jobs share tables."""
    first = wattsched.generate("uniform", jobs=jobs, budget="power", seed=seed)
    known = first.by_column()
    session = Session(
        first.cluster,
        objective="total-completion",
        round_s=first.round_s,
        tables={name: kept.model_dump() for name, kept in first.tables.items()},
    )
    session.update(power_w=first.budgets.power_w)
    fields = {
        name: column for name, column in known.columns.items() if name not in ("name", "current", "restart_s")
    }
    session.upsert(known.names, **fields, restart_s=np.full(jobs, 30.0))
    decision, cold_s = decided(session)
    session.apply(decision)
    new = int(CHANGED * jobs)
    begin = time.perf_counter()
    session.remove(known.names[:new])
    come = known.take(np.arange(new))
    more = {name: column for name, column in come.columns.items() if name in fields}
    session.upsert([f"new{j}" for j in range(new)], **more, restart_s=np.full(new, 30.0))
    change_s = time.perf_counter() - begin
    again, warm_s = decided(session)
    return cold_s, change_s, warm_s, again.result.gap or 0.0


def main() -> None:
    """Make the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=500)
    asked = parser.parse_args()
    number = 5 if asked.quick else asked.rounds
    few = max(2, number // 10)
    lines = [row(*size, number, power_w) for size in SIZES for power_w in (None, WATTS_PER_GPU * size[1])]
    parts = [table(HEADER, lines)]
    parts += ["## The same jobs on larger clusters", table(HEADER, [row(20, n, few) for n in CLUSTERS])]
    header = (
        "jobs",
        "first round, s",
        "change, s",
        "second, s",
        "worst",
        "of the first",
        "worst",
        "gap, worst",
    )
    last = second_round(2_000, 2) if asked.quick else second_round(LARGE, SEEDS)
    parts += ["## A second round", table(header, [last])]
    parts.append(f"Measured on {machine()}, {number} rounds of {SEEDS} seeds, gap {GAP:g}.")
    content = "\n\n".join(parts)
    print(content)
    if asked.write:
        write("sessions", content)


if __name__ == "__main__":
    main()
