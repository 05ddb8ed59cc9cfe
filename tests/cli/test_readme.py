"""What the README shows is what happens."""

from __future__ import annotations

import re
from pathlib import Path

from .conftest import DEMO

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)


def test_python_example_runs(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    (example,) = _blocks("python")
    exec(compile(example, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert printed.startswith("optimal")
    assert "one more unit of power_w would save" in printed


def test_demo_output_has_the_lines_of_the_readme(run):
    """Figures may differ in the last digits from machine to machine, lines may not."""
    (shown,) = _blocks("text")
    printed = run("solve", DEMO).stdout
    assert [_words(line) for line in printed.splitlines()[:12]] == [
        _words(line) for line in shown.splitlines()[:12]
    ]
    assert re.findall(r"^\w+", printed, re.MULTILINE)[:6] == re.findall(r"^\w+", shown, re.MULTILINE)[:6]


def _words(line: str) -> list[str]:
    return re.findall(r"[A-Za-z]{3,}", line)


def test_tables_name_every_formulation_and_solver():
    from wattsched.formulations.registry import names as formulations
    from wattsched.formulations.sizing.objectives import OBJECTIVES
    from wattsched.solvers.registry import names as solvers

    for name in [*formulations("sizing"), *solvers(), *OBJECTIVES]:
        assert f"`{name}`" in README, f"the README does not name '{name}'"


def test_linked_pages_exist():
    for target in re.findall(r"\]\(([\w./-]+)\)", README):
        assert (ROOT / target).exists(), target
