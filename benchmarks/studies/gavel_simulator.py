"""Gavel's simulator under its own policies and under ours, which have their protocol.

    python -m benchmarks.studies.gavel_simulator --gavel GAVEL/scheduler --write [--seeds 3] [--jobs 80]

GAVEL is a checkout of github.com/stanford-futuredata/gavel, run in an environment with wattsched, cvxpy and
ecos. The simulator generates the jobs, by seed. Each time that it asks its own policy, ours is asked for the
same, and both answers are measured by the same objective.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.harness import Asked, run, say, table
from wattsched.adapters.gavel import MaxMinFairness, MinTotalDuration

CLUSTER = {"v100": 12, "p100": 12, "k80": 12}
ROUND_S = 360
SECONDS_BETWEEN_JOBS = 2_500
POLICIES = {"max_min_fairness_perf": MaxMinFairness, "min_total_duration_perf": MinTotalDuration}
HEADER = ("policy of Gavel", "shares by", "mean JCT, h", "JCT times Gavel's, mean", "worst", "makespan, h",
          "objective over Gavel's, mean", "least")  # fmt: skip
RPC = "runtime.rpc"
UNUSED = ("matrix_completion", "runtime", RPC, f"{RPC}.scheduler_server", f"{RPC}.scheduler_client")
"""Modules that the simulator imports and does not use where it simulates."""


def modules(folder: Path) -> tuple[Any, Any, Any]:
    """Modules of the simulator: its scheduler, its tools, its identifiers of jobs."""
    sys.path[:0] = [str(folder), str(folder / "policies")]
    for name in UNUSED:
        sys.modules[name] = ModuleType(name)
    for name in UNUSED[3:]:
        setattr(sys.modules[RPC], name.rpartition(".")[2], sys.modules[name])
    os.chdir(folder)
    import job_id_pair
    import scheduler
    import utils

    return scheduler, utils, job_id_pair


class Compared:
    """Gavel's policy, with what its shares are worth next to ours, each time that it is asked."""

    def __init__(self, theirs: Any, ours: Any) -> None:
        self._theirs, self._ours, self.name = theirs, ours, theirs.name
        self.ratios: list[float] = []

    def get_allocation(self, *asked: Any) -> Any:
        """Answer as Gavel does."""
        found = self._theirs.get_allocation(*asked)
        if found is not None:
            self._ours.get_allocation(*asked)
            last = self._ours.last
            share = np.array([found[job][kind] for job in asked[0] for kind in last.instance.types])
            self.ratios.append(float(last.progress.min() / replace(last, share=share).progress.min()))
        return found


def simulated(parts: tuple[Any, Any, Any], policy: Any, seed: int, jobs: int) -> tuple[float, float]:
    """Mean completion time and makespan in hours."""
    scheduler, _, ids = parts
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        simulation = scheduler.Scheduler(
            policy,
            throughputs_file="simulation_throughputs.json",
            simulate=True,
            seed=seed,
            time_per_iteration=ROUND_S,
        )
        simulation.simulate(
            dict(CLUSTER),
            lam=SECONDS_BETWEEN_JOBS,
            jobs_to_complete={ids.JobIdPair(i, None) for i in range(jobs)},
            generate_multi_gpu_jobs=True,
            num_total_jobs=jobs,
            num_gpus_per_server=dict.fromkeys(CLUSTER, 4),
        )
        return simulation.get_average_jct(None) / 3600, simulation.get_current_timestamp() / 3600


def simulators(asked: Asked) -> str:
    """One row for each policy of Gavel and ours in its place."""
    logging.disable()
    parts, rows = modules(Path(asked.gavel).resolve()), []
    for name, ours in POLICIES.items():
        runs: dict[str, list[tuple[float, float]]] = {}
        ratios: list[float] = []
        for seed in range(asked.seeds):
            watched = Compared(parts[1].get_policy(name, solver="ECOS", seed=seed), ours())
            tried: dict[str, Any] = {"Gavel": watched}
            tried |= {f"ours, ties by {ties}": ours(ties) for ties in ("goodput", "max-min")}
            for label, policy in tried.items():
                runs.setdefault(label, []).append(simulated(parts, policy, seed, asked.jobs))
                say(f"{name}, seed {seed}, {label}: mean JCT {runs[label][-1][0]:.2f} h")
            ratios += watched.ratios
        for label, figures in runs.items():
            jct, end = np.array(figures).T
            times = jct / np.array(runs["Gavel"])[:, 0]
            worth = ("", "") if label == "Gavel" else (f"{np.mean(ratios):.4f}", f"{min(ratios):.6f}")
            means = (f"{jct.mean():.2f}", f"{times.mean():.3f}", f"{times.max():.3f}", f"{end.mean():.1f}")
            rows.append((name, label, *means, *worth))
    return (
        f"{table(HEADER, rows)}\n\n{asked.jobs} jobs that the simulator generates, on average one in "
        f"{SECONDS_BETWEEN_JOBS} s, on {CLUSTER}, rounds of {ROUND_S} s, {asked.seeds} seeds from 0. JCT is "
        "from arrival to completion. The objective is the least progress of all jobs, ours over Gavel's for "
        "the same question, whenever the simulator asked."
    )


TABLES = {"simulators": simulators}

if __name__ == "__main__":
    run(__doc__, TABLES, seeds=3, gavel="gavel/scheduler", jobs=80)
