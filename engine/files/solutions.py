"""Solution files of other solvers: `import_solution` makes a result of one, `export_solution` writes one."""

from __future__ import annotations

import os
from pathlib import Path
from types import NoneType
from typing import Any

from pydantic import BaseModel

from wattsched.formulations.infeasibility import InfeasibleError
from wattsched.formulations.tolerances import FEASIBILITY
from wattsched.instances.digest import digest_of
from wattsched.instances.errors import InputError, naming, require, require_known, require_range
from wattsched.reading.arguments import require_types
from wattsched.reading.inputs import read_text
from wattsched.results.documents import read_result
from wattsched.results.result import Result
from wattsched.solvers.export import exported
from wattsched.solvers.solution import Solution, Termination
from wattsched.solvers.solution_files import FORMS, read_solution, write_solution
from wattsched.solving.answer import Answer
from wattsched.solving.call import Call
from wattsched.solving.engine import (
    limits_of,
    model_of,
    proof_seconds,
    require_names,
    sound_instance,
    with_objective,
)

_BY = "highs"
"""A solver of listed columns, as the exported file has them; it is not asked."""


class RefusedSolutionError(InputError):
    """A solution that breaks rows of its program, or whose decision fails the check."""


def import_solution(
    instance: BaseModel | str | Path,
    file: str | Path,
    *,
    formulation: str | None = None,
    objective: str | None = None,
    gap: float = 1e-4,
    prove: float | None = None,
) -> Result:
    """Read back the solution that another solver has found for the program of `export_program`.

    Its decision is placed and checked, and its bound is proven here, as `solve` proves it: a file of a
    solution holds no proof.

    Parameters
    ----------
    instance, formulation, objective
        As they were given to `export_program`.
    file : str or Path
        As HiGHS, SCIP, CBC, GLPK (``glpsol -w`` and ``-o``), Gurobi or CPLEX (XML) write it. Columns that it
        leaves out are 0.
    gap : float
        Relative gap at which the decision counts as optimal.
    prove : float, optional
        Seconds for a certificate tree, as of `solve`.

    Returns
    -------
    Result
        Its solver is ``file:NAME``, after the form of the file.

    Raises
    ------
    InputError
        For an instance that is none; a `RefusedSolutionError` for a solution that breaks rows, named as in
        the exported file, and one whose decision the checker refuses.
    ValueError
        For unknown names, a file that is no solution or holds none, and where there is no program.
    TypeError
        For arguments of another type.
    OSError
        When the file cannot be read.
    """
    limits = limits_of(gap, None)
    for name, value in (("formulation", formulation), ("objective", objective)):
        require(name, value, (str, NoneType), "a name")
    require("file", file, (str, os.PathLike), "a path")
    prove = proof_seconds(prove)
    sound, problem = sound_instance(instance)
    goal = require_names(problem, formulation, _BY, sound.objective if objective is None else objective)
    sound = with_objective(problem, sound, goal)
    call = Call(sound, (formulation, _BY, goal), limits, prove_s=prove)
    call.begin(sound, problem, {})
    call.digest, call.data = digest_of(sound), problem.expand(sound)
    try:
        if reasons := problem.diagnose(call.data):
            raise InfeasibleError("; ".join(reasons))
        model = call.model(call.formulation)
    except InfeasibleError as error:
        raise ValueError(f"there is no program: {error.detail}") from None
    with naming(file):
        table = exported(model.listed)
        read = read_solution(read_text(file), [column.name for column in table.columns])
    x, faults = read.point(model.listed, table)
    if x is None:
        raise RefusedSolutionError(faults, str(file))
    cost = model.listed.objective(x)
    # As if its solver had said that it is optimal: as much of that is proven as can be, and no more is kept.
    said = Solution(Termination("feasible"), x, cost, bound=cost)
    answer = Answer(call, model, said, []).result()
    if answer.decision is None:
        raise RefusedSolutionError([answer.termination.detail.replace(f"'{_BY}'", "the file")], str(file))
    listed: Any = problem.listed(answer.decision)
    return answer.as_proven(gap).model_copy(update={"solver": f"file:{read.solver}", "decision": listed})


def export_solution(
    instance: BaseModel | str | Path,
    result: Result | str | Path,
    form: str = "highs",
    *,
    formulation: str | None = None,
    objective: str | None = None,
) -> str:
    """Write a decision as a solution of the program of `export_program`, for another solver to start from.

    Parameters
    ----------
    instance, formulation, objective
        As they were given to `export_program`.
    result : Result, str or Path
        A result of the instance, or the path of one.
    form : {"highs", "scip", "cbc", "glpk", "gurobi", "cplex"}
        Solver that reads the file. Rows and columns of GLPK's are those of the MPS file.

    Raises
    ------
    ValueError, TypeError, wattsched.InputError
        As `export_program` and `read_result`; also for a result without a decision, for one that is no point
        of the program, and for a formulation that cannot name points: an algebraic one.
    """
    require_types(export_solution, locals())
    require_known("form", form, FORMS)
    known = result if isinstance(result, Result) else read_result(result)
    sound, problem = sound_instance(instance)
    require("result", known.decision, (problem.decision,), f"one with a decision of {problem.name}")
    require_range(not known.limits, "result", "one of a single objective", "one of objectives in order")
    if known.digest and known.digest != digest_of(sound):
        raise ValueError("result: it is of another instance, or the instance was changed since")
    try:
        model = model_of(sound, formulation=formulation, objective=objective)
    except InfeasibleError as error:
        raise ValueError(f"there is no program: {error.detail}") from None
    program, x = model.listed, model.encode(known.decision)
    if x is None or program.violation(x) > FEASIBILITY:
        raise ValueError("result: its decision is no point of the program that the formulation can name")
    return write_solution(form, exported(program), x, program.objective(x))
