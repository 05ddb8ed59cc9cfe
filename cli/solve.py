"""``wattsched solve``: decide an instance of any problem."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wattsched.cli.completion import name_option
from wattsched.cli.executors import dask_option, spread
from wattsched.cli.failures import INFEASIBLE, INTERNAL_ERROR, NO_SOLUTION, BadInput, refusing
from wattsched.cli.files import (
    DOCUMENT_SUFFIXES,
    STANDARD,
    answer_text,
    content_of,
    named_input,
    problem,
    progress,
    read_document,
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
    limit_options,
    names_of_problems,
    prove_option,
)
from wattsched.environment.extras import late
from wattsched.formulations.timer import Timer

if TYPE_CHECKING:
    from wattsched.results.result import Result
    from wattsched.running.executors import Executor
    from wattsched.solving.k_best import KBest
    from wattsched.solving.tradeoffs import ParetoResult

EXIT_CODES = {
    "optimal": 0,
    "feasible": 0,
    "infeasible": INFEASIBLE,
    "no_solution": NO_SOLUTION,
    "error": INTERNAL_ERROR,
}
_LEAST_S = 1e-3
# What solves and prints.
_NEEDED = (
    "solving.engine",
    "results.documents",
    "formulations.model",
    "solving.tradeoffs",
    "cli.show",
    "report.summary",
)
# Prices that nobody asked for are found of so many columns, and in so many seconds, or not told.
_QUICKLY_PRICED, _PRICING_S = 50_000, 2.0
# Loading these takes longer than this everywhere.
_LOADING_S = 0.2
# To print and to leave takes as long as this, to write the result about half as long as to read the instance.
_LEAVING_S, _WRITING = 0.05, 0.5


@click.command("solve", cls=Described, sections=names_of_problems)
@click.argument("file")
@name_option(
    "formulation",
    "How to write the problem (for sizing 'mckp' by default); FILE.py:NAME runs a file of yours.",
)
@name_option("solver", "Who solves it.", default="auto")
@name_option(
    "objective",
    "Instead of the instance's objective; several, as in makespan,energy, in the order in which they count.",
)
@click.option(
    "--tolerance",
    type=Number(0),
    metavar="SHARE",
    help="Of several objectives, what each may lose of its value to those after it (default: the gap).",
)
@click.option(
    "--best",
    type=Whole(1, 100),
    metavar="K",
    help="For sizing: the K best decisions that differ.",
)
@click.option(
    "--differ",
    type=Whole(1),
    metavar="JOBS",
    help="Of the K best: jobs, at least, that do something else than in each one before (default: 1).",
)
@click.option("--warm", metavar="RESULT", help="Result or decision file to start from.")
@prove_option
@limit_options
@click.option(
    "--frontier",
    "points",
    type=Whole(2, 100),
    metavar="N",
    help="N decisions between two objectives, --objective X,Y; without these, of shifting, from the soonest "
    "completion to the least carbon, energy or money.",
)
@dask_option("the passes over the jobs of a large round of sizing")
@output_option(*DOCUMENT_SUFFIXES, help="Write the result to a .json, .json.gz or .parquet file.")
@click.option(
    "--marginal",
    is_flag=True,
    help="Also decide what one more of each scarce budget brings; other prices are of the linear relaxation.",
)
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
    warm: str | None,
    limits: Limits,
    points: int | None,
    best: int | None,
    differ: int | None,
    dask: str | None,
    output: str | None,
    marginal: bool,
    report: str | None,
    as_json: bool,
    verbose: bool,
    **requested: Any,
) -> int:
    """Decide the instance in FILE ('-' is standard input).

    Prints the decision with its bound and the price of every budget. Exit code 0 with a checked decision,
    3 if there is none, 4 if none was found in time.
    """
    if file == warm == STANDARD:
        raise BadInput("only one of FILE and --warm can be standard input")
    if marginal and (as_json or output == STANDARD or points is not None or best is not None):
        raise BadInput("--marginal: these prices are printed only; Python's marginal_prices returns them")
    requested["objective"] = _named(requested["objective"])
    if points is not None or best is not None:
        _require_one_kind(requested["objective"], points, best, warm, dask, report)
        _require_json(output, "--frontier" if best is None else "--best")
    if requested["tolerance"] is not None and (points is not None or best is not None):
        raise BadInput("--tolerance: cannot be combined with --frontier or --best")
    if requested["tolerance"] is not None and not isinstance(requested["objective"], list):
        raise BadInput("--tolerance: is of several objectives, --objective X,Y")
    if differ is not None and best is None:
        raise BadInput("--differ: is of the K best decisions, --best K")
    started_s = time.monotonic() - click.get_current_context().find_root().obj  # what starting took
    with named_input(file) as path:  # how long others take to send theirs is not our time
        timer = Timer(min(limits.time_limit, UNLIMITED_S))
        instance = _read(path, timer, started_s + _LEAVING_S)
    if instance is None:
        untimely = "no decision, there was no time to read the instance and load what solves it"
        click.echo(f"{file}: {untimely}", err=True)
        return NO_SOLUTION
    from wattsched.instances.errors import sourced

    requested |= {"gap": limits.gap, "threads": limits.threads, "seed": limits.seed}
    with sourced(shown(file)), spread(dask) as executor:
        answer: Any
        if best is not None:
            answer = _find_best(instance, best, differ or 1, timer, **requested)
        elif points is not None:
            answer = _trace(instance, points, timer, **requested)
        else:
            answer = _solve(instance, timer, warm, executor, _say if verbose else None, **requested)
    if output is not None:
        write(output, content_of(answer, output))
    if report is not None:
        page = late("report.html.solved:page_of")(answer, instance, command_line())
        write(report, late("report.html.page:rendered")(page))
    if as_json and output != STANDARD:
        write(None, answer_text(answer))
    elif output != STANDARD:
        several = points is not None or best is not None
        told = None if several else _marginal(answer, instance, timer, requested, solved=marginal)
        late("cli.show:print_answer")(answer, instance, told)
    ended = _ended(answer)
    return 0 if ended is None else EXIT_CODES[ended.reason]


def _named(objective: str | None) -> str | list[str] | None:
    """Return an objective's name, or a list where several are named."""
    return objective if objective is None or "," not in objective else objective.split(",")


