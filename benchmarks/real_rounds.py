"""Two rounds of real traces by several formulations and every solver, each answer checked.

python -m benchmarks.real_rounds --write [--limit 6]
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.harness import Asked, data, machine, run, say, table
from wattsched.comparisons.compare import compare
from wattsched.comparisons.run import Run, Settings
from wattsched.solvers.registry import names

NODES = "alibaba-gpu-2023/openb_node_list_gpu_node.csv"
ROUNDS = {
    "ITP jobs on 512 A100": (
        "--nodes",
        "64",
        "--gpus-per-node",
        "8",
        "--gpu-type",
        "A100",
        "--power-fraction",
        "0.7",
    ),
    "ITP jobs on the openb cluster": ("--cluster", NODES, "--power-fraction", "0.35"),
}
"""Title to the options of ``wattsched import itp``."""
SOLVERS = {
    "mckp": (*names(), "pyomo:highs", "pyomo:cbc", "pyomo:glpk"),
    "assignment": ("highs",),
    "intervals": ("cpsat",),
}
"""The default formulation with every solver, the others with the solver that suits them."""
GAPS = (1e-4, 1e-6)
HEADER = ("formulation, solver", "objective, s", "bound, s", "gap", "ended", "columns", "rows", "build, s",
          "solve, s", "total, s", "check")  # fmt: skip


def imported(folder: Path, title: str) -> Path:
    """Write a round into a folder."""
    trace, file = data("itp-elasticflow-2021/raw/cluster04.csv"), folder / "round.json"
    options = [str(data(word)) if word == NODES else word for word in ROUNDS[title]]
    command = [sys.executable, "-m", "wattsched", "import", "itp", str(trace), *options, "-o", str(file)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return file


def cells(one: Run) -> list[str]:
    """Row of a run."""
    say(f"{one.pair}: {one.status} {one.detail}")
    if one.status in ("error", "skipped"):
        return [f"`{one.formulation}`, `{one.solver}`", *["-"] * 3, one.detail, *["-"] * 6]
    ended = one.status + (f", {one.limit} limit" if one.limit else "")
    ended += f", `{one.decided_by}`'s decision" if one.decided_by else ""
    return [
        f"`{one.formulation}`, `{one.solver}`",
        *("-" if value is None else f"{value:,.1f}" for value in (one.objective, one.bound)),
        "-" if one.gap is None else f"{one.gap:.1e}",
        ended,
        *(f"{size or 0:,}" for size in (one.columns, one.rows)),
        *(f"{seconds or 0.0:.2f}" for seconds in (one.build_s, one.solve_s, one.total_s)),
        "valid" if one.checked and not one.faults else "**not valid**",
    ]


def real_rounds(asked: Asked) -> str:
    """One table for each round and gap."""
    parts = []
    for title in ROUNDS:
        parts.append(f"## {title}")
        with TemporaryDirectory() as folder:
            file = imported(Path(folder), title)
            for gap in GAPS[:1] if asked.quick else GAPS:
                settings, rows = Settings(gap=gap, time_limit_s=asked.limit), []
                for formulation, solvers in {"mckp": ("greedy",)}.items() if asked.quick else SOLVERS.items():
                    found = compare(file, formulations=formulation, solvers=solvers, settings=settings)
                    rows += [cells(one) for one in found.runs]
                parts += [f"Gap asked for {gap:g}, limit {asked.limit:g} s:", table(HEADER, rows)]
        parts.append(f"Measured on {machine()}.")
    return "\n\n".join(parts)


TABLES = {"real-rounds": real_rounds}

if __name__ == "__main__":
    run(__doc__, TABLES, limit=6.0)
