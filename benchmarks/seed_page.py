"""The figures of `seeds` as tables."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from suite_cases import MEMBERS
from tables import table

from wattsched.comparisons.statistics import shifted_geometric_mean


def content(runs: list[dict[str, Any]], gaps: Sequence[float]) -> str:
    """All tables as Markdown.

    Parameters
    ----------
    gaps : sequence of float
        That of `price`, from the coarsest to the finest; all solvers are asked for the second.
    """
    frame = counted(pd.DataFrame(runs))
    cases = [(str(name), part) for name, part in frame.groupby("case", sort=False)]
    gap = gaps[1]
    parts = [
        f"## The programs\n\n{_programs(cases)}",
        f"## `price` against HiGHS, CPU seconds\n\n{_against_highs(cases, gap, gaps[-1])}",
        f"## All solvers at {gap:g}\n\n{_solvers(cases, gap)}",
        f"## `auto` over the best of its members, wall seconds at {gap:g}\n\n{_auto(cases, gap)}",
        f"## Gaps: CPU seconds of `price`\n\n{_gaps(cases, gaps)}",
        "Means are geometric. A run that did not reach its gap counts with the limit; *cut* is how many did "
        "so. Where only HiGHS was cut, the ratio is a lower bound; where `price` was, it is an upper bound.",
    ]
    return "\n\n".join(parts)


def counted(frame: pd.DataFrame) -> pd.DataFrame:
    """Runs with the gap they reached, and with the limit as seconds where that is not the one asked for."""
    objective, bound = frame["objective"].astype(float), frame["bound"].astype(float)
    gap = (objective - bound).abs() / objective.abs().clip(lower=1e-9)
    reached = frame["ended"].isin(["optimal", "infeasible"])
    seconds = {name: frame[name].where(reached, frame["limit_s"]) for name in ("cpu_s", "wall_s")}
    return frame.assign(gap=gap.fillna(np.inf), reached=reached, **seconds)


def geometric_mean(values: pd.Series[float]) -> float:
    """Geometric mean of seconds or ratios."""
    return shifted_geometric_mean(values, 0.0)


def _seconds(case: pd.DataFrame, kind: str, solver: str, gap: float) -> pd.Series[float]:
    """Seconds by seed."""
    runs = case[(case["solver"] == solver) & (case["gap_asked"] == gap)]
    return runs.set_index("seed")[kind]


def _cut(case: pd.DataFrame, solver: str, gap: float) -> str:
    runs = case[(case["solver"] == solver) & (case["gap_asked"] == gap)]
    return f"{int((~runs['reached']).sum())}"


def _programs(cases: list[tuple[str, pd.DataFrame]]) -> str:
    sizes = [(name, [case[part].mean() for part in ("columns", "rows")]) for name, case in cases]
    return table(["case", "columns", "rows"], [(name, *(f"{n:,.0f}" for n in size)) for name, size in sizes])


def _against_highs(cases: list[tuple[str, pd.DataFrame]], gap: float, fine: float) -> str:
    header = ["case", "gap of `price`", "CPU s, mean", "cut", f"HiGHS at {gap:g}", "HiGHS cut",
              "times faster", "worst", "seed"]  # fmt: skip
    rows = []
    for name, case in cases:
        highs = _seconds(case, "cpu_s", "highs", gap)
        for asked in (gap, fine):
            ours = _seconds(case, "cpu_s", "price", asked)
            ratio = highs / ours
            cells = [name, f"{asked:g}", f"{geometric_mean(ours):.3f}", _cut(case, "price", asked)]
            cells += [f"{geometric_mean(highs):.3f}", _cut(case, "highs", gap)]
            rows.append([*cells, f"{geometric_mean(ratio):.3g}", f"{ratio.min():.3g}", str(ratio.idxmin())])
    return table(header, rows)


def _solvers(cases: list[tuple[str, pd.DataFrame]], gap: float) -> str:
    header = ["case", "solver", "CPU s, mean", "worst", "wall s, mean", "cut", "gap, median", "worst"]
    rows = []
    for name, case in cases:
        for solver, runs in case[case["gap_asked"] == gap].groupby("solver", sort=False):
            cpu_s, wall_s = runs["cpu_s"], runs["wall_s"]
            seconds = (geometric_mean(cpu_s), cpu_s.max(), geometric_mean(wall_s))
            cells = [
                name,
                f"`{solver}`",
                *(f"{value:.3f}" for value in seconds),
                _cut(case, str(solver), gap),
            ]
            rows.append([*cells, _gap(runs["gap"].median()), _gap(runs["gap"].max())])
    return table(header, rows)


def _auto(cases: list[tuple[str, pd.DataFrame]], gap: float) -> str:
    header = ["case", "ratio", "worst", "seed", "best there", "`auto`, s", "best, s"]
    rows = []
    for name, case in cases:
        auto = _seconds(case, "wall_s", "auto", gap)
        members = pd.DataFrame({member: _seconds(case, "wall_s", member, gap) for member in MEMBERS})
        ratio = auto / members.min(axis=1)
        worst = ratio.idxmax()
        cells = [name, f"{geometric_mean(ratio):.2f}", f"{ratio.max():.2f}", str(worst)]
        best = members.loc[worst]
        rows.append([*cells, f"`{best.idxmin()}`", f"{auto[worst]:.3f}", f"{best.min():.3f}"])
    return table(header, rows)


def _gaps(cases: list[tuple[str, pd.DataFrame]], gaps: Sequence[float]) -> str:
    header = ["case", *(f"{gap:g}" for gap in gaps), "coarser over finer, worst", "seed"]
    rows = []
    for name, case in cases:
        seconds = pd.DataFrame({gap: _seconds(case, "cpu_s", "price", gap) for gap in gaps})
        ratios = {coarse: seconds[coarse] / seconds[fine] for coarse, fine in pairwise(gaps)}
        ratio = pd.DataFrame(ratios).max(axis=1)
        means = [f"{geometric_mean(seconds[gap]):.3f}" for gap in gaps]
        rows.append([name, *means, f"{ratio.max():.2f}", str(ratio.idxmax())])
    return table(header, rows)


def _gap(gap: float) -> str:
    return "-" if not np.isfinite(gap) else "0" if gap < 1e-12 else f"{gap:.1e}"
