"""Sia's simulator under its own policy and under ours, which has its protocol.

    python -m benchmarks.studies.sia_simulator --sia SIA/sia-simulator --write [--jobs 40]

SIA is a checkout of github.com/siasosp23/artifacts, run in an environment with wattsched, cvxpy, highspy,
autograd, pandas and rich. The programs of Sia's policy are solved by HiGHS at its default gap of 1e-4, not by
CBC. Each time that the simulator asks Sia's policy, ours is asked for the same, and both answers are measured
by the same objective.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas

from benchmarks.harness import Asked, run, say, table, timed
from wattsched.adapters.sia import GoodputPolicy

P_FAIRNESS, LAMBDA_N = -0.5, 1.1
ROUND_S = 60
WORKLOAD = "workloads/philly/workload-1.csv"
HEADER = ("policy", "mean JCT, h", "99th percentile, h", "makespan, h", "restarts per job", "rounds")


def modules(folder: Path) -> tuple[Any, Any, Any]:
    """Modules of the simulator: its policy, its cluster, its settings."""
    sys.path.insert(0, str(folder))
    os.chdir(folder)
    import cvxpy

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
        """Answer as the policy does."""
        found, theirs_s = timed(lambda: self._optimize(*asked))
        _, ours_s = timed(lambda: self._other.optimize(*asked))
        self.seconds.append((theirs_s, ours_s))
        self.ratios.append(ratio(self._other, found))
        return found


def ratio(policy: GoodputPolicy, found: Any) -> float:
    """Ratio of the value of the policy's last decision to that of another answer to the same round."""
    assert policy.last is not None
    assert policy.last.objective is not None
    jobs, theirs = policy.last.instance.by_column(), 0.0
    for name, options in zip(jobs.names, jobs.coded("options").tolist(), strict=True):
        kind, places = found[name]
        rows = zip(options.pool, options.gpus, options.rate, strict=True)
        theirs += sum(worth for pool, gpus, worth in rows if (pool, gpus) == (kind, len(places)))
    return float(policy.last.objective / theirs)


def simulated(parts: tuple[Any, Any, Any], workload: Any, ours: bool) -> tuple[list[Any], Any]:
    """Row of the table; under Sia's policy also what ours is next to it."""
    sia, cluster, settings = parts
    own = type("Ours", (GoodputPolicy, sia.SiaPolicy), {})
    mine: Any = own(P_FAIRNESS, LAMBDA_N, sia.get_restart_penalty, project_throughputs=True)
    terms = {"project_throughputs": True, "share_max_replicas": True, "lambda_a": 0.01}
    used = mine if ours else sia.SiaPolicy(p_fairness=P_FAIRNESS, lambda_n=LAMBDA_N, **terms)
    gpus = {name: settings.cluster_ngpus_per_node[name] for name in settings.cluster_nnodes}
    limits = (settings.cluster_nnodes, gpus, settings.cluster_max_physical_nnodes)
    for policy in (mine, used):
        policy.populate_valid_configs(*limits)
    simulation = cluster.Cluster(workload, used, *limits)
    if not ours:
        used.optimize = Compared(used, mine)
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        while not simulation.all_complete():
            simulation.step(ROUND_S)
    hours = np.array(list(simulation.get_jcts().values())) / 3600
    restarts = np.mean([job.num_restarts or 0 for job in simulation.jobs])
    row = ["ours" if ours else "Sia", f"{hours.mean():.3f}", f"{np.percentile(hours, 99):.2f}"]
    row += [f"{simulation.current_time / 3600:.2f}", f"{restarts:.1f}", len(simulation.logs)]
    say(row)
    return row, used.optimize


def sia_simulator(asked: Asked) -> str:
    """One row for each policy."""
    parts = modules(Path(asked.sia).resolve())
    workload = pandas.read_csv(WORKLOAD).head(asked.jobs)
    theirs, compared = simulated(parts, workload, False)
    ours, _ = simulated(parts, workload, True)
    ratios = np.array(compared.ratios)
    theirs_ms, ours_ms = np.median(compared.seconds, axis=0) * 1e3
    worth = f"mean {ratios.mean():.5f}, least {ratios.min():.6f}, most {ratios.max():.5f}"
    return (
        f"{table(HEADER, [theirs, ours])}\n\nThe first {len(workload)} jobs of `{WORKLOAD}`, nodes "
        f"{parts[2].cluster_nnodes}, rounds of {ROUND_S} s, p = {P_FAIRNESS}, lambda = {LAMBDA_N}, "
        "throughputs projected. JCT is from arrival to completion. Sia's programs are solved by HiGHS "
        f"through cvxpy. What our answer is worth over Sia's to the same question: {worth}. An answer took "
        f"{theirs_ms:.0f} ms by Sia's policy and {ours_ms:.0f} ms by ours (medians, with goodputs)."
    )


TABLES = {"sia-simulator": sia_simulator}

if __name__ == "__main__":
    run(__doc__, TABLES, sia="sia/sia-simulator", jobs=40)
