"""``wattsched solve``: decide a scheduling round."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from wattsched.cli.failures import INFEASIBLE, INTERNAL_ERROR, NO_SOLUTION, BadInput, refusing
from wattsched.cli.files import (
    JSON_SUFFIXES,
    STANDARD,
    output_option,
    read_answer,
    read_any_instance,
    refuse_overwriting,
    result_text,
    write,
)
from wattsched.cli.limits import UNLIMITED_S, NamesOfProblems, limit_options
from wattsched.cli.parameters import Whole

if TYPE_CHECKING:
    from wattsched.instances.sizing.instance import Instance
    from wattsched.result import Result

EXIT_CODES = {
    "optimal": 0,
    "feasible": 0,
    "infeasible": INFEASIBLE,
    "no_solution": NO_SOLUTION,
    "error": INTERNAL_ERROR,
}


@click.command("solve", cls=NamesOfProblems)
@click.argument("file")
@click.option(
    "--formulation",
    metavar="NAME",
    help="How to write the problem (for sizing 'mckp' by default); FILE.py:NAME runs a file of yours.",
)
@click.option("--solver", default="auto", show_default=True, metavar="NAME", help="Who solves it.")
@click.option("--objective", metavar="NAME", help="Instead of the instance's objective.")
@limit_options
@click.option("--warm", metavar="RESULT", help="Result or decision file to start from.")
@click.option(
    "--frontier",
    type=Whole(2, 100),
    metavar="N",
    help="For shifting: N decisions from the soonest completion to the least carbon, energy or money.",
)
@output_option(*JSON_SUFFIXES, help="Write the result to a .json or .json.gz file.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON, alone, on standard output.")
def command(
    file: str,
    formulation: str | None,
    solver: str,
    objective: str | None,
    gap: float,
    time_limit: float,
    threads: int,
    seed: int,
    warm: str | None,
    frontier: int | None,
    output: str | None,
    as_json: bool,
) -> int:
    """Decide the scheduling round in FILE ('-' is standard input).

    Prints the decision with its bound and the price of every budget. Exit code 0 with a checked decision,
    3 if there is none, 4 if none was found in time.
    """
    if file == warm == STANDARD:
        raise BadInput("only one of FILE and --warm can be standard input")
    refuse_overwriting(output, file, warm)
    from wattsched.cli.stdout import stray_output_to_stderr
    from wattsched.cli.terminal import progress

    instance = read_any_instance(file)
    if frontier is not None:
        from wattsched.cli.frontier import solve_frontier

        if warm is not None or objective is not None:
            raise BadInput("--frontier: cannot be combined with --warm or --objective")
        return solve_frontier(
            instance, frontier, output=output, as_json=as_json, time_limit=time_limit,
            formulation=formulation, solver=solver, gap=gap, threads=threads, seed=seed,
        )  # fmt: skip
    if instance.problem != "sizing":
        from wattsched.cli.plans import solve_plan

        answer = solve_plan(
            instance, formulation=formulation, solver=solver, objective=objective, gap=gap,
            time_limit=time_limit, threads=threads, seed=seed, warm=warm, output=output, as_json=as_json,
        )  # fmt: skip
        return EXIT_CODES[answer.termination.reason]
    formulation = formulation or "mckp"
    _require_names(instance.problem, formulation, solver, objective or instance.objective)
    known = None if warm is None else read_answer(warm)
    with progress(f"solving {instance.name}"), stray_output_to_stderr():
        from wattsched.engine import solve

        result = solve(
            instance,
            formulation=formulation,
            solver=solver,
            objective=objective,
            gap=gap,
            time_limit=min(time_limit, UNLIMITED_S),
            threads=threads,
            seed=seed,
            warm=known,
        )
    if result.declined:
        raise BadInput(f"--solver {solver} --formulation {formulation}: {result.declined}")
    _report(result, instance, output, as_json)
    return EXIT_CODES[result.termination.reason]


def _require_names(problem: str, formulation: str, solver: str, objective: str) -> None:
    """Refuse unknown names; the messages list the known ones."""
    from wattsched.formulations.registry import formulation as find_formulation
    from wattsched.formulations.sizing.objectives import objective as find_objective
    from wattsched.solvers.registry import get as find_solver

    with refusing():
        find_formulation(problem, formulation)
        find_solver(solver)
        find_objective(objective)


def _report(result: Result, instance: Instance, output: str | None, as_json: bool) -> None:
    if output is not None:
        write(output, result_text(result))
    if as_json and output != STANDARD:
        write(None, result_text(result))
    elif output != STANDARD:
        from wattsched.cli.summary import print_result
        from wattsched.cli.terminal import console

        print_result(console(), result, instance)
