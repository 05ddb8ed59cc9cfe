"""Formulations by problem and name. Adding one is one file and one line here.

Users' own come by path or entry point, without a line here; see `external`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from wattsched.formulations import external
from wattsched.formulations.model import Model
from wattsched.formulations.sizing.data import Options

FORMULATIONS: dict[str, dict[str, str]] = {
    "sizing": {
        "mckp": "wattsched.formulations.sizing.mckp",
        "assignment": "wattsched.formulations.sizing.assignment",
        "intervals": "wattsched.formulations.sizing.intervals",
    },
}

ADAPTERS = {"sizing": "wattsched.formulations.sizing.own"}
"""Problem to the module that makes models of users' formulations."""


def names(problem: str) -> list[str]:
    """Names of a problem's formulations, the default first."""
    return list(FORMULATIONS[problem])


def formulation(problem: str, name: str) -> Callable[[Options, str], Model]:
    """Builder of a formulation.

    Parameters
    ----------
    name : str
        One of `names`, an entry point of the group `external.GROUP`, or ``path/to/file.py:NAME``, which
        executes that file.

    Raises
    ------
    ValueError
        If the problem has no formulation of that name.
    wattsched.instances.io.InputError
        If a user's formulation cannot be loaded.
    """
    known = FORMULATIONS[problem]
    if name in known:
        build: Callable[[Options, str], Model] = import_module(known[name]).build
        return build
    own = external.find(name)
    if own is None:
        listed = ", ".join([*known, *external.installed(), "FILE.py:NAME"])
        raise ValueError(f"unknown formulation '{name}' of problem '{problem}'; known: {listed}")
    adapted: Callable[[Options, str], Model] = import_module(ADAPTERS[problem]).adapt(own)
    return adapted
