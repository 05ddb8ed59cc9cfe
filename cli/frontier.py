"""Frontiers, from the soonest completion to the least carbon: ``solve --frontier N``, `check` and `show`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

from wattsched.cli.failures import INFEASIBLE, NO_SOLUTION, BadInput, refusing
from wattsched.cli.files import STANDARD, write
from wattsched.cli.limits import UNLIMITED_S

if TYPE_CHECKING:
    from wattsched.frontier_result import FrontierResult
    from wattsched.plan_result import PlanResult

AGAINST: dict[str, Literal["carbon", "energy", "money"]] = {
    "completion": "carbon",
    "carbon": "carbon",
    "energy": "energy",
    "money": "money",
}
"""Objective of an instance to the criterion that completion is traded against."""

UNITS = {"carbon": "g", "energy": "J", "money": ""}


def solve_frontier(
    instance: Any,
    points: int,
    *,
    output: str | None,
    as_json: bool,
    time_limit: float,
    formulation: str | None,
    solver: str,
    **limits: Any,
) -> int:
    """Trace the frontier of an instance of shifting, and write or print it; each point has the time limit."""
    if instance.problem != "shifting":
        raise BadInput(f"--frontier: is for problem 'shifting', the instance is of '{instance.problem}'")
    from wattsched.cli.stdout import stray_output_to_stderr
    from wattsched.cli.terminal import progress
    from wattsched.formulations.problems import problem as find_problem
    from wattsched.formulations.shifting.pareto import trace
    from wattsched.planning import plan, require_names

    problem = find_problem("shifting")
    name = formulation or next(iter(problem.formulations))
    with refusing():
        require_names(problem, name, solver, instance.objective)

    answers: list[PlanResult] = []

    def solve(one: Any) -> PlanResult:
        seconds = min(time_limit, UNLIMITED_S)
        answers.append(plan(one, formulation=name, solver=solver, time_limit=seconds, **limits))
        if answers[-1].declined:
            raise BadInput(f"--solver {solver} --formulation {name}: {answers[-1].declined}")
        return answers[-1]

    against = AGAINST.get(instance.objective, "carbon")
    with progress(f"tracing {instance.name}"), stray_output_to_stderr(), refusing():
        found = trace(instance, points, solve, against)
    from wattsched.frontier_result import FrontierPoint, FrontierResult

    frontier = FrontierResult(
        instance=instance.name,
        against=against,
        points=[FrontierPoint(limit=point.limit, result=point.answer) for point in found],
        # Without a point there was one answer alone.
        termination=None if found else answers[0].termination,
    )
    text = _text(frontier)
    if output is not None:
        write(output, text)
    if as_json and output != STANDARD:
        write(None, text)
    elif output != STANDARD:
        print_frontier(frontier)
    if frontier.termination is None:
        return 0
    return INFEASIBLE if frontier.termination.reason == "infeasible" else NO_SOLUTION


def _text(frontier: FrontierResult) -> str:
    """JSON with one field, and one point, per line."""
    fields = frontier.model_dump(mode="json")
    points = ",\n".join(f"  {json.dumps(point, ensure_ascii=False)}" for point in fields.pop("points"))
    lines = [
        f" {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items()
    ]
    return "{\n" + ",\n".join([*lines, f' "points": [\n{points}\n ]']) + "\n}\n"


def is_frontier(document: Any) -> bool:
    """Whether a parsed document is a frontier."""
    return isinstance(document, dict) and str(document.get("format", "")).startswith("wattsched-frontier/")


def frontier_of(document: Any, source: str) -> FrontierResult:
    """Validate a parsed document as a frontier, its decisions included.

    Raises
    ------
    InputError
        With one line per fault.
    """
    from pydantic import ValidationError

    from wattsched.cli.plans import plan_answer_of
    from wattsched.frontier_result import FrontierResult
    from wattsched.instances.io import InputError, lines_of
    from wattsched.verification.shifting.pareto import TOTALS

    try:
        frontier = FrontierResult.model_validate(document)
    except ValidationError as error:
        raise InputError(lines_of(error, document), source) from None
    for number, point in enumerate(document["points"]):
        at = f"points[{number}].result"
        try:
            known = plan_answer_of(point["result"], "").totals
        except InputError as error:
            raise InputError([f"{at}.{fault}" for fault in error.faults], source) from None
        wanted = ("average_completion_s", TOTALS[frontier.against])
        if lacking := [name for name in wanted if name not in known]:
            raise InputError([f"{at}.totals: '{lacking[0]}' is missing"], source)
    return frontier


def check_frontier(instance: Any, document: Any, source: str) -> int:
    """Check every point of a frontier, print the verdict, and return the exit code."""
    from wattsched.cli.verdict import print_verdict
    from wattsched.cli.wording import count
    from wattsched.verification.shifting.pareto import frontier_faults

    frontier = frontier_of(document, source)
    if instance.problem != "shifting":
        raise BadInput(f"{source}: is a frontier of 'shifting', the instance is of '{instance.problem}'")
    with refusing(source):
        faults = frontier_faults(instance, document)
    return print_verdict(
        faults, [f"{count(len(frontier.points), 'point')}, each with its decision and its proof"]
    )


def print_frontier(frontier: FrontierResult) -> None:
    """Print the points, or why there are none."""
    from wattsched.cli.terminal import console, line, table
    from wattsched.cli.wording import duration, number, percent, quantity
    from wattsched.verification.shifting.pareto import TOTALS

    against = frontier.against
    out = console()
    line(out, (frontier.instance, "bold"), f": from the soonest completion to the least {against}")
    rows = []
    for point in frontier.points:
        totals = point.result.totals
        total = totals[TOTALS[against]]
        amount = quantity(total, UNITS[against]) if UNITS[against] else number(total)
        gap = "no bound" if point.result.gap is None else percent(point.result.gap)
        rows.append((duration(totals["average_completion_s"]), amount, gap))
    if rows:
        table(out, [("average completion", "right"), (against, "right"), ("gap", "right")], rows)
    elif frontier.termination is not None:
        reason = frontier.termination.reason.replace("_", " ")
        line(out, f"{reason}: {frontier.termination.detail or 'no decision was found'}")
