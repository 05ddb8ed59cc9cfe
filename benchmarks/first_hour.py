"""From a cluster to a report of what it would save: seconds of each command of the operator's page.

    python benchmarks/first_hour.py --write [--jobs 50]

Once from a real Slurm with slurmdbd, whose jobs have just ended, and once from a list of as many jobs as
somebody would write it by hand. Needs what `emulated_accounting` needs; ``--quick`` is six jobs and one seed.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import emulated_accounting
from tables import machine, table, write

NODES, GPUS_PER_NODE = 4, 8
WAIT_S = 300.0


def command(*arguments: str, env: dict[str, str]) -> float:
    """Seconds of a command of ours."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-m", "wattsched", *arguments], check=True, capture_output=True, env=env)
    return time.perf_counter() - begin


def run_jobs(slurm: emulated_accounting.AccountedSlurm, jobs: int) -> None:
    """Submit jobs of one to eight GPUs and a few seconds, and wait until all are accounted for."""
    drawn = random.Random(1)
    for _ in range(jobs):
        gpus, account = drawn.choice((1, 1, 2, 4, 8)), drawn.choice(emulated_accounting.ACCOUNTS)
        slurm.submit(f"sleep {drawn.randint(1, 5)}", f"--gres=gpu:A100:{gpus}", f"--account={account}")
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        asked = ("--allusers", "--noheader", "--allocations", "--format=State")
        if slurm.run("sacct", *asked).split().count("COMPLETED") == jobs:
            return
        time.sleep(0.5)
    raise RuntimeError(f"not all of {jobs} jobs were accounted for within {WAIT_S:g} s")


def by_hand(folder: Path, jobs: int) -> None:
    """Write a list of jobs of minutes to hours, with dates and users."""
    drawn, rows = random.Random(2), ["job,arrival,duration,gpus,user"]
    for n in range(jobs):
        minutes = 20 * n
        arrival = f"2026-11-{2 + minutes // 1440:02d} {minutes // 60 % 24:02d}:{minutes % 60:02d}"
        duration_s, gpus = drawn.randint(10, 300) * 60, drawn.choice((1, 2, 4, 8))
        rows.append(f"train-{n},{arrival},{duration_s},{gpus},{drawn.choice(('ann', 'bo', 'cy'))}")
    (folder / "mine.csv").write_text("\n".join(rows) + "\n")


def measured(folder: Path, jobs: int, options: Sequence[str]) -> Iterator[list[str]]:
    """Rows of the table, for so many jobs and options of `savings`."""
    site, page = str(folder / "site"), str(folder / "savings.html")
    with emulated_accounting.accounted_slurm(folder, NODES) as slurm:
        run_jobs(slurm, jobs)
        env = {**os.environ, **slurm.environment}
        seconds = [command("import", "slurm", "--since", "now-1hour", "-o", site, env=env)]
    known = ("savings", f"{site}/jobs.csv", "--cluster", f"{site}/cluster.json", "--report", page, *options)
    seconds.append(command(*known, env=dict(os.environ)))
    yield row(f"Slurm with slurmdbd, {jobs} jobs that have ended", seconds)
    by_hand(folder, jobs)
    nodes = ("--nodes", f"{NODES}", "--gpus-per-node", f"{GPUS_PER_NODE}")
    known = ("savings", str(folder / "mine.csv"), *nodes, "--report", page, *options)
    yield row(f"a list of {jobs} jobs, written by hand", [0.0, command(*known, env=dict(os.environ))])


def row(name: str, seconds: Sequence[float]) -> list[str]:
    """Row of a table."""
    return [name, *("" if one == 0.0 else f"{one:.1f}" for one in seconds), f"{sum(seconds):.1f}"]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--jobs", type=int, default=50)
    parser.add_argument("--quick", action="store_true", help="six jobs and one seed")
    parser.add_argument("--write", action="store_true", help="write the table into the documentation")
    asked = parser.parse_args()
    if why := emulated_accounting.missing():
        sys.exit(why)
    with tempfile.TemporaryDirectory(prefix="slurm-") as name:
        jobs, options = (6, ("--seeds", "0", "--no-inputs")) if asked.quick else (asked.jobs, ())
        rows = list(measured(Path(name), jobs, options))
    columns = ("from", "import, s", "savings --report, s", "both, s")
    content = f"{table(columns, rows)}\n\nAll options at their defaults, on {machine()}."
    print(content)
    if asked.write:
        write("first-hour", content)


if __name__ == "__main__":
    main()
