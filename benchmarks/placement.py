"""Placement policies on Alibaba's lists: FGD's results reproduced, power saved, and ours against the bound.

    python -m benchmarks.placement --write [--only placement-lists] [--runs FILE] [--processes N]

FILE keeps the runs; those that it has are not run again. Seeds begin at 42, as those of FGD's artifact.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.harness import FOLDER, Asked, data, machine, run, say, sections, table, timed
from wattsched.instances.traces.openb import read_nodes, read_tasks
from wattsched.plot import save
from wattsched.plot.placements import placement_figure
from wattsched.plot.style import COLOURS, label, tidy
from wattsched.replay.placement.bounds import Distances, distances
from wattsched.replay.placement.curves import Curves, mean, saving_pct
from wattsched.replay.placement.stream import Experiment, run_all

FIRST = 42
PUBLISHED = {
    "random": "01-Random",
    "dot-product": "02-DotProd",
    "gpu-clustering": "03-GpuClustering",
    "gpu-packing": "04-GpuPacking",
    "best-fit": "05-BestFit",
    "fgd": "06-FGD",
}
"""Policy to its name in FGD's artifact."""
POWER_POLICIES = ("pwr", *(f"pwr+fgd:{w}/{1000 - w}" for w in (500, 300, 200, 100, 50, 25)))
POWER_LISTS = ("default", "gpuspec33", "gpushare100", "multigpu50")
POWER_AT = (0.05, 0.1, 0.15, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 1.0)
OURS = ("bid", "bid-reserve")
BOUND_AT = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 1.0)
GOAL_AT = (0.8, 0.9, 0.95)
SAVED_AT = (0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95)
HOSTS_ALL = 0.999
"""GRAR from which a policy counts as one that hosts all that arrived: FGD's own, at 0.95 on `default`."""
DRAWN = ("fgd", "pwr", "pwr+fgd:300/700", "best-fit", "bid")
GAP = 0.002
EVERY_PCT = 5


class Measure(NamedTuple):
    """A curve of ours, the file of the artifact that has it, and the points of the table of all policies."""

    name: str
    curve: str
    file: str
    points: tuple[int, ...]


MEASURES = (
    Measure("allocation", "allocated_pct", "analysis_allo_discrete.csv", (100, 130)),
    Measure("fragmentation", "frag_pct", "analysis_frag_discrete.csv", (40, 80, 100)),
)

# -- runs and published values ---------------------------------------------------------------------------


class Runs:
    """Curves by list, policy and seed, which a file remembers, one JSON document per line."""

    def __init__(self, asked: Asked) -> None:
        self.path, self.processes = Path(asked.runs), asked.processes
        self.seeds = range(FIRST, FIRST + asked.seeds)
        self.curves: dict[tuple[str, str, int], Curves] = {}
        for line in self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else ():
            one = json.loads(line)
            curves = Curves(**{name: np.array(values) for name, values in one["curves"].items()})
            self.curves[one["list"], one["policy"], one["seed"]] = curves

    def of(self, name: str, policy: str) -> list[Curves]:
        """Curves of all seeds; those that are not known yet are made."""
        missing = [seed for seed in self.seeds if (name, policy, seed) not in self.curves]
        if missing:
            made, seconds = timed(lambda: list(run_all(experiment(name), [policy], missing, self.processes)))
            say(f"{name}: {policy}: {len(missing)} runs, {seconds / len(missing):.1f} s each")
            for _, seed, curves in made:
                self.curves[name, policy, seed] = curves
                values = {curve: found.tolist() for curve, found in asdict(curves).items()}
                document = {"list": name, "policy": policy, "seed": seed, "curves": values}
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(document) + "\n")
        return [self.curves[name, policy, seed] for seed in self.seeds]

    def mean(self, name: str, policy: str) -> Curves:
        """Mean over the seeds."""
        return mean(self.of(name, policy))


@cache
def experiment(name: str) -> Experiment:
    """Nodes and tasks of a list."""
    traces = data("alibaba-gpu-2023")
    nodes = read_nodes(traces / "openb_node_list_gpu_node.csv")
    return Experiment(nodes, read_tasks(traces / f"openb_pod_list_{name}.csv"))


