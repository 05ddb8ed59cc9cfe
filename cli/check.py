"""``wattsched check``: a result against its instance."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import click

from wattsched.cli.executors import dask_option, spread
from wattsched.cli.failures import CHECK_FAILED, ON_TRUST, BadInput, refusing
from wattsched.cli.files import STANDARD, problem, progress, read_document, read_instance, shown, write_json
from wattsched.cli.outputs import json_option
from wattsched.cli.parameters import Number

if TYPE_CHECKING:
    from wattsched.report.wording import Goal
    from wattsched.solving.tradeoffs import ParetoResult
    from wattsched.verification.verdict import Verdict


@click.command("check")
@click.argument("instance_file", metavar="INSTANCE")
@click.argument("result_file", metavar="[RESULT]", required=False)
@click.argument("explanation_file", metavar="[EXPLANATION]", required=False)
@click.option(
    "--require-gap",
    type=Number(0, below=1),
    metavar="GAP",
    help="Refuse RESULT unless its decision is proven to this gap, by the certificate alone.",
)
@dask_option("the proof of the bound of a large round of sizing")
@json_option("the verdict")
def command(
    instance_file: str,
    result_file: str | None,
    explanation_file: str | None,
    require_gap: float | None,
    dask: str | None,
    as_json: bool,
) -> int:
    """Check RESULT, a result file, a frontier, the k best or a bare decision, against INSTANCE.

    Recomputes GPUs, blocks, budgets and the objective from the two files alone, and proves the bound again
    from the certificate, without any code of the formulations and solvers. Exit code 0 when the decision and
    every claim about it hold, 1 when not, 5 when they hold as far as that is proven, and the rest of the
    bound, or that there is no decision, is the solver's word. A bound of ``replay --bound`` is checked alone.
    With EXPLANATION, of ``wattsched explain``, every round that it rests on is proven again, too.
    """
    if result_file is None:
        if require_gap is not None:
            raise BadInput("--require-gap needs RESULT: a bound of replay --bound has no gap")
        if dask is not None:
            raise BadInput("--dask needs RESULT: a bound of replay --bound is checked here")
        verdict, lines = _check_bound(instance_file)
    else:
        if [instance_file, result_file, explanation_file].count(STANDARD) > 1:
            more = "" if explanation_file is None else " and EXPLANATION"
            raise BadInput(f"only one of INSTANCE and RESULT{more} can be standard input")
        if explanation_file is not None:
            if require_gap is not None or dask is not None:
                raise BadInput("EXPLANATION: cannot be combined with --require-gap or --dask")
            verdict, lines = _check_explanation(instance_file, result_file, explanation_file)
            return print_verdict(verdict, lines, required=True, as_json=as_json)
        verdict, lines = _check(instance_file, result_file, require_gap, dask)
    return print_verdict(verdict, lines, required=require_gap is not None, as_json=as_json)


def _check(
    instance_file: str, result_file: str, require_gap: float | None, dask: str | None
) -> tuple[Verdict, Iterable[str]]:
    """Check a result, a frontier or a bare decision: the verdict, and lines on what is decided and proven."""
    from wattsched.report.views import view
    from wattsched.report.wording import gap_text
    from wattsched.results.documents import answer_of, verdict_on
    from wattsched.solving.k_best import is_k_best, k_best_of, verdict_on_k_best
    from wattsched.solving.tradeoffs import is_pareto, pareto_of, verdict_on_pareto

    instance, document, source = read_instance(instance_file), read_document(result_file), shown(result_file)
    if is_pareto(document):
        if dask is not None:
            raise BadInput(f"{source}: is a frontier, which cannot be combined with --dask")
        found = pareto_of(document, source)
        if instance.problem != found.problem:
            of = f"is a frontier of '{found.problem}', the instance is of '{instance.problem}'"
            raise BadInput(f"{source}: {of}")
        with refusing(source):
            verdict = verdict_on_pareto(instance, found, require_gap)
        return verdict, _point_lines(found, verdict)
    if is_k_best(document):
        if dask is not None:
            raise BadInput(f"{source}: holds several results, which cannot be combined with --dask")
        best = k_best_of(document, source)
        with progress(f"checking {source}"), refusing(source):
            verdict = verdict_on_k_best(instance, best, require_gap)
        differ = "each as good as its gap says of those that differ from the ones before"
        return verdict, [f"{len(best.decided)} decisions, {differ}"]
    answer = answer_of(document, instance.problem, source)
    if (decision := getattr(answer, "decision", None)) is not None:
        document |= {"decision": decision}  # as it was read, so that the checker does not read it again
    refused = nullcontext() if dask is None else refusing()  # what a cluster cannot check
    with progress(f"checking {source}"), spread(dask) as executor, refused:
        verdict = verdict_on(instance, document, executor)
    objective = getattr(answer, "objective_name", instance.objective)
    sense = problem(instance.problem).objectives.get(objective, "min")
    goal = view(instance.problem).goal(objective, sense, instance)
    lines = [*_decision_lines(verdict, document, goal), *_proof_lines(verdict, document, goal, sense)]
    for stage, of in zip(verdict.stages, document.get("stages", ()), strict=False):
        gap = "nothing" if stage.proven_gap is None else gap_text(stage.proven_gap)
        lines.append(f"before: {of['objective_name']} {of['objective']:.9g}, proven: {gap}")
    return verdict.requiring(require_gap), lines


def _check_explanation(
    instance_file: str, result_file: str, explanation_file: str
) -> tuple[Verdict, Iterable[str]]:
    """Check an explanation of a result or a bare decision: the verdict, and lines on what is proven."""
    from wattsched.instances.errors import validated
    from wattsched.instances.sizing.explanation import Explanation
    from wattsched.report.explanation import words_of
    from wattsched.results.documents import answer_of, verdict_on_explanation

    instance, source = read_instance(instance_file), shown(explanation_file)
    document = read_document(result_file)
    answer_of(document, instance.problem, shown(result_file))
    found = validated(Explanation, read_document(explanation_file), source)
    with progress(f"checking {source}"):
        verdict = verdict_on_explanation(instance, document, found)
    proven = {True: "nothing less would do", False: "valid, and not proven to be least"}
    told = [f"{words_of(one, found.job)}: {proven[one.proven]}" for one in found.alternatives]
    return verdict, [found.sentence, *told]


def _check_bound(file: str) -> tuple[Verdict, Iterable[str]]:
    """Check a bound on the schedules of a trace, which needs no other file: the verdict, and lines on it."""
    from wattsched.replaying.replay_bounds import is_replay_bound, replay_bound_of
    from wattsched.report.wording import count, duration
    from wattsched.verification.clairvoyant import faults_of
    from wattsched.verification.report import Proof
    from wattsched.verification.verdict import Verdict

    document = read_document(file)
    if not is_replay_bound(document):
        why = "is no bound of replay --bound, which is checked alone; give RESULT, too"
        raise BadInput(f"{shown(file)}: {why}")
    bound = replay_bound_of(document, shown(file))
    with progress(f"checking {shown(file)}"):
        verdict = Verdict(faults_of(bound), proof=Proof(bound=bound.mean_completion_s))
    if bound.mean_completion_s <= 0:
        return verdict, ["the file claims no bound above 0: it says nothing of any schedule"]
    jobs, gpus = count(len(bound.jobs.name), "job"), count(sum(bound.pools.values()), "GPU")
    mean, energies = duration(bound.mean_completion_s), len(bound.proofs) - 1  # the first: of times alone
    told = [
        f"prices prove that no schedule of {jobs} on {gpus} completes them in less than {mean} on average"
    ]
    told += [f"and {count(energies, 'bound')} on completion times and energy together"] if energies else []
    told += [f"the jobs are said to be of {bound.source}"] if bound.source else []
    return verdict, told


def _point_lines(found: ParetoResult, verdict: Verdict) -> Iterator[str]:
    """Yield lines on the proofs of a frontier's points, and on what is left to trust."""
    from wattsched.report.wording import count

    proven = sum(all(one.proven_gap is not None for one in point.results) for point in found.points)
    if not found.points:
        ended = "" if found.termination is None else found.termination.reason.replace("_", " ")
        yield f"no points: the frontier says '{ended}', and {_trust(verdict)}"
    elif proven == len(found.points):
        yield f"{count(proven, 'point')}, each with its decision and its proof"
    else:
        yield f"{count(len(found.points), 'point')}, each with its decision, {proven or 'none'} with a proof"
    if verdict.claimed and found.points:
        yield "that nothing dominates them, beyond the proofs, is the solver's word: it is taken on trust"


