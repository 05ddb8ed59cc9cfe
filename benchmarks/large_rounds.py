"""Large rounds from file to file: seconds and bytes of whole commands, and of their phases.

    python benchmarks/large_rounds.py --write [--most N] [--peers S]

generates `uniform` rounds of up to N jobs and runs ``wattsched solve FILE --gap 1e-6 -o RESULT`` and
``wattsched check FILE RESULT`` on them as a user would, each in a process of its own. In another process it
looks at the peak of each phase (Linux). Peers get the same programs, written out, and S seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from peers import missing
from suite import Suite, say
from suite_cases import GAP as SUITE_GAP
from suite_cases import Case
from tables import machine, table, write

WATTSCHED = (sys.executable, "-P", "-m", "wattsched")
SIZES = (1_000, 10_000, 20_000, 100_000, 300_000, 1_000_000)
GROWTH = 10_000
"""Least size of the slope."""
GAP = 1e-6
SEED = 1
JSON_JOBS = 100_000
"""Up to so many jobs there are JSON files, too; larger ones are above the limit of 50 MB."""
PEER_SIZES = (1_000, 20_000)
PEERS = ("highs", "cpsat", "scip")
CLAIMED = 5
"""Exit code of a check that finds a result valid, and its bound beyond what is proven."""
PHASES = ("read", "expand", "build", "safety", "solve", "decode", "check", "prove", "write")
MIB = 2.0**20


class Ran(NamedTuple):
    """What a command took: wall and CPU seconds, and the largest resident size of its process."""

    wall_s: float
    cpu_s: float
    peak_mib: float


def run(*words: str) -> Ran:
    """Run a command of wattsched to its end."""
    begin = time.perf_counter()
    process = subprocess.Popen([*WATTSCHED, *words], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, CLAIMED):
        raise SystemExit(f"wattsched {' '.join(words)} ended with {process.returncode}")
    return Ran(time.perf_counter() - begin, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def whole(folder: Path, jobs: int, suffix: str) -> dict[str, Any]:
    """Solve and check a round, from file to file."""
    say(f"{jobs:,} jobs, {suffix}")
    round_file, result_file = folder / f"{jobs}.{suffix}", folder / f"{jobs}-result.{suffix}"
    asked = ("generate", "uniform", "--jobs", str(jobs), "--seed", str(SEED), "-o", str(round_file))
    run(*asked)
    solved = run("solve", str(round_file), "--gap", str(GAP), "--time-limit", "inf", "-o", str(result_file))
    checked = run("check", str(round_file), str(result_file))
    sizes = [path.stat().st_size / MIB for path in (round_file, result_file)]
    gaps = gaps_of(result_file)
    return {"jobs": jobs, "file": suffix, "solved": solved, "checked": checked, "mib": sizes, "gaps": gaps}


def gaps_of(result_file: Path) -> tuple[float, float]:
    """Gap of a result, claimed and proven."""
    import wattsched

    result = wattsched.read_result(result_file)
    return float(result.gap or 0.0), float(result.proven_gap or 0.0)


def phases_of(folder: Path, jobs: int) -> dict[str, Any]:
    """Phases of one solve in a process that looks at its memory."""
    command = [sys.executable, str(Path(__file__).resolve()), "--phases", str(folder / f"{jobs}.parquet")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure_phases(path: Path) -> dict[str, Any]:
    """Seconds and peak of each phase, and what a pass over the kinds and over memory take."""
    import wattsched
    from wattsched.documents import write_document
    from wattsched.formulations.timer import Timer
    from wattsched.problems import problem

    peaks: dict[str, float] = {}
    seconds: dict[str, float] = {}

    @contextmanager
    def looked_at(name: str) -> Iterator[None]:
        before = forget_peak()
        begin = time.perf_counter()
        try:
            yield
        finally:
            seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - begin
            peaks[name] = max(peaks.get(name, 0.0), peak_mib() - before)

    engines = Timer.phase

    @contextmanager
    def both(timer: Timer, name: str) -> Iterator[None]:
        with engines(timer, name), looked_at(name):
            yield

    with looked_at("read"):
        instance = wattsched.read_instance(path)
    with patch.object(Timer, "phase", both):
        result = wattsched.solve(instance, gap=GAP)
    with looked_at("write"):
        write_document(path.with_name("written.parquet"), result)
    sizing = problem("sizing")
    program = sizing.formulation("mckp")(sizing.expand(instance), instance.objective).program
    prices = -np.ones(program.n_rows)
    arrays = [program.kind, program.worth, program.work, program.most] if program.by_kind else [program.cost]
    return {
        "jobs": len(instance.jobs),
        "gap": result.gap,
        "columns": program.n_columns,
        "phases": {name: (seconds[name], peaks[name]) for name in PHASES if name in seconds},
        "pass_s": least_s(lambda: program.lagrangian_bound(prices)),
        "memory_s": least_s(lambda: [float(values.sum()) for values in arrays]),
        "bytes": sum(values.nbytes for values in arrays),
    }


def least_s(work: Any, times: int = 5) -> float:
    """Least seconds of several repetitions."""
    taken = []
    for _ in range(times):
        begin = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begin)
    return min(taken)


def forget_peak() -> float:
    """Begin to look for the largest resident size anew (Linux); the size now."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return _status_mib("VmRSS:")


