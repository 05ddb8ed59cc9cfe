"""Instances, results and decisions as documents: read, validated and checked, for every problem."""

from __future__ import annotations

import os
from numbers import Real
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

from wattsched.environment.extras import late
from wattsched.instances.errors import InputError, UnreadableError, require, require_range, shown, validated
from wattsched.instances.io import PARQUET, is_parquet, read_json, write_atomically, write_json

if TYPE_CHECKING:
    from pydantic import BaseModel

    from wattsched.instances.sizing.explanation import Explanation
    from wattsched.results.problems import Problem
    from wattsched.results.result import Result
    from wattsched.verification.verdict import Verdict

problem_of = late("results.problems:problem")
"""Problem of a name; `problems`, which loads much, is imported when it is called."""

INSTANCE_FORMAT = "wattsched-instance/1"
RESULT_FORMATS = ("wattsched-result/1", "wattsched-result/2")


def read_document(path: str | Path) -> Any:
    """Parse a file, JSON or Parquet, whatever it is called; an `InputError` where it is neither."""
    try:
        parquet = is_parquet(path)
    except OSError as error:
        raise UnreadableError(error, str(path)) from None
    if not parquet:
        return read_json(path)
    from wattsched.instances.parquet import read_parquet

    return read_parquet(path)


def write_document(path: str | Path, model: BaseModel) -> None:
    """Write an instance, a result or a decision in one step: Parquet where the name ends so, else JSON.

    Raises
    ------
    InputError
        For what Parquet does not hold: all but rounds and their results.
    TypeError
        For arguments of another type.
    OSError
        When the folder cannot be written to; an old file is then as it was.
    """
    from pydantic import BaseModel

    require("path", path, (str, os.PathLike), "a path")
    require("model", model, (BaseModel,), "an instance, a result or a decision")
    if str(path).endswith(PARQUET):
        from wattsched.instances.parquet import parquet_bytes

        write_atomically(path, parquet_bytes(model))
    else:
        write_json(path, model)


def read_instance(path: str | Path) -> Any:
    """Read, validate and check an instance file (``.json``, ``.json.gz``, ``.parquet``) of any problem.

    Raises
    ------
    TypeError
        For what is no path.
    InputError
        With every fault found: of the file, of a field, or of what the fields mean together.
    """
    require("path", path, (str, os.PathLike), "a path")
    return instance_of(read_document(path), source=str(path))


def instance_of(document: Any, source: str = "") -> Any:
    """Validate a parsed document as an instance of the problem it names; errors as of `read_instance`."""
    _require_object(document, source)
    if "format" not in document and document.keys() >= {"model", "gpu_type", "throughput"}:
        message = "is a profile of a model, not an instance; an instance has it in 'profiles'"
        raise InputError([message], source)
    found = document.get("format", INSTANCE_FORMAT)
    if found != INSTANCE_FORMAT:
        raise InputError([f"format: expected '{INSTANCE_FORMAT}', found {shown(found)}"], source)
    rules = _problem_of(document, source)
    instance = validated(rules.instance, _renamed(rules, document, "objective"), source)
    if faults := rules.faults_in(instance):
        raise InputError(faults, source)
    return instance


def read_result(path: str | Path) -> Result:
    """Read and validate a result file of any problem, of this format or the one before.

    Raises
    ------
    InputError
        With one line per fault.
    """
    require("path", path, (str, os.PathLike), "a path")
    return result_of(read_document(path), source=str(path))


def result_of(document: Any, source: str = "") -> Result:
    """Validate a parsed document as a result, its decision included; errors as of `read_result`."""
    from wattsched.results.result import Result

    if not is_result(document):
        _require_object(document, source)
        found = shown(document["format"]) if "format" in document else "none"
        raise InputError([f"format: expected '{RESULT_FORMATS[-1]}', found {found}"], source)
    document = upgraded(document)
    rules = _problem_of(document, source)
    return validated(Result, _renamed(rules, document, "objective_name"), source)