def _trust(verdict: Verdict) -> str:
    return "nothing here proves that" if verdict.claimed else "claims nothing"


def _decision_lines(verdict: Verdict, document: dict[str, Any], goal: Goal) -> Iterator[str]:
    """Yield lines on the decision: its objective and totals, or why there is none."""
    from wattsched.report.conflicts import proof_line
    from wattsched.report.wording import spoken, total_label

    if verdict.infeasible:
        proof = "a look at each job proves" if document.get("certificate") is None else "prices prove"
        short = verdict.proof.short if verdict.proof is not None else ""
        yield f"no decision: {proof} that there is none" + (f", as {short}" if short else "")
        if (conflict := document.get("conflict")) is not None:
            yield proof_line(conflict)
        return
    if verdict.report is None:
        reason = str(document.get("termination", {}).get("reason")).replace("_", " ")
        yield f"no decision: the result says '{reason}', and {_trust(verdict)}"
        return
    if verdict.report.objective is not None:
        yield f"{goal.noun} {goal.amount(verdict.report.objective)}"
    totals = verdict.report.totals.items()
    unit = goal.unit if goal.noun == "cost" else ""
    yield ", ".join(f"{total_label(name)} {spoken(name, value, unit)}" for name, value in totals)


def _proof_lines(verdict: Verdict, document: dict[str, Any], goal: Goal, sense: str) -> Iterator[str]:
    """Yield lines on what the certificate proves, and on what of the bound it leaves to trust."""
    from wattsched.report.wording import gap_text

    if verdict.infeasible:
        return
    proven, bound = None if verdict.proof is None else verdict.proof.bound, document.get("bound")
    if proven is not None:
        word = "less" if sense == "min" else "more"
        told = f"{_proofs(document)} that no decision can have {word} than {goal.amount(proven)}"
        yield told if verdict.proven_gap is None else f"{told} ({gap_text(verdict.proven_gap)})"
    elif bound is None and verdict.report is not None and "termination" in document:  # no bare decision
        yield "no bound is stated: nothing says how good the decision is"
    if bound is None or not verdict.claimed:
        return
    if any(stage.claimed for stage in verdict.stages):
        yield "what an objective before could be at best is the solver's word"
        return
    if not document.get("claimed"):
        yield "'optimal' is the solver's word: the result does not say which gap was asked for"
        return
    optimal = document["termination"]["reason"] == "optimal"
    gap, asked = verdict.proven_gap, document.get("gap_asked")
    enough = gap is not None and asked is not None and gap <= asked
    trusted = ", and so is 'optimal'" if optimal and not enough else ""
    if proven is None:
        told = f"bound {goal.amount(bound)} claimed, no certificate proves it"
        yield f"{told}: it is taken on trust{trusted}"
    else:
        yield f"bound {goal.amount(bound)} claimed, {_proofs(document)} {goal.amount(proven)}"
        yield f"the rest of the bound is the solver's word: it is taken on trust{trusted}"