def lists() -> list[str]:
    """Names of the task lists."""
    paths = data("alibaba-gpu-2023").glob("openb_pod_list_*.csv")
    return sorted(path.stem.removeprefix("openb_pod_list_") for path in paths)


@cache
def published(measure: Measure) -> dict[tuple[str, str], dict[int, float]]:
    """Means over the artifact's seeds, by list and policy, then by percent of arrived demand."""
    found: dict[tuple[str, str], dict[int, list[float]]] = {}
    with data(f"fgd-results-2023/{measure.file}").open(newline="", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            points = found.setdefault((row["workload"].removeprefix("openb_pod_list_"), row["sc_policy"]), {})
            for point in (name for name in row if name.isdigit() and int(name) > 0):
                points.setdefault(int(point), []).append(float(row[point]))
    return {
        key: {point: float(np.mean(values)) for point, values in sorted(points.items())}
        for key, points in found.items()
    }


def published_lists() -> list[str]:
    """Lists of which there are published results."""
    return [name for name in lists() if (name, PUBLISHED["fgd"]) in published(MEASURES[0])]


# -- the tables ------------------------------------------------------------------------------------------


def reproduction(asked: Asked) -> str:
    """Our means and how far they are from the published ones."""
    runs, gaps, parts = Runs(asked), dict[tuple[str, str], list[float]](), dict[str, str]()
    titles = [(measure, point) for measure in MEASURES for point in measure.points]
    for measure, point in titles:
        title, rows = f"{measure.name} at {point} %", []
        for name in published_lists():
            cells = [f"`{name}`"]
            for policy, theirs in PUBLISHED.items():
                value = float(getattr(runs.mean(name, policy), measure.curve)[point])
                gap = value - published(measure)[name, theirs][point]
                gaps.setdefault((policy, title), []).append(abs(gap))
                cells.append(f"{value:.2f} ({gap:+.2f})")
            rows.append(cells)
        parts[title.capitalize()] = table(["list", *(f"`{policy}`" for policy in PUBLISHED)], rows)
    names = [f"{measure.name} at {point} %" for measure, point in titles]
    summary = [
        [f"`{policy}`", *(f"{np.mean(g):.2f} / {max(g):.2f}" for g in (gaps[policy, name] for name in names))]
        for policy in reversed(PUBLISHED)
    ]
    return f"{table(['policy: mean / largest difference', *names], summary)}\n\n{sections(parts)}"


def power(asked: Asked) -> str:
    """Power saved with respect to FGD, and the GRAR at the end."""
    runs, parts = Runs(asked), {}
    for name in (name for name in POWER_LISTS if name in published_lists()):
        fgd, rows = runs.mean(name, "fgd"), []
        for policy in (*POWER_POLICIES, *reversed(PUBLISHED)):
            of = runs.mean(name, policy)
            saved = ["0"] * len(POWER_AT) if policy == "fgd" else saved_cells(of, fgd, POWER_AT)
            rows.append([f"`{policy}`", *saved, f"{of.grar[of.at(1.0)]:.3f}"])
        kilowatts = [f"{fgd.eopc_w[fgd.at(x)] / 1000:.1f}" for x in POWER_AT]
        header = ["power saved, %, at x =", *(f"{x:g}" for x in POWER_AT), "GRAR(1)"]
        parts[f"`{name}`"] = table(header, [*rows, ["EOPC of `fgd`, kW", *kilowatts, ""]])
    return sections(parts)


def saved_cells(curves: Curves, fgd: Curves, at: Iterable[float]) -> list[str]:
    """Power saved with respect to FGD, in percent."""
    saved = saving_pct(curves, fgd)
    return [f"{saved[curves.at(x)]:.1f}" for x in at]


def fgd_curves(asked: Asked) -> str:
    """FGD's published curves at every 5 % of arrivals against ours, in points of the capacity."""
    runs, names, parts = Runs(asked), published_lists(), {}
    for measure in MEASURES:
        theirs = {name: published(measure)[name, PUBLISHED["fgd"]] for name in names}
        points = [point for point in theirs[names[0]] if point % EVERY_PCT == 0]
        rows = []
        for name in names:
            ours = getattr(runs.mean(name, "fgd"), measure.curve)
            gaps = np.array([ours[point] - theirs[name][point] for point in points])
            rows.append([f"`{name}`", *(f"{gap:+.2f}" for gap in gaps), f"{np.abs(gaps).max():.2f}"])
        header = ["ours less published at", *(f"{point} %" for point in points), "largest"]
        parts[f"{measure.name.capitalize()}, points of the capacity"] = table(header, rows)
    if asked.write:
        draw_fgd(runs, names)
    return sections(parts)


def draw_fgd(runs: Runs, names: Sequence[str]) -> None:
    """Our curves as lines, the published points as dots."""
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(6.4, 6.4), layout="constrained")
    parts = drawn.subplots(2, 1, sharex=True)
    for measure, axes in zip(MEASURES, parts, strict=True):
        for number, name in enumerate(names):
            ours, points = runs.mean(name, "fgd"), published(measure)[name, PUBLISHED["fgd"]]
            shown = {point: value for point, value in points.items() if point % EVERY_PCT == 0}
            color = COLOURS[number % len(COLOURS)]
            axes.plot(100 * ours.arrived, getattr(ours, measure.curve), color=color, linewidth=0.8)
            axes.plot(list(shown), list(shown.values()), ".", color=color, markersize=4)
        label(axes, "GPU asked for, % of the capacity", f"{measure.name}, % of the capacity")
        tidy(axes)
    parts[0].set_xlabel("")
    save(drawn, FOLDER / "placement-curves.svg")


