"""Replay the published placement policies on the Alibaba lists, and compare with the published results.

    WATTSCHED_DATA=... python benchmarks/placement.py [--runs FILE] [--processes N] [--write]

Every run is kept in FILE and not run again; ``--write`` puts the tables into docs/tables.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from tables import table, write

from wattsched.instances.traces.openb import read_nodes, read_tasks
from wattsched.replay.placement.curves import Curves, mean, saving_pct
from wattsched.replay.placement.stream import Experiment, run_all

SEEDS = range(42, 52)
PUBLISHED = {
    "random": "01-Random",
    "dot-product": "02-DotProd",
    "gpu-clustering": "03-GpuClustering",
    "gpu-packing": "04-GpuPacking",
    "best-fit": "05-BestFit",
    "fgd": "06-FGD",
}
"""Policy to its name in FGD's artifact."""
POWER_POLICIES = (
    "pwr", "pwr+fgd:500/500", "pwr+fgd:300/700", "pwr+fgd:200/800", "pwr+fgd:100/900", "pwr+fgd:50/950",
    "pwr+fgd:25/975",
)  # fmt: skip
POWER_LISTS = ("default", "gpuspec33", "gpushare100", "multigpu50")
POWER_AT = (0.05, 0.1, 0.15, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 1.0)

MEASURES = (
    ("allocation at 100 %", "allocated_pct", "analysis_allo_discrete.csv", 100),
    ("allocation at 130 %", "allocated_pct", "analysis_allo_discrete.csv", 130),
    ("fragmentation at 40 %", "frag_pct", "analysis_frag_discrete.csv", 40),
    ("fragmentation at 80 %", "frag_pct", "analysis_frag_discrete.csv", 80),
    ("fragmentation at 100 %", "frag_pct", "analysis_frag_discrete.csv", 100),
)
"""What is compared: its name, our curve, the published file and its column, percent of arrived demand."""

Key = tuple[str, str, int]


class Runs:
    """Runs that a file remembers, one JSON document per line."""

    def __init__(self, path: Path):
        self.path = path
        self.curves: dict[Key, Curves] = {}
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                run = json.loads(line)
                curves = Curves(**{name: np.array(values) for name, values in run["curves"].items()})
                self.curves[run["list"], run["policy"], run["seed"]] = curves

    def add(self, key: Key, curves: Curves) -> None:
        """Remember a run, here and in the file."""
        self.curves[key] = curves
        values = {name: curve.tolist() for name, curve in asdict(curves).items()}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(
                json.dumps(dict(zip(("list", "policy", "seed"), key, strict=True), curves=values)) + "\n"
            )

    def of(self, name: str, policy: str, seeds: Iterable[int] = SEEDS) -> list[Curves]:
        """Curves of all seeds."""
        return [self.curves[name, policy, seed] for seed in seeds]

    def mean(self, name: str, policy: str, seeds: Iterable[int] = SEEDS) -> Curves:
        """Mean over the seeds."""
        return mean(self.of(name, policy, seeds))


@dataclass(frozen=True)
class Published:
    """Means over the seeds of FGD's artifact."""

    values: dict[tuple[str, str, str, int], float]

    @classmethod
    def read(cls, folder: Path) -> Published:
        """Read the values that are compared."""
        found: dict[tuple[str, str, str, int], list[float]] = {}
        for _, _, file, point in MEASURES:
            with (folder / file).open(newline="", encoding="utf-8") as lines:
                for row in csv.DictReader(lines):
                    name = row["workload"].removeprefix("openb_pod_list_")
                    found.setdefault((name, row["sc_policy"], file, point), []).append(float(row[str(point)]))
        return cls({key: sum(values) / len(values) for key, values in found.items()})

    def has(self, name: str) -> bool:
        """Whether the artifact has this list."""
        return any(key[0] == name for key in self.values)


def lists_in(traces: Path) -> list[str]:
    """Names of the task lists in a folder."""
    return sorted(path.stem.removeprefix("openb_pod_list_") for path in traces.glob("openb_pod_list_*.csv"))


