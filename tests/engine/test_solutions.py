"""Solvers that are not ours read exported programs, and what they find comes back as a checked result."""

from __future__ import annotations

import math
import shutil
import subprocess
from functools import partial
from pathlib import Path

import highspy
import numpy as np
import pytest

import wattsched
from wattsched.files.solutions import RefusedSolutionError, import_solution
from wattsched.formulations.program import Program
from wattsched.results.documents import check
from wattsched.solvers import highs
from wattsched.solvers.export import exported
from wattsched.solvers.solution import Limits
from wattsched.solvers.solution_files import FORMS
from wattsched.solving.engine import model_of

GAP = 1e-6


def by_highs(model: Path, answer: Path, style: int = 0) -> None:
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("mip_rel_gap", 0.0)
    solver.readModel(str(model))
    solver.run()
    solver.writeSolution(str(answer), style)


def by_scip(model: Path, answer: Path) -> None:
    pyscipopt = pytest.importorskip("pyscipopt", reason="pyscipopt is not installed")
    solver = pyscipopt.Model()
    solver.hideOutput()
    solver.readProblem(str(model))
    solver.optimize()
    solver.writeBestSol(str(answer))


def by_cbc(model: Path, answer: Path) -> None:
    run("cbc", str(model), "-ratioGap", "0", "-solve", "-solution", str(answer))


def by_cbc_with_rows(model: Path, answer: Path) -> None:
    run("cbc", str(model), "-ratioGap", "0", "-solve", "-printingOptions", "all", "-solution", str(answer))


def by_glpk(model: Path, answer: Path) -> None:
    run("glpsol", "--lp" if model.suffix == ".lp" else "--freemps", str(model), "-w", str(answer))


def by_glpk_report(model: Path, answer: Path) -> None:
    run("glpsol", "--lp" if model.suffix == ".lp" else "--freemps", str(model), "-o", str(answer))


def run(*command: str) -> str:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout
    return done.stdout


SOLVERS = {
    "highs": by_highs,
    "highs table": partial(by_highs, style=1),
    "highs sparse": partial(by_highs, style=4),
    "glpk of highs -w": partial(by_highs, style=2),
    "glpk of highs -o": partial(by_highs, style=3),
    "scip": by_scip,
    "cbc": by_cbc,
    "cbc with rows": by_cbc_with_rows,
    "glpk": by_glpk,
    "glpk -o": by_glpk_report,
}


def highs_takes(model: Path, start: Path) -> bool:
    solver, log = highspy.Highs(), start.with_suffix(".log")
    solver.setOptionValue("log_to_console", False)
    solver.setOptionValue("log_file", str(log))
    solver.readModel(str(model))
    solver.readSolution(str(start), 0)
    solver.run()
    return "MIP start solution is feasible" in log.read_text()


def scip_takes(model: Path, start: Path) -> bool:
    pyscipopt = pytest.importorskip("pyscipopt", reason="pyscipopt is not installed")
    solver = pyscipopt.Model()
    solver.hideOutput()
    solver.readProblem(str(model))
    solver.readSol(str(start))
    return bool(solver.getNSols() == 1 and solver.checkSol(solver.getBestSol()))


def cbc_takes(model: Path, start: Path) -> bool:
    return "MIPStart provided solution with cost" in run("cbc", str(model), "-mipstart", str(start), "-solve")


def glpk_takes(model: Path, start: Path) -> bool:
    return "Writing MIP solution" in run(
        "glpsol", "--freemps", str(model), "-r", str(start), "-o", f"{start}.told"
    )


TAKES = {"highs": highs_takes, "scip": scip_takes, "cbc": cbc_takes, "glpk": glpk_takes}

INSTANCES = {
    "mckp": (("uniform", {"jobs": 6, "gpus": 8, "seed": 1}), None, None),
    "rack caps": (("hetero", {"jobs": 6, "seed": 2}), None, None),
    "makespan": (("uniform", {"jobs": 4, "gpus": 8, "seed": 3, "budget": "power"}), "mckp", "makespan"),
    "assignment": (("sia-like", {"jobs": 4, "gpus": 8, "seed": 4}), "assignment", None),
    "shifting": (("shifting", {"jobs": 2, "slots": 4, "seed": 1}), "time-indexed", None),
    "generated columns": (("shifting", {"jobs": 2, "slots": 8, "seed": 1}), "schedules", None),
    "sharing": (("sharing", {"jobs": 6, "seed": 1}), None, None),
    "placement": (("placement", {"jobs": 6, "seed": 1}), "assignment", None),
}


@pytest.fixture(scope="module", params=INSTANCES)
def case(request: pytest.FixtureRequest):
    (family, options), formulation, objective = INSTANCES[request.param]
    instance = wattsched.generate(family, **options)
    names = {"formulation": formulation, "objective": objective}
    best = wattsched.solve(instance, **names, gap=GAP)
    assert best.decision is not None
    return instance, names, best


