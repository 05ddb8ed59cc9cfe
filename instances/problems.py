"""Which class reads the instances of which problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from pydantic import BaseModel, ValidationError

from wattsched.instances.io import InputError, instance_of, lines_of
from wattsched.instances.sizing.instance import FORMAT
from wattsched.verification.report import PlanReport

PROBLEMS = ("shifting", "sharing")
"""Problems with decisions of their own. Each has a package here with the modules ``instance``, ``decision``,
``checker`` and ``certificate``; `sizing` has its own ways, see `wattsched.instances.io`."""


def any_instance_of(document: Any, source: str = "") -> Any:
    """Validate a parsed document as an instance of the problem that it names.

    Raises
    ------
    InputError
        With every fault found: of a field, or of what the fields mean together.
    """
    problem = document.get("problem", "sizing") if isinstance(document, dict) else "sizing"
    if problem == "sizing":
        return instance_of(document, source)
    if problem not in PROBLEMS:
        known = ", ".join(["sizing", *PROBLEMS])
        raise InputError([f"problem: must be one of {known}, got {problem!r:.80}"], source)
    found = document.get("format", FORMAT)
    if found != FORMAT:
        raise InputError([f"format: expected '{FORMAT}', found {found!r:.80}"], source)
    instance = _validated(instance_model_of(problem), document, source)
    require_sound(instance, source)
    return instance


def require_sound(instance: Any, source: str = "") -> None:
    """Refuse an instance of one of `PROBLEMS` with faults that its fields do not show one by one.

    Raises
    ------
    InputError
        With every fault found.
    """
    if faults := _module(instance.problem, "instance").faults_of(instance):
        raise InputError(faults, source)


def decision_of(problem: str, document: Any, source: str = "") -> Any:
    """Validate a parsed document as a decision of a problem.

    Raises
    ------
    InputError
        With one line per fault.
    """
    return _validated(decision_model_of(problem), document, source)


def instance_model_of(problem: str) -> type[BaseModel]:
    """Class of a problem's instances."""
    model: type[BaseModel] = getattr(_module(problem, "instance"), f"{problem.title()}Instance")
    return model


def decision_model_of(problem: str) -> type[BaseModel]:
    """Class of a problem's decisions."""
    model: type[BaseModel] = getattr(_module(problem, "decision"), f"{problem.title()}Decision")
    return model


def checker_of(problem: str) -> Callable[[Any, Any], PlanReport]:
    """Independent checker of a problem's decisions."""
    check: Callable[[Any, Any], PlanReport] = _module(problem, "checker").check
    return check


def prover_of(problem: str) -> Callable[[Any, Mapping[str, float]], float]:
    """Independent proof of the bound that certificate prices give."""
    prove: Callable[[Any, Mapping[str, float]], float] = _module(problem, "bound").prove
    return prove


def excess_of(problem: str) -> Callable[[Any, Mapping[str, float], float], float] | None:
    """By how much a proven bound lies above every decision's objective, for problems where that is known."""
    if problem != "shifting":
        return None
    excess: Callable[[Any, Mapping[str, float], float], float] = _module(problem, "bound").excess
    return excess


def senses_of(problem: str) -> Mapping[str, str]:
    """Objectives of a problem, and whether they are minimised or maximised (``min`` or ``max``)."""
    senses: Mapping[str, str] = _module(problem, "instance").OBJECTIVES
    return senses


def _module(problem: str, name: str) -> Any:
    room = "instances" if name in ("instance", "decision") else "verification"
    return import_module(f"wattsched.{room}.{problem}.{name}")


def _validated(model: type[BaseModel], document: Any, source: str) -> Any:
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise InputError(lines_of(error, document), source) from None