def _proofs(document: dict[str, Any]) -> str:
    """Return the subject of a sentence on proofs: prices, or prices in so many cases."""
    tree = (document["certificate"] or {}).get("tree") or []
    leaves = [node for node in tree if node.get("prices") is not None]
    return f"prices in {len(leaves):,} cases prove" if len(leaves) > 1 else "prices prove"


def print_verdict(verdict: Verdict, valid: Iterable[str], *, required: bool, as_json: bool = False) -> int:
    """Print the faults, or the lines `valid` where there are none, and return the exit code.

    With a gap `required`, and without faults, that gap is proven: claims beyond it do not matter.
    """
    from wattsched.instances.errors import capped
    from wattsched.report.terminal import console, line
    from wattsched.report.wording import count

    out, faults, on_trust = console(), verdict.faults, verdict.claimed and not required
    code = CHECK_FAILED if faults else ON_TRUST if on_trust else 0
    if as_json:
        write_json(_document(verdict, on_trust), indent=1)
        return code
    if faults:
        line(out, ("not valid", "bold red"), f": {count(len(faults), 'fault')}")
    elif on_trust:
        line(out, ("valid", "bold green"), (", but on the solver's word", "bold yellow"))
    else:
        line(out, ("valid", "bold green"))
    for words in capped(faults) or valid:
        line(out, f"{words}", indent=2)
    return code


def _document(verdict: Verdict, on_trust: bool) -> dict[str, Any]:
    """Return the JSON document of a verdict: faults, and the recomputed and proven figures."""
    proven = verdict.proof.bound if verdict.proof is not None and not verdict.faults else None
    return {
        "valid": not verdict.faults,
        "on_trust": bool(on_trust and not verdict.faults),
        "faults": verdict.faults,
        "infeasible": verdict.infeasible,
        "objective": verdict.objective,
        "totals": dict(verdict.totals),
        "proven_bound": proven,
        "proven_gap": None if verdict.faults else verdict.proven_gap,
    }