@pytest.fixture(scope="module")
def programs(case) -> dict[str, str]:
    """Program of the case in both formats, which say whether its columns are generated."""
    instance, names, _ = case
    generated = model_of(instance, **names).outside != math.inf
    texts = {form: wattsched.export_program(instance, form, **names) for form in ("mps", "lp")}
    for text in texts.values():
        assert ("generated columns only" in text.partition("\n")[0]) == generated
    return texts


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*generated columns only")
@pytest.mark.parametrize(
    ("solver", "form"),
    [
        *((solver, "mps") for solver in SOLVERS),
        *((solver, "lp") for solver in ("highs", "scip", "cbc", "glpk")),
    ],
)
def test_what_others_find_is_checked_and_as_good(
    case, programs: dict[str, str], solver: str, form: str, tmp_path: Path
) -> None:
    instance, names, best = case
    model, answer = tmp_path / f"model.{form}", tmp_path / "answer.sol"
    model.write_text(programs[form])
    SOLVERS[solver](model, answer)
    result = import_solution(instance, answer, **names, gap=GAP)
    assert result.solver == f"file:{solver.partition(' ')[0]}"
    assert not check(instance, result).faults
    assert result.objective == pytest.approx(best.objective, rel=1e-5)
    assert result.proven_gap is not None


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*generated columns only")
@pytest.mark.parametrize("form", TAKES)
def test_others_start_from_our_decisions(case, programs: dict[str, str], form: str, tmp_path: Path) -> None:
    instance, names, best = case
    model, start = tmp_path / "model.mps", tmp_path / "start.sol"
    model.write_text(programs["mps"])
    if names["formulation"] in ("assignment", "time-indexed"):
        with pytest.raises(ValueError, match="no point of the program that the formulation can name"):
            wattsched.export_solution(instance, best, form, **names)
        return
    start.write_text(wattsched.export_solution(instance, best, form, **names))
    assert TAKES[form](model, start)


def test_a_decision_that_is_written_comes_back(tmp_path: Path) -> None:
    instance = wattsched.generate("uniform", jobs=4, gpus=8, seed=1)
    best, start = wattsched.solve(instance), tmp_path / "start.sol"
    for form in FORMS:
        start.write_text(wattsched.export_solution(instance, best, form))
        assert import_solution(instance, start).objective == pytest.approx(best.objective)
    with pytest.raises(ValueError, match="form: 'lindo' is not known"):
        wattsched.export_solution(instance, best, "lindo")
    other = wattsched.solve(wattsched.generate("uniform", jobs=5, gpus=8, seed=2))
    with pytest.raises(ValueError, match="result: it is of another instance"):
        wattsched.export_solution(instance, other)
    staged = wattsched.solve(instance, objective=["goodput", "energy"])
    with pytest.raises(ValueError, match="result: must be one of a single objective"):
        wattsched.export_solution(instance, staged)
    with pytest.raises(TypeError, match="result must be one with a decision of sizing"):
        wattsched.export_solution(instance, best.model_copy(update={"decision": None}))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*generated columns only")
def test_one_choice_that_is_missing_is_refused_with_its_row(case, tmp_path: Path) -> None:
    instance, names, best = case
    model = model_of(instance, **names)
    assert isinstance(model.program, Program)
    x = highs.solve(model.program, Limits(gap=GAP)).x
    columns = [column.name for column in exported(model.program).columns]
    values = [*x.tolist(), *[1.0] * (len(columns) - len(x))]
    lines = {name: f"{name} {value!r}\n" for name, value in zip(columns, values, strict=True) if value}
    head = f"# Objective value = {model.program.objective(x)!r}\n"
    file = tmp_path / "answer.sol"
    file.write_text(head + "".join(lines.values()))
    assert import_solution(instance, file, **names).objective == pytest.approx(best.objective, rel=1e-6)
    first = int(np.flatnonzero(x)[0])
    group = int((model.program.group_start <= first).sum()) - 1
    del lines[columns[first]]
    file.write_text(head + "".join(lines.values()))
    row = rf"row 'r\d+_choice_{group}': is 0, and must be exactly 1"
    told = row if model.program.n_groups else "row '"
    with pytest.raises(RefusedSolutionError, match=told):
        import_solution(instance, file, **names)


def test_a_capacity_that_is_exceeded_is_named_with_what_it_has(tmp_path: Path) -> None:
    instance = wattsched.generate("sia-like", jobs=6, gpus=16, seed=1)
    columns = [column.name for column in exported(model_of(instance).program).columns]
    widest = [
        max((c for c in columns if f"job{j}_A40" in c), key=lambda c: int(c.split("_")[3][:-1]))
        for j in range(6)
    ]
    (tmp_path / "wrong.sol").write_text("# Objective value = 0\n" + "".join(f"{c} 1\n" for c in widest))
    told = "row 'r1_gpus_A40': is 48, and must be at most 8"
    with pytest.raises(RefusedSolutionError, match=told):
        import_solution(instance, tmp_path / "wrong.sol")