def peak_mib() -> float:
    """Largest resident size since then."""
    return _status_mib("VmHWM:")


def _status_mib(field: str) -> float:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def peers_of(jobs: int, limit_s: float) -> list[dict[str, Any]]:
    """What others make of the same program, written out, in some seconds."""
    with TemporaryDirectory() as folder:
        suite = Suite(Path(folder), limit_s, 1)
        solvers = tuple(solver for solver in PEERS if not missing(solver))
        found = suite.case(Case("uniform", jobs, solvers))
    return [{"jobs": jobs, **made} for made in found["runs"]]


def wholes_table(wholes: list[dict[str, Any]]) -> str:
    """Whole commands, and how their seconds grow."""
    header = ("jobs", "options", "file", "round, MiB", "result, MiB", "gap", "gap proven")
    command = ("s", "CPU s", "peak, MiB")
    rows = [
        (
            f"{one['jobs']:,}",
            f"{193 * one['jobs']:,}",
            one["file"],
            *(f"{mib:.1f}" for mib in one["mib"]),
            *(f"{gap:.1e}" for gap in one["gaps"]),
            *cells(one["solved"]),
            *cells(one["checked"]),
        )
        for one in wholes
    ]
    large = [one for one in wholes if one["file"] == "parquet" and one["jobs"] >= GROWTH]
    both = (f"`{name}`, {one}" for name in ("solve", "check") for one in command)
    text = table((*header, *both), rows)
    if len(large) < 2:
        return text
    jobs = np.log([one["jobs"] for one in large])
    slopes = [
        np.polyfit(jobs, np.log([one[name].wall_s for one in large]), 1)[0] for name in ("solved", "checked")
    ]
    told = f"from {large[0]['jobs']:,} to {large[-1]['jobs']:,} jobs"
    slope = f"{slopes[0]:.2f} (`solve`), {slopes[1]:.2f} (`check`)"
    return f"{text}\n\nLog-log slope of the seconds {told}: {slope}."


def cells(ran: Ran) -> tuple[str, str, str]:
    """Cells of a command."""
    return f"{ran.wall_s:.2f}", f"{ran.cpu_s:.2f}", f"{ran.peak_mib:,.0f}"


