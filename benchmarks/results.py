"""Make the tables that docs/results.md refers to anew: every system's rule and ours.

    python benchmarks/results.py

Two programs run at a time. Tables of a program that fails stay as they are, and its name is told.
"""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

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
PARALLEL = 2


def run(program: tuple[str, ...]) -> int:
    """Run a program; its tables go into docs/tables."""
    begin = time.monotonic()
    code = subprocess.run([sys.executable, str(HERE / program[0]), *program[1:]], check=False).returncode
    print(f"{' '.join(program)}: {time.monotonic() - begin:.0f} s, exit code {code}", file=sys.stderr)
    return code


def main() -> int:
    """Run all of them."""
    with ThreadPoolExecutor(PARALLEL) as pool:
        codes = list(pool.map(run, PROGRAMS))
    failed = [" ".join(program) for program, code in zip(PROGRAMS, codes, strict=True) if code]
    for name in failed:
        print(f"failed: {name}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