def _ended(answer: Any) -> Any:
    """Return how an answer ended; of several results None where one has a decision."""
    return answer.results[0].termination if hasattr(answer, "results") else answer.termination


def _require_one_kind(
    objective: str | list[str] | None,
    points: int | None,
    best: int | None,
    warm: str | None,
    dask: str | None,
    report: str | None,
) -> None:
    """Refuse what several results cannot be combined with."""
    option = "--frontier" if best is None else "--best"
    if report is not None:
        raise BadInput(f"--report: cannot be combined with {option}")
    if dask is not None:
        raise BadInput(f"{option}: cannot be combined with --dask")
    if warm is not None:
        raise BadInput(f"{option}: cannot be combined with --warm")
    if points is not None and best is not None:
        raise BadInput("--frontier: cannot be combined with --best")
    if best is not None and isinstance(objective, list):
        raise BadInput("--best: takes one --objective")
    if points is not None and objective is not None and (isinstance(objective, str) or len(objective) != 2):
        raise BadInput("--frontier: takes two objectives, --objective X,Y")


def _require_json(output: str | None, option: str) -> None:
    """Refuse a file that cannot hold several results."""
    if output is not None and output.lower().endswith(".parquet"):
        raise BadInput(f"{option}: several results are written as .json or .json.gz, not as .parquet")


def _read(path: str | Path, timer: Timer, aside_s: float) -> Any:
    """Read the instance, and load the modules that solve it; None where that leaves no time to solve.

    Of the timer's limit, time to write the result and `aside_s` besides are set aside.
    """
    from wattsched.solving.deadline import Uncollected

    timer.set_aside(aside_s)
    if (timer.remaining_s() or 0.0) < _LOADING_S:
        return None
    with Uncollected():
        with timer.phase("read"):
            instance = _in_time(partial(late("results.documents:read_instance"), path), timer)
        timer.set_aside(aside_s + _WRITING * timer.phase_s["read"])
        loaded = instance is not None and _in_time(_load, timer)
    return instance if loaded and _left(timer) > _LEAST_S else None


def _in_time(work: Callable[[], Any], timer: Timer) -> Any:
    """Return what some work returns; None where it was given up, as the timer's limit was reached."""
    from wattsched.solving.deadline import nothing, on_time

    return on_time(work, timer.remaining_s(), nothing)


def _left(timer: Timer) -> float:
    """Return the seconds left, never none: to a solver 0 would be no limit."""
    return max(_LEAST_S, timer.remaining_s() or 0.0)


