"""Users' formulations: the one of the documentation against a brute force, and what goes wrong in others."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import wattsched
from tests.brute_force.agreement import pays_moves
from tests.brute_force.sizing import optimum
from tests.docs.markdown import blocks_of
from tests.strategies.effort import examples
from tests.strategies.instances import instances_with_sets, small_instances
from wattsched.formulations.sizing.jobs import jobs_of
from wattsched.formulations.sizing.objectives import OBJECTIVES
from wattsched.instances.errors import InputError
from wattsched.instances.generators import generate
from wattsched.instances.sizing.instance import Instance
from wattsched.instances.sizing.validity import faults_of
from wattsched.results.problems import problem

PAGE = Path(__file__).resolve().parents[2] / "docs" / "your-own-formulation.md"

PROGRAM = """
import pyomo.environ as pyo

def made(round, share=1.0):
    m = pyo.ConcreteModel()
    m.x = pyo.Var(range(len(round.choices)), domain=pyo.Binary)
    m.one = pyo.Constraint(round.jobs, rule=lambda m, j: sum(m.x[c] for c in round.of_job(j)) == 1)
    m.rows = pyo.ConstraintList()
    for limit in (*round.room, *round.budgets):
        m.rows.add(sum(use * m.x[c] for c, use in limit.use.items()) <= share * limit.capacity)
    return m, m.x
"""


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Formulation that the page shows, as one would name it."""
    text = next(b.text for b in blocks_of(PAGE) if b.text.startswith("cat > splitting.py"))
    file = tmp_path_factory.mktemp("own") / "splitting.py"
    file.write_text(text.split("\n", 1)[1].split("\nEND")[0] + "\n")
    return f"{file}:splitting"


@settings(max_examples=examples(40))
@given(
    instance=small_instances(max_jobs=3) | instances_with_sets(),
    objective=st.sampled_from(sorted(OBJECTIVES)),
)
def test_example_has_the_true_optimum(example: str, instance: Instance, objective: str) -> None:
    """It splits blocks, so all pools have them."""
    in_blocks = instance.cluster.model_copy(update={"capacity": "blocks"})
    instance = instance.model_copy(update={"cluster": in_blocks})
    assume(not faults_of(instance))
    truth = optimum(instance, objective)
    result = wattsched.solve(instance, formulation=example, objective=objective, gap=0.0)
    if truth is None:
        assert result.termination.reason == "infeasible"
        return
    assert result.checked
    assert not result.faults
    if not pays_moves(result):
        assert result.objective == pytest.approx(truth, rel=1e-6, abs=1e-7)
    assert result.bound == pytest.approx(truth, rel=1e-6, abs=1e-7)


def write(folder: Path, text: str) -> Path:
    file = folder / "mine.py"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("return round.colour", "line 2: AttributeError: 'Round' object has no attribute 'colour'"),
        ("return 1 / 0", "line 2: ZeroDivisionError: division by zero"),
        ("raise SystemExit", "line 2: SystemExit"),
        ("return 3", "must return the Pyomo model and its choice variables"),
        ("return None, []", "choices, but 0 choice variables"),
        (
            "import pyomo.environ as pyo; m = pyo.ConcreteModel(); m.x = pyo.Var(range(len(round.choices))); "
            "m.c = pyo.Constraint(expr=m.x[0] * m.x[1] <= 1); return m, m.x",
            "not linear",
        ),
        (
            "import pyomo.environ as pyo; m = pyo.ConcreteModel(); m.x = pyo.Var(range(len(round.choices))); "
            "m.o = pyo.Objective(expr=m.x[0]); return m, m.x",
            "variable 'x[1]' of choice 1 is in no constraint and not in the objective",
        ),
    ],
)
def test_error_of_a_formulation_is_one_line_with_its_place(
    tmp_path: Path, returned: str, message: str
) -> None:
    file = write(tmp_path, f"def made(round):\n    {returned}\n")
    instance = generate("uniform", jobs=3, seed=1)
    with pytest.raises(InputError) as caught:
        wattsched.solve(instance, formulation=f"{file}:made")
    (fault,) = caught.value.faults
    assert message in fault
    assert caught.value.source == str(file)


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("import nonsense_that_is_not_there", "made", "line 1: ModuleNotFoundError"),
        ("x = 1\nthis is no Python", "made", "line 2: SyntaxError"),
        (PROGRAM, "other", "has no function or class 'other'"),
        (PROGRAM + "made = 3", "made", "neither a function nor a class"),
        ("class made:\n    def __init__(self):\n        self.x = {}['y']", "made", "line 3: KeyError: 'y'"),
    ],
)
def test_file_that_cannot_be_used_is_told(tmp_path: Path, text: str, name: str, message: str) -> None:
    file = write(tmp_path, text)
    with pytest.raises(InputError, match=r"mine\.py") as caught:
        problem("sizing").formulation(f"{file}:{name}")
    assert message in caught.value.faults[0]


def test_missing_file_and_missing_name_are_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.py: no such file"):
        problem("sizing").formulation(f"{tmp_path}/nowhere.py:made")
    with pytest.raises(InputError, match=r"FILE\.py:NAME"):
        problem("sizing").formulation("nowhere.py")


def test_changed_file_is_read_again_and_classes_are_made(tmp_path: Path) -> None:
    instance = generate("uniform", jobs=6, seed=1)
    truth = wattsched.solve(instance, gap=0.0).objective
    file = write(tmp_path, PROGRAM)
    assert wattsched.solve(instance, formulation=f"{file}:made", gap=0.0).objective == pytest.approx(truth)
    file.write_text("class made:\n    def __call__(self, round):\n        raise ValueError('new')\n")
    with pytest.raises(InputError, match="line 3: ValueError: new"):
        wattsched.solve(instance, formulation=f"{file}:made")


def test_installed_package_offers_a_formulation_by_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_package.py").write_text(PROGRAM)
    metadata = tmp_path / "own_package-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: own-package\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[wattsched.formulations]\nown = own_package:made\n")
    monkeypatch.syspath_prepend(tmp_path)
    instance = generate("uniform", jobs=4, seed=1)
    model = problem("sizing").formulation("own")(jobs_of(instance), instance.objective)
    assert model.program.n_groups == 4
    with pytest.raises(ValueError, match=r"unknown formulation 'other'.*own, FILE\.py:NAME"):
        problem("sizing").formulation("other")


def test_dominated_options_are_kept_on_request(tmp_path: Path) -> None:
    known = jobs_of(generate("uniform", jobs=2, seed=1))
    few = problem("sizing").formulation(f"{write(tmp_path, PROGRAM)}:made")(known, "total-completion")
    file = write(tmp_path, PROGRAM + "made.keep_dominated = True\n")
    all_of_them = problem("sizing").formulation(f"{file}:made")(known, "total-completion")
    assert few.dropped > 0
    assert all_of_them.dropped == 0
    assert all_of_them.program.n_choices == known.n_options
