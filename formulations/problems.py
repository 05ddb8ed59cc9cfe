"""Problems with decisions of their own, by name. Adding one is one line here.

`sizing` has an engine of its own; see `wattsched.engine`.
"""

from __future__ import annotations

from importlib import import_module

from wattsched.formulations.problem import Problem

PROBLEMS: dict[str, str] = {
    "shifting": "wattsched.formulations.shifting.problem",
    "sharing": "wattsched.formulations.sharing.problem",
}


def problem(name: str) -> Problem:
    """Find a problem.

    Raises
    ------
    ValueError
        If there is none of that name.
    """
    if name == "sizing":
        raise ValueError("the problem 'sizing' has an engine of its own: wattsched.solve")
    if name not in PROBLEMS:
        raise ValueError(f"unknown problem '{name}'; known: {', '.join(PROBLEMS)}")
    found: Problem = import_module(PROBLEMS[name]).PROBLEM
    return found
