"""Every benchmark makes its tables, with as little as possible to measure."""

from __future__ import annotations

import os
import re
from importlib import import_module
from pathlib import Path

import pytest

from benchmarks import harness
from tests.strategies.forked import run_module

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = sorted(
    path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
    for path in (ROOT / "benchmarks").rglob("*.py")
    if "\nTABLES = " in path.read_text(encoding="utf-8")
)
OTHERS = {
    "benchmarks.emerald": "takes a minute for each event: test_emerald.py has what is made without a solver",
    "benchmarks.library": "has no quick form: test_library.py runs it",
    "benchmarks.placement": "takes minutes on the public lists: test_placement.py has smaller ones",
    "benchmarks.slurm": "the tests of the adapter run it",
    "benchmarks.slurm_signals": "the tests of the adapter run it",
    "benchmarks.kubernetes_cluster": "the tests of the adapter run it",
    "benchmarks.studies.gavel_simulator": "needs a checkout of the simulator",
    "benchmarks.studies.sia_simulator": "needs a checkout of the simulator",
}


def run(name: str, *options: str, data: str = "") -> str:
    done = run_module(name, *options, folder=ROOT, environment={**os.environ, "WATTSCHED_DATA": data})
    assert done.returncode == 0, done.stderr
    return done.stdout


def first_cells(text: str) -> set[str]:
    """First cell of the header of each table."""
    return set(re.findall(r"^\| (.*?) \|.*\n\| :-- \|.*\n\| ", text, flags=re.MULTILINE))


@pytest.mark.parametrize("name", [name for name in BENCHMARKS if name not in OTHERS])
def test_a_quick_benchmark_has_the_tables_of_the_documentation(name: str, data_dir: Path) -> None:
    printed = run(name, "--quick", data=str(data_dir))
    files = (harness.FOLDER / f"{table}.md" for table in import_module(name).TABLES)
    assert first_cells(printed) == first_cells("\n".join(file.read_text(encoding="utf-8") for file in files))
    assert not re.search(r"\b(nan|inf)\b", printed)


@pytest.mark.parametrize("name", sorted(OTHERS))
def test_other_benchmarks_can_be_asked(name: str) -> None:
    assert "--write" in run(name, "--help")
