"""The k best decisions that differ: `k_best`, each under rows that the ones before do not keep."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from wattsched.formulations.timer import Timer
from wattsched.instances.errors import require_range, validated
from wattsched.reading.arguments import require_types
from wattsched.results.problems import problem as find_problem
from wattsched.results.result import Result
from wattsched.solving.engine import seconds_of, solve, sound_instance
from wattsched.solving.orders import LEAST_S
from wattsched.topology.fields import Count, Strict
from wattsched.verification.verdict import Verdict, check_result

FORMAT: Literal["wattsched-k-best/1"] = "wattsched-k-best/1"
MOST = 100


class KBest(Strict):
    """Result of `k_best`; the file format ``wattsched-k-best/1``.

    Attributes
    ----------
    differ : int
        Number of jobs that do something else in each decision than in any one before it.
    results : list of Result
        The best decision first. The last one may say that there is no other decision.
    """

    format: Literal["wattsched-k-best/1"] = FORMAT
    instance: str
    problem: str
    differ: Count = 1
    results: Annotated[list[Result], Field(min_length=1)]

    @property
    def decided(self) -> list[Result]:
        """Results with a decision."""
        return [result for result in self.results if result.solved]


def k_best(
    instance: BaseModel | str | Path,
    count: int,
    *,
    differ: int = 1,
    time_limit: float | None = None,
    **options: Any,
) -> KBest:
    """Decide a round several times, each decision other than those before, and the best one of these.

    Decisions differ where a job has other GPUs by number or pool, another clock, power limit or batch size,
    other jobs that share its GPUs, or waits; which GPUs it has is no difference.

    Parameters
    ----------
    instance : model of an instance, str or Path
        A round of sizing.
    count : int
        At most 100; there are fewer results where there are no other decisions.
    differ : int
        Number of jobs, at least, that do something else than in each decision before.
    time_limit : float, optional
        Wall-clock seconds for all; those to come share what is left.
    **options
        As for `wattsched.solve`, but for several objectives.

    Raises
    ------
    ValueError, TypeError, wattsched.InputError
        For numbers out of range, and an instance of another problem; and as of `solve`.
    """
    require_types(k_best, {"count": count, "differ": differ, "time_limit": time_limit})
    require_range(1 <= count <= MOST, "count", f"from 1 to {MOST}", count)
    require_range(differ >= 1, "differ", "at least 1", differ)
    timer = Timer(seconds_of("time_limit", time_limit))
    sound, problem = sound_instance(instance)
    results = list[Result]()
    for left in range(count, 0, -1):
        share = timer.share(1.0 / left)
        limit_s = None if share.limit_s is None else max(LEAST_S, share.remaining_s() or 0.0)
        other = _unlike(problem, sound, [result.decision for result in results], differ)
        results.append(solve(other, time_limit=limit_s, **{"conflict": 0.0, **options}))
        if not results[-1].solved:
            break
    return KBest(instance=sound.name, problem=problem.name, differ=differ, results=results)


def _unlike(problem: Any, instance: Any, decisions: list[Any], differ: int) -> Any:
    """Return the instance of the decisions that differ from some; a ValueError where there is no such."""
    if problem.unlike is None:
        raise ValueError(f"the k best decisions are found of problem 'sizing', not of '{problem.name}'")
    if (own := getattr(instance, "unlike", None)) and instance.differ != differ:
        told = f"the instance, which has decisions of its own in 'unlike', says {instance.differ}"
        raise ValueError(f"differ: {differ} is asked for, {told}")
    return problem.unlike(instance, decisions, differ) if decisions or own else instance


def is_k_best(document: Any) -> bool:
    """True if a parsed document is of the k best decisions."""
    return isinstance(document, dict) and document.get("format") == FORMAT


def k_best_of(document: dict[str, Any], source: str = "") -> KBest:
    """Validate a parsed document as the k best decisions; an `InputError` has one line per fault."""
    return validated(KBest, document, source)


def verdict_on_k_best(instance: Any, found: KBest, require_gap: float | None = None) -> Verdict:
    """Check every decision with all that is claimed of it, and that it differs from those before."""
    rules, faults, verdicts = find_problem(instance.problem), list[str](), list[Verdict]()
    if found.instance != instance.name or found.problem != instance.problem:
        faults.append(f"instance: the decisions are of '{found.instance}', not of '{instance.name}'")
    before = list[Any]()
    for number, result in enumerate(found.results):
        other = _unlike(rules, instance, list(before), found.differ)
        document = result.model_dump(mode="json", exclude={"decision"}) | {"decision": result.decision}
        verdict = check_result(rules, other, document).requiring(require_gap)
        faults += [f"results[{number}].{fault}" for fault in verdict.faults]
        if result.decision is None and number < len(found.results) - 1:
            faults.append(f"results[{number}]: has no decision, and is not the last one")
        verdicts.append(verdict)
        before.append(result.decision)
    return Verdict(faults, claimed=any(verdict.claimed for verdict in verdicts))