def _require_object(document: Any, source: str) -> None:
    """Refuse a parsed document that is no object, by an InputError that names its source."""
    if not isinstance(document, dict):
        names = {list: "a list", str: "a string", bool: "true or false", type(None): "null"}
        kind = names.get(type(document), "a number")
        raise InputError([f"the document must be an object, not {kind}"], source)


def is_result(document: Any) -> bool:
    """True if a parsed document is a result."""
    return isinstance(document, dict) and document.get("format") in RESULT_FORMATS


def is_decision(document: Any) -> bool:
    """True if a parsed document is a bare decision rather than an instance or a result."""
    known = isinstance(document, dict) and "format" not in document
    return known and "waiting" in document and "cluster" not in document


def answer_of(document: Any, problem: str, source: str = "") -> Result | BaseModel:
    """Validate a parsed document as a result, or a bare decision of a problem; errors as of `result_of`."""
    if is_decision(document):
        decision: BaseModel = validated(problem_of(problem).decision, document, source)
        return decision
    if not isinstance(document, dict) or "format" not in document:
        raise InputError([f"is neither a result ('format': '{RESULT_FORMATS[-1]}') nor a decision"], source)
    return result_of(document, source)


def decision_of(document: Any, source: str = "") -> tuple[str, BaseModel]:
    """Validate a document as a decision of the problem it fits, with its name; else faults as of `sizing`."""
    from wattsched.results.problems import PROBLEMS

    refusals: list[InputError] = []
    for name in PROBLEMS:
        try:
            return name, validated(problem_of(name).decision, document, source)
        except InputError as error:
            refusals.append(error)
    raise refusals[0]


def upgraded(document: dict[str, Any]) -> dict[str, Any]:
    """Convert a result of the previous format into the present one; other documents are returned as is.

    `declined` is renamed, null totals are dropped, absent fields get empty values, and `proven_gap` and
    `claimed` are derived from the certificate's bound.
    """
    if document.get("format") != RESULT_FORMATS[0]:
        return document
    newer = {"unsupported" if name == "declined" else name: value for name, value in document.items()}
    if isinstance(totals := newer.get("totals"), dict):
        newer["totals"] = {name: value for name, value in totals.items() if value is not None}
    newer |= {"format": RESULT_FORMATS[1], "totals": newer.get("totals") or {}}
    return newer | {"digest": "", "gap_asked": None, "time_s": newer.get("time_s", {})} | _proof_fields(newer)


def _proof_fields(document: dict[str, Any]) -> dict[str, Any]:
    """Gap that the certificate proves, and whether the result claims more than that."""
    from wattsched.verification.claims import beyond_proof, gap_between
    from wattsched.verification.report import number

    parts = (document.get("certificate"), document.get("termination"))
    certificate, ended = (part if isinstance(part, dict) else {} for part in parts)
    proven, objective = number(certificate, "bound"), number(document, "objective")
    reason, sense = str(ended.get("reason")), str(document.get("sense"))
    claimed = beyond_proof(reason, number(document, "bound"), proven, sense)
    gap = None if proven is None or objective is None else gap_between(objective, proven)
    return {"proven_gap": gap, "claimed": claimed}


