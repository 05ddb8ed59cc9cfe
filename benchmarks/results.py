"""Make the tables that docs/results.md refers to anew: every system's rule and ours.

    python benchmarks/results.py

Two programs run at a time. Tables of a program that fails stay as they are, and its name is told.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).resolve().parent
PROGRAMS = (
    ("budgets.py", "--part", "powerflow", "--write", "--jobs", "1"),
    ("budgets.py", "--part", "greenflow", "--write", "--jobs", "1"),
    ("replay_bounds.py", "--write", "--jobs", "1"),
    ("grounds.py", "--write"),
    ("online_price.py", "--write"),
    ("elastic.py", "--headline", "--write"),
    ("elastic_values.py", "--write"),
    ("eaco.py", "--write"),
)
PLACEMENT = (
    ("placement.py", "--write"),
    ("placement_curves.py", "--write"),
    ("placement_lists.py", "--write"),
    ("placement_bids.py", "--write"),
)
"""One after another: they share runs."""
PARALLEL = 2

Program = tuple[str, ...]


def run(program: Program) -> int:
    """Run a program; its tables go into docs/tables."""
    begin = time.monotonic()
    code = subprocess.run([sys.executable, str(HERE / program[0]), *program[1:]], check=False).returncode
    print(f"{' '.join(program)}: {time.monotonic() - begin:.0f} s, exit code {code}", file=sys.stderr)
    return code


def run_all(programs: Sequence[Program]) -> list[Program]:
    """Run programs one after another; those that fail."""
    return [program for program in programs if run(program)]


def main() -> int:
    """Run all of them."""
    with TemporaryDirectory() as folder, ThreadPoolExecutor(PARALLEL) as pool:
        sharing = [(*program, "--runs", str(Path(folder) / "runs.jsonl")) for program in PLACEMENT]
        failed = list(chain.from_iterable(pool.map(run_all, [sharing, *([one] for one in PROGRAMS)])))
    for program in failed:
        print(f"failed: {' '.join(program)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
