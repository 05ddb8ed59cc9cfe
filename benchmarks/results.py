"""Make the tables that docs/results.md refers to anew: every system's rule and ours.

    python benchmarks/results.py [--folder FOLDER]

Two programs run at a time. Tables of a program that fails stay as they are, and its name is told. FOLDER
remembers which programs ended well: stopped in the middle, the next call goes on with the others. It forgets
them all when the package, the benchmarks or the versions of libraries change.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path

import wattsched

HERE = Path(__file__).resolve().parent
PROGRAMS = (
    ("online_price.py", "--write"),
    ("budgets.py", "--part", "powerflow", "--write", "--jobs", "1"),
    ("budgets.py", "--part", "greenflow", "--write", "--jobs", "1"),
    ("replay_bounds.py", "--write", "--jobs", "1"),
    ("grounds.py", "--write"),
    ("elastic.py", "--headline", "--write"),
    ("elastic.py", "--write"),
    ("elastic_values.py", "--write"),
    ("eaco.py", "--write"),
)
"""The longest first, so that both programs that run at a time end at about the same moment."""
PLACEMENT = (
    ("placement.py", "--write"),
    ("placement_curves.py", "--write"),
    ("placement_lists.py", "--write"),
    ("placement_bids.py", "--write"),
)
"""One after another: they share runs."""
PARALLEL = 2
ENDED, RUNS = "ended.txt", "placement-runs.jsonl"

Program = tuple[str, ...]


def sources() -> Iterator[Path]:
    """Files on which figures depend: the package, the benchmarks, the versions of libraries."""
    for folder in (Path(wattsched.__file__).parent, HERE):
        yield from sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    yield HERE.parent / "constraints.txt"


def digest(files: Iterator[Path]) -> str:
    """SHA-256 over names and contents."""
    found = hashlib.sha256()
    for path in files:
        found.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


def begin_or_go_on(folder: Path) -> None:
    """Forget what other sources made; FOLDER/ended begins with the digest of its sources."""
    folder.mkdir(parents=True, exist_ok=True)
    ended, now = folder / ENDED, digest(sources())
    if not ended.exists() or ended.read_text(encoding="utf-8").partition("\n")[0] != now:
        (folder / RUNS).unlink(missing_ok=True)
        ended.write_text(now + "\n", encoding="utf-8")


def run(program: Program, folder: Path) -> int:
    """Run a program unless it ended well before; its tables go into docs/tables."""
    line = " ".join(program)
    if line in (folder / ENDED).read_text(encoding="utf-8").splitlines():
        print(f"{line}: made before", file=sys.stderr)
        return 0
    begin = time.monotonic()
    more = ("--runs", str(folder / RUNS)) if program in PLACEMENT else ()
    command = [sys.executable, str(HERE / program[0]), *program[1:], *more]
    code = subprocess.run(command, check=False).returncode
    print(f"{line}: {time.monotonic() - begin:.0f} s, exit code {code}", file=sys.stderr)
    if code == 0:
        with (folder / ENDED).open("a", encoding="utf-8") as file:
            file.write(line + "\n")
    return code


def run_all(programs: Sequence[Program], folder: Path) -> list[Program]:
    """Run programs one after another; those that fail."""
    return [program for program in programs if run(program, folder)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=Path("results"), help="remembers what ended well")
    folder = parser.parse_args(arguments).folder
    begin_or_go_on(folder)
    with ThreadPoolExecutor(PARALLEL) as pool:
        work = [PLACEMENT, *((one,) for one in PROGRAMS)]
        failed = list(chain.from_iterable(pool.map(partial(run_all, folder=folder), work)))
    for program in failed:
        print(f"failed: {' '.join(program)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
