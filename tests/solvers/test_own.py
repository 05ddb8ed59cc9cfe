"""Users' solvers, rules and formulations of any problem: what they return holds, and faults are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import wattsched
from tests.docs.markdown import blocks_of
from wattsched.instances.errors import InputError

PAGE = Path(__file__).resolve().parents[2] / "docs" / "your-own-formulation.md"
ROUND: dict[str, Any] = {"jobs": 6, "seed": 1}

FUNCTIONS = """
import numpy as np
import beside


def waits(program):
    return beside.last_of(program)


def with_prices(program, limits):
    return beside.last_of(program), np.full(program.n_rows, -1.0)


def lies(program, limits):
    from wattsched.solvers.solution import Solution, Termination
    return Solution(Termination("optimal"), x=beside.last_of(program), objective=0.0, bound=0.0)


def nothing(program):
    return None


def short(program):
    return [1.0, 2.0]


def broken(program):
    return program.colour


def too_much(program):
    return np.ones(program.n_columns)


def rule(instance):
    return {"jobs": [], "waiting": [job.name for job in instance.jobs]}


def no_decision(instance):
    return {"jobs": 3}


class Rule:
    def __call__(self, instance):
        return None
"""
BESIDE = """
import numpy as np


def last_of(program):
    x = np.zeros(program.n_columns)
    x[program.group_start[1:] - 1] = 1.0
    return x
"""


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Path of a file with solvers and rules, which imports one beside it."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "own.py").write_text(FUNCTIONS)
    (folder / "beside.py").write_text(BESIDE)
    return str(folder / "own.py")


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the files of the page."""
    folder = tmp_path_factory.mktemp("page")
    for block in blocks_of(PAGE):
        if block.text.startswith("cat > "):
            head, text = block.text.split("\n", 1)
            (folder / head.split()[2]).write_text(text.split("\nEND")[0] + "\n")
    return folder


@pytest.mark.parametrize("name", ["waits", "with_prices", "rule"])
@pytest.mark.parametrize("limit", [None, 20.0])
def test_what_holds_is_taken(own: str, name: str, limit: float | None) -> None:
    """All wait: the point is checked, and the bound is one that prices prove, whatever the code says."""
    instance = wattsched.generate("uniform", **ROUND)
    found = wattsched.solve(instance, solver=f"{own}:{name}", time_limit=limit, gap=0.0)
    best = wattsched.solve(instance, gap=0.0)
    assert found.solved
    assert len(found.decision.waiting) == 6
    assert found.bound is not None
    assert best.objective is not None
    assert found.bound <= best.objective * (1 + 1e-9)
    assert wattsched.check(instance, found).faults == []


def test_a_false_claim_does_not_make_the_decision_optimal(own: str) -> None:
    """A `Solution` may say what it likes: a decision is checked, and a bound beyond it is not used."""
    instance = wattsched.generate("uniform", **ROUND)
    found = wattsched.solve(instance, solver=f"{own}:lies")
    assert found.objective is not None
    assert found.objective > 0.0
    assert wattsched.check(instance, found).faults == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("short", "the point must be .* numbers, got an array of shape \\(2,\\)"),
        ("broken", "line [0-9]*: AttributeError"),
        ("no_decision", "the decision returned: jobs: must be a list, got 3"),
        ("absent", "has no function or class 'absent'"),
    ],
)
def test_what_goes_wrong_is_told_with_the_file(own: str, name: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as raised:
        wattsched.solve(wattsched.generate("uniform", **ROUND), solver=f"{own}:{name}")
    assert "own.py" in str(raised.value)


@pytest.mark.parametrize("name", ["nothing", "too_much", "Rule"])
def test_no_decision_of_theirs_leaves_the_bound(own: str, name: str) -> None:
    """Who finds nothing, or what breaks rows, is no error: what others have at hand is returned."""
    instance = wattsched.generate("uniform", **ROUND)
    found = wattsched.solve(instance, solver=f"{own}:{name}")
    assert found.termination.reason in ("feasible", "no_solution", "error")
    assert wattsched.check(instance, found).faults == []


def test_solvers_and_formulations_of_the_page_agree_with_ours(shown: Path, monkeypatch: Any) -> None:
    """A heuristic is near the optimum and its bound proven; a restricted formulation claims none."""
    monkeypatch.chdir(shown)
    instance = wattsched.generate("uniform", jobs=10, seed=1)
    found = wattsched.solve(instance, solver="lagrangian.py:subgradient", time_limit=20)
    assert found.solver_answer is not None
    assert found.solver_answer.gap is not None
    assert found.solver_answer.gap < 0.01
    night = wattsched.generate("shifting", jobs=3, gpus=8, slots=6, seed=3)
    straight = wattsched.solve(night, formulation="straight.py:no_pauses", solver="highs", prove=0.0)
    assert straight.solver_answer is not None
    assert straight.solver_answer.bound is None
    assert straight.solver_answer.objective is not None
    assert wattsched.check(night, straight).faults == []


def test_a_choice_may_be_an_expression(tmp_path: Path) -> None:
    """Choices that are sums of other binaries have the optimum of those that are variables."""
    (tmp_path / "sums.py").write_text(
        """
import pyomo.environ as pyo

def halves(round):
    m = pyo.ConcreteModel()
    m.x = pyo.Var(range(len(round.choices)), [0, 1], domain=pyo.Binary)
    chosen = [m.x[c, 0] + m.x[c, 1] for c in range(len(round.choices))]
    m.one = pyo.Constraint(round.jobs, rule=lambda m, j: sum(chosen[c] for c in round.of_job(j)) == 1)
    m.rows = pyo.ConstraintList()
    for limit in (*round.room, *round.budgets):
        m.rows.add(sum(use * chosen[c] for c, use in limit.use.items()) <= limit.capacity)
    return m, chosen
"""
    )
    instance = wattsched.generate("uniform", **ROUND)
    found = wattsched.solve(instance, formulation=f"{tmp_path}/sums.py:halves", solver="highs", gap=0.0)
    assert found.objective == pytest.approx(wattsched.solve(instance, gap=0.0).objective)


def test_what_their_code_changes_in_place_changes_nothing_of_ours(tmp_path: Path) -> None:
    """A rule may sort the jobs, and a solver scale the costs: what is checked stays as it was."""
    file = tmp_path / "mutating.py"
    file.write_text(
        "import numpy as np\n"
        "def by_work(instance):\n"
        "    instance.jobs.sort(key=lambda job: job.remaining_work)\n"
        "    return {'jobs': [], 'waiting': [job.name for job in instance.jobs]}\n"
        "def scaled(program):\n"
        "    program.cost[:] *= 2.0\n"
        "    x = np.zeros(program.n_columns)\n"
        "    x[program.group_start[1:] - 1] = 1.0\n"
        "    return x\n"
    )
    instance = wattsched.generate("uniform", **ROUND)
    names, best = [job.name for job in instance.jobs], wattsched.solve(instance, gap=0.0)
    for name in ("by_work", "scaled"):
        found = wattsched.solve(instance, solver=f"{file}:{name}")
        assert [job.name for job in instance.jobs] == names
        assert wattsched.check(instance, found).faults == []
        assert best.objective is not None
        assert found.bound is None or found.bound <= best.objective * (1 + 1e-9)
