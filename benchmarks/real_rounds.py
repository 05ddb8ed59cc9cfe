"""Solve two rounds of real traces by every solver, check every answer, and write the tables.

    WATTSCHED_DATA=... python benchmarks/real_rounds.py [--time-limit S] [--write]

imports the rounds and solves them with the `wattsched` command, checks the files of the answers, and takes
about three minutes; ``--write`` puts the tables into docs/tables.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tables import machine, table, write

import wattsched
from wattsched.solvers.registry import names

TRACE = "$WATTSCHED_DATA/itp-elasticflow-2021/raw/cluster04.csv"
NODES = "$WATTSCHED_DATA/alibaba-gpu-2023/openb_node_list_gpu_node.csv"
IMPORTS = {
    "itp": f"wattsched import itp {TRACE} --nodes 64 --gpus-per-node 8 --gpu-type A100 --power-fraction 0.7",
    "openb": f"wattsched import itp {TRACE} --cluster {NODES} --power-fraction 0.35",
}
"""Round to the command that makes it; the output option is added."""

TITLES = {"itp": "ITP jobs on 512 A100", "openb": "ITP jobs on the openb cluster"}
PAIRS = (
    *(("mckp", solver) for solver in names()),
    *(("mckp", f"pyomo:{solver}") for solver in ("highs", "cbc", "glpk")),
    ("assignment", "highs"),
    ("intervals", "cpsat"),
)
"""Formulations and solvers: the default one with every solver, the others with the solver that suits them."""

GAPS = (1e-4, 1e-6)
KILL_AFTER = 10
"""A command that takes this many times its limit, and a minute, has hung."""

HEADER = (
    "formulation, solver", "objective, s", "bound, s", "gap", "ended", "columns", "rows",
    "build, s", "solve, s", "total, s", "check",
)  # fmt: skip


@dataclass(frozen=True)
class Shell:
    """A folder in which `wattsched` commands run."""

    folder: Path
    timeout_s: float

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run one command, given as one would type it."""
        words = shlex.split(os.path.expandvars(command))
        assert words[0] == "wattsched"
        return subprocess.run(
            [sys.executable, "-m", *words],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=self.timeout_s,
            check=False,
        )

    def make(self, command: str) -> None:
        """Run a command that has to succeed."""
        done = self.run(command)
        if done.returncode != 0:
            raise SystemExit(f"'{command}' ended with {done.returncode}:\n{done.stderr}")


def solve_command(name: str, formulation: str, solver: str, gap: float, limit_s: float) -> str:
    """Command that solves a round and writes the result."""
    return (
        f"wattsched solve {name}.json --formulation {formulation} --solver {solver} --gap {gap:g} "
        f"--time-limit {limit_s:g} -o {result_name(name, formulation, solver)}"
    )


def result_name(name: str, formulation: str, solver: str) -> str:
    """File of a result."""
    return f"{name}-{formulation}-{solver.replace(':', '-')}.json"


def row_of(shell: Shell, name: str, formulation: str, solver: str, gap: float, limit_s: float) -> list[str]:
    """Solve, check, and describe the answer."""
    pair = f"`{formulation}`, `{solver}`"
    begin = time.perf_counter()
    try:
        done = shell.run(solve_command(name, formulation, solver, gap, limit_s))
    except subprocess.TimeoutExpired:
        return [pair, *["-"] * 3, f"killed after {time.perf_counter() - begin:.0f} s", *["-"] * 6]
    file = shell.folder / result_name(name, formulation, solver)
    if done.returncode == 2:
        reason = done.stderr.strip().removeprefix("error: ").split(";")[0]
        return [pair, *["-"] * 3, reason, *["-"] * 6]
    result = json.loads(file.read_text(encoding="utf-8"))
    verdict = wattsched.check(shell.folder / f"{name}.json", file)
    return [pair, *_cells(result), "**not valid**" if verdict.faults else "valid"]


def _cells(result: dict[str, Any]) -> list[str]:
    size, time_s, ended = result["size"] or {}, result["time_s"], result["termination"]
    reason = ended["reason"] + (f", {ended['limit']} limit" if ended["limit"] else "")
    if decided_by := result.get("decided_by"):
        reason += f", `{decided_by}`'s decision"
    return [
        _number(result["objective"]),
        _number(result["bound"]),
        "-" if result["gap"] is None else f"{result['gap']:.1e}",
        reason,
        f"{size.get('columns', 0):,}",
        f"{size.get('rows', 0):,}",
        f"{time_s.get('build', 0.0):.2f}",
        f"{time_s.get('solve', 0.0):.2f}",
        f"{time_s.get('total', 0.0):.2f}",
    ]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def measure(shell: Shell, name: str, pairs: tuple[tuple[str, str], ...], gap: float, limit_s: float) -> str:
    """Solve a round by every pair."""
    rows = []
    for formulation, solver in pairs:
        rows.append(row_of(shell, name, formulation, solver, gap, limit_s))
        print(f"{name}: {' | '.join(rows[-1])}", file=sys.stderr)
    return table(HEADER, rows)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--time-limit", type=float, default=6.0, metavar="S")
    parser.add_argument("--gap", type=float, action="append", help="default: 1e-4 and 1e-6")
    parser.add_argument("--round", choices=list(IMPORTS), action="append", help="default: all")
    parser.add_argument("--formulation", action="append", help="only this formulation; may be repeated")
    parser.add_argument("--solver", action="append", help="only this solver; may be repeated")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/tables")
    arguments = parser.parse_args()
    chosen = (arguments.round, arguments.gap, arguments.formulation, arguments.solver)
    if arguments.write and any(chosen):
        parser.error("--write needs all rounds, gaps, formulations and solvers")
    if "WATTSCHED_DATA" not in os.environ:
        raise SystemExit("set WATTSCHED_DATA to the folder of the public data sets")
    pairs = tuple(
        (formulation, solver)
        for formulation, solver in PAIRS
        if formulation in (arguments.formulation or [formulation])
        and solver in (arguments.solver or [solver])
    )
    limit_s = arguments.time_limit
    contents = []
    with tempfile.TemporaryDirectory() as folder:
        shell = Shell(Path(folder), timeout_s=KILL_AFTER * limit_s + 60)
        for name in arguments.round or IMPORTS:
            shell.make(f"{IMPORTS[name]} -o {name}.json")
            parts = [
                f"Gap asked for {gap:g}, limit {limit_s:g} s:\n\n{measure(shell, name, pairs, gap, limit_s)}"
                for gap in arguments.gap or GAPS
            ]
            contents.append("\n\n".join([f"## {TITLES[name]}", *parts, f"Measured on {machine()}."]))
            print(f"\n{contents[-1]}\n")
    if arguments.write:
        write("real-rounds", "\n\n".join(contents))


if __name__ == "__main__":
    main()
