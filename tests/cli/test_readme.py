"""The README's tables are complete; its examples are run in `tests/docs`."""

from __future__ import annotations

from pathlib import Path

from wattsched.formulations.sizing.objectives import OBJECTIVES
from wattsched.problems import problem
from wattsched.solvers.registry import names as solvers

README = Path(__file__).resolve().parents[2] / "README.md"


def test_tables_name_every_formulation_solver_and_objective():
    text = README.read_text(encoding="utf-8")
    missing = [
        name for name in [*problem("sizing").formulations, *solvers(), *OBJECTIVES] if f"`{name}`" not in text
    ]
    assert not missing
