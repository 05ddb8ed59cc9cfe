"""Names that a shell completes: of solvers, formulations, objectives and policies.

They are those of the registries, which are loaded when a shell asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import click

from wattsched.cli.outputs import FC
from wattsched.environment.extras import late

Complete = Callable[[click.Context, click.Parameter, str], list[str]]


def completing(names: Callable[[], Iterable[str]]) -> Complete:
    """Return a ``shell_complete`` for an option: names that continue its text after the last comma."""

    def complete(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        taken = before.split(",")
        return [before + comma + name for name in names() if name.startswith(last) and name not in taken]

    return complete


def solvers() -> list[str]:
    """Solvers, and the heuristics of all problems."""
    from wattsched.solvers.registry import descriptions

    return list(dict.fromkeys([*descriptions(), *_of_problems(lambda known: known.heuristics)]))


def formulations() -> list[str]:
    """Formulations of all problems."""
    return _of_problems(lambda known: known.formulation_names())


def objectives() -> list[str]:
    """Objectives of all problems."""
    return _of_problems(lambda known: known.objectives)


def _of_problems(names: Callable[[Any], Iterable[str]]) -> list[str]:
    from wattsched.results.problems import PROBLEMS, problem

    return list(dict.fromkeys(name for known in map(problem, PROBLEMS) for name in names(known)))


replay_policies = late("replay.jobs.policies:names")
placement_policies = late("replay.placement.policies:names")


def named(*fields: str) -> dict[str, dict[str, Any]]:
    """Return the arguments of `parameters.filling` for options that name one of these."""
    known = {"formulation": formulations, "solver": solvers, "objective": objectives}
    return {field: {"metavar": "NAME", "shell_complete": completing(known[field])} for field in fields}


def name_option(field: str, help: str, **more: Any) -> Callable[[FC], FC]:
    """``--formulation``, ``--solver`` or ``--objective`` of a command, or a plural, which takes several."""
    known = named(field.removesuffix("s"))[field.removesuffix("s")]
    return click.option(f"--{field}", **(known | {"help": help} | more))