def run_missing(
    runs: Runs,
    data: Path,
    name: str,
    policies: Iterable[str],
    processes: int,
    wanted: Sequence[int] = SEEDS,
) -> None:
    """Run what the file does not have yet."""
    experiment = Experiment(
        read_nodes(data / "openb_node_list_gpu_node.csv"), read_tasks(data / f"openb_pod_list_{name}.csv")
    )
    for policy in policies:
        seeds = [seed for seed in wanted if (name, policy, seed) not in runs.curves]
        begin = time.perf_counter()
        for _, seed, curves in run_all(experiment, [policy], seeds, processes):
            runs.add((name, policy, seed), curves)
        if seeds:
            each_s = (time.perf_counter() - begin) / len(seeds)
            print(f"{name}: {policy}: {len(seeds)} runs, {each_s:.1f} s each", file=sys.stderr)


def reproduction(runs: Runs, published: Published, names: Sequence[str]) -> str:
    """Our means and how far they are from the published ones."""
    gaps: dict[tuple[str, str], list[float]] = {}
    tables = []
    for title, curve, file, point in MEASURES:
        rows = []
        for name in names:
            cells = []
            for policy, theirs in PUBLISHED.items():
                ours = float(getattr(runs.mean(name, policy), curve)[point])
                gap = ours - published.values[name, theirs, file, point]
                gaps.setdefault((policy, title), []).append(abs(gap))
                cells.append(f"{ours:.2f} ({gap:+.2f})")
            rows.append([f"`{name}`", *cells])
        tables.append(f"## {title[0].upper()}{title[1:]}\n\n{table(['list', *_code(PUBLISHED)], rows)}")
    summary = [
        [
            f"`{policy}`",
            *(
                f"{np.mean(gaps[policy, title]):.2f} / {max(gaps[policy, title]):.2f}"
                for title, *_ in MEASURES
            ),
        ]
        for policy in reversed(PUBLISHED)
    ]
    header = ["policy: mean / largest difference", *(title for title, *_ in MEASURES)]
    return "\n\n".join([table(header, summary), *tables])


def savings(runs: Runs, name: str) -> str:
    """Power saved with respect to FGD, and the GRAR at the end."""
    reference = runs.mean(name, "fgd")
    rows = []
    for policy in (*POWER_POLICIES, *reversed(PUBLISHED)):
        curves = runs.mean(name, policy)
        saved = saving_pct(curves, reference)
        cells = [f"{saved[curves.at(x)]:.1f}" for x in POWER_AT] if policy != "fgd" else ["0"] * len(POWER_AT)
        rows.append([f"`{policy}`", *cells, f"{curves.grar[curves.at(1.0)]:.3f}"])
    kilowatts = [f"{reference.eopc_w[reference.at(x)] / 1000:.1f}" for x in POWER_AT]
    header = ["power saved, %, at x =", *(f"{x:g}" for x in POWER_AT), "GRAR(1)"]
    return table(header, [*rows, ["EOPC of `fgd`, kW", *kilowatts, ""]])


def _code(names: Iterable[str]) -> list[str]:
    return [f"`{name}`" for name in names]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=Path, default=Path("placement-runs.jsonl"), metavar="FILE")
    parser.add_argument("--processes", type=int, default=1, metavar="N")
    parser.add_argument("--list", action="append", help="only this list; may be repeated, not with --write")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/tables")
    arguments = parser.parse_args()
    if arguments.write and arguments.list:
        parser.error("--write needs all lists")
    if "WATTSCHED_DATA" not in os.environ:
        raise SystemExit("set WATTSCHED_DATA to the folder of the public data sets")
    data = Path(os.environ["WATTSCHED_DATA"])
    traces = data / "alibaba-gpu-2023"
    published = Published.read(data / "fgd-results-2023")
    lists = lists_in(traces)
    names = [name for name in lists if published.has(name) and name in (arguments.list or lists)]
    power_lists = [name for name in POWER_LISTS if name in names]
    runs = Runs(arguments.runs)
    for name in [*power_lists, *(name for name in names if name not in power_lists)]:
        policies = [*PUBLISHED, *(POWER_POLICIES if name in POWER_LISTS else ())]
        run_missing(runs, traces, name, policies, arguments.processes)
    parts = {"reproduction": reproduction(runs, published, names)}
    parts["power"] = "\n\n".join(f"## `{name}`\n\n{savings(runs, name)}" for name in power_lists)
    for part, content in parts.items():
        print(f"\n{content}\n")
        if arguments.write:
            write(f"placement-{part}", content)


if __name__ == "__main__":
    main()
