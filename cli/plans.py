"""`solve`, `check` and `show` for problems with decisions of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

from wattsched.cli.failures import BadInput, refusing
from wattsched.cli.files import STANDARD, is_answer, read_document, shown, write
from wattsched.cli.limits import UNLIMITED_S

if TYPE_CHECKING:
    from rich.console import Console

    from wattsched.plan_result import PlanResult
    from wattsched.verification.plan_claims import PlanVerdict


def solve_plan(
    instance: Any,
    *,
    warm: str | None,
    output: str | None,
    as_json: bool,
    time_limit: float,
    solver: str,
    formulation: str | None,
    objective: str | None,
    **limits: Any,
) -> PlanResult:
    """Decide an instance, and write or print the result."""
    from wattsched.cli.stdout import stray_output_to_stderr
    from wattsched.cli.terminal import progress
    from wattsched.formulations.plan import UnsuitableError
    from wattsched.formulations.problems import problem as find_problem
    from wattsched.planning import plan, require_names

    problem = find_problem(instance.problem)
    name = formulation or next(iter(problem.formulations))
    with refusing():
        require_names(problem, name, solver, objective or instance.objective)
    known = None if warm is None else plan_answer_of(read_document(warm), shown(warm))
    if known is not None and known.problem != problem.name:
        raise BadInput(
            f"--warm {warm}: is of the problem '{known.problem}', the instance of '{problem.name}'"
        )
    try:
        with progress(f"solving {instance.name}"), stray_output_to_stderr():
            result = plan(
                instance,
                formulation=name,
                solver=solver,
                objective=objective,
                time_limit=min(time_limit, UNLIMITED_S),
                warm=known,
                **limits,
            )
    except UnsuitableError as error:
        raise BadInput(f"--formulation {name}: {error}") from None
    if result.declined:
        raise BadInput(f"--solver {solver} --formulation {name}: {result.declined}")
    text = plan_text(result)
    if output is not None:
        write(output, text)
    if as_json and output != STANDARD:
        write(None, text)
    elif output != STANDARD:
        from wattsched.cli.terminal import console

        print_plan(console(), result, instance)
    return result


def plan_answer_of(document: Any, source: str) -> PlanResult:
    """Validate a parsed document as a result of a problem with decisions of its own, its decision included.

    Raises
    ------
    InputError
        With one line per fault.
    """
    from pydantic import ValidationError

    from wattsched.instances.io import InputError, lines_of
    from wattsched.instances.problems import PROBLEMS, decision_of
    from wattsched.plan_result import PlanResult

    if not is_plan_answer(document):
        raise InputError(
            [f"is not a result ('format': 'wattsched-result/1') of {', '.join(PROBLEMS)}"], source
        )
    try:
        result = PlanResult.model_validate(document)
    except ValidationError as error:
        raise InputError(lines_of(error, document), source) from None
    if result.decision is None:
        return result
    if not isinstance(result.decision, dict):
        raise InputError([f"decision: must be an object, got {result.decision!r:.80}"], source)
    try:
        decision = decision_of(result.problem, result.decision)
    except InputError as error:
        raise InputError([f"decision.{fault}" for fault in error.faults], source) from None
    return result.model_copy(update={"decision": decision})


def is_plan_answer(document: Any) -> bool:
    """Whether a parsed document is a result of a problem with decisions of its own."""
    from wattsched.instances.problems import PROBLEMS

    return (
        isinstance(document, dict)
        and str(document.get("format", "")).startswith("wattsched-result/")
        and document.get("problem") in PROBLEMS
    )


def plan_text(result: PlanResult) -> str:
    """JSON of a result with one field per line."""
    import json

    fields = result.model_dump(mode="json")
    lines = [f" {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in fields.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def check_plan(instance: Any, document: Any, source: str) -> int:
    """Check a result or a bare decision against its instance, print the verdict, and return the exit code."""
    from wattsched.cli.verdict import print_verdict
    from wattsched.instances.problems import checker_of, decision_of, senses_of
    from wattsched.verification.plan_claims import PlanVerdict, check_plan_result

    if is_answer(document) and "format" not in document:
        report = checker_of(instance.problem)(instance, decision_of(instance.problem, document, source))
        verdict = PlanVerdict(report.faults, report, None)
        name = instance.objective
        document = {
            "problem": instance.problem,
            "objective_name": name,
            "sense": senses_of(instance.problem)[name],
        }
    else:
        plan_answer_of(document, source)
        verdict = check_plan_result(instance, document)
    return print_verdict(verdict.faults, _proof(verdict, document))


def _proof(verdict: PlanVerdict, document: dict[str, Any]) -> Iterator[str]:
    from wattsched.cli.plan_wording import goal_of_plan, spoken

    sense = str(document.get("sense", "min"))
    goal = goal_of_plan(str(document.get("problem")), str(document.get("objective_name")), sense)
    if verdict.impossible:
        yield "no decision: prices prove that there is none"
        return
    if verdict.report is None:
        yield "no decision, and nothing here proves that there is none"
    elif verdict.report.objective is not None:
        yield f"{goal.noun} {goal.amount(verdict.report.objective)}"
    if verdict.report is not None:
        yield ", ".join(" ".join(spoken(name, value)) for name, value in verdict.report.totals.items())
    word = "less" if sense == "min" else "more"
    bound, ended = document.get("bound"), document.get("termination", {})
    trusted = ", and so is 'optimal'" if ended.get("reason") == "optimal" else ""
    if verdict.proven is None:
        if bound is not None:
            told = f"bound {goal.amount(bound)} claimed, no certificate proves it"
            yield f"{told}: it is taken on trust{trusted}"
        return
    proven = goal.amount(verdict.proven)
    yield f"prices prove that no decision can have {word} than {proven}"
    if bound is None:
        return
    beyond = bound - verdict.proven if sense == "min" else verdict.proven - bound
    if beyond > 1e-6 * max(1.0, abs(bound)):
        yield f"bound {goal.amount(bound)} claimed, prices prove {proven}"
        yield f"the rest of the bound is the solver's word: it is taken on trust{trusted}"


def print_plan(out: Console, result: PlanResult, instance: Any = None) -> None:
    """Print a result: how good it is, what it uses, what budgets are worth, and the decision."""
    from wattsched.cli.plan_wording import goal_of_plan, priced, spoken
    from wattsched.cli.summary import STYLES
    from wattsched.cli.terminal import heading, line, table
    from wattsched.cli.wording import duration, percent

    line(out, (result.instance, "bold"), f": {result.problem}")
    line(out, (f"formulation {result.formulation}, solver {result.solver}", "dim"))
    ended = result.termination
    goal = goal_of_plan(result.problem, result.objective_name, result.sense)
    heading(out, goal.noun[:1].upper() + goal.noun[1:])
    if result.objective is None:
        line(out, (ended.reason.replace("_", " "), "bold red"), f": {ended.detail}", indent=2)
    else:
        gap = "no bound" if result.gap is None else f"gap {percent(result.gap)}"
        stopped = f" (stopped by the {ended.limit} limit)" if ended.limit else ""
        style = STYLES.get(ended.reason, "bold red")
        line(out, f"{goal.amount(result.objective)}  ", (ended.reason, style), f", {gap}{stopped}", indent=2)
        if result.bound is not None:
            word = "less" if result.sense == "min" else "more"
            line(out, (f"no decision can have {word} than {goal.amount(result.bound)}", "dim"), indent=2)
        if ended.detail:
            line(out, (ended.detail, "dim"), indent=2)
    for fault in result.faults:
        line(out, ("not used", "yellow"), f": {fault}", indent=2)
    if result.totals:
        heading(out, "Uses")
        rows = [spoken(name, value) for name, value in result.totals.items()]
        table(out, [("", "left"), ("", "right")], rows, header=False)
    # Prices of single jobs belong to the proof; they are nothing that one could buy more of.
    scarce = {n: price for n, price in result.prices.items() if price > 0 and not n.startswith("job:")}
    if scarce:
        heading(out, "Prices", f"what a little more of each would {goal.verb} in {goal.noun}")
        rows = [priced(name, price, goal) for name, price in list(scarce.items())[:12]]
        table(out, [("", "left"), ("", "right")], rows, header=False)
        if len(scarce) > len(rows):
            line(out, (f"... {len(scarce) - len(rows)} more, use --json or -o", "dim"), indent=2)
    if result.decision is not None:
        printer: Callable[..., None] = import_module(f"wattsched.cli.{result.problem}_table").print_decision
        printer(out, result.decision, instance)
    phases = [f"{name} {duration(s)}" for name, s in result.time_s.items() if name != "total"]
    if "total" in result.time_s:
        out.print()
        line(out, (f"{duration(result.time_s['total'])}: {', '.join(phases)}", "dim"))
