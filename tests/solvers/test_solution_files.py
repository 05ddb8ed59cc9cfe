"""What solvers write is read back as the point that it is; what breaks a program is refused by name."""

import dataclasses
import re

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.strategies.effort import examples
from wattsched.formulations.program import Block
from wattsched.solvers import highs, solution_files
from wattsched.solvers.export import exported
from wattsched.solvers.solution import Limits
from wattsched.solvers.solution_files import read_solution, write_solution

from .programs import knapsack, programs


def raw_highs(names, x, cost):
    head = ["Model status", "Optimal", "", "# Primal solution values", "Feasible", f"Objective {cost!r}"]
    columns = [f"{name} {value!r}" for name, value in zip(names, x, strict=True)]
    return [*head, f"# Columns {len(x)}", *columns, "# Rows 1", "r 1", "", "# Dual solution values", "None"]


def highs_sparse(names, x, cost):
    head, rows = raw_highs(names, x, cost)[:6], [(i, v) for i, v in enumerate(x) if v]
    return [*head, f"# Columns {-len(rows)}", *(f"{names[i]} {v!r} {i}" for i, v in rows), "# Rows 0"]


def highs_table(names, x, cost):
    """With a status and a dual, as of an LP, in some lines."""
    head = "    Index Status        Lower        Upper       Primal         Dual  Type        Name"
    lines = [
        f"{i:9} {'BS' if i % 2 else '':4} {0:12} {1:12} {v:12.12g} {0 if i % 3 else '':>12}  Integer  {name}"
        for i, (name, v) in enumerate(zip(names, x, strict=True))
    ]
    end = ["Rows", head.replace("Type        ", ""), "        0  1 1 1 r0", "", "Model status: Optimal", ""]
    return ["Columns", head, *lines, *end, f"Objective value: {cost!r}"]


def scip(names, x, cost):
    rows = [f"{n}    {v!r} \t(obj:1)" for n, v in zip(names, x, strict=True) if v]
    return ["solution status: optimal solution found", f"objective value:     {cost!r}", *rows]


def cbc(names, x, cost):
    rows = [f"{i:7} {n:30} {v:15.12g} 0" for i, (n, v) in enumerate(zip(names, x, strict=True)) if v]
    return [f"Optimal - objective value {cost:.8f}", *rows]


def glpk(names, x, cost):
    rows = [f"j {number} {value!r}" for number, value in enumerate(x, start=1)]
    return ["c Problem:", f"s mip 1 {len(x)} o {cost!r}", "i 1 3", *rows, "e o f"]


def glpk_report(names, x, cost):
    lines = [
        "Problem:    wattsched",
        f"Columns:    {len(x)} ({len(x)} integer, 0 binary)",
        "Status:     INTEGER OPTIMAL",
        f"Objective:  cost = {cost:.10g} (MINimum)",
    ]
    lines += ["", "   No. Column name       Activity     Lower bound   Upper bound", "------ ------------"]
    for number, (name, value) in enumerate(zip(names, x, strict=True), start=1):
        short = len(name) <= 12
        begin = f"{number:6} {name:12}" if short else f"{number:6} {name}"
        lines += [begin + f" *  {value:13.6g} 0 1"] if short else [begin, f"{'':20}*  {value:13.6g} 0 1"]
    return [*lines, "", "Integer feasibility conditions:"]


def gurobi(names, x, cost):
    rows = [f"{name} {value!r}" for name, value in zip(names, x, strict=True)]
    return ["# Solution for model wattsched", f"# Objective value = {cost!r}", *rows]


def miplib(names, x, cost):
    return [f"=obj= {cost!r}", *(f"{name} {value!r}" for name, value in zip(names, x, strict=True) if value)]


def cplex(names, x, cost):
    rows = (
        f'<variable name="{n}" index="{i}" value="{v!r}"/>'
        for i, (n, v) in enumerate(zip(names, x, strict=True))
    )
    return [
        '<?xml version = "1.0" encoding="UTF-8" standalone="yes"?>',
        '<CPLEXSolution version="1.2">',
        " <header",
        '   problemName="model.lp"',
        f'   objectiveValue="{cost!r}"',
        '   solutionStatusValue="101"',
        '   solutionStatusString="integer optimal solution"/>',
        ' <linearConstraints><constraint name="r0" index="0" slack="0"/></linearConstraints>',
        *(" <variables>", *rows, " </variables>"),
        "</CPLEXSolution>",
    ]


def cplex_pool(names, x, cost):
    """Two solutions, the incumbent last; CPLEX says by name which it is."""
    head, *best = cplex(names, x, cost)
    best[1] += ' solutionName="incumbent"'
    others = cplex(names, [0.0] * len(x), 0.0)[1:]
    return [head, '<CPLEXSolutions version="1.2">', *others, *best, "</CPLEXSolutions>"]


