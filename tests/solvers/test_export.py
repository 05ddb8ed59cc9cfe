"""HiGHS, CBC, GLPK and SCIP read the files alike, with the optimum of the program."""

import dataclasses
import importlib.util
import re
import shutil
import subprocess

import highspy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies.effort import examples
from tests.strategies.names import hostile_names
from wattsched.formulations.program import Block, Intervals, Line
from wattsched.solvers import highs
from wattsched.solvers.export import exported, to_lp, to_mps
from wattsched.solvers.solution import Limits
from wattsched.solvers.solution_files import read_solution

from .programs import knapsack, program_of, programs, truth

WRITERS = {"mps": to_mps, "lp": to_lp}


def by_highs(path):
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("mip_rel_gap", 0.0)
    assert solver.readModel(str(path)) == highspy.HighsStatus.kOk
    solver.run()
    solver.writeSolution(str(path.with_suffix(".highs")), 0)
    done = solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return solver.getInfo().objective_function_value if done else None


def by_cbc(path):
    answer = path.with_suffix(".cbc")
    # Preprocessing takes some equalities of decimal fractions for infeasible, and without it CBC
    # crashes on some tiny programs: either will do, the file is the same.
    for preprocessing in ([], ["-preprocess", "off"]):
        answer.write_text("")
        command = ["cbc", str(path), "-ratioGap", "0", *preprocessing, "-solve", "-solution", str(answer)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert "errors" not in done.stdout or "with 0 errors" in done.stdout, done.stdout
        first = answer.read_text().partition("\n")[0]
        if first.startswith("Optimal"):
            return float(first.split()[-1])
    return None


def by_glpk(path):
    answer = path.with_suffix(".glpk")
    kind = "--lp" if path.suffix == ".lp" else "--freemps"
    # GLPK 5.0's preprocessor calls some infeasible programs optimal: 4 x + 4 y from 1 to 3, with x + y = 1
    # and 2 y <= 0, is one. The report then says that the solution is infeasible, and branching decides.
    for preprocessing in ([], ["--nointopt"]):
        command = ["glpsol", kind, str(path), *preprocessing, "-o", str(answer)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout
        text = answer.read_text()
        if not re.search(r"Status: +(INTEGER )?OPTIMAL", text):
            return None
        if not re.search(r"^ +SOLUTION IS INFEASIBLE", text, re.MULTILINE):
            return float(re.search(r"Objective: +\S+ = +(\S+)", text).group(1))
    return None


def by_scip(path):
    from pyscipopt import Model

    model = Model()
    model.hideOutput()
    model.readProblem(str(path))
    model.optimize()
    if model.getStatus() != "optimal":
        return None
    model.writeBestSol(str(path.with_suffix(".scip")))
    return model.getObjVal()


READERS = {"highs": by_highs, "cbc": by_cbc, "glpsol": by_glpk, "pyscipopt": by_scip}


@pytest.fixture(scope="module", params=READERS)
def reader(request):
    there = shutil.which(request.param) or importlib.util.find_spec(request.param)
    if not there and request.param != "highs":
        pytest.skip(f"{request.param} is not installed")
    return READERS[request.param]


@pytest.mark.parametrize("kind", WRITERS)
@settings(max_examples=examples(25))
@given(data=st.data())
def test_optimum_is_that_of_the_program(tmp_path_factory, reader, kind, data):
    program = data.draw(programs)
    path = tmp_path_factory.mktemp("export") / f"model.{kind}"
    path.write_text(WRITERS[kind](program))
    best, read = truth(program), reader(path)
    if best is None:
        assert read is None
    else:
        assert read == pytest.approx(best, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("kind", WRITERS)
def test_all_kinds_of_bounds_rows_and_names(tmp_path, reader, kind):
    inf = np.inf
    lower = np.array([0, 0, -inf, -inf, -7, 0, 2, -3, 0], dtype=float)
    upper = np.array([1, 1, inf, -4, -5, inf, inf, 9, 2.5], dtype=float)
    integer = np.array([1, 1, 0, 0, 1, 1, 1, 1, 0], dtype=bool)
    cost = np.array([3, 2, 1, -1, -1, 1, 1, 1, -1.5])
    rows = np.zeros((5, 9))
    rows[0, 2:6] = 1  # a range
    rows[1, 2] = 1  # at least
    rows[2, [3, 8]] = 1  # at most, never tight
    rows[3] = 5  # no limits
    rows[4, [5, 6]] = [1, -1]  # an equality
    names = ["e1", "3 GPUs: a/b", "3 GPUs; a/b", "free", "ä", "end", "x" * 300, "x" * 300, "inf"]
    least, most = np.array([-20.25, -6.5, -inf, -inf, 1.0]), [-5.125, inf, 100.0, inf, 1.0]
    ends = {"row_lower": least, "lower": lower, "upper": upper, "integer": integer, "offset": -12.75}
    blocks = (Block("range", 1), Block("st", 2), Block("free", 1), Block("cost", 1))
    named = (Block("x", 9, names.__getitem__),)
    program = program_of(cost, rows, most, [0, 2], rows=blocks, columns=named, **ends)
    path = tmp_path / f"model.{kind}"
    path.write_text(WRITERS[kind](program))
    best = highs.solve(program, Limits(gap=0.0))
    assert best.termination.reason == "optimal"
    assert reader(path) == pytest.approx(best.objective, rel=1e-9)


@pytest.mark.parametrize("kind", WRITERS)
def test_numbers_are_written_in_full_and_what_no_file_can_hold_is_refused(kind):
    program = knapsack(2, 2)
    text = WRITERS[kind](program)
    assert repr(float(program.cost[1])) in text
    assert text.isascii()
    with pytest.raises(ValueError, match="zip"):
        WRITERS[kind](dataclasses.replace(program, upper=program.upper[:-1]))
    line = Line("pool", np.array([[0, 8]]), np.zeros(0, dtype=np.int64))
    intervals = Intervals((line,), np.full(4, -1), np.zeros(4))
    with pytest.raises(ValueError, match="intervals"):
        WRITERS[kind](dataclasses.replace(program, intervals=intervals))


@pytest.mark.parametrize("kind", WRITERS)
def test_two_thousand_hostile_names_come_back(tmp_path, reader, kind):
    names = hostile_names(2000)
    cost = np.random.default_rng(46).permutation(2000).astype(float) + 1.0
    rows = [Block("row", 40, names.__getitem__)]
    use = np.zeros((40, 2000))
    use[np.arange(2000) % 40, np.arange(2000)] = 1.0
    columns = (Block("column", 2000, names.__getitem__),)
    program = program_of(
        cost,
        use,
        [49.5] * 40,
        range(0, 2001, 2),
        rows=tuple(rows),
        columns=columns,
        row_lower=np.full(40, 0.5),
    )
    path = tmp_path / f"model.{kind}"
    path.write_text(WRITERS[kind](program))
    best = highs.solve(program, Limits(gap=0.0))
    assert reader(path) == pytest.approx(best.objective, rel=1e-9)
    table = exported(program)
    answer = next(file for file in tmp_path.iterdir() if file != path).read_text()
    found = read_solution(answer, [column.name for column in table.columns])
    assert not found.values.keys() - {column.name for column in table.columns}
    point, faults = found.point(program, table)
    assert not faults
    assert (point == best.x).all()