def check(
    instance: BaseModel | str | Path,
    answer: BaseModel | str | Path,
    *,
    require_gap: float | None = None,
    executor: Any = None,
) -> Verdict:
    """Check a decision, or a result with all that it claims, against its instance.

    GPUs, blocks, budgets and the objective are recomputed from the two alone, and the bound is proven again
    from the certificate, without any code of formulations and solvers.

    Parameters
    ----------
    instance : model of an instance, str or Path
        Free of faults; a file is.
    answer : model of a decision, Result, str or Path
    require_gap : float, optional
        Refuse the answer unless its decision is proven to this gap, or infeasibility is proven; at least 0
        and below 1.
    executor : Executor, optional
        Has workers prove the bound of a round of sizing (`wattsched.dask_executor`). Default: this process.

    Returns
    -------
    Verdict
        Valid when it has no `faults`; `claimed` says whether it then rests on the solver's word, `proven_gap`
        how good the decision is by the certificate alone.

    Raises
    ------
    TypeError
        For arguments of another type.
    ValueError
        For a `require_gap` out of its range, and a problem or a round whose bound workers cannot prove.
    InputError
        For files that are no instance, or neither a result nor a decision.
    """
    from pydantic import BaseModel

    from wattsched.results.result import Result

    require("require_gap", require_gap, (Real, NoneType), "a number")
    if require_gap is not None:
        require_range(0 <= require_gap < 1, "require_gap", "at least 0 and below 1", require_gap)
    if isinstance(instance, str | Path):
        instance = read_instance(instance)
    require("instance", instance, (BaseModel,), "an instance or a path")
    rules = problem_of(getattr(instance, "problem", ""))
    require("instance", instance, (rules.instance,), "an instance or a path")
    if isinstance(answer, str | Path):
        answer = answer_of(read_document(answer), rules.name, str(answer))
    if isinstance(answer, Result):
        # The decision of a large round is some seconds of writing and reading.
        document = answer.model_dump(mode="json", exclude={"decision"}) | {"decision": answer.decision}
        return verdict_on(instance, document, executor).requiring(require_gap)
    require("answer", answer, (rules.decision,), f"a decision of {rules.name}, or a result")
    return verdict_on(instance, answer.model_dump(mode="json"), executor).requiring(require_gap)


def verdict_on(instance: Any, document: dict[str, Any], executor: Any = None) -> Verdict:
    """Check a parsed result, its decision perhaps a model, or a bare decision against its instance.

    With an executor its workers prove the bound; a ValueError where they cannot.
    """
    from wattsched.verification.verdict import Verdict, check_result

    rules = problem_of(instance.problem)
    if executor is not None:
        rules = rules.proving_by(executor)
    if is_decision(document):
        report = rules.check(instance, validated(rules.decision, document))
        return Verdict(report.faults, report)
    return check_result(rules, instance, _renamed(rules, upgraded(document), "objective_name"))


def is_explanation(document: Any) -> bool:
    """True if a parsed document is an explanation."""
    return isinstance(document, dict) and str(document.get("format", "")).startswith("wattsched-explanation/")


def verdict_on_explanation(instance: Any, document: dict[str, Any], explanation: Explanation) -> Verdict:
    """Check an explanation of a decision, a parsed result or bare decision, which is checked first."""
    from wattsched.report.explanation import sentence_of
    from wattsched.verification.report import number
    from wattsched.verification.sizing.explanation import ExplanationChecker
    from wattsched.verification.verdict import Verdict

    verdict, rules = verdict_on(instance, document), problem_of(instance.problem)
    decision = document if is_decision(document) else document.get("decision")
    if verdict.faults or rules.name != "sizing" or decision is None:
        none = [] if decision is not None and rules.name == "sizing" else ["there is no decision of sizing"]
        return Verdict([*verdict.faults, *none], verdict.report)
    certificate = document.get("certificate")
    bound = number(certificate, "bound") if isinstance(certificate, dict) else None
    goal = rules.objective(document.get("objective_name", instance.objective))
    of = instance.model_copy(update={"objective": goal})
    read = decision if isinstance(decision, rules.decision) else validated(rules.decision, decision)
    faults = list(ExplanationChecker(rules, of, read, explanation, bound).faults())
    if not faults and sentence_of(explanation, of, read) != explanation.sentence:
        faults = ["sentence: is not what the explanation amounts to"]
    return Verdict(faults, verdict.report)


def _renamed(rules: Problem[Any, Any, Any], document: dict[str, Any], field: str) -> dict[str, Any]:
    """The document with its objective, which the field names, called as it is today."""
    name = document.get(field)
    if not isinstance(name, str) or name not in rules.former:
        return document
    return document | {field: rules.objective(name)}


def _problem_of(document: dict[str, Any], source: str) -> Problem[Any, Any, Any]:
    """Problem that a document names, by default sizing; an InputError for one that there is not."""
    try:
        found: Problem[Any, Any, Any] = problem_of(document.get("problem", "sizing"))
    except ValueError as error:
        raise InputError([str(error)], source) from None
    return found