def hosted_until(curves: Curves) -> int:
    """Position of the first point of the grid, behind 0, at which a policy does not host everything."""
    refuses = curves.grar < HOSTS_ALL
    return int(refuses.argmax()) if refuses.any() else len(refuses)


def most_above_pct(ours: Curves, pwr: Curves) -> float:
    """Most that a policy draws above PWR on the same tasks until that refuses one."""
    return float(np.max(100 * (ours.eopc_w / pwr.eopc_w - 1)[1 : hosted_until(pwr)], initial=-np.inf))


def on_every_list(asked: Asked) -> str:
    """`bid` against FGD's GRAR and PWR's power."""
    runs, rows = Runs(asked), []
    for name in lists():
        fgd, pwr, bid = (runs.mean(name, policy) for policy in ("fgd", "pwr", "bid"))
        end, each = fgd.at(1.0), runs.of(name, "pwr")
        refuses = [one.arrived[until] for one in each if (until := hosted_until(one)) < len(one.arrived)]
        above = [most_above_pct(*pair) for pair in zip(runs.of(name, "bid"), each, strict=True)]
        rows.append(
            [
                f"`{name}`",
                *(f"{of.grar[end]:.4f}" for of in (pwr, fgd, bid)),
                f"{bid.grar[end] - fgd.grar[end]:+.4f}",
                f"{np.mean(refuses):.2f}" if refuses else "never",
                *(f"{value:+.2f} %" for value in (np.mean(above), np.max(above))),
                *saved_cells(bid, fgd, SAVED_AT),
            ]
        )
    header = ["list", "GRAR(1) of `pwr`", "`fgd`", "`bid`", "`bid` less `fgd`", "`pwr` refuses from x ="]
    header += ["most that `bid` draws above `pwr` until then", "worst seed"]
    header += [f"power saved to `fgd`, %, at {x:g}" for x in SAVED_AT]
    about = f"Means over the seeds {runs.seeds[0]} to {runs.seeds[-1]}; PWR refuses from a GRAR below "
    return f"{table(header, rows)}\n\n{about}{HOSTS_ALL} on."


