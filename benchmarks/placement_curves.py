"""FGD's published curves at every 5 % of arrivals against ours, on every list of the artifact that is there.

    WATTSCHED_DATA=... python benchmarks/placement_curves.py [--runs FILE] [--processes N] [--write]

FILE keeps the runs, those of benchmarks/placement.py too; ``--write`` puts table and figure into docs/tables.
"""

from __future__ import annotations

import argparse
import csv
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from placement import PUBLISHED, Runs, lists_in, run_missing
from tables import FOLDER, table, write

from wattsched.plot import save
from wattsched.plot.style import COLOURS, Figure, label, tidy
from wattsched.topology.arrays import FloatArray

POLICY = "fgd"
EVERY = 5
FIGURE_IN = (6.4, 6.4)
MEASURES = {
    "allocation": ("allocated_pct", "analysis_allo_discrete.csv"),
    "fragmentation": ("frag_pct", "analysis_frag_discrete.csv"),
}
"""What is compared: our curve, and the published file."""

Points = dict[int, float]


def published(path: Path) -> dict[str, Points]:
    """Means over the seeds of the artifact by list and percent of arrived demand."""
    runs: dict[str, dict[int, list[float]]] = {}
    with path.open(newline="", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            if row["sc_policy"] == PUBLISHED[POLICY]:
                of = runs.setdefault(row["workload"].removeprefix("openb_pod_list_"), {})
                for point in (name for name in row if name.isdigit() and int(name) % EVERY == 0):
                    of.setdefault(int(point), []).append(float(row[point]))
    return {
        name: {point: float(np.mean(values)) for point, values in sorted(of.items()) if point}
        for name, of in runs.items()
    }


def differences(ours: FloatArray, theirs: Points) -> FloatArray:
    """Ours less theirs at the published points, in points of the capacity."""
    return np.array([ours[point] - value for point, value in theirs.items()])


def table_of(found: dict[str, FloatArray], points: Iterable[int]) -> str:
    """One row for each list."""
    rows = [
        [f"`{name}`", *(f"{gap:+.2f}" for gap in gaps), f"{np.abs(gaps).max():.2f}"]
        for name, gaps in found.items()
    ]
    return table(["ours less published at", *(f"{point} %" for point in points), "largest"], rows)


def figure(runs: Runs, theirs: dict[str, dict[str, Points]], names: Sequence[str]) -> Figure:
    """Our curves as lines, the published points as dots."""
    from matplotlib.figure import Figure

    drawn = Figure(figsize=FIGURE_IN, layout="constrained")
    parts = drawn.subplots(2, 1, sharex=True)
    for (measure, (curve, _file)), axes in zip(MEASURES.items(), parts, strict=True):
        for number, name in enumerate(names):
            ours, points = runs.mean(name, POLICY), theirs[measure][name]
            color = COLOURS[number % len(COLOURS)]
            axes.plot(100 * ours.arrived, getattr(ours, curve), color=color, linewidth=0.8)
            axes.plot(list(points), list(points.values()), ".", color=color, markersize=4)
        label(axes, "GPU asked for, % of the capacity", f"{measure}, % of the capacity")
        tidy(axes)
    parts[0].set_xlabel("")
    return drawn


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=Path, default=Path("placement-runs.jsonl"), metavar="FILE")
    parser.add_argument("--processes", type=int, default=1, metavar="N")
    parser.add_argument("--write", action="store_true", help="put table and figure into docs/tables")
    arguments = parser.parse_args()
    if "WATTSCHED_DATA" not in os.environ:
        raise SystemExit("set WATTSCHED_DATA to the folder of the public data sets")
    data = Path(os.environ["WATTSCHED_DATA"])
    traces = data / "alibaba-gpu-2023"
    theirs = {measure: published(data / "fgd-results-2023" / file) for measure, (_, file) in MEASURES.items()}
    names = [name for name in lists_in(traces) if name in theirs["allocation"]]
    runs = Runs(arguments.runs)
    for name in names:
        run_missing(runs, traces, name, [POLICY], arguments.processes)
    parts = []
    for measure, (curve, _file) in MEASURES.items():
        found = {
            name: differences(getattr(runs.mean(name, POLICY), curve), theirs[measure][name])
            for name in names
        }
        rows = table_of(found, theirs[measure][names[0]])
        parts.append(f"## {measure[0].upper()}{measure[1:]}, points of the capacity\n\n{rows}")
    text = "\n\n".join(parts)
    print(text)
    if arguments.write:
        write("placement-curves", text)
        save(figure(runs, theirs, names), FOLDER / "placement-curves.svg")


if __name__ == "__main__":
    main()
