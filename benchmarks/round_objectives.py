"""Replay jobs with every objective of `sizing` as what a round optimises, and compare what becomes of them.

    python benchmarks/round_objectives.py [--write]

``--write`` puts the table into docs/tables. `WATTSCHED_DATA` says where the traces are.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from random_jobs import poisson_jobs
from tables import interval, table, write

from wattsched.formulations.sizing.objectives import OBJECTIVES, Objective
from wattsched.formulations.sizing.sleeping import ENERGY
from wattsched.instances.clusters import homogeneous_cluster
from wattsched.instances.traces.job_lists import read_itp
from wattsched.replay.jobs.outcome import Summary, summary
from wattsched.replay.jobs.policies.rounds import MOST_NODES, RoundOptions, RoundSolver, fastest
from wattsched.replay.jobs.policy import Decision, PolicyContext, State
from wattsched.replay.jobs.simulation import simulate
from wattsched.replay.jobs.trace import Trace, trace_of_durations
from wattsched.solvers.registry import get as find_solver
from wattsched.solvers.solution import Limits

DATA = Path(os.environ.get("WATTSCHED_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
DAY_S = 86_400.0
BASE, OURS = "total-completion", "work-value"
SMALL_GAP = 1e-6
FIELDS = {"jct_mean_s": "mean JCT", "jct_p95_s": "p95", "makespan_s": "makespan", "energy_j": "energy"}


def sixteen(gap_s: float, seed: int) -> Trace:
    """40 jobs on four nodes of four V100, as in benchmarks/elastic.py."""
    jobs = poisson_jobs(40, seed, gap_s=gap_s)
    return trace_of_durations(homogeneous_cluster(4, 4, "V100"), jobs, seed=seed, elasticity=16)


def itp(seed: int) -> Trace:
    """Jobs of ITP cluster 04 that arrive on one day, on ten nodes of eight A100; the models are drawn."""
    jobs = read_itp(DATA / "itp-elasticflow-2021" / "raw" / "cluster04.csv")
    jobs = [replace(job, model=None, batch_size=None) for job in jobs]
    begin_s = min(job.submitted_s for job in jobs) + 2 * DAY_S
    within = [job for job in jobs if begin_s <= job.submitted_s < begin_s + DAY_S]
    return trace_of_durations(homogeneous_cluster(10, 8, "A100"), within, seed=seed)


@dataclass(frozen=True)
class Case:
    """Traces, the length of a round that the objectives are told, and the one that is kept."""

    name: str
    traces: tuple[Trace, ...]
    tick_s: float


class ByObjective:
    """Solves the sizing program of every round for an objective of the engine.

    Parameters
    ----------
    round_s : float
        Length of the round as the objective takes it.
    """

    def __init__(self, context: PolicyContext, objective: Objective, round_s: float) -> None:
        self.restart_s = context.restarts.process_s
        self._counts = fastest(context.trace, context.trace.standard)
        self._objective, self._round_s = objective, round_s
        self._rounds = RoundSolver(objective.name, context.gap)

    def decide(self, state: State) -> Decision:
        """Solve the round."""
        options = RoundOptions.of(state, self._counts, self._round_s)
        cost = self._objective.cost(options)
        if self._objective.combine == "sum":
            return self._rounds.decide(options, options.program(cost))
        # A round of waiting is a small part of a long job: within a larger gap it would wait for ever.
        program = options.program(cost, worst=True)
        solution = find_solver("auto")(program, Limits(gap=SMALL_GAP, nodes=MOST_NODES))
        if solution.x is None:
            raise ValueError(f"{self._objective.name}: {solution.termination}")
        return Decision(options.chosen(solution.x))


def runs(case: Case, name: str, round_s: float) -> list[Summary]:
    """Replay every trace of a case."""
    found = []
    for trace in case.traces:
        context = PolicyContext(trace, round_s=case.tick_s)
        policy = ByObjective(context, OBJECTIVES[name], round_s)
        found.append(summary(simulate(trace, policy, name=name, round_s=case.tick_s)))
        print(f"{case.name}, {name}, {round_s:g} s: {found[-1].jct_mean_s:.0f} s", file=sys.stderr)
    return found


def compared(cases: Sequence[Case]) -> str:
    """Figures over those of `total-completion` on the same traces, and mean JCT also over `work-value`'s."""
    names = [name for name in OBJECTIVES if name not in (BASE, *ENERGY)]
    variants = [(BASE, 300.0), (BASE, 3600.0), *((name, 300.0) for name in names)]
    rows = []
    for case in cases:
        found = {(name, round_s): runs(case, name, round_s) for name, round_s in variants}
        for variant in variants:
            name, round_s = variant
            cells = [case.name, f"`{name}`" + (f", `round_s` {round_s:g}" if round_s != 300 else "")]
            for field, other in (*((field, BASE) for field in FIELDS), ("jct_mean_s", OURS)):
                same = variant == (other, 300.0)
                cells.append("1" if same else ratio(found[variant], found[other, 300.0], field))
            rows.append(cells)
    return table(["jobs", "objective of a round", *FIELDS.values(), f"mean JCT to `{OURS}`"], rows)


def ratio(ours: Sequence[Summary], theirs: Sequence[Summary], field: str) -> str:
    """Mean ratio over the seeds, and half of its 95 % confidence interval."""
    pairs = zip(ours, theirs, strict=True)
    return interval(np.array([getattr(one, field) / getattr(other, field) for one, other in pairs]))


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="put the table into docs/tables")
    asked = parser.parse_args(arguments)
    cases = [
        Case(f"16 GPUs, gaps of {gap_s:g} s", tuple(sixteen(gap_s, seed) for seed in range(10)), 0.0)
        for gap_s in (300.0, 120.0)
    ]
    cases.append(Case("ITP 04, 80 GPUs", tuple(itp(seed) for seed in range(3)), 60.0))
    content = compared(cases)
    print(content)
    if asked.write:
        write("round-objectives", content)


if __name__ == "__main__":
    main()
