"""Replays with every objective of `sizing` as what a round optimises, and what becomes of them.

python -m benchmarks.round_objectives --write
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.harness import Asked, interval, run, say, table
from benchmarks.replays import itp, on_sixteen
from wattsched.formulations.sizing.objectives import OBJECTIVES, Objective
from wattsched.formulations.sizing.sleeping import ENERGY
from wattsched.replay.jobs.outcome import Summary, summary
from wattsched.replay.jobs.policies.rounds import MOST_NODES, RoundOptions, RoundSolver, fastest
from wattsched.replay.jobs.policy import Decision, PolicyContext, State
from wattsched.replay.jobs.simulation import simulate
from wattsched.replay.jobs.trace import Trace
from wattsched.solvers.registry import get
from wattsched.solvers.solution import Limits

BASE, OURS = "total-completion", "work-value"
NAMES = [name for name in OBJECTIVES if name not in (BASE, *ENERGY)]
VARIANTS = ((BASE, 300.0), (BASE, 3600.0), *((name, 300.0) for name in NAMES))
"""Objectives, and the length of a round that they are told."""
SMALL_GAP = 1e-6
FIELDS = {"jct_mean_s": "mean JCT", "jct_p95_s": "p95", "makespan_s": "makespan", "energy_j": "energy"}


@dataclass(frozen=True)
class Case:
    """Traces, and the length of a round that is kept."""

    name: str
    traces: tuple[Trace, ...]
    tick_s: float = 0.0


class ByObjective:
    """Solves the sizing program of every round for an objective, to which a round has `round_s` seconds."""

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
        solution = get("auto")(program, Limits(gap=SMALL_GAP, nodes=MOST_NODES))
        if solution.x is None:
            raise ValueError(f"{self._objective.name}: {solution.termination}")
        return Decision(options.chosen(solution.x))


def runs(case: Case, name: str, round_s: float) -> list[Summary]:
    """Replay every trace of a case."""
    found = []
    for trace in case.traces:
        policy = ByObjective(PolicyContext(trace, round_s=case.tick_s), OBJECTIVES[name], round_s)
        found.append(summary(simulate(trace, policy, name=name, round_s=case.tick_s)))
        say(f"{case.name}, {name}, {round_s:g} s: {found[-1].jct_mean_s:.0f} s")
    return found


def ratio(ours: Sequence[Summary], theirs: Sequence[Summary], field: str) -> str:
    """Mean ratio over the seeds, and half of its 95 % confidence interval."""
    pairs = zip(ours, theirs, strict=True)
    return interval(np.array([getattr(one, field) / getattr(other, field) for one, other in pairs]))


def round_objectives(asked: Asked) -> str:
    """Figures over those of `total-completion` on the same traces, and mean JCT also over `work-value`'s."""
    cases = [
        Case(f"16 GPUs, gaps of {gap_s:g} s", tuple(on_sixteen(gap_s, s) for s in range(asked.seeds)))
        for gap_s in (300.0, 120.0)
    ]
    if asked.quick:
        cases = cases[:1]
    else:
        cases.append(Case("ITP 04, 80 GPUs", tuple(itp("04", 2, 10).trace(s) for s in range(3)), 60.0))
    rows = []
    for case in cases:
        found = {variant: runs(case, *variant) for variant in VARIANTS}
        for variant in VARIANTS:
            name, round_s = variant
            cells = [case.name, f"`{name}`" + (f", `round_s` {round_s:g}" if round_s != 300 else "")]
            for field, other in (*((field, BASE) for field in FIELDS), ("jct_mean_s", OURS)):
                same = variant == (other, 300.0)
                cells.append("1" if same else ratio(found[variant], found[other, 300.0], field))
            rows.append(cells)
    return table(["jobs", "objective of a round", *FIELDS.values(), f"mean JCT to `{OURS}`"], rows)


TABLES = {"round-objectives": round_objectives}

if __name__ == "__main__":
    run(__doc__, TABLES, seeds=10)
