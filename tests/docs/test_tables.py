"""The tables in docs/tables are those that the benchmarks write, in the form in which they write them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.markdown import first_difference

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "tables"
NAMES = sorted(path.stem for path in FOLDER.glob("*.md") if path.name != "README.md")


@pytest.fixture(scope="module")
def tables(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("tables")


def text_of(name: str) -> str:
    return (FOLDER / f"{name}.md").read_text(encoding="utf-8")


def test_every_table_has_a_file_and_every_file_a_table(tables: ModuleType) -> None:
    assert sorted(tables.TABLES) == NAMES
    assert text_of("README") == tables.index()


@pytest.mark.parametrize("name", NAMES)
def test_a_table_names_its_command_and_a_page_links_to_it(tables: ModuleType, name: str) -> None:
    text, table = text_of(name), tables.TABLES[name]
    assert text.startswith(tables.heading(name))
    page = ROOT / "docs" / table.page.partition("#")[0]
    assert f"(tables/{name}.md)" in page.read_text(encoding="utf-8")
    for has_cells, lines in groupby(text.splitlines(), key=lambda line: line.startswith("|")):
        if has_cells:
            header, rule, *rows = (line.count("|") for line in lines)
            assert set(rows) == {header} == {rule}


@pytest.mark.parametrize("name", NAMES)
def test_the_command_writes_this_table(tables, load_script, name):
    """The program exists, loads, and names the table where it writes it."""
    script = re.search(r"benchmarks/(\w+)\.py.* --write", tables.TABLES[name].command)
    if script is None:
        assert tables.TABLES[name].command.startswith("wattsched ")
        return
    load_script(script[1])
    source = (ROOT / "benchmarks" / f"{script[1]}.py").read_text(encoding="utf-8")
    written = re.findall(r"write(?:_table)?\((?:f?\"([\w{}-]+)\"|name),", source)
    patterns = [re.sub(r"\{\w+\}", r"[\\w-]+", pattern) or r"[\w-]+" for pattern in written]
    assert any(re.fullmatch(pattern, name) for pattern in patterns)


def test_a_table_goes_where_its_name_says(tables: ModuleType, tmp_path: Path) -> None:
    content = tables.table(["policy", "h"], [["`fifo`", 1.0]])
    path = tables.write("eaco", f"\n{content}\n\n", tmp_path)
    assert path == tmp_path / "eaco.md"
    assert path.read_text(encoding="utf-8") == (
        f"{tables.heading('eaco')}\n| policy | h |\n| :-- | --: |\n| `fifo` | 1.0 |\n"
    )
    with pytest.raises(KeyError):
        tables.write("unknown", content, tmp_path)


def test_the_suite_is_what_its_figures_say(tables, load_script):
    results = json.loads((ROOT / "benchmarks" / "results.json").read_text(encoding="utf-8"))
    assert text_of("suite") == f"{tables.heading('suite')}\n{load_script('suite_page').content(results)}\n"


def test_measured_sets_are_what_the_model_says(load_script, monkeypatch, tmp_path):
    script = load_script("sharing")
    monkeypatch.setattr("sys.argv", ["sharing.py", "--part", "measured", "--write"])
    monkeypatch.setattr("tables.FOLDER", tmp_path)
    script.main()
    made = (tmp_path / "sharing-measured.md").read_text(encoding="utf-8")
    shown = [line for line in text_of("sharing-measured").splitlines() if line]
    assert first_difference(shown, made) is None