def against_the_bound(asked: Asked) -> str:
    """Our policies against the published ones and against any placement."""
    runs, parts, summary = Runs(asked), {}, []
    for name in POWER_LISTS:
        curves = {policy: runs.mean(name, policy) for policy in (*PUBLISHED, *POWER_POLICIES, *OURS)}
        compared = {policy: at_points(curves[policy]) for policy in ("fgd", "pwr", *OURS)}
        bound = distances(experiment(name), compared, list(runs.seeds), GAP, every=1)
        parts[f"`{name}`"] = table(
            ["power saved, %, at x =", *(f"{x:g}" for x in BOUND_AT), "GRAR(1)"],
            [*policy_rows(curves), *bound_rows(compared, bound)],
        )
        pwr = curves["pwr"]
        until = hosted_until(pwr)
        first = f"{pwr.arrived[until]:.2f}" if until < len(pwr.arrived) else "never"
        grar = [f"{curves[p].grar[curves[p].at(1.0)]:.4f}" for p in (*OURS, "fgd")]
        excess = f"{max(0.0, most_above_pct(curves['bid'], pwr)):.2f} %"
        summary.append([f"`{name}`", excess, first, *grar, *gaps_closed(curves, bound)])
        if asked.write and name == POWER_LISTS[0]:
            save(
                placement_figure({policy: runs.of(name, policy) for policy in DRAWN}),
                FOLDER / "placement.svg",
            )
    header = ["list", "most that `bid` draws above `pwr` while that hosts all", "`pwr` refuses from x ="]
    header += ["GRAR(1) `bid`", "`bid-reserve`", "`fgd`", *(f"gap closed at {x:g}" for x in GOAL_AT)]
    about = f"Bounds within {GAP:g}, on {machine()}."
    return f"{table(header, summary)}\n\n{sections(parts)}\n\n{about}"


def at_points(curves: Curves) -> Curves:
    """The curves at the points of the table only."""
    at = [curves.at(x) for x in BOUND_AT]
    return Curves(**{field.name: getattr(curves, field.name)[at] for field in fields(curves)})


def policy_rows(curves: dict[str, Curves]) -> list[list[str]]:
    """Power saved with respect to FGD."""
    fgd, rows = curves["fgd"], []
    for policy in ("pwr", "pwr+fgd:300/700", "pwr+fgd:50/950", *OURS):
        of = curves[policy]
        rows.append([f"`{policy}`", *saved_cells(of, fgd, BOUND_AT), f"{of.grar[of.at(1.0)]:.4f}"])
    return [*rows, ["`fgd`", *["0"] * len(BOUND_AT), f"{fgd.grar[fgd.at(1.0)]:.4f}"]]


def bound_rows(compared: dict[str, Curves], bound: Distances) -> list[list[str]]:
    """Power that no placement can save more of."""
    fgd_w = compared["fgd"].eopc_w
    most = 100 * (1 - bound.eopc_w / fgd_w)
    cells = [f"{saved:.1f}" if np.isfinite(saved) else "-" for saved in most]
    grar = bound.allocated_pct[BOUND_AT.index(1.0)] / 100
    rows = [["bound: all that arrived is hosted", *cells, f"{grar:.4f}"]]
    for policy in ("fgd", "pwr", *OURS):
        floor = 100 * (1 - bound.floor_w[policy] / fgd_w)
        rows.append([f"bound: as much as `{policy}` is", *(f"{saved:.1f}" for saved in floor), ""])
    return rows


def gaps_closed(curves: dict[str, Curves], bound: Distances) -> list[str]:
    """Part of the gap between the best published policy that hosts all, and the bound, that ours close."""
    cells = []
    for x in GOAL_AT:
        at = curves["fgd"].at(x)
        hosting = {policy: float(of.eopc_w[at]) for policy, of in curves.items() if of.grar[at] >= HOSTS_ALL}
        theirs = [watts for policy, watts in hosting.items() if policy not in OURS]
        least = float(bound.eopc_w[BOUND_AT.index(x)])
        if not theirs or "bid" not in hosting or not np.isfinite(least):
            cells.append("not all can be hosted")
        else:
            cells.append(f"{100 * (min(theirs) - hosting['bid']) / (min(theirs) - least):.0f} %")
    return cells


TABLES = {
    "placement-reproduction": reproduction,
    "placement-curves": fgd_curves,
    "placement-power": power,
    "placement-lists": on_every_list,
    "placement-bids": against_the_bound,
}

if __name__ == "__main__":
    run(__doc__, TABLES, seeds=10, runs="placement-runs.jsonl", processes=1)