FORMS = {
    "highs": raw_highs,
    "highs-sparse": highs_sparse,
    "highs-table": highs_table,
    "cplex": cplex,
    "cplex-pool": cplex_pool,
    "scip": scip,
    "cbc": cbc,
    "glpk": glpk,
    "glpk-report": glpk_report,
    "gurobi": gurobi,
    "miplib": miplib,
}
forms = pytest.mark.parametrize("form", FORMS)


def written(form, program, x, cost=None):
    """Text of a point of a program, and the names of its columns."""
    columns = exported(program).columns
    values = [*np.asarray(x, dtype=float).tolist(), *[1.0] * (len(columns) - program.n_columns)]
    names = [column.name for column in columns]
    cost = program.objective(np.asarray(x, dtype=float)) if cost is None else cost
    return "\n".join(FORMS[form](names, values, float(cost))) + "\n", names


def optimum(program):
    """An optimal point, None where there is no point."""
    return highs.solve(program, Limits(gap=0.0)).x


def solved(data):
    """Draw a program that has a point, with an optimal one."""
    program = data.draw(programs)
    x = optimum(program)
    assume(x is not None)
    return program, x


@forms
@settings(max_examples=examples(25))
@given(data=st.data())
def test_points_are_read_back(form, data):
    program, x = solved(data)
    point, faults = read_solution(*written(form, program, x)).point(program, exported(program))
    assert not faults
    assert program.violation(point) <= 1e-9
    assert point[program.integer] == pytest.approx(x[program.integer])
    assert program.objective(point) == pytest.approx(program.objective(x), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("form", solution_files.FORMS)
@settings(max_examples=examples(25))
@given(data=st.data())
def test_what_is_written_is_read_back(form, data):
    program, x = solved(data)
    table = exported(program)
    text = write_solution(form, table, x, program.objective(x))
    read = read_solution(text, [column.name for column in table.columns])
    assert read.solver == form
    point, faults = read.point(program, table)
    assert not faults
    assert program.objective(point) == pytest.approx(program.objective(x), rel=1e-6, abs=1e-6)


@forms
@settings(max_examples=examples(25))
@given(data=st.data())
def test_all_rows_that_a_solution_breaks_are_named(form, data):
    """Rows of groups of which none or several columns are taken among them."""
    program = data.draw(programs)
    assume(program.bottleneck is None and program.integer.all())
    bits = st.lists(st.integers(0, 1), min_size=program.n_columns, max_size=program.n_columns)
    x = np.array(data.draw(bits), dtype=float)
    table = exported(program)
    activity = (table.matrix[:, : len(x)] @ x).tolist()
    broken = [
        row.name
        for row, value in zip(table.rows, activity, strict=True)
        if not row.low - 1e-4 <= value <= row.high + 1e-4
    ]
    point, faults = read_solution(*written(form, program, x)).point(program, table)
    assert (point is None) == bool(broken)
    assert [re.match("row '(.*)': is ", fault)[1] for fault in faults] == broken


@forms
def test_other_faults_of_a_solution_are_named(form):
    program = knapsack(4, 3)
    x = optimum(program)
    half = np.where(x > 0, 0.5, x)
    _, [fault, *_] = read_solution(*written(form, program, half)).point(program, exported(program))
    assert re.fullmatch(r"column '\w+': is 0.5, and must be a whole number", fault)
    twice = np.where(x > 0, 2.0, x)
    _, [fault, *_] = read_solution(*written(form, program, twice)).point(program, exported(program))
    assert re.fullmatch(r"column '\w+': is 2, above its bound 1", fault)
    cost = program.objective(x)
    stated = read_solution(*written(form, program, x, cost + 1 + abs(cost)))
    _, [fault] = stated.point(program, exported(program))
    assert fault.startswith("objective: the file says ")
    other = dataclasses.replace(program, columns=(Block("y", program.n_columns),))
    names = [column.name for column in exported(program).columns]
    _, faults = read_solution(written(form, other, x)[0], names).point(program, exported(program))
    by_number = form == "glpk"  # which has no names
    assert by_number or re.fullmatch(r"column 'x\d+_y_\d+_': the program has none of that name", faults[0])


@pytest.mark.parametrize("form", ["glpk", "glpk-report"])
def test_files_of_glpk_of_another_program_say_so_and_not_that_they_end_early(form):
    program = knapsack(3, 2)
    text, names = written(form, program, optimum(program))
    for other in (names[:-1], [*names, "more"]):
        told = f"of a program with {len(names)} columns, this one has {len(other)}$"
        with pytest.raises(ValueError, match=told):
            read_solution(text, other)


def test_rows_that_cbc_and_others_add_are_left_alone():
    program = knapsack(3, 2)
    table = exported(program)
    text, names = written("cbc", program, optimum(program))
    head, rest = text.split("\n", 1)
    for name in (table.rows[0].name, f"{table.rows[0].name}_low"):
        _, faults = read_solution(f"{head}\n0 {name} 1 0\n{rest}", names).point(program, table)
        assert not faults


NONE = {
    "highs": "Model status\nInfeasible\n\n# Primal solution values\nNone\n",
    "highs-table": "Columns\n    Index Status Primal Name\n\nModel status: Infeasible\n",
    "scip": "solution status: infeasible\nno solution available\n",
    "cplex": '<CPLEXSolution><header solutionStatusString="infeasible"/><variables/></CPLEXSolution>',
    "cplex without values": "<CPLEXSolution><header/></CPLEXSolution>",
    "cbc": "Infeasible - objective value 3.0\n      0 x  1 0\n",
    "glpk": "s mip 1 1 n 0\ni 1 0\nj 1 0\ne o f\n",
    "glpk-report": "Problem: a\nStatus:     INTEGER UNDEFINED\nObjective:  cost = 0 (MINimum)\n",
    "gurobi": "# Solution for model x\n",
}


CPLEX = '<CPLEXSolution><header objectiveValue="1"/><variables>{}</variables></CPLEXSolution>'
HIGHS = "Model status\n{}\n\n# Primal solution values\nFeasible\nObjective {}\n# Columns {}\nx {}\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (HIGHS.format("Infeasible", 1, 1, 1), "the solver said 'infeasible'"),
        (HIGHS.format("Optimal", "nan", 1, 1), "'nan' is not a number"),
        (HIGHS.format("Optimal", 1, 1, "1_0"), "'1_0' is not a number"),
        (HIGHS.format("Optimal", 1, 1, "\uff11"), "'\uff11' is not a number"),
        (HIGHS.format("Optimal", 1, 2, 1), "the file ends early: 2 columns are said to follow, there are 1"),
        (HIGHS.format("Optimal", 1, 0, 1), "^0 columns are said to follow, there are 1"),
        (HIGHS.format("Optimal", 1, 1, "abc"), "column 'x': 'abc' is not a number, as HiGHS writes them"),
        ("solution status: infeasible\nobjective value: 1\nx 1\n", "the solver said 'infeasible'"),
        ("s mip 1 1 o 1\nj 1 1\nj 1 1\n", "column 'x' stands there twice"),
        ("s mip 1 1 o 1\n", "the file ends early: 0 of 1 columns are there"),
        ("\n \n", "is empty"),
        ("Columns\n Index Primal Name\n 0 1 y\n", "^column|ends early|not a column"),
        (
            "Columns\n    Index  Primal Name\n        0      xx x\n",
            "column 'x': 'xx' is not a number, as HiGHS",
        ),
        (CPLEX.format('<variable name="x"/>'), "'x' is not a column and its value, as CPLEX writes them"),
        (CPLEX.format('<variable name="x" value="inf"/>'), "column 'x' has no finite value: inf"),
        (CPLEX.format('<variable name="x" value="1"/>' * 2), "column 'x' stands there twice"),
        (CPLEX.format("<variable"), "it is no XML either"),
        ('<!DOCTYPE x [<!ENTITY a "b">]>\n' + CPLEX.format("&a;"), "is no solution that is known here"),
        (
            '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "b">]>\n' + CPLEX.format("&a;"),
            "declarations of its own",
        ),
        ("<?xml version='1.0'?><other/>", "is no solution that is known here"),
    ],
)
def test_what_a_file_says_of_itself_is_believed_where_it_speaks_against_it(text, told):
    with pytest.raises(ValueError, match=told):
        read_solution(text, ["x"])


