"""Formulations by problem and name. Adding one is one file and one line here."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from wattsched.formulations.model import Model
from wattsched.instances.options import Options

FORMULATIONS: dict[str, dict[str, str]] = {
    "sizing": {
        "mckp": "wattsched.formulations.sizing.mckp",
        "assignment": "wattsched.formulations.sizing.assignment",
        "intervals": "wattsched.formulations.sizing.intervals",
    },
}


def names(problem: str) -> list[str]:
    """Names of a problem's formulations, the default first."""
    return list(FORMULATIONS[problem])


def formulation(problem: str, name: str) -> Callable[[Options, str], Model]:
    """Builder of a formulation.

    Raises
    ------
    ValueError
        If the problem has no formulation of that name.
    """
    known = FORMULATIONS[problem]
    if name not in known:
        raise ValueError(f"unknown formulation '{name}' of problem '{problem}'; known: {', '.join(known)}")
    build: Callable[[Options, str], Model] = import_module(known[name]).build
    return build
