"""``wattsched solve``: decide an instance of any problem."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from wattsched.cli.failures import INFEASIBLE, INTERNAL_ERROR, NO_SOLUTION, BadInput, refusing
from wattsched.cli.files import (
    JSON_SUFFIXES,
    STANDARD,
    answer_text,
    output_option,
    read_document,
    read_instance,
    refuse_overwriting,
    shown,
    stray_output_to_stderr,
    write,
)
from wattsched.cli.parameters import UNLIMITED_S, Names, Whole, limit_options

if TYPE_CHECKING:
    from wattsched.result import Result
    from wattsched.tradeoffs import ParetoResult

EXIT_CODES = {
    "optimal": 0,
    "feasible": 0,
    "infeasible": INFEASIBLE,
    "no_solution": NO_SOLUTION,
    "error": INTERNAL_ERROR,
}


@click.command("solve", cls=Names)
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
    "points",
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
    points: int | None,
    output: str | None,
    as_json: bool,
) -> int:
    """Decide the instance in FILE ('-' is standard input).

    Prints the decision with its bound and the price of every budget. Exit code 0 with a checked decision,
    3 if there is none, 4 if none was found in time.
    """
    if file == warm == STANDARD:
        raise BadInput("only one of FILE and --warm can be standard input")
    refuse_overwriting(output, file, warm)
    instance = read_instance(file)
    asked = {"formulation": formulation, "solver": solver, "gap": gap, "threads": threads, "seed": seed}
    asked["time_limit"] = min(time_limit, UNLIMITED_S)
    if points is not None:
        if warm is not None or objective is not None:
            raise BadInput("--frontier: cannot be combined with --warm or --objective")
        return _trace(instance, points, asked, output, as_json)
    result = _solve(instance, asked | {"objective": objective}, warm)
    if result.unsupported:
        raise BadInput(f"--solver {solver} --formulation {result.formulation}: {result.unsupported}")
    if _written(result, output, as_json):
        from wattsched.report.summary import print_result
        from wattsched.report.terminal import console

        print_result(console(), result, instance)
    return EXIT_CODES[result.termination.reason]


def _solve(instance: Any, asked: dict[str, Any], warm: str | None) -> Result:
    """Solve, and say in words what is wrong with names and limits."""
    from wattsched.documents import answer_of
    from wattsched.engine import require_names, solve
    from wattsched.formulations.model import UnsuitableError
    from wattsched.problems import problem
    from wattsched.report.terminal import progress

    with refusing():
        names = asked["formulation"], asked["solver"], asked["objective"] or instance.objective
        require_names(problem(instance.problem), *names)
    earlier = None if warm is None else answer_of(read_document(warm), instance.problem, shown(warm))
    of = getattr(earlier, "problem", instance.problem)
    if of != instance.problem:
        raise BadInput(f"--warm {warm}: is of the problem '{of}', the instance of '{instance.problem}'")
    try:
        with progress(f"solving {instance.name}"), stray_output_to_stderr():
            return solve(instance, initial_solution=earlier, **asked)
    except UnsuitableError as error:
        formulation = asked["formulation"] or problem(instance.problem).default
        raise BadInput(f"--formulation {formulation}: {error}") from None


def _trace(instance: Any, points: int, asked: dict[str, Any], output: str | None, as_json: bool) -> int:
    """Trace the Pareto frontier of an instance, and write or print it; each point has the time limit."""
    from wattsched.problems import problem
    from wattsched.report.terminal import console, progress
    from wattsched.tradeoffs import pareto

    rules = problem(instance.problem)
    if not rules.traces_pareto:
        raise BadInput(f"--frontier: is for problem 'shifting', the instance is of '{instance.problem}'")

    def solve_point(one: Any, **options: Any) -> Result:
        result = _solve(one, options | {"objective": None}, None)
        if result.unsupported:
            formulation = asked["formulation"] or rules.default
            raise BadInput(f"--solver {asked['solver']} --formulation {formulation}: {result.unsupported}")
        return result

    with progress(f"tracing {instance.name}"), refusing():
        found = pareto(instance, points, solve=solve_point, **asked)
    if _written(found, output, as_json):
        from wattsched.cli.tables.pareto import print_pareto

        print_pareto(console(), found)
    return 0 if found.termination is None else EXIT_CODES.get(found.termination.reason, NO_SOLUTION)


def _written(answer: Result | ParetoResult, output: str | None, as_json: bool) -> bool:
    """Write an answer where it is wanted; whether it is to be printed besides."""
    text = answer_text(answer)
    if output is not None:
        write(output, text)
    if as_json and output != STANDARD:
        write(None, text)
    return not as_json and output != STANDARD
