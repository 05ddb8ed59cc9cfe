"""Run a benchmark from the command line, and write its tables into docs/tables.

A benchmark has a dictionary ``TABLES``: names of files in docs/tables, each with the function that makes its
content from the arguments of the command line. The first lines of such a file are written by hand, and stay:
the title, the command that makes the table, and the page that explains it.

    python -m benchmarks.harness

writes docs/tables/README.md, the list of all tables.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from scipy.stats import gmean, t

from wattsched.topology.arrays import FloatArray

Asked = argparse.Namespace
Case = TypeVar("Case")
Found = TypeVar("Found")

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "tables"
MADE = r"Made by `(?P<command>.+)`\. Explained in \[.+\]\(\.\./(?P<page>.+)\)\.\n"
HEAD = re.compile(rf"# (?P<title>.+)\n\n{MADE}")


def run(
    doc: str | None,
    tables: Mapping[str, Callable[[Asked], str]],
    seeds: int | None = None,
    **options: Any,
) -> None:
    """Make tables as the command line asks, print them, and put them into docs/tables.

    Parameters
    ----------
    doc : str
        Docstring of the benchmark, for ``--help``.
    tables : mapping
        Name of a file in docs/tables to the function that makes its content.
    seeds : int, optional
        How many seeds there are by default; a quick benchmark has one. None for a benchmark without seeds.
    options : any
        Further options by name, with their default.
    """
    asked = arguments(doc, tables, seeds, options)
    for name, make in tables.items():
        if asked.only in (None, name):
            content = make(asked)
            print(f"{content}\n", flush=True)
            if asked.write:
                write(name, content)


def arguments(
    doc: str | None, tables: Iterable[str], seeds: int | None, options: Mapping[str, Any]
) -> argparse.Namespace:
    """Parse the command line of a benchmark."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--write", action="store_true", help="put the tables into docs/tables")
    parser.add_argument("--quick", action="store_true", help="as little as possible, for the tests")
    parser.add_argument("--only", choices=list(tables), help="make this table alone")
    if seeds is not None:
        parser.add_argument("--seeds", type=int, default=seeds, metavar="N", help="default: %(default)s")
    for name, default in options.items():
        parser.add_argument(
            f"--{name.replace('_', '-')}", type=type(default), default=default, help="default: %(default)s"
        )
    asked = parser.parse_args()
    if asked.quick and asked.write:
        parser.error("--write needs the whole benchmark")
    if asked.quick and seeds is not None:
        asked.seeds = 1
    return asked


# -- tables ----------------------------------------------------------------------------------------------


def head(name: str) -> re.Match[str]:
    """Title, command and page of a table, as its file has them."""
    found = HEAD.match((FOLDER / f"{name}.md").read_text(encoding="utf-8"))
    assert found is not None, f"docs/tables/{name}.md has no title, command and page"
    return found


def write(name: str, content: str) -> None:
    """Write a table below its head."""
    text = f"{head(name)[0]}\n{content.strip()}\n"
    (FOLDER / f"{name}.md").write_text(text, encoding="utf-8")


def index() -> str:
    """List of all tables."""
    names = sorted(path.stem for path in FOLDER.glob("*.md") if path.name != "README.md")
    rows = [(f"[{head(name)['title']}]({name}.md)", f"`{head(name)['command']}`") for name in names]
    about = "Results of the programs in `benchmarks/`. The pages in `docs/` refer to them."
    lines = [f"| {title} | {command} |" for title, command in rows]
    return "\n".join(["# Tables", "", about, "", "| table | made by |", "| :-- | :-- |", *lines, ""])


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Markdown table; every column but the first is aligned to the right."""
    lines = [header, [":--", *["--:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)


def sections(parts: Mapping[str, str]) -> str:
    """Parts of a page, each below its heading; a part without heading as it is."""
    return "\n\n".join(f"## {title}\n\n{part}" if title else part for title, part in parts.items())


# -- figures ---------------------------------------------------------------------------------------------


def interval(values: FloatArray, digits: int = 2, sign: str = "") -> str:
    """Mean over the seeds, and half of the 95 % confidence interval of Student's t; `sign` may be ``+``."""
    mean = f"{values.mean():{sign}.{digits}f}"
    if len(values) < 2:
        return mean
    half = t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{mean} ± {half:.{digits}f}"


def mean_and_worst(values: Sequence[float] | FloatArray, digits: int = 2) -> tuple[str, str]:
    """Geometric mean of seconds or ratios, and the largest."""
    return f"{gmean(values):.{digits}f}", f"{np.max(values):.{digits}f}"


def timed(work: Callable[[], Found]) -> tuple[Found, float]:
    """Result of a call, and the wall-clock seconds that it took."""
    begin = time.perf_counter()
    found = work()
    return found, time.perf_counter() - begin


# -- surroundings ----------------------------------------------------------------------------------------


def remembered(file: str, key: str, make: Callable[[], Any]) -> Any:
    """Return what a file of JSON lines has for a key, or make and add it; without a file it is made."""
    path = Path(file)
    for line in path.read_text(encoding="utf-8").splitlines() if file and path.exists() else ():
        known, found = json.loads(line)
        if known == key:
            return found
    found = make()
    if file:
        with path.open("a", encoding="utf-8") as runs:
            runs.write(json.dumps([key, found]) + "\n")
    return found


def machine() -> str:
    """Describe the machine in one line."""
    return f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"


def data(path: str = "") -> Path:
    """A file or folder of the public data sets."""
    if "WATTSCHED_DATA" not in os.environ:
        raise SystemExit("set WATTSCHED_DATA to the folder of the public data sets")
    return Path(os.environ["WATTSCHED_DATA"]) / path


def say(text: object) -> None:
    """Report progress on standard error."""
    print(text, file=sys.stderr, flush=True)


def in_processes(function: Callable[[Case], Found], cases: Iterable[Case], processes: int) -> Iterator[Found]:
    """Results of a function for all cases, in order, from several processes."""
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(function, cases)


def in_new_process(function: Callable[..., Found], *arguments: Any) -> Found:
    """Result of a function in a process that nothing else has run in.

    The function is that of the module by its name, which workers of that process can import, too.
    """
    run_as = sys.modules["__main__"].__spec__
    if function.__module__ == "__main__" and run_as is not None:
        function = getattr(import_module(run_as.name), function.__name__)
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def resident_mib(field: str) -> float:
    """Resident size of this process now (VmRSS), or the largest (VmHWM); of Linux."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{field}:"))


if __name__ == "__main__":
    (FOLDER / "README.md").write_text(index(), encoding="utf-8")