def _load() -> bool:
    for name in _NEEDED:
        import_module(f"wattsched.{name}")
    return True


def _say(told: str) -> None:
    from wattsched.report.wording import printable

    click.echo(printable(told), err=True)


def _solve(
    instance: Any,
    timer: Timer,
    warm: str | None = None,
    executor: Executor | None = None,
    log: Callable[[str], None] | None = None,
    **requested: Any,
) -> Result:
    """Solve an instance in the timer's time; unknown names and unsuitable solvers are bad input.

    `warm` is the file to start from; `log` takes lines of what is done, in place of a progress bar.
    """
    from wattsched.formulations.model import UnsuitableError
    from wattsched.solving.engine import require_names, solve
    from wattsched.solving.orders import require_order

    rules, solver, objective = problem(instance.problem), requested["solver"], requested["objective"]
    with refusing():
        named = instance.objective if objective is None else objective
        goals = named if isinstance(named, list) else [named]
        if len(goals) > 1:
            require_order(rules, goals)
        # The time counts, as this executes a formulation's file.
        _in_time(partial(require_names, rules, requested["formulation"], solver, goals[0]), timer)
    earlier = None if warm is None else _in_time(partial(_earlier, warm, instance.problem), timer)
    try:
        bar = progress(f"solving {instance.name}") if log is None else nullcontext()
        with bar, stray_output_to_stderr():
            given: dict[str, Any] = {"initial_solution": earlier, "executor": executor, "log": log}
            result = solve(instance, time_limit=_left(timer), **requested, **given)
    except UnsuitableError as error:
        raise BadInput(
            f"--formulation {rules.formulation_of(instance, requested['formulation'])}: {error}"
        ) from None
    if result.unsupported:
        raise BadInput(f"--solver {solver} --formulation {result.formulation}: {result.unsupported}")
    return result


def _marginal(
    answer: Any, instance: Any, timer: Timer, requested: Mapping[str, Any], *, solved: bool
) -> Mapping[str, Any] | None:
    """Marginal prices of a decision, None where there are none; without `solved` soon or not at all."""
    if not answer.solved or answer.size is None:
        return None
    # Of other problems not all rows are capacities and budgets, and to build their program anew takes long.
    if not solved and (instance.problem != "sizing" or answer.size.columns > _QUICKLY_PRICED):
        return None
    from wattsched.solving.marginal import NoPricesError, marginal_prices

    if answer.limits:
        return None
    of = {"formulation": requested["formulation"], "objective": requested["objective"]}
    time_limit = _left(timer) if solved else min(_PRICING_S, _left(timer))
    try:
        return marginal_prices(instance, solved=solved, time_limit=time_limit, **of)
    except NoPricesError as error:
        if solved:
            raise BadInput(f"--marginal: {error}") from None
        return None


def _earlier(warm: str, problem: str) -> Any:
    """Read the answer to start from, a result or a decision."""
    from wattsched.results.documents import answer_of

    answer = answer_of(read_document(warm), problem, shown(warm))
    of = getattr(answer, "problem", problem)
    if of != problem:
        raise BadInput(f"--warm {warm}: is of the problem '{of}', the instance of '{problem}'")
    return answer


def _trace(instance: Any, points: int, timer: Timer, **requested: Any) -> ParetoResult:
    """Trace so many points of a frontier in the timer's time."""
    from wattsched.solving.tradeoffs import pareto

    objectives, _ = requested.pop("objective"), requested.pop("tolerance")
    if objectives is None and instance.problem != "shifting":
        raise BadInput("--frontier: needs two objectives, --objective X,Y, but for problem 'shifting'")

    def one(instance: Any, time_limit: float = UNLIMITED_S) -> Result:
        return _solve(instance, Timer(time_limit), conflict=0.0, objective=None, **requested)

    with progress(f"tracing {instance.name}"), refusing():
        return pareto(instance, points, objectives=objectives, time_limit=_left(timer), solve=one)


def _find_best(instance: Any, best: int, differ: int, timer: Timer, **requested: Any) -> KBest:
    """Find the best decisions that differ in the timer's time."""
    from wattsched.solving.k_best import k_best

    requested.pop("tolerance")
    with progress(f"solving {instance.name}"), stray_output_to_stderr(), refusing():
        return k_best(instance, best, differ=differ, time_limit=_left(timer), **requested)
