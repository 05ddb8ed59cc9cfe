"""Gavel's simulator under its own policies and under ours, which have their protocol.

    python benchmarks/simulators.py --gavel GAVEL/scheduler --write [--seeds N] [--jobs N]

GAVEL is a checkout of github.com/stanford-futuredata/gavel, run in an environment with wattsched, cvxpy and
ecos. The simulator generates the jobs, by seed. Each time that it asks its own policy, ours is asked for the
same, and both answers are measured by the same objective.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from suite import say
from tables import table, write

from wattsched.adapters.gavel import MaxMinFairness, MinTotalDuration

CLUSTER = {"v100": 12, "p100": 12, "k80": 12}
ROUND_S = 360
SECONDS_BETWEEN_JOBS = 2_500
POLICIES = {"max_min_fairness_perf": MaxMinFairness, "min_total_duration_perf": MinTotalDuration}
HEADER = ("policy of Gavel", "shares by", "mean JCT, h", "JCT times Gavel's, mean", "worst", "makespan, h")
HEADER += ("objective over Gavel's, mean", "least",)  # fmt: skip
# Modules that the simulator imports and does not use where it simulates.
UNUSED = ("matrix_completion", "runtime", "runtime.rpc", "runtime.rpc.scheduler_server")
UNUSED += ("runtime.rpc.scheduler_client",)


def simulator(folder: Path) -> tuple[Any, Any, Any]:
    """Modules of the simulator: its scheduler, its tools, its identifiers of jobs."""
    sys.path[:0] = [str(folder), str(folder / "policies")]
    for name in UNUSED:
        sys.modules[name] = ModuleType(name)
    for name in UNUSED[3:]:
        setattr(sys.modules["runtime.rpc"], name.rsplit(".", 1)[1], sys.modules[name])
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
        found = self._theirs.get_allocation(*asked)
        if found is not None:
            self._ours.get_allocation(*asked)
            last = self._ours.last
            share = np.array([found[job][kind] for job in asked[0] for kind in last.instance.types])
            least = replace(last, share=share).progress.min()
            self.ratios.append(float(last.progress.min() / least))
        return found


def simulated(parts: tuple[Any, Any, Any], policy: Any, seed: int, jobs: int) -> tuple[float, float]:
    """Mean completion time and makespan in hours."""
    scheduler, _, ids = parts
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        run = scheduler.Scheduler(
            policy,
            throughputs_file="simulation_throughputs.json",
            simulate=True,
            seed=seed,
            time_per_iteration=ROUND_S,
        )
        run.simulate(
            dict(CLUSTER),
            lam=SECONDS_BETWEEN_JOBS,
            jobs_to_complete={ids.JobIdPair(i, None) for i in range(jobs)},
            generate_multi_gpu_jobs=True,
            num_total_jobs=jobs,
            num_gpus_per_server=dict.fromkeys(CLUSTER, 4),
        )
        return run.get_average_jct(None) / 3600, run.get_current_timestamp() / 3600


def main() -> None:
    """Simulate, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gavel", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    logging.disable()
    parts = simulator(arguments.gavel.resolve())
    seeds, rows = range(arguments.seeds), []
    for name, ours in POLICIES.items():
        runs: dict[str, list[tuple[float, float]]] = {}
        ratios: list[float] = []
        for seed in seeds:
            watched = Compared(parts[1].get_policy(name, solver="ECOS", seed=seed), ours())
            asked: dict[str, Any] = {"Gavel": watched}
            asked |= {f"ours, ties by {ties}": ours(ties) for ties in ("goodput", "max-min")}
            for label, policy in asked.items():
                runs.setdefault(label, []).append(simulated(parts, policy, seed, arguments.jobs))
                say(f"{name}, seed {seed}, {label}: mean JCT {runs[label][-1][0]:.2f} h")
            ratios += watched.ratios
        theirs = np.array(runs["Gavel"])
        for label, figures in runs.items():
            jct, end = np.array(figures).T
            times = jct / theirs[:, 0]
            worth = ("", "") if label == "Gavel" else (f"{np.mean(ratios):.4f}", f"{min(ratios):.6f}")
            means = (f"{jct.mean():.2f}", f"{times.mean():.3f}", f"{times.max():.3f}", f"{end.mean():.1f}")
            rows.append((name, label, *means, *worth))
    text = table(HEADER, rows)
    notes = (
        f"{arguments.jobs} jobs that the simulator generates, on average one in {SECONDS_BETWEEN_JOBS} s, on "
        f"{CLUSTER}, rounds of {ROUND_S} s, {len(seeds)} seeds from 0. JCT is from arrival to completion. "
        "The objective is the least progress of all jobs, ours over Gavel's for the same question, "
        "whenever the simulator asked."
    )
    print(text)
    if arguments.write:
        write("simulators", f"{text}\n\n{notes}")


if __name__ == "__main__":
    main()