def phases_tables(measured: list[dict[str, Any]]) -> str:
    """Seconds of the phases, what they are in passes over the kinds, and their memory."""
    names = [name for name in PHASES if any(name in one["phases"] for one in measured)]

    def rows(cell: Any, *more: Any) -> list[list[str]]:
        return [
            [f"{one['jobs']:,}", *(tell(one) for tell in more), *(cell(one, name) for name in names)]
            for one in measured
        ]

    def told(digits: str, value: Any) -> Any:
        return lambda one, name: format(value(one, name), digits) if name in one["phases"] else "-"

    passed = rows(
        told(",.1f", lambda one, name: one["phases"][name][0] / one["pass_s"]),
        lambda one: f"{1e3 * one['pass_s']:,.1f}",
        lambda one: f"{one['pass_s'] / one['memory_s']:,.0f}",
    )
    return "\n\n".join(
        (
            "### Seconds",
            table(("jobs", *names), rows(told(".3f", lambda one, name: one["phases"][name][0]))),
            "### In passes over the kinds",
            table(("jobs", "a pass, ms", "in reads of memory", *names), passed),
            "### Memory on top of what was there, MiB",
            table(("jobs", *names), rows(told(",.0f", lambda one, name: one["phases"][name][1]))),
        )
    )


def peers_table(runs: list[dict[str, Any]], wholes: list[dict[str, Any]]) -> str:
    """Peers beside whole commands of ours."""
    ours = {one["jobs"]: one["solved"].wall_s for one in wholes}
    rows = []
    for one in runs:
        whole_s = ours.get(one["jobs"])
        seconds = one.get("solve_s")
        ratio = "-" if whole_s is None or seconds is None else f"{seconds / whole_s:,.1f}"
        gap = "-" if one.get("gap") is None else f"{one['gap']:.1e}"
        shown = "-" if seconds is None else f"{seconds:.1f}"
        peak = "-" if "peak_mib" not in one else f"{one['peak_mib']:,.0f}"
        limit = f" ({one['limit']})" if one.get("limit") else ""
        ended = f"{one['status'].replace('_', ' ')}{limit}"
        rows.append((f"{one['jobs']:,}", f"`{one['solver']}`", shown, ratio, gap, peak, ended))
    header = ("jobs", "solver", "solve, s", "times our whole command at 1e-6", "gap", "peak, MiB", "ended")
    return table(header, rows)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--most", type=int, default=SIZES[-1], metavar="N", help="jobs of the largest round")
    parser.add_argument("--peers", type=float, default=20.0, metavar="S", help="limit of others; 0 for none")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/tables")
    parser.add_argument("--phases", type=Path, metavar="FILE", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.phases is not None:
        print(json.dumps(measure_phases(arguments.phases)))
        return
    sizes = [jobs for jobs in SIZES if jobs <= arguments.most] or [arguments.most]
    with TemporaryDirectory() as name:
        folder = Path(name)
        wholes = [whole(folder, jobs, "json") for jobs in sizes if jobs <= JSON_JOBS]
        wholes += [whole(folder, jobs, "parquet") for jobs in sizes]
        measured = [phases_of(folder, jobs) for jobs in sizes]
    parts = ["## From file to file", wholes_table(wholes), "## Phases", phases_tables(measured)]
    if arguments.peers > 0:
        smaller = [jobs for jobs in PEER_SIZES if jobs <= arguments.most]
        runs = [made for jobs in smaller for made in peers_of(jobs, arguments.peers)]
        wholes += [whole_of_peer(jobs) for jobs in smaller if all(one["jobs"] != jobs for one in wholes)]
        parts += ["## Others", peers_table(runs, wholes)]
    others = f"others with gap {SUITE_GAP:g} and {arguments.peers:g} s"
    parts.append(f"Measured on {machine()}, gap {GAP:g}; {others}.")
    text = "\n\n".join(parts)
    print(text)
    if arguments.write:
        write("large-rounds", text)


def whole_of_peer(jobs: int) -> dict[str, Any]:
    """Whole command of ours for a size that only others are measured at."""
    with TemporaryDirectory() as folder:
        return whole(Path(folder), jobs, "json")


if __name__ == "__main__":
    main()
