"""`explain`: why a job of a round waits, and what would make it run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

from wattsched.explaining.alternatives import NOTHING, Alternatives, difference_of, document_of, proof_of
from wattsched.explaining.rounds import DecidedRound
from wattsched.explaining.start import expected_start, states_durations
from wattsched.formulations.sizing.left_out import decided_jobs
from wattsched.formulations.timer import Timer
from wattsched.instances.digest import digest_of
from wattsched.instances.errors import require, require_range
from wattsched.instances.sizing.decision import Decision
from wattsched.instances.sizing.explanation import LINEAR, Alternative, Cost, Explanation
from wattsched.instances.sizing.instance import Instance
from wattsched.instances.sizing.job import LARGEST_WEIGHT
from wattsched.reading.arguments import require_types
from wattsched.reading.inputs import echo, meant
from wattsched.report.explanation import sentence_of
from wattsched.results.documents import answer_of, read_document
from wattsched.results.result import Result
from wattsched.solving.engine import seconds_of, sound_instance, with_objective
from wattsched.verification.report import Report
from wattsched.verification.sizing.checker import check

TIME_S = 5.0
"""Time limit in seconds where none is given."""

_LAST_DIGITS = 1e-9
# Of the time, for what it costs that the job runs although nothing is changed.
_SHARE_OF_COST = 0.25


def explain(
    instance: BaseModel | str | Path,
    answer: Result | Decision | str | Path,
    job: str,
    *,
    time_limit: float | None = None,
    durations: tuple[float, float] | None = None,
) -> Explanation:
    """Explain why a job of a round waits, and what would make it run at once.

    Parameters
    ----------
    instance : Instance, str or Path
        A round of sizing.
    answer : Result, Decision, str or Path
        The decision to explain, which is valid.
    job : str
        Name of the job.
    time_limit : float, optional
        Wall-clock seconds; by default 5. What is not found by then is listed as `unanswered`.
    durations : tuple of float, optional
        Shortest and longest time that jobs take, as factors of what their options say: then the expected
        start is looked for, too.

    Raises
    ------
    InputError
        For files that are no round, or neither a result nor a decision.
    ValueError
        For a job that the round does not have, a round of another problem, an answer without a decision, and
        a decision that is not valid.
    TypeError
        For arguments of another type.
    """
    require_types(explain, {"durations": durations})
    low, high = durations or (1.0, 1.0)
    require_range(0 < low <= high, "durations", "two positive factors, the shorter one first", durations)
    timer = Timer(seconds_of("time_limit", TIME_S if time_limit is None else time_limit))
    of, report, bound = _decided(instance, answer, job)
    round, search = of.instance, Alternatives(of, timer)
    told: dict[str, Any] = {"state": "runs"}
    if job in report.dropped:
        reason = decided_jobs(round).left_out.get(job, "has no option")
        told = {"state": "never", "reason": reason, "alternatives": search.of_requests()}
    elif not of.outcome[0][of.job]:
        forced = search.solved("forced", NOTHING, _SHARE_OF_COST)
        proof = proof_of("forced", NOTHING, forced)
        told = {"state": "waits", "alternatives": search.found()}
        if forced is not None and forced.solved:
            told["cost"] = _cost(of, forced, bound)
        elif forced is not None and proof is not None:
            told |= {"state": "never", "proof": proof}
        else:
            search.unanswered.append("cost")
    waits = told["state"] != "runs" and job not in report.dropped
    if durations is not None and waits and states_durations(round):
        told["start"] = expected_start(of, durations, timer)
        search.unanswered += ["start"] if told["start"] is None else []
    if told["state"] != "runs" and not told["alternatives"]:
        search.unanswered.append("several")
    found = Explanation(
        instance=round.name,
        digest=digest_of(round),
        objective_name=round.objective,
        job=job,
        sentence="",
        unanswered=list(dict.fromkeys(search.unanswered)),
        **told,
    )
    return found.model_copy(update={"sentence": sentence_of(found, round, of.decision)})


def smaller_sizes(instance: Instance, answer: Result, job: str, *, time_limit: float) -> list[Alternative]:
    """Find the largest size below what a waiting job asks for with which it would start; none if it runs.

    `time_limit` is in wall-clock seconds; a ValueError is raised as by `explain`.
    """
    jobs = instance.by_column()
    if jobs[jobs.place[job]].min_gpus is None:  # before anything that takes time
        return []
    of, report, _ = _decided(instance, answer, job)
    if job in report.dropped or of.outcome[0][of.job]:
        return []
    found = Alternatives(of, Timer(time_limit)).of_requests(())
    return [one for one in found if one.change.min_gpus is not None]


def _decided(instance: Any, answer: Any, job: str) -> tuple[DecidedRound, Report, float | None]:
    """Return a round with its decision, the report on it, and the proven bound; errors as of `explain`."""
    round, problem = sound_instance(instance)
    require_range(problem.name == "sizing", "problem", "sizing, of which rounds are explained", problem.name)
    if isinstance(answer, str | Path):
        answer = answer_of(read_document(answer), problem.name, str(answer))
    require("answer", answer, (Result, Decision), "a result or a decision of sizing")
    require("job", job, (str,), "a name")
    jobs, bound = round.by_column(), None
    if job not in jobs.place:
        raise ValueError(f"job: {echo(job)} is not in the round{meant(job, jobs.names)}")
    if isinstance(answer, Result):
        ended = answer.termination.reason
        require_range(answer.decision is not None, "answer", "a result with a decision", ended)
        require_range(not answer.limits, "answer", "one of a single objective", "one of objectives in order")
        round = with_objective(problem, round, problem.objective(answer.objective_name))
        bound = None if answer.certificate is None else answer.certificate.bound
        answer = answer.decision
    report = check(round, answer)
    require_range(not report.faults, "answer", "a valid decision", "; ".join(report.faults[:1]))
    round = round.model_copy(update={"jobs": jobs})  # by column, as derived rounds have them
    return DecidedRound(round, answer, jobs.place[job]), report, bound


def _cost(of: DecidedRound, forced: Result, bound: float | None) -> Cost:
    """Say what it costs others that the job runs although nothing is changed; `bound` is of the round."""
    assert forced.objective is not None
    certificate = None if forced.certificate is None else document_of(forced)
    return Cost(
        decision=difference_of(of.decision, forced.decision),
        later=_later(of, forced.decision),
        objective=forced.objective,
        bound=None if certificate is None else certificate["bound"],
        certificate=certificate,
        weight=None if bound is None else _weight(of, forced, bound),
    )


def _later(of: DecidedRound, decision: Decision) -> list[str]:
    """Names of other jobs that are complete later, or stop; those that lose most weighted time first."""
    waits_s = of.known.round_s + of.known.best_s
    before_s, after_s = (
        np.where(runs, seconds, waits_s)
        for runs, seconds in (of.outcome, DecidedRound(of.instance, decision, of.job).outcome)
    )
    worse = np.flatnonzero(after_s > before_s * (1 + _LAST_DIGITS))
    worse = worse[worse != of.job]
    loss = of.known.weight[worse] * (after_s[worse] - before_s[worse])
    return [of.known.jobs.names[j] for j in worse[np.argsort(-loss, kind="stable")].tolist()]


def _weight(of: DecidedRound, forced: Result, bound: float) -> float | None:
    """Weight of the job with which a decision is as good as any in which it waits; None where unknown.

    Decisions in which it waits have a bound that grows with its weight as the decision does.
    """
    if of.instance.objective not in LINEAR or of.instance.uncertainty is not None:
        return None
    own = float(of.known.jobs.numbers("weight")[of.job])
    doubled = of.instance.model_copy(update={"jobs": of.with_weight(2 * own)})
    slopes = [
        _objective(doubled, one) - _objective(of.instance, one) for one in (of.decision, forced.decision)
    ]
    lost, gained = _objective(of.instance, forced.decision) - bound, slopes[0] - slopes[1]
    if gained == 0.0 or lost / gained < 0.0:
        return own if lost == 0.0 else None
    weight = own * (1 + lost / gained * (1 + _LAST_DIGITS))
    return weight if weight <= LARGEST_WEIGHT else None


def _objective(instance: Instance, decision: Decision) -> float:
    found = check(instance, decision).objective
    assert found is not None
    return found