@pytest.mark.parametrize("form", NONE)
def test_a_file_without_a_solution_says_so(form):
    with pytest.raises(ValueError, match="the file holds no solution: the solver said '"):
        read_solution(NONE[form], ["x"])


@forms
@settings(max_examples=examples(25))
@given(data=st.data())
def test_damaged_files_are_refused_in_a_sentence(form, data):
    program = knapsack(3, 2)
    text, names = written(form, program, optimum(program))
    lines = text.splitlines()
    at = data.draw(st.integers(0, len(lines) - 1))
    lines_of_junk = ["", "x", "x nan", "7 x 1e999 0", "j 99 1", "j 1 x", "\x00", "a b c d e"]
    junk = data.draw(st.sampled_from(lines_of_junk))
    damaged = "\n".join([*lines[:at], junk, *lines[at + data.draw(st.integers(0, 2)) :]])
    try:
        _, faults = read_solution(damaged, names).point(program, exported(program))
    except ValueError as error:
        faults = [str(error)]
    assert all(fault and "Traceback" not in fault for fault in faults)


@pytest.mark.parametrize("text", ["{}", "x 1\ny 2\n", "<?xml?>\n", "NAME wattsched FREE\nROWS\n"])
def test_other_files_are_refused(text):
    with pytest.raises(ValueError, match="the forms of HiGHS"):
        read_solution(text, ["x", "y"])
