"""``wattsched solve --frontier N``: decisions from the soonest completion to the least carbon."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from wattsched.cli.failures import INFEASIBLE, NO_SOLUTION, BadInput, refusing
from wattsched.cli.files import STANDARD, write
from wattsched.cli.limits import UNLIMITED_S

if TYPE_CHECKING:
    from wattsched.formulations.shifting.frontier import Point
    from wattsched.plan_result import PlanResult
    from wattsched.result import TerminationReport

AGAINST = {"completion": "carbon", "carbon": "carbon", "energy": "energy", "money": "money"}
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
    from wattsched.formulations.shifting.frontier import trace
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
    # Without a point there was one answer alone.
    ended = answers[0].termination
    text = _text(instance.name, against, found)
    if output is not None:
        write(output, text)
    if as_json and output != STANDARD:
        write(None, text)
    elif output != STANDARD:
        _print(instance.name, against, found, ended)
    if found:
        return 0
    return INFEASIBLE if ended.reason == "infeasible" else NO_SOLUTION


def _rows(against: str, found: list[Point]) -> list[dict[str, Any]]:
    total = "money" if against == "money" else f"{against}_{UNITS[against].lower()}"
    return [
        {"average_completion_s": p.average_completion_s, total: p.total, "gap": p.answer.gap} for p in found
    ]


def _text(name: str, against: str, found: list[Point]) -> str:
    lines = ",\n".join(f"  {json.dumps(row)}" for row in _rows(against, found))
    return f'{{\n "instance": {json.dumps(name)},\n "frontier": [\n{lines}\n ]\n}}\n'


def _print(name: str, against: str, found: list[Point], ended: TerminationReport) -> None:
    from wattsched.cli.terminal import console, line, table
    from wattsched.cli.wording import duration, number, percent, quantity

    out = console()
    line(out, (name, "bold"), f": from the soonest completion to the least {against}")
    rows = []
    for point in found:
        amount = quantity(point.total, UNITS[against]) if UNITS[against] else number(point.total)
        gap = "no bound" if point.answer.gap is None else percent(point.answer.gap)
        rows.append((duration(point.average_completion_s), amount, gap))
    if found:
        table(out, [("average completion", "right"), (against, "right"), ("gap", "right")], rows)
    else:
        line(out, f"{ended.reason.replace('_', ' ')}: {ended.detail or 'no decision was found'}")
