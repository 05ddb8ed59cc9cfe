"""Our placement policies against the published ones and against any placement, on the Alibaba lists.

    WATTSCHED_DATA=... python benchmarks/placement_bids.py [--runs FILE] [--processes N] [--write]

FILE keeps the runs, those of benchmarks/placement.py too; ``--write`` puts the tables into docs/tables.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import fields
from pathlib import Path

import numpy as np
from placement import POWER_LISTS, POWER_POLICIES, PUBLISHED, SEEDS, Runs, run_missing
from tables import FOLDER, machine, table, write

from wattsched.instances.traces.openb import read_nodes, read_tasks
from wattsched.plot import save
from wattsched.plot.placements import placement_figure
from wattsched.replay.placement.bounds import Distances, distances
from wattsched.replay.placement.curves import Curves, saving_pct
from wattsched.replay.placement.stream import Experiment

OURS = ("bid", "bid-reserve")
AT = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 1.0)
GOAL_AT = (0.8, 0.9, 0.95)
HOSTS_ALL = 0.999
"""GRAR from which a policy counts as one that hosts all that arrived: FGD's own, at 0.95 on `default`."""
DRAWN = ("fgd", "pwr", "pwr+fgd:300/700", "best-fit", "bid")
GAP = 0.002
EVERY = 1


def at_points(curves: Curves) -> Curves:
    """The curves at the points of the table only."""
    at = [curves.at(x) for x in AT]
    return Curves(**{field.name: getattr(curves, field.name)[at] for field in fields(curves)})


def rows_of(curves: dict[str, Curves], bound: Distances) -> str:
    """Power saved with respect to FGD, and what no placement can surpass."""
    fgd = curves["fgd"]
    rows = []
    for policy in ("pwr", "pwr+fgd:300/700", "pwr+fgd:50/950", *OURS):
        of = curves[policy]
        saved = saving_pct(of, fgd)
        cells = [f"{saved[of.at(x)]:.1f}" for x in AT]
        rows.append([f"`{policy}`", *cells, f"{of.grar[of.at(1.0)]:.4f}"])
    rows.append(["`fgd`", *["0"] * len(AT), f"{fgd.grar[fgd.at(1.0)]:.4f}"])
    fgd_w = at_points(fgd).eopc_w
    most = 100 * (1 - bound.eopc_w / fgd_w)
    cells = [f"{saved:.1f}" if np.isfinite(saved) else "-" for saved in most]
    grar = bound.allocated_pct[AT.index(1.0)] / 100
    rows.append(["bound: all that arrived is hosted", *cells, f"{grar:.4f}"])
    for policy in ("fgd", "pwr", *OURS):
        floor = 100 * (1 - bound.floor_w[policy] / fgd_w)
        rows.append([f"bound: as much as `{policy}` is", *(f"{saved:.1f}" for saved in floor), ""])
    return table(["power saved, %, at x =", *(f"{x:g}" for x in AT), "GRAR(1)"], rows)


def gaps_closed(curves: dict[str, Curves], bound: Distances) -> list[str]:
    """Part of the gap between the best published policy that hosts all, and the bound, that ours close."""
    fgd = curves["fgd"]
    cells = []
    for x in GOAL_AT:
        at = fgd.at(x)
        published = {p: c for p, c in curves.items() if p not in OURS and c.grar[at] >= HOSTS_ALL}
        least = float(bound.eopc_w[AT.index(x)])
        if not published or curves["bid"].grar[at] < HOSTS_ALL or not np.isfinite(least):
            cells.append("not all can be hosted")
            continue
        best = min(float(c.eopc_w[at]) for c in published.values())
        ours = float(curves["bid"].eopc_w[at])
        cells.append(f"{100 * (best - ours) / (best - least):.0f} %")
    return cells


def worse_than_pwr(curves: dict[str, Curves]) -> str:
    """Where `bid` draws more than PWR, and from where PWR refuses tasks."""
    ours, pwr = curves["bid"], curves["pwr"]
    until = int(np.argmax(pwr.grar < HOSTS_ALL)) if (pwr.grar[1:] < HOSTS_ALL).any() else len(pwr.arrived)
    excess = 100 * (ours.eopc_w / pwr.eopc_w - 1)[1:until]
    first = f"{pwr.arrived[until]:.2f}" if until < len(pwr.arrived) else "never"
    return f"{max(0.0, float(excess.max())):.2f} % | {first}"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=Path, default=Path("placement-runs.jsonl"), metavar="FILE")
    parser.add_argument("--processes", type=int, default=1, metavar="N")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/tables")
    arguments = parser.parse_args()
    if "WATTSCHED_DATA" not in os.environ:
        raise SystemExit("set WATTSCHED_DATA to the folder of the public data sets")
    traces = Path(os.environ["WATTSCHED_DATA"]) / "alibaba-gpu-2023"
    runs = Runs(arguments.runs)
    parts, summary = [], []
    for name in POWER_LISTS:
        policies = (*PUBLISHED, *POWER_POLICIES, *OURS)
        run_missing(runs, traces, name, policies, arguments.processes)
        curves = {policy: runs.mean(name, policy) for policy in policies}
        experiment = Experiment(
            read_nodes(traces / "openb_node_list_gpu_node.csv"),
            read_tasks(traces / f"openb_pod_list_{name}.csv"),
        )
        compared = {policy: at_points(curves[policy]) for policy in ("fgd", "pwr", *OURS)}
        bound = distances(experiment, compared, list(SEEDS), GAP, every=EVERY)
        parts.append(f"## `{name}`\n\n{rows_of(curves, bound)}")
        excess, refuses = worse_than_pwr(curves).split(" | ")
        grar = [f"{curves[p].grar[curves[p].at(1.0)]:.4f}" for p in ("bid", "bid-reserve", "fgd")]
        if arguments.write and name == POWER_LISTS[0]:
            drawn = {policy: runs.of(name, policy) for policy in DRAWN}
            save(placement_figure(drawn), FOLDER / "placement.svg")
        summary.append([f"`{name}`", excess, refuses, *grar, *gaps_closed(curves, bound)])
    header = ["list", "most that `bid` draws above `pwr` while that hosts all", "`pwr` refuses from x ="]
    header += ["GRAR(1) `bid`", "`bid-reserve`", "`fgd`", *(f"gap closed at {x:g}" for x in GOAL_AT)]
    text = "\n\n".join([table(header, summary), *parts, f"Bounds within {GAP:g}, on {machine()}."])
    print(text)
    if arguments.write:
        write("placement-bids", text)


if __name__ == "__main__":
    main()
