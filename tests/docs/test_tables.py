"""The tables in docs/tables are those that the benchmarks write, in the form in which they write them."""

from __future__ import annotations

import re
from importlib import import_module
from itertools import groupby
from pathlib import Path

import pytest

from benchmarks import harness
from tests.docs.markdown import first_difference

ROOT = Path(__file__).resolve().parents[2]
NAMES = sorted(path.stem for path in harness.FOLDER.glob("*.md") if path.name != "README.md")


def text_of(name: str) -> str:
    return (harness.FOLDER / f"{name}.md").read_text(encoding="utf-8")


def test_the_list_of_tables_has_every_file() -> None:
    assert text_of("README") == harness.index()


@pytest.mark.parametrize("name", NAMES)
def test_a_page_links_to_a_table_whose_rows_have_all_cells(name: str) -> None:
    page = ROOT / "docs" / harness.head(name)["page"].partition("#")[0]
    assert f"(tables/{name}.md)" in page.read_text(encoding="utf-8")
    for has_cells, lines in groupby(text_of(name).splitlines(), key=lambda line: line.startswith("|")):
        if has_cells:
            header, rule, *rows = (line.count("|") for line in lines)
            assert set(rows) == {header} == {rule}


@pytest.mark.parametrize("name", NAMES)
def test_the_command_makes_this_table(name: str) -> None:
    """The module loads, and has the table, which its command asks for."""
    command = harness.head(name)["command"]
    if command.startswith("wattsched "):
        return
    made = re.search(r"python -m (benchmarks[.\w]+)(?: .*)? --write$", command)
    assert made is not None
    tables = import_module(made[1]).TABLES
    assert name in tables
    assert len(tables) == 1 or f"--only {name} " in command


def test_every_table_of_a_benchmark_has_a_file() -> None:
    modules = [path for path in (ROOT / "benchmarks").rglob("*.py") if "\nTABLES = " in path.read_text()]
    paths = (path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".") for path in modules)
    assert {name for path in paths for name in import_module(path).TABLES} == {*NAMES} - {"itp-512"}


def test_a_table_is_written_below_its_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = harness.head("eaco")[0]
    (tmp_path / "eaco.md").write_text(text_of("eaco"), encoding="utf-8")
    monkeypatch.setattr(harness, "FOLDER", tmp_path)
    harness.write("eaco", f"\n{harness.table(['policy', 'h'], [['`fifo`', 1.0]])}\n\n")
    written = (tmp_path / "eaco.md").read_text(encoding="utf-8")
    assert written == f"{head}\n| policy | h |\n| :-- | --: |\n| `fifo` | 1.0 |\n"
    with pytest.raises(FileNotFoundError):
        harness.write("unknown", "")


def test_measured_sets_are_what_the_model_says() -> None:
    made = f"{harness.head('sharing-measured')[0]}\n{import_module('benchmarks.sharing').measured(None)}\n"
    shown = [line for line in text_of("sharing-measured").splitlines() if line]
    assert first_difference(shown, made) is None
