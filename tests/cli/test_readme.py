"""What users can name is named in the documentation; its examples are run in `tests/docs`."""

from __future__ import annotations

from pathlib import Path

import pytest

from wattsched.formulations.sizing.objectives import OBJECTIVES
from wattsched.replay.jobs.policies import names as policies
from wattsched.results.problems import PROBLEMS, problem
from wattsched.solvers.registry import descriptions as solvers

ROOT = Path(__file__).resolve().parents[2]
HEURISTICS = {f"docs/{known}.md": problem(known).heuristics for known in PROBLEMS}


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("docs/formulations.md", [*problem("sizing").formulations, *solvers()]),
        ("docs/model.md", OBJECTIVES),
        ("docs/elastic.md", policies()),
        *((page, names) for page, names in HEURISTICS.items() if names),
    ],
)
def test_page_names_them_all(page: str, names: list[str]) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    missing = [name for name in names if f"`{name}`" not in text]
    assert not missing, f"{page} does not name them"


@pytest.mark.parametrize("known", PROBLEMS)
def test_the_row_of_a_problem_names_its_formulations(known: str) -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    [row] = [line for line in lines if line.startswith(f"| [`{known}`]")]
    assert row.split("|")[3].strip() == ", ".join(f"`{name}`" for name in problem(known).formulations)
