"""Generated jobs on 16 GPUs under SideCar's rule, its baselines and ours.

python -m benchmarks.elastic --write [--only sidecar]
"""

from __future__ import annotations

from functools import cache

import numpy as np

from benchmarks.harness import Asked, interval, run, say, sections, table
from benchmarks.replays import on_sixteen
from wattsched.replay.jobs.outcome import Summary, summary
from wattsched.replay.jobs.policies import policy_of
from wattsched.replay.jobs.policy import PolicyContext, Restarts
from wattsched.replay.jobs.simulation import simulate
from wattsched.topology.arrays import FloatArray

GAPS_S = (300.0, 120.0)
RESTARTS = (Restarts(5.0, 30.0), Restarts(10.0, 60.0), Restarts(30.0, 300.0))
"""Process restart and pod termination."""
HEADLINE = (*RESTARTS[1:], Restarts(30.0, 600.0))
"""And pods slow enough for what was published against termination."""
COMPARED = ("termination", "sidecar", "elastic", "elastic-makespan")
OTHERS = ("srtf", "tiresias-2dlas", "optimus", "elasticflow", "powerflow", "elastic-progress", "sizing")
FIELDS = {"makespan_s": "makespan", "jct_mean_s": "JCT"}


@cache
def runs(policy: str, gap_s: float, restarts: Restarts, seeds: int) -> tuple[Summary, ...]:
    """Replay every seed; decisions at every arrival and completion."""
    say(f"{policy}, gaps of {gap_s:g} s, {restarts}")
    found = []
    for seed in range(seeds):
        trace = on_sixteen(gap_s, seed)
        made = policy_of(policy, PolicyContext(trace, restarts))
        found.append(summary(simulate(trace, made, name=policy)))
    return tuple(found)


class Setting:
    """Gaps between jobs, restart costs and the number of seeds."""

    def __init__(self, gap_s: float, restarts: Restarts, seeds: int) -> None:
        self._asked = (gap_s, restarts, seeds)
        self.short = f"{gap_s:g} s, {restarts.process_s:g} s"
        self.name = f"{gap_s:g} s, {restarts.process_s:g} / {restarts.pod_s:g} s"

    def values(self, policy: str, field: str) -> FloatArray:
        """Figures of all seeds."""
        return np.array([getattr(one, field) for one in runs(policy, *self._asked)], dtype=float)

    def ratio(self, policy: str, base: str, field: str) -> FloatArray:
        """Figures over another policy's."""
        return self.values(policy, field) / self.values(base, field)


def settings(asked: Asked, restarts: tuple[Restarts, ...] = RESTARTS) -> list[Setting]:
    """All gaps with all restart costs."""
    gaps_s = GAPS_S[:1] if asked.quick else GAPS_S
    return [Setting(gap_s, costs, asked.seeds) for gap_s in gaps_s for costs in restarts]


def against_sidecar(asked: Asked) -> str:
    """Every policy against the rule of SideCar, at one restart cost."""
    header, rows = ["policy"], []
    for gap_s in GAPS_S[: 1 if asked.quick else None]:
        header += [f"JCT, gaps of {gap_s:g} s", "makespan", "energy"]
    for policy in ("fifo", *OTHERS, *COMPARED):
        cells = [f"`{policy}`"]
        for setting in settings(asked, RESTARTS[1:2]):
            for field in ("jct_mean_s", "makespan_s", "energy_j"):
                cells.append(
                    "1" if policy == "sidecar" else interval(setting.ratio(policy, "sidecar", field))
                )
        rows.append(cells)
    return table(header, rows)


def ours(asked: Asked) -> str:
    """Our policies against the rule of SideCar at every restart cost, with the worst seed."""
    header = ["gaps, restart, policy", "JCT", "worst seed", "makespan", "worst seed", "decision p99, ms"]
    rows = []
    for setting in settings(asked):
        for policy in ("elastic", "elastic-makespan"):
            cells = [f"{setting.short}, `{policy}`"]
            for field in ("jct_mean_s", "makespan_s"):
                ratio = setting.ratio(policy, "sidecar", field)
                cells += [interval(ratio, 3), f"{ratio.max():.3f}"]
            rows.append([*cells, f"{1e3 * setting.values(policy, 'decision_p99_s').max():.0f}"])
    return table(header, rows)


def elastic(asked: Asked) -> str:
    """All policies."""
    parts = {
        "Against `sidecar` at restarts of 10 s and 60 s": against_sidecar(asked),
        "Ours against `sidecar` at the same restart cost": ours(asked),
    }
    return sections(parts)


def sidecar(asked: Asked) -> str:
    """Published gains, those of the rule, and ours, with 95 % confidence intervals and the best seed."""
    pairs = [(base, field) for base in ("fifo", "termination") for field in FIELDS]
    header = ["gaps, restart, policy", *(f"{FIELDS[field]} vs `{base}`, %" for base, field in pairs)]
    rows = [["published, at best", "-45", "-63", "-20", "-37"]]
    for setting in settings(asked, HEADLINE):
        for policy in ("sidecar", "elastic-makespan", "sizing"):
            cells = [f"{setting.name}, `{policy}`"]
            for base, field in pairs:
                percent = 100 * (setting.ratio(policy, base, field) - 1)
                cells.append(f"{interval(percent, 0)}, best {percent.min():.0f}")
            rows.append(cells)
    return table(header, rows)


TABLES = {"elastic": elastic, "sidecar": sidecar}

if __name__ == "__main__":
    run(__doc__, TABLES, seeds=10)
