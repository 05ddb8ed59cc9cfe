"""``wattsched solve``: decide an instance of any problem."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import click

from wattsched.cli.completion import named
from wattsched.cli.executors import dask_option, spread
from wattsched.cli.failures import INFEASIBLE, INTERNAL_ERROR, NO_SOLUTION, BadInput, refusing
from wattsched.cli.files import (
    DOCUMENT_SUFFIXES,
    STANDARD,
    answer_text,
    content_of,
    problem,
    progress,
    read_document,
    read_instance,
    received,
    shown,
    stray_output_to_stderr,
    write,
)
from wattsched.cli.outputs import command_line, json_option, output_option, report_option
from wattsched.cli.parameters import (
    UNLIMITED_S,
    Described,
    Limits,
    Number,
    Whole,
    filling,
    limit_options,
    names_of_problems,
)
from wattsched.extras import late

if TYPE_CHECKING:
    from wattsched.executors import Executor
    from wattsched.result import Result
    from wattsched.tradeoffs import ParetoResult

T = TypeVar("T")

EXIT_CODES = {
    "optimal": 0,
    "feasible": 0,
    "infeasible": INFEASIBLE,
    "no_solution": NO_SOLUTION,
    "error": INTERNAL_ERROR,
}


_LEAST_S = 1e-3
# What solves and prints.
_NEEDED = ("engine", "documents", "formulations.model", "tradeoffs", "cli.show", "report.summary")
# Loading these takes longer than this everywhere.
_LOADING_S = 0.2
# To print and to leave takes as long as this, to write the result about half as long as to read the instance.
_LEAVING_S, _WRITING = 0.05, 0.5


@dataclass(frozen=True)
class Asked:
    """Formulation, solver, objective and proof effort that the instance is solved with.

    Parameters
    ----------
    formulation : str, optional
        How to write the problem (for sizing 'mckp' by default); FILE.py:NAME runs a file of yours.
    solver : str
        Who solves it.
    objective : str, optional
        Instead of the instance's objective.
    warm : str, optional
        Result or decision file to start from.
    prove : float, optional
        Seconds to prove case by case what prices alone do not (default: about half a second); 0 for none.
    """

    formulation: str | None = None
    solver: str = "auto"
    objective: str | None = None
    warm: str | None = None
    prove: float | None = None


@click.command("solve", cls=Described, sections=names_of_problems)
@click.argument("file")
@filling(
    "asked",
    Asked,
    **named("formulation", "solver", "objective"),
    warm={"metavar": "RESULT"},
    prove={"metavar": "SECONDS", "type": Number(0)},
)
@limit_options
@click.option(
    "--frontier",
    "points",
    type=Whole(2, 100),
    metavar="N",
    help="For shifting: N decisions from the soonest completion to the least carbon, energy or money.",
)
@dask_option("the passes over the jobs of a large round of sizing")
@output_option(*DOCUMENT_SUFFIXES, help="Write the result to a .json, .json.gz or .parquet file.")
@report_option("the decision, its proof and its prices")
@json_option("the result")
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Tell on standard error what is done, every better decision with its gap, and the solver's log.",
)
def command(
    file: str,
    asked: Asked,
    limits: Limits,
    points: int | None,
    dask: str | None,
    output: str | None,
    report: str | None,
    as_json: bool,
    verbose: bool,
) -> int:
    """Decide the instance in FILE ('-' is standard input).

    Prints the decision with its bound and the price of every budget. Exit code 0 with a checked decision,
    3 if there is none, 4 if none was found in time.
    """
    if file == asked.warm == STANDARD:
        raise BadInput("only one of FILE and --warm can be standard input")
    if report is not None and points is not None:
        raise BadInput("--report: cannot be combined with --frontier")
    begun_s = time.monotonic() - click.get_current_context().find_root().obj
    limits = replace(limits, time_limit=min(limits.time_limit, UNLIMITED_S))
    instance, limits = _read(file, _less(limits, begun_s + _LEAVING_S))
    if instance is None:
        untimely = "no decision, there was no time to read the instance and load what solves it"
        click.echo(f"{file}: {untimely}", err=True)
        return NO_SOLUTION
    from wattsched.instances.errors import sourced

    if points is not None and dask is not None:
        raise BadInput("--frontier: cannot be combined with --dask")
    begun_s = time.monotonic()
    with sourced(shown(file)), spread(dask) as executor:
        limits = _less(limits, time.monotonic() - begun_s)
        traced = None if points is None else _trace(instance, points, asked, limits)
        answer = traced or _solve(instance, asked, limits, executor, _say if verbose else None)
    if output is not None:
        write(output, content_of(answer, output))
    if report is not None:
        page = late("report.html.solved:page_of")(answer, instance, command_line())
        write(report, late("report.html.page:rendered")(page))
    if as_json and output != STANDARD:
        write(None, answer_text(answer))
    elif output != STANDARD:
        late("cli.show:print_answer")(answer, instance)
    return 0 if answer.termination is None else EXIT_CODES[answer.termination.reason]


def _read(file: str, limits: Limits) -> tuple[Any, Limits]:
    """Read the instance, and load what solves it; and what this and the writing leave of the limits.

    Instead of the instance None where nothing is left.
    """
    from wattsched.deadline import Uncollected

    if limits.time_limit < _LOADING_S:
        return None, limits
    # How long others take to send theirs is not our time.
    with received(file) as path, Uncollected():
        instance, left = _timed(partial(read_instance, file, path), limits)
        if instance is None:
            return None, left
        writing_s = _WRITING * (limits.time_limit - left.time_limit)
        loaded, left = _timed(_load, left)
    left = _less(left, writing_s)
    return instance if loaded and left.time_limit > _LEAST_S else None, left


def _timed(work: Callable[[], T], limits: Limits) -> tuple[T | None, Limits]:
    """Do some work under the limit: what it returned, None where it was given up, and what is left."""
    from wattsched.deadline import nothing, on_time

    begin = time.monotonic()
    found = on_time(work, limits.time_limit, nothing)
    return found, _less(limits, time.monotonic() - begin)


def _load() -> bool:
    for name in _NEEDED:
        import_module(f"wattsched.{name}")
    return True


def _less(limits: Limits, seconds: float) -> Limits:
    """Limits with so much less time."""
    return replace(limits, time_limit=max(_LEAST_S, limits.time_limit - seconds))


def _say(told: str) -> None:
    from wattsched.report.wording import printable

    click.echo(printable(told), err=True)


def _solve(
    instance: Any,
    asked: Asked,
    limits: Limits,
    executor: Executor | None = None,
    log: Callable[[str], None] | None = None,
) -> Result:
    """Solve, and say in words what is wrong with names and limits."""
    from wattsched.engine import require_names, solve
    from wattsched.formulations.model import UnsuitableError

    rules = problem(instance.problem)
    with refusing():
        goal = instance.objective if asked.objective is None else asked.objective
        # This executes a formulation's file.
        names = partial(require_names, rules, asked.formulation, asked.solver, goal)
        _, limits = _timed(names, limits)
    earlier = None
    if asked.warm is not None:
        earlier, limits = _timed(partial(_earlier, asked.warm, instance.problem), limits)
    try:
        bar = progress(f"solving {instance.name}") if log is None else nullcontext()
        with bar, stray_output_to_stderr():
            given = {name: value for name, value in asdict(asked).items() if name != "warm"}
            given |= {"initial_solution": earlier, "executor": executor, "log": log}
            result = solve(instance, **given, **asdict(limits))
    except UnsuitableError as error:
        raise BadInput(f"--formulation {asked.formulation or rules.default}: {error}") from None
    if result.unsupported:
        raise BadInput(f"--solver {asked.solver} --formulation {result.formulation}: {result.unsupported}")
    return result


def _earlier(warm: str, problem: str) -> Any:
    """Read the answer to start from, a result or a decision."""
    from wattsched.documents import answer_of

    answer = answer_of(read_document(warm), problem, shown(warm))
    of = getattr(answer, "problem", problem)
    if of != problem:
        raise BadInput(f"--warm {warm}: is of the problem '{of}', the instance of '{problem}'")
    return answer


def _trace(instance: Any, points: int, asked: Asked, limits: Limits) -> ParetoResult:
    """Trace the Pareto frontier of an instance."""
    from wattsched.tradeoffs import pareto

    if asked.warm is not None or asked.objective is not None:
        raise BadInput("--frontier: cannot be combined with --warm or --objective")
    if not problem(instance.problem).traces_pareto:
        raise BadInput(f"--frontier: is for problem 'shifting', the instance is of '{instance.problem}'")

    def one(instance: Any, time_limit: float = UNLIMITED_S) -> Result:
        return _solve(instance, asked, replace(limits, time_limit=time_limit))

    with progress(f"tracing {instance.name}"), refusing():
        return pareto(instance, points, time_limit=limits.time_limit, solve=one)
