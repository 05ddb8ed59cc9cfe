"""Sia's simulator under its own policy and under ours, which has its protocol.

    python benchmarks/sia_simulator.py --sia SIA/sia-simulator --write [--jobs N] [--workload FILE]

SIA is a checkout of github.com/siasosp23/artifacts, run in an environment with wattsched, cvxpy, highspy,
autograd, pandas and rich. The programs of Sia's policy are solved by HiGHS at its default gap of 1e-4, not by
CBC. Each time that the simulator asks Sia's policy, ours is asked for the same, and both answers are measured
by the same objective.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from suite import say
from tables import table, write

from wattsched.adapters.sia import GoodputPolicy

P_FAIRNESS, LAMBDA_N = -0.5, 1.1
ROUND_S = 60
HEADER = ("policy", "mean JCT, h", "99th percentile, h", "makespan, h", "restarts per job", "rounds")


def simulator(folder: Path) -> tuple[Any, Any, Any]:
    """Modules of the simulator: its policy, its cluster, its settings."""
    sys.path.insert(0, str(folder))
    os.chdir(folder)
    import cvxpy
    import pandas

    # What the simulator was written for: CBC, and a method that pandas no longer has.
    solve = cvxpy.Problem.solve
    cvxpy.CBC = cvxpy.HIGHS
    cvxpy.Problem.solve = lambda problem, **options: solve(problem, solver=cvxpy.HIGHS)
    pandas.DataFrame.append = lambda frame, rows, **options: pandas.concat([frame, rows], **options)
    import cluster
    import sia
    import simulator_config

    return sia, cluster, simulator_config


class Compared:
    """A policy's `optimize`, with another policy that is asked for the same: what both take, and find."""

    def __init__(self, policy: Any, other: GoodputPolicy) -> None:
        self._optimize, self._other = policy.optimize, other
        self.seconds: list[tuple[float, float]] = []
        self.ratios: list[float] = []

    def __call__(self, *asked: Any) -> Any:
        begin = time.perf_counter()
        found = self._optimize(*asked)
        between = time.perf_counter()
        self._other.optimize(*asked)
        self.seconds.append((between - begin, time.perf_counter() - between))
        self.ratios.append(ratio(self._other, found))
        return found


def ratio(policy: GoodputPolicy, found: Any) -> float:
    """What the policy's last decision is worth over what another answer to the same is."""
    assert policy.last is not None
    assert policy.last.objective is not None
    jobs, theirs = policy.last.instance.by_column(), 0.0
    for name, options in zip(jobs.names, jobs.coded("options").tolist(), strict=True):
        kind, places = found[name]
        rows = zip(options.pool, options.gpus, options.rate, strict=True)
        theirs += sum(worth for pool, gpus, worth in rows if (pool, gpus) == (kind, len(places)))
    return float(policy.last.objective / theirs)


def simulated(parts: tuple[Any, Any, Any], workload: Any, ours: bool) -> tuple[list[Any], Compared | None]:
    """Row of the table; under Sia's policy also what ours is next to it."""
    sia, cluster, settings = parts
    own = type("Ours", (GoodputPolicy, sia.SiaPolicy), {})
    mine: Any = own(P_FAIRNESS, LAMBDA_N, sia.get_restart_penalty, project_throughputs=True)
    terms = {"project_throughputs": True, "share_max_replicas": True, "lambda_a": 0.01}
    asked = mine if ours else sia.SiaPolicy(p_fairness=P_FAIRNESS, lambda_n=LAMBDA_N, **terms)
    gpus = {name: settings.cluster_ngpus_per_node[name] for name in settings.cluster_nnodes}
    limits = (settings.cluster_nnodes, gpus, settings.cluster_max_physical_nnodes)
    for policy in (mine, asked):
        policy.populate_valid_configs(*limits)
    run = cluster.Cluster(workload, asked, *limits)
    compared = None
    if not ours:
        compared = asked.optimize = Compared(asked, mine)
    while not run.all_complete():
        run.step(ROUND_S)
    hours = np.array(list(run.get_jcts().values())) / 3600
    restarts = np.mean([job.num_restarts or 0 for job in run.jobs])
    row = ["ours" if ours else "Sia", f"{hours.mean():.3f}", f"{np.percentile(hours, 99):.2f}"]
    return [*row, f"{run.current_time / 3600:.2f}", f"{restarts:.1f}", len(run.logs)], compared


def main() -> None:
    """Simulate, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sia", type=Path, required=True)
    parser.add_argument("--workload", default="workloads/philly/workload-1.csv")
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    parts = simulator(arguments.sia.resolve())
    import pandas

    workload = pandas.read_csv(arguments.workload).head(arguments.jobs)
    rows, found = [], list[Compared]()
    for ours in (False, True):
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            row, compared = simulated(parts, workload, ours)
        say(", ".join(str(cell) for cell in row))
        rows.append(row)
        found += [compared] if compared else []
    ratios = np.array(found[0].ratios)
    theirs, mine = np.median(found[0].seconds, axis=0) * 1e3
    text = table(HEADER, rows)
    terms = f"rounds of {ROUND_S} s, p = {P_FAIRNESS}, lambda = {LAMBDA_N}"
    worth = f"mean {ratios.mean():.5f}, least {ratios.min():.6f}, most {ratios.max():.5f}"
    notes = (
        f"The first {len(workload)} jobs of `{arguments.workload}`, nodes {parts[2].cluster_nnodes}, "
        f"{terms}, throughputs projected. JCT is from arrival to completion. Sia's programs are solved by "
        f"HiGHS through cvxpy. What our answer is worth over Sia's to the same question: {worth}. "
        f"An answer took {theirs:.0f} ms by Sia's policy and {mine:.0f} ms by ours (medians, with goodputs)."
    )
    print(f"{text}\n\n{notes}")
    if arguments.write:
        write("sia-simulator", f"{text}\n\n{notes}")


if __name__ == "__main__":
    main()
